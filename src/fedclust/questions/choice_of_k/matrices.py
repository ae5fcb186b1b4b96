"""Cholesky factors of many small matrices, in one order of operations, so that the bits are the same on any processor.

The choice of K compares covariances of at most ten axes; there are many of them, so loops run over rows and columns of
the matrices and each operation is on all matrices.
"""

from __future__ import annotations

import numpy as np

from fedclust.core.types import Floats
from fedclust.kernels import elementary

SMALLEST_PIVOT = 1e-300


def pivots(matrices: Floats) -> Floats:
    """The pivots (..., q) of symmetric elimination; a pivot that is not positive counts as tiny.

    >>> pivots(np.array([[4.0, 2.0], [2.0, 3.0]])).tolist()
    [4.0, 2.0]
    """
    rest = matrices.copy()
    size = rest.shape[-1]
    out = np.empty(rest.shape[:-1])
    for j in range(size):
        out[..., j] = np.maximum(rest[..., j, j], SMALLEST_PIVOT)
        row = rest[..., j, j + 1 :]
        rest[..., j + 1 :, j + 1 :] -= rest[..., j + 1 :, j, None] * (row / out[..., j, None])[..., None, :]
    return out


def log_determinants(matrices: Floats) -> Floats:
    """The logarithm of the determinant of each symmetric positive matrix (..., q, q).

    >>> log_determinants(np.array([[4.0, 2.0], [2.0, 3.0]])).round(6).tolist()  # log 8
    2.079442
    """
    logs = elementary.log(pivots(matrices))
    out = np.zeros(logs.shape[:-1])
    for j in range(logs.shape[-1]):
        out += logs[..., j]
    return out


def inverse_roots(matrices: Floats) -> Floats:
    """For each symmetric positive matrix A the lower triangle W with W A W^T = 1.

    >>> inverse_roots(np.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[0.5, 0.0], [-0.25, 0.5]]
    """
    size = matrices.shape[-1]
    root = np.zeros_like(matrices)
    rest = matrices.copy()
    for j in range(size):
        root[..., j, j] = np.sqrt(np.maximum(rest[..., j, j], SMALLEST_PIVOT))
        root[..., j + 1 :, j] = rest[..., j + 1 :, j] / root[..., j, j, None]
        rest[..., j + 1 :, j + 1 :] -= root[..., j + 1 :, j, None] * root[..., None, j + 1 :, j]
    out = np.zeros_like(matrices)
    for j in range(size):
        row = np.zeros_like(matrices[..., j])
        row[..., j] = 1.0
        for i in range(j):
            row -= root[..., j, i, None] * out[..., i, :]
        out[..., j, :] = row / root[..., j, j, None]
    return out


def transform(matrices: Floats, vectors: Floats) -> Floats:
    """Each matrix (..., p, q) times its vector (..., q)."""
    out = np.zeros(np.broadcast_shapes(matrices.shape[:-1], (*vectors.shape[:-1], 1)))
    for j in range(matrices.shape[-1]):
        out += matrices[..., j] * vectors[..., j, None]
    return out


def squared_lengths(vectors: Floats) -> Floats:
    """The squared length of each vector (..., q)."""
    out = np.zeros(vectors.shape[:-1])
    for j in range(vectors.shape[-1]):
        out += vectors[..., j] * vectors[..., j]
    return out


def inner_products(one: Floats, other: Floats) -> Floats:
    """The inner product of vectors (..., q)."""
    out = np.zeros(np.broadcast_shapes(one.shape, other.shape)[:-1])
    for j in range(one.shape[-1]):
        out += one[..., j] * other[..., j]
    return out


def multiply(one: Floats, other: Floats) -> Floats:
    """The products of matrices (..., p, q) and (..., q, r)."""
    shape = np.broadcast_shapes(one.shape[:-2], other.shape[:-2])
    out = np.zeros((*shape, one.shape[-2], other.shape[-1]))
    for j in range(one.shape[-1]):
        out += one[..., :, j, None] * other[..., None, j, :]
    return out
