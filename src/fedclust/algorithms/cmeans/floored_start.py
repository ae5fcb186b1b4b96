"""Initial centres in a run that opens sums only above a floor: the sites decide about each cell before it is opened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.floored_decision import OpeningRecord, StartFacts, agree_on_secret, decide_openings
from fedclust.algorithms.cmeans.floored_opening import FloorQuestion, Roles
from fedclust.algorithms.cmeans.opened_cells import group_leaves, tree_partition, whole_table
from fedclust.algorithms.shared.cell_sums import PartsQuestion
from fedclust.core.effects import Protocol
from fedclust.core.site_interface import View
from fedclust.core.types import Bools, Ints


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

    def record_start(self, nearest: Ints, centers: int) -> None:
        """Note which of the initial centres is nearest to the mean of each leaf, in the order of the leaves."""
        tree = [one.partition for one in self.record.earlier if one.partition.kind == "tree"]
        if tree:
            self.record.start = StartFacts(group_leaves(tree[-1], nearest, centers))

    def record_parts(self, ask: PartsQuestion) -> None:
        """Note that the parts of a question have been opened."""
        partition = tree_partition(ask)
        self.record.add(partition, np.isin(np.arange(partition.cells), ask.asked))
