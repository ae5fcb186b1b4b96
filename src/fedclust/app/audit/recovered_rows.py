"""How many rows the product's attacks recover from the sums that a run opened: the number in its plan and report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedclust.app.audit.row_tags import RowTags
from fedclust.core.effects import Handler
from fedclust.core.release import Release
from fedclust.core.types import Bools, Floats, PartyId
from fedclust.privacy import attacks
from fedclust.privacy.attacks import Observation, RecoveredPoint
from fedclust.privacy.attacks.cell_differences import (
    CELL_FIELDS,
    CellSums,
    count_cells,
    opened_cells,
    rows_by_differences,
)
from fedclust.privacy.attacks.products import CellProducts, products_of_tables, rows_by_products
from fedclust.privacy.attacks.scoring import EXACT_TOLERANCE
from fedclust.privacy.attacks.transcript import Transcript, observe
from fedclust.questions.choice_of_k.choice_questions import GroupMoments
from fedclust.questions.choice_of_k.rows_by_cells import cells_of_choice, products_of_choice


@dataclass
class OpenedSums:
    """The sums that were opened in a run, with their questions."""

    seen: list[Observation] = field(default_factory=list)
    groups: list[tuple[Any, GroupMoments]] = field(default_factory=list)  # of a choice of K

    def add(
        self, step: int, handler: Handler[Any, Any], parties: tuple[PartyId, ...], message: Any, answer: Release
    ) -> None:
        """Add one sum."""
        if isinstance(answer, GroupMoments):
            self.groups.append((message, answer))
            return
        self.seen.append(observe(step, handler, parties, message, answer))

    def cells(self, tags: RowTags) -> list[CellSums]:
        """Return every cell that was opened over these rows, and the cell of all rows."""
        return all_cells(self.seen, self.groups, tags)

    def count(self, rows: Floats) -> int:
        """Return how many distinct cells were opened."""
        return count_cells(self.cells(RowTags.draw(rows)))

    @property
    def has_weights(self) -> bool:
        """Whether there are sums in which each row counts with its memberships."""
        return any("m" in one.asked and float(one.asked["m"]) > 1 for one in self.seen)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was opened that shows clusters or groups of rows."""
        return not (self.groups or any(one.cells or one.has_fields(*CELL_FIELDS) for one in self.seen))

    def recovered_rows(self, rows: Floats) -> Bools:
        """Return which rows follow from the sums by any attack of the product: those of `rows` without gaps."""
        by_attacks = [*attacks.attack_by_differencing(self.seen)]
        if self.has_weights:
            by_attacks += attacks.attack_fuzzy_sums(self.seen)
        by_products = rows_by_products(opened_products(self.seen, self.groups, rows), rows)
        tags = RowTags.draw(rows)
        return rows_by_differences(self.cells(tags), rows, tags.tags) | by_products | _rows_at(by_attacks, rows)


def all_cells(seen: Sequence[Observation], groups: Sequence[tuple[Any, GroupMoments]], tags: RowTags) -> list[CellSums]:
    """Return every cell that an observer saw, and the cell of all rows if there are any."""
    found = [*opened_cells(seen, tags.of_observation), *cells_of_choice(groups, tags.rows, tags.of_groups)]
    return [*found, CellSums.of_all_rows(tags.rows, tags.tags)] if found else []


def opened_products(
    seen: Transcript, groups: Sequence[tuple[Any, GroupMoments]], rows: Floats
) -> Iterator[CellProducts]:
    """The products that were opened, of the whole table and of the cells of a choice of K."""
    yield from products_of_tables(seen)
    yield from products_of_choice(groups, rows)


def rows_shown_as_points(seen: Sequence[Observation], rows: Floats) -> Bools:
    """Return which rows a site sent as points of its own answers."""
    return _rows_at(attacks.attack_shown_points(tuple(seen)), rows)


def _rows_at(points: Sequence[RecoveredPoint], rows: Floats) -> Bools:
    """Which rows are exactly at some of the points."""
    reach = EXACT_TOLERANCE * np.abs(rows).max(axis=0, initial=0.0)
    found = np.zeros(len(rows), np.bool_)
    for one in points:
        if np.shape(one.point) == rows.shape[1:]:
            found |= (np.abs(rows - one.point) <= reach).all(axis=1)
    return found
