"""Private c-means: few noisy sums, each as small as it can be (differential privacy of single rows).

Rows are cut to public bounds. Every question has a price, which the sites turn into noise:

1. how long rows are: a histogram of norms, half octave by half octave; it gives a radius R that few rows exceed;
2. sum z z^T of the rows over R, and their number: principal axes, and how wide clusters are within;
3. a histogram on the first axes, from which `cells` finds where clusters are, and how many;
4. one round (four where there are many clusters) of c-means on the axes, relative to those places: a row adds
   (clip(y - c, r) / r, 1/4) / sqrt(1 + 1/16) to its nearest, r a little more than a cluster's radius, so the noise is
   small relative to a cluster, not only to all the data.

`lloyd` is the plain way, for comparison: every round sums the rows themselves, under noise as large as the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.fit_result import Round, frobenius
from fedclust.algorithms.private_kmeans import noisy_cells
from fedclust.algorithms.private_kmeans.private_contracts import (
    fits_grid,
    fits_lengths,
    fits_offsets,
    fits_second_moments,
)
from fedclust.algorithms.private_kmeans.private_questions import (
    MAX_GRID_AXES,
    Box,
    GridQuestion,
    LengthsQuestion,
    MomentsQuestion,
    OffsetsQuestion,
)
from fedclust.algorithms.shared.eigenvectors import eigen
from fedclust.algorithms.shared.fixed_order import matrix_product, ordered_sum
from fedclust.core.effects import Protocol, handler, report, total_with_parties
from fedclust.core.errors import WireError
from fedclust.core.noise_price import Noisy, Price, exact_from_noise_units, noisy, unbounded_view
from fedclust.core.ring import Exact, total
from fedclust.core.site_interface import Site
from fedclust.core.types import Floats, Ints, PartyId
from fedclust.kernels import bounded_sums, distances

HALF_OCTAVES = 16  # number of half octaves of norms that are counted separately
MAX_LONG_ROW_FRACTION = 0.02  # of the rows may be longer than the radius
COUNT_WEIGHT = 0.25  # the weight of a row's count relative to its place
TERM_NORM = math.sqrt(1 + COUNT_WEIGHT * COUNT_WEIGHT)
ONE_ROUND_CLUSTERS = 3  # clusters that need one round only
RELATIVE_ROUNDS = 4
BUDGET_SHARES = {True: (0.05, 0.3, 0.45, 0.2), False: (0.05, 0.25, 0.55, 0.15)}  # of the budget: few clusters, or many
SPENDABLE_FRACTION = 1 - 2.0**-30  # so that parts, rounded, never add up to more
LLOYD_ROUNDS = 5
MIN_CLUSTER_MASS = 20.0  # rows that a cluster is taken to have at least: noise must not divide by nearly nothing
MIN_ROWS_TO_NOISE = 3.0  # standard deviations of its noise that the number of rows should have at least
MIN_WIDTH_FRACTION = 0.02  # of the radius, that a cluster is taken to be wide at least


@dataclass(frozen=True)
class CellCounts(Noisy):
    sums: Exact = noisy("how many rows lie in each cell of a public grid")


@dataclass(frozen=True)
class SecondMoments(Noisy):
    sums: Exact = noisy(
        "the number of rows and, for each pair of columns, the sum of their products; rows are clipped to public bounds"
    )


@dataclass(frozen=True)
class ClusterOffsets(Noisy):
    sums: Exact = noisy(
        "for each cluster, the number of rows and the sum of their offsets from the centre, each clipped to a "
        "fixed length"
    )


@handler(releases=CellCounts, contract=fits_lengths)
def lengths(site: Site, ask: LengthsQuestion) -> CellCounts:
    """Rows by half octaves of their norm, the longest first."""
    _check_question(ask, site)
    edges = ask.box.radius * _half_octaves_down(np.arange(1, HALF_OCTAVES))

    def own(z: Floats) -> Ints:
        return _tally_cells(
            HALF_OCTAVES - 1 - np.searchsorted(edges[::-1], np.sqrt(bounded_sums.squares(z))), HALF_OCTAVES
        )

    return CellCounts(_sum_blocks(site, ask.box, own, shape=(HALF_OCTAVES, 1)))


@handler(releases=SecondMoments, contract=fits_second_moments)
def second_moments(site: Site, ask: MomentsQuestion) -> SecondMoments:
    """Second moments of the rows, each no longer than one."""
    _check_question(ask, site)
    width = len(ask.box.low)
    shape = (width * (width + 1) // 2 + 1,)
    return SecondMoments(
        _sum_blocks(
            site, ask.box, lambda z: bounded_sums.products(bounded_sums.clip_to_norm(z, ask.radius)), shape=shape
        )
    )


@handler(releases=CellCounts, contract=fits_grid)
def count_cells(site: Site, ask: GridQuestion) -> CellCounts:
    """Rows by cells; those outside count in the cells at the edge."""
    _check_question(ask, site)
    count = math.prod(ask.bins.tolist())

    def own(z: Floats) -> Ints:
        y = project_rows(z, ask.axes)
        at = (y + ask.half[:, None]) / (2 * ask.half[:, None]) * ask.bins[:, None]
        inside = np.clip(np.nan_to_num(at), 0, ask.bins[:, None] - 1).astype(np.int64)
        return _tally_cells(np.ravel_multi_index(tuple(inside), tuple(ask.bins.tolist())), count)

    return CellCounts(_sum_blocks(site, ask.box, own, shape=(count, 1)))


@handler(releases=ClusterOffsets, contract=fits_offsets)
def cluster_offsets(site: Site, ask: OffsetsQuestion) -> ClusterOffsets:
    """Of each cluster the sum of its rows' offsets, in units of the reach, and of their counts."""
    return ClusterOffsets(sum_offsets(site, ask))


def sum_offsets(site: Site, ask: OffsetsQuestion) -> Exact:
    """The sums of `cluster_offsets`."""
    _check_question(ask, site)
    clusters, width = ask.centers.shape

    def own(z: Floats) -> Ints:
        y = project_rows(z, ask.axes)
        nearest = distances.nearest_centers(y[: ask.seen], np.ascontiguousarray(ask.centers[:, : ask.seen]))[0]
        away = bounded_sums.clip_to_norm(y - ask.pivots[nearest].T, ask.reach)
        terms = np.concatenate([away, np.full((1, y.shape[1]), COUNT_WEIGHT)]) / TERM_NORM
        return bounded_sums.sum_by_cell(nearest.astype(np.int64), terms, clusters)

    return _sum_blocks(site, ask.box, own, shape=(clusters, width + 1))


def _check_question(ask: LengthsQuestion | MomentsQuestion | GridQuestion | OffsetsQuestion, site: Site) -> None:
    """Refuse an invalid question before any row is read, because a later error would reveal something about rows."""
    if not ask.fits(len(site.columns)):
        raise WireError(
            "the question does not fit this site's columns, or its arrays differ in size, or its numbers are "
            "out of range"
        )


def project_rows(z: Floats, axes: Floats) -> Floats:
    """Rows along axes. Column after column: how a row's digits are rounded must not depend on its neighbours."""
    y = np.zeros((axes.shape[1], z.shape[1]))
    for values, weights in zip(z, axes, strict=True):
        y += weights[:, None] * values
    return y


def _tally_cells(where: Ints, count: int) -> Ints:
    return bounded_sums.sum_by_cell(where, np.ones((1, len(where))), count)


def _sum_blocks(site: Site, box: Box, own: Callable[[Floats], Ints], *, shape: tuple[int, ...]) -> Exact:
    """What `own` makes of each block, added up; sums of any number of rows fit the ring."""
    parts = [exact_from_noise_units(np.zeros(shape, np.int64))]
    for block in site.blocks(unbounded_view(len(site.columns))):
        parts = [total([*parts, exact_from_noise_units(own(box.scale_block(block)))])]
    return parts[0]


@dataclass(frozen=True)
class Spending:
    """What a run may spend, and how its price turns to noise in a sum."""

    rho: float
    honest: int
    parties: tuple[PartyId, ...]

    def price(self, share: float) -> Price:
        return Price(self.rho * SPENDABLE_FRACTION * share, self.honest)

    def noise_sd(self, price: Price) -> float:
        """The standard deviation of a sum's noise, every site's together, in units of one row."""
        return price.sigma * math.sqrt(len(self.parties))


@dataclass(frozen=True)
class PrivateResult:
    """The result: centres in units of the box, and the noisy number of rows of each cluster."""

    centers: Floats
    start: Floats
    mass: Floats
    rows: float
    width: float  # the standard deviation of a cluster along an axis
    history: tuple[Round, ...]
    prices: tuple[float, ...]
    notes: tuple[str, ...]


def fit(
    box: Box, ks: Sequence[int], spending: Spending, rng: np.random.Generator, m: float = 1.0
) -> Protocol[PrivateResult]:
    """The three releases and the relative rounds; of several numbers of clusters, the histogram chooses."""
    most = max(ks)
    shares = BUDGET_SHARES[most <= ONE_ROUND_CLUSTERS]
    first, second, third = (spending.price(share) for share in shares[:3])
    counts, _ = yield from total_with_parties(lengths, LengthsQuestion(first, box))
    radius = _radius(counts.sums.to_floats().ravel(), box.radius, spending.noise_sd(first))
    sums, _ = yield from total_with_parties(second_moments, MomentsQuestion(second, box, radius))
    frame = _make_frame(sums.sums.to_floats(), len(box.low), most, radius)
    lattice = frame.make_lattice(noise=spending.noise_sd(third))
    asked = GridQuestion(third, box, frame.projection[:, : len(lattice.half_width)], lattice.half_width, lattice.bins)
    seen, _ = yield from total_with_parties(count_cells, asked)
    found = noisy_cells.find_clusters(
        seen.sums.to_floats().ravel(), lattice, ks, frame.width, noise=spending.noise_sd(third), rng=rng
    )
    start = np.zeros((len(found.places), frame.axes.shape[1]))
    start[:, : found.places.shape[1]] = found.places
    settled = yield from _relative_rounds(box, start, found, frame, spending, share=shares[3])
    width, centers = frame.cluster_width(found), settled.centers
    if m > 1:
        centers = noisy_cells.fuzzy_centers(centers, settled.mass, width=width, columns=len(box.low), m=m, rng=rng)
    lifted, unsure = (
        frame.to_box_units(centers),
        spending.noise_sd(second) * bounded_sums.UNIT_NORM / bounded_sums.ROW_COUNT_UNIT,
    )
    return PrivateResult(
        lifted,
        frame.to_box_units(start),
        settled.mass,
        frame.rows,
        width * radius,
        settled.history,
        (first.rho, second.rho, third.rho, *settled.prices),
        (*found.notes, *_few_rows_note(frame.rows, unsure)),
    )


@dataclass(frozen=True)
class _Frame:
    """Axes (columns by axes) and how rows spread along them, in units of the radius.

    `width` is how wide a cluster is along an axis, None if no axis is left to estimate it from.
    """

    axes: Floats
    spread: Floats
    rows: float
    width: float | None
    radius: float

    @property
    def projection(self) -> Floats:
        """What takes a row to its places along the axes."""
        return self.axes / self.radius

    def to_box_units(self, places: Floats) -> Floats:
        return matrix_product(places, self.axes.T) * self.radius

    def cluster_width(self, found: noisy_cells.CellClusters) -> float:
        return found.width if self.width is None else self.width

    def make_lattice(self, *, noise: float) -> noisy_cells.Lattice:
        half = np.clip(2.5 * np.sqrt(self.spread[:MAX_GRID_AXES]), 0.05, 1.2)
        return noisy_cells.make_lattice(half, self.width, self.rows, noise=noise)


def _radius(counts: Floats, largest: float, noise: float) -> float:
    """The least radius that more than a few rows reach."""
    enough = MAX_LONG_ROW_FRACTION * counts.sum() + 2 * noise
    reached = np.flatnonzero(np.cumsum(counts) >= enough)
    at = min(int(reached[0]) if len(reached) else 0, HALF_OCTAVES - 4)
    return float(largest * _half_octaves_down(np.array([at]))[0])


def _half_octaves_down(counts: Ints) -> Floats:
    """2^(-count / 2)."""
    return np.sqrt(np.ldexp(1.0, -counts))


def _make_frame(sums: Floats, width: int, clusters: int, radius: float) -> _Frame:
    """The axes along which rows spread most, from the matrix of products."""
    matrix, rows = bounded_sums.moments(sums, width)
    rows = max(rows, MIN_CLUSTER_MASS * clusters)
    values, vectors = eigen(matrix)
    used = min(clusters, width)
    rest = float(values[used:].mean() / rows) if width > used else None
    return _Frame(
        np.ascontiguousarray(vectors[:used].T),
        np.clip(values[:used] / rows, 1e-3, 1.0),
        rows,
        None if rest is None else math.sqrt(max(rest, MIN_WIDTH_FRACTION**2)),
        radius,
    )


@dataclass(frozen=True)
class _RelativeResult:
    centers: Floats
    mass: Floats
    history: tuple[Round, ...]
    prices: tuple[float, ...]


def _relative_rounds(
    box: Box, start: Floats, found: noisy_cells.CellClusters, frame: _Frame, spending: Spending, *, share: float
) -> Protocol[_RelativeResult]:
    """Relative rounds of c-means along the axes; the first also finds places along axes the histogram did not have."""
    count = 1 if len(start) <= ONE_ROUND_CLUSTERS else RELATIVE_ROUNDS
    price, seen, width = spending.price(share / count), found.places.shape[1], frame.cluster_width(found)
    centers, mass, history = start, found.mass, list[Round]()
    for number in range(1, count + 1):
        reach = width * (math.sqrt(centers.shape[1]) + 2)
        if number == 1:
            reach += math.sqrt(float(frame.spread[seen:].sum()))
        by = seen if number == 1 else centers.shape[1]
        sums, _ = yield from total_with_parties(
            cluster_offsets, OffsetsQuestion(price, box, frame.projection, centers, centers, by, reach)
        )
        moved, mass = shift_centers(
            sums.sums.to_floats() * TERM_NORM, centers, reach, noise=spending.noise_sd(price) * TERM_NORM
        )
        shift = frobenius(moved - centers) * frame.radius
        centers = moved
        history.append(Round(number, shift, math.nan))
        yield from report(round=number, shift=shift)
    return _RelativeResult(centers, mass, tuple(history), (price.rho,) * count)


def shift_centers(sums: Floats, pivots: Floats, reach: float, *, noise: float) -> tuple[Floats, Floats]:
    """Where noisy sums put the centres, and how many rows are behind each; a cluster lost in noise stays."""
    mass = sums[:, -1] / COUNT_WEIGHT
    step = sums[:, :-1] * reach / np.maximum(mass, MIN_CLUSTER_MASS)[:, None]
    length = np.sqrt(ordered_sum(step * step))[:, None]
    step *= np.minimum(1.0, reach / np.maximum(length, np.finfo(np.float64).tiny))
    some = mass > 2 * noise
    return np.where(some[:, None], pivots + step, pivots), np.maximum(mass, 0.0)


def lloyd(
    box: Box, clusters: int, spending: Spending, rng: np.random.Generator, rounds: int = LLOYD_ROUNDS
) -> Protocol[PrivateResult]:
    """Plain DP-Lloyd: c-means whose sums get noise as large as the bounds ask for, so many rounds, drawn centres."""
    half = (box.high - box.low) / 2 / box.unit
    start = rng.uniform(-half, half, (clusters, len(half)))
    price, history = spending.price(1 / rounds), list[Round]()
    axes, nowhere = np.eye(len(half)) / box.radius, np.zeros((clusters, len(half)))
    centers, mass = start / box.radius, np.zeros(clusters)
    for number in range(1, rounds + 1):
        sums, _ = yield from total_with_parties(
            cluster_offsets, OffsetsQuestion(price, box, axes, centers, nowhere, len(half), 1.0)
        )
        noise = spending.noise_sd(price) * TERM_NORM
        moved, mass = shift_centers(sums.sums.to_floats() * TERM_NORM, nowhere, 1.0, noise=noise)
        moved = np.where((mass > 2 * noise)[:, None], moved, centers)
        history.append(Round(number, frobenius(moved - centers) * box.radius, math.nan))
        centers = moved
        yield from report(round=number, shift=history[-1].shift)
    return PrivateResult(
        centers * box.radius,
        start,
        mass,
        float(mass.sum()),
        math.nan,
        tuple(history),
        (price.rho,) * rounds,
        _few_rows_note(float(mass.sum()), spending.noise_sd(price) * TERM_NORM / COUNT_WEIGHT * math.sqrt(clusters)),
    )


def _few_rows_note(rows: float, unsure: float) -> tuple[str, ...]:
    """What to say where the number of rows is hardly above its own noise."""
    if rows >= MIN_ROWS_TO_NOISE * unsure:
        return ()
    note = (
        f"The number of rows is small compared with the noise added to it (standard deviation {unsure:,.0f}). "
        "The centres may consist of noise only. Use a larger epsilon, or more rows."
    )
    return (note,)
