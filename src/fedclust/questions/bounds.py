"""One power of two per column that no row exceeds, agreed without anyone showing a value.

Each party marks the exponent of its largest magnitude, column by column; the marks are summed. What the coordinator
learns is an order of magnitude. Declared bounds make the question needless.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Protocol, handler, total
from fedclust.core.errors import DataError, OutOfBounds
from fedclust.core.question_types import GapsQuestion
from fedclust.core.release import Release, additive_counts, marks
from fedclust.core.ring import Exact, power_above
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats, Ints, Units
from fedclust.kernels.units import bounds_above
from fedclust.questions.question_contracts import fits_columns

MIN_EXPONENT, MAX_EXPONENT = -128, 127


@dataclass(frozen=True)
class ColumnsQuestion(GapsQuestion):
    """How many columns the study has, and what it does about gaps."""

    count: int
    missing: str = "refuse"

    def rows_with_gaps(self) -> str:
        return self.missing


@dataclass(frozen=True)
class RowCount(Release):
    rows: Exact = additive_counts("the total number of rows")


@handler(releases=RowCount, contract=fits_columns)
def count_rows(site: Site, ask: ColumnsQuestion) -> RowCount:
    """How many rows there are, at a party that has the study's columns."""
    if len(site.columns) != ask.count:
        raise DataError(
            f"site '{site.party}' has {count_noun(len(site.columns), 'column')}, but the study has "
            f"{ask.count}; check the "
            "site's columns"
        )
    return RowCount(Exact.from_counts(site.rows))


def total_rows(columns: int, missing: str = "refuse") -> Protocol[int]:
    """The number of rows of all parties together that take part."""
    return (yield from total(count_rows, ColumnsQuestion(columns, missing))).rows.to_integers()[0]


@dataclass(frozen=True)
class MagnitudeMarks(Release):
    marks: Exact = marks(
        "for each column and each power of two: the number of sites whose largest absolute value, rounded up, is this "
        "power"
    )


@handler(releases=MagnitudeMarks, contract=fits_columns)
def magnitudes(site: Site, ask: ColumnsQuestion) -> MagnitudeMarks:  # noqa: ARG001
    """A mark per column at the smallest power of two above all its values."""
    for name, value in zip(site.columns, site.largest, strict=True):
        if not value <= np.ldexp(1.0, MAX_EXPONENT):
            raise OutOfBounds(
                f"column '{name}' of site '{site.party}' holds a value beyond 2^{MAX_EXPONENT}; scale the column"
            )
    return MagnitudeMarks(Exact.from_counts(mark_exponents(site.largest)))


def mark_exponents(values: Floats, *, least: int = MIN_EXPONENT, most: int = MAX_EXPONENT) -> Ints:
    """For each value a row of zeros with a one at its power of two."""
    marks = np.zeros((len(values), most - least + 1), np.int64)
    for row, value in zip(marks, values, strict=True):
        exponent = max(power_above(value), least) if value else least
        if exponent > most or not np.isfinite(value):
            raise OutOfBounds(f"a value exceeds 2^{MAX_EXPONENT}; scale the columns")
        row[exponent - least] = 1
    return marks


def agree_on_bounds(columns: int, missing: str = "refuse") -> Protocol[View]:
    """The view of raw columns under bounds that every party keeps."""
    return View(
        highest_exponents((yield from total(magnitudes, ColumnsQuestion(columns, missing))).marks), missing=missing
    )


def highest_exponents(marks: Exact) -> Units:
    """The largest power of two that any party marked, column by column."""
    marked_somewhere = marks.to_floats() > 0
    from_the_top = np.argmax(marked_somewhere[:, ::-1], axis=1)
    return np.asarray(marked_somewhere.shape[1] - 1 - from_the_top + MIN_EXPONENT, np.int32)


def view_from_bounds(low: Floats, high: Floats, missing: str = "refuse") -> View:
    """The view of raw columns under public bounds."""
    return View(bounds_above(max(abs(a), abs(b)) for a, b in zip(low, high, strict=True)), missing=missing)
