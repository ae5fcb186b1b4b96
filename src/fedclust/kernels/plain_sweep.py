"""Sweeps with ordinary float64 sums, whose last bits depend on the order; they show the cost of exactness."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedclust.core.types import Array, Floats
from fedclust.kernels import _backend, _threads
from fedclust.kernels.exact_sums import FUZZY, HARD, Blocks, cut_into_pieces, is_worth_sharing

PlainSums = tuple[Floats, Floats, Floats]


def sweep_hard(blocks: Blocks, centers: Floats) -> PlainSums:
    """Mass (C), pull (C, F) and objective (1) of hard c-means."""
    return _sweep(HARD, blocks, centers, 1.0)


def sweep_fuzzy(blocks: Blocks, centers: Floats, m: float) -> PlainSums:
    """Mass (C), pull (C, F) and objective (1) of fuzzy c-means."""
    return _sweep(FUZZY, blocks, centers, m)


def _sweep(rule: int, blocks: Blocks, centers: Floats, m: float) -> PlainSums:
    listed: Sequence[Array] = [blocks] if isinstance(blocks, np.ndarray) else blocks

    def sum_pieces(pieces: Iterator[Sequence[Array]]) -> PlainSums:
        own = np.zeros(len(centers)), np.zeros(centers.shape), np.zeros(1)
        for piece in pieces:
            _backend.active.plain(rule, piece, centers, m, *own)
        return own

    parts = (
        _threads.run_in_threads(cut_into_pieces(listed), sum_pieces)
        if is_worth_sharing(listed, centers)
        else [sum_pieces(iter([listed]))]
    )
    total = parts[0]
    for part in parts[1:]:
        for mine, other in zip(total, part, strict=True):
            np.add(mine, other, out=mine)
    return total
