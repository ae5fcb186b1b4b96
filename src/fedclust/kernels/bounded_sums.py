"""Sums that no single row can move by more than a known amount, whatever is in it.

A row's term is cut to norm one, counted in units of 2^-36 and rounded towards zero, and the integers are added. So for
any two tables that differ by one row, any values, NaN and infinities included, the sums differ by an integer vector of
Euclidean norm at most 2^36: the sensitivity that noise is measured by. No float is ever added to another: floats sum to
what depends on their order, and a row may hide in that.
"""

from __future__ import annotations

import math

import numpy as np

from fedclust.core.types import Array, Floats, Ints

FRACTION_BITS = 36
UNIT_NORM = 1 << FRACTION_BITS
MAX_ROW_NORM = 1 - 2.0**-20  # what a row is cut to; the rounding of its norm is far smaller
SUM_CHUNK_ROWS = 1 << 16  # at once: sums of so many terms are whole numbers below 2^53, which floats add exactly
DIAGONAL_FACTOR, CROSS_FACTOR = 128, 181  # 181/128 is just below sqrt(2): each product off the diagonal stands for two
ROW_COUNT_WEIGHT = 0.2  # how much a row counts beside its products
_PRODUCT_SCALE = 1 / math.sqrt(1 + ROW_COUNT_WEIGHT * ROW_COUNT_WEIGHT)
VALUE_STEPS = math.isqrt(
    int(UNIT_NORM * _PRODUCT_SCALE) // DIAGONAL_FACTOR
)  # to one, of a value that is multiplied with others
ROW_COUNT_UNIT = int(UNIT_NORM * _PRODUCT_SCALE * ROW_COUNT_WEIGHT)


def clip_to_norm(terms: Array, reach: float = 1.0) -> Floats:
    """Terms (numbers by rows) in units of `reach`, cut to norm one each; zeros where a value is not finite.

    >>> clip_to_norm(np.array([[3.0, 0.3, np.nan], [4.0, 0.4, 1.0]])).round(3).tolist()
    [[0.6, 0.3, 0.0], [0.8, 0.4, 0.0]]
    """
    values = np.asarray(terms, np.float64)
    largest = np.abs(values).max(axis=0, initial=0.0)  # taken out first: squares of large values overflow
    sound = np.isfinite(largest)
    scale = np.where(sound & (largest > 0), largest, 1.0)
    direction = np.where(sound, values, 0.0) / scale
    norm = np.sqrt(squares(direction))
    with np.errstate(over="ignore"):
        size = np.minimum(scale * norm / reach, MAX_ROW_NORM)
    return np.asarray(direction * (size / np.where(norm > 0, norm, 1.0)), np.float64)


def squares(terms: Floats) -> Floats:
    """The squared norm of each row, one number after the other: how it is rounded does not depend on other rows."""
    sums = np.zeros(terms.shape[1])
    for values in terms:
        sums += values * values
    return sums


def sum_by_cell(cells: Ints, terms: Floats, count: int) -> Ints:
    """For each of `count` cells the sum of the terms of its rows, counted in 2^-36; terms are as `within` leaves them.

    >>> sum_by_cell(np.array([0, 2, 2]), np.array([[0.5, 0.25, 0.25]]), 3).ravel() / 2**36
    array([0.5, 0. , 0.5])
    """
    total = np.zeros((count, len(terms)), np.int64)
    for at in range(0, len(cells), SUM_CHUNK_ROWS):
        some = cells[at : at + SUM_CHUNK_ROWS]
        whole = np.trunc(terms[:, at : at + SUM_CHUNK_ROWS] * UNIT_NORM)
        for number, own in enumerate(whole):
            total[:, number] += np.bincount(some, own, count).astype(np.int64)
    return total


def products(rows: Floats) -> Ints:
    """Sums of the products of every two columns, and of rows, counted in 2^-36; rows are as `within` leaves them.

    The upper triangle row by row: z_i^2 on the diagonal, sqrt(2) z_i z_j off it, all divided by sqrt(1 + .2^2); last .2
    for each row. One row's vector has the norm sqrt(|z|^4 + .2^2) / sqrt(1 + .2^2) <= 1.
    """
    width = len(rows)
    total = np.zeros((width, width), np.int64)
    for at in range(0, rows.shape[1], SUM_CHUNK_ROWS):
        some = np.trunc(rows[:, at : at + SUM_CHUNK_ROWS] * VALUE_STEPS)
        total += (some @ some.T).astype(np.int64)  # whole numbers below 2^53 in any order of adding
    factor = np.where(np.eye(width, dtype=bool), DIAGONAL_FACTOR, CROSS_FACTOR)
    return np.append((total * factor)[np.triu_indices(width)], rows.shape[1] * ROW_COUNT_UNIT)


def moments(sums: Floats, width: int) -> tuple[Floats, float]:
    """The matrix of products and the number of rows that sums in the layout of `products` stand for."""
    matrix = np.zeros((width, width))
    factor = np.where(np.eye(width, dtype=bool), DIAGONAL_FACTOR, CROSS_FACTOR)[np.triu_indices(width)]
    matrix[np.triu_indices(width)] = sums[:-1] * UNIT_NORM / factor / VALUE_STEPS**2
    lower = np.tril_indices(width, -1)
    matrix[lower] = matrix.T[lower]
    return matrix, float(sums[-1] * UNIT_NORM / ROW_COUNT_UNIT)
