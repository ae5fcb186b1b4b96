"""The same sweeps with ordinary float64 sums, whose last bits depend on the order: what exactness costs, measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedclust.core.types import Array, Floats
from fedclust.kernels import _backend, _threads
from fedclust.kernels.exact_sums import FUZZY, HARD, Blocks, cut, worth_sharing

Plain = tuple[Floats, Floats, Floats]


def cmeans(blocks: Blocks, centers: Floats) -> Plain:
    """Mass (C), pull (C, F) and objective (1) of hard c-means."""
    return _sweep(HARD, blocks, centers, 1.0)


def fcm(blocks: Blocks, centers: Floats, m: float) -> Plain:
    """Mass (C), pull (C, F) and objective (1) of fuzzy c-means."""
    return _sweep(FUZZY, blocks, centers, m)


def _sweep(rule: int, blocks: Blocks, centers: Floats, m: float) -> Plain:
    listed: Sequence[Array] = [blocks] if isinstance(blocks, np.ndarray) else blocks

    def work(pieces: Iterator[Sequence[Array]]) -> Plain:
        own = np.zeros(len(centers)), np.zeros(centers.shape), np.zeros(1)
        for piece in pieces:
            _backend.active.plain(rule, piece, centers, m, *own)
        return own

    parts = _threads.spread(cut(listed), work) if worth_sharing(listed, centers) else [work(iter([listed]))]
    total = parts[0]
    for part in parts[1:]:
        for mine, other in zip(total, part, strict=True):
            np.add(mine, other, out=mine)
    return total
