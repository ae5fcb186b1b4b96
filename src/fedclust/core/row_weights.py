"""How many rows are behind a number, computed from their weights in it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedclust.core.types import Array, Floats


def tally_weights(blocks: Iterable[Floats]) -> Floats:
    """Return the sum, the sum of squares and the maximum of weights (cells, rows) that arrive in blocks.

    >>> tally_weights([np.array([[0.5, 1.0], [0.0, 0.0]]), np.array([[1.0], [0.25]])]).tolist()
    [[2.5, 0.25], [2.25, 0.0625], [1.0, 0.25]]
    """
    sums = [np.stack([w.sum(axis=1), (w * w).sum(axis=1), w.max(axis=1, initial=0.0)]) for w in blocks]
    if not sums:
        return np.zeros((3, 0))
    total = np.sum(sums, axis=0)
    total[2] = np.max([own[2] for own in sums], axis=0)
    return np.asarray(total, np.float64)


def tally_unit_weights(rows: Array) -> Floats:
    """Return the same for cells whose rows all weigh one, from the number of rows.

    >>> tally_unit_weights(np.array([3, 0])).tolist()
    [[3.0, 0.0], [3.0, 0.0], [1.0, 0.0]]
    """
    size = np.asarray(rows, np.float64).ravel()
    return np.stack([size, size, np.minimum(size, 1.0)])
