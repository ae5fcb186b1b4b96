"""How far columns reach, agreed without anyone showing an extreme value.

After standardising, each party marks on a ladder of quarter octaves how far its rows go above and below the mean,
column by column; the marks are summed, and the highest one bounds the reach of all. What the coordinator learns is each
reach to a factor of 1.19, not whose it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.core.effects import Protocol, handler, total
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, marks
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Floats, Ints
from fedclust.questions import standardisation
from fedclust.questions.question_contracts import fits_ranges

LADDER_OCTAVES = 20  # above one standard deviation; of fewer than 2^40 rows none lies farther
LADDER = np.concatenate(
    [[2.0**-4], np.ldexp(np.sqrt(np.sqrt([1.0, 2.0, 4.0, 8.0])), np.arange(LADDER_OCTAVES)[:, None]).ravel()]
)


@dataclass(frozen=True)
class RangesQuestion(ViewedQuestion):
    """Mark how far the rows reach in this view."""

    view: View


@dataclass(frozen=True)
class RangeMarks(Release):
    above: Exact = marks(
        "for each column and each point of a fixed scale above the mean: the number of sites whose largest value, "
        "rounded up, is this point"
    )
    below: Exact = marks(
        "for each column and each point of a fixed scale below the mean: the number of sites whose smallest value, "
        "rounded down, is this point"
    )


@handler(releases=RangeMarks, max_distinct=3, contract=fits_ranges)
def mark_ranges(site: Site, ask: RangesQuestion) -> RangeMarks:
    """A mark per column and side, at the first step that no row exceeds."""
    high, low = np.zeros(len(site.columns)), np.zeros(len(site.columns))
    for block in site.blocks(ask.view):
        if block.shape[1]:
            high = np.maximum(high, block.max(axis=1))
            low = np.maximum(low, -block.min(axis=1))
    return RangeMarks(Exact.from_counts(mark_steps(high)), Exact.from_counts(mark_steps(low)))


def mark_steps(values: Array) -> Ints:
    """For each value a row of zeros with a one at the first step that it does not exceed."""
    marks = np.zeros((len(values), len(LADDER)), np.int64)
    marks[np.arange(len(values)), np.minimum(np.searchsorted(LADDER, values), len(LADDER) - 1)] = 1
    return marks


def scale_to_range(view: View) -> Protocol[View]:
    """The view in which every column lies between 0 and 1 and nearly fills that; a constant column keeps spread 1."""
    found = yield from standardisation.column_statistics(view)
    sd = np.where(found.sd > 0, found.sd, 1.0)
    marks = yield from total(mark_ranges, RangesQuestion(standardisation.scale_view(view, found.mean, sd)))
    above, below = _highest_steps(marks.above), _highest_steps(marks.below)
    wide = np.where(found.sd > 0, (above + below) * sd, 1.0)
    return standardisation.scale_view(view, np.where(found.sd > 0, found.mean - below * sd, found.mean), wide)


def _highest_steps(marks: Exact) -> Floats:
    some = marks.to_floats() > 0
    return np.asarray(LADDER[some.shape[1] - 1 - np.argmax(some[:, ::-1], axis=1)], np.float64)
