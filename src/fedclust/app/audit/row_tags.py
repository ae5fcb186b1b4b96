"""Tags that tell which rows a cell has: where rows are at hand, a difference of sums is a row only if its tags say so.

Among whole numbers, differences of sums equal some row by chance. So each distinct row gets a random number, its tag,
and each cell the sum of its rows' tags modulo 2^64. Cells that differ by one row have tags that differ by its tag;
others do so with a probability of 2^-64. A cell whose number of rows is not that of these rows gets no tag, and is
compared by its sums alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.choice_cells import component_partitions, partition_of_cells
from fedclust.algorithms.cmeans.floored_opening import FloorQuestion
from fedclust.algorithms.cmeans.opened_cells import Partition, nearest_partition
from fedclust.algorithms.shared.cell_routing import TREE_ARRAYS
from fedclust.core.site_interface import View
from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels.row_sample import WHOLE_TABLE
from fedclust.privacy.attacks import Observation
from fedclust.privacy.attacks.cell_differences import CELL_FIELDS, CellTags
from fedclust.questions.choice_of_k.choice_questions import CellsQuestion, GroupMoments
from fedclust.questions.choice_of_k.component_questions import ComponentsQuestion, ComponentSumsQuestion


@dataclass(frozen=True)
class RowTags:
    """Rows without missing values, in original units, and the tag of each."""

    rows: Floats
    tags: Array

    @classmethod
    def draw(cls, rows: Floats) -> RowTags:
        """Return a tag for each distinct row."""
        _, number = np.unique(rows, axis=0, return_inverse=True)
        drawn = np.random.default_rng(0).integers(0, 1 << 64, int(number.max(initial=-1)) + 1, np.uint64)
        return cls(rows, drawn[number.ravel()])

    def of_observation(self, seen: Observation) -> CellTags | None:
        """Return the tags of the cells whose counts and sums an answer has; None if the question does not name them."""
        pairs = [*seen.cells, *([CELL_FIELDS] if seen.has_fields(*CELL_FIELDS) else [])]
        partition = _partition_of(seen)
        if not pairs or partition is None:
            return None
        counts = seen.floats_of(pairs[0][0])
        counts = counts[:, 0] if counts.ndim == 2 else counts
        numbered = isinstance(seen.asked.get("asked"), np.ndarray)
        numbers = seen.asked["asked"] if numbered else np.arange(len(counts))
        labels = self._labels(partition)
        return self._of_cells(labels, numbers, counts)

    def of_groups(self, ask: CellsQuestion | ComponentsQuestion, answer: GroupMoments) -> CellTags:
        """Return the tags of the cells or components of one question of a choice of K."""
        counts = answer.rows.to_floats()
        if isinstance(ask, CellsQuestion):
            return self._of_cells(self._labels(partition_of_cells(ask)), ask.asked, counts)
        if not isinstance(ask, ComponentSumsQuestion):
            return CellTags.unknown(len(counts))
        found, first = list[CellTags](), 0
        for partition in component_partitions(ask):
            own = (ask.asked >= first) & (ask.asked < first + partition.cells - 1)
            labels = self._labels(partition)
            found.append(self._of_cells(labels, ask.asked[own] - first, counts[own]))
            first += partition.cells - 1
        return CellTags.concatenate(found)

    def _labels(self, partition: Partition) -> Ints:
        return partition.label_block(partition.view.transform(np.ascontiguousarray(self.rows.T)))

    def _of_cells(self, labels: Ints, numbers: Ints, counts: Floats) -> CellTags:
        most = max(int(labels.max(initial=-1)), int(numbers.max(initial=-1))) + 1
        tags = np.zeros(most, np.uint64)
        np.add.at(tags, labels, self.tags)
        return CellTags(tags[numbers], np.bincount(labels, minlength=most)[numbers] == counts)


def _partition_of(seen: Observation) -> Partition | None:
    """The partition whose cells a question is about."""
    asked = seen.asked
    view = View(np.zeros(0, np.int32), asked.get("origin"), asked.get("spread"))  # no bounds are needed here
    named = asked["asked"].partition if isinstance(asked.get("asked"), FloorQuestion) else asked.get("partition")
    if isinstance(named, Partition):
        return named
    if {*TREE_ARRAYS, "axes", "mean", "asked"} <= set(asked):
        arrays = {name: np.asarray(asked[name]) for name in (*TREE_ARRAYS, "axes", "mean")}
        arrays |= {name: np.array([asked[name]]) for name in ("seed", "share")}
        return Partition("tree", view, arrays, int(arrays["children"].max(initial=0)) + 2)
    if seen.centers is None or asked.get("share", WHOLE_TABLE) < WHOLE_TABLE or float(asked.get("m", 1.0)) != 1:
        return None
    return nearest_partition(view, seen.centers)
