"""Private c-means: few noisy sums, each as small as it can be (differential privacy of single rows).

Rows are cut to public bounds. Every question has a price, which the sites turn into noise:

1. how long rows are: a histogram of norms, half octave by half octave; it gives a radius R that few rows exceed;
2. sum z z^T of the rows over R, and their number: principal axes, and how wide clusters are within;
3. a histogram on the first axes, from which `cells` finds where clusters are, and how many;
4. one round (four where there are many clusters) of c-means on the axes, relative to those places: a row adds
   (clip(y - c, r) / r, 1/4) / sqrt(1 + 1/16) to its nearest, r a little more than a cluster's radius, so the noise is
   small beside a cluster, not beside all the data.

`lloyd` is the plain way, for comparison: every round sums the rows themselves, under noise as large as the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.fit_result import Round, frobenius
from fedclust.algorithms.private_kmeans import noisy_cells
from fedclust.algorithms.private_kmeans.private_questions import ALONG, Box, Grid, Lengths, Places, Radius
from fedclust.core.effects import Protocol, handler, heard, report
from fedclust.core.errors import WireError
from fedclust.core.noise_price import Noisy, Price, counted, everything, noisy
from fedclust.core.ring import Exact, total
from fedclust.core.site_interface import Site
from fedclust.core.types import Floats, Ints, PartyId
from fedclust.kernels import bounded_sums, distances

OCTAVES = 16  # half octaves of norms that are told apart
BEYOND = 0.02  # of the rows may be longer than the radius
MASS = 0.25  # how much a row counts beside its place
LONG = math.sqrt(1 + MASS * MASS)
FEW = 3  # clusters that need one round only
ROUNDS = 4
SHARES = {True: (0.05, 0.3, 0.45, 0.2), False: (0.05, 0.25, 0.55, 0.15)}  # of the budget: few clusters, or many
WHOLE = 1 - 2.0**-30  # so that parts, rounded, never add up to more
LLOYD_ROUNDS = 5
LEAST = 20.0  # rows that a cluster is taken to have at least: noise must not divide by nearly nothing
ABOVE = 3.0  # standard deviations of its noise that the number of rows should have at least
THIN = 0.02  # of the radius, that a cluster is taken to be wide at least


@dataclass(frozen=True)
class Counts(Noisy):
    sums: Exact = noisy("how many rows lie in each cell of a public grid")


@dataclass(frozen=True)
class Products(Noisy):
    sums: Exact = noisy(
        "for each pair of columns, the sum of their products over rows clipped to public bounds, and the number of rows"
    )


@dataclass(frozen=True)
class Moves(Noisy):
    sums: Exact = noisy(
        "the sum of each cluster's offsets from its centre, clipped to a fixed length, and the number of rows"
    )


@handler(releases=Counts)
def lengths(site: Site, ask: Lengths) -> Counts:
    """Rows by half octaves of their norm, the longest first."""
    _sound(ask, site)
    edges = ask.box.radius * 2.0 ** (-0.5 * np.arange(1, OCTAVES))

    def own(z: Floats) -> Ints:
        return _marked(OCTAVES - 1 - np.searchsorted(edges[::-1], np.sqrt(bounded_sums.squares(z))), OCTAVES)

    return Counts(_added(site, ask.box, own, shape=(OCTAVES, 1)))


@handler(releases=Products)
def products(site: Site, ask: Radius) -> Products:
    """Second moments of the rows, each no longer than one."""
    _sound(ask, site)
    width = len(ask.box.low)
    shape = (width * (width + 1) // 2 + 1,)
    return Products(
        _added(site, ask.box, lambda z: bounded_sums.products(bounded_sums.within(z, ask.radius)), shape=shape)
    )


@handler(releases=Counts)
def grid(site: Site, ask: Grid) -> Counts:
    """Rows by cells; those outside count in the cells at the edge."""
    _sound(ask, site)
    count = math.prod(ask.bins.tolist())

    def own(z: Floats) -> Ints:
        y = along(z, ask.axes)
        at = (y + ask.half[:, None]) / (2 * ask.half[:, None]) * ask.bins[:, None]
        inside = np.clip(np.nan_to_num(at), 0, ask.bins[:, None] - 1).astype(np.int64)
        return _marked(np.ravel_multi_index(tuple(inside), tuple(ask.bins.tolist())), count)

    return Counts(_added(site, ask.box, own, shape=(count, 1)))


@handler(releases=Moves)
def moves(site: Site, ask: Places) -> Moves:
    """Of each cluster the sum of its rows' offsets, in units of the reach, and of their counts."""
    return Moves(offsets(site, ask))


def offsets(site: Site, ask: Places) -> Exact:
    """The sums of `moves`."""
    _sound(ask, site)
    clusters, width = ask.centers.shape

    def own(z: Floats) -> Ints:
        y = along(z, ask.axes)
        nearest = distances.labels(y[: ask.seen], np.ascontiguousarray(ask.centers[:, : ask.seen]))[0]
        away = bounded_sums.within(y - ask.pivots[nearest].T, ask.reach)
        terms = np.concatenate([away, np.full((1, y.shape[1]), MASS)]) / LONG
        return bounded_sums.by_cell(nearest.astype(np.int64), terms, clusters)

    return _added(site, ask.box, own, shape=(clusters, width + 1))


def _sound(ask: Lengths | Radius | Grid | Places, site: Site) -> None:
    """Refuse a question that makes no sense before any row is looked at: an error later would tell of rows."""
    if not ask.fits(len(site.columns)):
        raise WireError("a question of other columns, of shapes that do not fit, or of numbers too large or too small")


def along(z: Floats, axes: Floats) -> Floats:
    """Rows along axes. Column after column: how a row's digits are rounded must not depend on its neighbours."""
    y = np.zeros((axes.shape[1], z.shape[1]))
    for values, weights in zip(z, axes, strict=True):
        y += weights[:, None] * values
    return y


def _marked(where: Ints, count: int) -> Ints:
    return bounded_sums.by_cell(where, np.ones((1, len(where))), count)


def _added(site: Site, box: Box, own: Callable[[Floats], Ints], *, shape: tuple[int, ...]) -> Exact:
    """What `own` makes of each block, added up; sums of any number of rows fit the ring."""
    parts = [counted(np.zeros(shape, np.int64))]
    for block in site.blocks(everything(len(site.columns))):
        parts = [total([*parts, counted(own(box.of(block)))])]
    return parts[0]


@dataclass(frozen=True)
class Spending:
    """What a run may spend, and how its price turns to noise in a sum."""

    rho: float
    honest: int
    parties: tuple[PartyId, ...]

    def price(self, share: float) -> Price:
        return Price(self.rho * WHOLE * share, self.honest)

    def sd(self, price: Price) -> float:
        """The standard deviation of a sum's noise, every site's together, in units of one row."""
        return price.sigma * math.sqrt(len(self.parties))


@dataclass(frozen=True)
class Private:
    """What was found: centres in units of the box, rows of each cluster, as far as noise lets tell."""

    centers: Floats
    start: Floats
    mass: Floats
    rows: float
    width: float  # the standard deviation of a cluster along an axis
    history: tuple[Round, ...]
    prices: tuple[float, ...]
    notes: tuple[str, ...]


def fit(box: Box, ks: Sequence[int], spending: Spending, rng: np.random.Generator, m: float = 1.0) -> Protocol[Private]:
    """The three releases and the relative rounds; of several numbers of clusters, the histogram chooses."""
    most = max(ks)
    shares = SHARES[most <= FEW]
    first, second, third = (spending.price(share) for share in shares[:3])
    counts, _ = yield from heard(lengths, Lengths(first, box))
    radius = _radius(counts.sums.floats().ravel(), box.radius, spending.sd(first))
    sums, _ = yield from heard(products, Radius(second, box, radius))
    frame = _frame(sums.sums.floats(), len(box.low), most, radius)
    lattice = frame.lattice(noise=spending.sd(third))
    asked = Grid(third, box, frame.turn[:, : len(lattice.half)], lattice.half, lattice.bins)
    seen, _ = yield from heard(grid, asked)
    found = noisy_cells.find(seen.sums.floats().ravel(), lattice, ks, frame.width, noise=spending.sd(third), rng=rng)
    start = np.zeros((len(found.places), frame.axes.shape[1]))
    start[:, : found.places.shape[1]] = found.places
    settled = yield from _rounds(box, start, found, frame, spending, share=shares[3])
    width, centers = frame.within(found), settled.centers
    if m > 1:
        centers = noisy_cells.softened(centers, settled.mass, width=width, columns=len(box.low), m=m, rng=rng)
    lifted, unsure = frame.lifted(centers), spending.sd(second) * bounded_sums.NORM / bounded_sums.ONE_ROW
    return Private(
        lifted,
        frame.lifted(start),
        settled.mass,
        frame.rows,
        width * radius,
        settled.history,
        (first.rho, second.rho, third.rho, *settled.prices),
        (*found.notes, *_few(frame.rows, unsure)),
    )


@dataclass(frozen=True)
class _Frame:
    """Axes (columns by axes) and how rows spread along them, in units of the radius.

    `width` is how wide a cluster is along an axis, None where no axis is spare to tell it from.
    """

    axes: Floats
    spread: Floats
    rows: float
    width: float | None
    radius: float

    @property
    def turn(self) -> Floats:
        """What takes a row to its places along the axes."""
        return self.axes / self.radius

    def lifted(self, places: Floats) -> Floats:
        return np.asarray(places @ self.axes.T * self.radius)

    def within(self, found: noisy_cells.Found) -> float:
        return found.width if self.width is None else self.width

    def lattice(self, *, noise: float) -> noisy_cells.Lattice:
        half = np.clip(2.5 * np.sqrt(self.spread[:ALONG]), 0.05, 1.2)
        return noisy_cells.lattice(half, self.width, self.rows, noise=noise)


def _radius(counts: Floats, largest: float, noise: float) -> float:
    """The least radius that more than a few rows reach."""
    enough = BEYOND * counts.sum() + 2 * noise
    reached = np.flatnonzero(np.cumsum(counts) >= enough)
    at = min(int(reached[0]) if len(reached) else 0, OCTAVES - 4)
    return float(largest * 2.0 ** (-0.5 * at))


def _frame(sums: Floats, width: int, clusters: int, radius: float) -> _Frame:
    """The axes along which rows spread most, from the matrix of products."""
    matrix, rows = bounded_sums.moments(sums, width)
    rows = max(rows, LEAST * clusters)
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    used = min(clusters, width)
    rest = float(values[used:].mean() / rows) if width > used else None
    return _Frame(
        np.ascontiguousarray(vectors[:, :used]),
        np.clip(values[:used] / rows, 1e-3, 1.0),
        rows,
        None if rest is None else math.sqrt(max(rest, THIN**2)),
        radius,
    )


@dataclass(frozen=True)
class _Settled:
    centers: Floats
    mass: Floats
    history: tuple[Round, ...]
    prices: tuple[float, ...]


def _rounds(
    box: Box, start: Floats, found: noisy_cells.Found, frame: _Frame, spending: Spending, *, share: float
) -> Protocol[_Settled]:
    """Relative rounds of c-means along the axes; the first also finds places along axes the histogram did not have."""
    count = 1 if len(start) <= FEW else ROUNDS
    price, seen, width = spending.price(share / count), found.places.shape[1], frame.within(found)
    centers, mass, history = start, found.mass, list[Round]()
    for number in range(1, count + 1):
        reach = width * (math.sqrt(centers.shape[1]) + 2)
        if number == 1:
            reach += math.sqrt(float(frame.spread[seen:].sum()))
        by = seen if number == 1 else centers.shape[1]
        sums, _ = yield from heard(moves, Places(price, box, frame.turn, centers, centers, by, reach))
        moved, mass = shifted(sums.sums.floats() * LONG, centers, reach, noise=spending.sd(price) * LONG)
        shift = frobenius(moved - centers) * frame.radius
        centers = moved
        history.append(Round(number, shift, math.nan))
        yield from report(round=number, shift=shift)
    return _Settled(centers, mass, tuple(history), (price.rho,) * count)


def shifted(sums: Floats, pivots: Floats, reach: float, *, noise: float) -> tuple[Floats, Floats]:
    """Where noisy sums put the centres, and how many rows are behind each; a cluster lost in noise stays."""
    mass = sums[:, -1] / MASS
    step = sums[:, :-1] * reach / np.maximum(mass, LEAST)[:, None]
    length = np.linalg.norm(step, axis=1, keepdims=True)
    step *= np.minimum(1.0, reach / np.maximum(length, np.finfo(np.float64).tiny))
    some = mass > 2 * noise
    return np.where(some[:, None], pivots + step, pivots), np.maximum(mass, 0.0)


def lloyd(
    box: Box, clusters: int, spending: Spending, rng: np.random.Generator, rounds: int = LLOYD_ROUNDS
) -> Protocol[Private]:
    """Plain DP-Lloyd: c-means whose sums get noise as large as the bounds ask for, so many rounds, drawn centres."""
    half = (box.high - box.low) / 2 / box.unit
    start = rng.uniform(-half, half, (clusters, len(half)))
    price, history = spending.price(1 / rounds), list[Round]()
    axes, nowhere = np.eye(len(half)) / box.radius, np.zeros((clusters, len(half)))
    centers, mass = start / box.radius, np.zeros(clusters)
    for number in range(1, rounds + 1):
        sums, _ = yield from heard(moves, Places(price, box, axes, centers, nowhere, len(half), 1.0))
        noise = spending.sd(price) * LONG
        moved, mass = shifted(sums.sums.floats() * LONG, nowhere, 1.0, noise=noise)
        moved = np.where((mass > 2 * noise)[:, None], moved, centers)
        history.append(Round(number, frobenius(moved - centers) * box.radius, math.nan))
        centers = moved
        yield from report(round=number, shift=history[-1].shift)
    return Private(
        centers * box.radius,
        start,
        mass,
        float(mass.sum()),
        math.nan,
        tuple(history),
        (price.rho,) * rounds,
        _few(float(mass.sum()), spending.sd(price) * LONG / MASS * math.sqrt(clusters)),
    )


def _few(rows: float, unsure: float) -> tuple[str, ...]:
    """What to say where the number of rows is hardly above its own noise."""
    if rows >= ABOVE * unsure:
        return ()
    told = (
        f"There are few rows beside the noise in their number (standard deviation {unsure:,.0f}): the centres may be "
    )
    return (told + "noise alone. Allow a larger epsilon, or bring more rows.",)
