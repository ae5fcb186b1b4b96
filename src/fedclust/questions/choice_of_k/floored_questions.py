"""The sums of cells and components that a choice of K with a floor opens: no products of columns that repeat values.

The product of a flag with a number, summed over a cell, is the sum of the number over those rows of the cell that have
the flag, be it one row. The same holds for a number that is equal in nearly all rows. So products are opened among the
axes whose columns hardly repeat a value, and of the other columns only sums and counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedclust.core.effects import handler
from fedclust.core.site_interface import Site
from fedclust.core.types import Floats, Ints, Units
from fedclust.kernels.units import bounds_above, unit_of
from fedclust.questions.choice_of_k.choice_contracts import fits_cell_sums, fits_plain_components
from fedclust.questions.choice_of_k.choice_questions import CellsQuestion, GroupMoments, GroupTally, mapped_rows
from fedclust.questions.choice_of_k.component_questions import ComponentSumsQuestion


@dataclass(frozen=True)
class CellSumsQuestion(CellsQuestion):
    """The cells of a tree that are asked for, and the numeric axes whose products are summed."""

    squared: Ints

    @cached_property
    def number_units(self) -> tuple[Units, Units]:
        """The units of the numbers and of the products."""
        return _units(self.row_map.reach * self.weights, self.squared)


@dataclass(frozen=True)
class PlainComponentsQuestion(ComponentSumsQuestion):
    """The components that are asked for, and the numeric axes whose products are summed."""

    squared: Ints

    @cached_property
    def number_units(self) -> tuple[Units, Units]:
        return _units(self.row_map.reach, self.squared)


def _units(wide: Floats, squared: Ints) -> tuple[Units, Units]:
    i, j = squared[np.array(np.triu_indices(len(squared)))]
    return unit_of(bounds_above(wide) + 1), unit_of(bounds_above(wide[i] * wide[j]) + 1)


@handler(releases=GroupMoments, contract=fits_cell_sums)
def cell_sums(site: Site, ask: CellSumsQuestion) -> GroupMoments:
    """How many rows are in each cell, the sums of their numbers, some products of numbers, and the counts of flags."""
    place_of = np.full(len(ask.places) + 1, len(ask.asked))
    place_of[ask.asked] = np.arange(len(ask.asked))
    tally = GroupTally(len(ask.asked), *ask.number_units, len(ask.row_map.flagged), ask.squared)
    for y, flags in mapped_rows(site, ask):
        t = ask.coordinates(y, flags)
        tally.add(np.ascontiguousarray(t[: len(y)]), flags, place_of[ask.cells_of_rows(t)])
    return tally.release()


@handler(releases=GroupMoments, contract=fits_plain_components)
def component_sums(site: Site, ask: PlainComponentsQuestion) -> GroupMoments:
    """For the components that are asked for, the same numbers as for cells."""
    starts = np.cumsum([0, *(len(one.offsets) for one in ask.sets)])
    place_of = np.full(int(starts[-1]), len(ask.asked))
    place_of[ask.asked] = np.arange(len(ask.asked))
    tally = GroupTally(len(ask.asked), *ask.number_units, len(ask.row_map.flagged), ask.squared)
    for y, flags in mapped_rows(site, ask):
        for start, components in zip(starts.tolist(), ask.sets, strict=False):
            tally.add(y, flags, place_of[start + components.scores(y, flags).argmax(axis=0)])
    return tally.release()
