"""Sums over the rows of components, opened only where these and the cells' sums do not differ by few rows.

How many rows each component has in each cell decides. A component is opened if its rows differ by none or by at least
the floor from every union of cells, whatever their number, and so for its union with another opened component. As
every earlier cell is a union of the last ones, no sum of a component less sums of cells is over fewer rows. A component
that stays closed counts as the cells of which it has most rows.
"""

from __future__ import annotations

import numpy as np

from fedclust.core.effects import Protocol, total
from fedclust.core.types import Bools, Ints
from fedclust.questions.choice_of_k.cell_growth import Cells
from fedclust.questions.choice_of_k.choice_frame import ChoiceFrame
from fedclust.questions.choice_of_k.component_questions import (
    Components,
    SharedRowsQuestion,
    count_shared_rows,
)
from fedclust.questions.choice_of_k.evidence import GroupSums
from fedclust.questions.choice_of_k.floored_questions import PlainComponentsQuestion, component_sums
from fedclust.questions.choice_of_k.table_spread import opened_groups


def sums_above_floor(frame: ChoiceFrame, cells: Cells, components: Components) -> Protocol[GroupSums]:
    """The sums of each component: of its rows if they may be opened, and otherwise of the cells it mostly fills."""
    ask = SharedRowsQuestion(*cells.question.tree_fields, components)
    shared = (yield from total(count_shared_rows, ask)).counts.to_floats().astype(np.int64)
    is_open = find_openable(shared, frame.floor)
    closed = cells.groups.join(np.asarray(shared.argmax(axis=1), np.int64), shared.shape[1])
    if not is_open.any():
        return closed
    asked = np.flatnonzero(is_open)
    spread = frame.spread
    assert spread is not None
    sums = PlainComponentsQuestion(*frame.fields, sets=(components,), asked=asked, squared=spread.squared)
    found = opened_groups((yield from total(component_sums, sums)), spread.squared)
    opened = spread.numbers_of_components(found, cells.groups.blur(-frame.geometry.rounding), shared[:, asked]).blur(
        frame.geometry.rounding
    )
    for own, part in zip(closed.parts, opened.parts, strict=True):
        own[asked] = part
    return closed


def find_openable(shared: Ints, floor: int) -> Bools:
    """Which components may be opened, by the rows they share with each of the last cells (cells, components).

    Ten rows in two cells of five: a component of seven rows differs from one of the cells by two. A component of two
    whole cells and one more row differs from the union of the two by one.

    >>> find_openable(np.array([[5, 0], [2, 3]]), 3).tolist(), find_openable(np.array([[5, 5], [5, 5]]), 3).tolist()
    ([False, False], [True, True])
    >>> find_openable(np.array([[9, 0], [9, 0], [1, 8]]), 3).tolist()
    [False, False]
    """
    rows = shared.sum(axis=1)
    able = (shared.sum(axis=0) >= floor) & _is_safe(_apart_from_unions(shared, rows), floor)
    opened: list[int] = []
    for k in np.flatnonzero(able).tolist():
        if _is_safe(_apart_from_unions(shared[:, opened] + shared[:, k, None], rows), floor).all():
            opened.append(k)
    return np.isin(np.arange(shared.shape[1]), opened)


def _apart_from_unions(shared: Ints, rows: Ints) -> Ints:
    """By how many rows each set differs from the union of cells that is most like it: of each cell the fewer rows."""
    return np.asarray(np.minimum(shared, rows[:, None] - shared).sum(axis=0), np.int64)


def _is_safe(apart: Ints, floor: int) -> Bools:
    return np.asarray((apart == 0) | (apart >= floor), np.bool_)
