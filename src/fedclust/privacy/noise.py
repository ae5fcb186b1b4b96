"""Whole numbers drawn from the discrete Gaussian, from the operating system's randomness: by OpenDP, or many at once.

OpenDP's sampler is exact and takes some 30 microseconds a number; slopes of models are a hundred thousand. Those
are drawn by rejection: y, a whole number of so many random bits, is kept if another, of 64 bits, is below 2^64
exp(-y^2 / 2 sigma^2). What is computed in floats is that chance alone, right to one part in 2^45 or to 2^-64; what it
leaves wrong, and what lies beyond 9.5 sigma, is less than 2^-60 of a number's distribution. No float becomes noise, so
no digit of it can give the sum away.
"""

from __future__ import annotations

import math
import os
from functools import cache, lru_cache
from typing import Any

import numpy as np

from fedclust.core.errors import StudyError
from fedclust.core.types import Ints

MOST = 2.0**58  # a standard deviation that 64 bits hold
MANY = 512  # numbers from which on they are drawn at once
REACH = 9.5  # standard deviations that candidates cover
SPARE = 16  # candidates for each number that is wanted: one in eight to sixteen is kept
TRIES = 1 << 18  # candidates at a time, at most


@cache
def opendp() -> Any:
    """The library, with what it calls contributed code let in: its proofs are not all reviewed."""
    try:
        import opendp.prelude as library  # noqa: PLC0415 an extra
    except ImportError:
        raise StudyError("differential privacy needs the extra dp; install fedclust[dp]") from None
    library.enable_features("contrib", "honest-but-curious")
    return library


@lru_cache(64)
def gaussian(scale: float) -> Any:
    """OpenDP's measurement: noise of a scale for whole numbers, priced by their Euclidean distance."""
    dp = opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*space, scale=scale)


def drawn(count: int, scale: float) -> Ints:
    """So many independent draws; a scale is the standard deviation."""
    if not 1 <= scale <= MOST:
        raise StudyError(f"noise of a standard deviation of {scale:g} units cannot be drawn; set another epsilon")
    return many(count, scale) if count > MANY else np.array(gaussian(scale)([0] * count), np.int64)


def many(count: int, scale: float) -> Ints:
    """The same by rejection, as many at a time as fit the cache."""
    bits = math.ceil(math.log2(REACH * scale)) + 1  # of a candidate with its sign
    found, left = [np.zeros(0, np.int64)], count
    while left > 0:
        tries = min(TRIES, SPARE * left + SPARE)
        y = np.frombuffer(os.urandom(8 * tries), np.int64) >> (64 - bits)
        x = y / scale
        chance = np.ldexp(np.exp(-0.5 * x * x), 64)  # at most 2^64, which no candidate reaches
        kept = y[np.frombuffer(os.urandom(8 * tries), np.uint64) < chance][:left]
        found.append(kept)
        left -= len(kept)
    return np.concatenate(found)
