"""What private c-means asks of sites: public bounds, a price, and where to count; and whether it fits a site's columns.

A question that does not fit is refused before a row is read. An error on the way would be an answer without noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.shared.fixed_order import ordered_sum
from fedclust.core.noise_price import Price, PricedQuestion
from fedclust.core.types import Array, Floats, Ints

MAX_GRID_AXES = 3  # axes of a histogram at most
MAX_QUESTION_NUMBER = 2.0**130  # no number of a question is larger: products of a few stay finite
MAX_COUNTED_CELLS = 1 << 16  # that a site counts in
MAX_QUESTION_AXES = 1 << 10


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
            alike
            and _is_within_range(self.low, self.high)
            and _is_within_range(positive=self.unit)
            and bool((self.low <= self.high).all())
        )

    @property
    def middle(self) -> Floats:
        return np.asarray((self.low + self.high) / 2)

    @property
    def radius(self) -> float:
        """No row is longer."""
        half = (self.high - self.low) / 2 / self.unit
        return float(np.sqrt(ordered_sum(half * half))) or 1.0

    def scale_block(self, block: Array) -> Floats:
        """A block of columns, seen from the middle."""
        cut = np.clip(np.asarray(block, np.float64), self.low[:, None], self.high[:, None])
        return np.asarray((cut - self.middle[:, None]) / self.unit[:, None])

    def to_original_units(self, points: Floats) -> Floats:
        """Points (rows by columns) in original units; they lie within the bounds as rows do."""
        return np.asarray(np.clip(points * self.unit + self.middle, self.low, self.high))


@dataclass(frozen=True)
class LengthsQuestion(PricedQuestion):
    """Count rows by their length."""

    price: Price
    box: Box

    def fits(self, columns: int) -> bool:
        return self.box.fits(columns)


@dataclass(frozen=True)
class MomentsQuestion(PricedQuestion):
    """Sum the products of columns, of rows cut to a radius."""

    price: Price
    box: Box
    radius: float

    def fits(self, columns: int) -> bool:
        return self.box.fits(columns) and _is_within_range(positive=self.radius)


@dataclass(frozen=True)
class GridQuestion(PricedQuestion):
    """Count rows by cells along axes (columns by axes), from -half to half in so many bins each."""

    price: Price
    box: Box
    axes: Floats
    half: Floats
    bins: Ints

    def fits(self, columns: int) -> bool:
        count = len(self.bins)
        shaped = self.axes.shape == (columns, count) and self.half.shape == self.bins.shape == (count,)
        cells = (
            math.prod(self.bins.tolist()) if shaped and 1 <= count <= MAX_GRID_AXES and (self.bins >= 1).all() else 0
        )
        tame = _is_within_range(self.axes) and _is_within_range(positive=self.half)
        return self.box.fits(columns) and 1 <= cells <= MAX_COUNTED_CELLS and tame


@dataclass(frozen=True)
class OffsetsQuestion(PricedQuestion):
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
        shaped = self.axes.shape == (columns, axes) and 1 <= self.seen <= axes <= MAX_QUESTION_AXES
        tame = _is_within_range(self.axes, self.centers, self.pivots) and _is_within_range(positive=self.reach)
        return self.box.fits(columns) and shaped and 1 <= clusters <= MAX_COUNTED_CELLS and tame


def _is_within_range(*numbers: Floats, positive: Floats | float = 1.0) -> bool:
    """Whether numbers are finite and not too large, and those that must be positive not too small either."""
    sizes = np.asarray(positive)
    parts = [*numbers, sizes]
    return all(bool((np.abs(part) <= MAX_QUESTION_NUMBER).all()) for part in parts) and bool(
        (sizes >= 1 / MAX_QUESTION_NUMBER).all()
    )
