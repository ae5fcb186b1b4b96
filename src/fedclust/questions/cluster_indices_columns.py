"""The same indices where columns lie at several parties: distances add over columns, and so do gaps between centres.

The coordinator has the matrix of squared distances, as clustering itself does; no one holds whole centres. Means of
labels are kept at the parties beside the centres, which stay as they were.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans import column_split
from fedclust.algorithms.cmeans.column_slices import blocks_of_rows, view_of
from fedclust.algorithms.cmeans.column_split import Table
from fedclust.core import ring
from fedclust.core.effects import Keep, Protocol, each, handler, total
from fedclust.core.release import Done, Release, additive
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site
from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels import distances, exact_sums, hard_sweep
from fedclust.kernels.fine_sums import fine_sums_by_label
from fedclust.kernels.units import DIFFERENCE_BITS, DISTANCE_BITS, unit_of
from fedclust.questions import cluster_indices, index_formulas
from fedclust.questions.cluster_indices import CRISP
from fedclust.questions.index_terms import Terms

CHUNK = 1 << 18  # labels that travel at once


@dataclass(frozen=True)
class Pairs:
    """Sums of |difference|^p of every two `centers`, or of every two `means`, in a unit that every party uses."""

    which: str
    p: float
    unit: int


@dataclass(frozen=True)
class Gaps(Release):
    powers: Exact = additive("for each pair of centres, or of label means, the sum over columns of |difference|^p")


@handler(releases=Gaps, row_weights=column_split.of_one_row, split="columns")
def gaps(site: Site, ask: Pairs) -> Gaps:
    """This party's share of the distances between points of which it holds a slice."""
    points = np.asarray(site.memory[ask.which])
    unit = np.asarray(ask.unit, np.int32)
    if ask.p == 2:
        return Gaps(Exact(distances.exact(np.ascontiguousarray(points.T), points, ask.unit), unit))
    terms = index_formulas.powered(np.abs(points[:, None] - points), ask.p)
    return Gaps(ring.total([Exact.of(term, unit=unit) for term in np.moveaxis(terms, 2, 0)]))


@dataclass(frozen=True)
class Labels:
    """The labels of the rows from `start` on; the first and last chunk say so."""

    start: int
    labels: Ints
    clusters: int
    first: bool
    last: bool


@handler(releases=Done, split="columns")
def keep_means(site: Site, ask: Labels) -> Keep[Done]:
    """Add up the rows of each label and of all; with the last chunk, keep their means."""
    groups = ask.clusters + 1
    unit = unit_of(view_of(site).exponents, DISTANCE_BITS)
    counts, pull = np.zeros(groups, np.int64), np.zeros((groups, len(unit), 2), np.uint64)
    if not ask.first:
        counts, pull = np.array(site.memory["label_counts"]), np.array(site.memory["label_pull"])
    for block, at in _rows(site, ask.start, len(ask.labels)):
        labels = ask.labels[at : at + block.shape[1]]
        for some in (labels, np.full_like(labels, ask.clusters)):
            counts += np.bincount(some, minlength=groups)
            exact_sums.add(pull, fine_sums_by_label(block, some, groups, unit))
    kept = {name: array for name, array in site.memory.items() if not name.startswith("label_")}
    if not ask.last:
        return Keep(Done(), {**kept, "label_counts": counts, "label_pull": pull})
    added = Exact(pull, np.tile(unit, (groups, 1))).floats()
    return Keep(Done(), {**kept, "means": added / np.maximum(counts, 1)[:, None]})


@dataclass(frozen=True)
class Own:
    """Squared distances of the rows from `start` on to their label's mean."""

    start: int
    labels: Ints
    unit: int


@dataclass(frozen=True)
class Distances(Release):
    d2: Exact = additive("the squared distance of each row to the mean of its label")


@handler(releases=Distances, row_weights=column_split.of_one_row, split="columns")
def apart(site: Site, ask: Own) -> Distances:
    """This party's share of the squared distances of some rows to their label's mean."""
    means = np.asarray(site.memory["means"])
    parts = [np.zeros((0, 2), np.uint64)]
    for block, at in _rows(site, ask.start, len(ask.labels)):
        labels = ask.labels[at : at + block.shape[1]]
        parts.append(distances.exact(block, means, ask.unit)[labels, np.arange(len(labels))])
    return Distances(Exact(np.concatenate(parts), np.asarray(ask.unit, np.int32)))


def scores(
    table: Table,
    clusters: int,
    m: float,
    names: Iterable[str],
    *,
    p: float = 2.0,
    q: float = 1.0,
    d2: Floats | None = None,
) -> Protocol[dict[str, float]]:
    """The named indices of the centres that the parties hold; `d2`, squared distances to them, where they are known."""
    names = cluster_indices.checked(names, clusters, p, q)
    found: dict[str, float] = {}
    if d2 is None:
        d2 = yield from column_split.squared(table, clusters)
    reach = table.bound + 1
    if parts := cluster_indices.parts_of(names):
        terms = Terms(m, q, reach, parts)
        between = yield from _between(table, "centers", p, names)
        sums_of_all = cluster_indices.Sums(Exact.counts(table.rows), **terms.exact(terms.of(d2)))
        found |= cluster_indices.from_sums(names, sums_of_all, between, p=p, q=q)
    if any(name in CRISP for name in names):
        found |= yield from _crisp(table, hard_sweep.labels_from(d2).astype(np.int64), clusters, names, reach)
    return {name: found[name] for name in names}


def _between(table: Table, which: str, p: float, names: tuple[str, ...]) -> Protocol[tuple[Floats, Floats]]:
    """Sums of p-th powers and of squares between centres, those that the indices need."""
    squares = (yield from total(gaps, Pairs(which, 2.0, table.unit))).powers.floats()
    if p == 2 or "fuzzy-davies-bouldin" not in names:
        return squares, squares
    unit = int(unit_of(math.ceil(table.bound * p / 2) + 1, DIFFERENCE_BITS))
    return (yield from total(gaps, Pairs(which, p, unit))).powers.floats(), squares


def _crisp(table: Table, labels: Ints, clusters: int, names: tuple[str, ...], reach: int) -> Protocol[dict[str, float]]:
    """Indices of labels; the parties keep their slices of the means, the last of them that of all rows."""
    sizes = np.bincount(labels, minlength=clusters).astype(np.float64)
    used = np.flatnonzero(cluster_indices.used_labels(sizes))
    for start in range(0, table.rows, CHUNK):
        some = labels[start : start + CHUNK]
        yield from each(keep_means, Labels(start, some, clusters, start == 0, start + len(some) == table.rows))
    d2 = []
    for start in range(0, table.rows, CHUNK):
        answer = yield from total(apart, Own(start, labels[start : start + CHUNK], table.unit))
        d2.append(answer.d2.floats())
    squares = (yield from total(gaps, Pairs("means", 2.0, table.unit))).powers.floats()
    spread = cluster_indices.scattered(np.concatenate(d2), labels, clusters, reach)
    return cluster_indices.from_scatter(names, spread, sizes, (squares[np.ix_(used, used)], squares[used, -1]))


def _rows(site: Site, start: int, count: int) -> Iterator[tuple[Array, int]]:
    """The blocks of some rows, and where each begins among them."""
    at = 0
    for block in blocks_of_rows(site, start, start + count):
        yield block, at
        at += block.shape[1]
