"""Units of exact sums: the power of two that a row's term is rounded to, and when a sum needs a finer one.

A term t with |t| <= 2^bound is rounded once to a multiple of 2^unit, unit = bound - bits. A sum far below the bound of
its terms shows few digits; as it is at least each of its terms, it is a closer bound on them, and so leads to a finer
unit. Bounds, units and shifts are exponents of two throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fedclust.core.ring import power_above
from fedclust.core.types import Array, Floats, Units

TERM_BITS = 51  # a term is rounded to 2^-51 of its bound: 2^76 of them fit the ring
DISTANCE_BITS = 93  # a distance that may be far below its bound: 2^34 of them fit the ring
DIFFERENCE_BITS = 102  # a squared difference of one column, so that near rows keep their digits
SHOWN_BITS = 8  # a sum below 2^-8 of its bound shows too few digits
MIN_SUM_FRACTION = 2.0**-SHOWN_BITS
MAX_SHIFT_BITS = 780  # floats have no finer unit: a cluster whose mass shows nothing here is empty
CENTER_ROUNDING_BITS = 72  # rounded centres move an objective by less than 2^-72 of the farthest squared distance


def unit_of(bound: int | Array, bits: int = TERM_BITS) -> Units:
    """The unit of terms of at most 2^bound.

    >>> unit_of(np.array([3, -2])).tolist()
    [-48, -53]
    """
    return np.asarray(np.asarray(bound) - bits, np.int32)


def bounds_above(values: Iterable[float]) -> Units:
    """For each value the smallest b with value <= 2^b.

    >>> bounds_above([4.0, 5.0, 0.3]).tolist()
    [2, 3, -1]
    """
    return np.array([power_above(value) for value in values], np.int32)


def farthest_in_columns(exponents: Units, points: Floats) -> Floats:
    """For each column the largest |x_f - v_f| of a row |x_f| <= 2^exponent_f and any of the points v."""
    return np.asarray(np.ldexp(1.0, exponents) + np.abs(points).max(axis=0), np.float64)


def squared_distance_bound(exponents: Units, points: Floats) -> int:
    """The smallest b with |x - v|^2 <= 2^b for every row |x_f| <= 2^exponent_f and every point v.

    >>> squared_distance_bound(np.array([2, 0]), np.array([[1.0, 0.0], [0.0, -2.0]]))  # (4 + 1)^2 + (1 + 2)^2 = 34
    6
    """
    far = farthest_in_columns(exponents, points)
    return power_above(math.fsum((far * far).tolist()))


def partial_distance_bound(exponents: Units, points: Floats) -> int:
    """The same for distances of rows with gaps: F / F_i times a sum of F_i terms is at most F times the largest.

    >>> partial_distance_bound(np.array([2, 0]), np.array([[1.0, 0.0], [0.0, -2.0]]))  # 2 (4 + 1)^2 = 50
    6
    """
    far = farthest_in_columns(exponents, points) ** 2
    return power_above(float(len(far) * far.max()))


def finer_shifts(sums: Floats, shifts: Units) -> Units | None:
    """Finer units, 2^-shift of the usual one, for sums of terms of at most 1 that show too few digits, or None.

    A sum is at least each of its terms: a unit that brings it just below 1 still holds them. A sum of 0 says only that
    its terms are below the present unit.

    >>> finer_shifts(np.array([0.5, 2.0**-10, 0.0]), np.zeros(3, np.int32)).tolist()
    [0, 9, 50]
    """
    relative = np.ldexp(sums, shifts)
    again = (relative < MIN_SUM_FRACTION) & (shifts < MAX_SHIFT_BITS)
    if not again.any():
        return None
    gain = np.where(sums > 0, -np.frexp(np.where(sums > 0, relative, 1.0))[1], TERM_BITS - 1)
    return np.where(again, shifts + gain, shifts).astype(np.int32)


def closer_share_bound(objective: float, bound: int, farthest: int) -> int | None:
    """A closer bound on a row's share of an objective that shows too few digits under the present one, or None.

    The objective is at least each share of it; each was rounded, by half a unit at most. Rows differ from a centre by
    no less than their own last digit, so 2^-104 of the `farthest` squared distance is as fine as it need be.

    >>> closer_share_bound(1.0, bound=8, farthest=8) is None, closer_share_bound(0.75, bound=8, farthest=8)
    (True, 0)
    """
    least = farthest - 2 * (TERM_BITS + 1)
    if objective >= 2.0 ** (bound - SHOWN_BITS) or bound <= least:
        return None
    return max(power_above(objective + 2.0 ** (bound - TERM_BITS)), least)


def closer_bounds(sums: Floats, bounds: Array) -> Array | None:
    """Closer bounds on the terms of sums, none negative, that show too few digits under the present ones, or None.

    >>> closer_bounds(np.array([300.0, 5.0, 0.0]), np.array([10, 10, 10])).tolist()
    [10, 10, -40]
    >>> closer_bounds(np.array([3.0]), np.array([10])).tolist()
    [2]
    """
    few = sums < np.ldexp(1.0, bounds - SHOWN_BITS)
    if not few.any():
        return None
    closer = np.where(sums > 0, np.frexp(sums)[1], bounds - TERM_BITS + 1)
    return np.where(few, np.minimum(closer, bounds), bounds)
