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

from fedclust.algorithms.cmeans.column_slices import (
    blocks_of_rows,
    box_of,
    kept_view,
    moved_slice,
    raw_view,
    rows_at,
    view_of,
    zero_sums,
)
from fedclust.algorithms.cmeans.fit_result import Fitted, Notes, Round
from fedclust.algorithms.shared.reseeding import drawn, rows_of_their_own
from fedclust.core.effects import Keep, Protocol, alone, each, each_to, handler, report, total
from fedclust.core.errors import DataError
from fedclust.core.release import ROWS, Done, Release, additive, facts, marks, points, public_keys
from fedclust.core.ring import Exact, power_above
from fedclust.core.row_weights import each_one
from fedclust.core.site_interface import Site
from fedclust.core.types import Floats, Ints, PartyId, Units
from fedclust.kernels import distances, fuzzy_sweep
from fedclust.kernels import exact_sums as exact
from fedclust.kernels.units import DIFFERENCE_BITS, unit_of
from fedclust.questions import bounds, standardisation

MAX_SQUARE_BITS = 260  # squares of what column bounds allow lie within 2^-260 and 2^260
CHUNK = 1 << 19  # numbers of a matrix that travel at once
SINGLED = "centers.singled"  # marks slices of centres that may lie on single rows, as the coordinator chose


@dataclass(frozen=True)
class Hello:
    """Who is there?"""


@dataclass(frozen=True)
class Roll(Release):
    rows: int = facts("the number of rows, which is the size of every later matrix", most=ROWS)
    key: bytes = public_keys("a digest of the ids, which shows whether all sites hold the same rows in the same order")


@handler(releases=Roll, split="columns")
def roll(site: Site, ask: Hello) -> Roll:  # noqa: ARG001
    """How many rows this party holds, and which."""
    return Roll(site.rows, site.row_key())


@dataclass(frozen=True)
class Prepare:
    """Look at the columns as they are, standardised by the party itself, or through public origin and spread.

    `centers`, in original units, are this party's slice of explicit ones.
    """

    standardise: bool = False
    origin: Floats | None = None
    spread: Floats | None = None
    centers: Floats | None = None


@handler(releases=Done, split="columns")
def prepare(site: Site, ask: Prepare) -> Keep[Done]:
    """This party's view of its own columns, and its slice of explicit centres, kept here."""
    view = raw_view(site)
    if ask.standardise:
        view = alone(standardisation.standardise(view), site)
    elif ask.origin is not None and ask.spread is not None:
        view = standardisation.scaled(view, ask.origin, ask.spread)
    memory = {"origin": view.origin, "spread": view.spread} if view.origin is not None else {}
    if ask.centers is not None:
        memory["centers"] = view.points(ask.centers)
    return Keep(Done(), {name: array for name, array in memory.items() if array is not None})


@dataclass(frozen=True)
class Slice(Release):
    centers: Floats = points("this site's slice of the centres; never requested between organisations", floor=1)
    origin: Floats | None = points("the values that this site subtracted from its columns", floor=1)
    spread: Floats | None = points("the values by which this site divided its columns", floor=1)


@dataclass(frozen=True)
class Reach(Release):
    marks: Exact = marks("how many columns have values that reach each power of two, to agree on a unit")


@handler(releases=Reach, split="columns")
def reach(site: Site, ask: Hello) -> Reach:  # noqa: ARG001
    """A mark for each column at the power of two above its share of a squared distance, whoever holds it."""
    largest = view_of(site).largest(site.largest)
    if "centers" in site.memory:
        largest = np.maximum(largest, np.abs(site.memory["centers"]).max(axis=0))
    marks = bounds.marked(4.0 * largest**2, least=-MAX_SQUARE_BITS, most=MAX_SQUARE_BITS)
    return Reach(Exact.counts(marks.sum(axis=0)))


@dataclass(frozen=True)
class Place:
    """Put the centres on rows, or where `uniforms` in [0, 1] fall between bounds, else in mean +- 2 sd."""

    rows: Ints | None = None
    uniforms: Floats | None = None
    low: Floats | None = None
    high: Floats | None = None


@handler(releases=Done, split="columns")
def place(site: Site, ask: Place) -> Keep[Done]:
    """This party's slice of the first centres, kept here."""
    if ask.rows is not None:
        return Keep(Done(), {**kept_view(site), "centers": rows_at(site, ask.rows), SINGLED: np.ones(1)})
    low, high = box_of(site) if ask.low is None or ask.high is None else (ask.low, ask.high)
    return Keep(Done(), {**kept_view(site), "centers": low + (high - low) * np.asarray(ask.uniforms)})


@dataclass(frozen=True)
class Span:
    """Rows from `start` to `stop`, in a unit that every party uses."""

    start: int
    stop: int
    unit: int


@dataclass(frozen=True)
class Distances(Release):
    d2: Exact = additive("the squared distance of each row to each centre", least=0.0)


def of_one_row(site: Site, ask: Any) -> Floats:  # noqa: ARG001
    """A distance is of one row, and a slice of a centre may lie on one, for memberships come from elsewhere."""
    return each_one(np.ones(1))


@handler(releases=Distances, row_weights=of_one_row, split="columns", opens_distances=True)
def measure(site: Site, ask: Span) -> Distances:
    """This party's share of the squared distances of some rows to all centres."""
    centers = np.asarray(site.memory["centers"])
    parts = [distances.exact(block, centers, ask.unit) for block in blocks_of_rows(site, ask.start, ask.stop)]
    limbs = np.concatenate(parts, axis=1) if parts else np.zeros((len(centers), 0, 2), np.uint64)
    return Distances(Exact(limbs, np.asarray(ask.unit, np.int32)))


@dataclass(frozen=True)
class Weights:
    """Weights u^m, clusters by rows, of the rows from `start` on; the first and last chunk of a round say so."""

    start: int
    weights: Floats
    first: bool
    last: bool
    reseed: Ints


@handler(releases=Done, split="columns", opens_distances=True)
def weigh(site: Site, ask: Weights) -> Keep[Done]:
    """Add to this party's weighted sums; with the last chunk, move its slice of the centres."""
    n_clusters, count = ask.weights.shape
    sums = zero_sums(site, n_clusters)
    if not ask.first:
        sums.mass[...], sums.pull[...] = site.memory["mass"], site.memory["pull"]
    at = 0
    for block in blocks_of_rows(site, ask.start, ask.start + count):
        exact.weighted(sums, block, np.ascontiguousarray(ask.weights[:, at : at + block.shape[1]]))
        at += block.shape[1]
    if not ask.last:
        return Keep(Done(), {**site.memory, "mass": sums.mass, "pull": sums.pull})
    return Keep(Done(), {**kept_view(site), "centers": moved_slice(site, sums, ask.reseed), SINGLED: np.ones(1)})


@handler(releases=Slice, split="columns", withheld=True)
def reveal(site: Site, ask: Hello) -> Slice:  # noqa: ARG001
    """This party's slice of the centres in original units, for a federation within one process."""
    view = view_of(site)
    return Slice(view.back(np.asarray(site.memory["centers"])), view.origin, view.spread)


@dataclass(frozen=True)
class Table:
    """What the coordinator knows of the joint table: who holds which columns, the rows, the unit of distances."""

    columns: Mapping[PartyId, Ints]
    rows: int
    unit: int

    @property
    def bound(self) -> int:
        """The power of two above any squared distance."""
        return self.unit + DIFFERENCE_BITS


@dataclass(frozen=True)
class Settled:
    """The end of a run over columns: its account, the last squared distances and labels, slices if they were shown."""

    fitted: Fitted
    d2: Floats
    labels: Units
    start: Mapping[PartyId, Slice] | None
    end: Mapping[PartyId, Slice] | None


def fit(
    table: Table,
    *,
    n_clusters: int,
    m: float,
    tol: float | None,
    max_iter: int,
    seed: int,
    careful: bool = False,
    show: bool = False,
) -> Protocol[Settled]:
    """Alternate distances and weights until the distances change by less than `tol`.

    The centres are in place, or `careful` seeding puts them on rows. `show` asks the parties for their slices, before
    and after; only a federation within one process may.
    """
    rng = np.random.default_rng(seed)
    if careful:
        chosen = yield from _plus_plus(table, n_clusters, rng)
        yield from each(place, Place(rows=chosen))
    begun = (yield from each(reveal, Hello())) if show else None
    history, notes = list[Round](), Notes()
    before, nearest = yield from measured(table, n_clusters)
    for number in range(1, max_iter + 1):
        weights = _weights(before, nearest, m)
        reseed = rows_of_their_own(weights, before, rng, notes, number)
        yield from _weigh(weights, reseed)
        d2, nearest = yield from measured(table, n_clusters)
        shift = math.sqrt(_sum((np.sqrt(d2) - np.sqrt(before)) ** 2))
        objective = _sum(weights * before)
        before = d2
        history.append(Round(number, shift, objective))
        yield from report(round=number, shift=shift, objective=objective)
        if tol is not None and shift < tol and (reseed < 0).all():
            break
    weights = _weights(before, nearest, m)
    mass = np.array([_sum(w) for w in weights])
    notes.left_empty(int((mass <= 0).sum()))
    nowhere = np.empty((n_clusters, 0))  # no one holds whole centres
    fitted = Fitted(nowhere, nowhere, _sum(weights * before), mass, tuple(history), tuple(notes.sentences()))
    return Settled(fitted, before, nearest, begun, (yield from each(reveal, Hello())) if show else None)


def agree(
    columns: Mapping[PartyId, Ints],
    how: Mapping[PartyId, Prepare],
    places: Mapping[PartyId, Place] | None = None,
) -> Protocol[Table]:
    """The joint table: the same rows at every party, centres in place, and a unit that holds every distance to them."""
    answers = yield from each(roll, Hello())
    if len({(a.rows, a.key) for a in answers.values()}) > 1:
        raise DataError(
            "the sites do not hold the same rows; give each the same ids (rows are matched by the id column)"
        )
    yield from each_to(prepare, how)
    if places is not None:
        yield from each_to(place, places)
    marks = (yield from total(reach, Hello())).marks.floats()
    most = math.fsum(count * 2.0**e for e, count in enumerate(marks.tolist(), -MAX_SQUARE_BITS))
    unit = unit_of(power_above(most), DIFFERENCE_BITS)
    return Table(columns, next(iter(answers.values())).rows, int(unit))


def box_places(
    columns: Mapping[PartyId, Ints], n_clusters: int, box: tuple[Floats, Floats] | None, seed: int
) -> dict[PartyId, Place]:
    """Each party's slice of centres drawn between bounds, or in its own mean +- 2 sd."""
    width = sum(map(len, columns.values()))
    uniforms = np.random.RandomState(seed).rand(n_clusters, width)  # the papers' own stream
    places = {party: Place(uniforms=part) for party, part in slices(columns, uniforms).items()}
    if box is not None:
        low, high = (slices(columns, side[None, :]) for side in box)
        places = {p: replace(a, low=low[p][0], high=high[p][0]) for p, a in places.items()}
    return places


def squared(table: Table, n_clusters: int) -> Protocol[Floats]:
    """Squared distances of all rows to the centres that the parties hold, clusters by rows, chunk by chunk."""
    return (yield from measured(table, n_clusters))[0]


def measured(table: Table, n_clusters: int) -> Protocol[tuple[Floats, Units]]:
    """The same, and each row's nearest centre by the integers behind the distances; the first of equals."""
    parts, nearest = [], []
    for start, stop in chunks(table.rows, n_clusters):
        d2 = (yield from total(measure, Span(start, stop, table.unit))).d2
        parts.append(d2.floats())
        nearest.append(d2.first_least())
    return np.concatenate(parts, axis=1), np.concatenate(nearest)


def slices(columns: Mapping[PartyId, Ints], points: Floats) -> dict[PartyId, Floats]:
    """Each party's columns of some points."""
    return {party: np.ascontiguousarray(points[:, held]) for party, held in columns.items()}


def _plus_plus(table: Table, n_clusters: int, rng: np.random.Generator) -> Protocol[Ints]:
    """Row numbers by D^2 sampling over summed distances: k-means++ without a row leaving."""
    chosen = [int(rng.integers(table.rows))]
    nearest: Floats = np.full(table.rows, np.inf)
    while len(chosen) < n_clusters:
        yield from each(place, Place(rows=np.array(chosen[-1:])))
        nearest = np.minimum(nearest, (yield from squared(table, 1))[0])
        chosen.append(drawn(nearest, rng))
    return np.array(chosen)


def _weigh(weights: Floats, reseed: Ints) -> Protocol[None]:
    """Hand all weights to the parties, chunk by chunk. Of a cluster only their ratios matter: the largest is near 1."""
    weights = np.ldexp(weights, -np.frexp(weights.max(axis=1, keepdims=True))[1])
    spans = list(chunks(weights.shape[1], len(weights)))
    for start, stop in spans:
        part = np.ascontiguousarray(weights[:, start:stop])
        yield from each(weigh, Weights(start, part, start == 0, stop == spans[-1][1], reseed))


def chunks(rows: int, n_clusters: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows whose numbers travel at once, so many for each row."""
    size = max(1, CHUNK // n_clusters)
    return ((start, min(start + size, rows)) for start in range(0, rows, size))


def _weights(d2: Floats, nearest: Units, m: float) -> Floats:
    """u^m from squared distances; m = 1: one for the nearest centre."""
    if m != 1:
        return fuzzy_sweep.weights(d2, m)
    return np.asarray(nearest == np.arange(len(d2))[:, None], np.float64)


def _sum(values: Floats) -> float:
    """An exact sum of non-negative numbers, rounded once."""
    unit = unit_of(power_above(float(values.max(initial=0.0))))
    return float(Exact(exact.exact(np.ascontiguousarray(values.reshape(1, -1)), unit), unit).floats()[0])
