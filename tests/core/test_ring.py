"""The ring: exact, order-free, rounded once."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclust.core.errors import OutOfBounds, WireError
from fedclust.core.ring import Exact, limbs_from_integers, power_above, total

integers = st.integers(-(1 << 127), (1 << 127) - 1)


def of(numbers, unit=0):
    return Exact(limbs_from_integers(numbers, (len(numbers),)), np.asarray(unit, np.int32))


@given(st.lists(integers, min_size=1, max_size=8))
def test_integers_come_back(numbers):
    assert of(numbers).to_integers() == numbers


@given(integers)
def test_floats_are_rounded_once_half_to_even(number):
    # Python's own conversion of an integer rounds correctly, once.
    assert of([number]).to_floats()[0] == float(number)


@pytest.mark.parametrize(
    "number",
    [
        2**53 + 1,
        2**64 - 1,
        2**64 + 2**11,
        2**64 + 2**11 + 1,
        3 * 2**62 + 2**9,
        2**116 + 2**63,
        2**116 + 2**63 + 1,
        -(2**127),
    ],
)
def test_hard_roundings(number):
    assert of([number]).to_floats()[0] == float(number)
    assert of([-number if number > -(2**127) else number]).to_floats()[0] == (
        -float(number) if number > 0 else float(number)
    )


@given(st.lists(st.integers(-(1 << 120), 1 << 120), min_size=1, max_size=40), st.randoms())
def test_a_total_is_the_sum_in_any_order(numbers, random):
    terms = [of([n]) for n in numbers]
    random.shuffle(terms)
    assert total(terms).to_integers() == [sum(numbers)]
    assert total(terms) == total(terms[::-1])


def test_sums_wrap_modulo_2_to_the_128_as_masks_need():
    most = of([(1 << 127) - 1])
    assert (most + of([1])).to_integers() == [-(1 << 127)]


@given(st.floats(-1e6, 1e6), st.integers(-80, -40))
def test_a_number_is_rounded_to_its_unit(value, unit):
    held = Exact.from_floats(value, unit=unit).to_integers()[0]
    assert abs(Fraction(held) * Fraction(2) ** unit - Fraction(value)) <= Fraction(2) ** unit / 2


def test_counts_are_exact_and_signed():
    assert Exact.from_counts([0, 7, -3]).to_floats().tolist() == [0.0, 7.0, -3.0]


def test_units_scale():
    assert of([5], unit=-2).to_floats()[0] == 1.25
    assert of([-5], unit=3).to_floats()[0] == -40.0


def test_other_units_or_shapes_do_not_add():
    with pytest.raises(WireError, match="differ in shape or unit"):
        of([1]) + of([1], unit=1)
    with pytest.raises(WireError, match="differ in shape or unit"):
        of([1]) + of([1, 2])


def test_too_large_an_integer_is_refused():
    with pytest.raises(OutOfBounds, match="127 bits"):
        limbs_from_integers([1 << 127], (1,))


@given(st.floats(1e-300, 1e300))
def test_power_above_is_the_least(bound):
    exponent = power_above(bound)
    assert bound <= 2.0**exponent
    assert bound > 2.0 ** (exponent - 1)
