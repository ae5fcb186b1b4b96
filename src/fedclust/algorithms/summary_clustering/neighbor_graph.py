"""Clusters of weighted points without a number of clusters: communities of their neighbour graph that are stable.

graph   15 nearest neighbours; w_ij = exp(-d_ij^2 / (s_i s_j)) sqrt(M_i M_j), s_i the distance of the 7th, M rows
levels  Leiden at resolutions from coarse to fine, the best of three runs each
score   silhouette, every row of a point counted x mean adjusted Rand index with Leiden on 10 subsets of 80%
        x square root of the modularity, which finds clusters that are not spherical, and more of them
choice  the fewest clusters whose score is close to the best one
k-means instead where points are few, and after communities where it keeps their modularity (spherical_clusters)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.spatial import cKDTree

from fedclust.algorithms.shared.fixed_order import smallest_places
from fedclust.algorithms.summary_clustering import spherical_clusters
from fedclust.core.types import Array, Floats, Ints, Units
from fedclust.kernels import distances, elementary, grouping

Graph = tuple[Ints, Units, Floats]  # where each point's edges begin, their ends, their weights

NEIGHBOURS = 15
RUNS = 3
SUBSETS = 10
SUBSET_SHARE = 0.8
SCORE_TOLERANCE = 0.97  # of the best score, from which on fewer clusters win
VOTERS = 9
TREE_COLUMNS = 16  # columns up to which a tree of points is quicker than all distances
CHUNK_ROWS = 1024
FEW_POINTS = 64  # below, k-means
KEPT_MODULARITY = 0.99  # of the modularity of communities, which k-means must keep
RESOLUTIONS = tuple(np.geomspace(0.01, 1.35, 19).tolist())


@dataclass(frozen=True)
class Level:
    """What one resolution gave, or one number of clusters of k-means."""

    resolution: float | None
    clusters: int
    silhouette: float
    stability: float
    modularity: float

    @property
    def score(self) -> float:
        return max(self.silhouette, 0.0) * self.stability * math.sqrt(max(self.modularity, 0.0))


@dataclass(frozen=True)
class Clusters:
    """The cluster of each point, the levels it was chosen from, and whether rows go to the nearest centre."""

    labels: Units
    levels: tuple[Level, ...]
    spherical: bool = False

    @property
    def count(self) -> int:
        return int(self.labels.max(initial=-1)) + 1


def find_clusters(places: Floats, rows: Ints, seed: int) -> Clusters:
    """The clusters of points that stand for rows; one if nothing separates them.

    >>> blobs = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 20, axis=0)
    >>> find_clusters(blobs, np.full(60, 5), seed=0).labels.tolist() == [0] * 20 + [1] * 20 + [2] * 20
    True
    """
    n = len(places)
    if n < 3:
        return Clusters(np.zeros(n, np.int32), ())
    apart = np.sqrt(distances.squared_distances(np.ascontiguousarray(places.T), places))
    weights = rows.astype(np.float64)
    order = _nearest_first(apart)
    whole = _neighbor_graph(order, apart, weights)
    random = np.random.default_rng((seed, 3))
    subsets = [np.sort(random.choice(n, max(2, int(SUBSET_SHARE * n)), replace=False)) for _ in range(SUBSETS)]
    if n < FEW_POINTS:
        levels, labels = list[Level](), list[Units]()
        for own, stability in spherical_clusters.try_each_count(places, rows, subsets, seed):
            labels.append(own)
            within = silhouette(apart, weights, own)
            levels.append(Level(None, int(own.max()) + 1, within, stability, modularity(whole, own)))
        return Clusters(_choose_labels(levels, labels), tuple(levels), spherical=True)
    parts = [_neighbor_graph(_within_subset(order, some), apart, weights, some) for some in subsets]
    levels, labels = _communities(whole, list(zip(subsets, parts, strict=True)), apart, weights, seed)
    chosen = _choose_labels(levels, labels)
    refined = spherical_clusters.refine_by_kmeans(places, rows, chosen)
    as_many = len(np.unique(refined)) == len(np.unique(chosen))  # k-means may leave a cluster without points
    if as_many and modularity(whole, refined) >= KEPT_MODULARITY * modularity(whole, chosen):
        return Clusters(refined, tuple(levels))
    return Clusters(chosen, tuple(levels))


def _communities(
    whole: Graph, parts: Sequence[tuple[Ints, Graph]], apart: Floats, weights: Floats, seed: int
) -> tuple[list[Level], list[Units]]:
    """The communities at every resolution, and how good they are; `parts` are the subsets with their graphs."""
    levels, labels = list[Level](), list[Units]()
    for resolution in RESOLUTIONS:
        runs = [grouping.leiden(*whole, resolution, RUNS * seed + run) for run in range(RUNS)]
        own = max(runs, key=lambda found: found[1])[0]
        labels.append(own)
        if not own.max():
            levels.append(Level(resolution, 1, 0.0, 0.0, 0.0))
            continue
        agreed = [
            spherical_clusters.adjusted_rand(own[some], grouping.leiden(*part, resolution, RUNS * seed)[0])
            for some, part in parts
        ]
        stability = max(float(np.mean(agreed)), 0.0)
        within = silhouette(apart, weights, own)
        levels.append(Level(resolution, int(own.max()) + 1, within, stability, modularity(whole, own)))
    return levels, labels


def _choose_labels(levels: list[Level], labels: list[Units]) -> Units:
    """The fewest clusters whose score is close to the best one; of equals the better."""
    best = max(level.score for level in levels)
    if best <= 0:
        return np.zeros_like(labels[0])
    near = [i for i, level in enumerate(levels) if level.score >= SCORE_TOLERANCE * best]
    return labels[min(near, key=lambda i: (levels[i].clusters, -levels[i].score))]


def labels_by_vote(block: Array, places: Floats, labels: Units) -> Units:
    """The cluster of each row of a block (columns by rows): its nearest points vote, by the inverse of their distance.

    >>> labels_by_vote(np.array([[4.0, 7.0]]), np.array([[0.0], [1.0], [9.0]]), np.array([0, 0, 1], np.int32)).tolist()
    [0, 1]
    """
    voters, count = min(VOTERS, len(places)), int(labels.max()) + 1
    if voters == 1 or count == 1:
        return labels[distances.nearest_centers(block, places)[0]]
    near, d = _nearest_points(block, places, voters)
    weight = 1.0 / (d + 1e-9 * d[:, -1:] + np.finfo(float).tiny)
    votes = np.zeros((len(near), count))
    at = np.arange(len(near))
    for k in range(voters):
        votes[at, labels[near[:, k]]] += weight[:, k]
    return np.asarray(votes.argmax(axis=1), np.int32)


def _nearest_points(block: Array, places: Floats, count: int) -> tuple[Ints, Floats]:
    """The nearest points of each row, the nearest first, and their distances."""
    if len(block) <= TREE_COLUMNS:
        d, near = cKDTree(places).query(np.ascontiguousarray(block.T), k=count)
        return near, d
    found = []
    for at in range(0, block.shape[1], CHUNK_ROWS):
        d2 = np.ascontiguousarray(distances.squared_distances(block[:, at : at + CHUNK_ROWS], places).T)
        near = smallest_places(d2, count)
        own = np.take_along_axis(d2, near, axis=1)
        by = np.argsort(own, axis=1, kind="stable")
        found.append((np.take_along_axis(near, by, axis=1), np.sqrt(np.take_along_axis(own, by, axis=1))))
    return np.concatenate([near for near, _ in found]), np.concatenate([d for _, d in found])


def silhouette(apart: Floats, weights: Floats, labels: Units) -> float:
    """The mean silhouette of all rows, each at its point: (b - a) / max(a, b), a within its cluster, b to the next.

    >>> apart = np.abs(np.subtract.outer([0.0, 1.0, 5.0], [0.0, 1.0, 5.0]))
    >>> silhouette(apart, np.ones(3), np.array([0, 0, 1]))  # 4/5, 3/4 and, alone in its cluster, 0
    0.5166666666666667
    """
    count = int(labels.max()) + 1
    if count < 2:
        return 0.0
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(count))
    sums = np.add.reduceat(apart[:, order] * weights[order], starts, axis=1)
    mass = np.bincount(labels, weights)
    at = np.arange(len(labels))
    others = mass[labels] - 1
    a = np.where(others > 0, sums[at, labels] / np.maximum(others, 1.0), 0.0)
    means = sums / mass
    means[at, labels] = np.inf
    b = means.min(axis=1)
    top = np.maximum(a, b)
    s = np.where((others > 0) & (top > 0), (b - a) / np.where(top > 0, top, 1.0), 0.0)
    return float((s * weights).sum() / weights.sum())


def modularity(graph: Graph, labels: Units) -> float:
    """The share of edges that stay within clusters, beyond the share if ends were joined at random.

    >>> pairs = np.arange(5), np.array([1, 0, 3, 2], np.int32), np.ones(4)  # 0-1 and 2-3
    >>> modularity(pairs, np.array([0, 0, 1, 1])), modularity(pairs, np.array([0, 0, 0, 0]))
    (0.5, 0.0)
    """
    starts, ends, weights = graph
    own = np.repeat(labels, np.diff(starts))
    total = weights.sum()
    within = weights[own == labels[ends]].sum() / total
    return float(within - ((np.bincount(own, weights) / total) ** 2).sum())


def neighbour_count(points: int) -> int:
    """How many neighbours a point has in the graph; few points must not all be neighbours of each other."""
    return min(NEIGHBOURS, max(2, math.isqrt(points)), points - 1)


def _nearest_first(apart: Floats) -> Ints:
    """The nearest points of each point, itself left out, enough of them for every subset."""
    n = len(apart)
    count = min(n - 1, 3 * NEIGHBOURS)
    far = apart.copy()
    np.fill_diagonal(far, np.inf)
    near = smallest_places(far, count)
    by = np.argsort(np.take_along_axis(far, near, axis=1), axis=1, kind="stable")
    return np.take_along_axis(near, by, axis=1)


def _within_subset(order: Ints, some: Ints) -> Ints:
    """The same for a subset, in its own numbers; -1 where a point has no more neighbours in it."""
    number = np.full(len(order), -1)
    number[some] = np.arange(len(some))
    mine = number[order[some]]
    by = np.argsort(mine < 0, axis=1, kind="stable")
    return np.take_along_axis(mine, by, axis=1)


def _neighbor_graph(order: Ints, apart: Floats, weights: Floats, some: Ints | None = None) -> Graph:
    """Neighbours with their weights, row by row, every edge in both directions."""
    n = len(order)
    some = np.arange(n) if some is None else some
    k = neighbour_count(n)
    near = order[:, :k]
    d = np.where(near >= 0, apart[some[:, None], some[np.maximum(near, 0)]], np.inf)
    last = np.maximum((near >= 0).sum(axis=1), 1) - 1
    s = np.maximum(d[np.arange(n), np.minimum(k // 2 - 1, last)], 1e-150)
    s = np.where(np.isfinite(s), s, 1.0)
    a, place = np.nonzero(near >= 0)
    b = near[a, place]
    mass = weights[some]
    w = elementary.exp(-(d[a, place] ** 2) / (s[a] * s[b])) * np.sqrt(mass[a] * mass[b])
    edges = coo_array((w, (a, b)), shape=(n, n)).tocsr()
    edges = edges.maximum(edges.T).tocsr()
    edges.sort_indices()
    return edges.indptr.astype(np.int64), edges.indices.astype(np.int32), np.asarray(edges.data, np.float64)
