"""What a site makes of new models: clusters drawn anew, which rows train next, and whether anything still moves.

Refinement picks models one by one, each the best of the most rows that are left, until there are as many as clusters
(the paper's Algorithm 2); then one picked is swapped for one that is not, as long as that lowers the mean over rows of
the logarithm of the best error. Each row goes to the best of those picked. A model that is nobody's best picks nothing:
there are then fewer clusters.

From the second time on, the cluster f that a row began in is heard as well, as far as it is a witness of its own:

    p(c | x)     of model c, in proportion to e_c(x)^-t
    p(f | c)     how often rows of model c began in cluster f
    k            how far nearest neighbours of one model began together, beyond chance, where models are sure
    label of x   argmax_c p(c | x) p(f(x) | c)^(1 - k)

with the t and the p(f | c) that make first clusters most likely (expectation maximisation). Errors of first clusters
that are noise say nothing (k = 0, and p(f | c) knows how many they are); those that all rows of a kind share would be
believed, and are not (k near 1). Without a word from the start, rows that two models do about equally well on wander,
models learn from where they went, and more wander with each iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedclust.core.types import Array, Bools, Ints

LEAST = 1e-12  # errors below it count as it
SLIGHT = 1e-6  # of the mean cost of a row: a smaller gain is none
STEADY = 0.1  # how much communities and isolated clusters may change, as a share
OVER = 3  # iterations
STEEP = np.geomspace(0.5, 128.0, 33)  # values of t that are tried
SWEEPS = 12  # of expectation maximisation
CLEAR = 0.8  # share of a model's rows by which first clusters are judged, those it is farthest ahead on
MOST = 500  # rows of a model whose neighbours are looked for
ROUNDING = 1e-6  # of the squares of lengths: nearer than this, two distances are one


def refined(errors: Array, count: int) -> tuple[Ints, Ints]:
    """Clusters from errors (models, rows): which models were picked, and the pick (a place in that list) of each row.

    Here the first and the last model are the best of two rows each; with the second for the last, no row does badly.

    >>> errors = np.array([[1, 1, 9, 9, 9], [9, 9, 1.1, 1.1, 1], [9, 9, 1, 1, 9]])
    >>> [part.tolist() for part in refined(errors, 2)]
    [[0, 1], [0, 0, 1, 1, 1]]
    """
    costs = np.log(np.maximum(errors, LEAST))
    picked = _bettered(costs, _by_votes(errors, count))
    best = costs[picked].argmin(axis=0)
    used, labels = np.unique(best, return_inverse=True)
    return np.array(picked, np.int64)[used], labels.astype(np.int64)


def _by_votes(errors: Array, count: int) -> list[int]:
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


def _bettered(costs: Array, picked: list[int]) -> list[int]:
    """Swap one model for another, the most useful swap first, as long as the rows' least costs add up to less."""
    least = float(costs[picked].min(axis=0).sum())
    while True:
        found = picked
        for place in range(len(picked)):
            rest = picked[:place] + picked[place + 1 :]
            others = costs[rest].min(axis=0) if rest else np.full(costs.shape[1], np.inf)
            for model in set(range(len(costs))) - set(picked):
                total = float(np.minimum(others, costs[model]).sum())
                if total < least - SLIGHT * costs.shape[1]:
                    least, found = total, [*picked[:place], model, *picked[place + 1 :]]
        if found is picked:
            return picked
        picked = found


def remembering(errors: Array, first: Ints, rows: Array) -> Ints:
    """The pick of each row from errors (picks, rows) and the cluster it began in; by errors alone if a pick gets none.

    The last row of each cluster is nearly as good with either model; where it began decides.

    >>> errors = np.array([[1, 1, 2, 9, 9, 2.1], [9, 9, 2.1, 1, 1, 2]])
    >>> remembering(errors, np.array([0, 0, 1, 1, 1, 0]), np.arange(6.0)[:, None]).tolist()
    [0, 0, 1, 1, 1, 0]
    """
    costs = np.log(np.maximum(errors, LEAST).astype(np.float64))
    costs -= costs.min(axis=0)
    alone = np.asarray(costs.argmin(axis=0), np.int64)
    if len(errors) < 2:
        return alone
    clear = sure(errors, alone, CLEAR)
    weight = 1.0 - echo(rows[clear], alone[clear], first[clear])
    share = np.asarray(alone == np.arange(len(errors))[:, None], np.float64)
    for _ in range(SWEEPS):
        began = _began(share, first)[first].T ** weight
        share = max((_shared(costs, began, steep) for steep in STEEP), key=lambda found: found[0])[1]
    found = np.asarray(share.argmax(axis=0), np.int64)
    return found if len(np.unique(found)) == len(errors) else alone


def _shared(costs: Array, began: Array, steep: float) -> tuple[float, Array]:
    """How likely first clusters are if errors count so much, and how far each row is each pick's."""
    by_errors = np.exp(-steep * costs)
    both = by_errors / by_errors.sum(axis=0) * began
    whole = both.sum(axis=0)
    return float(np.log(whole).sum()), both / whole


def echo(rows: Array, picks: Ints, first: Ints) -> float:
    """How far nearest neighbours of one pick began in one cluster, beyond chance: from 0 (noise) to 1.

    Four rows, each other's neighbours by pairs; by chance a row shares its first cluster with one of the three others.

    >>> rows, picks = np.array([[0.0], [1.0], [10.0], [11.0]]), np.zeros(4, int)
    >>> echo(rows, picks, np.array([0, 0, 1, 1])), echo(rows, picks, np.array([0, 1, 0, 1]))
    (1.0, 0.0)
    """
    agreed = chance = total = 0.0
    for pick in np.unique(picks):
        some = np.flatnonzero(picks == pick)
        some = some[np.linspace(0, len(some) - 1, min(len(some), MOST)).astype(np.int64)]
        if len(some) < 3:
            continue
        own = first[some]
        together = own[:, None] == own
        sizes = np.bincount(own)
        near = _nearest(np.asarray(rows[some], np.float32))
        agreed += float(((near & together).sum(axis=1) / near.sum(axis=1)).sum())
        chance += float((sizes * (sizes - 1)).sum()) / (len(some) - 1)
        total += len(some)
    return max((agreed - chance) / (total - chance), 0.0) if total - chance >= 1 else 0.0


def _nearest(rows: Array) -> Bools:
    """Which other rows are nearest to each: one as a rule, more where rows are alike.

    >>> _nearest(np.array([[0.0], [1.0], [2.0]], np.float32)).astype(int).tolist()
    [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    """
    lengths = (rows * rows).sum(axis=1)
    apart = np.maximum(lengths[:, None] + lengths - 2.0 * (rows @ rows.T), 0.0)
    np.fill_diagonal(apart, np.inf)
    return np.asarray(apart <= apart.min(axis=1, keepdims=True) + ROUNDING * np.maximum.outer(lengths, lengths))


def _began(share: Array, first: Ints) -> Array:
    """How often rows of each pick began in each cluster (clusters, picks), one row of doubt for each.

    >>> _began(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), np.array([0, 0, 1])).tolist()
    [[0.75, 0.3333333333333333], [0.25, 0.6666666666666666]]
    """
    counts = np.ones((int(first.max()) + 1, len(share)))
    np.add.at(counts, first, share.T)
    return np.asarray(counts / counts.sum(axis=0))


def sure(errors: Array, labels: Ints, share: float) -> Bools:
    """The rows that train next: of each cluster this share, those whose model is farthest ahead of the next best.

    A row that two models do equally well on may be either's; what models learn from it makes them more alike.
    `errors` are of the clusters' models (clusters, rows); a site of one cluster has no doubts.

    >>> errors = np.array([[1, 1, 1, 8, 9], [9, 2, 9, 1, 1]])
    >>> sure(errors, np.array([0, 0, 0, 1, 1]), 0.7).tolist()
    [True, False, True, False, True]
    """
    found = np.ones(len(labels), bool)
    if len(errors) < 2 or share >= 1:
        return found
    every = np.arange(len(labels))
    rest = errors.astype(np.float64)
    own = rest[labels, every]
    rest[labels, every] = np.inf
    ahead = own / np.maximum(rest.min(axis=0), LEAST)
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


def settled(history: Sequence[tuple[int, int]]) -> bool:
    """Whether communities and isolated clusters both changed by a tenth at most over three iterations.

    >>> settled([(10, 20), (10, 21), (10, 20)]), settled([(10, 20), (10, 24), (10, 20)])
    (True, False)
    """
    if len(history) < OVER:
        return False
    last = np.array(history[-OVER:], np.float64)
    return bool((np.ptp(last, axis=0) <= STEADY * np.maximum(last.max(axis=0), 1e-9)).all())
