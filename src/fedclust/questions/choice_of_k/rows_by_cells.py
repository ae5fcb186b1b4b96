"""The sums that a choice of K opened, as sums of linear combinations of the columns, for attacks on them.

The sums are over the numbers and the flags of rows. A flag is a linear function of its column, which has two values. A
cell that was not asked for counts as well, if it is the difference of two others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.core.types import Floats, Ints
from fedclust.privacy.attacks.cell_differences import CellSums, CellTags
from fedclust.privacy.attacks.products import CellProducts
from fedclust.questions.choice_of_k.choice_questions import CellsQuestion, GroupMoments
from fedclust.questions.choice_of_k.component_questions import ComponentsQuestion
from fedclust.questions.choice_of_k.floored_questions import CellSumsQuestion, PlainComponentsQuestion

Question = CellsQuestion | ComponentsQuestion
OpenedGroups = Sequence[tuple[Question, GroupMoments]]
FindGroupTags = Callable[[Question, GroupMoments], CellTags]
"""Finds the tags of the cells or components of one question."""


def _find_no_tags(ask: Question, answer: GroupMoments) -> CellTags:  # noqa: ARG001 no rows
    return CellTags.unknown(answer.rows.shape[0])


@dataclass(frozen=True)
class _Group:
    """A cell or a component as one question opened it, or what a cut leaves of a cell."""

    ask: Question
    rows: float
    sums: Floats
    products: Floats
    flags: Floats
    tags: CellTags  # of this group alone

    def subtract(self, part: _Group) -> _Group:
        """What is left without a part."""
        pairs = zip(self.numbers, part.numbers, strict=True)
        sums, products, flags = (own - other for own, other in pairs)
        return _Group(part.ask, self.rows - part.rows, sums, products, flags, self.tags - part.tags)

    @property
    def numbers(self) -> tuple[Floats, Floats, Floats]:
        return self.sums, self.products, self.flags


def cells_of_choice(opened: OpenedGroups, rows: Floats, find_tags: FindGroupTags = _find_no_tags) -> list[CellSums]:
    """Return the cells and components of one choice of K over rows without missing values."""
    found = [one for one in _all_groups(opened, find_tags) if one.rows > 0]
    if not found:
        return []
    ask, q = found[0].ask, len(found[0].ask.row_map.reach)
    maps = _maps(ask, rows)
    counts = np.array([one.rows for one in found])
    sums = np.stack([np.append(one.sums[:q] / _weights(one.ask), one.flags) for one in found])
    tags = CellTags.concatenate([one.tags for one in found])
    return [CellSums(counts.astype(np.int64), sums - counts[:, None] * maps[:, 0], maps[:, 1:], tags)]


def products_of_choice(opened: OpenedGroups, rows: Floats) -> Iterator[CellProducts]:
    """Return the cells and components of one choice of K with the products that were opened."""
    for one in _all_groups(opened):
        ask, q = one.ask, len(one.ask.row_map.reach)
        maps = _maps(ask, rows)
        weighted = maps[:q] * np.reshape(_weights(ask), (-1, 1))
        if isinstance(ask, CellSumsQuestion | PlainComponentsQuestion):
            used, sums = weighted[ask.squared], one.sums[ask.squared]
        elif isinstance(ask, CellsQuestion):
            used, sums = np.concatenate([weighted, ask.embedding.T @ maps[q:]]), one.sums
        else:
            used, sums = weighted, one.sums
        products = np.zeros((len(used),) * 2)
        i, j = np.triu_indices(len(used))
        products[i, j] = products[j, i] = one.products
        yield CellProducts(one.rows, sums, products, used, ask.columns[ask.row_map.flagged], one.flags)


def _weights(ask: Question) -> Floats:
    """What the numbers of a question are multiplied by."""
    return ask.weights if isinstance(ask, CellsQuestion) else np.ones(len(ask.row_map.reach))


def _maps(ask: Question, rows: Floats) -> Floats:
    """The numbers and flags of a row as linear functions of (1, x)."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    of_column = np.eye(rows.shape[1])[ask.columns]
    flagged = ask.columns[ask.row_map.flagged]
    numbers = (ask.row_map.axes.T / ask.sd) @ of_column
    flags = of_column[ask.row_map.flagged] / width[flagged, None]
    constant = np.append(-numbers @ (ask.mean @ of_column), np.where(high > low, -low / width, 0.0)[flagged])
    return np.column_stack([constant, np.concatenate([numbers, flags])])


def _all_groups(opened: OpenedGroups, find_tags: FindGroupTags = _find_no_tags) -> list[_Group]:
    """All groups, and the cells that are what a cut leaves."""
    found = list[_Group]()
    cells = dict[int, _Group]()
    for ask, answer in opened:
        if isinstance(ask, CellsQuestion) and cells and len(ask.levels) < len(cells):
            continue  # asked again as padding
        fields = (one.to_floats() for one in (answer.rows, answer.sums, answer.products, answer.flags))
        tags = find_tags(ask, answer)
        own = [
            _Group(ask, float(rows), sums, products, flags, tags[at : at + 1])
            for at, (rows, sums, products, flags) in enumerate(zip(*fields, strict=True))
        ]
        found += own
        if isinstance(ask, CellsQuestion):
            made: Ints = ask.asked if len(ask.levels) else ask.asked[:0]
            for cell, new, part in zip(
                ask.cut_cells[len(ask.cut_cells) - len(made) :].tolist(), made.tolist(), own, strict=False
            ):
                cells[cell] = cells[cell].subtract(part)
                cells[new] = part
                found.append(cells[cell])
            if not len(made):
                cells[0] = own[0]
    return found
