"""The best few k-means of weighted points, at the coordinator: many restarts of greedy k-means++ side by side.

All arithmetic is elementwise and in a fixed order, so the choice is the same on every processor.
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
STOP_FRACTION = 1e-12  # of the objective: a restart stops when an iteration lowers it by less


def choose_candidates(
    points: Floats, weights: Floats, clusters: int, rng: np.random.Generator, count: int
) -> list[Floats]:
    """At most `count` sets of centres, the best first; equal partitions of the points count once.

    >>> points, weights = np.array([[0.0], [1.0], [9.0]]), np.array([3.0, 1.0, 2.0])
    >>> choose_candidates(points, weights, 2, np.random.default_rng(0), count=1)[0].ravel().tolist()
    [0.25, 9.0]
    """
    places = _coordinates(points)
    columns = np.ascontiguousarray(places.T)
    picks = _greedy_picks(distances.squared_distances(columns, places), weights, clusters, rng)
    objective, labels = _run_restarts(columns, weights, places[picks])
    found: list[Floats] = []
    seen: set[tuple[int, ...]] = set()
    for i in np.argsort(objective, kind="stable"):
        partition = _in_order_of_appearance(labels[i])
        if partition in seen or max(partition) + 1 < clusters:
            continue
        seen.add(partition)
        found.append(_weighted_means(points, weights, partition, clusters))
        if len(found) == count:
            break
    return found or [points[picks[0]]]  # fewer distinct points than centres


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


def _run_restarts(columns: Floats, weights: Floats, centers: Floats) -> tuple[Floats, Ints]:
    """k-means of each restart: its objective, and the label of each point. A centre without points stays."""
    restarts, clusters, width = centers.shape
    count = len(weights)
    objective = np.full(restarts, np.inf)
    labels = np.zeros((restarts, count), np.int64)
    active = np.arange(restarts)
    for _ in range(MAX_ITERATIONS):
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


def _in_order_of_appearance(labels: Ints) -> tuple[int, ...]:
    """The same partition, with clusters numbered by their first points.

    >>> _in_order_of_appearance(np.array([2, 0, 2, 1]))
    (0, 1, 0, 2)
    """
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(label, len(numbers)) for label in labels.tolist())


def _weighted_means(points: Floats, weights: Floats, partition: Sequence[int], clusters: int) -> Floats:
    of_point = np.array(partition)
    centers = np.empty((clusters, points.shape[1]))
    for c in range(clusters):
        own = of_point == c
        centers[c] = ordered_sum(points[own] * weights[own][:, None], axis=0) / ordered_sum(weights[own])
    return centers
