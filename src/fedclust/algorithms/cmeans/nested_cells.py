"""Cells of one tree, whatever level opened them: what the unions and differences of any two of them consist of.

A run that cuts cells level by level names one partition for each level. A cell of one level contains cells of the next
ones, so the sums of two cells of different levels show what one has besides the other. All of this follows from the
cuts that the partitions describe, so every site lists the same sets of rows, in the same order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from fedclust.algorithms.cmeans.opened_cells import OpenedPartition, Partition
from fedclust.algorithms.shared import cell_routing
from fedclust.core import wire
from fedclust.core.types import Array, Bools

MAX_TREE_CELLS = 130  # of a tree's last level; the cells of larger trees are not compared by twos
TREE_CUTS = ("kinds", "places", "directions", "widths")
CHOICE_CUTS = ("places", "directions")
ARRAYS_OF_CUTS = {
    "tree": cell_routing.TREE_ARRAYS,
    "choice": ("levels", "cut_cells", *CHOICE_CUTS),
}

_Path = tuple[bytes, ...]
"""The names of the cells that lead to a cell, from the root to itself."""


@dataclass(frozen=True)
class Tree:
    """The last level of a tree, and sets of its cells: each opened cell, and what each two have together or apart."""

    last: Partition
    opened: Bools
    pairs: Bools

    def contains(self, partition: Partition) -> bool:
        """Whether each cell of a partition lies in one cell of the last level, or is a group of such cells."""
        if partition.kind != self.last.kind:
            return False
        names = {name for path in _cell_paths(partition) for name in path}
        return all(path[-1] in names for path in _cell_paths(self.last) if path)


def is_tree_level(partition: Partition) -> bool:
    """Whether the cells of a partition, or groups of them, are those of a tree."""
    return partition.kind in ARRAYS_OF_CUTS


def find_trees(earlier: Sequence[OpenedPartition]) -> tuple[Tree, ...]:
    """Return the trees of which some partitions are levels, each with the sets that further cells are compared with.

    A set that is an opened cell, or all rows but those of one, is left out, because it is compared anyway.
    """
    levels = tuple(one for one in earlier if is_tree_level(one.partition))
    names = "".join(one.partition.digest + one.opened.tobytes().hex() + " " for one in levels)
    return _find_trees(_Levels(names, levels))


@dataclass(frozen=True)
class _Levels:
    """Partitions with a name that says which of their cells are opened."""

    name: str
    partitions: tuple[OpenedPartition, ...] = field(compare=False)


@lru_cache(maxsize=32)
def _find_trees(levels: _Levels) -> tuple[Tree, ...]:
    grown: list[_GrownTree] = []
    for one in sorted(levels.partitions, key=lambda one: (one.partition.has_groups, -len(_cell_paths(one.partition)))):
        if not any(tree.add(one) for tree in grown):
            grown.append(_GrownTree.of_last_level(one))
    return tuple(tree.finish() for tree in grown if len(tree.paths) <= MAX_TREE_CELLS)


@dataclass
class _GrownTree:
    """A tree by its last level: the path to each of its cells, and its opened cells as sets of these."""

    last: Partition
    paths: list[_Path]
    opened: list[Bools]

    @classmethod
    def of_last_level(cls, one: OpenedPartition) -> _GrownTree:
        tree = cls(one.partition, _cell_paths(one.partition), [])
        tree.add(one)
        return tree

    def add(self, one: OpenedPartition) -> bool:
        """Add the opened cells of a level; False if it has a cell that is none of this tree."""
        inside: dict[bytes, list[int]] = {}
        for cell, path in enumerate(self.paths):
            for name in path:
                inside.setdefault(name, []).append(cell)
        sets = np.zeros((one.partition.cells, len(self.paths)), np.bool_)
        groups = _groups(one.partition)
        for cell, path in enumerate(_cell_paths(one.partition)):
            if path and one.opened[groups[cell]]:
                if path[-1] not in inside:
                    return False
                sets[groups[cell], inside[path[-1]]] = True
        self.opened += list(sets[one.opened])
        return True

    def finish(self) -> Tree:
        """Return the tree with its opened cells, and what only one of each two of them has.

        These are two cells of which one lies in the other, or which have nothing in common.
        """
        cells = _distinct([own for own in self.opened if own.any()], len(self.paths))
        one, other = np.triu_indices(len(cells), 1)
        common = cells.astype(np.int64) @ cells.T.astype(np.int64)
        sizes, shared = common.diagonal(), common[one, other]
        related = (shared == 0) | (shared == np.minimum(sizes[one], sizes[other]))
        everything = np.array([bool(path) for path in self.paths])  # numbers of cells that were cut have no rows
        compared = {own.tobytes() for own in (*cells, *(~cells & everything))}
        found = _distinct(list(cells[one[related]] ^ cells[other[related]]), len(self.paths))
        kept = np.array([own.tobytes() not in compared for own in found], np.bool_)
        return Tree(self.last, cells, found[kept])


def _distinct(sets: Sequence[Bools], cells: int) -> Bools:
    return np.unique(np.array(sets, np.bool_).reshape(-1, cells), axis=0)


def _groups(partition: Partition) -> Array:
    return np.asarray(partition.arrays["groups"]) if partition.has_groups else np.arange(partition.cells)


def _cell_paths(partition: Partition) -> list[_Path]:
    """The path to each cell by its number; empty for a cell that was cut. The last one: rows outside the sample."""
    arrays = partition.arrays
    cuts = ARRAYS_OF_CUTS[partition.kind]
    rest = {name: values for name, values in arrays.items() if name not in {*cuts, "groups"}}
    root = hashlib.sha256(wire.encode(Partition(partition.kind, partition.view, rest, 0))).digest()
    paths: dict[int, _Path] = {0: (root,)}
    if partition.kind == "tree":
        for at, cell in enumerate(arrays["cells"].tolist()):
            parent = paths.pop(cell)
            cut = _bytes_of_cut(arrays, TREE_CUTS, at)
            for part, child in enumerate(arrays["children"][at].tolist()):
                if child > 0:
                    paths[child] = (*parent, _name_part(parent[-1], cut, part))
        outside = int(arrays["children"].max(initial=0)) + 1
    else:
        for at, cell in enumerate(arrays["cut_cells"].tolist()):
            parent = paths[cell]
            cut = _bytes_of_cut(arrays, CHOICE_CUTS, at)
            paths[cell], paths[at + 1] = ((*parent, _name_part(parent[-1], cut, part)) for part in (0, 1))
        outside = len(arrays["levels"]) + 1
    paths[outside] = (root + b"outside",)
    return [paths.get(cell, ()) for cell in range(outside + 1)]


def _bytes_of_cut(arrays: dict[str, Array], names: Sequence[str], at: int) -> bytes:
    return b"".join(np.asarray(arrays[name][at]).tobytes() for name in names)


def _name_part(parent: bytes, cut: bytes, part: int) -> bytes:
    return hashlib.sha256(b"%d " % part + parent + cut).digest()
