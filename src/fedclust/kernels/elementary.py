"""exp, log and powers by fixed polynomials, because libraries differ in the last bit from machine to machine."""

from __future__ import annotations

import numpy as np

from fedclust.core.types import Array, Floats
from fedclust.kernels import _backend
from fedclust.kernels._twin import EXP, EXP2, LOG, LOG2, POWER

LOG_PI, LOG_2PI = 1.1447298858494002, 1.8378770664093453


def exp(x: Array) -> Floats:
    """e^x; 0 below 2^-1021, infinite from 2^1024 on."""
    return _apply(EXP, x, 0.0)


def exp2(x: Array) -> Floats:
    """2^x; 0 below 2^-1021, infinite from 2^1024 on."""
    return _apply(EXP2, x, 0.0)


def log(x: Array) -> Floats:
    """Natural logarithm of x >= 0, finite."""
    return _apply(LOG, x, 0.0)


def log_of(x: float) -> float:
    """Natural logarithm of one finite number that is not negative."""
    return float(log(np.array([x]))[0])


def exp_of(x: float) -> float:
    """e^x of one number."""
    return float(exp(np.array([x]))[0])


def log2(x: Array) -> Floats:
    """Binary logarithm of x >= 0, finite."""
    return _apply(LOG2, x, 0.0)


def power(x: Array, p: float) -> Floats:
    """x^p for x >= 0, finite; 0 below 2^-1021.

    >>> power(np.array([0.0, 0.25, 1.0]), 1.5).tolist()
    [0.0, 0.125, 1.0]
    """
    return _apply(POWER, x, p)


def _apply(which: int, x: Array, p: float) -> Floats:
    contiguous = np.ascontiguousarray(x, np.float64)
    out = np.empty_like(contiguous)
    _backend.active.elementary(which, contiguous, p, out)
    return out
