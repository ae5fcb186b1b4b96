"""Values far out, damped, so that a few of them do not squeeze all others of their column together.

fences   of a column: three interquartile ranges beyond its quartiles (Tukey's outer ones), or its extremes if nearer
within   x' = (x - low) / (high - low), between 0 and 1
beyond   1 + T log(1 + (x' - 1) / T), T = 1/4, and as much below 0; the order stays

Where the middle half of a column is one value, but for rounding, there are no quartiles to go by: its fences are its
extremes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedclust.algorithms.shared.row_likeness import SLACK
from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels import elementary

FAR = 3.0  # interquartile ranges
TAIL = 0.25  # of what lies between the fences
LEAST = 1e-250  # so that quotients stay finite


@dataclass(frozen=True)
class Fences:
    """Where values of each column begin to lie far out."""

    low: Floats
    high: Floats

    @classmethod
    def around(cls, points: Floats, rows: Ints | None = None) -> Self:
        """The fences of points that stand for one row each, or for so many.

        >>> found = Fences.around(np.array([[0.0], [1.0], [2.0], [3.0], [99.0]]))
        >>> found.low.tolist(), found.high.tolist()  # quartiles 1 and 3
        ([0.0], [9.0])
        """
        least, most = points.min(axis=0), points.max(axis=0)
        first, third = _quartiles(points, rows)
        far = FAR * (third - first)
        apart = far > _rounding(least, most)
        low = np.where(apart, np.maximum(least, first - far), least)
        high = np.where(apart, np.minimum(most, third + far), most)
        return cls(low, high)

    def seen(self, points: Array) -> Floats:
        """Points (rows by columns) with what lies far out damped.

        >>> fences = Fences(np.array([0.0]), np.array([9.0]))
        >>> fences.seen(np.array([[0.0], [4.5], [9.0], [99.0]])).round(2).ravel().tolist()  # 1 + ln(41) / 4
        [0.0, 0.5, 1.0, 1.93]
        """
        wide = self.high - self.low
        x = np.asarray((points - self.low) / np.where(wide > _rounding(self.low, self.high), wide, 1.0), np.float64)
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


def _rounding(low: Floats, high: Floats) -> Floats:
    """What may be rounding alone in columns that reach so far."""
    return np.asarray(SLACK * np.maximum(np.abs(low), np.abs(high)) + LEAST, np.float64)
