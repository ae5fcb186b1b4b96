"""Evidence against a claimed epsilon: bounds worked out by hand, honest mechanisms that pass, broken ones that fail."""

import math

import numpy as np
import pytest

from fedclust.app.audit.membership_attack import empirical_epsilon, epsilon_lower_bound
from fedclust.core.errors import StudyError

WITH, WITHOUT = np.array([0.2, 0.4, 1.0]), np.array([0.2, 0.4])


def test_all_hits_and_no_strays_bound_epsilon_as_worked_out_by_hand():
    p = 0.025 ** (1 / 50)  # the chance at which fifty hits of fifty happen once in forty times
    assert epsilon_lower_bound(50, 0, 50) == pytest.approx(math.log(p / (1 - p)), rel=1e-12)


def test_delta_is_taken_off_the_likelier_chance():
    p = 0.025 ** (1 / 50)
    assert epsilon_lower_bound(50, 0, 50, delta=0.1) == pytest.approx(math.log((p - 0.1) / (1 - p)), rel=1e-12)


def test_no_hit_is_no_evidence():
    assert epsilon_lower_bound(0, 0, 100) == 0.0
    assert epsilon_lower_bound(3, 90, 100) == 0.0


def test_laplace_noise_keeps_its_epsilon():
    rng = np.random.default_rng(1)
    for epsilon in (0.5, 2.0):
        found = empirical_epsilon(lambda t, e=epsilon: t.sum() + rng.laplace(scale=1 / e), WITH, WITHOUT, runs=4000)
        assert 0.3 * epsilon < found.epsilon <= epsilon
        assert not found.refutes(epsilon)


def test_noise_ten_times_too_small_is_caught():
    rng = np.random.default_rng(2)
    found = empirical_epsilon(lambda t: t.sum() + rng.laplace(scale=0.1), WITH, WITHOUT, runs=2000)
    assert found.refutes(1.0)


def test_a_row_that_shows_in_one_number_of_many_is_found():
    rng = np.random.default_rng(3)

    def careless(table):
        noisy = rng.normal(scale=50.0, size=40)
        noisy[17] = table.max() + rng.normal(scale=0.1)  # one statistic without the noise it needs
        return noisy

    assert empirical_epsilon(careless, WITH, WITHOUT, runs=1000).refutes(2.0)


def test_a_constant_that_differs_is_found():
    assert empirical_epsilon(lambda t: [len(t), 0.0], WITH, WITHOUT, runs=400).epsilon > 3


def test_a_mechanism_that_looks_at_nothing_shows_nothing():
    rng = np.random.default_rng(4)
    assert empirical_epsilon(lambda _: rng.normal(size=3), WITH, WITHOUT, runs=2000).epsilon < 0.15


def test_too_few_runs_are_refused():
    with pytest.raises(StudyError, match="at least 4"):
        empirical_epsilon(len, WITH, WITHOUT, runs=3)
