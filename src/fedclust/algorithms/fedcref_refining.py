"""What a site makes of new models: clusters drawn anew (the paper's Algorithm 2), and whether anything still moves.

Refinement picks models one by one, each the best of the most rows that are left, until there are as many as clusters;
rows that remain go to the best of those picked. A model that is nobody's best picks nothing: there are then fewer
clusters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedclust.core.types import Array, Ints

STEADY = 0.1  # how much communities and isolated clusters may change, as a share
OVER = 3  # iterations


def refined(errors: Array, count: int) -> tuple[Ints, Ints]:
    """Clusters from errors (models, rows): which models were picked, and the pick (a place in that list) of each row.

    >>> errors = np.array([[1, 1, 9, 9, 9], [9, 9, 1, 9, 3], [2, 2, 8, 1, 2]])
    >>> [part.tolist() for part in refined(errors, 2)]
    [[0, 2], [0, 0, 1, 1, 1]]
    """
    rows = errors.shape[1]
    picked: list[int] = []
    labels = np.full(rows, -1, np.int64)
    free = np.ones(len(errors), bool)
    for _ in range(min(count, len(errors))):
        left = labels < 0
        if not left.any():
            break
        models = np.flatnonzero(free)
        best = models[errors[np.ix_(models, left)].argmin(axis=0)]
        votes = np.bincount(best, minlength=len(errors))
        winner = int(votes.argmax())
        labels[np.flatnonzero(left)[best == winner]] = len(picked)
        picked.append(winner)
        free[winner] = False
    left = labels < 0
    if left.any():
        labels[left] = errors[picked][:, left].argmin(axis=0)
    return np.array(picked, np.int64), labels


def agreement(before: Ints, after: Ints) -> float:
    """The share of rows that two clusterings put alike, under the best matching of their clusters (Hungarian).

    >>> agreement(np.array([0, 0, 1, 1]), np.array([5, 5, 5, 3]))
    0.75
    """
    if not len(before):
        return 1.0
    _, a = np.unique(before, return_inverse=True)
    _, b = np.unique(after, return_inverse=True)
    table = np.zeros((a.max() + 1, b.max() + 1), np.int64)
    np.add.at(table, (a, b), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(before))


def settled(history: Sequence[tuple[int, int]]) -> bool:
    """Whether communities and isolated clusters both changed by a tenth at most over three iterations.

    >>> settled([(10, 20), (10, 21), (10, 20)]), settled([(10, 20), (10, 24), (10, 20)])
    (True, False)
    """
    if len(history) < OVER:
        return False
    last = np.array(history[-OVER:], np.float64)
    return bool((np.ptp(last, axis=0) <= STEADY * np.maximum(last.max(axis=0), 1e-9)).all())
