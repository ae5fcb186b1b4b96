"""Hard sweeps on tables small enough for paper and pencil."""

import numpy as np
from kernels_reference import signed

from fedclust.kernels import Sums, hard_sweep


def sums(C, F, unit=0):
    return Sums.zeros(np.full(C, unit), np.full((C, F), unit), unit)


def test_rows_count_and_add_up_at_their_nearest_centre(backend):
    s = sums(2, 2)
    block = np.array([[0.0, 1.0, 10.0], [0.0, 2.0, 20.0]])
    hard_sweep.accumulate(s, block, np.array([[0.0, 0.0], [9.0, 18.0]]))
    assert signed(s.mass) == [2, 1]
    assert signed(s.pull) == [[1, 2], [10, 20]]
    assert signed(s.objective) == 0 + (1 + 4) + (1 + 4)


def test_a_row_between_two_centres_goes_to_the_lower_index(backend):
    s = sums(3, 1)
    hard_sweep.accumulate(s, np.array([[2.0]]), np.array([[9.0], [4.0], [0.0]]))
    assert signed(s.mass) == [0, 1, 0]
    assert signed(s.objective) == 4


def test_coincident_centres_give_everything_to_the_first(backend):
    s = sums(2, 1)
    hard_sweep.accumulate(s, np.array([[5.0, 6.0]]), np.array([[5.0], [5.0]]))
    assert signed(s.mass) == [2, 0]


def test_each_term_is_rounded_half_to_even_before_it_is_added(backend):
    s = sums(1, 1)
    hard_sweep.accumulate(s, np.array([[0.5, 0.5, 1.5, -2.5]]), np.array([[0.0]]))
    assert signed(s.pull) == [[0 + 0 + 2 - 2]]


def test_mass_counts_in_its_own_unit(backend):
    s = Sums.zeros(np.array([-51]), np.array([[-3]]), -3)
    hard_sweep.accumulate(s, np.array([[1.0, 1.0, 1.0]]), np.array([[0.0]]))
    assert signed(s.mass) == [3 << 51]
    assert signed(s.pull) == [[24]]


def test_an_empty_block_changes_nothing(backend):
    s = sums(2, 3)
    hard_sweep.accumulate(s, np.empty((3, 0)), np.zeros((2, 3)))
    hard_sweep.accumulate(s, [], np.zeros((2, 3)))
    assert not s.mass.any()
    assert not s.pull.any()
    assert not s.objective.any()


def test_sums_go_on_from_what_is_there_and_carry_into_the_high_limb(backend):
    s = Sums.zeros(np.array([0]), np.array([[0]]), 0)
    s.pull[0, 0] = [2**64 - 1, 0]
    s.objective[:] = [2**64 - 1, 2**64 - 1]  # minus one
    hard_sweep.accumulate(s, np.array([[2.0]]), np.array([[0.0]]))
    assert s.pull[0, 0].tolist() == [1, 1]
    assert s.objective.tolist() == [3, 0]


def test_negative_sums_borrow(backend):
    s = sums(1, 1)
    hard_sweep.accumulate(s, np.array([[-7.0, 3.0]]), np.array([[0.0]]))
    assert signed(s.pull) == [[-4]]


def test_labels_from_squared_distances_take_the_lowest_index(backend):
    d2 = np.array([[4.0, 1.0, 3.0], [1.0, 1.0, 2.0], [1.0, 5.0, 2.0]])
    assert hard_sweep.labels_from_distances(d2).tolist() == [1, 0, 1]
