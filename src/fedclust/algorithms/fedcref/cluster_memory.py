"""How a site uses the cluster in which each row began, once models have formed other clusters.

The first cluster f of a row counts as far as it is independent evidence:

    p(c | x)     of pick c, the softmax over c of -t log e_c(x) + w_c . z(x)
    z(x)         logarithms of all models' errors, less their mean over models, centred and of spread 1 over rows; and 1
    p(f | c)     how often rows of pick c began in cluster f
    k            how often nearest neighbours of one pick began together, beyond chance, where models are sure
    label of x   argmax_c p(c | x) p(f(x) | c)^(1 - k)

with the t, then for that t the w (shrunk to 0) and the p(f | c) that make first clusters most likely (expectation
maximisation). Random errors of first clusters do no harm (k = 0, and p(f | c) contains their rate). Errors that all
rows of a class share would mislead, so first clusters then hardly count (k near 1). Without first clusters, rows on
which two models do about equally well change clusters, models train on these rows, and more rows change each time.

The w correct for models that are better than others, and also use models that were not picked: a high error of a third
model can separate two classes. They stay 0 where models predict first clusters hardly better than chance, and where
rows with similar errors began together: the w would then learn the errors of a clustering.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from fedclust.algorithms.fedcref.refining import MIN_ERROR, clear_rows
from fedclust.core.types import Array, Bools, Floats, Ints

STEEPNESS_GRID = np.geomspace(0.5, 128.0, 33)  # values of t that are tried
EM_SWEEPS = 12  # of expectation maximisation
CLEAR_FRACTION = 0.8  # share of a model's rows by which first clusters are judged, those it is farthest ahead on
MAX_NEIGHBOR_ROWS = 500  # rows of a model whose neighbours are looked for
NEAREST_TOLERANCE = 1e-6  # of the squares of lengths: nearer than this, two distances are one
MIN_LIKELIHOOD_GAIN = (
    10.0  # log-likelihood gain of first clusters over chance that models must give before the w are learned
)
MAX_NEIGHBOR_AGREEMENT = 0.2  # the most that neighbours in z may have begun together for that
DESCENT_STEPS = 15  # of descent for the w in a sweep


def relabel_with_memory(errors: Array, picked: Ints, first: Ints, rows: Array) -> Ints:
    """The pick (a place in `picked`) of each row from errors (models, rows) and the cluster it began in.

    By errors alone if a pick gets no row. The last row of each cluster is nearly as good with either model; where it
    began decides.

    >>> errors = np.array([[1, 1, 2, 9, 9, 2.1], [9, 9, 2.1, 1, 1, 2]])
    >>> relabel_with_memory(errors, np.array([0, 1]), np.array([0, 0, 1, 1, 1, 0]), np.arange(6.0)[:, None]).tolist()
    [0, 0, 1, 1, 1, 0]
    """
    costs = np.log(np.maximum(errors, MIN_ERROR).astype(np.float64))
    own = costs[picked]
    alone = np.asarray(own.argmin(axis=0), np.int64)
    if len(picked) < 2:
        return alone
    clear = clear_rows(errors[picked], alone, CLEAR_FRACTION)
    weight = 1.0 - neighbor_agreement(rows[clear], alone[clear], first[clear])
    share = np.asarray(alone == np.arange(len(picked))[:, None], np.float64)
    for _ in range(EM_SWEEPS):
        began = _first_cluster_shares(share, first)[first].T ** weight
        likely, share, steep = max(
            ((*_posterior_shares(-t * own, began)[:2], t) for t in STEEPNESS_GRID), key=lambda tried: tried[0]
        )
    found = [share]
    chance = (len(picked) - 1) * int(first.max())  # a logarithm of as much as half of it is gained by chance
    z = _standardized_costs(costs)
    if (
        likely - weight * _chance_log_likelihood(first) > MIN_LIKELIHOOD_GAIN + chance
        and neighbor_agreement(z.T[clear], alone[clear], first[clear]) < MAX_NEIGHBOR_AGREEMENT
    ):
        found.insert(0, _fit_corrections(-steep * own, z, share, first, weight))
    labels = (np.asarray(share.argmax(axis=0), np.int64) for share in found)
    return next((own for own in labels if len(np.unique(own)) == len(picked)), alone)


def _fit_corrections(by_errors: Floats, z: Floats, share: Floats, first: Ints, weight: float) -> Floats:
    """How far each row is each pick's, with the w that make first clusters most likely."""
    w = np.zeros(len(by_errors) * len(z))
    for _ in range(EM_SWEEPS):
        began = _first_cluster_shares(share, first)[first].T ** weight
        w = minimize(
            _penalized_loss, w, (by_errors, z, began), "L-BFGS-B", jac=True, options={"maxiter": DESCENT_STEPS}
        ).x
        share = _posterior_shares(by_errors + w.reshape(-1, len(z)) @ z, began)[1]
    return share


def _penalized_loss(flat: Floats, by_errors: Floats, z: Floats, began: Floats) -> tuple[float, Floats]:
    """How unlikely first clusters are with these w, drawn to 0 the more strongly the more there are, and its slope."""
    w = flat.reshape(-1, len(z))
    likely, share, by_scores = _posterior_shares(by_errors + w @ z, began)
    slope = len(z) * w - (share - by_scores) @ z.T
    return len(z) / 2 * float((w * w).sum()) - likely, slope.ravel()


def _posterior_shares(scores: Floats, began: Floats) -> tuple[float, Floats, Floats]:
    """How likely first clusters are with these scores of picks; how far each row is each pick's, with and without them.

    >>> likely, share, by_scores = _posterior_shares(np.log([[1.0], [3.0]]), np.array([[0.8], [0.4]]))
    >>> round(float(np.exp(likely)), 6), share.round(6).tolist(), by_scores.round(6).tolist()
    (0.5, [[0.4], [0.6]], [[0.25], [0.75]])
    """
    raised = np.exp(scores - scores.max(axis=0))
    by_scores = raised / raised.sum(axis=0)
    both = by_scores * began
    whole = both.sum(axis=0)
    return float(np.log(whole).sum()), both / whole, by_scores


def _standardized_costs(costs: Floats) -> Floats:
    """Costs less their mean over models, centred and of spread one over rows, of models without fault; and ones.

    >>> _standardized_costs(np.array([[0.0, 4.0], [2.0, 2.0], [np.inf, 0.0]])).tolist()
    [[-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]
    """
    costs = costs[np.isfinite(costs).all(axis=1)]
    apart = costs - costs.mean(axis=0)
    apart -= apart.mean(axis=1, keepdims=True)
    return np.vstack([apart / np.maximum(apart.std(axis=1, keepdims=True), MIN_ERROR), np.ones(costs.shape[1])])


def _chance_log_likelihood(first: Ints) -> float:
    """The log-likelihood of the first clusters if no model predicts them.

    >>> round(float(np.exp(_chance_log_likelihood(np.array([0, 2, 2, 2])))), 6)  # 1/4 * (3/4)^3
    0.105469
    """
    sizes = np.bincount(first)
    return float(np.log(sizes[first] / len(first)).sum())


def neighbor_agreement(rows: Array, picks: Ints, first: Ints) -> float:
    """How far nearest neighbours of one pick began in one cluster, beyond chance: from 0 (noise) to 1.

    Four rows, each other's neighbours by pairs; by chance a row shares its first cluster with one of the three others.

    >>> rows, picks = np.array([[0.0], [1.0], [10.0], [11.0]]), np.zeros(4, int)
    >>> neighbor_agreement(rows, picks, np.array([0, 0, 1, 1])), neighbor_agreement(rows, picks, np.array([0, 1, 0, 1]))
    (1.0, 0.0)
    """
    agreed = chance = total = 0.0
    for pick in np.unique(picks):
        some = np.flatnonzero(picks == pick)
        some = some[np.linspace(0, len(some) - 1, min(len(some), MAX_NEIGHBOR_ROWS)).astype(np.int64)]
        if len(some) < 3:
            continue
        own = first[some]
        together = own[:, None] == own
        sizes = np.bincount(own)
        near = _nearest_rows(np.asarray(rows[some], np.float32))
        agreed += float(((near & together).sum(axis=1) / near.sum(axis=1)).sum())
        chance += float((sizes * (sizes - 1)).sum()) / (len(some) - 1)
        total += len(some)
    return max((agreed - chance) / (total - chance), 0.0) if total - chance >= 1 else 0.0


def _nearest_rows(rows: Array) -> Bools:
    """Which other rows are nearest to each: one as a rule, more where rows are alike.

    >>> _nearest_rows(np.array([[0.0], [1.0], [2.0]], np.float32)).astype(int).tolist()
    [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    """
    lengths = (rows * rows).sum(axis=1)
    apart = np.maximum(lengths[:, None] + lengths - 2.0 * (rows @ rows.T), 0.0)
    np.fill_diagonal(apart, np.inf)
    return np.asarray(
        apart <= apart.min(axis=1, keepdims=True) + NEAREST_TOLERANCE * np.maximum.outer(lengths, lengths)
    )


def _first_cluster_shares(share: Array, first: Ints) -> Array:
    """How often rows of each pick began in each cluster (clusters, picks), one row of doubt for each.

    >>> _first_cluster_shares(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), np.array([0, 0, 1])).tolist()
    [[0.75, 0.3333333333333333], [0.25, 0.6666666666666666]]
    """
    counts = np.ones((int(first.max()) + 1, len(share)))
    np.add.at(counts, first, share.T)
    return np.asarray(counts / counts.sum(axis=0))
