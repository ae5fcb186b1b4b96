"""The sums that a choice of K opened, as sums of linear combinations of the columns, for attacks on them.

The sums are over the numbers and the flags of rows. A flag is a linear function of its column, which has two values. A
cell that was not asked for counts as well, if it is the difference of two others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedclust.core.types import Floats
from fedclust.privacy.attacks.cell_differences import CellSums
from fedclust.questions.choice_of_k.cell_growth import group_sums
from fedclust.questions.choice_of_k.choice_questions import CellsQuestion, GroupMoments
from fedclust.questions.choice_of_k.component_questions import ComponentsQuestion

OpenedGroups = Sequence[tuple[CellsQuestion | ComponentsQuestion, GroupMoments]]


def cells_of_choice(opened: OpenedGroups, rows: Floats) -> list[CellSums]:
    """Return the cells and components of one choice of K over rows without missing values."""
    if not opened:
        return []
    counts, sums = _all_groups(opened)
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
    return [CellSums(counts[some].astype(np.int64), moved, combinations)]


def _all_groups(opened: OpenedGroups) -> tuple[Floats, Floats]:
    """The number of rows and the sums of all groups, and of the cells that are what a cut leaves."""
    counts, sums = list[float](), list[Floats]()
    cells: dict[int, tuple[float, Floats]] = {}
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
        if isinstance(ask, CellsQuestion):
            made = len(ask.asked) if len(ask.levels) else 0
            for cell, new, rows, total in zip(
                ask.cut_cells[len(ask.cut_cells) - made :], ask.asked[:made], groups.rows, own, strict=False
            ):
                before, whole = cells[int(cell)]
                cells[int(cell)] = before - float(rows), whole - total
                cells[int(new)] = float(rows), total
                counts.append(before - float(rows))
                sums.append(whole - total)
            if not made:
                cells[0] = float(groups.rows[0]), own[0]
    return np.array(counts), np.stack(sums)
