"""The one-shot estimators as users meet them."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedclust as fc

KINDS = [fc.KFed(3), fc.MUFC(3)]


@parametrize_with_checks(KINDS)
def test_scikit_learns_own_checks(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("array API dispatch is not offered")
    check(estimator)


def rows(seed=0, count=90):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 3)) + np.repeat(np.array([[0, 0, 0], [9, 0, 9], [0, 9, 9]]), count // 3, axis=0)


def federation(X, **options):
    return fc.Federation.local({"a": X[::3], "b": X[1::3], "c": X[2::3]}, **options)


@pytest.mark.parametrize("options", [{}, {"scale": "standardise"}, {"scale": "minmax", "bounds": (-20, 20)}])
@pytest.mark.parametrize("kind", [fc.KFed, fc.MUFC])
def test_a_saved_model_is_the_model(kind, options, tmp_path):
    X = rows()
    model = kind(3, **options).fit(federation(X))
    again = fc.load(model.save(tmp_path / "model.json"))
    assert type(again) is kind
    assert np.array_equal(again.predict(X), model.predict(X))
    assert np.array_equal(again.initial_centers_, model.initial_centers_)
    assert (again.notes_, again.history_, again.final_objective) == (
        model.notes_,
        model.history_,
        model.final_objective,
    )


@pytest.mark.parametrize("options", [{}, {"scale": "standardise"}, {"scale": "minmax", "bounds": (-20, 20)}])
@pytest.mark.parametrize("kind", [fc.KFed, fc.MUFC])
def test_groups_that_all_sites_hold_are_found_in_any_scale(kind, options):
    X = rows()
    model = kind(3, local_clusters=4, **options).fit(federation(X))
    assert fc.agreement.ari(model.predict(X), np.repeat([0, 1, 2], 30)) == 1
    assert model.cluster_sizes_.tolist() == [30, 30, 30]
    assert model.n_iter_ == 1


@pytest.mark.parametrize("kind", [fc.KFed, fc.MUFC])
def test_the_objective_is_that_of_all_rows(kind):
    X = rows()
    model = kind(3).fit(federation(X))
    d2 = ((X[:, None] - model.cluster_centers_) ** 2).sum(axis=2).min(axis=1)
    assert model.final_objective == pytest.approx(d2.sum(), rel=1e-12)


def test_masked_sums_give_the_same_model():
    X = rows()
    plain, secure = (fc.MUFC(3).fit(federation(X, aggregation=how)) for how in ("plain", "secure"))
    assert np.array_equal(plain.cluster_centers_, secure.cluster_centers_)
    assert plain.final_objective == secure.final_objective


@pytest.mark.parametrize("kind", [fc.KFed, fc.MUFC])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"local_clusters": 0}, "local_clusters is 0"),
        ({"min_rows": 1}, "at least 2 rows"),
        ({"missing": "partial"}, "needs rows without missing values"),
        ({"n_clusters": 0}, "n_clusters is 0"),
    ],
)
def test_a_senseless_parameter_is_named(kind, options, sentence):
    with pytest.raises(fc.StudyError, match=sentence):
        kind(**{"n_clusters": 3, **options}).fit(rows())


def test_a_grid_must_have_cells():
    with pytest.raises(fc.StudyError, match="'step' is 2"):
        fc.MUFC(3, step=2).fit(rows())


@pytest.mark.parametrize("kind", [fc.KFed, fc.MUFC])
def test_columns_at_several_sites_are_refused(kind):
    X = rows()
    with pytest.raises(fc.StudyError, match="works on row splits only; for a column split use KMeans"):
        kind(3).fit(fc.Federation.local({"a": X[:, :1], "b": X[:, 1:]}, split="columns"))
