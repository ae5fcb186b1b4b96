"""Initial centres of a column split: k-means of small cells of the rows, by summed distances only.

1. A few rows are drawn uniformly, then twice more by their squared distances to those drawn before. Every row belongs
   to the nearest drawn row: these are the cells.
2. The parties move their slices to the cells' means, and the distances of all rows to these means are asked for.
3. The mean of a union of cells is a weighted mean of cell means, so its distances to all rows follow from those. The
   coordinator runs greedy k-means++ and k-means on the cells many times and takes the best candidate over all rows.
4. The parties move their slices to the means of its clusters.

Drawing in a few large steps: Bahmani et al., "Scalable k-means++". The number of questions does not depend on the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.cmeans_contracts import CELLS_PER_CENTER
from fedclust.algorithms.cmeans.column_split import (
    CenterPlacement,
    JointTable,
    move_centers,
    place_centers,
    squared_distances,
)
from fedclust.algorithms.shared.candidate_choice import CandidateSearch, Partition
from fedclust.algorithms.shared.fixed_order import ordered_sum
from fedclust.algorithms.shared.reseeding import draw_index
from fedclust.core.effects import Protocol, each
from fedclust.core.types import Floats, Ints

DRAWS_OF_ROWS = 3  # the first of them uniform
ROUNDING_OF_DISTANCES = 1e-12  # of the largest: below this nothing of a point is left but rounding


@dataclass(frozen=True)
class RowCells:
    """The drawn rows, each row's nearest one among them and its squared distance to it."""

    rows: Ints
    owner: Ints
    nearest: Floats


def place_plus_plus(table: JointTable, n_clusters: int, candidates: int, rng: np.random.Generator) -> Protocol[None]:
    """Put the parties' slices of the centres on the means of the best of some candidates."""
    if n_clusters == 1:
        rows, labels = np.zeros(1, np.int64), np.zeros(table.rows, np.int64)
    else:
        drawn = yield from _draw_cells(table, min(CELLS_PER_CENTER * n_clusters, table.rows), rng)
        count = len(drawn.rows)
        yield from each(place_centers, CenterPlacement(rows=drawn.rows))
        yield from _move_to_means(drawn.owner, count)
        to_means = yield from squared_distances(table, count)
        rows, labels = _choose_clusters(drawn, to_means, n_clusters, candidates, rng)
    yield from each(place_centers, CenterPlacement(rows=rows))
    yield from _move_to_means(labels, n_clusters)


def points_from_distances(d2: Floats) -> Floats:
    """Points with these squared distances, the first at the origin, by a pivoted Cholesky decomposition.

    >>> points_from_distances(np.array([[0.0, 9.0, 25.0], [9.0, 0.0, 16.0], [25.0, 16.0, 0.0]])).tolist()
    [[0.0, 0.0], [1.8, 2.4], [5.0, 0.0]]
    """
    rest = (d2[:, :1] + d2[:1, :] - d2) / 2
    limit = ROUNDING_OF_DISTANCES * float(np.diagonal(rest).max(initial=0.0))
    found: list[Floats] = []
    for _ in range(len(d2) - 1):
        pivot = int(np.diagonal(rest).argmax())
        if not rest[pivot, pivot] > limit:
            break
        column = rest[:, pivot] / np.sqrt(rest[pivot, pivot])
        found.append(column)
        rest = rest - column[:, None] * column
    return np.stack(found, axis=1) if found else np.zeros((len(d2), 1))


def _draw_cells(table: JointTable, count: int, rng: np.random.Generator) -> Protocol[RowCells]:
    """Draw rows in a few steps, and assign every row to the nearest."""
    sizes = [len(part) for part in np.array_split(np.arange(count), DRAWS_OF_ROWS)]
    rows = np.empty(0, np.int64)
    owner, nearest = np.zeros(table.rows, np.int64), np.full(table.rows, np.inf)
    for size in sizes:
        if not size:
            continue
        new = _draw_rows(nearest, size, rng) if len(rows) else rng.permutation(table.rows)[:size]
        yield from each(place_centers, CenterPlacement(rows=new))
        d2 = yield from squared_distances(table, size)
        closest, least = d2.argmin(axis=0), d2.min(axis=0)
        owner = np.where(least < nearest, len(rows) + closest, owner)
        nearest = np.minimum(nearest, least)
        rows = np.concatenate([rows, new])
    return RowCells(rows, owner, nearest)


def _draw_rows(weights: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Row numbers, each as likely as its weight, none twice while there is weight left."""
    left, drawn = weights.copy(), np.empty(count, np.int64)
    for i in range(count):
        drawn[i] = draw_index(left, rng)
        left[drawn[i]] = 0.0
    return drawn


def _move_to_means(labels: Ints, count: int) -> Protocol[None]:
    """Move the parties' slices to the means of the labelled rows; a centre without rows stays."""
    weights = np.asarray(labels == np.arange(count)[:, None], np.float64)
    yield from move_centers(weights, np.full(count, -1, np.int64))


def _choose_clusters(
    drawn: RowCells, to_means: Floats, n_clusters: int, candidates: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """The row that each centre is put on if it has no rows, and each row's cluster."""
    sizes = np.bincount(drawn.owner, minlength=len(drawn.rows))
    filled = np.flatnonzero(sizes)
    cells = (np.cumsum(sizes > 0) - 1)[drawn.owner]
    if len(filled) <= n_clusters:
        further = _draw_rows(drawn.nearest, n_clusters - len(filled), rng)
        return np.concatenate([drawn.rows[filled], further]), cells
    to_means = to_means[filled]
    between = _distances_between_means(to_means, cells)
    weights = sizes[filled].astype(np.float64)
    search = CandidateSearch(points_from_distances(between), weights, n_clusters, rng)
    found = [_assign_rows(own, weights, between, to_means) for own in search.restart(candidates)]
    labels = min(found, key=lambda one: one[0])[1] if found else to_means[:n_clusters].argmin(axis=0)
    return drawn.rows[filled[:n_clusters]], labels


def _distances_between_means(to_means: Floats, cells: Ints) -> Floats:
    """The squared distances between the cells' means, from those of all rows to them.

    The mean squared distance of a cell's rows to a point is that to their mean, plus that of their mean to the point.
    """
    count = len(to_means)
    around = np.empty((count, count))
    for cell in range(count):
        own = to_means[:, cells == cell]
        around[cell] = ordered_sum(own) / own.shape[1]
    upper = np.triu(np.maximum(around - np.diagonal(around)[:, None], 0.0), 1)
    return np.asarray(upper + upper.T, np.float64)


def _assign_rows(partition: Partition, sizes: Floats, between: Floats, to_means: Floats) -> tuple[float, Ints]:
    """The objective of a partition of the cells over all rows, and the nearest of its clusters' means for each row.

    With weights w of sum 1, the squared distance to a weighted mean of points p is sum w |x - p|^2 less the weighted
    mean of |p - q|^2 / 2 over all pairs of the points.
    """
    of_cell = np.array(partition)
    d2 = np.empty((max(partition) + 1, to_means.shape[1]))
    for cluster in range(len(d2)):
        own = np.flatnonzero(of_cell == cluster)
        share = sizes[own] / ordered_sum(sizes[own])
        spread = ordered_sum(ordered_sum(between[np.ix_(own, own)] * share) * share) / 2
        d2[cluster] = ordered_sum(to_means[own] * share[:, None], axis=0) - spread
    return float(ordered_sum(d2.min(axis=0))), np.asarray(d2.argmin(axis=0), np.int64)
