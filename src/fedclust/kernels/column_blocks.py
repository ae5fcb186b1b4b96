"""Convert rows to column blocks: each column is contiguous, and a block fits a core's cache."""

from __future__ import annotations

import numpy as np

from fedclust.core.types import Array

TILE_ROWS = 64
BLOCK_BYTES = 1 << 19


def block_rows(features: int) -> int:
    """Rows of a block of about half a megabyte, a multiple of the tile."""
    rows = BLOCK_BYTES // (8 * max(features, 1))
    return min(max(rows // TILE_ROWS * TILE_ROWS, TILE_ROWS), 65536)


def pack(X: Array) -> list[Array]:
    """The rows of X (n, F) as blocks (F, rows); float32 stays float32.

    >>> [block.shape for block in pack(np.zeros((50_000, 2)))]
    [(2, 32768), (2, 17232)]
    """
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    step = block_rows(X.shape[1])
    return [np.ascontiguousarray(X[at : at + step].T, dtype) for at in range(0, len(X), step)]
