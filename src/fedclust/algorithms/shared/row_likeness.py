"""When a point says as much as a row: where it is one but for rounding.

A mean of equal rows is that row up to a few last bits, since (wa a + wb a) / (wa + wb) is rounded three times. So what
must not be a row is held against rows with some slack: a billionth of how far a column reaches from zero.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fedclust.core.types import Array, Floats, Ints

ROW_TOLERANCE = 1e-9


def near_rows(points: Floats, rows: Floats) -> NDArray[np.bool_]:
    """Which points are rows but for rounding.

    >>> near_rows(np.array([[0.1 + 0.2, 7.0], [0.3, 6.9]]), np.array([[0.3, 7.0], [1.0, 2.0]])).tolist()
    [True, False]
    """
    if not len(rows):
        return np.zeros(len(points), bool)
    slack = ROW_TOLERANCE * np.abs(rows).max(axis=0)
    columns = np.argsort(-np.ptp(rows, axis=0), kind="stable")  # those that separate most rows come first
    found = np.zeros(len(points), bool)
    for at, point in enumerate(points):
        left = np.arange(len(rows))
        for column in columns:
            left = left[np.abs(rows[left, column] - point[column]) <= slack[column]]
            if not len(left):
                break
        found[at] = len(left) > 0
    return found


def count_equal_rows(points: Floats, blocks: Iterable[Array], reach: Floats) -> Ints:
    """How many rows each point is but for rounding; rows come in blocks of columns, no farther out than `reach`.

    A row with gaps is taken for a point that has all its values.

    >>> count_equal_rows(np.array([[0.3, 7.0], [1.0, 1.0]]), [np.array([[0.1 + 0.2, 2.0], [7.0, 7.0]])], np.ones(2))
    array([1, 0])
    """
    found = np.zeros(len(points), np.int64)
    slack = ROW_TOLERANCE * reach
    for block in blocks:
        for at, point in enumerate(points):
            left = np.arange(block.shape[1])
            for column, value, width in zip(block, point, slack, strict=True):
                left = left[~(np.abs(column[left] - value) > width)]
                if not len(left):
                    break
            found[at] += len(left)
    return found
