"""One power of two per column that no row exceeds, agreed without anyone showing a value.

Each party marks the exponent of its largest magnitude, column by column; the marks are summed. What the coordinator
learns is an order of magnitude. Declared bounds make the question needless.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.core.errors import DataError, OutOfBounds
from fedclust.core.protocol import Protocol, handler, total
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact, power_above
from fedclust.core.site import Site, View
from fedclust.core.types import Floats, Ints

LEAST, MOST = -64, 63


@dataclass(frozen=True)
class Columns:
    """How many columns the study has."""

    count: int


@dataclass(frozen=True)
class Rows(Release):
    rows: Exact = additive("the number of rows in all")


@handler(releases=Rows)
def rows(site: Site, ask: Columns) -> Rows:
    """How many rows there are, at a party that has the study's columns."""
    if len(site.columns) != ask.count:
        raise DataError(f"{site.party} has {len(site.columns)} columns where the study has {ask.count}")
    return Rows(Exact.counts(site.rows))


def count(columns: int) -> Protocol[int]:
    """The number of rows of all parties together."""
    return (yield from total(rows, Columns(columns))).rows.integers()[0]


@dataclass(frozen=True)
class Marks(Release):
    marks: Exact = additive("for each column, how many parties reach each power of two")


@handler(releases=Marks)
def magnitudes(site: Site, ask: Columns) -> Marks:  # noqa: ARG001
    """A mark per column at the smallest power of two above all its values."""
    return Marks(Exact.counts(marked(site.largest)))


def marked(values: Floats) -> Ints:
    """For each value a row of zeros with a one at its power of two."""
    marks = np.zeros((len(values), MOST - LEAST + 1), np.int64)
    for row, value in zip(marks, values, strict=True):
        exponent = max(power_above(value), LEAST) if value else LEAST
        if exponent > MOST:
            raise OutOfBounds(f"a value exceeds 2^{MOST}; scale the columns")
        row[exponent - LEAST] = 1
    return marks


def agree(columns: int) -> Protocol[View]:
    """The view of raw columns under bounds that every party keeps."""
    marks = (yield from total(magnitudes, Columns(columns))).marks.floats() > 0
    highest = marks.shape[1] - 1 - np.argmax(marks[:, ::-1], axis=1)
    return View((highest + LEAST).astype(np.int32))


def declared(low: Floats, high: Floats) -> View:
    """The view of raw columns under public bounds."""
    return View(np.array([power_above(max(abs(a), abs(b))) for a, b in zip(low, high, strict=True)], np.int32))
