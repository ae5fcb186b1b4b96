"""Spreads of few summaries are evened: by hand, whatever the points, and in clusters that size would hide."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import pdist, squareform

import fedclust as fc
from fedclust.algorithms import fcac_axes
from fedclust.algorithms.fcac_axes import PLACES, POWER, Axes
from fedclust.algorithms.fcac_fences import Fences
from fedclust.algorithms.fcac_graph import FEW, clusters, silhouette

points = arrays(np.float64, st.tuples(st.integers(2, 20), st.integers(1, 5)), elements=st.integers(-99, 99).map(float))


def spreads(seen, rows):
    share = rows / rows.sum()
    return np.linalg.svd((seen - share @ seen) * np.sqrt(share)[:, None], compute_uv=False)


def test_evened_by_hand():
    """Rows 3 at (81, 0) and (-81, 0), 1 at (0, 2) and (0, -2): mean 0, variances 6561 * 3/4 and 4 * 1/4, so
    spreads 70.14806 and 1.
    """
    found = Axes.of(np.array([[81.0, 0], [-81, 0], [0, 2], [0, -2]]), np.array([3, 3, 1, 1]))
    seen = found.seen(np.array([[81.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
    assert seen[0] == pytest.approx([81 / 70.14806, 0])
    assert seen[1] == pytest.approx([0, 2 * 70.14806**0.25 / 70.14806])
    assert seen[2].tolist() == [0, 0]


@settings(max_examples=200, deadline=None)
@given(points, st.integers(0, 2**32 - 1))
@example(np.full((19, 2), 99.0), 18)
def test_each_spread_counts_by_its_power(own, seed):
    rows = np.random.default_rng(seed).integers(5, 60, len(own))
    before = spreads(own, rows)
    before = before[before > 1e-3 * max(before[0], 1e-9)]
    seen = Axes.of(own, rows).seen(own)
    assert np.isfinite(seen).all()
    if not len(before):
        assert not np.ptp(seen, axis=0).any()  # all in one place
        return
    after = spreads(seen, rows)[: len(before)]
    assert after == pytest.approx((before / before[0]) ** POWER, abs=1e-6)


def test_weights_count_as_rows():
    rng = np.random.default_rng(0)
    own, rows = rng.normal(size=(40, 3)) * [9, 3, 1], rng.integers(1, 9, 40)
    each = Axes.of(np.repeat(own, rows, axis=0), np.ones(rows.sum(), np.int64))
    assert Axes.of(own, rows).seen(own) == pytest.approx(each.seen(own), abs=10.0**-PLACES)


def test_neither_where_axes_point_nor_the_unit_makes_a_difference():
    rng = np.random.default_rng(1)
    own, rows = rng.normal(size=(30, 4)) * [40, 8, 2, 1], rng.integers(5, 50, 30)
    turned, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    here = pdist(Axes.of(own, rows).seen(own))
    for other, off in ((own @ turned, 1e-7), (own * 1e12, 1e-7), (own * 1e-12 + 3.0, 1e-3)):
        assert pdist(Axes.of(other, rows).seen(other)) == pytest.approx(here, abs=off)


def test_what_is_flat_is_left_out():
    rng = np.random.default_rng(2)
    own = np.column_stack([rng.normal(size=(60, 2)), np.full(60, 7.0), rng.normal(size=(60, 2)) * [3e-5, 3e-6]])
    found = Axes.of(own, np.full(60, 5))
    assert len(found.along) == 3
    assert not found.seen(found.middle + np.array([[0, 0, 99.0, 0, 0]])).any()


def test_points_come_out_the_same_whatever_comes_with_them():
    rng = np.random.default_rng(3)
    own, rows = np.round(rng.normal(size=(50, 6)) @ rng.normal(size=(6, 6)), 1), rng.integers(5, 60, 50)
    seen, order = Axes.of(own, rows).seen(own), rng.permutation(50)
    assert np.array_equal(Axes.of(own[order], rows[order]).seen(own[order]), seen[order])
    assert np.array_equal(np.concatenate([Axes.of(own, rows).seen(row[None]) for row in own]), seen)


def test_partitions_are_judged_along_the_same_axes():
    rng = np.random.default_rng(4)
    own, rows = rng.normal(size=(50, 3)) * [9, 3, 1], rng.integers(5, 60, 50)
    found = clusters(own, rows, seed=0)
    (level,) = (level for level in found.levels if level.clusters == found.count)
    apart = squareform(pdist(found.axes.seen(own)))
    assert level.silhouette == pytest.approx(silhouette(apart, rows.astype(float), found.labels))
    assert level.silhouette != pytest.approx(silhouette(squareform(pdist(own)), rows.astype(float), found.labels))


def sized(seed, rows=240):
    """Two kinds of beasts: all lengths go with size, and the kinds differ in shape."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    size = rng.normal(size=(rows, 1))
    return size + np.array([-1, 1, -1, 1]) * (2 * y - 1)[:, None] + 0.5 * rng.normal(size=(rows, 4)), y


def test_size_hides_kinds_less(monkeypatch):
    def agreed():
        for seed in range(5):
            X, y = sized(seed)
            model = fc.FCAC().fit(fc.Federation.local({"a": X[::3], "b": X[1::3], "c": X[2::3]}))
            assert model.round_
            yield fc.agreement.ari(model.predict(X), y)

    evened = np.mean([*agreed()])
    monkeypatch.setattr(fcac_axes, "POWER", 1.0)
    assert evened > np.mean([*agreed()]) + 0.1


def test_only_few_points_are_evened():
    rng = np.random.default_rng(0)
    few, many = (rng.normal(size=(n, 3)) for n in (FEW - 1, FEW))
    assert clusters(few, np.full(FEW - 1, 5), seed=0).round
    assert clusters(many, np.full(FEW, 5), seed=0).axes is None
    assert fc.FCAC("published").fit(few).axes_ is None


def test_a_model_with_axes_is_kept_and_one_from_before_goes_by_its_centres(tmp_path):
    X, _ = sized(0)
    rows = np.random.default_rng(0).uniform(X.min(axis=0), X.max(axis=0), (2000, 4))
    model = fc.FCAC().fit(X)
    assert model.axes_.shape == (5, 4)
    model.save(tmp_path / "model.json")
    again = fc.load(tmp_path / "model.json")
    assert np.array_equal(again.axes_, model.axes_)
    assert np.array_equal(again.predict(rows), by_hand(model, rows))
    again.axes_ = None  # as it was saved then
    assert np.array_equal(again.predict(rows), by_hand(again, rows))
    assert (again.predict(rows) != model.predict(rows)).any()


def by_hand(model, rows):
    """The nearest centre of the summaries, all damped, and evened where the model does so."""
    seen = [Fences(*model.fences_).seen(own) for own in (model.scaled_nodes_, (rows - model.origin_) / model.spread_)]
    if model.axes_ is not None:
        seen = [Axes(model.axes_[0], model.axes_[1:]).seen(own) for own in seen]
    own = [model.node_labels_ == c for c in range(model.n_clusters_)]
    centers = np.stack([np.average(seen[0][mine], axis=0, weights=model.node_rows_[mine]) for mine in own])
    return ((seen[1][:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)


def test_a_row_goes_where_it_goes_whatever_comes_with_it():
    X, _ = sized(1)
    model = fc.FCAC().fit(X)
    alone = np.concatenate([model.predict(row[None]) for row in X])
    assert np.array_equal(alone, model.predict(X))
    far = np.array([[1e37, 0, 0, 0], [-1e37, 1e37, 0, 0]])
    assert set(model.predict(far)) <= set(range(model.n_clusters_))


def test_rounds_with_more_summaries_are_evened_no_more():
    X, _ = sized(0)
    model = fc.FCAC().fit(fc.Federation.local({"a": X}))
    assert model.axes_ is not None
    more, _ = sized(1, rows=400)
    model.partial_fit(fc.Federation.local({"b": more}))
    assert len(model.nodes_) >= FEW
    assert model.axes_ is None
    assert not model.round_
