"""A round of c-means at units fine enough for every cluster: what is asked again, and under which bound."""

from dataclasses import replace

import numpy as np
import pytest

import fedclust as fc
from fedclust.algorithms.cmeans import row_split, rows_with_gaps
from fedclust.algorithms.cmeans.exact_rounds import FallingObjective, check_shares
from fedclust.core.effects import run_on_own_rows
from fedclust.core.site_interface import View
from fedclust.site.site_data import HandlerContext, SiteData
from fedclust.site.sources import open_source

VIEW = View(np.array([4], np.int32))


def turn(X):
    return HandlerContext(SiteData("p", open_source(np.asarray(X, float), site="p")), (0, 1), {})


def asked(X, ask):
    """The questions of one round on these rows, and where it moves the centres."""
    questions = []

    def noted(protocol):
        answer = None
        while True:
            try:
                effect = protocol.send(answer)
            except StopIteration as stop:
                return stop.value
            questions.append(effect.message)
            answer = yield effect

    return questions, run_on_own_rows(noted(row_split.one_round(ask, None)), turn(X))


def test_units_by_hand():
    ask = replace(row_split.make_question(VIEW, np.array([[1.0], [0.0]]), 2.0), shifts=np.array([0, 9], np.int32))
    mass, pull, objective = ask.units
    assert ask.farthest == ask.reach == 9  # (16 + 1)^2 = 289 <= 2^9
    assert mass.tolist() == [-51, -60]
    assert pull.tolist() == [[-47], [-56]]
    assert int(objective) == -42


def test_units_of_rows_with_gaps_are_those_of_each_column():
    view = View(np.array([4, 2], np.int32), missing="partial")
    ask = replace(rows_with_gaps.make_question(view, np.zeros((1, 2)), 2.0), shifts=np.array([[0, 7]], np.int32))
    share, pull, objective = ask.units
    assert share.tolist() == [[-51, -58]]
    assert pull.tolist() == [[-47, -56]]
    assert ask.reach == ask.largest_share == 9  # 2 * 16^2
    assert int(objective) == -42
    assert ask.farthest == 9  # 16^2 + 4^2 = 272
    assert ask.holds_any_row


def test_a_round_with_digits_is_asked_for_once():
    questions, moved = asked(
        [[0.0], [2.0], [10.0], [12.0]], row_split.make_question(VIEW, np.array([[0.0], [11.0]]), 2.0)
    )
    assert len(questions) == 1
    assert moved.mass.min() > 2.0**-8


def test_a_far_cluster_is_asked_for_again_at_a_finer_unit():
    # m = 1.5: u_2 = 1 / (1 + (d2_2 / d2_1)^2). From 0.25 to the centres at 0 and 16 the ratio is 63^2, so
    # u_2^m = (1 / (1 + 63^4))^1.5 = 1.6e-11 = 2^-35.9, for each of the two rows: together 2^-34.9.
    X = [[0.25], [0.25]]
    questions, moved = asked(X, row_split.make_question(VIEW, np.array([[0.0], [16.0]]), 1.5))
    assert [ask.shifts.tolist() for ask in questions] == [[0, 0], [0, 34]]
    expected = 2 * (1 / (1 + 63.0**4)) ** 1.5
    assert moved.mass[1] == pytest.approx(expected, rel=1e-14)
    assert moved.centers[1, 0] == pytest.approx(0.25, rel=1e-14)
    # The objective, just below 2 * 0.25^2 = 2^-3, shows too few digits under (16 + 16)^2 = 2^10: a closer bound.
    assert [ask.reach for ask in questions] == [10, -3]


def test_a_hard_cluster_without_rows_is_empty_at_once():
    questions, moved = asked([[3.0], [-3.0]], row_split.make_question(VIEW, np.array([[0.0], [16.0]]), 1.0))
    assert len(questions) == 1
    assert moved.mass.tolist() == [2, 0]


def test_a_cluster_that_shows_nothing_at_any_unit_is_empty():
    # m = 1.01: (1 / 63^2)^101 is 2^-1207, and there is no unit for it.
    questions, moved = asked([[0.25], [0.25]], row_split.make_question(VIEW, np.array([[0.0], [16.0]]), 1.01))
    assert [ask.shifts[1] for ask in questions] == list(range(0, 751, 50))
    assert moved.mass[1] == 0


def test_an_objective_below_the_rounding_of_moved_centres_is_left_alone():
    centers = np.array([[0.5]])
    ask = row_split.make_question(VIEW, centers, 1.0)
    exactly_there = [[0.5], [0.5]]
    assert [q.reach for q in asked(exactly_there, ask)[0]] == [9, -42, -93, -95]
    moved_there = replace(ask, reach=0)
    assert [q.reach for q in asked(exactly_there, moved_there)[0]] == [0]


def test_the_last_objective_bounds_the_next_shares():
    falling = FallingObjective()
    ask = row_split.make_question(VIEW, np.array([[1.0]]), 1.0)
    assert falling.tighten(ask) is ask
    falling.observe(5.0, VIEW, np.array([[1.0]]))
    assert falling.tighten(ask).reach == 4  # 5 <= 2^3, and a bit to spare
    falling.observe(1e6, VIEW, np.array([[1.0]]))
    assert falling.tighten(ask).reach == ask.reach  # no row reaches so far
    falling.observe(0.0, VIEW, np.array([[1.0]]))
    assert falling.tighten(ask).reach == 9 - 72 + 1  # the rounding of the centres
    falling.forget()
    assert falling.tighten(ask) is ask


def test_a_share_at_the_bound_is_added_and_one_beyond_is_refused():
    blocks = [np.array([[1.0, 2.0]]), np.array([[4.0]])]
    check_shares(blocks, 2, lambda rows: rows[0])
    with pytest.raises(fc.FedclustError, match="one row adds more to the objective than is possible"):
        check_shares(blocks, 1, lambda rows: rows[0])
