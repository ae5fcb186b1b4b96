"""Units and bounds by hand: which power of two a term is rounded to, and when a sum asks for a finer one."""

import numpy as np
import pytest

from fedclust.core.ring import Exact
from fedclust.kernels import exact_sums, units


def test_a_unit_is_51_bits_below_its_bound():
    assert units.unit_of(4).tolist() == -47
    assert units.unit_of(np.array([[0, 7]]), units.DISTANCE_BITS).tolist() == [[-93, -86]]
    assert units.unit_of(np.array([0], np.int64)).dtype == np.int32


def test_a_squared_distance_is_bounded_by_the_farthest_corner():
    # |x| <= 4 and |y| <= 1; from (1, -3) a corner lies at most 5 and 4 away: 25 + 16 = 41 <= 2^6.
    assert units.farthest_in_columns(np.array([2, 0]), np.array([[1.0, -3.0]])).tolist() == [5.0, 4.0]
    assert units.squared_distance_bound(np.array([2, 0]), np.array([[1.0, -3.0]])) == 6
    # Exactly a power of two is its own bound: (1 + 1)^2 = 2^2.
    assert units.squared_distance_bound(np.array([0]), np.array([[1.0], [-0.5]])) == 2


def test_a_row_that_has_only_its_farthest_column_counts_it_for_all():
    # One column of two: 2 / 1 times 5^2 = 50 <= 2^6, and with 3 columns of (2 + 4)^2 it is 3 * 36 = 108 <= 2^7.
    assert units.partial_distance_bound(np.array([2, 0]), np.array([[1.0, -3.0]])) == 6
    assert units.partial_distance_bound(np.array([1, 0, 0]), np.array([[4.0, 0.0, 0.0]])) == 7


@pytest.mark.parametrize(
    ("mass", "shift", "then"),
    [
        (1.0, 0, 0),
        (2.0**-8, 0, 0),  # just enough digits
        (0.75 * 2.0**-8, 0, 8),  # 0.75 * 2^-8 < 2^-8: a shift by 8 brings it to 0.75
        (2.0**-9, 0, 8),  # to one half
        (2.0**-20, 0, 19),
        (0.0, 0, 50),  # every term is below 2^-52: one bit to spare for half a unit
        (0.0, 50, 100),
        (2.0**-60, 50, 59),
        (0.0, 780, 780),  # no finer unit
    ],
)
def test_a_mass_is_asked_for_again_at_this_shift(mass, shift, then):
    found = units.finer_shifts(np.array([1.0, mass]), np.array([0, shift], np.int32))
    assert (shift if found is None else found[1]) == then
    assert found is None or found[0] == 0  # a cluster with its digits keeps its unit


@pytest.mark.parametrize("terms", [[2.0**-9] * 1, [2.0**-30, 2.0**-31], [2.0**-53] * 3, [255 / 256 * 2.0**-8]])
def test_a_finer_unit_still_holds_every_term(terms):
    shifts = np.zeros(1, np.int32)
    for _ in range(3):
        unit = units.unit_of(-shifts)
        found = Exact(exact_sums.exact_totals(np.array([terms]), unit), unit).to_floats()
        finer = units.finer_shifts(found, shifts)
        if finer is None:
            break
        shifts = finer
    assert max(terms) <= 2.0 ** -int(shifts[0])
    assert found.tolist() == [sum(terms)]


def test_an_objective_bounds_the_shares_that_it_is_a_sum_of():
    # Under 2^10 a sum of 4 = 2^(10 - 8) shows enough digits; 3 does not, and no share exceeds 3 and half a unit.
    assert units.closer_share_bound(4.0, bound=10, farthest=10) is None
    assert units.closer_share_bound(3.0, bound=10, farthest=10) == 2
    # A sum of 4 under 2^11 says 2^2 but for rounding, which may hide half a unit.
    assert units.closer_share_bound(4.0, bound=11, farthest=11) == 3


def test_a_share_needs_no_finer_bound_than_a_row_has_digits():
    assert units.closer_share_bound(0.0, bound=10, farthest=10) == 10 - 51
    assert units.closer_share_bound(0.0, bound=-41, farthest=10) == -92
    assert units.closer_share_bound(0.0, bound=-92, farthest=10) == 10 - 104
    assert units.closer_share_bound(0.0, bound=-94, farthest=10) is None


def test_sums_of_squares_bound_their_terms():
    assert units.closer_bounds(np.array([4.0]), np.array([10])) is None
    assert units.closer_bounds(np.array([3.0, 4.0]), np.array([10, 10])).tolist() == [2, 10]
    assert units.closer_bounds(np.array([0.0]), np.array([10])).tolist() == [-40]
