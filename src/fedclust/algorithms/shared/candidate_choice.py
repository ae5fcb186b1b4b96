"""The best few k-means of weighted points, at the coordinator, and crossings of those that turn out best on the rows.

Many restarts of greedy k-means++ run side by side, and single points of the best move. A crossing takes the centres of
one candidate on one side of a plane and those of another on the other side, and moves them a few times. All arithmetic
is elementwise and in a fixed order, so the candidates are the same on every processor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedclust.algorithms.shared.fixed_order import matrix_product, ordered_sum, orthonormal_basis
from fedclust.core.types import Floats, Ints
from fedclust.kernels import distances

MAX_RESTARTS, MIN_RESTARTS = 200, 16
MAX_RESTART_DISTANCES = 1 << 22  # between points and centres of all restarts together; with more, there are fewer
PICK_TRIES = 3  # points that are tried for each new centre
MAX_ITERATIONS = 100
CROSSING_ITERATIONS = 3
MOVED_CANDIDATES = 2  # times the wanted ones: so many of the best restarts are improved by moves of single points
MAX_MOVES = 100
MOVE_FRACTION = 1e-9  # of the objective: a smaller gain may be rounding
STOP_FRACTION = 1e-12  # of the objective: a restart stops when an iteration lowers it by less

Partition = tuple[int, ...]  # the cluster of each point, numbered by the clusters' first points


class CandidateSearch:
    """Candidates among the partitions of weighted points; equal partitions come once.

    >>> points, weights = np.array([[0.0], [1.0], [9.0]]), np.array([3.0, 1.0, 2.0])
    >>> search = CandidateSearch(points, weights, 2, np.random.default_rng(0))
    >>> [search.centers(own).ravel().tolist() for own in search.restart(count=1)]
    [[0.25, 9.0]]
    """

    def __init__(self, points: Floats, weights: Floats, clusters: int, rng: np.random.Generator) -> None:
        self._points, self._weights, self._clusters, self._rng = points, weights, clusters, rng
        self._places = _coordinates(points)
        self._columns = np.ascontiguousarray(self._places.T)
        self._seen: set[Partition] = set()
        self.first_draw = points[:clusters]  # points for centres if there is no partition into so many clusters

    def restart(self, count: int) -> list[Partition]:
        """At most `count` partitions from many restarts, the best first."""
        d2 = distances.squared_distances(self._columns, self._places)
        picks = _greedy_picks(d2, self._weights, self._clusters, self._rng)
        self.first_draw = self._points[picks[0]]
        objective, labels = _run_restarts(self._columns, self._weights, self._places[picks], MAX_ITERATIONS)
        best = _first_different(labels[np.argsort(objective, kind="stable")], MOVED_CANDIDATES * count)
        objective, labels = _move_points(self._columns, self._weights, best, self._clusters)
        return self._new_partitions(labels[np.argsort(objective, kind="stable")], count)

    def cross(self, parents: Sequence[Partition], count: int) -> list[Partition]:
        """At most `count` crossings of two of the parents each."""
        if len(parents) < 2 or self._clusters < 2:
            return []
        centers = [_weighted_means(self._places, self._weights, own, self._clusters) for own in parents]
        spread = self._places.max(axis=0) - self._places.min(axis=0)
        children = np.stack([self._cross_two(centers, spread) for _ in range(count)])
        _, labels = _run_restarts(self._columns, self._weights, children, CROSSING_ITERATIONS)
        return self._new_partitions(labels, count)

    def centers(self, partition: Partition) -> Floats:
        """The weighted means of the clusters, in the columns of the points."""
        return _weighted_means(self._points, self._weights, partition, self._clusters)

    def _cross_two(self, parents: Sequence[Floats], spread: Floats) -> Floats:
        """The lowest centres of one parent along a random direction, and as many as are missing of the highest."""
        one, other = self._rng.choice(len(parents), 2, replace=False)
        direction = self._rng.uniform(-1, 1, len(spread)) * spread
        low, high = (np.argsort(ordered_sum(parents[i] * direction), kind="stable") for i in (one, other))
        taken = int(self._rng.integers(1, self._clusters))
        return np.concatenate([parents[one][low[:taken]], parents[other][high[taken:]]])

    def _new_partitions(self, labels: Ints, count: int) -> list[Partition]:
        """The first of these partitions that have all clusters and have not come before."""
        found: list[Partition] = []
        for own in labels:
            partition = _in_order_of_appearance(own)
            if partition in self._seen or max(partition) + 1 < self._clusters:
                continue
            self._seen.add(partition)
            found.append(partition)
            if len(found) == count:
                break
        return found


def _coordinates(points: Floats) -> Floats:
    """The points in as few coordinates as their distances need."""
    if points.shape[1] < len(points):
        return points
    offsets = points - points[0]
    return matrix_product(offsets, orthonormal_basis(offsets.T))


def _greedy_picks(d2: Floats, weights: Floats, clusters: int, rng: np.random.Generator) -> Ints:
    """Indices of points for each restart: each is the best of a few that are drawn by weight times distance."""
    count = len(weights)
    restarts = max(MIN_RESTARTS, min(MAX_RESTARTS, MAX_RESTART_DISTANCES // (count * clusters)))
    each = np.arange(restarts)
    near = np.ones((restarts, count))
    picks = np.empty((restarts, clusters), np.int64)
    for k in range(clusters):
        mass = np.cumsum(near * weights, axis=1)
        drawn = rng.random((restarts, PICK_TRIES if k else 1)) * mass[:, -1:]
        tried = np.minimum((mass[:, None, :] <= drawn[:, :, None]).sum(axis=2), count - 1)
        left = np.minimum(near[:, None, :], d2[tried]) if k else d2[tried]
        best = np.cumsum(left * weights, axis=2)[:, :, -1].argmin(axis=1)
        picks[:, k], near = tried[each, best], left[each, best]
    return picks


def _run_restarts(columns: Floats, weights: Floats, centers: Floats, iterations: int) -> tuple[Floats, Ints]:
    """k-means of each restart: its objective, and the label of each point. A centre without points stays."""
    restarts, clusters, width = centers.shape
    count = len(weights)
    objective = np.full(restarts, np.inf)
    labels = np.zeros((restarts, count), np.int64)
    active = np.arange(restarts)
    for _ in range(iterations):
        nearest = [distances.nearest_centers(columns, own) for own in centers]
        now = np.cumsum(np.stack([least for _, least in nearest]) * weights, axis=1)[:, -1]
        going = now < objective[active] * (1 - STOP_FRACTION)
        active, centers = active[going], centers[going]
        if not len(active):
            break
        own_labels = np.stack([own for own, _ in nearest]).astype(np.int64)[going]
        objective[active], labels[active] = now[going], own_labels
        cells = (np.arange(len(active))[:, None] * clusters + own_labels).ravel()
        tiled = np.tile(weights, len(active))
        mass = np.bincount(cells, tiled, len(active) * clusters).reshape(-1, clusters)  # one after the other
        moved = np.empty_like(centers)
        for f in range(width):
            pull = np.bincount(cells, tiled * np.tile(columns[f], len(active)), len(active) * clusters)
            moved[:, :, f] = pull.reshape(-1, clusters) / np.where(mass > 0, mass, 1.0)
        centers = np.where(mass[:, :, None] > 0, moved, centers)
    return objective, labels


def _move_points(columns: Floats, weights: Floats, labels: Ints, clusters: int) -> tuple[Floats, Ints]:
    """Partitions after the single moves that lower the objective most, one after the other, and their objectives.

    A move counts the change of both means, so it finds what k-means does not: two far points that share a cluster.
    """
    objective, labels = np.zeros(len(labels)), labels.copy()
    for own, labels_of in enumerate(labels):
        for _ in range(MAX_MOVES):
            mass = np.bincount(labels_of, weights, clusters)
            pull = np.stack([np.bincount(labels_of, weights * values, clusters) for values in columns], axis=1)
            means = pull / np.where(mass > 0, mass, 1.0)[:, None]
            d2 = distances.squared_distances(columns, means)
            here, at = d2[labels_of, np.arange(len(weights))], mass[labels_of]
            objective[own] = np.cumsum(here * weights)[-1]
            left = at - weights
            saved = np.where(left > 0, weights * at / np.where(left > 0, left, 1.0) * here, 0.0)
            change = weights * mass[:, None] / (mass[:, None] + weights) * d2 - saved
            change[labels_of, np.arange(len(weights))] = 0.0
            cluster, point = divmod(int(change.argmin()), len(weights))
            if not change[cluster, point] < -MOVE_FRACTION * objective[own]:
                break
            labels_of[point] = cluster
    return objective, labels


def _first_different(labels: Ints, count: int) -> Ints:
    """The first of these partitions that differ, at most so many."""
    firsts: dict[Partition, int] = {}
    for number, own in enumerate(labels):
        firsts.setdefault(_in_order_of_appearance(own), number)
        if len(firsts) == count:
            break
    return labels[list(firsts.values())]


def _in_order_of_appearance(labels: Ints) -> Partition:
    """The same partition, with clusters numbered by their first points.

    >>> _in_order_of_appearance(np.array([2, 0, 2, 1]))
    (0, 1, 0, 2)
    """
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(label, len(numbers)) for label in labels.tolist())


def _weighted_means(points: Floats, weights: Floats, partition: Partition, clusters: int) -> Floats:
    of_point = np.array(partition)
    centers = np.empty((clusters, points.shape[1]))
    for c in range(clusters):
        own = of_point == c
        centers[c] = ordered_sum(points[own] * weights[own][:, None], axis=0) / ordered_sum(weights[own])
    return centers
