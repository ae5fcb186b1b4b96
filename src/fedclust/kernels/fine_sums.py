"""Exact sums of terms that may lie far below their bound: the leading bits of each term, then the rest.

A float has 53 bits, and a term is rounded to 51 bits below its bound. Where a bound is wide, the rest of a term still
has digits below that unit; both parts are exact sums, and so is the number they make together.
"""

from __future__ import annotations

import numpy as np

from fedclust.core.types import Array, Limbs, Units
from fedclust.kernels import exact_sums
from fedclust.kernels.units import DISTANCE_BITS, TERM_BITS


def fine_sums(values: Array, unit: int | Units, bits: int = DISTANCE_BITS) -> Limbs:
    """The exact sum of each row of values (k, n), |value| <= 2^(unit + bits), in its unit: (k, 2) limbs.

    >>> values = np.array([[1.0, 2.0**-60]])
    >>> exact_sums.exact_totals(values, -51).tolist(), fine_sums(values, -60, bits=60).tolist()
    ([[2251799813685248, 0]], [[1152921504606846977, 0]])
    """
    coarse = np.asarray(unit + bits - TERM_BITS, np.int32)
    by_row = coarse[..., None]
    leading = np.ldexp(np.rint(np.ldexp(values, -by_row)), by_row)
    out = _shift_left(exact_sums.exact_totals(leading, coarse), bits - TERM_BITS)
    exact_sums.add_in_place(out, exact_sums.exact_totals(values - leading, unit))
    return out


def fine_sums_by_label(block: Array, labels: Array, groups: int, unit: Units) -> Limbs:
    """The exact sums (groups, F) of the columns of each label's rows."""
    columns = np.asarray(block, np.float64)
    return np.stack([fine_sums(np.ascontiguousarray(columns[:, labels == c]), unit) for c in range(groups)])


def _shift_left(limbs: Limbs, by: int) -> Limbs:
    """The numbers times 2^by, 0 < by < 64."""
    low, high = limbs[..., 0], limbs[..., 1]
    return np.stack([low << np.uint64(by), (high << np.uint64(by)) | (low >> np.uint64(64 - by))], axis=-1)
