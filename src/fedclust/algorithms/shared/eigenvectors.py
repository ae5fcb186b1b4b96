"""Eigenvectors of a symmetric matrix, in one order of operations: reflections to a band of three, then rotations.

It takes the place of LAPACK, whose last bits depend on the processor, wherever an eigenvector enters a question.
"""

from __future__ import annotations

import math

import numpy as np

from fedclust.algorithms.shared.fixed_order import ordered_sum
from fedclust.core.types import Floats

MAX_ROTATIONS_PER_VALUE = 60  # passes over the band for each eigenvalue; two are usual
SMALL_FRACTION = 2.0**-52  # of its neighbours on the diagonal: an entry beside the diagonal below this counts as 0
SMALL_SIZE = 2.0**-100  # of the largest entry of all: one below this counts as 0, too


def eigen(matrix: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues of a symmetric matrix in falling order; their vectors as rows, the largest entry of each positive.

    >>> values, vectors = eigen(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> values.round(12).tolist(), (vectors * 2**0.5).round(12).tolist()
    ([3.0, 1.0], [[1.0, 1.0], [1.0, -1.0]])
    """
    exponent = math.frexp(float(np.abs(matrix).max(initial=0.0)))[1]
    diagonal, beside, rows = _reflect(np.ldexp(matrix, -exponent))  # so that squares neither vanish nor overflow
    _rotate(diagonal, beside, rows)
    values = np.ldexp(diagonal, exponent)
    order = np.argsort(-values, kind="stable")
    vectors = rows[order]
    leading = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1) if len(rows) else vectors
    return values[order], vectors * np.where(leading < 0, -1.0, 1.0)


def _reflect(a: Floats) -> tuple[list[float], list[float], Floats]:
    """Householder's reflections: the diagonal, the entries beside it, and Q^T of a = Q T Q^T."""
    size = len(a)
    q = np.eye(size)
    for k in range(size - 2):
        column = a[k + 1 :, k].copy()
        if not (np.abs(column[1:]) > SMALL_SIZE).any():
            continue
        length = math.sqrt(float(ordered_sum(column * column)))
        column[0] += length if column[0] >= 0 else -length
        column *= 1.0 / math.sqrt(float(ordered_sum(column * column)))
        rest = a[k + 1 :, k + 1 :]
        pull = ordered_sum(rest * column)
        pull = 2.0 * (pull - column * ordered_sum(column * pull))
        rest -= column[:, None] * pull + pull[:, None] * column
        head = a[k + 1 :, k]
        a[k + 1 :, k] = a[k, k + 1 :] = head - 2.0 * column * ordered_sum(column * head)
        below = q[k + 1 :]
        below -= 2.0 * column[:, None] * ordered_sum(column[:, None] * below, axis=0)
    return np.diagonal(a).tolist(), [*np.diagonal(a, -1).tolist(), 0.0], q


def _rotate(d: list[float], e: list[float], rows: Floats) -> None:
    """Implicit QL: the entries beside the diagonal go to 0, and `rows` turn into eigenvectors, in place."""
    size = len(d)
    for at in range(size):
        for _ in range(MAX_ROTATIONS_PER_VALUE):
            end = at
            while end < size - 1 and abs(e[end]) > SMALL_FRACTION * (abs(d[end]) + abs(d[end + 1])) + SMALL_SIZE:
                end += 1
            if end == at:
                break
            _chase(d, e, rows, at, end)


def _chase(d: list[float], e: list[float], rows: Floats, at: int, end: int) -> None:
    """One pass of rotations from `end` up to `at`, with Wilkinson's shift."""
    g = (d[at + 1] - d[at]) / (2.0 * e[at])
    r = math.sqrt(g * g + 1.0)
    g = d[end] - d[at] + e[at] / (g + (r if g >= 0 else -r))
    s = c = 1.0
    p = 0.0
    for i in range(end - 1, at - 1, -1):
        f, b = s * e[i], c * e[i]
        r = math.sqrt(f * f + g * g)
        e[i + 1] = r
        if r == 0.0:
            d[i + 1] -= p
            e[end] = 0.0
            return
        s, c = f / r, g / r
        g = d[i + 1] - p
        r = (d[i] - g) * s + 2.0 * c * b
        p = s * r
        d[i + 1] = g + p
        g = c * r - b
        lower, upper = rows[i + 1], rows[i]
        rows[i + 1], rows[i] = s * upper + c * lower, c * upper - s * lower
    d[at] -= p
    e[at] = g
    e[end] = 0.0
