"""Initial centres in a run that opens sums only above a floor: the sites decide about each cell before it is opened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.floored_decision import OpeningRecord, StartFacts, agree_on_secret, decide_openings
from fedclust.algorithms.cmeans.floored_opening import FloorQuestion, Roles
from fedclust.algorithms.cmeans.opened_cells import tree_partition, whole_table
from fedclust.algorithms.shared.cell_sums import PartsQuestion
from fedclust.core.effects import Protocol
from fedclust.core.site_interface import View
from fedclust.core.types import Bools, Floats


@dataclass
class FlooredCells:
    """Which cells of a tree may be opened after all cells that were opened before."""

    view: View
    floor: int
    roles: Roles
    record: OpeningRecord

    def may_open_parts(self, ask: PartsQuestion) -> Protocol[Bools]:
        """Which of the parts that a question asks for may be opened."""
        self.record.add(whole_table(self.view), np.ones(1, bool))
        yield from agree_on_secret(self.roles, self.record)
        asked = FloorQuestion(self.view, tree_partition(ask), self.record.earlier, self.floor, self.roles)
        allowed, _ = yield from decide_openings(asked)
        return np.asarray(allowed[ask.asked], np.bool_)

    def record_start(self, objective: float, sizes: Floats) -> None:
        """Note what the cells show of the initial centres."""
        self.record.start = StartFacts(objective, sizes)

    def record_parts(self, ask: PartsQuestion) -> None:
        """Note that the parts of a question have been opened."""
        partition = tree_partition(ask)
        self.record.add(partition, np.isin(np.arange(partition.cells), ask.asked))
