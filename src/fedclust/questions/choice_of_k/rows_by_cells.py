"""The sums that a choice of K opened, as sums of linear combinations of the columns, for attacks on them.

The sums are over the numbers and the flags of rows. A flag is a linear function of its column, which has two values. A
cell that was not asked for counts as well, if it is the difference of two others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedclust.core.types import Floats
from fedclust.privacy.attacks.cell_differences import CellSums, CellTags
from fedclust.questions.choice_of_k.cell_growth import group_sums
from fedclust.questions.choice_of_k.choice_questions import CellsQuestion, GroupMoments
from fedclust.questions.choice_of_k.component_questions import ComponentsQuestion

OpenedGroups = Sequence[tuple[CellsQuestion | ComponentsQuestion, GroupMoments]]


FindGroupTags = Callable[[CellsQuestion | ComponentsQuestion, GroupMoments], CellTags]
"""Finds the tags of the cells or components of one question."""


def _find_no_tags(ask: CellsQuestion | ComponentsQuestion, answer: GroupMoments) -> CellTags:  # noqa: ARG001 no rows
    return CellTags.unknown(answer.rows.shape[0])


def cells_of_choice(opened: OpenedGroups, rows: Floats, find_tags: FindGroupTags = _find_no_tags) -> list[CellSums]:
    """Return the cells and components of one choice of K over rows without missing values."""
    if not opened:
        return []
    counts, sums, tags = _all_groups(opened, find_tags)
    ask, width = opened[0][0], rows.shape[1]
    low, high = rows.min(axis=0), rows.max(axis=0)
    of_column = np.eye(width)[ask.columns]
    flagged = ask.columns[ask.row_map.flagged]
    combinations = np.concatenate(
        [
            (ask.row_map.axes.T / ask.sd) @ of_column,
            of_column[ask.row_map.flagged] / np.where(high > low, high - low, 1.0)[flagged, None],
        ]
    )
    offset = combinations[: ask.row_map.axes.shape[1]] @ (ask.mean @ of_column)
    upper = np.where(high > low, low / np.where(high > low, high - low, 1.0), 0.0)[flagged]
    some = counts > 0
    moved = sums[some] + counts[some][:, None] * np.concatenate([offset, upper])
    return [CellSums(counts[some].astype(np.int64), moved, combinations, tags[some])]


def _all_groups(opened: OpenedGroups, find_tags: FindGroupTags) -> tuple[Floats, Floats, CellTags]:
    """The number of rows, the sums and the tags of all groups, and of the cells that are what a cut leaves."""
    counts, sums, tags = list[float](), list[Floats](), list[CellTags]()
    cells: dict[int, tuple[float, Floats, CellTags]] = {}
    for ask, answer in opened:
        if isinstance(ask, CellsQuestion) and cells and len(ask.levels) < len(cells):
            continue  # asked again as padding
        groups = group_sums(answer)
        numbers = groups.sums[:, : len(ask.row_map.reach)]
        if isinstance(ask, CellsQuestion):
            numbers = numbers / ask.weights
        own = np.concatenate([numbers, groups.counts], axis=1)
        counts += groups.rows.tolist()
        sums += list(own)
        tags.append(found := find_tags(ask, answer))
        if isinstance(ask, CellsQuestion):
            made = len(ask.asked) if len(ask.levels) else 0
            new_cells = [(float(groups.rows[at]), own[at], found[at : at + 1]) for at in range(max(made, 1))]
            for at, cell in enumerate(ask.cut_cells[len(ask.cut_cells) - made :].tolist()):
                rest = tuple(whole - part for whole, part in zip(cells[cell], new_cells[at], strict=True))
                cells[cell], cells[int(ask.asked[at])] = rest, new_cells[at]
                counts.append(rest[0])
                sums.append(rest[1])
                tags.append(rest[2])
            if not made:
                cells[0] = new_cells[0]
    return np.array(counts), np.stack(sums), CellTags.concatenate(tags)
