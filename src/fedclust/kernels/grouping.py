"""Weighted Ward clustering of points and Leiden communities of graphs, with the same groups compiled or in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedclust.core.types import Array, Floats, Ints, Units
from fedclust.kernels import _backend, _groups_twin

_compiled: Any
try:
    from fedclust.kernels import _groups as _compiled
except ImportError:
    _compiled = _groups_twin


def ward(
    places: Array,
    weights: Array,
    scatter: Array,
    target: int,
    floor: float = 0.0,
    *,
    blur: bool = False,
    along: int = 0,
) -> tuple[Floats, Floats, Floats]:
    """Join the pair that adds least to the scatter, Wa Wb / (Wa + Wb) |a - b|^2, until `target` points are left.

    Then each point lighter than `floor`, the lightest first, joins what is cheapest for it; with `blur` so does one
    whose rows are all the same (scatter 0). The last `along` columns are averaged as the others are, and cost nothing.
    Returns places, weights and the scatter within each.

    >>> places, weights, scatter = ward(np.array([[0.0], [1.0], [9.0]]), np.ones(3), np.zeros(3), 2)
    >>> places.ravel().tolist(), weights.tolist(), scatter.tolist()
    ([0.5, 9.0], [2.0, 1.0], [0.5, 0.0])
    """
    own = tuple(np.array(array, np.float64, order="C") for array in (places, weights, scatter))
    left = _arithmetic().ward(*own, int(target), float(floor), bool(blur), int(along))
    return own[0][:left], own[1][:left], own[2][:left]


def leiden(start: Ints, to: Units, weight: Floats, resolution: float, seed: int) -> tuple[Units, float]:
    """Communities by modularity at a resolution, and that modularity.

    The neighbours of node v are to[start[v]:start[v + 1]]; each edge is there in both directions. Traag, Waltman and
    van Eck (2019), with a greedy refinement; the seed sets the order in which nodes are visited.

    >>> two_pairs = np.array([0, 1, 2, 3, 4]), np.array([1, 0, 3, 2], np.int32), np.ones(4)
    >>> leiden(*two_pairs, 1.0, 0)
    (array([0, 0, 1, 1], dtype=int32), 0.5)
    """
    labels = np.zeros(len(start) - 1, np.int32)
    return labels, _arithmetic().leiden(start, to, weight, resolution, seed, labels)


def _arithmetic() -> Any:
    return _compiled if _backend.backend() == "c" else _groups_twin
