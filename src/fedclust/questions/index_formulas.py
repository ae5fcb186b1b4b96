"""Formulas that compute indices from sums; they need neither rows nor sites."""

from __future__ import annotations

import math

import numpy as np

from fedclust.core.types import Floats
from fedclust.kernels import elementary


def root(values: Floats, p: float) -> Floats:
    """The p-th root of non-negative numbers, the same bits everywhere."""
    if p == 1:
        return values
    return np.sqrt(values) if p == 2 else elementary.power(values, 1 / p)


def raise_power(values: Floats, p: float) -> Floats:
    """The p-th power of non-negative numbers, the same bits everywhere."""
    if p == 1:
        return values
    return values * values if p == 2 else elementary.power(values, p)


def davies_bouldin(spread: Floats, apart: Floats) -> float:
    """Davies and Bouldin's index: the mean over i of max_{j != i} (S_i + S_j) / M_ij; infinite where centres coincide.

    >>> davies_bouldin(np.array([1.0, 1.0, 2.0]), np.array([[0.0, 4, 8], [4, 0, 4], [8, 4, 0]]))
    0.6666666666666666
    """
    both = spread[:, None] + spread
    ratio = np.divide(both, apart, out=np.full(both.shape, np.inf), where=apart > 0)
    np.fill_diagonal(ratio, -np.inf)
    return exact_mean(ratio.max(axis=1))


def fuzzy_spread(members: Floats, distances: Floats, rows: int, q: float) -> Floats:
    """Paper 2, Eqs. 12 and 13: S_i = mean_j(u_ij) * mean_j(|x_j - c_i|^q)^(1/q), over all rows."""
    return members / rows * root(distances / rows, q)


def xie_beni(compactness: float, rows: int, apart2: Floats) -> float:
    """The ratio of sum u^m d^2 to N min |v_i - v_j|^2; infinite where two centres coincide."""
    least = float(apart2[~np.eye(len(apart2), dtype=bool)].min())
    return compactness / (rows * least) if least > 0 else math.inf


def calinski_harabasz(sizes: Floats, from_mean2: Floats, within: float) -> float:
    """The ratio of sum n_k |w_k - w|^2 / (K - 1) to sum |x - w_k|^2 / (N - K); infinite where the latter is 0."""
    clusters, rows = len(sizes), float(sizes.sum())
    between = math.fsum((sizes * from_mean2).tolist())
    return between * (rows - clusters) / (within * (clusters - 1)) if within > 0 else math.inf


def powers_between(points: Floats, others: Floats, p: float = 2.0) -> Floats:
    """The sum of |difference|^p over columns, of each point to each other, rounded once."""
    terms = raise_power(np.abs(points[:, None] - others), p)
    return np.array([[math.fsum(pair.tolist()) for pair in row] for row in terms])


def exact_mean(values: Floats) -> float:
    """A mean whose sum is rounded once."""
    return math.fsum(values.tolist()) / len(values)
