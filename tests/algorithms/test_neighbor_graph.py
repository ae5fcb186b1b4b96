"""Clusters of weighted points: the silhouette by definition, groups that are there, and none where there are none."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, silhouette_score

from fedclust.algorithms.summary_clustering import neighbor_graph, spherical_clusters


def far(P):
    return np.sqrt(((P[:, None] - P) ** 2).sum(axis=2))


def test_the_silhouette_counts_every_row_of_a_point():
    rng = np.random.default_rng(0)
    P, rows, labels = rng.normal(size=(40, 3)), rng.integers(2, 6, 40), rng.integers(3, size=40)
    repeated = np.repeat(P, rows, axis=0)
    expected = silhouette_score(repeated, np.repeat(labels, rows))
    assert neighbor_graph.silhouette(far(P), rows.astype(float), labels) == pytest.approx(expected)
    assert neighbor_graph.silhouette(far(P), rows.astype(float), np.zeros(40, int)) == 0.0


@pytest.mark.parametrize("k", [2, 3, 5, 9])
def test_groups_that_are_there_are_found(k):
    rng = np.random.default_rng(k)
    y = np.repeat(np.arange(k), 30)
    P = rng.normal(size=(30 * k, 4)) + rng.normal(size=(k, 4))[y] * 9
    found = neighbor_graph.find_clusters(P, rng.integers(5, 20, 30 * k), seed=0)
    assert found.count == k
    assert adjusted_rand_score(y, found.labels) == 1.0


def test_a_subsets_neighbours_are_those_of_the_subset_alone():
    rng = np.random.default_rng(0)
    P, weights = rng.normal(size=(150, 3)), rng.integers(1, 9, 150).astype(float)
    some = np.sort(rng.choice(150, 120, replace=False))
    order = neighbor_graph._nearest_first(far(P))
    within = neighbor_graph._neighbor_graph(neighbor_graph._within_subset(order, some), far(P), weights, some)
    alone = neighbor_graph._neighbor_graph(neighbor_graph._nearest_first(far(P[some])), far(P[some]), weights[some])
    for a, b in zip(within, alone, strict=True):
        assert np.array_equal(a, b)


def test_the_graph_by_hand():
    # Three points on a line: every point neighbours both others; s is the distance to the nearer one.
    P, weights = np.array([[0.0], [1.0], [3.0]]), np.array([4.0, 1.0, 1.0])
    start, to, w = neighbor_graph._neighbor_graph(neighbor_graph._nearest_first(far(P)), far(P), weights)
    assert start.tolist() == [0, 2, 4, 6]
    assert to.tolist() == [1, 2, 0, 2, 0, 1]
    a, b, c = np.exp(-1 / (1 * 1)) * 2, np.exp(-9 / (1 * 2)) * 2, np.exp(-4 / (1 * 2))
    assert w == pytest.approx([a, b, a, c, b, c])


def test_few_or_identical_points_are_one_cluster():
    for P in (np.zeros((1, 2)), np.array([[0.0], [9.0]]), np.ones((30, 2))):
        found = neighbor_graph.find_clusters(P, np.full(len(P), 5), seed=0)
        assert found.labels.tolist() == [0] * len(P)


def test_the_fewest_clusters_near_the_best_score_are_chosen():
    levels = [
        neighbor_graph.Level(0.1, 2, 0.60, 0.9, 0.49),
        neighbor_graph.Level(0.2, 3, 0.70, 1.0, 0.49),
        neighbor_graph.Level(0.4, 7, 0.62, 1.0, 0.64),
        neighbor_graph.Level(0.8, 9, 0.50, 0.9, 0.81),
    ]
    labels = [np.full(3, k) for k in range(4)]
    assert neighbor_graph._choose_labels(levels, labels)[0] == 1  # .7 x .7 = .490, near .62 x .8 = .496
    assert (
        neighbor_graph._choose_labels(levels[:1] + levels[3:], labels[:1] + labels[3:])[0] == 3
    )  # .378 is far from .405
    assert neighbor_graph.Level(0.1, 2, -0.1, 0.9, -0.1).score == 0


def test_modularity_of_a_small_graph_by_hand():
    edges = {(0, 1): 2.0, (1, 2): 1.0, (2, 3): 3.0}
    both = sorted([*edges.items(), *(((b, a), w) for (a, b), w in edges.items())])
    starts = np.searchsorted([a for (a, _), _ in both], np.arange(5))
    graph = starts, np.array([b for (_, b), _ in both], np.int32), np.array([w for _, w in both])
    # Of 12, 10 stay within; the clusters have 5 and 7 of all ends.
    assert neighbor_graph.modularity(graph, np.array([0, 0, 1, 1])) == pytest.approx(
        10 / 12 - (5 / 12) ** 2 - (7 / 12) ** 2
    )


@pytest.mark.parametrize("width", [3, 20])
def test_rows_go_by_the_vote_of_their_nine_nearest_points(width):
    rng = np.random.default_rng(width)
    P, labels = rng.normal(size=(60, width)), rng.integers(4, size=60).astype(np.int32)
    rows = np.concatenate([rng.normal(size=(2000, width)), P[:5]])
    found = neighbor_graph.labels_by_vote(np.ascontiguousarray(rows.T), P, labels)
    for x, c in zip(rows, found, strict=True):
        d = np.sqrt(((P - x) ** 2).sum(axis=1))
        near = np.argsort(d)[:9]
        votes = np.bincount(labels[near], 1 / (d[near] + 1e-9 * d[near[-1]]), minlength=4)
        assert votes[c] == pytest.approx(votes.max(), rel=1e-9)
    assert found[-5:].tolist() == labels[:5].tolist()


def test_few_points_get_spherical_clusters_and_many_get_communities():
    rng = np.random.default_rng(3)
    for each, spherical in ((20, True), (60, False)):
        y = np.repeat(np.arange(3), each)
        P = rng.normal(size=(3 * each, 4)) + rng.normal(size=(3, 4))[y] * 9
        found = neighbor_graph.find_clusters(P, rng.integers(5, 20, 3 * each), seed=0)
        assert adjusted_rand_score(y, found.labels) == 1.0
        assert found.spherical is spherical
        assert all((level.resolution is None) is spherical for level in found.levels)


def test_communities_are_refined_by_k_means_where_it_cuts_the_graph_as_well_and_stay_where_not(monkeypatch):
    rng = np.random.default_rng(0)
    blobs = rng.normal(size=(200, 2)) + np.repeat([[0, 0], [4.5, 0]], 100, axis=0)
    angle = rng.uniform(0, 2 * np.pi, 300)
    rings = ((np.repeat([1.0, 6.0], 150) + rng.normal(size=300) / 20) * np.stack([np.cos(angle), np.sin(angle)])).T
    for P, labels, kept in ((blobs, np.repeat([0, 1], 100), True), (rings, np.repeat([0, 1], 150), False)):
        spoilt = labels.astype(np.int32)
        monkeypatch.setattr(neighbor_graph, "_choose_labels", lambda levels, found, own=spoilt: own)  # noqa: ARG005
        found = neighbor_graph.find_clusters(P, np.full(len(P), 5), seed=0)
        refined = spherical_clusters.refine_by_kmeans(P, np.full(len(P), 5), spoilt)
        assert not np.array_equal(refined, spoilt)
        assert np.array_equal(found.labels, refined if kept else spoilt)


def test_a_community_that_k_means_empties_is_not_lost():
    """Six blobs within a ring whose mean lies among them: no point of the ring is nearest to it."""
    rng = np.random.default_rng(0)
    spoke = np.repeat(np.arange(6) * np.pi / 3, 50)
    blobs = 10 * np.stack([np.cos(spoke), np.sin(spoke)], axis=1) + rng.normal(size=(300, 2)) * 0.3
    angle = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    P = np.concatenate([blobs, 14 * np.stack([np.cos(angle), np.sin(angle)], axis=1)])
    labels = np.concatenate([np.repeat(np.arange(1, 7), 50), np.zeros(60, int)]).astype(np.int32)
    assert len(np.unique(spherical_clusters.refine_by_kmeans(P, np.full(360, 5), labels))) == 6
    found = neighbor_graph.find_clusters(P, np.full(360, 5), seed=0)
    assert np.bincount(found.labels).min() > 0


def test_k_means_does_not_depend_on_the_origin_and_numbers_clusters_by_their_points():
    rng = np.random.default_rng(1)
    P, rows = rng.normal(size=(40, 3)), rng.integers(5, 9, 40)
    some = [np.sort(rng.choice(40, 32, replace=False)) for _ in range(3)]
    here, there = (list(spherical_clusters.try_each_count(Q, rows, some, 7)) for Q in (P, P + 64.0))
    assert [int(own.max()) + 1 for own, _ in here] == list(range(2, 14))
    for (own, stable), (other, again) in zip(here, there, strict=True):
        assert np.array_equal(own, other)
        assert stable == again
        assert own[0] == 0
        assert 0 <= stable <= 1


def test_k_means_counts_the_rows_of_each_point():
    """Three points on a line: the two that stand for most rows have a cluster each, or share one if they are near."""
    line = np.array([[0.0], [4.0], [10.0]])
    for rows, expected in (([9, 9, 1], [0, 1, 1]), ([1, 1, 1], [0, 0, 1])):
        ((own, _),) = spherical_clusters.try_each_count(line, np.array(rows), [np.arange(3)], 0)
        assert own.tolist() == expected
