"""How a site uses new models: it forms clusters, selects rows for training, and checks whether clusters still change.

Refinement picks models one by one. Each pick is the best model of the most remaining rows, until there are as many
picks as clusters (the paper's Algorithm 2). Then a picked model is swapped for another one as long as that lowers the
mean over rows of the logarithm of the best error. Each row goes to the best picked model. A model that is the best one
for no row gets no cluster, so there may be fewer clusters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedclust.core.types import Array, Bools, Ints

MIN_ERROR = 1e-12  # errors below it count as it
MIN_SWAP_GAIN = 1e-6  # of the mean cost of a row: a smaller gain is none
MAX_RELATIVE_CHANGE = 0.1  # how much communities and isolated clusters may change, as a share
SETTLED_ITERATIONS = 3  # iterations


def pick_models(errors: Array, count: int) -> tuple[Ints, Ints]:
    """Clusters from errors (models, rows): which models were picked, and the pick (a place in that list) of each row.

    Here the first and the last model are the best of two rows each; with the second for the last, no row does badly.

    >>> errors = np.array([[1, 1, 9, 9, 9], [9, 9, 1.1, 1.1, 1], [9, 9, 1, 1, 9]])
    >>> [part.tolist() for part in pick_models(errors, 2)]
    [[0, 1], [0, 0, 1, 1, 1]]
    """
    costs = np.log(np.maximum(errors, MIN_ERROR))
    picked = _improve_by_swaps(costs, _pick_by_votes(errors, count))
    best = costs[picked].argmin(axis=0)
    used, labels = np.unique(best, return_inverse=True)
    return np.array(picked, np.int64)[used], labels.astype(np.int64)


def _pick_by_votes(errors: Array, count: int) -> list[int]:
    """The paper's Algorithm 2: again and again the model that is the best of most of the rows not yet taken."""
    left = np.ones(errors.shape[1], bool)
    free = np.ones(len(errors), bool)
    picked: list[int] = []
    while len(picked) < min(count, len(errors)) and left.any():
        models = np.flatnonzero(free)
        best = models[errors[models].argmin(axis=0)]
        winner = int(np.bincount(best[left], minlength=len(errors)).argmax())
        left &= best != winner
        picked.append(winner)
        free[winner] = False
    return picked


def _improve_by_swaps(costs: Array, picked: list[int]) -> list[int]:
    """Swap one model for another, the most useful swap first, as long as the rows' least costs add up to less."""
    least = float(costs[picked].min(axis=0).sum())
    while True:
        found = picked
        for place in range(len(picked)):
            rest = picked[:place] + picked[place + 1 :]
            others = costs[rest].min(axis=0) if rest else np.full(costs.shape[1], np.inf)
            for model in set(range(len(costs))) - set(picked):
                total = float(np.minimum(others, costs[model]).sum())
                if total < least - MIN_SWAP_GAIN * costs.shape[1]:
                    least, found = total, [*picked[:place], model, *picked[place + 1 :]]
        if found is picked:
            return picked
        picked = found


def clear_rows(errors: Array, labels: Ints, share: float) -> Bools:
    """The rows that train next: of each cluster this share, those whose model is farthest ahead of the next best.

    A row that two models do equally well on may be either's; what models learn from it makes them more alike.
    `errors` are of the clusters' models (clusters, rows); a site of one cluster has no doubts.

    >>> errors = np.array([[1, 1, 1, 8, 9], [9, 2, 9, 1, 1]])
    >>> clear_rows(errors, np.array([0, 0, 0, 1, 1]), 0.7).tolist()
    [True, False, True, False, True]
    """
    found = np.ones(len(labels), bool)
    if len(errors) < 2 or share >= 1:
        return found
    every = np.arange(len(labels))
    rest = errors.astype(np.float64)
    own = rest[labels, every]
    rest[labels, every] = np.inf
    ahead = own / np.maximum(rest.min(axis=0), MIN_ERROR)
    for cluster in range(len(errors)):
        rows = np.flatnonzero(labels == cluster)
        if len(rows):
            found[rows] = ahead[rows] <= np.quantile(ahead[rows], share)
    return found


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


def has_settled(history: Sequence[tuple[int, int]]) -> bool:
    """Whether communities and isolated clusters both changed by a tenth at most over three iterations.

    >>> has_settled([(10, 20), (10, 21), (10, 20)]), has_settled([(10, 20), (10, 24), (10, 20)])
    (True, False)
    """
    if len(history) < SETTLED_ITERATIONS:
        return False
    last = np.array(history[-SETTLED_ITERATIONS:], np.float64)
    return bool((np.ptp(last, axis=0) <= MAX_RELATIVE_CHANGE * np.maximum(last.max(axis=0), 1e-9)).all())
