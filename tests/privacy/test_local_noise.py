"""Local noise keeps to its epsilon: by exact chances, and by what many runs show."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from fedclust.app.audit.membership_attack import empirical_epsilon
from fedclust.privacy import row_noise

LOW, HIGH = np.zeros(2), np.full(2, 10.0)
HERE, THERE = np.array([[0.0, 0.0]]), np.array([[10.0, 10.0]])  # as different as two rows can be


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "1", "4", "30"])
def test_no_outcome_of_a_window_is_likelier_than_allowed_from_any_two_levels(epsilon):
    own = row_noise.best_window(Decimal(epsilon), 9)
    outcomes = range(-own.half_width, 9 + own.half_width)
    chances = [[own.probability(i, j) for j in outcomes] for i in range(9)]
    assert all(sum(row) == 1 for row in chances)
    worst = max(max(column) / min(column) for column in zip(*chances, strict=True))
    assert worst <= Fraction(Decimal(epsilon).exp())
    assert worst > Fraction(Decimal(epsilon).exp()) * Fraction(999, 1000)  # and none of it is given away


def test_a_window_by_hand():
    # 5 levels, half-width 1: 3 levels of chance p, 4 others of q; p = e^ln2 q and 3 p + 4 q = 1, so q = 1/10.
    ratio = Decimal(2).ln()
    own = row_noise.WindowChannel(1, row_noise._largest_hit_chance(ratio, 3, 5), 5)
    assert float(own.probability(2, 3)) == pytest.approx(0.2)
    assert float(own.probability(2, 4)) == pytest.approx(0.1)
    # E(j | 2) = 2 by symmetry; E(j | 0) = .2 (-1 + 0 + 1) + .1 (2 + 3 + 4 + 5) = 1.4: slope .3, rest 1.4.
    assert own.slope == pytest.approx(0.3)
    assert own.intercept == pytest.approx(1.4)
    assert own.estimate_levels(np.array([2])).tolist() == pytest.approx([2.0])


def test_draws_have_the_chances_that_are_claimed():
    own = row_noise.best_window(Decimal(2), 9)
    drawn = own.draw_outcomes(np.full(20_000, 3))
    seen = np.bincount(drawn + own.half_width, minlength=9 + 2 * own.half_width) / 20_000
    expected = np.array([float(own.probability(3, j)) for j in range(-own.half_width, 9 + own.half_width)])
    assert np.abs(seen - expected).max() < 5 * math.sqrt(expected.max() / 20_000)


def test_uniform_draws_reach_every_number_and_no_other():
    assert np.unique(row_noise.uniform(7, 2000)).tolist() == list(range(7))


def test_columns_share_the_epsilon_of_a_row():
    assert sum(row_noise._epsilon_per_column(1.0, 3) for _ in range(3)) <= 1
    assert row_noise._epsilon_per_column(1.0, 64) == Decimal(1) / 64


def test_outcomes_are_right_on_average_and_never_the_row_itself():
    rows = np.tile([[2.0, 7.5]], (40_000, 1))
    out = row_noise.add_window_noise(rows, LOW, HIGH, 60.0)
    assert np.abs(out.mean(axis=0) - rows[0]).max() < 0.05
    assert out.std(axis=0).min() > 0.2  # a twentieth of the range to either side, however large epsilon is


def test_a_column_without_extent_shows_its_bound_and_spends_nothing():
    rows = np.array([[3.0, 1.0]] * 50)
    out = row_noise.add_window_noise(rows, np.array([0.0, 4.0]), np.array([10.0, 4.0]), 1.0)
    assert (out[:, 1] == 4.0).all()
    both = row_noise.add_window_noise(rows, np.array([4.0, 4.0]), np.array([4.0, 4.0]), 1.0)
    assert (both == 4.0).all()
    assert row_noise.add_window_noise(rows[:0], LOW, HIGH, 1.0).shape == (0, 2)


def test_rows_beyond_the_bounds_count_as_the_bounds():
    pytest.importorskip("opendp")
    out = row_noise.add_laplace_noise(np.array([[1e9, -1e9]]), LOW, HIGH, 1e4)
    assert out.tolist() == [[pytest.approx(10.0, abs=0.1), pytest.approx(0.0, abs=0.1)]]


@pytest.mark.parametrize(
    ("mechanism", "runs"), [(row_noise.add_window_noise, 3000), (row_noise.add_laplace_noise, 1500)]
)
def test_many_runs_do_not_refute_the_claim(mechanism, runs):
    if mechanism is row_noise.add_laplace_noise:
        pytest.importorskip("opendp")
    found = empirical_epsilon(lambda row: mechanism(row, LOW, HIGH, 1.0), HERE, THERE, runs=runs, confidence=0.999)
    assert not found.refutes(1.0)
    assert found.epsilon > 0.05  # the test does see the row


def test_many_runs_refute_a_claim_that_is_too_small():
    found = empirical_epsilon(lambda row: row_noise.add_window_noise(row, LOW, HIGH, 4.0), HERE, THERE, runs=3000)
    assert found.refutes(1.0)


def test_the_papers_noise_fails_the_same_test():
    # One row far out widens the noise of all others, even with a fresh stream for each run.
    stream = np.random.RandomState(7)
    near = np.linspace(0.0, 1.0, 20)[:, None]
    far = np.concatenate([near[:-1], [[1e4]]])
    found = empirical_epsilon(
        lambda rows: row_noise.add_published_noise(rows, 1.0, stream),
        near,
        far,
        runs=3000,
        score=lambda out: float(np.median(np.abs(out[:-1]))),
    )
    assert found.refutes(5.0)


def test_the_papers_noise_is_the_same_at_every_site():
    a, b = np.array([[0.0], [1.0]]), np.array([[5.0], [6.0]])
    assert np.allclose(row_noise.add_published_noise(a, 1.0) - a, row_noise.add_published_noise(b, 1.0) - b)
