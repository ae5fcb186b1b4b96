"""Noise drawn many numbers at once is the discrete Gaussian's, and from the operating system."""

import os

import numpy as np
import pytest
from scipy import stats

from fedclust.core.errors import StudyError
from fedclust.privacy import discrete_noise


@pytest.mark.parametrize("scale", [1.0, 2.7])
def test_each_number_comes_up_as_often_as_the_discrete_gaussian_says(scale):
    drawn = discrete_noise.draw_by_rejection(200_000, scale)
    numbers = np.arange(-60, 61)
    chances = np.exp(-(numbers**2) / (2 * scale**2))
    chances /= chances.sum()
    often = chances * len(drawn) > 10
    seen = np.array([(drawn == number).sum() for number in numbers[often]])
    rest = len(drawn) - seen.sum()
    expected = np.append(chances[often], chances[~often].sum()) * len(drawn)
    found = stats.chisquare(np.append(seen, rest), expected)
    assert found.pvalue > 1e-6


@pytest.mark.parametrize("scale", [2.0**36 * 0.9, 2.0**36 * 11, 2.0**57])
def test_large_noise_is_gaussian_of_its_standard_deviation(scale):
    drawn = discrete_noise.draw_by_rejection(100_000, scale) / scale
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    assert abs(drawn.std() - 1) < 0.012  # five standard errors
    assert np.unique(discrete_noise.draw_by_rejection(1000, scale) % 2).tolist() == [0, 1]  # to the last bit


def test_many_numbers_are_drawn_at_once_and_few_by_opendp(monkeypatch):
    pytest.importorskip("opendp")
    asked = []
    monkeypatch.setattr(discrete_noise, "draw_by_rejection", lambda count, scale: asked.append((count, scale)))
    assert (
        len(discrete_noise.draw_gaussian_noise(discrete_noise.MIN_BATCH_DRAWS, 5.0)) == discrete_noise.MIN_BATCH_DRAWS
    )
    discrete_noise.draw_gaussian_noise(discrete_noise.MIN_BATCH_DRAWS + 1, 5.0)
    assert asked == [(discrete_noise.MIN_BATCH_DRAWS + 1, 5.0)]
    with pytest.raises(StudyError):
        discrete_noise.draw_gaussian_noise(discrete_noise.MIN_BATCH_DRAWS + 1, 2.0**59)


def test_the_bits_are_the_operating_systems(monkeypatch):
    taken, plain = [], os.urandom
    monkeypatch.setattr(os, "urandom", lambda count: taken.append(count) or plain(count))
    np.random.seed(0)
    first = discrete_noise.draw_by_rejection(600, 2.0**36)
    np.random.seed(0)
    assert not np.array_equal(first, discrete_noise.draw_by_rejection(600, 2.0**36))
    assert sum(taken) >= 2 * 600 * 16
