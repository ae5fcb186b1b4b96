"""Values far out, damped, so that a few of them do not squeeze all others of their column together.

fences   of a column: three interquartile ranges beyond its quartiles (Tukey's outer ones), or its extremes if nearer
within   x' = (x - low) / (high - low), between 0 and 1
beyond   1 + T log(1 + (x' - 1) / T), T = 1/4, and as much below 0: order stays, and the way back is exp

A column most of whose values are the same has no quartiles to go by: its fences are its extremes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels import elementary

FAR = 3.0  # interquartile ranges
TAIL = 0.25  # of what lies between the fences


@dataclass(frozen=True)
class Fences:
    """Where values of each column begin to lie far out."""

    low: Floats
    high: Floats

    @classmethod
    def around(cls, points: Floats, weights: Floats | Ints) -> Self:
        """The fences of points that stand for rows.

        >>> found = Fences.around(np.array([[0.0], [1.0], [2.0], [3.0], [99.0]]), np.ones(5))
        >>> found.low.tolist(), found.high.tolist()  # quartiles 1 and 3
        ([0.0], [9.0])
        """
        least, most = points.min(axis=0), points.max(axis=0)
        first, third = (_quantile(points, weights, share) for share in (0.25, 0.75))
        wide = FAR * (third - first)
        apart = wide > 0
        low = np.where(apart, np.maximum(least, first - wide), least)
        high = np.where(apart, np.minimum(most, third + wide), most)
        return cls(low, high)

    def seen(self, points: Array) -> Floats:
        """Points (rows by columns) with what lies far out damped.

        >>> fences = Fences(np.array([0.0]), np.array([9.0]))
        >>> fences.seen(np.array([[0.0], [4.5], [9.0], [99.0]])).round(2).ravel().tolist()  # 1 + ln(41) / 4
        [0.0, 0.5, 1.0, 1.93]
        """
        x = np.asarray((points - self.low) / self._width, np.float64)
        return _moved(x, lambda far: TAIL * elementary.log(1.0 + far / TAIL))

    def back(self, points: Array) -> Floats:
        """Damped points as they were.

        >>> fences = Fences(np.array([0.0]), np.array([9.0]))
        >>> fences.back(fences.seen(np.array([[-7.0], [4.5], [99.0]]))).round(9).ravel().tolist()
        [-7.0, 4.5, 99.0]
        """
        x = np.asarray(points, np.float64)
        return _moved(x, lambda far: TAIL * (elementary.exp(far / TAIL) - 1.0)) * self._width + self.low

    @property
    def _width(self) -> Floats:
        return np.where(self.high > self.low, self.high - self.low, 1.0)


def _moved(x: Floats, how: Callable[[Floats], Floats]) -> Floats:
    """With what lies above 1 or below 0 moved, by how far it does."""
    found = np.clip(x, 0.0, 1.0)
    above, below = x > 1.0, x < 0.0
    found[above] += how(x[above] - 1.0)
    found[below] -= how(-x[below])
    return found


def _quantile(points: Floats, weights: Floats | Ints, share: float) -> Floats:
    """In each column the first value that this share of the weight does not exceed."""
    order = np.argsort(points, axis=0, kind="stable")
    reached = np.cumsum(np.asarray(weights, np.float64)[order], axis=0)
    at = (reached < share * reached[-1]).sum(axis=0)
    return np.asarray(np.take_along_axis(points, np.take_along_axis(order, at[None], axis=0), axis=0)[0], np.float64)
