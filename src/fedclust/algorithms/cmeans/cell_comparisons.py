"""How far a new cell is from the cells that were opened before, and from what two of these have together or apart.

If the sums of three cells show few rows, one of the cells is nearly what the other two have together. So it is enough
to compare a new cell with every opened cell, and with unions and differences of two opened cells. The cells of a tree
and of a choice of K are compared by twos across all levels (`nested_cells`), and each of them together with a cluster
or a component; two clusters or components are compared within their partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from fedclust.algorithms.cmeans.nested_cells import Tree, find_trees, is_tree_level
from fedclust.algorithms.cmeans.opened_cells import OpenedPartition, Partition, label_rows
from fedclust.core.site_interface import Site
from fedclust.core.types import Array, Ints

MAX_UNITED_CELLS = 12  # unions of two clusters of a fit are compared if it has no more of them
MAX_UNITED_COMPONENTS = 130  # and of two components of a choice of K, which come once in a run
MAX_CROSSINGS = 1 << 13  # comparisons of one new cell with a cell of a tree and a cluster or component


def count_differences(site: Site, partition: Partition, earlier: Sequence[OpenedPartition]) -> Ints:
    """Return how many of the site's rows two sets of rows do not have in common: cells by comparisons.

    Each cell is compared with the cell without rows and, of each earlier partition, with each opened cell, with all
    rows but those of that cell and, if there are few cells, with the union of each two opened cells; of a tree, with
    what any two opened cells have together or apart, and with what one of them and a cluster or component have so. If
    there are few new cells, the union of a cell with each cell before it is compared with each opened cell, too. Where
    a comparison does not apply, the result is 0.
    """
    own = label_rows(site, partition)
    sizes = np.bincount(own, minlength=partition.cells)
    found = [sizes[:, None]]
    for one in earlier:
        joint = _common_rows(site, own, partition, one.partition)[:, one.opened]
        before = joint.sum(axis=0)
        apart = _differences(sizes[:, None], before, joint)
        found += [apart, len(own) - apart]
        pairs = _pairs(joint.shape[1], _can_unite(one.partition))
        found.append(_differences(sizes[:, None], before[pairs].sum(axis=1), joint[:, pairs].sum(axis=2)))
        if partition.cells <= MAX_UNITED_CELLS:
            together = joint[:, None] + joint[None, :]
            size = sizes[:, None, None] + sizes[None, :, None]
            apart = _differences(size, before, together)
            apart[np.triu_indices(partition.cells)] = 0  # each union once, at its later cell
            found.append(apart.reshape(partition.cells, -1))
    for tree in _compared_trees(partition, earlier):
        joint = _common_rows(site, own, partition, tree.last)
        sets = tree.pairs.T.astype(np.int64)
        found.append(_differences(sizes[:, None], joint.sum(axis=0) @ sets, joint @ sets))
    found += [_cross(site, own, partition, one, tree) for one, tree in _crossings(partition, earlier)]
    return np.concatenate(found, axis=1).astype(np.int64)


def count_comparisons(partition: Partition, earlier: Sequence[OpenedPartition]) -> int:
    """Return how many comparisons each cell of a new partition enters."""
    united = partition.cells if partition.cells <= MAX_UNITED_CELLS else 0
    opened = [(int(one.opened.sum()), _can_unite(one.partition)) for one in earlier]
    single = sum(many * (2 + united) + len(_pairs(many, can_unite)) for many, can_unite in opened)
    paired = sum(len(tree.pairs) for tree in _compared_trees(partition, earlier))
    return 1 + single + paired + sum(_crossing_count(*both) for both in _crossings(partition, earlier))


def _compared_trees(partition: Partition, earlier: Sequence[OpenedPartition]) -> list[Tree]:
    """The trees whose cells are compared by twos with new cells.

    Cells that lie in a tree's cells or are groups of them are not: they differ from a set of its cells by whole cells,
    each of which has at least the floor's rows, or by the rest of one, with which they are compared as single cells.
    """
    return [tree for tree in find_trees(earlier) if not tree.contains(partition)]


def _crossings(partition: Partition, earlier: Sequence[OpenedPartition]) -> list[tuple[OpenedPartition, Tree]]:
    """The partitions whose cells are combined with the cells of trees, the first ones up to a number of comparisons."""
    if partition.cells > MAX_UNITED_COMPONENTS:
        return []
    found, left = list[tuple[OpenedPartition, Tree]](), MAX_CROSSINGS
    for one in earlier:
        for tree in find_trees(earlier) if _can_unite(one.partition) and one.partition.kind != "whole" else ():
            left -= _crossing_count(one, tree)
            if left >= 0 and one.opened.any():
                found.append((one, tree))
    return found


def _crossing_count(one: OpenedPartition, tree: Tree) -> int:
    return int(one.opened.sum()) * len(tree.opened)


def _cross(site: Site, own: Ints, partition: Partition, one: OpenedPartition, tree: Tree) -> Ints:
    """How many rows an odd number of three cells has: a new cell, an earlier one, and one of a tree."""
    other, leaf = label_rows(site, one.partition), label_rows(site, tree.last)
    shape = partition.cells, one.partition.cells, tree.last.cells
    rows = np.bincount((own * shape[1] + other) * shape[2] + leaf, minlength=int(np.prod(shape))).reshape(shape)
    apart = rows.sum(axis=1)[:, None] + rows.sum(axis=0) - 2 * rows  # by leaf: what one of the first two cells has
    apart, sets = apart[:, one.opened], tree.opened.T.astype(np.int64)
    found = _differences(apart.sum(axis=2)[..., None], rows.sum(axis=(0, 1)) @ sets, apart @ sets)
    return found.reshape(partition.cells, -1)


def _common_rows(site: Site, own: Ints, partition: Partition, other: Partition) -> Ints:
    """How many of a site's rows each cell of one partition and each cell of another have in common."""
    both = np.bincount(own * other.cells + label_rows(site, other), minlength=partition.cells * other.cells)
    return both.reshape(partition.cells, other.cells)


def _can_unite(partition: Partition) -> bool:
    """Whether later cells are compared with unions of two cells of this partition alone."""
    if is_tree_level(partition):
        return False
    return partition.cells <= (MAX_UNITED_CELLS if partition.kind == "nearest" else MAX_UNITED_COMPONENTS)


def _differences(new: Array, old: Array, common: Array) -> Ints:
    """Return the sizes of symmetric differences of sets."""
    return np.asarray(new + old - 2 * common, np.int64)


@cache
def _pairs(opened: int, can_unite: bool) -> Ints:  # noqa: FBT001
    """Return every two opened cells of a partition, if they are to be compared."""
    return np.stack(np.triu_indices(opened if can_unite else 0, 1), axis=1)
