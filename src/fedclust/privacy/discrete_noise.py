"""Whole numbers drawn from the discrete Gaussian, from the operating system's randomness: by OpenDP, or many at once.

OpenDP's sampler is exact and takes some 30 microseconds a number; slopes of models are a hundred thousand. Those
are drawn by rejection: y, a whole number of so many random bits, is kept if another, of 128 bits, is below 2^128
exp(-y^2 / 2 sigma^2). What is computed in floats is that chance alone. Two things are left wrong:

    epsilon   up to 10.5 sigma a chance is right to one part in 2^45, so that the ratio of two tables' chances of a
              number is wrong by 2^-43 at most: that adds 10^-5 to epsilon for a hundred million numbers
    delta     what lies beyond 10.5 sigma may never be drawn, and has a chance of 2^-83: 10^-17 for a hundred million
              numbers; a delta below `LEAST` is refused where there are so many

No float becomes noise, so no digit of it can give the sum away.
"""

from __future__ import annotations

import math
import os
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.core.errors import StudyError
from fedclust.core.types import Bools, Floats, Ints

MAX_NOISE_SCALE = 2.0**58  # a standard deviation that 64 bits hold
MIN_BATCH_DRAWS = 512  # numbers from which on they are drawn at once
CANDIDATE_REACH = 10.5  # standard deviations that candidates cover
CANDIDATES_PER_DRAW = 16  # candidates for each number that is wanted: one in nine to seventeen is kept
MIN_DELTA = 1e-12  # delta, far above what draws leave wrong
MAX_CANDIDATES = 1 << 18  # candidates at a time, at most


@cache
def opendp() -> Any:
    """Return the library with its contributed code enabled; not all of its proofs are reviewed."""
    try:
        import opendp.prelude as library  # noqa: PLC0415 an extra
    except ImportError:
        raise StudyError("differential privacy needs an extra package; run pip install 'fedclust[dp]'") from None
    library.enable_features("contrib", "honest-but-curious")
    return library


@lru_cache(64)
def gaussian_measurement(scale: float) -> Any:
    """OpenDP's measurement: noise of a scale for whole numbers, priced by their Euclidean distance."""
    dp = opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*space, scale=scale)


def draw_gaussian_noise(count: int, scale: float) -> Ints:
    """Return independent draws; the scale is the standard deviation."""
    if not 1 <= scale <= MAX_NOISE_SCALE:
        raise StudyError(
            f"noise with a standard deviation of {scale:g} units is outside the range that can be drawn; choose "
            "another epsilon"
        )
    return (
        draw_by_rejection(count, scale)
        if count > MIN_BATCH_DRAWS
        else np.array(gaussian_measurement(scale)([0] * count), np.int64)
    )


def words(count: int) -> NDArray[np.uint64]:
    """Return random words of 64 bits."""
    return np.frombuffer(os.urandom(8 * count), np.uint64)


def are_below(first: NDArray[np.uint64], bound: Floats) -> Bools:
    """Whether numbers are below bounds of up to 2^64; where their first 64 bits leave that open, 64 more decide."""
    whole = np.floor(bound)
    found = np.asarray(first < whole)
    ties = np.flatnonzero(first == whole)
    found[ties] = words(len(ties)) < np.ldexp(bound[ties] - whole[ties], 64)
    return found


def draw_by_rejection(count: int, scale: float) -> Ints:
    """Draw the same by rejection, as many at a time as fit the cache."""
    bits = math.ceil(math.log2(CANDIDATE_REACH * scale)) + 1  # of a candidate with its sign
    found, left = [np.zeros(0, np.int64)], count
    while left > 0:
        tries = min(MAX_CANDIDATES, CANDIDATES_PER_DRAW * left + CANDIDATES_PER_DRAW)
        y = words(tries).view(np.int64) >> (64 - bits)
        x = y / scale
        kept = y[are_below(words(tries), np.ldexp(np.exp(-0.5 * x * x), 64))][:left]
        found.append(kept)
        left -= len(kept)
    return np.concatenate(found)
