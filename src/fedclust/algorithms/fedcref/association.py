"""Which clusters of different sites are one: from how well each site's models reconstruct the others' rows.

E_a(x) is the error of model a on row x. Three rules:

    win     W[a, b] = share of the rows x of b with E_a(x)^2 < E_b(x) min {E_c(x): c another cluster of b's site}, on
            which a comes nearer to b's own model than to its best rival; D = 1 - min(W, W^T); average linkage that
            never joins two clusters of one site; of its levels the one with the largest mean silhouette on D, where
            lone clusters count 0; then a cluster that its community fits badly is let go again
    rival   W[a, b] = share of the rows with E_a(x) < min {E_c(x)}, and no model is dropped
    paper   |E_b(x) - E_a(x)| over the rows of b, scaled to [0, 1]; linked where the 75th percentile is below .2 both
            ways; communities are connected components of two clusters or more

A site finds its own columns of W (`wins`) or of the percentiles (`gaps`); the rest needs no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fedclust.algorithms.shared.fixed_order import matrix_product
from fedclust.core.types import Array, Floats, Ints, PartyId

GAP_PERCENTILE = 75.0
THETA = 0.2
WIN_FACTOR = 1.5  # times a cluster's own error: what passes for as good where nothing is known to be different


def win_shares(
    errors: Mapping[PartyId, NDArray[np.float32]], labels: Ints, party: PartyId, *, near: bool = True
) -> dict[PartyId, Floats]:
    """For each party the share W (its models, clusters here) of this party's rows that its models win.

    `errors` holds each party's errors (models, rows here). Rivals are the models of this site's other clusters. A site
    of one cluster has none; but of any other site's models at most one can be that cluster's, so all but the best of
    each are known to be others. Where no site has two, a model wins a row if its error is below 1.5 times the own.
    `near` sets the bar at the geometric mean of the own error and the best rival's, else it is the rival's.
    """
    own = errors[party]
    count = len(own)
    shares = {sender: np.zeros((len(e), count)) for sender, e in errors.items()}
    for b in range(count):
        rows = labels == b
        if not rows.any():
            continue
        rivals = _rival_errors(errors, rows, party, b)
        mine = own[b, rows]
        bar = WIN_FACTOR * mine if rivals is None else np.sqrt(mine * rivals) if near else rivals
        for sender, e in errors.items():
            shares[sender][:, b] = (e[:, rows] < bar).mean(axis=1)
    return shares


def _rival_errors(errors: Mapping[PartyId, NDArray[np.float32]], rows: Array, party: PartyId, b: int) -> Array | None:
    """The least error of models known to stand for other clusters than b, row by row; None where none is known."""
    own = errors[party]
    if len(own) > 1:
        return np.asarray(np.delete(own[:, rows], b, axis=0).min(axis=0))
    known = []
    for other, e in errors.items():
        if other != party and len(e) > 1:
            theirs = e[:, rows]
            known.append(np.delete(theirs, int(theirs.mean(axis=1).argmin()), axis=0).min(axis=0))
    return np.min(known, axis=0) if known else None


def error_gaps(
    errors: Mapping[PartyId, NDArray[np.float32]], labels: Ints, party: PartyId, percentile: float = GAP_PERCENTILE
) -> dict[PartyId, Floats]:
    """For each party the percentile (its models, clusters here) of the scaled differences to the own errors."""
    own = errors[party]
    found = {sender: np.ones((len(e), len(own))) for sender, e in errors.items()}
    for b in range(len(own)):
        rows = labels == b
        if not rows.any():
            continue
        for sender, e in errors.items():
            apart = np.abs(own[b, rows] - e[:, rows]).astype(np.float64)
            low, high = apart.min(axis=1, keepdims=True), apart.max(axis=1, keepdims=True)
            scaled = (apart - low) / np.where(high > low, high - low, 1.0)
            found[sender][:, b] = np.percentile(scaled, percentile, axis=1)
    return found


def join_tables(tables: Mapping[PartyId, Mapping[PartyId, Floats]], parties: Sequence[PartyId]) -> tuple[Floats, Ints]:
    """One matrix (models, clusters) over all parties from the columns each party found, and whose cluster each is."""
    blocks = [[tables[reader][sender] for reader in parties] for sender in parties]
    owner = np.repeat(np.arange(len(parties)), [tables[p][p].shape[1] for p in parties])
    return np.block(blocks), owner.astype(np.int64)


def find_communities(W: Floats, owner: Ints) -> Ints:
    """The community of each cluster by wins, from 0 on; -1 for an isolated one."""
    D = win_distances(W)
    best, found = 0.0, np.arange(len(D))
    for labels in levels(D, owner):
        score = silhouette(D, labels)
        if score > best:
            best, found = score, labels
    return _number_communities(found)


def drop_misfits(W: Floats, labels: Ints) -> Ints:
    """Communities without the clusters that lie nearer to having nothing in common than to what is usual.

    A cluster's distance is its mean 1 - min(W, W^T) to the others of its community, usual is the median of those; the
    farthest goes first, and whoever is left alone goes too.

    >>> W = np.array([[0, 0.9, 0.1, 0], [0.9, 0, 0.1, 0], [0.1, 0.1, 0, 0], [0, 0, 0, 0]])
    >>> drop_misfits(W, np.array([0, 0, 0, -1])).tolist()
    [0, 0, -1, -1]
    """
    D, labels = win_distances(W), labels.copy()
    if not (labels >= 0).any():
        return labels
    usual = float(np.nanmedian(_distance_within_community(D, labels)))
    while True:
        far = np.nan_to_num(_distance_within_community(D, labels), nan=0.0)
        if far.max() <= (1.0 + usual) / 2:
            return labels
        labels[int(far.argmax())] = -1
        labels = _number_communities(np.where(labels < 0, len(labels) + np.arange(len(labels)), labels))


def win_distances(W: Floats) -> Floats:
    """Distances from shares of wins."""
    D = 1.0 - np.minimum(W, W.T)
    np.fill_diagonal(D, 0.0)
    return np.asarray(D, np.float64)


def _distance_within_community(D: Floats, labels: Ints) -> Floats:
    """The mean distance of each cluster to the others of its community; NaN for an isolated one."""
    same = (labels[:, None] == labels) & (labels >= 0)
    count = same.sum(axis=1) - 1.0
    return np.asarray(np.where(count > 0, (D * same).sum(axis=1) / np.maximum(count, 1), np.nan), np.float64)


def levels(D: Floats, owner: Ints) -> list[Ints]:
    """The partitions of average linkage that never joins two clusters of one owner, from single clusters upwards.

    >>> D = np.array([[0, 9, 1, 8], [9, 0, 8, 2], [1, 8, 0, 9], [8, 2, 9, 0]]) / 10
    >>> [level.tolist() for level in levels(D, np.array([0, 0, 1, 1]))]
    [[0, 1, 0, 3], [0, 1, 0, 1]]
    """
    count = len(D)
    sums = D.copy()
    held = np.ones(count)
    apart = owner[:, None] == owner[None, :]
    labels, alive = np.arange(count), np.ones(count, bool)
    found: list[Ints] = []
    while True:
        mean = np.where(apart | ~alive[:, None] | ~alive[None, :], np.inf, sums / (held[:, None] * held))
        a, b = sorted(divmod(int(mean.argmin()), count))
        if not np.isfinite(mean[a, b]):
            return found
        sums[a] += sums[b]
        sums[:, a] += sums[:, b]
        held[a] += held[b]
        apart[a] |= apart[b]
        apart[:, a] |= apart[:, b]
        alive[b] = False
        labels = np.where(labels == b, a, labels)
        found.append(labels)


def silhouette(D: Floats, labels: Ints) -> float:
    """The mean silhouette on distances D within [0, 1]; lone clusters count 0; where all are one, others lie at 1.

    >>> round(silhouette(np.array([[0, 0.2, 0.8], [0.2, 0, 0.9], [0.8, 0.9, 0]]), np.array([0, 0, 1])), 4)
    0.5093
    """
    _, at = np.unique(labels, return_inverse=True)
    member = np.eye(at.max() + 1)[at]
    size = member.sum(axis=0)
    sums = matrix_product(D, member)
    within = sums[np.arange(len(D)), at] / np.maximum(size[at] - 1, 1)
    means = np.where(member > 0, np.inf, sums / size)
    nearest = means.min(axis=1) if len(size) > 1 else np.ones(len(D))
    widest = np.maximum(np.maximum(within, nearest), np.finfo(float).tiny)
    return float(np.where(size[at] > 1, (nearest - within) / widest, 0.0).mean())


def link_by_percentile(percentiles: Floats, owner: Ints, theta: float = THETA) -> Ints:
    """The community of each cluster by the paper's rule, from 0 on; -1 for an isolated one."""
    both = (percentiles < theta) & (theta > percentiles.T) & (owner[:, None] != owner[None, :])
    return _number_communities(connected_components(both, directed=False)[1].astype(np.int64))


def _number_communities(labels: Ints) -> Ints:
    """Communities of two or more in the order of their first cluster; the others are isolated."""
    names, first, at, size = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    number = np.full(len(names), -1, np.int64)
    shared = np.flatnonzero(size > 1)
    number[shared[np.argsort(first[shared], kind="stable")]] = np.arange(len(shared))
    return number[at]
