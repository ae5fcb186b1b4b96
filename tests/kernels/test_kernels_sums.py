"""Exact sums: equal to fractions, and blind to the order and the division of rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels_reference import quantised, signed

from fedclust import kernels
from fedclust.kernels import Sums, exact_sums, fuzzy_sweep, hard_sweep, pack, plain_sweep


def zeros(C, F):
    return Sums.zeros(np.full(C, -51), np.full((C, F), -44), -40)


def same(a, b):
    return all(np.array_equal(getattr(a, field), getattr(b, field)) for field in ("mass", "pull", "objective"))


def swept(blocks, centers, m):
    hard, fuzzy = zeros(*centers.shape), zeros(*centers.shape)
    hard_sweep.accumulate(hard, blocks, centers)
    fuzzy_sweep.accumulate(fuzzy, blocks, centers, m)
    return hard, fuzzy


@pytest.mark.parametrize("n", [0, 1, 7, 33, 2047, 2048, 2049, 5000])
def test_exact_sum_is_the_sum_of_rounded_terms(backend, n):
    values = np.random.default_rng(n).normal(size=(2, n)) * 1e3
    assert signed(exact_sums.exact_totals(values, -38)) == [sum(quantised(v, -38) for v in row) for row in values]


def test_exact_sums_take_a_unit_for_each_row(backend):
    values = np.array([[0.75, 0.5], [0.75, 0.5]])
    assert signed(exact_sums.exact_totals(values, np.array([-2, 0]))) == [5, 1]


def test_terms_at_the_bound_neither_wrap_nor_round(backend):
    values = np.concatenate([np.full((1, 2048), 2.0**51), np.full((1, 2048), -(2.0**51))])
    assert signed(exact_sums.exact_totals(values, 0)) == [2048 << 51, -(2048 << 51)]


def test_weighted_sums_of_given_weights(backend):
    s = Sums.zeros(np.full(2, -1), np.full((2, 1), -1), 0)
    s.objective[:] = 7
    exact_sums.add_weighted(s, np.array([[1.0, 2.0, 4.0]]), np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 2.0]]))
    assert signed(s.mass) == [3, 5]
    assert signed(s.pull) == [[4], [18]]
    assert s.objective.tolist() == [7, 7]


def test_weighted_sums_with_the_sweeps_weights_are_the_sweep(backend):
    rng = np.random.default_rng(0)
    block, centers = rng.normal(size=(5, 3000)), rng.normal(size=(3, 5))
    a, b = zeros(3, 5), zeros(3, 5)
    fuzzy_sweep.accumulate(a, block, centers, 1.7)
    exact_sums.add_weighted(
        b, block, fuzzy_sweep.weights_from_distances(kernels.distances.squared_distances(block, centers), 1.7)
    )
    assert np.array_equal(a.mass, b.mass)
    assert np.array_equal(a.pull, b.pull)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 600), st.integers(1, 5), st.sampled_from([2.0, 1.7]))
def test_no_order_and_no_division_of_rows_changes_a_bit(seed, F, n, C, m):
    rng = np.random.default_rng(seed)
    block, centers = rng.normal(size=(F, n)), rng.normal(size=(C, F))
    whole = swept(block, centers, m)
    shuffled = np.ascontiguousarray(block[:, rng.permutation(n)])
    cuts = np.sort(rng.integers(0, n + 1, 4))
    parts = [np.ascontiguousarray(part) for part in np.split(shuffled, cuts, axis=1)]
    assert all(map(same, whole, swept(shuffled, centers, m)))
    assert all(map(same, whole, swept(parts, centers, m)))
    one_by_one = zeros(C, F)
    for part in parts:
        own = zeros(C, F)
        fuzzy_sweep.accumulate(own, part, centers, m)
        one_by_one.add(own)
    assert same(whole[1], one_by_one)


@pytest.mark.parametrize("shape", [(40_000, 3, 4), (3_000, 40, 25), (700, 500, 11)])
def test_the_number_of_threads_changes_no_bit(shape, threads):
    n, F, C = shape
    rng = np.random.default_rng(1)
    X, centers = rng.normal(size=(n, F)), rng.normal(size=(C, F))
    w = rng.random((C, n))
    found = []
    for count in (1, 2, 3):
        threads(count)
        s = zeros(C, F)
        exact_sums.add_weighted(s, np.ascontiguousarray(X.T), w)
        found.append((*swept(np.ascontiguousarray(X.T), centers, 2.0), *swept(pack(X), centers, 1.7), s))
    assert same(found[0][0], found[0][2])
    for other in found[1:]:
        assert all(map(same, found[0], other))


def test_columns_may_lie_apart_in_memory(backend):
    wide = np.random.default_rng(2).normal(size=(6, 500))
    centers = np.zeros((2, 3))
    centers[1] = 1.0
    view = wide[::2, 10:260]
    assert all(map(same, swept(view, centers, 2.0), swept(np.ascontiguousarray(view), centers, 2.0)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_packed_rows_are_all_there_in_order(dtype):
    X = np.random.default_rng(3).normal(size=(5_000, 37)).astype(dtype)
    blocks = pack(X)
    assert len(blocks) > 1
    assert all(b.dtype == dtype and b.flags.c_contiguous for b in blocks)
    assert np.array_equal(np.concatenate(blocks, axis=1), X.T)


@pytest.mark.skipif(kernels.backend() == "numpy", reason="NumPy takes any layout")
def test_rows_that_are_not_columns_are_refused():
    with pytest.raises(ValueError, match="each column contiguous"):
        fuzzy_sweep.accumulate(zeros(2, 3), np.zeros((50, 3)).T, np.zeros((2, 3)), 2.0)
    with pytest.raises(ValueError, match="4 columns"):
        hard_sweep.accumulate(zeros(2, 3), np.zeros((4, 50)), np.zeros((2, 3)))


def test_plain_sums_agree_to_rounding(backend):
    rng = np.random.default_rng(4)
    X, centers = rng.normal(size=(20_000, 4)), rng.normal(size=(3, 4))
    hard, fuzzy = swept(pack(X), centers, 1.7)
    for exact, (mass, pull, objective) in (
        (hard, plain_sweep.sweep_hard(pack(X), centers)),
        (fuzzy, plain_sweep.sweep_fuzzy(pack(X), centers, 1.7)),
    ):
        np.testing.assert_allclose(mass, np.array(signed(exact.mass), float) * 2.0**-51, rtol=1e-12)
        np.testing.assert_allclose(pull, np.array(signed(exact.pull), float) * 2.0**-44, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(objective[0], signed(exact.objective) * 2.0**-40, rtol=1e-10)
