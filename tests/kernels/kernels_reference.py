"""Slow, obvious arithmetic to compare the kernels with: fractions for integers, long doubles for accuracy."""

from fractions import Fraction

import numpy as np


def signed(limbs):
    """The integers of a ring array, nested like it."""
    flat = [(int(low) | int(high) << 64) for low, high in limbs.reshape(-1, 2)]
    values = [n - (1 << 128) if n >> 127 else n for n in flat]
    return np.array(values, dtype=object).reshape(limbs.shape[:-1]).tolist()


def quantised(term, unit):
    """The integer nearest to term / 2**unit, half to even."""
    return round(Fraction(float(term)) / Fraction(2) ** unit)


def memberships(x, v, m):
    """Memberships (C, n) in long doubles, for rows that lie on no centre."""
    x, v = np.longdouble(x), np.longdouble(v)
    d2 = ((x[None] - v[:, :, None]) ** 2).sum(axis=1)
    w = (d2.min(axis=0) / d2) ** (1 / (np.longdouble(m) - 1))
    return w / w.sum(axis=0)
