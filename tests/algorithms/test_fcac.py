"""FCAC by hand: the coordinator's stream of nodes, the nets of sites and coordinator, what sites refuse, empty nets."""

import numpy as np
import pytest

import fedclust as fc
from fedclust.algorithms.fcac.coordinator_net import order_nodes, third_quartile
from fedclust.algorithms.fcac.site_nets import Nodes
from fedclust.kernels.resonance import Net


def blobs(seed=0, rows=400, centers=((0, 0), (9, 0), (0, 9), (9, 9))):
    rng = np.random.default_rng(seed)
    centers = np.array(centers, float)
    y = rng.integers(len(centers), size=rows)
    return centers[y] + rng.normal(size=(rows, centers.shape[1])), y


def dealt(X, parties=4):
    return {f"p{i}": part for i, part in enumerate(np.array_split(X, parties))}


def test_the_third_quartile_is_numpys():
    rng = np.random.default_rng(0)
    for n in range(1, 40):
        wins = rng.integers(1, 9, n)
        assert third_quartile(wins) == np.percentile(wins, 75)


def test_frequent_winners_come_first_each_group_shuffled_by_the_published_stream():
    a = Nodes(
        np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([1, 1, 5, 1]), 0, has_no_memory=False
    )  # quartile 2: only 3 is high
    b = Nodes(np.array([[5.0], [6.0]]), np.array([1, 1]), 0, has_no_memory=False)  # quartile 1: both are
    stream = order_nodes({"b": b, "a": a}, 1, seed=0)
    np.random.seed(0)
    high, low = np.array([[3.0], [5.0], [6.0]]), np.array([[1.0], [2.0], [4.0]])
    np.random.shuffle(high)
    np.random.shuffle(low)
    assert stream.tolist() == [*high.tolist(), *low.tolist()]


def test_a_federated_run_is_the_nets_at_the_sites_and_one_at_the_coordinator():
    X, _ = blobs()
    parts = dealt(X)
    model = fc.FCAC().fit(fc.Federation.local(parts, wire=True))
    nets = {p: Net.empty(2).learn(rows) for p, rows in parts.items()}
    stream = order_nodes({p: Nodes(net.places, net.wins, 0, has_no_memory=False) for p, net in nets.items()}, 2, seed=0)
    server = Net.empty(2).learn(stream, server=True)
    assert np.array_equal(model.nodes_, server.places)
    assert np.array_equal(model.labels_, server.components()[server.nearest_nodes(X)[0]])
    assert model.n_clusters_ == server.components().max() + 1
    assert model.history_[0]["sent"] == len(stream)
    assert any("are copies of single rows" in note for note in model.notes_)


def test_later_rounds_continue_all_nets():
    first, second = blobs(0)[0], blobs(1, centers=((30, 30), (40, 30)))[0]
    model = fc.FCAC().fit(fc.Federation.local(dealt(first)))
    model.partial_fit(fc.Federation.local(dealt(second)))
    server = Net.empty(2)
    nets = {p: Net.empty(2) for p in dealt(first)}
    for batch in (first, second):
        nets = {p: net.learn(dealt(batch)[p]) for p, net in nets.items()}
        answers = {p: Nodes(net.places, net.wins, 0, has_no_memory=False) for p, net in nets.items()}
        server = server.learn(order_nodes(answers, 2, seed=0), server=True)
    assert np.array_equal(model.nodes_, server.places)
    assert model.n_iter_ == 2


def test_sites_with_a_policy_refuse():
    X, _ = blobs(rows=600)
    with pytest.raises(fc.QuorumLost, match="does not allow"):
        fc.FCAC().fit(fc.Federation.local(dealt(X), policy="standard"))


def test_a_full_memory_is_reported():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 12)) * rng.uniform(1, 60, size=(400, 1))
    model = fc.FCAC(max_nodes=20).fit(fc.Federation.local(dealt(X)))
    assert len(model.nodes_) <= 20
    assert any("limit of 20 nodes is reached at p0" in note for note in model.notes_)


def test_a_net_may_lose_its_last_node_and_says_so():
    X = np.empty((20, 1))
    rng = np.random.default_rng(585)
    rng.integers(1, 9), rng.integers(11, 45)
    drawn = rng.normal(size=(20, 1))
    drawn[:10] *= 1e-3
    X[np.random.RandomState(0).permutation(20)] = drawn
    model = fc.FCAC().fit(fc.Federation.local({f"s{i}": X[5 * i : 5 * i + 5] for i in range(4)}))
    assert model.n_clusters_ == len(model.nodes_) == 0
    assert (model.labels_ == -1).all()
    assert (model.predict(X) == -1).all()
    assert model.notes_[-1].startswith("No node is left")


def test_ranges_and_floors_are_not_for_nets():
    X, _ = blobs()
    for scale in ("damped", "range"):
        with pytest.raises(fc.StudyError, match="choose one of none, standardise, minmax"):
            fc.FCAC(scale=scale).fit(X)
    with pytest.raises(TypeError, match="floor"):
        fc.FCAC(floor=5)
