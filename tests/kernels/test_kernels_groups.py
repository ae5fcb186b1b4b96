"""Ward and Leiden: joins and communities computed by hand, and the same groups from both backends."""

import numpy as np
import pytest

from fedclust import kernels
from fedclust.kernels import _backend, grouping


def cliques(sizes, bridge=0.1):
    """Cliques of unit edges, each tied to the next by one weak edge, as a graph in rows."""
    n = sum(sizes)
    A = np.zeros((n, n))
    at = 0
    for size in sizes:
        A[at : at + size, at : at + size] = 1
        if at:
            A[at, at - 1] = A[at - 1, at] = bridge
        at += size
    np.fill_diagonal(A, 0)
    return rows_of(A)


def rows_of(A):
    start = np.concatenate([[0], np.cumsum((A > 0).sum(axis=1))]).astype(np.int64)
    return start, np.nonzero(A)[1].astype(np.int32), A[A > 0]


def modularity(A, labels, resolution):
    """By its definition."""
    k, total = A.sum(axis=1), A.sum()
    same = labels[:, None] == labels
    return ((A - resolution * np.outer(k, k) / total) * same).sum() / total


def random_graph(seed, n=120):
    rng = np.random.default_rng(seed)
    P = rng.normal(size=(n, 2)) + rng.integers(4, size=(n, 1)) * 3
    d2 = ((P[:, None] - P) ** 2).sum(axis=2)
    A = np.where(d2 < 2, np.exp(-d2), 0)
    np.fill_diagonal(A, 0)
    return A


def test_ward_joins_what_adds_least_to_the_scatter(backend):
    # Costs: 0-1 1*1/2*1 = .5, 4-5.2 of weights 1 and 3: 3/4 * 1.44 = 1.08; so 0 and 1 first, then 4 and 5.2.
    places, weights, scatter = grouping.ward([[0.0], [1.0], [4.0], [5.2]], [1, 1, 1, 3], np.zeros(4), 2)
    assert places.ravel() == pytest.approx([0.5, (4 + 3 * 5.2) / 4])
    assert weights.tolist() == [2.0, 4.0]
    assert scatter == pytest.approx([0.5, 1.08])


def test_ward_keeps_rows_mean_and_scatter(backend):
    X = np.random.default_rng(0).normal(size=(90, 3))
    places, weights, scatter = grouping.ward(X, np.ones(90), np.zeros(90), 7)
    assert weights.sum() == 90
    assert weights @ places / 90 == pytest.approx(X.mean(axis=0))
    about = X.mean(axis=0)
    between = (weights[:, None] * (places - about) ** 2).sum()
    assert scatter.sum() + between == pytest.approx(((X - about) ** 2).sum())


def test_columns_that_go_along_are_averaged_and_cost_nothing(backend):
    rng = np.random.default_rng(1)
    X, more = rng.normal(size=(60, 2)), rng.normal(size=(60, 3)) * 1e6
    alone = grouping.ward(X, np.ones(60), np.zeros(60), 9, floor=4, blur=True)
    both = grouping.ward(np.hstack([X, more]), np.ones(60), np.zeros(60), 9, floor=4, blur=True, along=3)
    assert np.array_equal(both[0][:, :2], alone[0])
    assert all(np.array_equal(a, b) for a, b in zip(both[1:], alone[1:], strict=True))
    assert both[1] @ both[0][:, 2:] == pytest.approx(more.sum(axis=0))


def test_light_points_join_what_is_cheapest_until_none_is_left(backend):
    places, weights, _ = grouping.ward([[0.0], [1.0], [9.0], [9.5]], [5, 2, 4, 4], np.ones(4), 4, floor=5)
    assert weights.tolist() == [7.0, 8.0]
    assert places.ravel() == pytest.approx([2 / 7, 9.25])
    assert grouping.ward([[0.0], [1.0]], [1, 1], np.zeros(2), 2, floor=5)[1].tolist() == [2.0]


def test_points_of_identical_rows_are_blurred(backend):
    X = np.repeat([[0.0], [1.0], [7.0]], 6, axis=0)
    places, weights, scatter = grouping.ward(X, np.ones(18), np.zeros(18), 3, floor=5, blur=True)
    assert (scatter > 0).all()
    assert weights.sum() == 18
    assert not np.isin(places, X).any()
    plain = grouping.ward(X, np.ones(18), np.zeros(18), 3, floor=5)
    assert plain[0].ravel().tolist() == [0.0, 1.0, 7.0]


def test_nothing_and_one_point_stay_as_they_are(backend):
    assert len(grouping.ward(np.empty((0, 2)), np.empty(0), np.empty(0), 5)[0]) == 0
    assert grouping.ward([[3.0]], [1], [0], 1, floor=5, blur=True)[0].tolist() == [[3.0]]


def test_leiden_finds_cliques(backend):
    labels, quality = grouping.leiden(*cliques([5, 7, 4]), 1.0, seed=3)
    assert labels.tolist() == [0] * 5 + [1] * 7 + [2] * 4
    A = np.zeros((16, 16))
    start, to, weight = cliques([5, 7, 4])
    A[np.repeat(np.arange(16), np.diff(start)), to] = weight
    assert quality == pytest.approx(modularity(A, labels, 1.0))


def test_a_low_resolution_joins_and_a_high_one_parts(backend):
    graph = cliques([5, 7, 4])
    assert grouping.leiden(*graph, 1e-6, seed=0)[0].max() == 0
    assert grouping.leiden(*graph, 100.0, seed=0)[0].max() == 15


def test_communities_hang_together(backend):
    for seed in range(3):
        A = random_graph(seed)
        labels, _ = grouping.leiden(*rows_of(A), 0.3, seed=seed)
        for c in range(labels.max() + 1):
            own = np.flatnonzero(labels == c)
            reached = {own[0]}
            while True:
                more = {j for i in reached for j in own if A[i, j] > 0} | reached
                if more == reached:
                    break
                reached = more
            assert reached == set(own)


def test_no_single_move_improves_the_communities(backend):
    A = random_graph(5)
    labels, quality = grouping.leiden(*rows_of(A), 0.7, seed=1)
    for v in range(len(A)):
        for c in set(labels):
            moved = labels.copy()
            moved[v] = c
            assert modularity(A, moved, 0.7) <= quality + 1e-9


def test_a_graph_without_edges_is_all_alone(backend):
    labels, quality = grouping.leiden(np.zeros(4, np.int64), np.empty(0, np.int32), np.empty(0), 1.0, 0)
    assert labels.tolist() == [0, 1, 2]
    assert quality == 0.0


def test_both_backends_give_the_same_groups_bit_for_bit():
    if "c" not in _backend.available:
        pytest.skip("no compiled kernels here")
    found = {}
    for name in ("c", "numpy"):
        answers = []
        with kernels.use_backend(name):
            for seed in range(6):
                rng = np.random.default_rng(seed)
                n, d = int(rng.integers(2, 120)), int(rng.integers(1, 9))
                X = np.round(rng.normal(size=(n, d)), int(rng.integers(0, 4)))  # ties
                for target, floor, blur in ((n // 3 + 1, 0, False), (n // 5 + 1, 5, True)):
                    weights = rng.integers(1, 4, n).astype(float)
                    answers += [a.tobytes() for a in grouping.ward(X, weights, np.zeros(n), target, floor, blur=blur)]
                for resolution in (0.05, 0.5, 1.0, 3.0):
                    labels, quality = grouping.leiden(*rows_of(random_graph(seed)), resolution, seed)
                    answers += [labels.tobytes(), quality]
        found[name] = answers
    assert found["c"] == found["numpy"]


def test_arrays_that_do_not_belong_together_are_refused():
    if "c" not in _backend.available:
        pytest.skip("no compiled kernels here")
    start, to, weight = cliques([3, 3])
    with pytest.raises(ValueError, match="nodes which are not there"):
        grouping.leiden(start, to + 5, weight, 1.0, 0)
    with pytest.raises(ValueError, match="do not belong together"):
        grouping.ward(np.zeros((3, 2)), np.ones(2), np.zeros(2), 1)
    with pytest.raises(ValueError, match="do not belong together"):
        grouping.ward(np.zeros((3, 2)), np.ones(3), np.zeros(3), 1, along=2)
    with pytest.raises(ValueError, match="wrong type"):
        grouping.leiden(start.astype(np.int32), to, weight, 1.0, 0)
