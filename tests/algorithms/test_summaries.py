"""What SummaryClustering sends: enough rows behind every mean, no row among them, and none twice."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fedclust as fc
from fedclust.algorithms.shared.row_likeness import near_rows
from fedclust.algorithms.summary_clustering.sent_summaries import SentSummaries
from fedclust.algorithms.summary_clustering.summaries import Batch, summarise_rows
from fedclust.algorithms.summary_clustering.weighted_points import MAX_SUMMARIES, WeightedPoints
from fedclust.core.envelope import Call
from fedclust.core.site_interface import View
from fedclust.kernels.grouping import ward
from fedclust.questions import ranges
from fedclust.site.policy import PROFILES
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source


def sent_by(fed):
    """Every set of summaries that left, in order, by party."""
    found = []
    exchange = fed.engine.exchange

    def recording(calls, **how):
        replies = exchange(calls, **how)
        found.extend((p, r.release) for p, r in replies.items() if calls[p].handler == summarise_rows.name)
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
    model = fc.SummaryClustering(floor=floor, scale="none").fit(fed)
    ((_, answer),) = left
    assert len(answer.places) <= min(MAX_SUMMARIES, rows // floor)
    assert (answer.rows >= floor).all()
    assert not {tuple(p) for p in answer.places.tolist()} & {tuple(x) for x in X.tolist()}
    if len(answer.places):
        assert answer.rows.sum() == rows
        assert answer.rows @ answer.places / rows == pytest.approx(X.mean(axis=0))
    assert np.isfinite(model.nodes_).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 900), st.integers(1, 4), st.integers(0, 3), st.integers(2, 9))
def test_so_it_is_where_outliers_are_damped(seed, rows, width, digits, floor):
    rng = np.random.default_rng(seed)
    X = np.round(groups(seed, rows, width) * np.where(rng.random((rows, width)) < 0.1, 1000, 1), digits)
    fed = fc.Federation.local({"a": X})
    left = sent_by(fed)
    model = fc.SummaryClustering(floor=floor).fit(fed)
    ((_, answer),) = left
    assert len(answer.places) <= min(MAX_SUMMARIES, rows // floor)
    assert (answer.rows >= floor).all()
    assert answer.rows.sum() == (rows if len(answer.places) else 0)
    shown = answer.places if model.origin_ is None else answer.places * model.spread_ + model.origin_
    assert (shown >= X.min(axis=0) - 1e-6).all()
    assert (shown <= X.max(axis=0) + 1e-6).all()
    assert not near_rows(shown, X).any()
    if len(shown):  # damping groups rows otherwise; what leaves are means, whose total is that of the rows
        assert answer.rows @ shown == pytest.approx(X.sum(axis=0), abs=1e-6 * np.abs(X).sum())


def test_rows_that_are_one_but_for_rounding_are_not_shown_where_values_are_damped():
    rng = np.random.default_rng(1)
    times = rng.choice([1.0, 3.0, 7.0, 11.0, 49.0], size=(400, 1))
    X = np.array([[120.3, 80.7, 36.6]]) * times / times  # a record that was converted to and fro
    X[rng.random(400) < 0.2] += rng.normal(size=3) * 10
    model = fc.SummaryClustering().fit(fc.Federation.local({"a": X, "b": rng.normal(size=(300, 3)) * 10 + 80}))
    assert np.abs(model.nodes_[:, None] - X).max(axis=2).min() > 1e-6


def test_a_site_keeps_few_points_however_many_rows_come():
    held = WeightedPoints.empty(2)
    for block in np.array_split(groups(0, 5000), 7):
        held = held.add_rows(block, block)
        assert len(held.places) <= 400
    assert held.weights.sum() == 5000


def test_rows_are_sent_once_so_rounds_cannot_be_subtracted():
    """The difference of what the coordinator knows after and before a round is a set of whole summaries."""
    model = fc.SummaryClustering(scale="none")
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
    model = fc.SummaryClustering(scale="none").fit(fc.Federation.local({"a": groups(0, 100)}))
    for count in range(1, 6):
        fed = fc.Federation.local({"a": groups(9, 1) + count**2})
        left = sent_by(fed)
        model.partial_fit(fed)
        ((_, answer),) = left
        assert len(answer.places) == (count == 5)
        assert answer.waiting == (count < 5)
        assert any("wait for the next round" in note for note in model.notes_) == (count < 5)
    assert answer.rows.tolist() == [5]
    assert model.node_rows_.sum() == 105


def test_a_table_that_grows_is_not_sent_again():
    """What two rounds differ by is made of a floor of rows, and no row counts twice."""
    X = groups(0, 120)
    model = fc.SummaryClustering(scale="none").fit(fc.Federation.local({"a": X[:100]}))
    for rows in range(101, 121):
        before = (model.node_rows_.sum(), model.node_rows_ @ model.nodes_)
        fed = fc.Federation.local({"a": X[:rows]})
        left = sent_by(fed)
        model.partial_fit(fed)
        ((_, answer),) = left
        due = rows % 5 == 0
        assert answer.rows.tolist() == [5] * due
        assert answer.waiting != due
        assert model.node_rows_.sum() - before[0] == 5 * due
        new = model.node_rows_ @ model.nodes_ - before[1]
        assert new == pytest.approx(X[rows - 5 : rows].sum(axis=0) if due else [0, 0])
    assert model.node_rows_.sum() == 120


def test_of_equal_rows_those_beyond_the_ones_sent_are_new():
    X = np.array([[0.1], [0.1], [0.7], [0.4], [0.5], [0.9]])
    told = SentSummaries.empty(1)
    assert told.new_rows(X).tolist() == X.tolist()
    told = told.with_known_rows(X)
    assert not len(told.new_rows(X[::-1]))
    more = np.array([[0.7], [0.1], [0.1], [0.1], [-0.0], [0.7], [0.7]])
    assert told.new_rows(more).ravel().tolist() == [0.1, 0.0, 0.7, 0.7]
    assert told.has_rows_missing_in(more)
    assert told.has_rows_missing_in(np.delete(X, 0, axis=0))
    assert not told.has_rows_missing_in(np.concatenate([more, X]))


def test_fingerprints_need_the_sites_key():
    X = groups(0, 5)
    assert not set(SentSummaries.empty(2).with_known_rows(X).fingerprints) & set(
        SentSummaries.empty(2).with_known_rows(X).fingerprints
    )


def test_a_new_fit_in_the_same_run_gets_nothing_that_was_not_sent():
    X = groups(0, 203) * [1.0, 50.0]
    fed = fc.Federation.local({"a": X})
    left = sent_by(fed)
    first = fc.SummaryClustering(scale="none").fit(fed).nodes_
    assert np.array_equal(fc.SummaryClustering(scale="none").fit(fed).nodes_, first)
    seen = fc.SummaryClustering(scale="range").fit(fed)
    assert seen.nodes_[np.lexsort(seen.nodes_.T[::-1])] == pytest.approx(first)
    afresh = fc.SummaryClustering(scale="range").fit(fc.Federation.local({"a": X}))
    assert sorted(afresh.node_rows_) != sorted(seen.node_rows_)
    fine = fc.SummaryClustering(scale="none", floor=2).fit(fed)
    assert np.array_equal(fine.nodes_, first)
    coarse = fc.SummaryClustering(scale="none", floor=30).fit(fed)
    assert coarse.node_rows_.min() >= 30
    assert coarse.node_rows_.sum() == 203
    told = [answer for _, answer in left]
    assert np.array_equal(told[-1].places, joined(told[0], 30))
    fc.SummaryClustering(scale="none", floor=300).fit(fed)
    assert not len(left[-1][1].places)


def joined(answer, floor):
    """What anyone can make of an answer: its points joined until each has a floor of rows."""
    count = len(answer.rows)
    return ward(answer.places, answer.rows, np.ones(count), count, floor)[0]


def test_a_fit_after_rows_were_deleted_starts_again():
    X = groups(0, 90)
    desk = SiteServer(SiteData("a", open_source(X, site="a")), PROFILES["none"])
    ask = Batch(View(np.full(2, 12, np.int32)), 5, fresh=True, damped=True)
    first = desk.answer(Call("r", 1, summarise_rows.name, ask, "each", ("a",))).release
    desk.site_data = SiteData("a", open_source(X[3:], site="a"))
    desk._data_by_run.clear()
    again = desk.answer(Call("r", 2, summarise_rows.name, ask, "each", ("a",))).release
    assert first.rows.sum() == 90
    assert again.rows.sum() == 87


def test_waiting_rows_are_not_doubled_by_a_new_fit():
    fed = fc.Federation.local({"a": groups(0, 3)})
    left = sent_by(fed)
    model = fc.SummaryClustering()
    for _ in range(3):
        model.fit(fed)
        assert left[-1][1].waiting
        assert not len(left[-1][1].places)
        assert any("one cluster, at the mean" in note for note in model.notes_)
        assert model.nodes_ == pytest.approx(groups(0, 3).mean(axis=0)[None, :])


@pytest.mark.parametrize("scale", ["none", "range", "damped"])
@pytest.mark.parametrize("copies", [7, 150, 1300])
def test_rows_all_alike_wait_whatever_rounding_makes_of_their_mean(copies, scale):
    alike = np.tile([[0.1, 0.7, 1 / 3]], (copies, 1))
    fed = fc.Federation.local({"alike": alike, "b": groups(0, 60, 3)})
    left = sent_by(fed)
    model = fc.SummaryClustering(scale=scale).fit(fed)
    answers = dict(left)
    assert not len(answers["alike"].places)
    assert answers["alike"].waiting
    assert any(note.startswith("1 site holds back rows that are too few, or too similar") for note in model.notes_)
    later = fc.Federation.local({"alike": alike[:1] + np.arange(1.0, 7)[:, None]})
    left = sent_by(later)
    model.partial_fit(later)
    ((_, answer),) = left
    assert answer.rows.sum() == copies + 6
    assert model.node_rows_.sum() == copies + 66


@pytest.mark.parametrize("seed", range(6))
def test_groups_of_equal_rows_are_not_shown_to_within_rounding(seed):
    rng = np.random.default_rng(seed)
    places = rng.normal(size=(12, 3)) * 0.7
    X = places[rng.integers(12, size=700)]
    fed = fc.Federation.local({"a": X})
    left = sent_by(fed)
    fc.SummaryClustering(scale="none").fit(fed)
    ((_, answer),) = left
    assert answer.rows.sum() == 700
    assert np.abs(answer.places[:, None] - places).max(axis=2).min() > 1e-6


def test_a_mean_that_stands_in_is_asked_for_once():
    model = fc.SummaryClustering(scale="none").fit(fc.Federation.local({"a": groups(0, 3)}))
    fed = fc.Federation.local({"a": groups(0, 3)})
    grown = fc.Federation.local({"a": np.concatenate([groups(0, 3), [[40.0, 41.0]]])})
    before = model.nodes_
    for later in (fed, grown):
        model.partial_fit(later)
        assert np.array_equal(model.nodes_, before)
        assert any("The only cluster stays as it was" in note for note in model.notes_)


def test_the_mean_of_all_stands_in_until_there_are_summaries():
    model = fc.SummaryClustering().fit(fc.Federation.local({"a": groups(0, 3), "b": groups(1, 2)}))
    assert model.n_clusters_ == 1
    model.partial_fit(fc.Federation.local({"a": groups(2, 60), "b": groups(3, 60)}))
    assert model.node_rows_.sum() == 125


def test_sites_of_a_later_round_may_be_others():
    model = fc.SummaryClustering().fit(fc.Federation.local({"a": groups(0, 150)}))
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
        assert (view.transform_points(X)[:, :2] >= 0).all()
        assert (view.transform_points(X)[:, :2] <= 1).all()
        assert view.spread[2] == 1.0
        found.append(view)
    assert found[0].shows_same(found[1])


def _range(columns):
    from fedclust.questions import bounds

    view = yield from bounds.agree_on_bounds(columns)
    return (yield from ranges.scale_to_range(view))


def test_a_ring_around_blobs_has_a_result_where_k_means_would_empty_a_cluster():
    rng = np.random.default_rng(0)
    angle = np.linspace(0, 2 * np.pi, 300, endpoint=False) + np.pi
    parts = {"ring": 14 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(size=(300, 2)) * 0.05}
    middle = 10 * np.stack([np.cos(np.arange(6) * np.pi / 3), np.sin(np.arange(6) * np.pi / 3)], axis=1)
    for name in "abcd":
        parts[name] = np.repeat(middle, 500, axis=0) + rng.normal(size=(3000, 2)) * 0.3
    model = fc.SummaryClustering(scale="none").fit(fc.Federation.local(parts))
    assert (model.cluster_sizes_ > 0).all()
    assert np.isfinite(model.cluster_centers_).all()


def test_a_model_saved_before_clusters_could_be_spherical_uses_votes(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 2)) + np.repeat([[0, 0], [9, 0]], 150, axis=0)
    model = fc.SummaryClustering().fit(fc.Federation.local({"a": X[::2], "b": X[1::2]}))
    path = tmp_path / "model.json"
    model.save(path)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["fitted"].pop("spherical_") is True
    path.write_text(json.dumps(document), encoding="utf-8")
    assert fc.load(path).predict(X).tolist() == model.predict(X).tolist()


def test_sites_with_a_policy_take_part():
    fed = fc.Federation.local(dict(zip("abcd", np.array_split(groups(0, 600), 4), strict=True)), policy="standard")
    assert fc.SummaryClustering().fit(fed).n_clusters_ == 3


def test_a_full_memory_is_reported():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 12)) * rng.uniform(1, 60, size=(400, 1))
    parts = dict(zip("abcd", np.array_split(X, 4), strict=True))
    model = fc.SummaryClustering(max_nodes=20).fit(fc.Federation.local(parts))
    assert len(model.nodes_) <= 20
    assert model.node_rows_.sum() == 400
    assert any("memory of 20 summaries is full" in note for note in model.notes_)
