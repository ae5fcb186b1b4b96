"""Sums of terms far below their bound, by hand."""

from fractions import Fraction

import numpy as np
import pytest

from fedclust.core.ring import Exact
from fedclust.kernels.fine_sums import fine_sums, fine_sums_by_label
from fedclust.kernels.units import DISTANCE_BITS, unit_of


def total(values, unit, bits):
    """The sum of terms that are each rounded once to 2^unit, as Python's integers."""
    numbers = [round(Fraction(float(v)) * Fraction(2) ** -unit) for v in values]
    assert all(abs(n) <= 2**bits for n in numbers)
    return sum(numbers)


@pytest.mark.parametrize("bits", [60, 91, DISTANCE_BITS])
def test_near_and_far_terms_keep_their_digits(bits):
    rng = np.random.default_rng(bits)
    values = np.concatenate([rng.normal(size=50), rng.normal(size=50) * 2.0**-40, [0.0, -(2.0**-70), 4.0, -4.0]])
    found = Exact(fine_sums(values[None], 3 - bits, bits), np.zeros((), np.int32))
    assert found.to_integers() == [total(values, 3 - bits, bits)]


def test_a_term_next_to_a_larger_one_is_not_lost():
    unit = unit_of(0, DISTANCE_BITS)
    limbs = fine_sums(np.array([[1.0, 2.0**-80, -1.0]]), int(unit))
    assert Exact(limbs, unit).to_floats().tolist() == [2.0**-80]


def test_rows_are_added_by_label_and_column():
    block = np.array([[1.0, 2.0, 4.0], [-1.0, 0.5, 0.25]])
    unit = unit_of(np.array([2, 0]), DISTANCE_BITS)
    found = Exact(fine_sums_by_label(block, np.array([0, 2, 0]), 3, unit), np.tile(unit, (3, 1)))
    assert found.to_floats().tolist() == [[5.0, -0.75], [0.0, 0.0], [2.0, 0.5]]
