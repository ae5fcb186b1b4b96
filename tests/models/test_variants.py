"""The estimators that are not lossless, as users meet them."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedclust as fc
from fedclust.models import Model

KINDS = [
    fc.AveragedFuzzyCMeans(3, max_iter=5),
    fc.AveragedFuzzyCMeans(3, average="index", max_iter=5),
    fc.GradientFuzzyCMeans(3, max_iter=5, local_rounds=3),
]


@parametrize_with_checks(KINDS)
def test_scikit_learns_own_checks(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("array API dispatch is not offered")
    check(estimator)


def rows(seed=0, count=90):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 3)) + np.repeat(np.array([[0, 0, 0], [9, 0, 9], [0, 9, 9]]), count // 3, axis=0)


def federation(X):
    return fc.Federation.local({"a": X[::3], "b": X[1::3], "c": X[2::3]})


@pytest.mark.parametrize("start", ["box", "party", "careful", rows()[[0, 40, 80]]])
@pytest.mark.parametrize("scale", ["none", "standardise"])
@pytest.mark.parametrize("kind", [fc.AveragedFuzzyCMeans, fc.GradientFuzzyCMeans])
def test_a_saved_model_is_the_model(kind, scale, start, tmp_path):
    X = rows()
    model = kind(3, init=start, scale=scale, max_iter=3).fit(federation(X))
    again = fc.load(model.save(tmp_path / "model.json"))
    assert type(again) is kind
    assert np.array_equal(again.cluster_centers_, model.cluster_centers_)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert np.array_equal(again.memberships(X), model.memberships(X))
    assert (again.notes_, again.history_, again.final_objective) == (
        model.notes_,
        model.history_,
        model.final_objective,
    )


@pytest.mark.parametrize("model", KINDS)
def test_groups_that_all_parties_hold_are_found(model):
    X = rows()
    options = {"max_iter": 40} if isinstance(model, fc.GradientFuzzyCMeans) else {}
    fitted = type(model)(**{**model.get_params(), **options}).fit(federation(X))
    assert fc.agreement.ari(fitted.predict(X), np.repeat([0, 1, 2], 30)) == 1
    assert fitted.cluster_sizes_.shape == (3,)
    assert fitted.memberships(X).sum(axis=1) == pytest.approx(np.ones(90))


@pytest.mark.parametrize("model", KINDS)
def test_it_says_that_it_is_not_lossless(model):
    fitted = type(model)(**model.get_params()).fit(federation(rows()))
    assert not fitted.lossless
    assert fitted.notes_[0].startswith("Not lossless")


@pytest.mark.parametrize("model", KINDS)
def test_it_is_no_kind_of_a_lossless_method(model):
    assert not any(kind.lossless for kind in type(model).__mro__ if issubclass(kind, Model))
    assert not model.takes_batches


def test_a_method_that_does_not_say_so_is_not_lossless():
    assert not Model().lossless


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (fc.AveragedFuzzyCMeans, {"average": "median"}, "'average' is 'median'; choose one of kmeans, index"),
        (fc.AveragedFuzzyCMeans, {"local_tol": 0}, "local_tol is 0"),
        (fc.AveragedFuzzyCMeans, {"m": 1}, "m is 1"),
        (fc.AveragedFuzzyCMeans, {"missing": "partial"}, "set missing to 'drop'"),
        (fc.GradientFuzzyCMeans, {"step": 0}, "'step' is 0"),
        (fc.GradientFuzzyCMeans, {"step": float("nan")}, "'step' is nan"),
        (fc.GradientFuzzyCMeans, {"local_rounds": 0}, "local_rounds is 0"),
        (fc.GradientFuzzyCMeans, {"scale": "minmax"}, "needs public bounds"),
    ],
)
def test_bad_parameters_are_refused_in_words(kind, options, sentence):
    with pytest.raises(fc.StudyError, match=sentence):
        kind(**{"n_clusters": 2, **options}).fit(rows())


@pytest.mark.parametrize("kind", [fc.AveragedFuzzyCMeans, fc.GradientFuzzyCMeans])
def test_split_columns_are_refused(kind):
    X = rows()
    fed = fc.Federation.local({"a": X[:, :1], "b": X[:, 1:]}, split="columns")
    with pytest.raises(fc.StudyError, match="works on row splits only; for a column split use FuzzyCMeans"):
        kind(3).fit(fed)


@pytest.mark.parametrize("kind", [fc.AveragedFuzzyCMeans, fc.GradientFuzzyCMeans])
def test_rows_with_gaps_may_be_dropped(kind):
    X = rows()
    X[::10, 0] = np.nan
    kept = ~np.isnan(X).any(axis=1)
    options = {"max_iter": 3, "init": rows()[[1, 41, 81]]}
    dropped = kind(3, missing="drop", **options).fit(X)
    assert np.array_equal(dropped.cluster_centers_, kind(3, **options).fit(X[kept]).cluster_centers_)
