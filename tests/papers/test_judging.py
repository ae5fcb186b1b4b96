"""The rule of agreement, by cases computed by hand."""

import math

import pytest

from papers.reproduction.judging import as_good, half_width, judged
from papers.reproduction.published import Printed


def printed(text, better="high"):
    return Printed("a | b | c", text, better)


@pytest.mark.parametrize(
    ("text", "value", "by"),
    [
        ("0.48", 0.46, "digits"),  # two units of .01
        ("0.48", 0.4599, ""),
        ("0.99289", 0.99287, "digits"),
        ("0.99289", 0.99286, ""),
        ("10.1", 10.3, "digits"),
        ("6", 4.0, "digits"),
        ("6", 3.0, ""),
        ("1,540", 1541.0, "digits"),
        ("-0.0311", -0.0313, "digits"),
    ],
)
def test_a_single_run_agrees_within_two_units_of_the_last_digit(text, value, by):
    assert judged(printed(text), value, 0.0) == by


def test_the_interval_is_that_of_a_mean_of_as_many_repeats_as_the_paper_has():
    # 1, 2, 3: mean 2, sd 1, Student's .975 quantile at 2 degrees of freedom 4.302653; 1/3 + 1/6 = 1/2.
    half = 4.302653 * math.sqrt(0.5)
    assert half_width(1.0, 3, 6) == pytest.approx(half, rel=1e-6)
    assert judged(printed("5.0"), 2.0, half) == "interval"
    assert judged(printed("5.1"), 2.0, half) == ""  # 2 + 3.0424 is below 5.1


def test_more_repeats_of_the_paper_make_the_interval_narrower():
    sd = 0.1290994  # of .1, .2, .3, .4
    assert half_width(sd, 4, 1) > half_width(sd, 4, 10) > half_width(sd, 4, 1000)
    assert half_width(sd, 4, 1) == pytest.approx(3.182446 * sd * math.sqrt(1.25), rel=1e-5)


def test_runs_that_do_not_differ_have_no_interval():
    assert half_width(0.0, 3, 10) == 0
    assert half_width(0.0, 1, 10) == 0
    assert judged(printed("0.60"), 0.5, 0.0) == ""


def test_ours_is_compared_in_as_many_digits_as_are_printed():
    assert as_good(printed("0.57"), 0.5651)
    assert not as_good(printed("0.57"), 0.5649)
    assert as_good(printed("0.31", "low"), 0.3149)
    assert not as_good(printed("0.31", "low"), 0.3151)
