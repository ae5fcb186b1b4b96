"""Cells whose sums were opened, and how a site finds their rows again.

A partition says how a site labels its rows, so that a question can name cells without naming rows. `LABELERS` lists the
kinds of partition; another kind needs one more function there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedclust.algorithms.shared import cell_routing, cell_sums
from fedclust.core import wire
from fedclust.core.errors import WireError
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Bools, Floats, Ints
from fedclust.kernels import distances
from fedclust.kernels.row_sample import WHOLE_TABLE, in_sample
from fedclust.questions.choice_of_k.choice_questions import CellsQuestion, RowMap
from fedclust.questions.choice_of_k.component_questions import Components

MAX_PARTITIONS = 512  # that a question may name; a fit ends when it would need more
MAX_OPENED_CELLS = 1 << 16  # of all these partitions
CHOICE_ARRAYS = (
    "columns", "mean", "sd", "weights", "embedding", "levels", "cut_cells", "directions", "places"
)  # fmt: skip
ROW_MAP_ARRAYS = ("columns", "mean", "sd")
COMPONENT_ARRAYS = ("offsets", "means", "factors", "flags")
COMPONENT_SHAPES = ("round", "axes", "full")
MAX_CACHED_BYTES = 1 << 28  # of labels that a site keeps in memory

Labeler = Callable[[Mapping[str, Array], Array], Ints]
"""Labels the rows of a block of columns, from the arrays that describe a partition."""


def _label_by_nearest_center(arrays: Mapping[str, Array], block: Array) -> Ints:
    return np.asarray(distances.nearest_centers(block, arrays["centers"])[0], np.int64)


def _label_all_alike(arrays: Mapping[str, Array], block: Array) -> Ints:  # noqa: ARG001 there is one cell
    return np.zeros(block.shape[1], np.int64)


def _label_by_tree(arrays: Mapping[str, Array], block: Array) -> Ints:
    """The number of each row's cell in a tree of cells; rows outside the public sample are in a cell of their own."""
    rows = np.asarray(block, np.float64)
    labels = np.full(rows.shape[1], int(arrays["children"].max(initial=0)) + 1)
    share = int(arrays["share"][0])
    inside = np.arange(rows.shape[1])
    if share < WHOLE_TABLE:
        inside = np.flatnonzero(in_sample(rows, int(arrays["seed"][0]), share))
    z = cell_routing.project(rows[:, inside] - arrays["mean"][:, None], arrays["axes"])
    for cell, own in cell_routing.rows_of_cells(z, arrays).items():
        labels[inside[own]] = cell
    return labels.astype(np.int64)


def _label_by_choice(arrays: Mapping[str, Array], block: Array) -> Ints:
    """The number of each row's cell in a choice of K; rows outside the public sample are in a cell of their own."""
    labels = np.full(block.shape[1], len(arrays["levels"]) + 1)
    inside, row_map, (y, flags) = _map_for_choice(arrays, block)
    tree = CellsQuestion(
        view=View(np.zeros(0, np.int32)),  # the rows are in their view already
        seed=0,
        share=WHOLE_TABLE,
        reach=arrays["sd"],
        row_map=row_map,
        asked=np.zeros(0, np.int64),
        **{name: arrays[name] for name in CHOICE_ARRAYS},
    )
    labels[inside] = tree.cells_of_rows(tree.coordinates(y, flags))
    return labels.astype(np.int64)


def _label_by_component(arrays: Mapping[str, Array], block: Array) -> Ints:
    """The number of each row's component in a choice of K; rows outside the public sample are in one more cell."""
    labels = np.full(block.shape[1], len(arrays["offsets"]))
    inside, _, (y, flags) = _map_for_choice(arrays, block)
    fields = {name: np.asarray(arrays[name], np.float64) for name in COMPONENT_ARRAYS}
    components = Components(COMPONENT_SHAPES[int(arrays["shape"][0])], **fields)
    labels[inside] = components.scores(y, flags).argmax(axis=0)
    return labels.astype(np.int64)


def _map_for_choice(arrays: Mapping[str, Array], block: Array) -> tuple[Ints, RowMap, tuple[Floats, Floats]]:
    """Which rows of a block are in the public sample, how a choice of K maps them, and their numbers and flags."""
    rows = np.asarray(block, np.float64)
    share = int(arrays["share"][0])
    inside = np.arange(rows.shape[1])
    if share < WHOLE_TABLE:
        inside = np.flatnonzero(in_sample(rows, int(arrays["seed"][0]), share))
    z = (rows[np.ix_(arrays["columns"], inside)] - arrays["mean"][:, None]) / arrays["sd"][:, None]
    row_map = RowMap(arrays["axes"], arrays["flagged"], arrays["sd"])
    return inside, row_map, row_map.apply(z)


LABELERS: dict[str, Labeler] = {
    "nearest": _label_by_nearest_center,
    "whole": _label_all_alike,
    "tree": _label_by_tree,
    "choice": _label_by_choice,
    "components": _label_by_component,
}


@dataclass(frozen=True)
class Partition:
    """How a site labels its rows: the kind of labelling, what it needs, and how many cells there are."""

    kind: str
    view: View
    arrays: dict[str, Array]
    cells: int

    @cached_property
    def digest(self) -> str:
        """A name that no other partition has."""
        return hashlib.sha256(wire.encode(self)).hexdigest()[:32]

    @property
    def has_groups(self) -> bool:
        """Whether each cell is a group of the cells that its kind describes."""
        return "groups" in self.arrays

    def label_block(self, block: Array) -> Ints:
        """Return the cell of each row of a block in this partition's view."""
        if self.kind not in LABELERS:
            raise WireError("the question names a kind of partition that this version does not know")
        labels = LABELERS[self.kind](self.arrays, block)
        if self.has_groups:
            labels = np.asarray(self.arrays["groups"][labels], np.int64)
        if labels.size and not 0 <= labels.min() <= labels.max() < self.cells:
            raise WireError("the question names fewer cells than its partition has")
        return labels


def nearest_partition(view: View, centers: Floats) -> Partition:
    """Return the partition in which each row belongs to its nearest centre."""
    return Partition("nearest", view, {"centers": centers}, len(centers))


def tree_partition(ask: cell_sums.PartsQuestion) -> Partition:
    """Return the partition into the leaves of a tree, and the rows that are not in the public sample."""
    arrays = {name: np.asarray(getattr(ask, name)) for name in (*cell_routing.TREE_ARRAYS, "axes", "mean")}
    arrays |= {"seed": np.array([ask.seed]), "share": np.array([ask.share])}
    return Partition("tree", ask.view, arrays, int(ask.children.max(initial=0)) + 2)


def group_cells(partition: Partition, cells: Ints, group_of_cell: Ints, groups: int) -> Partition:
    """Return the partition into groups of cells; all other cells are in one more, the last one."""
    group_of = np.full(partition.cells, groups)
    group_of[cells] = group_of_cell
    return Partition(partition.kind, partition.view, {**partition.arrays, "groups": group_of}, groups + 1)


def whole_table(view: View) -> Partition:
    """Return the partition with all rows in one cell."""
    return Partition("whole", view, {}, 1)


@dataclass(frozen=True)
class OpenedPartition:
    """A partition, and which of its cells' sums have been opened."""

    partition: Partition
    opened: Bools


@dataclass(frozen=True)
class OpenedCell:
    """One cell of a partition, whose sums have been opened."""

    partition: Partition
    cell: int


def record_opening(
    earlier: Sequence[OpenedPartition], partition: Partition, opened: Bools
) -> tuple[OpenedPartition, ...]:
    """Return the partitions with these cells added; a partition that is there already gets more opened cells."""
    known = [one.partition.digest for one in earlier]
    if partition.digest not in known:
        return (*earlier, OpenedPartition(partition, opened))
    place = known.index(partition.digest)
    joined = replace(earlier[place], opened=earlier[place].opened | opened)
    return (*earlier[:place], joined, *earlier[place + 1 :])


def check_partitions(earlier: Sequence[OpenedPartition], view: View) -> None:
    """Refuse partitions that are too many, badly described, or about other rows than the question's."""
    sound = len(earlier) <= MAX_PARTITIONS and sum(one.partition.cells for one in earlier) <= MAX_OPENED_CELLS
    for one in earlier:
        sound = sound and one.partition.kind in LABELERS and one.opened.dtype == np.bool_
        sound = sound and one.opened.shape == (one.partition.cells,)
        sound = sound and one.partition.view.missing == view.missing  # else it would be about other rows
    if not sound:
        raise WireError("the question names opened cells in a form that this version does not know")


def label_rows(site: Site, partition: Partition) -> Ints:
    """Return the cell of each of a site's rows; labels are kept in memory while there is room."""
    cache: dict[Any, Any] = site.vault.cache
    key = ("labels of rows", partition.digest)
    if key not in cache:
        blocks = [partition.label_block(block) for block in site.blocks(partition.view)]
        labels = np.concatenate(blocks).astype(_label_type(partition.cells)) if blocks else np.zeros(0, np.int64)
        if _cached_bytes(cache) + labels.nbytes > MAX_CACHED_BYTES:
            return labels.astype(np.int64)
        cache[key] = labels
    return np.asarray(cache[key], np.int64)


def select_blocks(site: Site, view: View, partition: Partition, cell: int) -> Iterable[Array]:
    """Return a site's rows in one cell, in some view."""
    own, start = label_rows(site, partition), 0
    for block in site.blocks(view):
        stop = start + block.shape[1]
        yield np.ascontiguousarray(block[:, own[start:stop] == cell])
        start = stop


def _label_type(cells: int) -> type[np.generic]:
    return np.uint8 if cells <= 256 else np.int32


def _cached_bytes(cache: Mapping[Any, Any]) -> int:
    return sum(int(labels.nbytes) for key, labels in cache.items() if key[0] == "labels of rows")
