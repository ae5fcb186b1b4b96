"""Sums that no row can move by more than one, whatever is in it: the sensitivity that noise is measured by."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedclust.kernels import bounded_sums

ANY = st.floats(allow_nan=True, allow_infinity=True)
TABLES = arrays.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=ANY)


def norm(numbers):
    """Of integers, exactly."""
    return math.isqrt(sum(int(n) ** 2 for n in np.ravel(numbers)) - 1) + 1 if np.any(numbers) else 0


def test_terms_are_cut_to_norm_one_and_short_ones_left_alone():
    cut = bounded_sums.clip_to_norm(np.array([[3.0, 0.06], [4.0, 0.08]]))
    assert cut[:, 0] == pytest.approx([0.6, 0.8], rel=2e-6)
    assert cut[:, 1] == pytest.approx([0.06, 0.08], rel=1e-15)


def test_a_row_with_a_value_that_is_no_number_adds_nothing():
    assert not bounded_sums.clip_to_norm(np.array([[np.nan, np.inf, -np.inf], [1.0, 1.0, 1.0]])).any()


def test_huge_values_are_cut_without_overflow():
    cut = bounded_sums.clip_to_norm(np.full((4, 1), 1.7e308))
    assert cut[:, 0] == pytest.approx([0.5] * 4, rel=2e-6)


def test_products_of_two_rows_are_those_worked_out_by_hand():
    z = np.array([[0.6, 0.0], [0.0, 0.5]])
    matrix, rows = bounded_sums.moments(bounded_sums.products(z) / bounded_sums.UNIT_NORM, 2)
    assert matrix == pytest.approx(np.array([[0.36, 0.0], [0.0, 0.25]]), abs=1e-4)
    assert rows == pytest.approx(2.0, abs=1e-9)


def test_one_rows_products_and_count_have_norm_one_at_most():
    longest = (bounded_sums.DIAGONAL_FACTOR * bounded_sums.VALUE_STEPS**2) ** 2 + bounded_sums.ROW_COUNT_UNIT**2
    assert longest <= bounded_sums.UNIT_NORM**2
    assert bounded_sums.CROSS_FACTOR**2 <= 2 * bounded_sums.DIAGONAL_FACTOR**2


@settings(max_examples=150, deadline=None)
@given(TABLES, st.data())
def test_no_row_moves_any_sum_by_more_than_one(table, data):
    gone = data.draw(st.integers(0, table.shape[1] - 1))
    rest = np.delete(table, gone, axis=1)
    cells = np.arange(table.shape[1]) % 3
    there, left = bounded_sums.clip_to_norm(table), bounded_sums.clip_to_norm(rest)
    assert norm(bounded_sums.products(there) - bounded_sums.products(left)) <= bounded_sums.UNIT_NORM
    by_cell = bounded_sums.sum_by_cell(cells, there, 3) - bounded_sums.sum_by_cell(np.delete(cells, gone), left, 3)
    assert norm(by_cell) <= bounded_sums.UNIT_NORM


def test_rows_beside_it_do_not_change_how_a_row_is_rounded():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(17, 50)) * 10.0 ** rng.integers(-8, 8, size=(17, 50))
    alone = np.concatenate([bounded_sums.clip_to_norm(table[:, [i]]) for i in range(50)], axis=1)
    assert np.array_equal(alone, bounded_sums.clip_to_norm(table))


def test_chunks_add_up_to_the_whole(monkeypatch):
    z = bounded_sums.clip_to_norm(np.random.default_rng(1).normal(size=(3, 100)), 4.0)
    cells = np.arange(100) % 7
    whole = bounded_sums.products(z), bounded_sums.sum_by_cell(cells, z, 7)
    monkeypatch.setattr(bounded_sums, "SUM_CHUNK_ROWS", 13)
    assert np.array_equal(whole[0], bounded_sums.products(z))
    assert np.array_equal(whole[1], bounded_sums.sum_by_cell(cells, z, 7))
