"""Initial centres in a run that opens sums only above a floor: the sites decide about each cell before it is opened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.choice_cells import LeavesQuestion, leaf_sums
from fedclust.algorithms.cmeans.floored_decision import OpeningRecord, StartFacts, agree_on_secret, decide_openings
from fedclust.algorithms.cmeans.floored_opening import FloorQuestion, Roles
from fedclust.algorithms.cmeans.opened_cells import (
    Partition,
    group_cells,
    tree_partition,
    whole_table,
)
from fedclust.algorithms.shared.cell_sums import PartsQuestion
from fedclust.algorithms.shared.cell_tree import CellMeans, Frame
from fedclust.core.effects import Protocol, total
from fedclust.core.site_interface import View
from fedclust.core.types import Bools, Ints
from fedclust.kernels.row_sample import sample_share
from fedclust.questions.standardisation import ColumnStatistics


@dataclass
class FlooredCells:
    """Which cells of a tree may be opened after all cells that were opened before."""

    view: View
    floor: int
    roles: Roles
    record: OpeningRecord
    tree: Partition | None = None  # the cells of this start's own tree

    def known_cells(self, found: ColumnStatistics, seed: int) -> Protocol[CellMeans | None]:
        """The cells that a choice of K has opened, seen in all columns; None if there was no choice."""
        partition = self.record.leaves
        if partition is None:
            return None
        answer = yield from total(leaf_sums, LeavesQuestion(self.view, partition))
        counts = answer.counts.to_floats()
        leaves = np.flatnonzero(counts > 0)
        rows = counts[leaves]
        means = answer.sums.to_floats()[leaves] / rows[:, None]
        share = sample_share(float(found.counts.max()))
        frame = Frame(self.view, seed, share, found.mean, np.full(len(found.mean), np.inf))
        widths = np.tile(found.sd, (len(means), 1))
        return CellMeans(frame, means, rows, leaves, np.eye(len(found.mean)), means - found.mean, widths)

    def may_open_parts(self, ask: PartsQuestion) -> Protocol[Bools]:
        """Which of the parts that a question asks for may be opened."""
        self.record.add(whole_table(self.view), np.ones(1, bool))
        yield from agree_on_secret(self.roles, self.record)
        asked = FloorQuestion(self.view, tree_partition(ask), self.record.earlier, self.floor, self.roles)
        if not asked.is_small:
            return np.zeros(len(ask.asked), np.bool_)
        allowed, _ = yield from decide_openings(asked)
        return np.asarray(allowed[ask.asked], np.bool_)

    def record_start(self, cells: Ints, group_of_cell: Ints, centers: int) -> None:
        """Note which of the initial centres is nearest to the mean of each cell, by the cell's number."""
        partition = self.record.leaves
        if partition is None:
            if self.tree is None:
                return
            partition = self.tree
            self.record.add(partition, np.isin(np.arange(partition.cells), cells))
        self.record.start = StartFacts(group_cells(partition, cells, group_of_cell, centers))

    def record_parts(self, ask: PartsQuestion) -> None:
        """Note that the parts of a question have been opened."""
        self.tree = partition = tree_partition(ask)
        self.record.add(partition, np.isin(np.arange(partition.cells), ask.asked))
