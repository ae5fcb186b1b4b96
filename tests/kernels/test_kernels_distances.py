"""Squared distances: one order of features in floats, none at all in integers."""

from fractions import Fraction

import numpy as np
import pytest
from kernels_reference import quantised, signed

from fedclust.kernels import distances
from fedclust.kernels.exact_sums import add_in_place


def test_three_four_five(backend):
    d2 = distances.squared_distances(np.array([[3.0, 0.0], [4.0, 0.0]]), np.array([[0.0, 0.0], [3.0, 4.0]]))
    assert d2.tolist() == [[25.0, 0.0], [0.0, 25.0]]


def test_features_are_added_one_after_the_other(backend):
    # (1 + 2^-53) + 2^-53 is 1, 1 + (2^-53 + 2^-53) is not: half a unit is lost each time.
    tiny = 2.0**-26.5
    block = np.array([[1.0], [tiny], [tiny]])
    forwards = 1.0 + tiny * tiny + tiny * tiny
    backwards = tiny * tiny + tiny * tiny + 1.0
    assert forwards != backwards
    assert distances.squared_distances(block, np.zeros((1, 3))).item() == forwards
    assert distances.squared_distances(block[::-1], np.zeros((1, 3))).item() == backwards


def test_many_features_add_in_the_order_of_a_plain_loop(backend):
    rng = np.random.default_rng(0)
    block, centers = rng.normal(size=(97, 41)), rng.normal(size=(6, 97))
    expected = [[0.0] * 41 for _ in range(6)]
    for c in range(6):
        for r in range(41):
            for f in range(97):
                t = float(block[f, r]) - float(centers[c, f])
                expected[c][r] += t * t
    assert distances.squared_distances(block, centers).tolist() == expected


def test_labels_take_the_lowest_index_and_its_distance(backend):
    labels, d2 = distances.nearest_centers(np.array([[1.0, 4.0, 2.0]]), np.array([[0.0], [2.0], [2.0]]))
    assert labels.tolist() == [0, 1, 1]
    assert d2.tolist() == [1.0, 4.0, 0.0]
    assert labels.dtype == np.int32


def test_narrow_columns_widen_exactly(backend):
    block = np.array([[0.1, 0.2, 0.3]], np.float32)
    centers = np.array([[0.1]])
    assert np.array_equal(
        distances.squared_distances(block, centers), distances.squared_distances(block.astype(np.float64), centers)
    )


@pytest.mark.parametrize("features", [1, 5, 1024, 1025, 2100])
def test_exact_distances_are_the_sum_of_rounded_terms(backend, features):
    rng = np.random.default_rng(features)
    block, centers = rng.normal(size=(features, 3)) * 100, rng.normal(size=(2, features))
    unit = -80
    expected = [
        [
            sum(quantised((x - v) * (x - v), unit) for x, v in zip(block[:, r], centers[c], strict=True))
            for r in range(3)
        ]
        for c in range(2)
    ]
    assert signed(distances.exact_distances(block, centers, unit)) == expected


def test_exact_distances_round_half_to_even_once(backend):
    block = np.array([[1.0, 1.5, 2.0, 3.0]])
    quarter = signed(distances.exact_distances(block * 0.5, np.zeros((1, 1)), 0))
    assert quarter == [[0, 1, 1, 2]]  # 1/4, 9/16, 1, 9/4
    halves = np.sqrt(np.array([[0.5, 2.5, 4.5]]))
    assert signed(distances.exact_distances(halves, np.zeros((1, 1)), 0))[0] == [
        quantised(float(h) ** 2, 0) for h in halves[0]
    ]


def test_exact_distances_reach_their_bound_and_keep_small_digits(backend):
    unit = -100
    block = np.array([[2.0], [2.0**-50]])
    total = signed(distances.exact_distances(block, np.zeros((1, 2)), unit))[0][0]
    assert total == (1 << 102) + 1
    assert Fraction(total) * Fraction(2) ** unit == 4 + Fraction(1, 2**100)


def test_exact_distances_do_not_depend_on_the_order_or_the_split_of_features(backend):
    rng = np.random.default_rng(5)
    block, centers = rng.normal(size=(30, 77)) * 10.0 ** rng.integers(-5, 5, (30, 1)), rng.normal(size=(4, 30))
    whole = distances.exact_distances(block, centers, -60)
    order = rng.permutation(30)
    assert np.array_equal(whole, distances.exact_distances(block[order], centers[:, order], -60))
    for cut in (1, 13, 29):
        parts = distances.exact_distances(block[:cut], centers[:, :cut], -60)
        add_in_place(parts, distances.exact_distances(block[cut:], centers[:, cut:], -60))
        assert np.array_equal(whole, parts)
