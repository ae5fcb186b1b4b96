"""Normal numbers from uniform ones by Marsaglia's polar method, because NumPy's take logarithms from the C library."""

from __future__ import annotations

import math

import numpy as np

from fedclust.core.types import Floats
from fedclust.kernels import elementary


def draw_normals(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Standard normal numbers, the same on every processor.

    >>> drawn = draw_normals(np.random.default_rng(0), (1000, 100))
    >>> round(float(drawn.mean()), 2), round(float(drawn.std()), 2)
    (0.0, 1.0)
    """
    count = math.prod(shape)
    found = np.empty(0)
    while len(found) < count:
        pairs = 2.0 * rng.random((count - len(found) + 1, 2)) - 1.0  # of these about pi / 4 lie within the circle
        squares = pairs[:, 0] * pairs[:, 0] + pairs[:, 1] * pairs[:, 1]
        within = (squares > 0) & (squares < 1)
        lengths = np.sqrt(-2.0 * elementary.log(squares[within]) / squares[within])
        found = np.concatenate([found, (pairs[within] * lengths[:, None]).ravel()])
    return found[:count].reshape(shape)
