"""Lossless c-means and fuzzy c-means over columns that lie at several parties, rows aligned (vertical LLF-CM, LLF-FCM).

Squared distances add over columns, so the coordinator asks for one sum, N x C; it turns it into weights u^m, and each
party moves its own slice of the centres with them. No one holds whole centres. Matrices travel in chunks of rows.

Paper: Corcuera Barcena et al., "Federated c-means and fuzzy c-means clustering algorithms for horizontally and
vertically partitioned data", Algorithm 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedclust.algorithms.cmeans.cmeans_contracts import (
    fits_placement,
    fits_preparation,
    fits_span,
    fits_weights,
    holds_columns,
)
from fedclust.algorithms.cmeans.column_slices import (
    blocks_of_rows,
    moved_slice,
    own_box,
    own_view,
    raw_view,
    rows_at,
    view_memory,
    zero_sums,
)
from fedclust.algorithms.cmeans.fit_result import FitNotes, FitResult, Round
from fedclust.algorithms.shared.reseeding import reseed_rows
from fedclust.core.effects import Keep, Protocol, each, each_to, handler, report, run_on_own_rows, total
from fedclust.core.errors import DataError
from fedclust.core.question_types import DISTANCE_UNIT, AgreedValuesQuestion
from fedclust.core.release import MAX_ROWS, Done, Release, additive, facts, marks, points, public_keys
from fedclust.core.ring import Exact, power_above
from fedclust.core.row_weights import tally_unit_weights
from fedclust.core.site_interface import Site
from fedclust.core.types import Floats, Ints, PartyId, Units
from fedclust.kernels import distances, fuzzy_sweep
from fedclust.kernels import exact_sums as exact
from fedclust.kernels.units import DIFFERENCE_BITS, unit_of
from fedclust.questions import bounds, standardisation

MAX_SQUARE_BITS = 260  # squares of what column bounds allow lie within 2^-260 and 2^260
MATRIX_CHUNK_VALUES = 1 << 19  # numbers of a matrix that travel at once
SINGLE_ROW_MARK = "centers.singled"  # marks slices of centres that may lie on single rows, as the coordinator chose


@dataclass(frozen=True)
class EmptyQuestion:
    """Who is there?"""


@dataclass(frozen=True)
class RowIdentity(Release):
    rows: int = facts("the number of rows, which must be the same at all sites", most=MAX_ROWS)
    key: bytes = public_keys("a digest of the ids, which shows whether all sites hold the same rows in the same order")


@handler(releases=RowIdentity, split="columns", contract=holds_columns)
def identify_rows(site: Site, ask: EmptyQuestion) -> RowIdentity:  # noqa: ARG001
    """How many rows this party holds, and which."""
    return RowIdentity(site.rows, site.row_key())


@dataclass(frozen=True)
class Preparation:
    """Look at the columns as they are, standardised by the party itself, or through public origin and spread.

    `centers`, in original units, are this party's slice of explicit ones.
    """

    standardise: bool = False
    origin: Floats | None = None
    spread: Floats | None = None
    centers: Floats | None = None


@handler(releases=Done, split="columns", contract=fits_preparation)
def prepare(site: Site, ask: Preparation) -> Keep[Done]:
    """This party's view of its own columns, and its slice of explicit centres, kept here."""
    view = raw_view(site)
    if ask.standardise:
        view = run_on_own_rows(standardisation.standardise(view), site)
    elif ask.origin is not None and ask.spread is not None:
        view = standardisation.scale_view(view, ask.origin, ask.spread)
    memory = {"origin": view.origin, "spread": view.spread} if view.origin is not None else {}
    if ask.centers is not None:
        memory["centers"] = view.transform_points(ask.centers)
    return Keep(Done(), {name: array for name, array in memory.items() if array is not None})


@dataclass(frozen=True)
class CenterSlice(Release):
    centers: Floats = points(
        "this site's own coordinates of the centres; requested only if all sites are in one process", floor=1
    )
    origin: Floats | None = points("the values that this site subtracted from its columns", floor=1)
    spread: Floats | None = points("the values by which this site divided its columns", floor=1)


@dataclass(frozen=True)
class DistanceMarks(Release):
    marks: Exact = marks(
        "for each power of two: the number of columns whose bound on the squared distances, rounded up, is this power"
    )


@handler(releases=DistanceMarks, split="columns", contract=holds_columns)
def mark_distance_bounds(site: Site, ask: EmptyQuestion) -> DistanceMarks:  # noqa: ARG001
    """A mark for each column at the power of two above its share of a squared distance, whoever holds it."""
    largest = own_view(site).transform_bound(site.largest)
    if "centers" in site.memory:
        largest = np.maximum(largest, np.abs(site.memory["centers"]).max(axis=0))
    marks = bounds.mark_exponents(4.0 * largest**2, least=-MAX_SQUARE_BITS, most=MAX_SQUARE_BITS)
    return DistanceMarks(Exact.from_counts(marks.sum(axis=0)))


@dataclass(frozen=True)
class CenterPlacement:
    """Put the centres on rows, or where `uniforms` in [0, 1] fall between bounds, else in mean +- 2 sd."""

    rows: Ints | None = None
    uniforms: Floats | None = None
    low: Floats | None = None
    high: Floats | None = None


@handler(releases=Done, split="columns", contract=fits_placement)
def place_centers(site: Site, ask: CenterPlacement) -> Keep[Done]:
    """This party's slice of the first centres, kept here."""
    if ask.rows is not None:
        return Keep(Done(), {**view_memory(site), "centers": rows_at(site, ask.rows), SINGLE_ROW_MARK: np.ones(1)})
    low, high = own_box(site) if ask.low is None or ask.high is None else (ask.low, ask.high)
    return Keep(Done(), {**view_memory(site), "centers": low + (high - low) * np.asarray(ask.uniforms)})


@dataclass(frozen=True)
class RowSpan(AgreedValuesQuestion):
    """Rows from `start` to `stop`, in a unit that every party uses."""

    start: int
    stop: int
    unit: int

    def agreed_values(self) -> Mapping[str, int]:
        return {DISTANCE_UNIT: self.unit}


@dataclass(frozen=True)
class Distances(Release):
    d2: Exact = additive("the squared distance of each row to each centre", least=0.0)


def single_row_weights(site: Site, ask: Any) -> Floats:  # noqa: ARG001
    """A distance is of one row, and a slice of a centre may lie on one, for memberships come from elsewhere."""
    return tally_unit_weights(np.ones(1))


@handler(releases=Distances, row_weights=single_row_weights, split="columns", opens_distances=True, contract=fits_span)
def measure_distances(site: Site, ask: RowSpan) -> Distances:
    """This party's share of the squared distances of some rows to all centres."""
    centers = np.asarray(site.memory["centers"])
    parts = [distances.exact_distances(block, centers, ask.unit) for block in blocks_of_rows(site, ask.start, ask.stop)]
    limbs = np.concatenate(parts, axis=1) if parts else np.zeros((len(centers), 0, 2), np.uint64)
    return Distances(Exact(limbs, np.asarray(ask.unit, np.int32)))


@dataclass(frozen=True)
class RowWeights:
    """Weights u^m, clusters by rows, of the rows from `start` on; the first and last chunk of a round say so."""

    start: int
    weights: Floats
    first: bool
    last: bool
    reseed: Ints


@handler(releases=Done, split="columns", opens_distances=True, contract=fits_weights)
def apply_weights(site: Site, ask: RowWeights) -> Keep[Done]:
    """Add to this party's weighted sums; with the last chunk, move its slice of the centres."""
    n_clusters, count = ask.weights.shape
    sums = zero_sums(site, n_clusters)
    if not ask.first:
        sums.mass[...], sums.pull[...] = site.memory["mass"], site.memory["pull"]
    at = 0
    for block in blocks_of_rows(site, ask.start, ask.start + count):
        exact.add_weighted(sums, block, np.ascontiguousarray(ask.weights[:, at : at + block.shape[1]]))
        at += block.shape[1]
    if not ask.last:
        return Keep(Done(), {**site.memory, "mass": sums.mass, "pull": sums.pull})
    return Keep(
        Done(), {**view_memory(site), "centers": moved_slice(site, sums, ask.reseed), SINGLE_ROW_MARK: np.ones(1)}
    )


@handler(releases=CenterSlice, split="columns", withheld=True, contract=holds_columns)
def reveal(site: Site, ask: EmptyQuestion) -> CenterSlice:  # noqa: ARG001
    """This party's slice of the centres in original units, for a federation within one process."""
    view = own_view(site)
    return CenterSlice(view.to_original_units(np.asarray(site.memory["centers"])), view.origin, view.spread)


@dataclass(frozen=True)
class JointTable:
    """What the coordinator knows of the joint table: who holds which columns, the rows, the unit of distances."""

    columns: Mapping[PartyId, Ints]
    rows: int
    unit: int

    @property
    def distance_bound(self) -> int:
        """The power of two above any squared distance."""
        return self.unit + DIFFERENCE_BITS


@dataclass(frozen=True)
class ColumnFit:
    """The end of a run over columns: its account, the last squared distances and labels, slices if they were shown."""

    fitted: FitResult
    d2: Floats
    labels: Units
    start_slices: Mapping[PartyId, CenterSlice] | None
    end_slices: Mapping[PartyId, CenterSlice] | None


def fit(
    table: JointTable,
    *,
    n_clusters: int,
    m: float,
    tol: float | None,
    max_iter: int,
    seed: int,
    reveal_slices: bool = False,
) -> Protocol[ColumnFit]:
    """Alternate distances and weights until the distances change by less than `tol`.

    The centres are in place. `reveal_slices` asks the parties for their slices before and after; only a federation
    within one process may.
    """
    rng = np.random.default_rng(seed)
    start_slices = (yield from each(reveal, EmptyQuestion())) if reveal_slices else None
    history, notes = list[Round](), FitNotes()
    d2, nearest = yield from distances_and_labels(table, n_clusters)
    for number in range(1, max_iter + 1):
        weights = _weights_from_distances(d2, nearest, m)
        objective = _exact_sum(weights * d2)
        reseed = reseed_rows(weights, d2, rng, notes, number)
        yield from move_centers(weights, reseed)
        before, (d2, nearest) = d2, (yield from distances_and_labels(table, n_clusters))
        shift = math.sqrt(_exact_sum((np.sqrt(d2) - np.sqrt(before)) ** 2))
        history.append(Round(number, shift, objective))
        yield from report(round=number, shift=shift, objective=objective)
        if tol is not None and shift < tol and (reseed < 0).all():
            break
    weights = _weights_from_distances(d2, nearest, m)
    mass = np.array([_exact_sum(w) for w in weights])
    notes.note_empty_clusters(int((mass <= 0).sum()))
    end_slices = (yield from each(reveal, EmptyQuestion())) if reveal_slices else None
    nowhere = np.empty((n_clusters, 0))  # no one holds whole centres
    fitted = FitResult(nowhere, nowhere, _exact_sum(weights * d2), mass, tuple(history), tuple(notes.sentences()))
    return ColumnFit(fitted, d2, nearest, start_slices, end_slices)


def agree_on_table(
    columns: Mapping[PartyId, Ints],
    preparations: Mapping[PartyId, Preparation],
    placements: Mapping[PartyId, CenterPlacement] | None = None,
) -> Protocol[JointTable]:
    """The joint table: the same rows at every party, centres in place, and a unit that holds every distance to them."""
    answers = yield from each(identify_rows, EmptyQuestion())
    if len({(a.rows, a.key) for a in answers.values()}) > 1:
        raise DataError(
            "the sites do not hold the same rows in the same order; give all sites the same ids in the id column"
        )
    yield from each_to(prepare, preparations)
    if placements is not None:
        yield from each_to(place_centers, placements)
    marks = (yield from total(mark_distance_bounds, EmptyQuestion())).marks.to_floats()
    most = math.fsum(count * 2.0**e for e, count in enumerate(marks.tolist(), -MAX_SQUARE_BITS))
    unit = unit_of(power_above(most), DIFFERENCE_BITS)
    return JointTable(columns, next(iter(answers.values())).rows, int(unit))


def draw_placements(
    columns: Mapping[PartyId, Ints], n_clusters: int, box: tuple[Floats, Floats] | None, seed: int
) -> dict[PartyId, CenterPlacement]:
    """Each party's slice of centres drawn between bounds, or in its own mean +- 2 sd."""
    width = sum(map(len, columns.values()))
    uniforms = np.random.RandomState(seed).rand(n_clusters, width)  # the papers' own stream
    places = {party: CenterPlacement(uniforms=part) for party, part in slices(columns, uniforms).items()}
    if box is not None:
        low, high = (slices(columns, side[None, :]) for side in box)
        places = {p: replace(a, low=low[p][0], high=high[p][0]) for p, a in places.items()}
    return places


def squared_distances(table: JointTable, n_clusters: int) -> Protocol[Floats]:
    """Squared distances of all rows to the centres that the parties hold, clusters by rows, chunk by chunk."""
    return (yield from distances_and_labels(table, n_clusters))[0]


def distances_and_labels(table: JointTable, n_clusters: int) -> Protocol[tuple[Floats, Units]]:
    """The same, and each row's nearest centre by the integers behind the distances; the first of equals."""
    parts, nearest = [], []
    for start, stop in row_chunks(table.rows, n_clusters):
        d2 = (yield from total(measure_distances, RowSpan(start, stop, table.unit))).d2
        parts.append(d2.to_floats())
        nearest.append(d2.argmin_first_axis())
    return np.concatenate(parts, axis=1), np.concatenate(nearest)


def slices(columns: Mapping[PartyId, Ints], points: Floats) -> dict[PartyId, Floats]:
    """Each party's columns of some points."""
    return {party: np.ascontiguousarray(points[:, held]) for party, held in columns.items()}


def move_centers(weights: Floats, reseed: Ints) -> Protocol[None]:
    """Send all weights to the parties, chunk by chunk, and each moves its slice of the centres to their weighted means.

    Of a cluster only the ratios of its weights matter: the largest is near 1.
    """
    weights = np.ldexp(weights, -np.frexp(weights.max(axis=1, keepdims=True))[1])
    spans = list(row_chunks(weights.shape[1], len(weights)))
    for start, stop in spans:
        part = np.ascontiguousarray(weights[:, start:stop])
        yield from each(apply_weights, RowWeights(start, part, start == 0, stop == spans[-1][1], reseed))


def row_chunks(rows: int, n_clusters: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows whose numbers travel at once, so many for each row."""
    size = max(1, MATRIX_CHUNK_VALUES // n_clusters)
    return ((start, min(start + size, rows)) for start in range(0, rows, size))


def _weights_from_distances(d2: Floats, nearest: Units, m: float) -> Floats:
    """u^m from squared distances; m = 1: one for the nearest centre."""
    if m != 1:
        return fuzzy_sweep.weights_from_distances(d2, m)
    return np.asarray(nearest == np.arange(len(d2))[:, None], np.float64)


def _exact_sum(values: Floats) -> float:
    """An exact sum of non-negative numbers, rounded once."""
    unit = unit_of(power_above(float(values.max(initial=0.0))))
    return float(Exact(exact.exact_totals(np.ascontiguousarray(values.reshape(1, -1)), unit), unit).to_floats()[0])
