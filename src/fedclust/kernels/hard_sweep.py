"""One sweep of hard c-means: every row belongs to its nearest centre."""

from __future__ import annotations

import numpy as np

from fedclust.core.types import Array, Floats, Units
from fedclust.kernels import _backend
from fedclust.kernels.exact_sums import HARD, Blocks, Sums, sweep


def accumulate(sums: Sums, blocks: Blocks, centers: Floats) -> None:
    """Add rows to the sums: mass counts a cluster's rows, pull adds them up, objective adds their squared distances.

    >>> sums = Sums.zeros(np.zeros(1, np.int32), np.zeros((1, 1), np.int32), 0)
    >>> accumulate(sums, np.array([[1.0, 3.0]]), np.array([[2.0]]))
    >>> sums.mass[0, 0].item(), sums.pull[0, 0, 0].item(), sums.objective[0].item()
    (2, 4, 2)
    """
    sweep(HARD, sums, blocks, centers, 1.0)


def labels_from_distances(d2: Array) -> Units:
    """The nearest centre of each row from squared distances (C, n), the lowest index among equals."""
    labels, least = np.empty(d2.shape[1], np.int32), np.empty(d2.shape[1])
    _backend.active.nearest(d2, None, labels, least)
    return labels
