"""Accuracy of the polynomials against long doubles, and the values they must hit."""

import numpy as np
import pytest

from fedclust.kernels import elementary

wide = np.longdouble
ULP = 2.0**-52


def relative_error(found, expected):
    return float(np.max(np.abs((found - expected) / expected)))


@pytest.mark.parametrize("p", [0.5, 1 / 0.7, 10 / 3, 10.0, -1.1, -2.5, 100.0])
def test_powers_keep_their_digits_down_to_tiny_bases(backend, p):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random(20_000), 10.0 ** rng.uniform(-30, 0, 20_000), 1 + rng.uniform(-1e-3, 1e-3, 1000)])
    expected = wide(x) ** wide(p)
    normal = (expected > 1e-300) & (expected < 1e300)
    assert relative_error(elementary.power(x, p)[normal], expected[normal]) <= 2e-16 * (1 + abs(p))


@pytest.mark.parametrize(
    ("function", "x"),
    [
        ("exp", np.linspace(-700, 700, 30_011)),
        ("exp2", np.linspace(-1000, 1000, 30_011)),
        ("log", 10.0 ** np.linspace(-300, 300, 30_010)),
        ("log2", 10.0 ** np.linspace(-300, 300, 30_010)),
        ("log", np.linspace(0.7, 1.4, 30_000)),
        ("log2", np.linspace(0.7, 1.4, 30_000)),
    ],
)
def test_functions_are_right_to_two_units_in_the_last_place(backend, function, x):
    expected = getattr(np, function)(wide(x))
    assert relative_error(getattr(elementary, function)(x), expected) <= 2 * ULP


def test_whole_powers_of_two_are_exact(backend):
    n = np.arange(-1021.0, 1024.0)
    assert np.array_equal(elementary.exp2(n), np.ldexp(1.0, n.astype(int)))
    assert np.array_equal(elementary.log2(np.ldexp(1.0, n.astype(int))), n)


def test_results_under_the_floor_are_zero_and_over_the_top_infinite(backend):
    assert elementary.exp2(np.array([-1021.0, -1021.5, -2000.0, 1024.0])).tolist() == [2.0**-1021, 0.0, 0.0, np.inf]
    assert elementary.exp(np.array([-800.0, 800.0])).tolist() == [0.0, np.inf]
    assert elementary.power(np.array([1e-200, 1e-308]), 10.0).tolist() == [0.0, 0.0]
    assert elementary.power(np.array([1e200]), 2.0).tolist() == [np.inf]


def test_subnormal_bases_are_not_flushed(backend):
    assert elementary.power(np.array([2.0**-1074, 2.0**-1060]), 0.5).tolist() == [2.0**-537, 2.0**-530]
    assert elementary.log2(np.array([2.0**-1074])).tolist() == [-1074.0]


def test_zero_and_one(backend):
    zero_one = np.array([0.0, 1.0])
    assert elementary.power(zero_one, 0.3).tolist() == [0.0, 1.0]
    assert elementary.power(zero_one, -0.3).tolist() == [np.inf, 1.0]
    assert elementary.log(zero_one).tolist() == [-np.inf, 0.0]
    assert elementary.exp(np.array([0.0])).tolist() == [1.0]
