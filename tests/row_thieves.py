"""Handlers of another package that return the rows of a site, one or more for each class of field."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedclust.core.effects import Keep, handler
from fedclust.core.errors import DataError, KeysRefused, OverBudget, WireError
from fedclust.core.question_types import GapsQuestion, PointsQuestion, ViewedQuestion
from fedclust.core.release import (
    COLUMNS,
    MAX_ROWS,
    Release,
    additive,
    additive_counts,
    additive_weights,
    counts,
    facts,
    points,
    sealed_weights,
    weights,
)
from fedclust.core.ring import Exact
from fedclust.core.site_interface import RowOrder, Site, View
from fedclust.core.types import Floats, Ints, Units
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source

SCALE = 1e6  # rows as whole numbers keep six decimals


@dataclass(frozen=True)
class Take(ViewedQuestion):
    """Give me your rows, in so many cells, or all of them."""

    view: View
    cells: int = 2
    rows: int = 60


def rows_of(site: Site, ask: Take) -> Floats:
    return np.concatenate([np.asarray(block.T, np.float64) for block in site.blocks(ask.view)])


def packed(site: Site, ask: Take) -> Ints:
    """Rows as whole numbers from 0 on."""
    return np.round((rows_of(site, ask) + 64.0) * SCALE).astype(np.int64)


def exact(rows: Floats) -> Exact:
    return Exact.from_floats(rows, unit=np.full(rows.shape, -40, np.int32))


def every_row(site: Site, ask: Take) -> Iterator[Floats]:
    """The lie that all rows are behind each point."""
    for block in site.blocks(ask.view):
        yield np.ones((site.rows, block.shape[1]))


def one_row(site: Site, ask: Take) -> Iterator[Floats]:
    at = 0
    for block in site.blocks(ask.view):
        yield np.eye(site.rows)[:, at : at + block.shape[1]]
        at += block.shape[1]


def two_rows(site: Site, ask: Take) -> Iterator[Floats]:
    at = 0
    both = np.eye(site.rows) + np.roll(np.eye(site.rows), 1, axis=1)
    for block in site.blocks(ask.view):
        yield both[:, at : at + block.shape[1]]
        at += block.shape[1]


@dataclass(frozen=True)
class Points(Release):
    places: Floats = points("means of five rows, it says", floor=5)


@handler(releases=Points, members=every_row)
def points_that_are_rows(site: Site, ask: Take) -> Points:
    return Points(rows_of(site, ask))


@handler(releases=Points, members=one_row)
def points_that_are_openly_rows(site: Site, ask: Take) -> Points:
    return Points(rows_of(site, ask))


@handler(releases=Points, members=every_row)
def points_that_are_nearly_rows(site: Site, ask: Take) -> Points:
    return Points(rows_of(site, ask) * (1 + 2.0**-44))


@handler(releases=Points, members=every_row)
def points_in_one_line(site: Site, ask: Take) -> Points:
    return Points(rows_of(site, ask).reshape(1, -1))


@handler(releases=Points, members=two_rows)
def means_of_two_rows(site: Site, ask: Take) -> Points:
    rows = rows_of(site, ask)
    return Points((rows + np.roll(rows, -1, axis=0)) / 2)


@handler(releases=Points, members=every_row)
def means_of_two_rows_called_means_of_all(site: Site, ask: Take) -> Points:
    rows = rows_of(site, ask)
    return Points((rows + np.roll(rows, -1, axis=0)) / 2)


@dataclass(frozen=True)
class CountedPoints(Release):
    places: Floats = points("means of five rows, it says", floor=5)
    rows: Ints = counts("how many rows each stands for, it says")


@handler(releases=CountedPoints, members=every_row)
def means_of_all_with_rows_as_counts(site: Site, ask: Take) -> CountedPoints:
    mean = rows_of(site, ask).mean(axis=0)
    numbers = packed(site, ask).ravel()[: site.rows]
    return CountedPoints(np.tile(mean, (site.rows, 1)), numbers)


@handler(releases=CountedPoints, members=every_row)
def rows_as_counts_of_no_points(site: Site, ask: Take) -> CountedPoints:
    numbers = np.abs(np.round(rows_of(site, ask))).astype(np.int64).ravel()
    return CountedPoints(np.zeros((0, len(site.columns))), numbers)


@dataclass(frozen=True)
class Fact(Release):
    number: int = facts("a number", most=2.0**30)


@handler(releases=Fact, max_distinct=1)
def fact_with_the_bits_of_a_value(site: Site, ask: Take) -> Fact:
    return Fact(int(rows_of(site, ask)[:1, :1].view(np.int64)[0, 0]))


@handler(releases=Fact, max_distinct=1)
def fact_that_is_an_array(site: Site, ask: Take) -> Fact:
    return Fact(rows_of(site, ask))  # type: ignore[arg-type]


@handler(releases=Fact, max_distinct=1)
def fact_that_is_a_text(site: Site, ask: Take) -> Fact:
    return Fact(repr(rows_of(site, ask).tolist()))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Names(Release):
    names: tuple[str, ...] = facts("names of sites, it says")


@handler(releases=Names, max_distinct=1)
def rows_as_names(site: Site, ask: Take) -> Names:
    return Names(tuple(" ".join(map(repr, row)) for row in rows_of(site, ask).tolist()))


@dataclass(frozen=True)
class Counts(Release):
    rows: Ints = counts("how many rows there are of something, it says", axes=("rows",))


@handler(releases=Counts)
def rows_as_counts(site: Site, ask: Take) -> Counts:
    return Counts(packed(site, ask).ravel())


@dataclass(frozen=True)
class Totals(Release):
    rows: Exact = additive_counts("how many rows there are in all, it says", axes=(COLUMNS,))


@dataclass(frozen=True)
class TableOfTotals(Release):
    rows: Exact = additive_counts("how many rows there are in all, it says", axes=("rows", COLUMNS))


@handler(releases=TableOfTotals)
def rows_as_totals(site: Site, ask: Take) -> TableOfTotals:
    return TableOfTotals(Exact.from_counts(packed(site, ask)))


@dataclass(frozen=True)
class Weights(Release):
    numbers: Floats = weights("the weights of a model, it says")


@handler(releases=Weights)
def rows_as_weights(site: Site, ask: Take) -> Weights:
    return Weights(rows_of(site, ask))


@dataclass(frozen=True)
class SummedWeights(Release):
    rows: Exact = additive_counts("how many rows the model has", cells=True, axes=(1,))
    numbers: Exact = additive_weights("the weights of a model, it says", power=-40, axes=("rows", COLUMNS))


@handler(releases=SummedWeights)
def rows_as_summed_weights(site: Site, ask: Take) -> SummedWeights:
    return SummedWeights(Exact.from_counts(np.array([site.rows])), exact(rows_of(site, ask)))


@dataclass(frozen=True)
class Messages(Release):
    messages: dict[str, bytes] = sealed_weights("the weights of a model, it says")


@handler(releases=Messages)
def rows_as_messages(site: Site, ask: Take) -> Messages:
    return Messages({"b": rows_of(site, ask).tobytes()})


@dataclass(frozen=True)
class Sums(Release):
    mass: Exact = additive("the rows of each cell", cells=True, axes=("rows",))
    pull: Exact = additive("the sum of the rows of each cell", power=-40, axes=("rows", COLUMNS))


@dataclass(frozen=True)
class SumsByCell(Release):
    mass: Exact = additive("the rows of each cell", cells=True, axes=("cells",))
    pull: Exact = additive("the sum of the rows of each cell", power=-40, axes=("cells", COLUMNS))


@dataclass(frozen=True)
class OneSum(Release):
    mass: Exact = additive("the rows of the cell", cells=True, axes=(1,))
    pull: Exact = additive("the sum of the rows of the cell", power=-40, axes=(1, COLUMNS))


@dataclass(frozen=True)
class StraySums(Release):
    mass: Exact = additive("the rows of the cell", cells=True, axes=(1,))
    pull: Exact = additive("the sum of the rows of other cells", power=-40, axes=("cells", COLUMNS))


@handler(releases=Sums)
def cells_of_one_row(site: Site, ask: Take) -> Sums:
    rows = rows_of(site, ask)
    return Sums(Exact.from_counts(np.ones(len(rows), np.int64)), exact(rows))


@handler(releases=Sums)
def cells_of_one_row_called_cells_of_many(site: Site, ask: Take) -> Sums:
    rows = rows_of(site, ask)
    return Sums(Exact.from_counts(np.full(len(rows), site.rows)), exact(rows))


@handler(releases=Sums, reads="nothing")
def rows_of_a_question_that_reads_nothing(site: Site, ask: Take) -> Sums:
    rows = rows_of(site, ask)
    return Sums(Exact.from_counts(np.full(len(rows), len(rows))), exact(rows))


@handler(releases=Sums)
def rows_with_the_opposite_sign(site: Site, ask: Take) -> Sums:
    rows = rows_of(site, ask)
    return Sums(Exact.from_counts(np.full(len(rows), site.rows)), exact(-rows))


@handler(releases=Sums)
def rows_as_units_of_sums(site: Site, ask: Take) -> Sums:
    rows = packed(site, ask)
    nothing = np.zeros((*rows.shape, 2), np.uint64)
    return Sums(Exact.from_counts(np.full(len(rows), site.rows)), Exact(nothing, rows.astype(np.int32)))


@handler(releases=Sums)
def rows_as_cells(site: Site, ask: Take) -> Sums:
    rows = packed(site, ask)
    return Sums(Exact.from_counts(rows), exact(np.zeros(rows.shape)))


@handler(releases=Totals)
def rows_as_negative_totals(site: Site, ask: Take) -> Totals:
    return Totals(Exact.from_counts(-packed(site, ask)[0]))


@handler(releases=Counts)
def rows_as_another_answer(site: Site, ask: Take) -> Totals:  # the declared answer is Counts
    return Totals(Exact.from_counts(packed(site, ask)))


@handler(releases=Counts)
def rows_as_an_error(site: Site, ask: Take) -> Counts:
    raise KeysRefused(str(rows_of(site, ask)[0]))


@handler(releases=Counts)
def rows_as_the_order_of_later_rows(site: Site, ask: Take) -> Keep:
    order = np.argsort(rows_of(site, ask)[:, 0])
    return Keep(Counts(np.array([site.rows])), {}, RowOrder(order, b"key"))


@handler(releases=Totals)
def rows_as_the_shape_of_an_empty_array(site: Site, ask: Take) -> Totals:
    row = packed(site, ask)[0]
    return Totals(Exact(np.zeros((0, int(row[0]), int(row[1]), 2), np.uint64), np.zeros((), np.int32)))


@dataclass(frozen=True)
class Facts(Release):
    first: int = facts("a number", most=MAX_ROWS)
    second: int = facts("a number", most=MAX_ROWS)
    third: int = facts("a number", most=MAX_ROWS)


@handler(releases=Facts, max_distinct=10**9)
def row_as_many_facts(site: Site, ask: Take) -> Facts:
    return Facts(*packed(site, ask)[0].tolist())


@dataclass(frozen=True)
class ManyTotals(Release):
    first: Exact = additive_counts("how many rows there are in all, it says", axes=(COLUMNS,))
    second: Exact = additive_counts("how many rows there are in all, it says", axes=(COLUMNS,))
    third: Exact = additive_counts("how many rows there are in all, it says", axes=(COLUMNS,))


@handler(releases=ManyTotals)
def row_as_many_totals(site: Site, ask: Take) -> ManyTotals:
    rows = np.round(np.abs(rows_of(site, ask)[:3])).astype(np.int64)
    return ManyTotals(*map(Exact.from_counts, rows))


def one_long_count(site: Site, ask: Take) -> Counts:
    """A count whose place among many is a value."""
    numbers = np.zeros(2000, np.int64)
    numbers[int(np.abs(rows_of(site, ask)[0, 0]) * 50)] = site.rows
    return Counts(numbers)


row_as_the_place_of_a_count = handler(releases=Counts)(one_long_count)


@dataclass(frozen=True)
class EmptiedPoints(Release):
    places: Floats = points("means of five rows, it says", floor=5)


def all_for_ten(site: Site, ask: Take) -> Iterator[Floats]:
    for block in site.blocks(ask.view):
        yield np.ones((10, block.shape[1]))


@handler(releases=EmptiedPoints, members=all_for_ten)
def rows_in_a_type_that_forgets_its_schema(site: Site, ask: Take) -> EmptiedPoints:
    return EmptiedPoints(rows_of(site, ask)[:10])


EmptiedPoints._schema = {}
EmptiedPoints.schema = dict


@dataclass(frozen=True)
class TwoFacedPoints(Release):
    places: Floats = points("means of five rows, it says", floor=5)


@handler(releases=TwoFacedPoints, members=all_for_ten)
def rows_in_a_type_that_shows_the_rules_means(site: Site, ask: Take) -> TwoFacedPoints:
    rows = rows_of(site, ask)
    TwoFacedPoints.field_value = lambda *_: np.tile(rows.mean(axis=0), (10, 1))
    return TwoFacedPoints(rows[:10])


def overlapping(site: Site, ask: Take) -> Iterator[Floats]:
    """Means of eight of the first 21 rows each: as many equations as it takes to solve for some of these rows."""
    rng, chosen, at = np.random.default_rng(0), np.zeros((19, site.rows)), 0
    for one in chosen:
        one[rng.choice(19, 8, replace=False)] = 1.0
    for block in site.blocks(ask.view):
        yield chosen[:, at : at + block.shape[1]]
        at += block.shape[1]


@handler(releases=Points, members=overlapping)
def means_that_can_be_solved_for_rows(site: Site, ask: Take) -> Points:
    chosen = np.concatenate(list(overlapping(site, ask)), axis=1)
    return Points(chosen @ rows_of(site, ask) / 8)


class LyingArray(np.ndarray):
    """Says of itself that it is the weights of all rows in ten points."""

    def sum(self, *_args, **_options):
        return np.full(10, 60.0)

    def max(self, *_args, **_options):
        return np.ones(10)

    def __mul__(self, other):
        return self

    def __ge__(self, other):
        return np.ones(self.shape, bool)

    def __gt__(self, other):
        return self

    def __matmul__(self, other):
        return 60.0 * (np.asarray(other)[:10] + 1e-6)


def lying_weights(site: Site, ask: Take) -> Iterator[Floats]:
    for block in site.blocks(ask.view):
        yield np.zeros((10, block.shape[1])).view(LyingArray)


@handler(releases=Points, members=lying_weights)
def rows_with_an_array_that_lies_about_weights(site: Site, ask: Take) -> Points:
    return Points(rows_of(site, ask)[:10] + 1e-6)


def all_for_one(site: Site, ask: Take) -> Iterator[Floats]:
    for block in site.blocks(ask.view):
        yield np.ones((1, block.shape[1]))


@handler(releases=Points, members=all_for_one)
def row_that_is_the_mean_in_a_changed_question(site: Site, ask: Take) -> Points:
    rows = rows_of(site, ask)
    origin = rows.mean(axis=0) - rows[0]
    object.__setattr__(ask, "view", View(np.full(len(origin), 60, np.int32), origin, np.ones(len(origin))))
    return Points(rows[:1])


@handler(releases=Points, members=all_for_one)
def row_that_is_the_mean_of_changed_rows(site: Site, ask: Take) -> Points:
    rows = rows_of(site, ask).copy()
    for block in site.blocks(ask.view):
        np.add(block, (rows[0] - rows.mean(axis=0))[:, None], out=block)
    return Points(rows[:1])


@handler(releases=Points, members=all_for_one)
def row_that_is_the_mean_at_another_site(site: Site, ask: Take) -> Points:
    rows = rows_of(site, ask)
    site._site_data = SiteData(site.party, open_source(rows - rows.mean(axis=0) + rows[0], site="elsewhere"))
    return Points(rows[:1])


@dataclass(frozen=True)
class BareSums(Release):
    pull: Exact = additive("the sum of the rows of each cell", power=-40, axes=("cells", COLUMNS))


@dataclass(frozen=True)
class TurnedSums(Release):
    pull: Exact = additive("the sum of the rows of each cell", power=-40, axes=(COLUMNS, "cells"))


@handler(releases=BareSums, row_weights=lambda *_: np.full((3, 1), np.nan))
def rows_with_weights_that_are_no_numbers(site: Site, ask: Take) -> BareSums:
    return BareSums(exact(2 * rows_of(site, ask)[:10]))


@handler(releases=BareSums, row_weights=lambda *_: np.zeros((3, 0)))
def rows_with_no_weights(site: Site, ask: Take) -> BareSums:
    return BareSums(exact(2 * rows_of(site, ask)[:10]))


@handler(releases=BareSums, row_weights=lambda site, _: np.array([[site.rows], [1.0], [1.0]]))
def rows_with_impossible_weights(site: Site, ask: Take) -> BareSums:
    return BareSums(exact(2 * rows_of(site, ask)[:10]))


@handler(releases=SumsByCell, row_weights=lambda *_: np.full((3, 1), 30.0))
def rows_with_weights_of_other_cells(site: Site, ask: Take) -> SumsByCell:
    return SumsByCell(Exact.from_counts(np.ones(10, np.int64)), exact(2 * rows_of(site, ask)[:10]))


@handler(releases=SumsByCell)
def cells_of_no_row_with_sums(site: Site, ask: Take) -> SumsByCell:
    return SumsByCell(Exact.from_counts(np.zeros(10, np.int64)), exact(2 * rows_of(site, ask)[:10]))


@handler(releases=StraySums)
def sums_that_belong_to_no_cell(site: Site, ask: Take) -> StraySums:
    return StraySums(Exact.from_counts(np.array([site.rows])), exact(2 * rows_of(site, ask)[:10]))


@handler(releases=TurnedSums, row_weights=lambda site, _: np.array([[site.rows] * 3, [site.rows] * 3, [1.0] * 3]))
def rows_along_the_other_axis(site: Site, ask: Take) -> TurnedSums:
    return TurnedSums(exact(rows_of(site, ask)[:10].T))


@handler(releases=SumsByCell)
def rows_as_a_choice_of_units(site: Site, ask: Take) -> SumsByCell:
    bits = np.unpackbits(rows_of(site, ask)[:10, 0].view(np.uint8))[:30].reshape(10, 3)
    units = np.where(bits, 0, -40).astype(np.int32)
    return SumsByCell(Exact.from_counts(np.full(10, site.rows)), Exact(np.zeros((10, 3, 2), np.uint64), units))


@dataclass(frozen=True)
class TakeUnits(ViewedQuestion):
    """So many cells, in the first units or, it hopes, in the second."""

    view: View
    cells: int
    unit: Units
    other: Units


@dataclass(frozen=True)
class OneOfTwo(Release):
    mass: Exact = additive("the rows of each cell", cells=True, axes=("cells",), units="unit")


# What takes several questions, or the state of this module.
asked_before = [0]


@dataclass(frozen=True)
class Yes(Release):
    yes: bool = facts("a yes")


@handler(releases=Yes, max_distinct=1)
def next_bit_of_a_row(site: Site, ask: Take) -> Yes:
    asked_before[0] += 1
    return Yes(bool(packed(site, ask)[0, 0] >> (asked_before[0] % 26) & 1))


@handler(releases=Yes, max_distinct=10**6)
def next_bit_of_many(site: Site, ask: Take) -> Yes:
    return Yes(bool(packed(site, ask)[0, 0] >> (ask.cells % 27) & 1))


@handler(releases=Totals)
def next_row_as_total(site: Site, ask: Take) -> Totals:
    asked_before[0] += 1
    row = rows_of(site, ask)[asked_before[0] % site.rows]
    return Totals(Exact.from_counts(np.round(np.abs(row)).astype(np.int64)))


@handler(releases=OneSum)
def next_row_doubled(site: Site, ask: Take) -> OneSum:
    asked_before[0] += 1
    row = rows_of(site, ask)[asked_before[0] % site.rows]
    return OneSum(Exact.from_counts(np.array([site.rows])), exact(2 * row[None]))


@handler(releases=Yes, max_distinct=1)
def bits_as_orders_that_are_refused(site: Site, ask: Take) -> Keep:
    asked_before[0] += 1
    bit = bool(packed(site, ask)[0, 0] >> (asked_before[0] % 26) & 1)
    return Keep(Yes(True), {}, RowOrder(np.arange(site.rows), b"key") if bit else None)


@handler(releases=Yes, max_distinct=1)
def bits_as_state_that_cannot_be_stored(site: Site, ask: Take) -> Keep:
    asked_before[0] += 1
    bit = bool(packed(site, ask)[0, 0] >> (asked_before[0] % 26) & 1)
    return Keep(Yes(True), {"state": object() if bit else np.zeros(1)})


@handler(releases=OneSum)
def rows_with_and_without_gaps(site: Site, ask: Take) -> OneSum:
    other = View(ask.view.exponents, missing="drop")
    total = sum(block.sum(axis=1) for block in site.blocks(other))
    return OneSum(Exact.from_counts(np.array([site.rows])), exact(total[None]))


@handler(releases=Yes, max_distinct=1, reads="nothing")
def rows_behind_a_context_without_rows(site: Site, ask: Take) -> Yes:
    return Yes(bool(next(iter(site._site_data.blocks(ask.view)))[0, 0] > 0))


def error_of_many_kinds(site: Site, ask: Take) -> Iterator[Floats]:
    kinds = (KeysRefused, DataError, OverBudget, WireError)
    raise kinds[packed(site, ask)[0, 0] >> (asked_before[0] % 26) & 3]("whatever")


@handler(releases=Points, members=error_of_many_kinds)
def bits_as_kinds_of_error(site: Site, ask: Take) -> Points:
    asked_before[0] += 2
    return Points(rows_of(site, ask)[:1])


@handler(releases=Yes, max_distinct=1)
def rows_stored_for_fedclust_to_send(site: Site, ask: Take) -> Keep:
    return Keep(Yes(True), {"means": rows_of(site, ask)})


@handler(releases=Yes, max_distinct=32)
def bit_of_two(site: Site, ask: Take) -> Yes:
    asked_before[0] += 1
    return Yes(bool(asked_before[0] % 2))


@handler(releases=OneSum)
def one_of_two_rows_doubled(site: Site, ask: Take) -> OneSum:
    asked_before[0] += 1
    row = rows_of(site, ask)[asked_before[0] % 2]
    return OneSum(Exact.from_counts(np.array([site.rows])), exact(2 * row[None]))


refuses = [False]  # a bit of a row that an earlier question read


@dataclass(frozen=True)
class TakeGaps(GapsQuestion):
    """Handle missing values by a rule that depends on the rows."""

    number: int = 1

    def rows_with_gaps(self) -> str:
        return "by no rule" if refuses[0] else "refuse"


@dataclass(frozen=True)
class TakePoints(PointsQuestion):
    """Ask for as many points as depends on the rows."""

    number: int = 1

    def max_points(self) -> int:
        return 2**20 if refuses[0] else 0


@handler(releases=Yes, max_distinct=1)
def refusals_by_the_rule_for_gaps(site: Site, ask: TakeGaps) -> Yes:
    return Yes(True)


@handler(releases=Yes, max_distinct=1)
def refusals_by_the_number_of_points(site: Site, ask: TakePoints) -> Yes:
    return Yes(True)
