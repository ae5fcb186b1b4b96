"""Outliers, damped by their logarithm, so that a few of them do not squeeze all other values of a column together.

fences   of a column: three interquartile ranges beyond its quartiles (Tukey's outer fences), or its extremes if nearer
within   x' = (x - low) / (high - low), between 0 and 1
beyond   1 + T log(1 + (x' - 1) / T), T = 1/4, and symmetrically below 0; the order stays

Where the middle half of a column is a single value, apart from rounding, quartiles say nothing: its fences are its
extremes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedclust.algorithms.shared.row_likeness import ROW_TOLERANCE
from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels import elementary

FENCE_RANGES = 3.0  # interquartile ranges from a quartile to its fence
TAIL = 0.25  # of the distance between the fences
SMALLEST_WIDTH = 1e-250  # so that quotients stay finite


@dataclass(frozen=True)
class OutlierFences:
    """The values of each column below and above which a value is an outlier."""

    low: Floats
    high: Floats

    @classmethod
    def of_points(cls, points: Floats, rows: Ints | None = None) -> Self:
        """The fences of points that stand for one row each, or for as many as `rows` says.

        >>> found = OutlierFences.of_points(np.array([[0.0], [1.0], [2.0], [3.0], [99.0]]))
        >>> found.low.tolist(), found.high.tolist()  # quartiles 1 and 3
        ([0.0], [9.0])
        """
        least, most = points.min(axis=0), points.max(axis=0)
        first, third = _quartiles(points, rows)
        far = FENCE_RANGES * (third - first)
        apart = far > _rounding_error(least, most)
        low = np.where(apart, np.maximum(least, first - far), least)
        high = np.where(apart, np.minimum(most, third + far), most)
        return cls(low, high)

    def damp(self, points: Array) -> Floats:
        """Points (rows by columns) scaled by the distance of the fences, with outliers damped.

        >>> fences = OutlierFences(np.array([0.0]), np.array([9.0]))
        >>> fences.damp(np.array([[0.0], [4.5], [9.0], [99.0]])).round(2).ravel().tolist()  # 1 + ln(41) / 4
        [0.0, 0.5, 1.0, 1.93]
        """
        width = self.high - self.low
        usable = np.where(width > _rounding_error(self.low, self.high), width, 1.0)
        x = np.asarray((points - self.low) / usable, np.float64)
        found = np.clip(x, 0.0, 1.0)
        above, below = x > 1.0, x < 0.0
        found[above] += TAIL * elementary.log(1.0 + (x[above] - 1.0) / TAIL)
        found[below] -= TAIL * elementary.log(1.0 - x[below] / TAIL)
        return found


def _quartiles(points: Floats, rows: Ints | None) -> tuple[Floats, Floats]:
    """In each column the first values up to which a quarter, and three quarters, of the rows lie."""
    if rows is None:
        at = [-(-share * len(points) // 4) - 1 for share in (1, 3)]
        ranked = np.partition(points, at, axis=0)
        return ranked[at[0]], ranked[at[1]]
    order = np.argsort(points, axis=0, kind="stable")
    ranked, reached = np.take_along_axis(points, order, axis=0), np.cumsum(rows[order], axis=0)
    at = [(4 * reached < share * reached[-1]).sum(axis=0) for share in (1, 3)]
    first, third = np.take_along_axis(ranked, np.stack(at), axis=0)
    return first, third


def _rounding_error(low: Floats, high: Floats) -> Floats:
    """A width that may be due to rounding alone, in columns with these extremes."""
    return np.asarray(ROW_TOLERANCE * np.maximum(np.abs(low), np.abs(high)) + SMALLEST_WIDTH, np.float64)
