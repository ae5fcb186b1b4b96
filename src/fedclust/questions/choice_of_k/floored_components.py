"""Sums over the rows of components, opened only where these and the cells' sums do not differ by few rows.

How many rows each component has in each cell decides. A component is opened if its rows differ by none or by at least
the floor from every cell that was ever opened, from every union and difference of two such cells, and so for its union
with another opened component. Then no difference of two or three opened sums is a sum of fewer rows. A component that
stays closed counts as the cells of which it has most rows.
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
    is_open = find_openable(shared, cells_and_unions(cells.question.cut_cells), frame.floor)
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


def cells_and_unions(cut_cells: Ints) -> Bools:
    """Which of the last cells (columns) make up each cell that ever was (rows); cut i split a cell into it and i + 1.

    >>> cells_and_unions(np.array([0, 1])).astype(int).tolist()
    [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1]]
    """
    now = np.eye(len(cut_cells) + 1, dtype=np.bool_)
    found = list(now.copy())
    for number in range(len(cut_cells) - 1, -1, -1):
        now[cut_cells[number]] |= now[number + 1]
        found.append(now[cut_cells[number]].copy())
    return np.array(found)


def find_openable(shared: Ints, cells: Bools, floor: int) -> Bools:
    """Which components may be opened, by the rows they share with each of the last cells (cells, components).

    Ten rows in two cells of five: a component of seven rows differs from one of the cells by two.

    >>> find_openable(np.array([[5, 0], [2, 3]]), cells_and_unions(np.array([0])), 3).tolist()
    [False, False]
    >>> find_openable(np.array([[5, 5], [5, 5]]), cells_and_unions(np.array([0])), 3).tolist()
    [True, True]
    """
    sizes, common, rows = _with_pairs(shared, cells)
    apart = sizes + rows[:, None] - 2 * common
    able = (sizes >= floor) & _is_safe(apart, floor).all(axis=0)
    first = slice(0, len(cells))
    opened: list[int] = []
    for k in np.flatnonzero(able).tolist():
        together = (
            sizes[opened] + sizes[k] + rows[first, None] - 2 * (common[first][:, opened] + common[first, k, None])
        )
        if _is_safe(together, floor).all():
            opened.append(k)
    out = np.zeros(len(sizes), np.bool_)
    out[opened] = True
    return out


def _with_pairs(shared: Ints, cells: Bools) -> tuple[Ints, Ints, Ints]:
    """The components' sizes, and of cells, and of what two cells together or apart hold, the shared and all rows."""
    common = np.stack([shared[own].sum(axis=0) for own in cells])
    one, other = np.triu_indices(len(cells), 1)
    overlaps = (cells.astype(np.int64) @ cells.T.astype(np.int64))[one, other] > 0
    sign = np.where(overlaps, -1, 1)[:, None]  # two cells of a tree are apart, or one is a part of the other
    pairs = common[one] + sign * common[other]
    pairs *= np.where(pairs.sum(axis=1, keepdims=True) < 0, -1, 1)
    both = np.concatenate([common, pairs])
    return np.asarray(shared.sum(axis=0), np.int64), both, np.asarray(both.sum(axis=1), np.int64)


def _is_safe(apart: Ints, floor: int) -> Bools:
    return np.asarray((apart == 0) | (apart >= floor), np.bool_)
