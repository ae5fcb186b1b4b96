"""Outliers are damped: by hand, whatever the column, and in clusters that they would hide."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedclust as fc
from fedclust.algorithms.summary_clustering.outlier_fences import FENCE_RANGES, TAIL, OutlierFences
from fedclust.kernels import _backend

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 6))


def test_fences_by_hand():
    """Rows 0 0 1 2 2 2 3 50: quartiles 0 (two of eight rows) and 2 (six of eight), so fences at -6 and 8."""
    found = OutlierFences.of_points(np.array([[0.0], [1.0], [2.0], [3.0], [50.0]]), np.array([2, 1, 3, 1, 1]))
    assert (found.low.tolist(), found.high.tolist()) == ([0.0], [2.0 + FENCE_RANGES * 2.0])
    seen = found.damp(np.array([[-4.0], [2.0], [8.0], [16.0]])).ravel()
    assert seen == pytest.approx([-TAIL * math.log(3), 0.25, 1.0, 1.0 + TAIL * math.log(5)])  # half a width, a width


def test_weights_count_as_rows():
    rng = np.random.default_rng(0)
    points, rows = rng.standard_cauchy((40, 3)), rng.integers(1, 9, 40)
    told = OutlierFences.of_points(points, rows)
    each = OutlierFences.of_points(np.repeat(points, rows, axis=0))
    assert np.array_equal(told.low, each.low)
    assert np.array_equal(told.high, each.high)


def test_columns_without_quartiles_to_go_by_reach_to_their_extremes():
    points = np.array([[7.0, 0.0], [7.0, 0.0], [7.0, 0.0], [7.0, 0.0], [7.0, 5.0]])
    found = OutlierFences.of_points(points)
    assert (found.low.tolist(), found.high.tolist()) == ([7.0, 0.0], [7.0, 5.0])
    assert found.damp(points).tolist() == [[0.0, 0.0]] * 4 + [[0.0, 1.0]]


@settings(max_examples=200, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=40), st.lists(numbers, min_size=2, max_size=9))
def test_the_order_stays_and_what_lies_within_keeps_its_distances(column, others):
    fences = OutlierFences.of_points(np.array(column)[:, None])
    x = np.sort(np.array(others))[:, None]
    seen = fences.damp(x)
    assert np.isfinite(seen).all()
    assert (np.diff(seen, axis=0) >= 0).all()
    within = (x >= fences.low) & (x <= fences.high)
    wide = float(fences.high[0] - fences.low[0]) or 1.0
    assert seen[within] == pytest.approx((x[within] - fences.low[0]) / wide)


@pytest.mark.parametrize("noise", [1e-17, 1e-12, 0.0])
def test_rounding_makes_no_quartiles(noise):
    """0.3 in most rows, some of them a last bit off, and a few elsewhere: the column keeps its range."""
    rng = np.random.default_rng(0)
    column = 0.3 + noise * rng.normal(size=200)
    column[:6], column[6:12] = -1.0, 1.0
    found = OutlierFences.of_points(column[:, None])
    assert (found.low.tolist(), found.high.tolist()) == ([-1.0], [1.0])
    alike = OutlierFences.of_points(column[12:, None])
    assert np.ptp(alike.damp(column[12:, None])) <= 20 * noise


def test_values_that_are_next_to_nothing_stay_finite():
    points = np.array([[0.0], [5e-324], [1e-323], [1e-310], [3e-308]])
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(OutlierFences.of_points(points).damp(np.array([[-1e37], [0.0], [1e37]]))).all()


def test_the_same_bits_compiled_or_in_numpy():
    rng = np.random.default_rng(1)
    points = rng.standard_cauchy((500, 4)) * [1, 1e-9, 1e9, 1]
    found = {}
    for name in ("numpy", _backend.backend()):
        with _backend.use_backend(name):
            found[name] = OutlierFences.of_points(points).damp(points).tobytes()
    assert len(set(found.values())) == 1


def spoilt(seed, bad):
    """Three groups in a plane, and some rows whose first value is a mark that somebody took for a number."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], 200)
    X = np.array([[0.0, 0], [9, 0], [18, 9]])[y] + rng.normal(size=(600, 2))
    X[rng.choice(600, bad, replace=False), 0] = 99_999.0
    return X, y


@pytest.mark.parametrize("seed", range(3))
def test_a_mark_for_a_missing_value_does_not_hide_clusters(seed):
    X, y = spoilt(seed, 12)
    fed = fc.Federation.local({"a": X[::2], "b": X[1::2]})
    damped, ranged = (fc.SummaryClustering(scale=scale).fit(fed).predict(X) for scale in ("damped", "range"))
    good = X[:, 0] < 1000
    assert fc.agreement.ari(damped[good], y[good]) > 0.95
    assert fc.agreement.ari(ranged[good], y[good]) < 0.7


def test_columns_nearly_all_of_one_value_do_not_hide_clusters():
    """Means of equal values differ in their last bits, which are no spread to look through."""
    X, y = spoilt(0, 0)
    rare = np.random.default_rng(1).choice([-1.0, 0.0, 1.0], size=(600, 3), p=[0.03, 0.94, 0.03])
    X = np.concatenate([X, rare], axis=1)
    model = fc.SummaryClustering().fit(fc.Federation.local({f"s{i}": X[i::4] for i in range(4)}))
    assert ((model.fences_[1] - model.fences_[0])[2:] > 0.1).all()
    assert fc.agreement.ari(model.predict(X), y) > 0.95


def test_a_model_with_fences_is_kept_and_one_without_damps_nothing(tmp_path):
    X, _ = spoilt(0, 12)
    model = fc.SummaryClustering().fit(X)
    model.save(tmp_path / "model.json")
    again = fc.load(tmp_path / "model.json")
    assert np.array_equal(again.fences_, model.fences_)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert fc.SummaryClustering(scale="range").fit(X).fences_ is None


def test_a_model_that_damped_nothing_continues_without_damping():
    X, _ = spoilt(0, 12)
    model = fc.SummaryClustering(scale="range").fit(fc.Federation.local({"a": X}))
    model.scale = "damped"
    model.partial_fit(fc.Federation.local({"a": X + 40}))
    assert model.fences_ is None


def test_fences_move_as_rows_come():
    X, y = spoilt(0, 0)
    model = fc.SummaryClustering().fit(fc.Federation.local({"a": X}))
    first = model.fences_
    model.partial_fit(fc.Federation.local({"a": X + 40}))
    assert model.n_clusters_ == 6
    assert (model.fences_[1] > first[1] + 1).all()
    both = np.concatenate([model.predict(X), model.predict(X + 40)])
    assert fc.agreement.ari(both, np.concatenate([y, y + 3])) > 0.99


def test_an_unknown_scale_is_named():
    with pytest.raises(fc.FedclustError, match="choose one of damped, range, none"):
        fc.SummaryClustering(scale="dampened").fit(np.zeros((20, 2)))
    with pytest.raises(fc.FedclustError, match="choose one of none, standardise, minmax"):
        fc.FCAC(scale="damped").fit(np.zeros((20, 2)))
