"""Spreads of few summaries are evened: by hand, whatever the points, and in clusters that size would hide."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import pdist

import fedclust as fc
from fedclust.algorithms import fcac_axes
from fedclust.algorithms.fcac_axes import FLAT, PLACES, POWER, Axes
from fedclust.algorithms.fcac_fences import Fences
from fedclust.algorithms.fcac_graph import FEW, clusters

points = arrays(np.float64, st.tuples(st.integers(2, 20), st.integers(1, 5)), elements=st.integers(-99, 99).map(float))


def spreads(seen, rows):
    share = rows / rows.sum()
    return np.linalg.svd((seen - share @ seen) * np.sqrt(share)[:, None], compute_uv=False)


def test_evened_by_hand():
    """Rows 3 at (81, 0) and (-81, 0), 1 at (0, 2) and (0, -2): mean 0, variances 6561 * 3/4 and 4 * 1/4."""
    found = Axes.of(np.array([[81.0, 0], [-81, 0], [0, 2], [0, -2]]), np.array([3, 3, 1, 1]))
    wide, narrow = 81 * np.sqrt(0.75), 1.0
    seen = found.seen(np.array([[81.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
    assert seen[0] == pytest.approx([81 / wide, 0])
    assert seen[1] == pytest.approx([0, 2 * (narrow / wide) ** (POWER - 1) / wide])
    assert seen[2].tolist() == [0, 0]


@settings(max_examples=200, deadline=None)
@given(points, st.integers(0, 2**32 - 1))
def test_each_spread_counts_by_its_power(own, seed):
    rows = np.random.default_rng(seed).integers(5, 60, len(own))
    before = spreads(own, rows)
    before = before[before > 1e-3 * max(before[0], 1e-9)]
    seen = Axes.of(own, rows).seen(own)
    assert np.isfinite(seen).all()
    if not len(before):
        assert not seen.any()
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
    for other in (own @ turned, own * 1e12, own * 1e-12 + 3.0):
        assert pdist(Axes.of(other, rows).seen(other)) == pytest.approx(here, abs=1e-3 if other[0, 0] < 9 else 1e-7)


def test_what_is_flat_is_left_out():
    rng = np.random.default_rng(2)
    own = np.column_stack([rng.normal(size=(20, 2)), np.full(20, 7.0), rng.normal(size=20) * FLAT / 10])
    found = Axes.of(own, np.full(20, 5))
    assert len(found.along) == 2
    assert not found.seen(found.middle + np.array([[0, 0, 99.0, 0]])).any()
    alike = Axes.of(np.full((9, 3), 0.1), np.full(9, 5))
    assert not alike.seen(np.full((9, 3), 0.1)).any()


def test_equal_distances_stay_equal():
    """On a grid, whose points have neighbours equally far, and whose spreads are not those of the grid."""
    grid = np.stack(np.meshgrid(np.arange(7.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    seen = Axes.of(grid, np.full(35, 5)).seen(grid).reshape(5, 7, 2)
    for axis in (0, 1):
        steps = np.linalg.norm(np.diff(seen, axis=axis), axis=-1)
        assert np.ptp(steps) < 3 * 10.0**-PLACES


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
    model = fc.FCAC().fit(X)
    assert model.axes_.shape == (5, 4)
    model.save(tmp_path / "model.json")
    again = fc.load(tmp_path / "model.json")
    assert np.array_equal(again.axes_, model.axes_)
    assert np.array_equal(again.predict(X), model.predict(X))
    again.axes_ = None  # as it was saved then
    nodes, rows = Fences(*again.fences_).seen(again.scaled_nodes_), again.node_rows_
    centers = [
        np.average(nodes[again.node_labels_ == c], axis=0, weights=rows[again.node_labels_ == c])
        for c in range(again.n_clusters_)
    ]
    seen = Fences(*again.fences_).seen((X - again.origin_) / again.spread_)
    nearest = ((seen[:, None] - np.stack(centers)) ** 2).sum(axis=2).argmin(axis=1)
    assert np.array_equal(again.predict(X), nearest)


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
