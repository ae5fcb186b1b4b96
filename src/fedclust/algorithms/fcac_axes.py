"""Axes along which points spread, evened, so that what many columns say alike does not count as often.

axes    of points that stand for rows, less their mean: U S V'
evened  x V (s / s1)^(-1/4) V' / s1: the spread along an axis counts by its power 3/4, and the widest is 1
flat    axes with a hundred-thousandth of the widest spread, or less, are left out

k-means takes clusters for balls. Columns that go together draw them out, and would hide the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedclust.core.types import Array, Floats, Ints

POWER = 0.75
FLAT = 1e-5  # of the widest spread
LEAST = 1e-250  # so that quotients stay finite
PLACES = 9  # so that points come out the same, however matrices are multiplied


@dataclass(frozen=True)
class Axes:
    """The mean of points, and their axes, each as long as the root of how much it is stretched."""

    middle: Floats
    along: Floats  # axes by columns

    @classmethod
    def of(cls, points: Floats, rows: Ints) -> Self:
        """The axes of points that stand for so many rows.

        >>> found = Axes.of(np.array([[16.0, 1.0], [16.0, -1.0], [-16.0, 1.0], [-16.0, -1.0]]), np.full(4, 5))
        >>> np.abs(found.along).round(2).tolist()  # spreads 16 and 1; the second counts 16^(1/4) times
        [[0.25, 0.0], [0.0, 0.35]]
        """
        share = rows / rows.sum()
        middle = share @ points
        _, spread, axes = np.linalg.svd((points - middle) * np.sqrt(share)[:, None], full_matrices=False)
        widest = max(float(spread[0]), LEAST)
        wide = spread > FLAT * widest
        stretch = (spread[wide] / widest) ** (POWER - 1.0) / widest
        return cls(middle, axes[wide] * np.sqrt(stretch)[:, None])

    def seen(self, points: Array) -> Floats:
        """Points (rows by columns) with their spreads evened.

        >>> square = np.array([[16.0, 1.0], [16.0, -1.0], [-16.0, 1.0], [-16.0, -1.0]])
        >>> Axes.of(square, np.full(4, 5)).seen(square)[0].tolist()
        [1.0, 0.125]
        """
        evened = np.linalg.multi_dot([np.asarray(points - self.middle, np.float64), self.along.T, self.along])
        return np.asarray(evened.round(PLACES), np.float64)
