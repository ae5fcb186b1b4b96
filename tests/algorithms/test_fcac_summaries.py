"""What FCAC sends by default: enough rows behind every mean, no row among them, and none told twice."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fedclust as fc
from fedclust.algorithms.fcac_summaries import MOST_SENT, Held, summaries
from fedclust.preprocessing import ranges


def sent_by(fed):
    """Every set of summaries that left, in order, by party."""
    found = []
    exchange = fed.engine.exchange

    def recording(calls, **how):
        replies = exchange(calls, **how)
        found.extend((p, r.release) for p, r in replies.items() if calls[p].handler == summaries.name)
        return replies

    fed.engine.exchange = recording
    return found


def groups(seed, rows, width=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, width)) + rng.integers(3, size=(rows, 1)) * 8


@settings(max_examples=40, deadline=None)
@example(310508, 73, 3, 0, 2)  # rows with negative zeros
@given(st.integers(0, 10**6), st.integers(1, 900), st.integers(1, 4), st.integers(0, 3), st.integers(2, 9))
def test_every_summary_has_a_floor_of_rows_and_none_is_a_row(seed, rows, width, digits, floor):
    X = np.round(groups(seed, rows, width), digits)
    fed = fc.Federation.local({"a": X})
    left = sent_by(fed)
    model = fc.FCAC(floor=floor, scale="none").fit(fed)
    ((_, answer),) = left
    assert len(answer.places) <= min(MOST_SENT, rows // floor)
    assert (answer.rows >= floor).all()
    assert not {tuple(p) for p in answer.places.tolist()} & {tuple(x) for x in X.tolist()}
    if len(answer.places):
        assert answer.rows.sum() == rows
        assert answer.rows @ answer.places / rows == pytest.approx(X.mean(axis=0))
    assert np.isfinite(model.nodes_).all()


def test_a_site_keeps_few_points_however_many_rows_come():
    held = Held.none(2)
    for block in np.array_split(groups(0, 5000), 7):
        held = held.taking(block)
        assert len(held.places) <= 400
    assert held.weights.sum() == 5000


def test_rows_are_told_once_so_rounds_cannot_be_subtracted():
    """The difference of what the coordinator knows after and before a round is a set of whole summaries."""
    model = fc.FCAC(scale="none")
    known = set()
    for number in range(3):
        X = groups(number, 203)
        fed = fc.Federation.local({"a": X})
        left = sent_by(fed)
        model.partial_fit(fed)
        ((_, answer),) = left
        assert answer.rows.sum() == 203
        assert (answer.rows >= 5).all()
        assert answer.rows @ answer.places / 203 == pytest.approx(X.mean(axis=0))
        after = {p.tobytes() for p in model.nodes_}
        assert known < after
        known = after
    assert model.node_rows_.sum() == 609


def test_a_row_that_comes_alone_waits_for_others():
    model = fc.FCAC(scale="none").fit(fc.Federation.local({"a": groups(0, 100)}))
    for count in range(1, 6):
        fed = fc.Federation.local({"a": groups(9, 1) + count})
        left = sent_by(fed)
        model.partial_fit(fed)
        ((_, answer),) = left
        assert len(answer.places) == (count == 5)
        assert answer.waiting == (count < 5)
        assert any("wait for the next round" in note for note in model.notes_) == (count < 5)
    assert answer.rows.tolist() == [5]
    assert model.node_rows_.sum() == 105


def test_waiting_rows_are_forgotten_by_a_new_fit():
    fed = fc.Federation.local({"a": groups(0, 3)})
    model = fc.FCAC().fit(fed)
    assert any("one cluster, at the mean" in note for note in model.notes_)
    model.fit(fed)
    left = sent_by(fed)
    model.fit(fed)
    assert left[0][1].waiting
    assert model.nodes_ == pytest.approx(groups(0, 3).mean(axis=0)[None, :])


def test_the_mean_of_all_stands_in_until_there_are_summaries():
    model = fc.FCAC().fit(fc.Federation.local({"a": groups(0, 3), "b": groups(1, 2)}))
    assert model.n_clusters_ == 1
    model.partial_fit(fc.Federation.local({"a": groups(2, 60), "b": groups(3, 60)}))
    assert model.node_rows_.sum() == 125


def test_sites_of_a_later_round_may_be_others():
    model = fc.FCAC().fit(fc.Federation.local({"a": groups(0, 150)}))
    model.partial_fit(fc.Federation.local({"b": groups(1, 150) + 24}))
    assert model.n_clusters_ == 6
    assert [entry["rows"] for entry in model.history_] == [150, 150]
    assert model.history_[1]["shift"] > 0


def test_ranges_are_within_a_step_of_the_ladder_for_every_split():
    X = np.column_stack([np.linspace(-3, 9, 50), np.linspace(0, 1, 50) ** 9 * 1e6, np.full(50, 7.0)])
    found = []
    for parts in ({"a": X}, {"a": X[:3], "b": X[3:40], "c": X[40:]}):
        fed = fc.Federation.local(parts)
        view = fed.run(_range(3))[0]
        assert (view.spread[:2] >= np.ptp(X, axis=0)[:2]).all()
        assert (view.spread[:2] <= 2**0.25 * np.ptp(X, axis=0)[:2]).all()
        assert (view.points(X)[:, :2] >= 0).all()
        assert (view.points(X)[:, :2] <= 1).all()
        assert view.spread[2] == 1.0
        found.append(view)
    assert found[0].same(found[1])


def _range(columns):
    from fedclust.preprocessing import bounds

    view = yield from bounds.agree(columns)
    return (yield from ranges.ranged(view))
