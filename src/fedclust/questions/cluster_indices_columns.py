"""The same indices where columns lie at several parties: distances add over columns, and so do gaps between centres.

The coordinator has the matrix of squared distances, as clustering itself does; no one holds whole centres. Means of
labels are kept at the parties beside the centres, which stay as they were.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans import column_split
from fedclust.algorithms.cmeans.column_slices import blocks_of_rows, own_view
from fedclust.algorithms.cmeans.column_split import JointTable
from fedclust.core import ring
from fedclust.core.effects import Keep, Protocol, each, handler, total
from fedclust.core.question_types import DISTANCE_UNIT, AgreedValuesQuestion
from fedclust.core.release import Done, Release, additive
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site
from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels import distances, exact_sums, hard_sweep
from fedclust.kernels.fine_sums import fine_sums_by_label
from fedclust.kernels.units import DIFFERENCE_BITS, DISTANCE_BITS, unit_of
from fedclust.questions import cluster_indices, index_formulas
from fedclust.questions.cluster_indices import CRISP_INDICES
from fedclust.questions.index_terms import IndexTerms
from fedclust.questions.question_contracts import fits_center_gaps, fits_label_chunk, fits_mean_distances

LABEL_CHUNK_ROWS = 1 << 18  # labels that travel at once


@dataclass(frozen=True)
class CenterGapsQuestion(AgreedValuesQuestion):
    """Sums of |difference|^p of every two `centers`, or of every two `means`, in a unit that every party uses."""

    which: str
    p: float
    unit: int

    def agreed_values(self) -> Mapping[str, int]:
        return {DISTANCE_UNIT: self.unit}


@dataclass(frozen=True)
class CenterGaps(Release):
    powers: Exact = additive(
        "for each pair of centres, or of means of labels, the sum over this site's columns of |difference|^p"
    )


@handler(releases=CenterGaps, row_weights=column_split.single_row_weights, split="columns", contract=fits_center_gaps)
def center_gaps(site: Site, ask: CenterGapsQuestion) -> CenterGaps:
    """This party's share of the distances between points of which it holds a slice."""
    points = np.asarray(site.memory[ask.which])
    unit = np.asarray(ask.unit, np.int32)
    if ask.p == 2:
        return CenterGaps(Exact(distances.exact_distances(np.ascontiguousarray(points.T), points, ask.unit), unit))
    terms = index_formulas.raise_power(np.abs(points[:, None] - points), ask.p)
    return CenterGaps(ring.total([Exact.from_floats(term, unit=unit) for term in np.moveaxis(terms, 2, 0)]))


@dataclass(frozen=True)
class LabelChunk:
    """The labels of the rows from `start` on; the first and last chunk say so."""

    start: int
    labels: Ints
    clusters: int
    first: bool
    last: bool


@handler(releases=Done, split="columns", contract=fits_label_chunk)
def keep_means(site: Site, ask: LabelChunk) -> Keep[Done]:
    """Add up the rows of each label and of all; with the last chunk, keep their means."""
    groups = ask.clusters + 1
    unit = unit_of(own_view(site).exponents, DISTANCE_BITS)
    counts, pull = np.zeros(groups, np.int64), np.zeros((groups, len(unit), 2), np.uint64)
    if not ask.first:
        counts, pull = np.array(site.memory["label_counts"]), np.array(site.memory["label_pull"])
    for block, at in _numbered_blocks(site, ask.start, len(ask.labels)):
        labels = ask.labels[at : at + block.shape[1]]
        for some in (labels, np.full_like(labels, ask.clusters)):
            counts += np.bincount(some, minlength=groups)
            exact_sums.add_in_place(pull, fine_sums_by_label(block, some, groups, unit))
    kept = {name: array for name, array in site.memory.items() if not name.startswith("label_")}
    if not ask.last:
        return Keep(Done(), {**kept, "label_counts": counts, "label_pull": pull})
    added = Exact(pull, np.tile(unit, (groups, 1))).to_floats()
    return Keep(Done(), {**kept, "means": added / np.maximum(counts, 1)[:, None]})


@dataclass(frozen=True)
class MeanDistancesQuestion(AgreedValuesQuestion):
    """Squared distances of the rows from `start` on to their label's mean."""

    start: int
    labels: Ints
    unit: int

    def agreed_values(self) -> Mapping[str, int]:
        return {DISTANCE_UNIT: self.unit}


@dataclass(frozen=True)
class MeanDistances(Release):
    d2: Exact = additive("the squared distance of each row to the mean of its label")


@handler(
    releases=MeanDistances, row_weights=column_split.single_row_weights, split="columns", contract=fits_mean_distances
)
def mean_distances(site: Site, ask: MeanDistancesQuestion) -> MeanDistances:
    """This party's share of the squared distances of some rows to their label's mean."""
    means = np.asarray(site.memory["means"])
    parts = [np.zeros((0, 2), np.uint64)]
    for block, at in _numbered_blocks(site, ask.start, len(ask.labels)):
        labels = ask.labels[at : at + block.shape[1]]
        parts.append(distances.exact_distances(block, means, ask.unit)[labels, np.arange(len(labels))])
    return MeanDistances(Exact(np.concatenate(parts), np.asarray(ask.unit, np.int32)))


def compute_indices(
    table: JointTable,
    clusters: int,
    m: float,
    names: Iterable[str],
    *,
    p: float = 2.0,
    q: float = 1.0,
    d2: Floats | None = None,
) -> Protocol[dict[str, float]]:
    """The named indices of the centres that the parties hold; `d2`, squared distances to them, where they are known."""
    names = cluster_indices.check_indices(names, clusters, p, q)
    found: dict[str, float] = {}
    if d2 is None:
        d2 = yield from column_split.squared_distances(table, clusters)
    reach = table.distance_bound + 1
    if parts := cluster_indices.terms_needed(names):
        terms = IndexTerms(m, q, reach, parts)
        between = yield from _powers_between_centers(table, "centers", p, names)
        sums_of_all = cluster_indices.IndexSums(Exact.from_counts(table.rows), **terms.with_units(terms.sum_terms(d2)))
        found |= cluster_indices.from_sums(names, sums_of_all, between, p=p, q=q)
    if any(name in CRISP_INDICES for name in names):
        found |= yield from _crisp_indices(
            table, hard_sweep.labels_from_distances(d2).astype(np.int64), clusters, names, reach
        )
    return {name: found[name] for name in names}


def _powers_between_centers(
    table: JointTable, which: str, p: float, names: tuple[str, ...]
) -> Protocol[tuple[Floats, Floats]]:
    """Sums of p-th powers and of squares between centres, those that the indices need."""
    squares = (yield from total(center_gaps, CenterGapsQuestion(which, 2.0, table.unit))).powers.to_floats()
    if p == 2 or "fuzzy-davies-bouldin" not in names:
        return squares, squares
    unit = int(unit_of(math.ceil(table.distance_bound * p / 2) + 1, DIFFERENCE_BITS))
    return (yield from total(center_gaps, CenterGapsQuestion(which, p, unit))).powers.to_floats(), squares


def _crisp_indices(
    table: JointTable, labels: Ints, clusters: int, names: tuple[str, ...], reach: int
) -> Protocol[dict[str, float]]:
    """Indices of labels; the parties keep their slices of the means, the last of them that of all rows."""
    sizes = np.bincount(labels, minlength=clusters).astype(np.float64)
    used = np.flatnonzero(cluster_indices.used_labels(sizes))
    for start in range(0, table.rows, LABEL_CHUNK_ROWS):
        some = labels[start : start + LABEL_CHUNK_ROWS]
        yield from each(keep_means, LabelChunk(start, some, clusters, start == 0, start + len(some) == table.rows))
    d2 = []
    for start in range(0, table.rows, LABEL_CHUNK_ROWS):
        answer = yield from total(
            mean_distances, MeanDistancesQuestion(start, labels[start : start + LABEL_CHUNK_ROWS], table.unit)
        )
        d2.append(answer.d2.to_floats())
    squares = (yield from total(center_gaps, CenterGapsQuestion("means", 2.0, table.unit))).powers.to_floats()
    spread = cluster_indices.scatter_of_distances(np.concatenate(d2), labels, clusters, reach)
    return cluster_indices.from_scatter(names, spread, sizes, (squares[np.ix_(used, used)], squares[used, -1]))


def _numbered_blocks(site: Site, start: int, count: int) -> Iterator[tuple[Array, int]]:
    """The blocks of some rows, and where each begins among them."""
    at = 0
    for block in blocks_of_rows(site, start, start + count):
        yield block, at
        at += block.shape[1]
