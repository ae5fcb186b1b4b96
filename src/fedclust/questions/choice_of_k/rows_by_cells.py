"""Which rows a choice of K shows: those that are the difference of two or three sums that it opened.

The sums are over the numbers and the flags of rows, not over their columns, so rows are compared by these. A cell that
was not asked for counts as well, if it is the difference of two others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedclust.core.types import Bools, Floats
from fedclust.privacy.attacks.cell_differences import rows_by_differences
from fedclust.questions.choice_of_k.cell_growth import group_sums
from fedclust.questions.choice_of_k.choice_questions import CellsQuestion, GroupMoments
from fedclust.questions.choice_of_k.component_questions import ComponentsQuestion

OpenedGroups = Sequence[tuple[CellsQuestion | ComponentsQuestion, GroupMoments]]


def rows_shown_by_choice(opened: OpenedGroups, rows: Floats) -> Bools:
    """Return which rows, without missing values, the sums of one choice of K show."""
    if not opened:
        return np.zeros(len(rows), np.bool_)
    counts, sums = _all_groups(opened)
    ask = opened[0][0]
    y, flags = ask.row_map.apply((rows[:, ask.columns].T - ask.mean[:, None]) / ask.sd[:, None])
    some = counts > 0
    places = np.concatenate([y, flags]).T
    return rows_by_differences(counts[some].astype(np.int64), sums[some], np.ascontiguousarray(places))


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
