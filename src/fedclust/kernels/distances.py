"""Squared distances of rows to centres: ((x0 - v0)^2 + (x1 - v1)^2) + ..., the features added in their order, ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fedclust.core.types import Array, Floats, Limbs, Units
from fedclust.kernels import _backend, _threads
from fedclust.kernels.exact_sums import is_worth_sharing


def squared_distances(block: Array, centers: Floats) -> Floats:
    """d2 (C, n) of a block (F, n) to centres (C, F)."""
    centers = np.ascontiguousarray(centers, np.float64)
    out = np.empty((len(centers), block.shape[1]))
    for_row_ranges(block, centers, lambda rows: _backend.active.squared(block[:, rows], centers, out[:, rows]))
    return out


def nearest_centers(block: Array, centers: Floats) -> tuple[Units, Floats]:
    """The nearest centre of each row, the lowest index among equals, and its squared distance."""
    centers = np.ascontiguousarray(centers, np.float64)
    nearest, least = np.empty(block.shape[1], np.int32), np.empty(block.shape[1])
    for_row_ranges(
        block,
        centers,
        lambda rows: _backend.active.nearest(block[:, rows], centers, nearest[rows], least[rows]),
    )
    return nearest, least


def exact_distances(block: Array, centers: Floats, unit: int) -> Limbs:
    """Squared distances as integers times 2^unit, (C, n, 2) limbs, for rows whose columns lie at several sites.

    Each term t = (x - v)^2 <= 2^(unit + 102) is rounded once to 2^unit; their sum does not depend on their order.
    """
    centers = np.ascontiguousarray(centers, np.float64)
    out = np.empty((len(centers), block.shape[1], 2), np.uint64)
    for_row_ranges(block, centers, lambda rows: _backend.active.exact(block[:, rows], centers, unit, out[:, rows]))
    return out


def for_row_ranges(block: Array, centers: Floats, answer: Callable[[slice], None]) -> None:
    """Answer for all rows, ranges of them in several threads where that pays."""
    if not is_worth_sharing([block], centers):
        answer(slice(None))
        return

    def answer_pieces(pieces: Iterator[slice]) -> None:
        for rows in pieces:
            answer(rows)

    _threads.run_in_threads(_threads.ranges(block.shape[1], 256), answer_pieces)
