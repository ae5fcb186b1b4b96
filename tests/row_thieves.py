"""Handlers of another package that return the rows of a site, one or more for each class of field."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedclust.core.effects import Keep, handler
from fedclust.core.errors import KeysRefused
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import (
    MAX_ROWS,
    Release,
    additive,
    additive_counts,
    additive_weights,
    counts,
    facts,
    marks,
    points,
    sealed_weights,
    weights,
)
from fedclust.core.ring import Exact
from fedclust.core.site_interface import RowOrder, Site, View
from fedclust.core.types import Floats, Ints

SCALE = 1e6  # rows as whole numbers keep six decimals


@dataclass(frozen=True)
class Take(ViewedQuestion):
    """Give me your rows."""

    view: View


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


@dataclass(frozen=True)
class Fact(Release):
    number: int = facts("a number", most=MAX_ROWS)


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
    rows: Ints = counts("how many rows there are of something, it says")


@handler(releases=Counts)
def rows_as_counts(site: Site, ask: Take) -> Counts:
    return Counts(packed(site, ask).ravel())


@dataclass(frozen=True)
class Totals(Release):
    rows: Exact = additive_counts("how many rows there are in all, it says")


@handler(releases=Totals)
def rows_as_totals(site: Site, ask: Take) -> Totals:
    return Totals(Exact.from_counts(packed(site, ask)))


@dataclass(frozen=True)
class Marks(Release):
    marks: Exact = marks("how far columns reach, it says")


@handler(releases=Marks, max_distinct=1)
def rows_as_marks(site: Site, ask: Take) -> Marks:
    return Marks(Exact.from_counts(packed(site, ask)))


@dataclass(frozen=True)
class Weights(Release):
    numbers: Floats = weights("the weights of a model, it says")


@handler(releases=Weights)
def rows_as_weights(site: Site, ask: Take) -> Weights:
    return Weights(rows_of(site, ask))


@dataclass(frozen=True)
class SummedWeights(Release):
    rows: Exact = additive_counts("how many rows the model has", cells=True)
    numbers: Exact = additive_weights("the weights of a model, it says")


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
    mass: Exact = additive("the rows of each cell", cells=True)
    pull: Exact = additive("the sum of the rows of each cell", power=-40)


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


@handler(releases=Marks, max_distinct=1)
def rows_as_negative_marks(site: Site, ask: Take) -> Marks:
    return Marks(Exact.from_counts(-packed(site, ask)[0]))


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
