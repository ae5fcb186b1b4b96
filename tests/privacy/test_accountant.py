"""Prices, and what they are worth as epsilon and delta, against OpenDP's own figures and by hand."""

import math

import numpy as np
import pytest

from fedclust.core.private import ONE, Price, honest
from fedclust.privacy import accountant
from fedclust.privacy.noise import drawn, gaussian, opendp

pytest.importorskip("opendp")


@pytest.mark.parametrize("rho", [1e-3, 0.024356, 1.0, 19.0])
def test_epsilon_is_the_one_opendp_finds(rho):
    dp = opendp()
    pair = dp.c.make_zCDP_to_approxDP(gaussian(ONE * Price(rho).sigma)).map(float(ONE))
    for delta in (1e-9, 1e-6, 1e-3):
        assert accountant.epsilon_of(rho, delta) == pytest.approx(pair.epsilon(delta), rel=1e-6)


def test_epsilon_is_within_the_simple_formula():
    assert accountant.epsilon_of(0.1, 1e-6) < 0.1 + 2 * math.sqrt(0.1 * math.log(1e6))


@pytest.mark.parametrize("epsilon", [0.01, 0.25, 1.0, 8.0, 50.0])
def test_the_price_of_an_epsilon_costs_that_epsilon(epsilon):
    rho = accountant.rho_of(epsilon, 1e-6)
    assert accountant.epsilon_of(rho, 1e-6) == pytest.approx(epsilon, rel=1e-6)
    assert accountant.epsilon_of(rho, 1e-6) <= epsilon * (1 + 1e-9)


def test_the_reported_figure_of_thirty_rounds_is_the_published_one():
    """Thirty rounds at sigma 10, delta 1e-6: 3.03 by the simple formula, 2.49 by the privacy loss distribution."""
    pytest.importorskip("dp_accounting")
    rounds = [1 / (2 * 10**2)] * 30
    rho = math.fsum(rounds)
    assert rho + 2 * math.sqrt(rho * math.log(1e6)) == pytest.approx(3.03, abs=0.005)
    assert 2.49 < accountant.epsilon_of(rho, 1e-6) < 3.03
    assert accountant.reported_epsilon(rounds, 1e-6) == pytest.approx(2.49, abs=0.01)


def test_the_reported_figure_is_below_the_enforced_one():
    for epsilon in (0.5, 2.0):
        rho = accountant.rho_of(epsilon, 1e-6)
        assert 0.8 * epsilon < accountant.reported_epsilon([rho], 1e-6) < epsilon


def test_sites_share_the_variance_that_a_price_asks_for():
    assert Price(0.125).sigma == 2.0
    assert Price(0.125, honest=4).sigma == 1.0


def test_a_third_of_the_sites_may_tell_their_noise():
    assert [honest(n, n) for n in (1, 2, 3, 4, 6, 9)] == [1, 2, 2, 3, 4, 6]
    assert honest(9, 3) == 1


def test_noise_has_the_deviation_it_was_asked_for_and_is_new_each_time():
    first, second = drawn(4000, 1e9), drawn(4000, 1e9)
    assert first.std() == pytest.approx(1e9, rel=0.06)
    assert abs(first.mean()) < 1e8
    assert not np.array_equal(first, second)


def test_large_epsilons_come_with_a_warning():
    assert accountant.warning(1.0) is None
    assert "promises little" in accountant.warning(12.0)
    assert "no protection" in accountant.warning(50.0)
    assert "73%" in accountant.meaning(1.0, 1e-6)
