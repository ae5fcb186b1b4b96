"""What a choice of K opened, as partitions: later cells are compared with these, and a fit starts from its cells.

A choice of K cuts the table into cells of at least the floor's rows and opens their sums. So a fit of the chosen K
needs no tree of its own: one more question adds up all columns of the same cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fedclust.algorithms.cmeans.cmeans_contracts import fits_leaves
from fedclust.algorithms.cmeans.floored_decision import OpeningRecord
from fedclust.algorithms.cmeans.opened_cells import (
    CHOICE_ARRAYS,
    COMPONENT_ARRAYS,
    COMPONENT_SHAPES,
    ROW_MAP_ARRAYS,
    Partition,
    label_rows,
)
from fedclust.core.effects import Ask, Protocol, handler, rewrite
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Limbs, Units
from fedclust.kernels import exact_sums
from fedclust.kernels.fine_sums import fine_sums_by_label
from fedclust.kernels.units import DISTANCE_BITS, unit_of
from fedclust.questions.choice_of_k.choice_questions import CellsQuestion, MappedQuestion, cell_moments
from fedclust.questions.choice_of_k.component_questions import ComponentsQuestion, ComponentSumsQuestion
from fedclust.questions.choice_of_k.floored_questions import cell_sums

CELL_QUESTIONS = (cell_moments.name, cell_sums.name)  # that open sums of cells, without and with a floor
T = TypeVar("T")


def record_choice(protocol: Protocol[T], record: OpeningRecord) -> Protocol[T]:
    """Run a choice of K and record the cells and the components that it opens."""

    def lower(ask: Ask) -> Protocol[Any]:
        answer = yield ask
        if ask.handler.name in CELL_QUESTIONS and isinstance(ask.message, CellsQuestion):
            _record_cells(ask.message, record)
        if isinstance(ask.message, ComponentSumsQuestion):
            _record_components(ask.message, record)
        return answer

    found = yield from rewrite(protocol, lower)
    if record.leaves is not None:  # all cells are open, whatever question opened them
        record.add(record.leaves, np.arange(record.leaves.cells) < record.leaves.cells - 1)
    return found


def partition_of_cells(ask: CellsQuestion) -> Partition:
    """The partition into the cells of one question; the last one has the rows that are not in the sample."""
    arrays = {name: np.asarray(getattr(ask, name)) for name in CHOICE_ARRAYS} | _row_map_arrays(ask)
    return Partition("choice", ask.view, arrays, len(ask.levels) + 2)


def component_partitions(ask: ComponentsQuestion) -> Iterator[Partition]:
    """The partition into components for each set; its last cell has the rows that are not in the sample."""
    for components in ask.sets:
        arrays = {name: np.asarray(getattr(components, name)) for name in COMPONENT_ARRAYS} | _row_map_arrays(ask)
        arrays |= {name: np.asarray(getattr(ask, name)) for name in ROW_MAP_ARRAYS}
        arrays["shape"] = np.array([COMPONENT_SHAPES.index(components.shape)])
        yield Partition("components", ask.view, arrays, len(components.offsets) + 1)


def _record_cells(ask: CellsQuestion, record: OpeningRecord) -> None:
    """Record the cells of one question: those asked for, and what the newest cuts leave of the cells that they cut."""
    partition = partition_of_cells(ask)
    newest = ask.cut_cells[ask.levels == ask.levels.max(initial=0)]
    record.add(partition, np.isin(np.arange(partition.cells), [*ask.asked.tolist(), *newest.tolist()]))
    if record.leaves is None or record.leaves.cells < partition.cells:
        record.leaves = partition


def _record_components(ask: ComponentSumsQuestion, record: OpeningRecord) -> None:
    """Record the components whose sums one question asks for."""
    first = 0
    for partition in component_partitions(ask):
        record.add(partition, np.isin(np.arange(partition.cells), ask.asked - first))
        first += partition.cells - 1


def _row_map_arrays(ask: MappedQuestion) -> dict[str, Array]:
    """What says which rows a choice of K reads, and along which axes."""
    return {
        "axes": ask.row_map.axes,
        "flagged": ask.row_map.flagged,
        "seed": np.array([ask.seed]),
        "share": np.array([ask.share]),
    }


@dataclass(frozen=True)
class LeavesQuestion(ViewedQuestion):
    """The cells of a partition, whose rows are added up in another view."""

    view: View
    partition: Partition

    @property
    def unit(self) -> Units:
        return unit_of(self.view.exponents, DISTANCE_BITS)


@dataclass(frozen=True)
class LeafSums(Release):
    counts: Exact = additive("the number of rows in each cell whose sums were opened before", cells=True)
    sums: Exact = additive("for each of these cells, the sum of its rows")


@handler(releases=LeafSums, split="rows", contract=fits_leaves)
def leaf_sums(site: Site, ask: LeavesQuestion) -> LeafSums:
    """How many rows are in each cell but the last, and their sums."""
    own, cells, unit = label_rows(site, ask.partition), ask.partition.cells, ask.unit
    found: Limbs = np.zeros((cells, len(unit), 2), np.uint64)
    start = 0
    for block in site.blocks(ask.view):
        labels = np.ascontiguousarray(own[start : start + block.shape[1]], np.int32)
        exact_sums.add_in_place(found, fine_sums_by_label(block, labels, cells, unit))
        start += block.shape[1]
    counts = np.bincount(own, minlength=cells)[:-1]
    return LeafSums(Exact.from_counts(counts), Exact(found[:-1].copy(), np.tile(unit, (cells - 1, 1))))
