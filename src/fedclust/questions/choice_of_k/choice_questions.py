"""What a site answers while the number of clusters is chosen: sums and counts of its rows by cell, component and line.

All questions are about z = (x - mean) / sd of the columns that are not constant, where a missing value counts as the
mean, 0. They read a public sample of the rows if the table is large. Every operation on a row is elementwise and in a
fixed order, and every term becomes an integer before it is added, so the sums do not depend on blocks or sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedclust.algorithms.shared.cell_routing import project
from fedclust.algorithms.shared.fixed_order import ordered_sum
from fedclust.core.effects import handler
from fedclust.core.errors import DataError, OutOfBounds
from fedclust.core.question_types import AgreedValuesQuestion, ViewedQuestion
from fedclust.core.release import Release, additive, additive_counts
from fedclust.core.ring import Exact
from fedclust.core.row_weights import tally_unit_weights
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats, Ints, Limbs, Units
from fedclust.kernels import exact_sums
from fedclust.kernels.fine_sums import fine_sums
from fedclust.kernels.row_sample import WHOLE_TABLE
from fedclust.kernels.units import DISTANCE_BITS, bounds_above, unit_of
from fedclust.questions.choice_of_k.choice_contracts import (
    fits_cell_lines,
    fits_cells,
    fits_choice_products,
    fits_powers,
)

STEPS = (100.0, 10.0, 1.0, 0.5, 0.1)  # of values that are rounded, the widest first
STEP_TOLERANCE = 1e-9
CHUNK_VALUES = 1 << 16  # of scores in memory together


@dataclass(frozen=True)
class ChoiceQuestion(ViewedQuestion, AgreedValuesQuestion):
    """Which rows are meant, which columns, and their means and standard deviations; |z| is at most `reach`."""

    view: View
    seed: int
    share: int
    columns: Ints
    mean: Floats
    sd: Floats
    reach: Floats

    def agreed_values(self) -> Mapping[str, int]:
        return {"share of the sample": self.share} if self.share < WHOLE_TABLE else {}


def rows_in_deviations(site: Site, ask: ChoiceQuestion) -> Iterator[Floats]:
    """The rows' deviations from the means, in standard deviations, 0 for a missing value."""
    for x in site.sample(ask.view, ask.seed, ask.share):
        z = (x[ask.columns] - ask.mean[:, None]) / ask.sd[:, None]
        if ask.view.missing == "partial":
            z = np.where(np.isnan(z), 0.0, z)
        if z.size and (np.abs(z).max(axis=1) > ask.reach).any():
            raise OutOfBounds("a value is beyond the bound agreed on before; keep the data unchanged during a run")
        yield z


def _rows_behind_powers(site: Site, ask: PowersQuestion) -> Floats:
    """How many rows are behind the sums of each column."""
    return row_count(site, ask)


def row_count(site: Site, ask: ChoiceQuestion) -> Floats:
    """How many rows are behind a sum over all rows; of a column with missing values, how many have a value."""
    rows, present = 0, np.zeros(len(ask.columns), np.int64)
    for x in site.sample(ask.view, ask.seed, ask.share):
        rows += x.shape[1]
        present += (~np.isnan(x[ask.columns])).sum(axis=1)
    return tally_unit_weights(present if ask.view.missing == "partial" else np.array([rows]))


@dataclass(frozen=True)
class PowersQuestion(ChoiceQuestion):
    """Sum the first four powers of z."""

    @cached_property
    def units(self) -> Units:
        """The units of the powers' sums."""
        powers = np.cumprod(np.tile(self.reach, (4, 1)), axis=0)
        return np.stack([unit_of(bounds_above(power) + 1, DISTANCE_BITS) for power in powers])


@dataclass(frozen=True)
class PowerSums(Release):
    rows: Exact = additive_counts("the total number of rows, or of those in the public sample")
    powers: Exact = additive("for each column, the sums of the first four powers of the deviations from its mean")
    rounded: Exact = additive(
        "for each column and a few steps such as 10, 1 and 0.1, how many rows hold a multiple of the step", least=0.0
    )


@handler(releases=PowerSums, row_weights=_rows_behind_powers, contract=fits_powers)
def power_sums(site: Site, ask: PowersQuestion) -> PowerSums:
    """Sums of z, z^2, z^3 and z^4, column by column, and how many values are rounded to each step."""
    rows, units = 0, ask.units
    rounded = np.zeros((len(STEPS), len(ask.columns)), np.int64)
    for x in site.sample(ask.view, ask.seed, ask.share):
        for k, step in enumerate(STEPS):
            rounded[k] += _count_multiples(x[ask.columns], step)
    found: Limbs = np.zeros((*units.shape, 2), np.uint64)
    for z in rows_in_deviations(site, ask):
        rows += z.shape[1]
        power = z
        for p in range(len(units)):
            exact_sums.add_in_place(found[p], fine_sums(power, units[p]))
            power = power * z
    return PowerSums(Exact.from_counts(rows), Exact(found, units), Exact.from_counts(rounded))


def _count_multiples(x: Floats, step: float) -> Ints:
    """How many values of each column are multiples of a step, or missing."""
    steps = np.where(np.isnan(x), 0.0, x) / step
    return np.asarray(
        (np.abs(steps - np.rint(steps)) <= STEP_TOLERANCE * np.maximum(np.abs(steps), 1.0)).sum(axis=1), np.int64
    )


@dataclass(frozen=True)
class ProductsQuestion(ChoiceQuestion):
    """Sum the products of any two columns."""

    @cached_property
    def unit(self) -> Units:
        i, j = np.triu_indices(len(self.reach))
        return unit_of(bounds_above(self.reach[i] * self.reach[j]) + 1)


@dataclass(frozen=True)
class ProductSums(Release):
    products: Exact = additive("for each pair of columns, the sum of the products of the deviations from their means")


def _rows_behind_products(site: Site, ask: ProductsQuestion) -> Floats:
    """How many rows have a value in both columns of a product."""
    if ask.view.missing != "partial":
        return row_count(site, ask)
    both = np.zeros((len(ask.columns), len(ask.columns)), np.int64)
    for x in site.sample(ask.view, ask.seed, ask.share):
        known = (~np.isnan(x[ask.columns])).astype(np.int64)
        both += known @ known.T
    return tally_unit_weights(both[np.triu_indices(len(both))])


@handler(releases=ProductSums, row_weights=_rows_behind_products, contract=fits_choice_products)
def product_sums(site: Site, ask: ProductsQuestion) -> ProductSums:
    """The upper triangle of the sum of z z^T."""
    i, j = np.triu_indices(len(ask.reach))
    found: Limbs = np.zeros((len(i), 2), np.uint64)
    for z in rows_in_deviations(site, ask):
        step = max(1, CHUNK_VALUES * 4 // max(len(i), 1))
        for at in range(0, z.shape[1], step):
            piece = z[:, at : at + step]
            exact_sums.add_in_place(found, exact_sums.exact_totals(piece[i] * piece[j], ask.unit))
    return ProductSums(Exact(found, ask.unit))


@dataclass(frozen=True)
class RowMap:
    """The numbers y = axes^T z of a row, and which columns have two values: their flag is 1 for the upper one.

    |y| is at most `reach`.
    """

    axes: Floats
    flagged: Ints
    reach: Floats

    def apply(self, z: Floats) -> tuple[Floats, Floats]:
        """The numbers (q, n) and the flags (c, n) of rows."""
        return project(z, self.axes), (z[self.flagged] > 0).astype(np.float64)


MappedFields = tuple[View, int, int, Ints, Floats, Floats, Floats, RowMap]


@dataclass(frozen=True)
class MappedQuestion(ChoiceQuestion):
    """A question about the numbers and the flags of rows."""

    row_map: RowMap


def mapped_rows(site: Site, ask: MappedQuestion) -> Iterator[tuple[Floats, Floats]]:
    """The numbers and the flags of the rows, in pieces."""
    for z in rows_in_deviations(site, ask):
        yield ask.row_map.apply(z)


@dataclass(frozen=True)
class TreeQuestion(MappedQuestion):
    """How rows fall from cell to cell of a tree, in the coordinates t = (weights y, embedding^T flags).

    Cut i takes the rows of cell `cut_cells[i]` with directions[i] t > places[i] into the new cell i + 1; cuts of one
    level are made together.
    """

    weights: Floats
    embedding: Floats
    levels: Ints
    cut_cells: Ints
    directions: Floats
    places: Floats

    @property
    def tree_fields(self) -> tuple[*MappedFields, Floats, Floats, Ints, Ints, Floats, Floats]:
        """The first fields of a question about the same tree."""
        rows = self.view, self.seed, self.share, self.columns, self.mean, self.sd, self.reach, self.row_map
        cuts = self.levels, self.cut_cells, self.directions, self.places
        return (*rows, self.weights, self.embedding, *cuts)

    @cached_property
    def units(self) -> tuple[Units, Units]:
        """The units of t and of the products of two of its coordinates."""
        wide = np.concatenate([self.row_map.reach * self.weights, ordered_sum(np.abs(self.embedding), axis=0)])
        i, j = np.triu_indices(len(wide))
        return unit_of(bounds_above(wide) + 1), unit_of(bounds_above(wide[i] * wide[j]) + 1)

    def coordinates(self, y: Floats, flags: Floats) -> Floats:
        """The coordinates t (p, n) of rows."""
        return np.concatenate([y * self.weights[:, None], project(flags, self.embedding)])

    def cells_of_rows(self, t: Floats) -> Ints:
        """The cell of each row."""
        cell = np.zeros(t.shape[1], np.int64)
        for level in range(int(self.levels.max(initial=-1)) + 1):
            cuts = np.flatnonzero(self.levels == level)
            places = np.full(int(cuts[0]) + 1, np.inf)
            directions = np.zeros((len(places), len(t)))
            target = np.arange(len(places))
            if (self.cut_cells[cuts] >= len(places)).any():
                raise DataError("a cell is cut before it exists; all sites must run the same version of fedclust")
            places[self.cut_cells[cuts]], directions[self.cut_cells[cuts]] = self.places[cuts], self.directions[cuts]
            target[self.cut_cells[cuts]] = cuts + 1
            along = np.zeros(t.shape[1])
            for values, weights in zip(t, directions.T, strict=True):
                along += weights[cell] * values
            cell = np.where(along > places[cell], target[cell], cell)
        return cell


@dataclass(frozen=True)
class CellsQuestion(TreeQuestion):
    """The cells of a tree that are `asked` for."""

    asked: Ints


@dataclass(frozen=True)
class CellLinesQuestion(CellsQuestion):
    """Histograms of the asked cells' rows, each along a direction; a row is in section i if it exceeds i of the edges.

    A cut at an edge divides the rows just as the sections do.
    """

    lines: Floats
    edges: Floats


@dataclass(frozen=True)
class GroupMoments(Release):
    rows: Exact = additive("the number of rows in each cell, or of each component", cells=True)
    sums: Exact = additive("for each cell or component, the sum of its rows' coordinates in a few directions")
    products: Exact = additive(
        "for each cell or component, and each pair of these axes, the sum over its rows of the product of the two "
        "coordinates"
    )
    flags: Exact = additive(
        "for each cell or component, how many of its rows have the upper value of a two-valued column"
    )


@handler(releases=GroupMoments, contract=fits_cells)
def cell_moments(site: Site, ask: CellsQuestion) -> GroupMoments:
    """How many rows are in each cell, their sums, the sums of their products, and the counts of flags."""
    place_of = np.full(len(ask.places) + 1, len(ask.asked))
    place_of[ask.asked] = np.arange(len(ask.asked))
    tally = GroupTally(len(ask.asked), *ask.units, len(ask.row_map.flagged))
    for y, flags in mapped_rows(site, ask):
        t = ask.coordinates(y, flags)
        tally.add(t, flags, place_of[ask.cells_of_rows(t)])
    return tally.release()


class GroupTally:
    """Exact sums of rows by label; a label beyond the last group is of no group."""

    def __init__(self, groups: int, unit: Units, square: Units, flagged: int, squared: Ints | None = None) -> None:
        """Products are of all numbers, or of those that are `squared`."""
        self.squared = np.arange(len(unit)) if squared is None else squared
        self.units, self.split = np.concatenate([unit, square]), len(unit)
        self.rows = np.zeros(groups, np.int64)
        self.found: Limbs = np.zeros((groups, len(self.units), 2), np.uint64)
        self.flags = np.zeros((groups, flagged), np.int64)

    def add(self, numbers: Floats, flags: Floats, labels: Ints) -> None:
        i, j = self.squared[np.array(np.triu_indices(len(self.squared)))]
        order = np.argsort(labels, kind="stable")
        ends = np.searchsorted(labels[order], np.arange(len(self.rows) + 1))
        numbers, flags = numbers[:, order], flags[:, order]
        for k, (start, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
            if end > start:
                own = numbers[:, start:end]
                terms = np.ascontiguousarray(np.concatenate([own, own[i] * own[j]]))
                self.rows[k] += end - start
                exact_sums.add_in_place(self.found[k], exact_sums.exact_totals(terms, self.units))
                self.flags[k] += flags[:, start:end].sum(axis=1).astype(np.int64)

    def release(self) -> GroupMoments:
        sums, products = (np.ascontiguousarray(part) for part in np.split(self.found, [self.split], axis=1))
        unit, square = np.split(self.units, [self.split])
        return GroupMoments(
            Exact.from_counts(self.rows),
            Exact(sums, np.tile(unit, (len(sums), 1))),
            Exact(products, np.tile(square, (len(sums), 1))),
            Exact.from_counts(self.flags),
        )


@dataclass(frozen=True)
class HistogramCounts(Release):
    counts: Exact = additive(
        "for a cell or some components, how many of their rows lie in each section of a line", cells=True
    )


@handler(releases=HistogramCounts, contract=fits_cell_lines)
def cell_histograms(site: Site, ask: CellLinesQuestion) -> HistogramCounts:
    """How the rows of each cell lie along a line through it."""
    bins = ask.edges.shape[1] + 1
    counts = np.zeros((len(ask.asked), bins), np.int64)
    for y, flags in mapped_rows(site, ask):
        t = ask.coordinates(y, flags)
        cell = ask.cells_of_rows(t)
        for k, own in enumerate(ask.asked):
            along = project(t[:, cell == own], ask.lines[k, :, None])[0]
            counts[k] += np.bincount(np.searchsorted(ask.edges[k], along), minlength=bins)
    return HistogramCounts(Exact.from_counts(counts))
