"""Nets that learn row by row: steps computed by hand, the twin's bits in every build, and input that degenerates."""

import dataclasses

import numpy as np
import pytest
from kernels_building import built, chosen

from fedclust import kernels
from fedclust.kernels import _art_twin, _backend, resonance
from fedclust.kernels.resonance import Net


def groups(rows, width, seed=0, count=6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, width))[rng.integers(count, size=rows)] * 3 + rng.normal(size=(rows, width)) * 0.4


def bits(net):
    return [field.tobytes() for field in dataclasses.astuple(net)]


def settled(places, *, vigilance, width=1.0, edges=(), wins=None, half=2, seen=101, deleted=0, ages=0):
    """A net as it might be after some rows."""
    places = np.array(places, float)
    n = len(places)
    return Net(
        places,
        np.full(n, 1, np.int64) if wins is None else np.array(wins, np.int64),
        np.full(n, width),
        np.arange(n, dtype=np.int32),
        np.array(edges, np.int32).reshape(-1, 3),
        np.array([seen, half, 1, deleted, ages, 0], np.int64),
        np.array([vigilance, width]),
    )


def ages(net):
    return {(a, b): age for a, b, age in net.edges.tolist()}


@pytest.mark.parametrize("server", [False, True])
@pytest.mark.parametrize(("rows", "width"), [(300, 1), (400, 2), (500, 3), (300, 7), (250, 16), (120, 65)])
def test_both_backends_keep_the_same_nodes_bit_for_bit(rows, width, server):
    if "c" not in _backend.available:
        pytest.skip("no compiled kernels here")
    X = groups(rows, width, seed=rows + width)
    found = {}
    for name in ("c", "numpy"):
        with kernels.use_backend(name):
            net = Net.empty(width).learn(X, server=server)
            found[name] = bits(net), *(a.tobytes() for a in net.nearest_nodes(X))
    assert found["c"] == found["numpy"]


def test_a_net_goes_on_where_it_stopped(backend):
    X = groups(400, 3)
    for server in (False, True):
        whole = Net.empty(3).learn(X, server=server)
        parts = Net.empty(3).learn(X[:10], server=server)  # the first bandwidth takes ten rows
        for piece in (X[10:12], X[12:13], X[13:150], X[150:]):
            parts = parts.learn(piece, server=server)
        assert bits(parts) == bits(whole)


def test_the_bandwidth_by_hand():
    # Columns 0, 2, 4 and 1, 1, 1: spreads 2 and, for the constant one, 1e-6; d = 2, n = 3.
    rows = [np.array([0.0, 1.0]), np.array([2.0, 1.0]), np.array([4.0, 1.0])]
    shape = (4 / 4) ** (1 / 6) * 3 ** (-1 / 6)
    assert _art_twin.bandwidth(rows) == pytest.approx((2 + 1e-6) / 2 * shape, rel=1e-14)


def test_a_row_out_of_reach_becomes_a_node(backend):
    # CIM to both nodes is sqrt(1 - exp(-x^2 / 2)) at width 1.
    net = settled([[0.0], [1.0]], vigilance=0.5).learn(np.array([[3.0]]))
    assert net.places.ravel().tolist() == [0.0, 1.0, 3.0]
    assert net.wins.tolist() == [1, 1, 1]
    assert net.order.tolist() == [0, 1, 2]
    # The bandwidth of the two latest nodes, 3 and 1: s = sqrt(2), (4/3)^(1/5) 2^(-1/5).
    assert net.widths[2] == pytest.approx(2**0.5 * (4 / 3) ** 0.2 * 2**-0.2, rel=1e-14)


def test_a_row_within_reach_moves_its_winner_and_at_a_site_the_second_by_a_hundredth(backend):
    net = settled([[0.0], [1.0]], vigilance=0.9, wins=[1, 4]).learn(np.array([[0.4]]))
    assert net.places.ravel().tolist() == [0.0 + 0.4 / 2, 1.0 + (0.4 - 1.0) / 400]
    assert net.wins.tolist() == [2, 4]
    assert net.order.tolist() == [1, 0]


def test_at_the_server_an_edge_joins_the_two_winners_and_neighbours_move(backend):
    net = settled([[0.0], [1.0], [5.0]], vigilance=0.9, wins=[1, 4, 2], edges=[(0, 2, 3)])
    net = net.learn(np.array([[0.4]]), server=True)
    assert ages(net) == {(0, 1): 1, (0, 2): 4}
    assert net.places.ravel().tolist() == [0.2, 1.0 + (0.4 - 1.0) / 40, 5.0 + (0.4 - 5.0) / 20]


def test_a_second_winner_out_of_reach_gets_no_edge(backend):
    net = settled([[0.0], [5.0]], vigilance=0.5, edges=[(0, 1, 3)]).learn(np.array([[0.1]]), server=True)
    assert ages(net) == {(0, 1): 4}
    assert net.places[1, 0] == 5.0


def test_edges_that_are_old_for_their_kind_are_pruned(backend):
    # Ages after the row 1 (new), 3, 4, 5, 31: median 4, quartiles of what is strictly below and above: 2 and 18;
    # limit 18 + .1 * 16 = 19.6, as nothing was deleted before.
    edges = [(0, 2, 2), (0, 3, 3), (0, 4, 4), (0, 5, 30)]
    net = settled([[0.0], [1.0], [6.0], [7.0], [8.0], [9.0]], vigilance=0.9, edges=edges)
    net = net.learn(np.array([[0.4]]), server=True)
    assert ages(net) == {(0, 1): 1, (0, 2): 3, (0, 3): 4, (0, 4): 5}
    assert net.counts[3:5].tolist() == [1, 31]


def test_edges_that_went_before_count_in_the_limit(backend):
    # As above, with 5 edges deleted at age 40 on average: r = 5 / (5 + 5), limit 40 / 2 + 19.6 / 2 = 29.8 < 31;
    # with age 50: 34.8 > 31, so the edge stays.
    edges = [(0, 2, 2), (0, 3, 3), (0, 4, 4), (0, 5, 30)]
    places = [[0.0], [1.0], [6.0], [7.0], [8.0], [9.0]]
    went = settled(places, vigilance=0.9, edges=edges, deleted=5, ages=200).learn(np.array([[0.4]]), server=True)
    stays = settled(places, vigilance=0.9, edges=edges, deleted=5, ages=250).learn(np.array([[0.4]]), server=True)
    assert (0, 5) not in ages(went)
    assert ages(stays)[0, 5] == 31


def test_nodes_without_edges_go_every_lambda_rows_and_the_net_refills(backend):
    # lambda = 4, and the row is the 104th.
    net = settled([[0.0], [1.0], [50.0]], vigilance=0.9, seen=103, half=2).learn(np.array([[0.4]]), server=True)
    assert len(net.places) == 2
    assert ages(net) == {(0, 1): 1}
    assert net.order.tolist() == [1, 0]
    alone = settled([[0.0], [9.0], [50.0]], vigilance=0.5, seen=103, half=2).learn(np.array([[0.1]]), server=True)
    assert len(alone.places) == 0
    again = alone.learn(np.array([[3.0], [4.0]]), server=True)
    assert again.places.ravel().tolist() == [3.0, 4.0]
    assert again.vigilance > 0


def test_lambda_is_settled_when_the_nodes_are_diverse():
    net = Net.empty(2).learn(groups(200, 2))
    half = net.half_lambda
    first = groups(200, 2)[:half]
    width = _art_twin.bandwidth(list(groups(200, 2)[:10]))
    R = np.exp(-((first[:, None] - first) ** 2) / (2 * width**2)).mean(axis=2)
    assert np.linalg.det(np.exp(R)) < 1e-6
    assert half == 10 or np.linalg.det(np.exp(R[:-1, :-1])) >= 1e-6


@pytest.mark.parametrize("server", [False, True])
def test_degenerate_rows_give_finite_nets(backend, server):
    rng = np.random.default_rng(0)
    apart = np.cumsum(10.0 ** np.arange(40))[:, None]
    for rows in (
        np.ones((1, 3)),
        np.ones((60, 3)),
        np.column_stack([rng.normal(size=60), np.full(60, 7.0)]),
        apart,
        rng.normal(size=(60, 2)) * 2.0**120,
        rng.normal(size=(60, 2)) * 2.0**-600,
        np.zeros((0, 2)),
    ):
        net = Net.empty(rows.shape[1]).learn(rows, server=server)
        assert all(np.isfinite(field).all() for field in dataclasses.astuple(net))
        if len(net.places):
            labels, least = net.nearest_nodes(rows)
            assert np.isfinite(least).all()
            assert labels.max() < len(net.places)


def test_identical_rows_are_ten_nodes_and_then_winners(backend):
    net = Net.empty(2).learn(np.ones((50, 2)))
    assert net.places.tolist() == [[1.0, 1.0]] * 10
    assert net.wins.sum() == 50
    assert net.vigilance == 0.0


def test_a_stream_that_never_settles_stops_at_the_cap(backend):
    # Three columns of five are constant, so the bandwidth is next to nothing, and no row is like another in the rest.
    rows = np.column_stack([np.arange(40.0), -np.arange(40.0), np.zeros((40, 3))])
    net = Net.empty(5).learn(rows)
    assert not net.is_settled
    assert len(net.places) == 40
    capped = Net.empty(5).learn(rows, max_nodes=25)
    assert capped.is_settled
    assert len(capped.places) == 25
    assert capped.wins.sum() == 40


def test_beyond_the_cap_a_row_goes_to_its_nearest_node_and_is_counted(backend):
    net = settled([[0.0], [1.0]], vigilance=0.5).learn(np.array([[3.0]]), max_nodes=2)
    assert net.places.ravel().tolist() == [0.0, 2.0]
    assert net.rows_refused == 1


def test_the_determinant_of_twins_is_zero_and_settles_at_ten_nodes(backend):
    rows = np.vstack([[[0.0]], np.arange(12.0)[:, None] ** 4 * 1e6])
    assert Net.empty(1).learn(rows).half_lambda == 10


def test_a_net_of_foreign_making_is_refused():
    if "c" not in _backend.available:
        pytest.skip("no compiled kernels here")
    good = settled([[0.0], [1.0]], vigilance=0.5)
    bad = [
        {"order": np.array([0, 2], np.int32)},
        {"order": np.array([1, 1], np.int32)},
        {"edges": np.array([[0, 5, 1]], np.int32)},
        {"edges": np.array([[1, 0, 1]], np.int32)},
        {"wins": np.array([1], np.int64)},
        {"counts": np.array([3, 0, 1, 0, 0, 0], np.int64)},
    ]
    for change in bad:
        with pytest.raises(ValueError, match="a net whose"):
            dataclasses.replace(good, **change).learn(np.array([[0.4]]))
    with pytest.raises(ValueError, match="wrong type"):
        dataclasses.replace(good, widths=np.ones(2, np.float32)).learn(np.array([[0.4]]))


def test_many_rows_are_labelled_alike_by_one_thread_and_by_two(threads):
    rng = np.random.default_rng(0)
    rows, places = rng.normal(size=(5000, 8)), rng.normal(size=(60, 8))
    found = []
    for count in (1, 2):
        threads(count)
        found.append([a.tobytes() for a in resonance.nearest_places(rows, places, 0.7)])
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"FEDCLUST_PORTABLE": "1"}, {"CFLAGS": "-DLANES=1"}, {"CFLAGS": "-DLANES=2"}])
def test_every_build_gives_the_same_nodes(tmp_path, monkeypatch, environment):
    module = built("_art", tmp_path, **environment)
    X = groups(300, 5)
    expected = bits(Net.empty(5).learn(X)), bits(Net.empty(5).learn(X, server=True))
    monkeypatch.setattr(resonance, "_compiled", module)
    for _ in chosen(module):
        assert (bits(Net.empty(5).learn(X)), bits(Net.empty(5).learn(X, server=True))) == expected
