"""Composition: counts by hand, and small ones hidden so that no total gives them away."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedclust as fc
from fedclust.core.release import HIDDEN_COUNT
from fedclust.core.site_interface import View
from fedclust.questions.composition import compositions
from fedclust.site.displayed_counts import hide_small_counts

CENTERS = np.array([[0.0], [10.0], [20.0]])


def counts(rows, **options):
    fed = fc.Federation.local({"clinic": np.repeat(CENTERS, rows, axis=0)}, **options)
    return fed.run(compositions(View(np.array([5], np.int32)), CENTERS))[0]["clinic"].tolist()


def test_rows_are_counted_by_nearest_centre():
    assert counts([7, 30, 2]) == [7, 30, 2]


def test_a_small_count_is_hidden_together_with_the_next_smallest():
    assert counts([7, 30, 2], policy="standard") == [HIDDEN_COUNT, 30, HIDDEN_COUNT]


def test_several_small_counts_hide_each_other():
    assert counts([3, 30, 2], policy="standard") == [HIDDEN_COUNT, 30, HIDDEN_COUNT]


def test_an_empty_cluster_shows_as_empty():
    assert counts([7, 30, 0], policy="standard") == [HIDDEN_COUNT, 30, HIDDEN_COUNT]


@given(hnp.arrays(np.int64, st.integers(2, 8), elements=st.integers(0, 40)), st.integers(2, 11))
def test_no_small_count_is_shown_or_follows_from_the_total(cells, floor):
    shown = hide_small_counts(cells, floor)
    assert not ((shown > 0) & (shown < floor)).any()
    assert (shown[shown != HIDDEN_COUNT] == cells[shown != HIDDEN_COUNT]).all()
    others = (cells > 0).sum() > 1
    assert (shown == HIDDEN_COUNT).sum() != 1 or not others
