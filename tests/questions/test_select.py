"""Choice of columns: by hand, against pandas, and the same bits wherever the rows lie."""

import numpy as np
import pandas as pd
import pytest

import fedclust as fc

NAN = np.nan


def table(rng, gaps=0.0):
    rows, width = int(rng.integers(30, 150)), int(rng.integers(2, 5))
    X = rng.normal(size=(rows, width)) * 10.0 ** rng.integers(-2, 3, size=width) + rng.choice([0.0, 500.0])
    X = np.c_[X, -3 * X[:, 0] + rng.normal(size=rows) * X[:, 0].std() * 0.4]
    X[rng.random(X.shape) < gaps] = NAN
    return X[~np.isnan(X).all(axis=1)]


def parted(rng, X):
    cuts = np.sort(rng.choice(np.arange(1, len(X)), int(rng.integers(1, 12)), replace=False))
    return {f"p{i}": X[own] for i, own in enumerate(np.split(rng.permutation(len(X)), cuts))}


def test_by_hand():
    X = np.array([[1.0, 2.0, 7.0, 1.0], [2.0, 4.0, 7.0, -1.0], [3.0, 6.0, 7.0, 1.0]])
    fed = fc.Federation.local({"a": X[:1], "b": X[1:]}, columns=["a", "twice", "same", "other"])
    found = fc.select_features(fed, correlation=0.9)
    assert found.kept == ("a", "other")
    assert found.dropped == {"twice": "correlation +1.000 with a", "same": "constant"}
    # a: mean 2, variance 2/3, mean square 14/3. other: mean 1/3, variance 8/9, mean square 1.
    assert found.variance == pytest.approx([1 / 7, 1 / 7, 0, 8 / 9])
    assert found.correlation[0, 3] == pytest.approx(0, abs=1e-15)
    assert np.isnan(found.correlation[2]).all()


def test_thresholds_are_kept_to():
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    X = np.c_[x, x + rng.normal(size=200), 100 + 0.1 * rng.normal(size=200)]
    fed = fc.Federation.local({"a": X[:90], "b": X[90:]})
    r = abs(np.corrcoef(X[:, 0], X[:, 1])[0, 1])
    assert fc.select_features(fed, correlation=r + 1e-6).kept == ("x0", "x1", "x2")
    assert fc.select_features(fed, correlation=r - 1e-6).kept == ("x0", "x2")
    assert fc.select_features(fed, variance=1e-5, correlation=None).kept == ("x0", "x1")
    assert "times its mean square" in fc.select_features(fed, variance=1e-5, correlation=None).dropped["x2"]
    assert fc.select_features(fed, variance=None, correlation=None).dropped == {}


def test_a_column_that_was_left_out_leaves_nobody_out():
    # x1 resembles x0 and x2 resembles x1, but x2 does not resemble x0 as closely.
    angles = np.deg2rad([0, 25, 50])
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(np.c_[np.ones(400), rng.normal(size=(400, 2))])[0][:, 1:]
    X = basis @ np.array([np.cos(angles), np.sin(angles)])
    assert fc.select_features(fc.Federation.local({"a": X}), correlation=0.85).kept == ("x0", "x2")


@pytest.mark.parametrize("missing", ["refuse", "drop", "partial"])
@pytest.mark.parametrize("seed", range(12))
def test_any_partition_gives_the_pooled_bits_and_pandas_correlations(seed, missing):
    rng = np.random.default_rng(seed)
    X = table(rng, gaps=0.0 if missing == "refuse" else 0.1)
    options = {"correlation": 0.8, "missing": missing}
    pooled = fc.select_features(fc.Federation.local({"all": X}), **options)
    many = fc.select_features(fc.Federation.local(parted(rng, X), wire=bool(rng.integers(2))), **options)
    assert np.array_equal(many.correlation, pooled.correlation, equal_nan=True)
    assert np.array_equal(many.variance, pooled.variance)
    assert (many.kept, many.dropped) == (pooled.kept, pooled.dropped)
    used = pd.DataFrame(X).dropna() if missing == "drop" else pd.DataFrame(X)
    assert many.correlation == pytest.approx(used.corr().to_numpy(), abs=1e-9)
    assert f"x{X.shape[1] - 1}" in many.dropped


def test_only_totals_leave_and_gaps_are_noted():
    X = np.array([[1.0, 2.0], [2.0, NAN], [3.0, 1.0], [4.0, 2.0]])
    fed = fc.Federation.local({"a": X[:2], "b": X[2:]})
    found = fc.select_features(fed, missing="partial")
    assert "The missing values are 1 of 4 at a" in found.notes[0]
    shown = {e.handler for desk in fed.local_sites.values() for e in desk.gate.ledger.entries if e.want == "each"}
    assert shown == {"missing_values.census"}


def test_a_category_is_judged_whole():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 60)
    frame = pd.DataFrame({"sex": sex, "male": (sex == "m") * 1.0, "age": rng.normal(size=60), "arm": "x"})
    columns = {
        "sex": fc.Column("category", levels=["f", "m"]),
        "male": fc.Column(),
        "age": fc.Column(),
        "arm": fc.Column("category", levels=["x", "y"]),
    }
    found = fc.select_features(fc.Federation.local({"a": frame}, columns=columns))
    assert found.kept == ("sex", "age")  # f and m are each other's opposite, which is no reason to lose one
    assert found.dropped["arm"] == "constant"
    assert found.dropped["male"].endswith("with sex")
    assert found.columns == ("sex=f", "sex=m", "male", "age", "arm=x", "arm=y")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"correlation": 1.5}, "correlation is 1.5"),
        ({"variance": -0.1}, "variance is -0.1"),
        ({"missing": "fill"}, "'missing' is 'fill'"),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(options, words):
    with pytest.raises(fc.StudyError, match=words):
        fc.select_features(fc.Federation.local({"a": np.ones((5, 2))}), **options)


def test_columns_at_several_sites_cannot_be_compared():
    fed = fc.Federation.local({"a": np.ones((5, 1)), "b": np.ones((5, 1))}, split="columns")
    with pytest.raises(fc.StudyError, match="works on row splits only"):
        fc.select_features(fed)
