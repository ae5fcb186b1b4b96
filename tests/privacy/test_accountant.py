"""Prices, and what they are worth as epsilon and delta, against OpenDP's own figures and by hand."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from fedclust.core.noise_price import NOISE_UNITS_PER_ONE, Price, count_honest_sites
from fedclust.privacy import accountant
from fedclust.privacy.discrete_noise import are_below, draw_gaussian_noise, gaussian_measurement, opendp

pytest.importorskip("opendp")


@pytest.mark.parametrize("rho", [1e-3, 0.024356, 1.0, 19.0])
def test_epsilon_is_the_one_opendp_finds(rho):
    dp = opendp()
    pair = dp.c.make_zCDP_to_approxDP(gaussian_measurement(NOISE_UNITS_PER_ONE * Price(rho).sigma)).map(
        float(NOISE_UNITS_PER_ONE)
    )
    for delta in (1e-9, 1e-6, 1e-3):
        assert accountant.epsilon_from_rho(rho, delta) == pytest.approx(pair.epsilon(delta), rel=1e-6)


def test_epsilon_is_within_the_simple_formula():
    assert accountant.epsilon_from_rho(0.1, 1e-6) < 0.1 + 2 * math.sqrt(0.1 * math.log(1e6))


@pytest.mark.parametrize("epsilon", [0.01, 0.25, 1.0, 8.0, 50.0])
def test_the_price_of_an_epsilon_costs_that_epsilon(epsilon):
    rho = accountant.rho_from_epsilon(epsilon, 1e-6)
    assert accountant.epsilon_from_rho(rho, 1e-6) == pytest.approx(epsilon, rel=1e-6)
    assert accountant.epsilon_from_rho(rho, 1e-6) <= epsilon * (1 + 1e-9)


def test_the_reported_figure_of_thirty_rounds_is_the_published_one():
    """Thirty rounds at sigma 10, delta 1e-6: 3.03 by the simple formula, 2.49 by the privacy loss distribution."""
    pytest.importorskip("dp_accounting")
    rounds = [1 / (2 * 10**2)] * 30
    rho = math.fsum(rounds)
    assert rho + 2 * math.sqrt(rho * math.log(1e6)) == pytest.approx(3.03, abs=0.005)
    assert 2.49 < accountant.epsilon_from_rho(rho, 1e-6) < 3.03
    assert accountant.reported_epsilon(rounds, 1e-6) == pytest.approx(2.49, abs=0.01)


def test_the_reported_figure_is_below_the_enforced_one():
    for epsilon in (0.5, 2.0):
        rho = accountant.rho_from_epsilon(epsilon, 1e-6)
        assert 0.8 * epsilon < accountant.reported_epsilon([rho], 1e-6) < epsilon


def test_sites_share_the_variance_that_a_price_asks_for():
    assert Price(0.125).sigma == 2.0
    assert Price(0.125, honest=4).sigma == 1.0


def test_a_third_of_the_sites_may_tell_their_noise():
    assert [count_honest_sites(n, n) for n in (1, 2, 3, 4, 6, 9)] == [1, 2, 2, 3, 4, 6]
    assert count_honest_sites(9, 3) == 1


def test_noise_has_the_deviation_it_was_asked_for_and_is_new_each_time():
    first, second = draw_gaussian_noise(4000, 1e9), draw_gaussian_noise(4000, 1e9)
    assert first.std() == pytest.approx(1e9, rel=0.06)
    assert abs(first.mean()) < 1e8
    assert not np.array_equal(first, second)


def test_chances_far_below_two_to_the_minus_64_are_kept_too():
    # Below 3.25 of 2^64 are numbers that begin with 2, none with 4, a quarter of those with 3; below 1/2 half with 0.
    bounds = np.repeat([3.25, 3.25, 3.25, 0.5, 2.0**-40], 4000)
    found = are_below(np.repeat(np.array([2, 3, 4, 0, 0], np.uint64), 4000), bounds).reshape(5, -1).mean(axis=1)
    assert found[0] == 1
    assert found[1] == pytest.approx(0.25, abs=0.05)
    assert found[2] == 0
    assert found[3] == pytest.approx(0.5, abs=0.05)
    assert found[4] == 0
    assert are_below(np.array([2**64 - 2**12], np.uint64), np.array([2.0**64])).all()


def test_floats_are_right_to_one_part_in_2_to_the_45_up_to_ten_and_a_half_sigma():
    scale = 68719476736 * 0.7310585786300049
    y = np.random.default_rng(0).integers(0, int(10.5 * scale), 2000)
    x = y / scale
    with localcontext() as exact:
        exact.prec = 50
        chances = [(-((Decimal(int(one)) / Decimal(scale)) ** 2) / 2).exp() for one in y]
        wrong = [abs(Decimal(float(f)) / c - 1) for f, c in zip(np.exp(-0.5 * x * x), chances, strict=True)]
    assert float(max(wrong)) < 2.0**-45
    assert math.erfc(10.5 / math.sqrt(2)) < 2.0**-83


def test_large_epsilons_come_with_a_warning():
    assert accountant.warning(1.0) is None
    assert "gives little protection" in accountant.warning(12.0)
    assert "no protection" in accountant.warning(50.0)
    assert "73%" in accountant.meaning(1.0, 1e-6)
