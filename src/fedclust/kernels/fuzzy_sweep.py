"""One sweep of fuzzy c-means: every row belongs to each centre by u = 1 / sum_l (d2_c / d2_l)^(1/(m-1)).

Computed from r_c = dmin / d2_c, w_c = r_c^(1/(m-1)), S = sum w: u = w / S and u^m = (w r) S^-m. A row on a centre has
r = 1 there and 0 elsewhere, so it needs no case of its own.
"""

from __future__ import annotations

import numpy as np

from fedclust.core.types import Array, Floats
from fedclust.kernels import _backend
from fedclust.kernels.distances import for_row_ranges
from fedclust.kernels.exact_sums import FUZZY, Blocks, Sums, sweep


def accumulate(sums: Sums, blocks: Blocks, centers: Floats, m: float) -> None:
    """Add rows to the sums: mass sum u^m, pull sum u^m x, objective sum u^m d2.

    >>> sums = Sums.zeros(np.full(2, -4), np.full((2, 1), -4), -4)
    >>> accumulate(sums, np.array([[1.0]]), np.array([[0.0], [2.0]]), m=2.0)
    >>> (sums.mass[:, 0] / 16).tolist(), (sums.objective[0] / 16).item()
    ([0.25, 0.25], 0.5)
    """
    sweep(FUZZY, sums, blocks, centers, m)


def memberships(block: Array, centers: Floats, m: float) -> Floats:
    """Memberships u (C, n) of a block (F, n) for centres (C, F)."""
    centers = np.ascontiguousarray(centers, np.float64)
    out = np.empty((len(centers), block.shape[1]))
    for_row_ranges(block, centers, lambda rows: _backend.active.memberships(block[:, rows], centers, m, out[:, rows]))
    return out


def memberships_from_distances(d2: Array, m: float) -> Floats:
    """Memberships u (C, n) from squared distances (C, n)."""
    out = np.empty(d2.shape)
    _backend.active.memberships(d2, None, m, out)
    return out


def weights_from_distances(d2: Array, m: float) -> Floats:
    """u^m (C, n) from squared distances (C, n), by the sweep's own operations."""
    out = np.empty(d2.shape)
    _backend.active.weights(d2, None, m, out)
    return out
