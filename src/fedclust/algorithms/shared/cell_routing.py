"""Which cell of a tree each row is in: the coordinates that cells are cut in, and the cuts one after another.

Every operation on a row is elementwise and in a fixed order, so that all sites and the coordinator route a row alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedclust.core.errors import DataError
from fedclust.core.types import Array, Floats, Ints

HALVES, QUARTERS, SLICES = 0, 1, 2  # how a cell is cut: by one plane, by two that cross, or by three that do not
MAX_PARTS = 4
TREE_ARRAYS = ("cells", "kinds", "places", "directions", "widths", "children")  # what a question says of the cuts


def rows_of_cells(z: Floats, tree: Mapping[str, Array]) -> dict[int, Ints]:
    """Which rows (columns of z) each leaf of a tree has, by its number; `tree` has the fields of `TREE_ARRAYS`."""
    cells, kinds, places, directions, widths, children = (tree[name] for name in TREE_ARRAYS)
    rows_of = {0: np.arange(z.shape[1])}
    for number, cell in enumerate(cells.tolist()):
        own = rows_of.pop(cell, None)
        if own is None:
            raise DataError("a cell is cut before it exists; all sites must run the same version of fedclust")
        part = part_of_rows(z[:, own], int(kinds[number]), places[number], directions[number], float(widths[number]))
        for which, child in enumerate(children[number].tolist()):
            if child > 0:
                rows_of[child] = own[part == which]
    return rows_of


def part_of_rows(z: Floats, kind: int, place: Floats, directions: Floats, width: float) -> Ints:
    """Which part of a cut cell each row (a column of z) is in; a row on a plane goes to the lower side."""
    along = _along(z, place, directions[0])
    upper = (along > 0).astype(np.int64)
    if kind == SLICES:
        return (along > -width) + upper + (along > width)
    if kind == QUARTERS:
        return 2 * upper + (_along(z, place, directions[1]) > 0)
    return upper


def _along(z: Floats, place: Floats, direction: Floats) -> Floats:
    """How far each row lies from a place, along a direction."""
    out = np.zeros(z.shape[1])
    for values, own, weight in zip(z, place, direction, strict=True):
        out += (values - own) * weight
    return out


def project(y: Floats, directions: Floats) -> Floats:
    """The coordinates (P, n) of rows (F, n) along directions (F, P); columns are added in their order."""
    out = np.zeros((directions.shape[1], y.shape[1]))
    for values, weights in zip(y, directions, strict=True):
        out += weights[:, None] * values
    return out
