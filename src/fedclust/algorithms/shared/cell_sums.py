"""What a site answers while initial centres are found: sums over the cells of a tree, and objectives of candidates.

All questions are about y = x - mean, where the mean of each column is that over all rows and a missing value counts as
the mean. They read a public sample of the rows if the table is large. Every operation on a row is elementwise and in a
fixed order, and every term becomes an integer before it is added, so the sums do not depend on blocks or sites.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedclust.algorithms.shared.cell_routing import TREE_ARRAYS, project, rows_of_cells
from fedclust.algorithms.shared.fixed_order import ordered_sum
from fedclust.algorithms.shared.start_contracts import fits_nearest, fits_parts, fits_race, fits_scatter
from fedclust.core.effects import handler
from fedclust.core.errors import OutOfBounds
from fedclust.core.question_types import AgreedValuesQuestion, ViewedQuestion
from fedclust.core.release import ROW_BITS, Release, additive, additive_counts, stack_field
from fedclust.core.ring import Exact
from fedclust.core.row_weights import tally_unit_weights
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Bools, Floats, Ints, Limbs, Units
from fedclust.kernels import distances, hard_sweep
from fedclust.kernels import exact_sums as exact
from fedclust.kernels.exact_sums import Sums
from fedclust.kernels.fine_sums import fine_sums
from fedclust.kernels.row_sample import WHOLE_TABLE
from fedclust.kernels.units import DISTANCE_BITS, TERM_BITS, bounds_above, squared_distance_bound, unit_of

PAIRED_AXES = 3  # products of two different coordinates are asked for along so many axes, squares along all


@dataclass(frozen=True)
class SampleQuestion(ViewedQuestion, AgreedValuesQuestion):
    """Which rows are meant, and the mean of each column over all rows."""

    view: View
    seed: int
    share: int
    mean: Floats

    def agreed_values(self) -> Mapping[str, int]:
        return {"share of the sample": self.share} if self.share < WHOLE_TABLE else {}


@dataclass(frozen=True)
class ScatterQuestion(SampleQuestion):
    """Sum the products y (directions' y)^T; without directions the upper triangle of y y^T. |y| is at most `reach`.

    In `rare` columns every y counts as 0.
    """

    reach: Floats
    directions: Floats | None
    rare: Ints

    @cached_property
    def units(self) -> Units:
        """The units of the sums of products with each direction, and of the sums of y in the last row."""
        wide = self.reach if self.directions is None else _projected_reach(self.reach, self.directions)
        bounds = np.append(wide, 1.0)[:, None] * self.reach
        return unit_of(bounds_above(bounds.ravel()) + 1).reshape(bounds.shape)

    def products(self, sums: Limbs) -> tuple[Limbs, Units]:
        """The products that are sent, of all, with their units."""
        if self.directions is None:
            i, j = np.triu_indices(len(self.reach))
            return np.ascontiguousarray(sums[i, j]), self.units[i, j]
        return np.ascontiguousarray(sums[:-1]), self.units[:-1]


@dataclass(frozen=True)
class ScatterSums(Release):
    rows: Exact = additive_counts("the total number of rows, or of those in the public sample")
    sums: Exact = additive("for each column, the sum of the deviations from its mean")
    products: Exact = additive("for each column, the sum of the products of its deviations with a few combinations")

    @classmethod
    def plausible(cls, parts: Sequence[ScatterSums], ask: ScatterQuestion) -> Bools:
        """Also: no sum exceeds the number of rows times the largest term."""
        rows = stack_field(parts, "rows").to_floats()
        sound = _are_reachable(parts, "sums", rows) & _are_reachable(parts, "products", rows)
        return super().plausible(parts, ask) & sound


def _rows_behind_products(site: Site, ask: ScatterQuestion) -> Floats:
    """How many rows of the sample are behind the products: all, or those with both values or with the one."""
    width = len(ask.mean)
    both, present, rows = np.zeros((width, width), np.int64), np.zeros(width, np.int64), 0
    for x in _pieces(site, ask):
        known = (~np.isnan(x)).astype(np.int64)
        rows += x.shape[1]
        present += known.sum(axis=1)
        if ask.directions is None and ask.view.missing == "partial":
            both += known @ known.T
    if ask.view.missing != "partial":
        return tally_unit_weights(np.array([rows]))
    return tally_unit_weights(present if ask.directions is not None else both[np.triu_indices(width)])


@handler(releases=ScatterSums, row_weights=_rows_behind_products, contract=fits_scatter)
def scatter_sums(site: Site, ask: ScatterQuestion) -> ScatterSums:
    """Sums of y and of its products with the directions, or with itself."""
    units, rows = ask.units, 0
    sums = Sums.zeros(units.max(axis=1), units, 0)
    for y in _deviations(site, ask, ask.reach):
        y[ask.rare] = 0.0
        by = y if ask.directions is None else project(y, ask.directions)
        exact.add_weighted(sums, y, np.concatenate([by, np.ones((1, y.shape[1]))]))
        rows += y.shape[1]
    products, unit = ask.products(sums.pull)
    return ScatterSums(Exact.from_counts(rows), Exact(sums.pull[-1].copy(), units[-1]), Exact(products, unit))


@dataclass(frozen=True)
class PartsQuestion(SampleQuestion):
    """How rows fall from cell to cell, in the coordinates z = axes^T y, and for which cells to answer.

    Cut i cuts cell `cells[i]` at `places[i]` across its `directions[i]`, by its kind; a cell comes after the one that
    it is a part of. `widths` says how far apart the planes of slices are, and `children` which cells the parts are.
    """

    reach: Floats
    axes: Floats
    cells: Units
    kinds: Units
    places: Floats
    directions: Floats
    widths: Floats
    children: Units
    asked: Units

    @cached_property
    def units(self) -> tuple[Units, Units]:
        """The units of z and of the products of two of its numbers."""
        wide = _projected_reach(self.reach, self.axes)
        i, j = product_pairs(len(wide))
        return tuple(  # type: ignore[return-value]
            unit_of(bounds_above(bounds) + 1, DISTANCE_BITS) for bounds in (wide, wide[i] * wide[j])
        )


@dataclass(frozen=True)
class PartCounts(Release):
    counts: Exact = additive("the number of rows in each cell", cells=True)


@dataclass(frozen=True)
class PartSums(Release):
    counts: Exact = additive("the number of rows in each cell", cells=True)
    sums: Exact = additive("for each cell, the sum of its rows' coordinates in a few directions")

    @classmethod
    def plausible(cls, parts: Sequence[PartSums], ask: PartsQuestion) -> Bools:
        """Also: no sum exceeds the number of rows times the largest term."""
        counts = stack_field(parts, "counts").to_floats()
        return super().plausible(parts, ask) & _are_reachable(parts, "sums", counts, DISTANCE_BITS)


@dataclass(frozen=True)
class PartMoments(Release):
    counts: Exact = additive("the number of rows in each cell", cells=True)
    sums: Exact = additive("for each cell, the sum of its rows' coordinates in a few directions")
    products: Exact = additive("for each cell, the sums of its rows' squares along these axes, and of a few products")

    @classmethod
    def plausible(cls, parts: Sequence[PartMoments], ask: PartsQuestion) -> Bools:
        """Also: no sum exceeds the number of rows times the largest term."""
        counts = stack_field(parts, "counts").to_floats()
        sound = _are_reachable(parts, "sums", counts, DISTANCE_BITS)
        return super().plausible(parts, ask) & sound & _are_reachable(parts, "products", counts, DISTANCE_BITS)


@handler(releases=PartCounts, contract=fits_parts)
def part_counts(site: Site, ask: PartsQuestion) -> PartCounts:
    """How many rows are in each cell."""
    counts = np.zeros(len(ask.asked), np.int64)
    for at, rows in _rows_by_part(site, ask):
        counts[at] += rows.shape[1]
    return PartCounts(Exact.from_counts(counts))


@handler(releases=PartSums, contract=fits_parts)
def part_sums(site: Site, ask: PartsQuestion) -> PartSums:
    """How many rows are in each cell, and their sums."""
    unit, _ = ask.units
    counts = np.zeros(len(ask.asked), np.int64)
    sums: Limbs = np.zeros((len(counts), len(unit), 2), np.uint64)
    for at, rows in _rows_by_part(site, ask):
        counts[at] += rows.shape[1]
        exact.add_in_place(sums[at], fine_sums(rows, unit))
    return PartSums(Exact.from_counts(counts), _exact_rows(sums, unit))


@handler(releases=PartMoments, contract=fits_parts)
def part_moments(site: Site, ask: PartsQuestion) -> PartMoments:
    """How many rows are in each cell, their sums, and the sums of their products."""
    unit, square = ask.units
    i, j = product_pairs(len(unit))
    both = np.concatenate([unit, square])
    counts = np.zeros(len(ask.asked), np.int64)
    found: Limbs = np.zeros((len(counts), len(both), 2), np.uint64)
    for at, rows in _rows_by_part(site, ask):
        counts[at] += rows.shape[1]
        exact.add_in_place(found[at], fine_sums(np.concatenate([rows, rows[i] * rows[j]]), both))
    sums, products = (np.ascontiguousarray(part) for part in np.split(found, [len(unit)], axis=1))
    return PartMoments(Exact.from_counts(counts), _exact_rows(sums, unit), _exact_rows(products, square))


def product_pairs(axes: int) -> tuple[Ints, Ints]:
    """The pairs of axes whose products are asked for.

    >>> [own.tolist() for own in product_pairs(5)]
    [[0, 0, 0, 1, 1, 2, 3, 4], [0, 1, 2, 1, 2, 2, 3, 4]]
    """
    i, j = np.triu_indices(axes)
    asked = (i == j) | (j < PAIRED_AXES)
    return i[asked], j[asked]


def _rows_by_part(site: Site, ask: PartsQuestion) -> Iterator[tuple[int, Floats]]:
    """For each cell that is asked for: its place in the answer, and its rows' coordinates z."""
    for y in _deviations(site, ask, ask.reach):
        z = project(y, ask.axes)
        rows_of = rows_of_cells(z, {name: getattr(ask, name) for name in TREE_ARRAYS})
        for at, cell in enumerate(ask.asked.tolist()):
            if cell in rows_of:
                yield at, np.ascontiguousarray(z[:, rows_of[cell]])


@dataclass(frozen=True)
class NearestQuestion(SampleQuestion):
    """Centres, in the columns of the view."""

    centers: Floats


@dataclass(frozen=True)
class NearestSums(Release):
    counts: Exact = additive(
        "how many rows are nearest to each centre and, if values may be missing, how many of these have each column",
        cells=True,
    )
    sums: Exact = additive("for each centre, the sum of its nearest rows")

    @classmethod
    def plausible(cls, parts: Sequence[NearestSums], ask: NearestQuestion) -> Bools:
        """Also: no sum exceeds the number of rows times the bound of its column."""
        counts = stack_field(parts, "counts").to_floats()[..., 0]
        return super().plausible(parts, ask) & _are_reachable(parts, "sums", counts)


@handler(releases=PartCounts, contract=fits_nearest)
def nearest_counts(site: Site, ask: NearestQuestion) -> PartCounts:
    """How many rows are nearest to each centre."""
    counts = np.zeros(len(ask.centers), np.int64)
    for x in _pieces(site, ask):
        nearest, _ = distances.nearest_centers(_fill(x, ask), ask.centers)
        counts += np.bincount(nearest, minlength=len(counts))
    return PartCounts(Exact.from_counts(counts))


@handler(releases=NearestSums, contract=fits_nearest)
def nearest_sums(site: Site, ask: NearestQuestion) -> NearestSums:
    """One sweep: the rows nearest to each centre are counted and added."""
    unit = unit_of(ask.view.exponents)
    many, gaps = len(ask.centers), ask.view.missing == "partial"
    farthest = int(unit_of(squared_distance_bound(ask.view.exponents, ask.centers)))
    sums = Sums.zeros(np.zeros(many, np.int32), np.tile(unit, (many, 1)), farthest)
    present = np.zeros((many, len(unit) if gaps else 0), np.int64)
    for x in _pieces(site, ask):
        filled = _fill(x, ask)
        hard_sweep.accumulate(sums, filled, ask.centers)
        if gaps:
            np.add.at(present, distances.nearest_centers(filled, ask.centers)[0], (~np.isnan(x)).T.astype(np.int64))
    counts = np.concatenate([sums.mass[:, :1].astype(np.int64), present], axis=1)
    return NearestSums(Exact.from_counts(counts), _exact_rows(sums.pull, unit))


@dataclass(frozen=True)
class RaceQuestion(SampleQuestion):
    """Candidates for initial centres (candidates, centres, columns)."""

    candidates: Floats

    @cached_property
    def unit(self) -> Units:
        """The unit of the squared distance of a row to its nearest centre."""
        bounds = [squared_distance_bound(self.view.exponents, centers) for centers in self.candidates]
        return unit_of(np.array(bounds), DISTANCE_BITS)


@dataclass(frozen=True)
class Objectives(Release):
    rows: Exact = additive_counts("the total number of rows, or of those in the public sample")
    objectives: Exact = additive(
        "for each candidate, the sum of the squared distances of all rows to their nearest centres", least=0.0
    )

    @classmethod
    def plausible(cls, parts: Sequence[Objectives], ask: RaceQuestion) -> Bools:
        """Also: no objective exceeds the number of rows times the farthest squared distance."""
        rows = stack_field(parts, "rows").to_floats()
        return super().plausible(parts, ask) & _are_reachable(parts, "objectives", rows, DISTANCE_BITS)


def _sampled_rows(site: Site, ask: RaceQuestion) -> Floats:
    """How many rows there are; each counts as one in every objective."""
    return tally_unit_weights(np.array([sum(x.shape[1] for x in _pieces(site, ask))]))


@handler(releases=Objectives, row_weights=_sampled_rows, contract=fits_race)
def objectives(site: Site, ask: RaceQuestion) -> Objectives:
    """The objective of each candidate."""
    found: Limbs = np.zeros((len(ask.candidates), 2), np.uint64)
    rows = 0
    for x in _pieces(site, ask):
        filled = _fill(x, ask)
        least = np.stack([distances.nearest_centers(filled, centers)[1] for centers in ask.candidates])
        exact.add_in_place(found, fine_sums(least, ask.unit))
        rows += x.shape[1]
    return Objectives(Exact.from_counts(rows), Exact(found, ask.unit))


def _pieces(site: Site, ask: SampleQuestion) -> Iterable[Floats]:
    """The rows that a question is about, in pieces of columns."""
    return site.sample(ask.view, ask.seed, ask.share)


def _fill(x: Floats, ask: SampleQuestion) -> Floats:
    """Rows in which the mean of the column stands for a missing value."""
    return np.where(np.isnan(x), ask.mean[:, None], x) if ask.view.missing == "partial" else x


def _deviations(site: Site, ask: SampleQuestion, reach: Floats) -> Iterator[Floats]:
    """The rows' deviations from the means, 0 for a missing value, within their bounds."""
    for x in _pieces(site, ask):
        y = x - ask.mean[:, None]
        if ask.view.missing == "partial":
            y = np.where(np.isnan(y), 0.0, y)
        if y.size and (np.abs(y).max(axis=1) > reach).any():
            raise OutOfBounds("a value is beyond the bound agreed on before; keep the data unchanged during a run")
        yield y


def _exact_rows(limbs: Limbs, unit: Units) -> Exact:
    """Rows of numbers that all have the same units."""
    return Exact(limbs, np.tile(unit, (len(limbs), 1)))


def _projected_reach(reach: Floats, directions: Floats) -> Floats:
    """Bounds on the coordinates of rows along directions."""
    return ordered_sum(reach[:, None] * np.abs(directions), axis=0)


def _are_reachable(parts: Sequence[Any], name: str, rows: Floats, bits: int = TERM_BITS) -> Bools:
    """Whether sums are at most the number of rows times the largest term; each term may be off by half a unit.

    The first axes of the sums are those of `rows`.
    """
    found = stack_field(parts, name)
    rows = rows.reshape(*rows.shape, *[1] * (len(found.shape) - rows.ndim))
    most = rows * np.ldexp(1.0, found.unit + bits) + np.ldexp(1.0, found.unit + ROW_BITS)
    return np.asarray((np.abs(found.to_floats()) <= most).reshape(len(parts), -1).all(axis=1))
