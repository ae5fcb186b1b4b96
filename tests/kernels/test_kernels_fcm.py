"""Fuzzy sweeps against fractions worked by hand, and memberships against long doubles."""

from fractions import Fraction

import numpy as np
import pytest
from kernels_reference import memberships, quantised, signed

from fedclust.kernels import Sums, distances, fuzzy_sweep


def sums(C, F, unit):
    return Sums.zeros(np.full(C, unit), np.full((C, F), unit), unit)


def nearest_integers(numbers, unit):
    return [quantised(float(n), unit) for n in numbers]


def test_one_row_at_distances_one_and_two_with_m_two(backend):
    # d2 = 1, 4: r = 1, 1/4; S = 5/4; u = 4/5, 1/5; u^2 = 16/25, 1/25
    s = sums(2, 1, -30)
    fuzzy_sweep.accumulate(s, np.array([[3.0]]), np.array([[2.0], [5.0]]), 2.0)
    mass = [Fraction(16, 25), Fraction(1, 25)]
    assert signed(s.mass) == nearest_integers(mass, -30)
    assert signed(s.pull) == [[n] for n in nearest_integers([3 * w for w in mass], -30)]
    assert signed(s.objective) == quantised(16 / 25 * 1 + 1 / 25 * 4, -30)


def test_one_row_with_m_three(backend):
    # d2 = 1, 16: r = 1/16, w = sqrt(r) = 1/4; S = 5/4; u^3 = 64/125, 1/125
    s = sums(2, 1, -30)
    fuzzy_sweep.accumulate(s, np.array([[1.0]]), np.array([[0.0], [5.0]]), 3.0)
    assert signed(s.mass) == nearest_integers([Fraction(64, 125), Fraction(1, 125)], -30)
    assert signed(s.objective) == quantised(64 / 125 + 16 / 125, -30)


def test_one_row_with_m_one_and_a_half(backend):
    # d2 = 4, 8: r = 1/2, w = r^2 = 1/4; u = 4/5, 1/5
    u = fuzzy_sweep.memberships(np.array([[2.0], [0.0]]), np.array([[0.0, 0.0], [0.0, 2.0]]), 1.5)
    np.testing.assert_allclose(u[:, 0], [0.8, 0.2], rtol=4e-16)
    um = fuzzy_sweep.weights_from_distances(np.array([[4.0], [8.0]]), 1.5)
    np.testing.assert_allclose(um[:, 0], [0.8**1.5, 0.2**1.5], rtol=1e-15)


@pytest.mark.parametrize("m", [2.0, 1.1, 1.7, 3.0])
def test_a_row_on_a_centre_belongs_to_it_alone(backend, m):
    block, centers = np.array([[1.0, 0.0]]), np.array([[4.0], [1.0], [7.0]])
    assert fuzzy_sweep.memberships(block, centers, m)[:, 0].tolist() == [0.0, 1.0, 0.0]
    s = sums(3, 1, -40)
    fuzzy_sweep.accumulate(s, block[:, :1], centers, m)
    assert signed(s.mass) == [0, 1 << 40, 0]
    assert signed(s.objective) == 0


@pytest.mark.parametrize("m", [2.0, 1.5])
def test_coincident_centres_share_the_row_that_lies_on_them(backend, m):
    u = fuzzy_sweep.memberships(np.array([[1.0]]), np.array([[1.0], [1.0], [3.0]]), m)
    assert u[:, 0].tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("m", [2.0, 1.7])
def test_a_single_centre_takes_every_row_whole(backend, m):
    s = sums(1, 1, -10)
    fuzzy_sweep.accumulate(s, np.array([[1.0, 2.0, 6.0]]), np.array([[1.0]]), m)
    assert signed(s.mass) == [3 << 10]
    assert signed(s.pull) == [[9 << 10]]
    assert signed(s.objective) == (0 + 1 + 25) << 10


def test_each_clusters_units_are_its_own(backend):
    s = Sums.zeros(np.array([-4, -8]), np.array([[-2], [-6]]), 0)
    fuzzy_sweep.accumulate(s, np.array([[1.0]]), np.array([[0.0], [2.0]]), 2.0)
    assert signed(s.mass) == [4, 64]
    assert signed(s.pull) == [[1], [16]]


@pytest.mark.parametrize("m", [2.0, 1.1, 1.3, 1.7, 2.5, 3.0])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_memberships_agree_with_long_doubles(backend, m, offset):
    rng = np.random.default_rng(1)
    block, centers = rng.normal(size=(7, 500)) + offset, rng.normal(size=(5, 7)) * 2 + offset
    u = fuzzy_sweep.memberships(block, centers, m)
    expected = memberships(block, centers, m)
    assert float(np.abs(u - expected).max()) <= 1e-13
    np.testing.assert_allclose(u.sum(axis=0), 1.0, atol=4e-16 * 5)


@pytest.mark.parametrize("m", [2.0, 1.3, 2.5])
def test_weights_are_the_memberships_to_the_power_m(backend, m):
    rng = np.random.default_rng(2)
    d2 = rng.random((6, 200)) * 10.0 ** rng.integers(-8, 8, (6, 200))
    u = fuzzy_sweep.memberships_from_distances(d2, m)
    large = u > 1e-60
    np.testing.assert_allclose(fuzzy_sweep.weights_from_distances(d2, m)[large], (u**m)[large], rtol=2e-14)


@pytest.mark.parametrize("m", [2.0, 1.7])
def test_a_sweep_is_the_sum_of_the_answers_for_its_rows(backend, m):
    rng = np.random.default_rng(3)
    block, centers = rng.normal(size=(3, 70)), rng.normal(size=(4, 3))
    d2 = distances.squared_distances(block, centers)
    um = fuzzy_sweep.weights_from_distances(d2, m)
    s = sums(4, 3, -45)
    fuzzy_sweep.accumulate(s, block, centers, m)
    assert signed(s.mass) == [sum(quantised(w, -45) for w in um[c]) for c in range(4)]
    assert signed(s.pull) == [
        [sum(quantised(w * x, -45) for w, x in zip(um[c], block[f], strict=True)) for f in range(3)] for c in range(4)
    ]
    terms = [0.0] * 70
    for c in range(4):
        terms = [t + w * d for t, w, d in zip(terms, um[c], d2[c], strict=True)]
    assert signed(s.objective) == sum(quantised(t, -45) for t in terms)
    u = fuzzy_sweep.memberships(block, centers, m)
    assert np.array_equal(u, fuzzy_sweep.memberships_from_distances(d2, m))


def test_far_centres_underflow_to_nothing_and_never_to_nan(backend):
    u = fuzzy_sweep.memberships(np.array([[0.0]]), np.array([[1e-150], [1e150]]), 1.1)
    assert u[:, 0].tolist() == [1.0, 0.0]
