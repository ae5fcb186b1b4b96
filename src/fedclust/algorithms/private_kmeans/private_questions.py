"""What private c-means asks of sites: public bounds, a price, and where to count; and whether it fits a site's columns.

A question that does not fit is refused before a row is read. An error on the way would be an answer without noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedclust.core.noise_price import Price, PricedQuestion
from fedclust.core.types import Array, Floats, Ints

ALONG = 3  # axes of a histogram at most
LARGEST = 2.0**130  # no number of a question is larger: products of a few stay finite
MOST_CELLS = 1 << 16  # that a site counts in
MOST_AXES = 1 << 10


@dataclass(frozen=True)
class Box:
    """Public bounds, and a column's unit: z = (x cut to the bounds - their middle) / unit."""

    low: Floats
    high: Floats
    unit: Floats

    def fits(self, columns: int) -> bool:
        """Whether these are the bounds of so many columns."""
        alike = all(part.shape == (columns,) for part in (self.low, self.high, self.unit))
        return (
            alike and _tame(self.low, self.high) and _tame(positive=self.unit) and bool((self.low <= self.high).all())
        )

    @property
    def middle(self) -> Floats:
        return np.asarray((self.low + self.high) / 2)

    @property
    def radius(self) -> float:
        """No row is longer."""
        return float(np.linalg.norm((self.high - self.low) / 2 / self.unit)) or 1.0

    def of(self, block: Array) -> Floats:
        """A block of columns, seen from the middle."""
        cut = np.clip(np.asarray(block, np.float64), self.low[:, None], self.high[:, None])
        return np.asarray((cut - self.middle[:, None]) / self.unit[:, None])

    def back(self, points: Floats) -> Floats:
        """Points (rows by columns) in original units; they lie within the bounds as rows do."""
        return np.asarray(np.clip(points * self.unit + self.middle, self.low, self.high))


@dataclass(frozen=True)
class Lengths(PricedQuestion):
    """Count rows by their length."""

    price: Price
    box: Box

    def fits(self, columns: int) -> bool:
        return self.box.fits(columns)


@dataclass(frozen=True)
class Radius(PricedQuestion):
    """Sum the products of columns, of rows cut to a radius."""

    price: Price
    box: Box
    radius: float

    def fits(self, columns: int) -> bool:
        return self.box.fits(columns) and _tame(positive=self.radius)


@dataclass(frozen=True)
class Grid(PricedQuestion):
    """Count rows by cells along axes (columns by axes), from -half to half in so many bins each."""

    price: Price
    box: Box
    axes: Floats
    half: Floats
    bins: Ints

    def fits(self, columns: int) -> bool:
        count = len(self.bins)
        shaped = self.axes.shape == (columns, count) and self.half.shape == self.bins.shape == (count,)
        cells = math.prod(self.bins.tolist()) if shaped and 1 <= count <= ALONG and (self.bins >= 1).all() else 0
        tame = _tame(self.axes) and _tame(positive=self.half)
        return self.box.fits(columns) and 1 <= cells <= MOST_CELLS and tame


@dataclass(frozen=True)
class Places(PricedQuestion):
    """Sum where rows lie from the pivot of their nearest centre, by the first `seen` axes; `reach` is the farthest."""

    price: Price
    box: Box
    axes: Floats
    centers: Floats
    pivots: Floats
    seen: int
    reach: float

    def fits(self, columns: int) -> bool:
        if self.centers.ndim != 2 or self.pivots.shape != self.centers.shape:
            return False
        clusters, axes = self.centers.shape
        shaped = self.axes.shape == (columns, axes) and 1 <= self.seen <= axes <= MOST_AXES
        tame = _tame(self.axes, self.centers, self.pivots) and _tame(positive=self.reach)
        return self.box.fits(columns) and shaped and 1 <= clusters <= MOST_CELLS and tame


def _tame(*numbers: Floats, positive: Floats | float = 1.0) -> bool:
    """Whether numbers are finite and not too large, and those that must be positive not too small either."""
    sizes = np.asarray(positive)
    parts = [*numbers, sizes]
    return all(bool((np.abs(part) <= LARGEST).all()) for part in parts) and bool((sizes >= 1 / LARGEST).all())
