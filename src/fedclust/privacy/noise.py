"""Whole numbers drawn from the discrete Gaussian, by OpenDP, from the operating system's randomness."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np

from fedclust.core.errors import StudyError
from fedclust.core.types import Ints

MOST = 2.0**58  # a standard deviation that 64 bits hold


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
    return np.array(gaussian(scale)([0] * count), np.int64)
