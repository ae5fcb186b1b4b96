"""Linear algebra that rounds alike on every processor: sums in one order, no BLAS, no LAPACK, no fused operations.

The coordinator computes initial centres with it, so that they have the same bits wherever it runs.
"""

from __future__ import annotations

import numpy as np

from fedclust.core.types import Array, Floats, Ints

SQUARINGS = 10  # a matrix to the power of 1024: axes of nearly equal variance mix, and any mixture of them will do
ROUNDING_FRACTION = 1e-11  # of the whole variance: what is left below this is rounding
DEPENDENT_FRACTION = 1e-9  # of a vector's length: what is left of it below this depends on the vectors before it


def ordered_sum(values: Array, axis: int = -1) -> Floats:
    """Sum along an axis, one number after the other.

    >>> float(ordered_sum(np.array([0.5, 0.25, 1.0]))), ordered_sum(np.zeros((2, 0))).tolist()
    (1.75, [0.0, 0.0])
    """
    if not values.shape[axis]:
        return np.zeros(np.delete(np.array(values.shape), axis))
    return np.asarray(np.take(np.cumsum(values, axis=axis), -1, axis=axis), np.float64)


def smallest_places(values: Floats, count: int) -> Ints:
    """Where the smallest numbers of each row are, in rising order of places; of equal ones the first count.

    >>> smallest_places(np.array([[2.0, 1.0, 2.0, 0.0, 2.0]]), 3).tolist()
    [[0, 1, 3]]
    """
    last = np.partition(values, count - 1, axis=1)[:, count - 1, None]
    below, equal = values < last, values == last
    some = below | (equal & (np.cumsum(equal, axis=1) <= count - below.sum(axis=1, keepdims=True)))
    return np.nonzero(some)[1].reshape(len(values), count)


def matrix_product(a: Floats, b: Floats) -> Floats:
    """The product of two matrices.

    >>> matrix_product(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    out = np.zeros((a.shape[0], b.shape[1]))
    for k in range(a.shape[1]):
        out += a[:, k, None] * b[k]
    return out


def gram_matrix(vectors: Floats) -> Floats:
    """The inner products of every two rows of a matrix.

    >>> gram_matrix(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[5.0, 11.0], [11.0, 25.0]]
    """
    contiguous = np.ascontiguousarray(vectors)
    out = np.empty((len(vectors), len(vectors)))
    for i in range(len(vectors)):
        out[i, i:] = out[i:, i] = (contiguous[i:] * contiguous[i]).sum(axis=1)
    return out


def triangular_root(matrix: Floats) -> Floats:
    """The lower triangle L with L L^T = a symmetric matrix, which must be positive definite.

    >>> triangular_root(np.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    rest, out = np.array(matrix, np.float64), np.zeros(matrix.shape)
    for j in range(len(rest)):
        if not rest[j, j] > 0:
            raise ArithmeticError("the matrix is not positive definite")
        column = rest[j:, j] / np.sqrt(rest[j, j])
        out[j:, j] = column
        rest[j:, j:] -= column[:, None] * column
    return out


def symmetric_matrices(values: Floats, pairs: tuple[Ints, Ints], size: int) -> Floats:
    """Symmetric matrices (..., size, size) with values (..., n) at n pairs of indices, and 0 elsewhere.

    >>> symmetric_matrices(np.array([3.0, 5.0]), (np.array([0, 0]), np.array([0, 1])), 2).tolist()
    [[3.0, 5.0], [5.0, 0.0]]
    """
    out = np.zeros((*values.shape[:-1], size, size))
    i, j = pairs
    out[..., i, j] = values
    out[..., j, i] = values
    return out


def traces(matrices: Floats) -> Floats:
    """The trace of each of many matrices (n, p, p); a negative variance is rounding and counts as 0."""
    return ordered_sum(np.maximum(np.diagonal(matrices, axis1=1, axis2=2), 0.0))


def principal_axes(matrices: Floats, count: int) -> tuple[Floats, Floats]:
    """The first few principal axes of many symmetric matrices (n, p, p), by squaring and deflation.

    Returns variances (n, count), falling except for ties and 0 where nothing is left, and axes (n, p, count).

    >>> variances, axes = principal_axes(np.array([[[4.0, 0.0], [0.0, 9.0]]]), 2)
    >>> variances.tolist(), np.abs(axes[0]).tolist()
    ([[9.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]])
    """
    rest = matrices.astype(np.float64)
    n, p = rest.shape[:2]
    variances, axes = np.zeros((n, count)), np.zeros((n, p, count))
    whole = traces(rest)
    for k in range(min(count, p)):
        axis = _strongest_columns(_high_powers(rest))
        for j in range(k):
            axis = axis - axes[:, :, j] * ordered_sum(axis * axes[:, :, j])[:, None]
        length = np.sqrt(ordered_sum(axis * axis))
        axis = axis / np.where(length > 0, length, 1.0)[:, None]
        variance = ordered_sum(axis * ordered_sum(rest * axis[:, None, :]))
        found = (variance > ROUNDING_FRACTION * whole) & (length > 0)
        variances[:, k] = np.where(found, variance, 0.0)
        axes[:, :, k] = np.where(found[:, None], axis, 0.0)
        rest = rest - variances[:, k, None, None] * (axes[:, :, k, None] * axes[:, None, :, k])
    return variances, axes


def _high_powers(matrices: Floats) -> Floats:
    """Each matrix to a high power, in units of its trace."""
    power = matrices
    for _ in range(SQUARINGS):
        size = traces(power)
        power = power / np.where(size > 0, size, 1.0)[:, None, None]
        squared = np.zeros_like(power)
        for j in range(power.shape[1]):
            squared += power[:, :, j, None] * power[:, j, None, :]
        power = squared
    return power


def _strongest_columns(matrices: Floats) -> Floats:
    """The column of each matrix with the largest entry on the diagonal."""
    strongest = np.argmax(np.diagonal(matrices, axis1=1, axis2=2), axis=1)
    return np.asarray(matrices[np.arange(len(matrices)), :, strongest], np.float64)


def orthonormal_basis(vectors: Floats) -> Floats:
    """Orthonormal columns that span the columns of a matrix, without those that depend on columns before them.

    >>> orthonormal_basis(np.array([[2.0, 4.0, 0.0], [0.0, 0.0, 3.0]])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    out: list[Floats] = []
    for column in vectors.T:
        vector = column
        length = float(np.sqrt(ordered_sum(vector * vector)))
        for _ in range(2):  # the second time removes what rounding left
            for known in out:
                vector = vector - known * ordered_sum(vector * known)
        left = float(np.sqrt(ordered_sum(vector * vector)))
        if left > DEPENDENT_FRACTION * length and left > 0:
            out.append(vector / left)
    return np.array(out).T.reshape(len(vectors), len(out))
