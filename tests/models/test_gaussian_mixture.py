"""`GaussianMixture` as users meet it."""

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedclust as fc
from fedclust.algorithms.gaussian_mixture.mixture import FAMILIES

VARIANCES = {"EII": (1,), "VII": (3,), "VVI": (3, 2), "EEE": (2, 2)}


@parametrize_with_checks([fc.GaussianMixture(), fc.GaussianMixture(family="EEE", init="box", scale="standardise")])
def test_scikit_learns_own_checks(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("array API dispatch is not offered")
    check(estimator)


def rows(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(90, 2)) + np.repeat([[0, 0], [7, 0], [0, 7]], 30, axis=0)


@pytest.mark.parametrize("scale", ["none", "standardise"])
@pytest.mark.parametrize("family", FAMILIES)
def test_attributes_agree_with_each_other(family, scale):
    X = rows() * [1.0, 50.0]
    model = fc.GaussianMixture(3, family=family, scale=scale).fit(X)
    assert model.variances_.shape == VARIANCES[family]
    assert model.weights_.sum() == pytest.approx(1)
    assert model.score_samples(X).sum() == pytest.approx(model.log_likelihood_, rel=1e-12)
    assert model.final_objective == -model.log_likelihood_
    p = model.predict_proba(X)
    assert p.sum(axis=1) == pytest.approx(1, abs=1e-12)
    assert np.array_equal(p.argmax(axis=1), model.labels_)
    assert np.array_equal(model.predict(X), model.labels_)
    assert model.entropy_ == pytest.approx(float(-(p * np.log(np.maximum(p, 1e-300))).sum()), rel=1e-6, abs=1e-9)
    numbers = {"EII": 9, "VII": 11, "VVI": 14, "EEE": 11}[family]  # 6 means, 2 weights and 1, 3, 6 or 3 of covariance
    assert model.bic_ == pytest.approx(-2 * model.log_likelihood_ + numbers * math.log(90))
    assert model.icl_ == pytest.approx(model.bic_ + 2 * model.entropy_)


def test_a_density_is_in_original_units_whatever_the_scale():
    X = rows() * [1.0, 50.0] + [0.0, 1e5]
    model = fc.GaussianMixture(1, family="EEE", scale="standardise").fit(X)
    expected = multivariate_normal(X.mean(axis=0), np.cov(X.T, bias=True)).logpdf(X)
    assert model.score_samples(X) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_is_the_model(family, tmp_path):
    X = rows()
    model = fc.GaussianMixture(3, family=family, scale="standardise").fit(
        fc.Federation.local({"a": X[:50], "b": X[50:]})
    )
    again = fc.load(model.save(tmp_path / "model.json"))
    assert type(again) is fc.GaussianMixture
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(again.score_samples(X), model.score_samples(X))
    assert (again.bic_, again.icl_, again.history_) == (model.bic_, model.icl_, model.history_)


def test_rows_of_a_federation_come_in_the_order_of_its_parties():
    X = rows()
    fed = fc.Federation.local({"z": X[50:], "a": X[:50]})
    model = fc.GaussianMixture(3).fit(fed)
    assert np.array_equal(model.predict_proba(fed), model.predict_proba(np.concatenate([X[50:], X[:50]])))
    assert np.array_equal(model.memberships(fed), model.predict_proba(fed))


def test_rows_with_gaps_are_dropped_and_said():
    X = rows()
    X[3, 1] = np.nan
    model = fc.GaussianMixture(3, missing="drop").fit(X)
    assert any("1 of 90 rows" in note for note in model.notes_)
    assert model.labels_[3] == -1
    assert np.isnan(model.score_samples(X)[3])
    assert np.isnan(model.predict_proba(X)[3]).all()
    assert model.n_rows_ == 89
    whole = fc.GaussianMixture(3, init=model.initial_centers_).fit(np.delete(X, 3, axis=0))
    assert whole.log_likelihood_ == model.log_likelihood_


def test_n_clusters_is_another_name():
    model = fc.GaussianMixture(2).set_params(n_clusters=4)
    assert model.n_components == model.n_clusters == 4
    assert "n_clusters" not in model.get_params()


def test_a_climb_cut_short_says_so_and_one_that_ended_does_not():
    # Overlapping components: EM is slow
    X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0, 0], [2, 0]], 100, axis=0)
    short = fc.GaussianMixture(2, max_iter=2).fit(X)
    assert short.n_iter_ == 2
    assert short.notes_ == [
        (
            "Stopped after 2 rounds, while each round still added 1e-06 or more to the mean log-likelihood. "
            "Increase max_iter."
        )
    ]
    long = fc.GaussianMixture(2, max_iter=5000).fit(X)
    assert long.notes_ == []
    assert long.n_iter_ < 5000


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_components": 0}, "n_components is 0"),
        ({"n_components": 1.5}, "n_components is 1.5"),
        ({"family": "VVV"}, "'family' is 'VVV'; choose one of EII, VII, VVI, EEE"),
        ({"missing": "partial"}, "needs rows without missing values"),
        ({"max_iter": 0}, "max_iter is 0"),
        ({"init": "kmeans"}, "init is 'kmeans'"),
    ],
)
def test_a_senseless_parameter_is_named(options, sentence):
    with pytest.raises(fc.StudyError, match=sentence):
        fc.GaussianMixture(**{"n_components": 3, **options}).fit(rows())


def test_columns_at_several_sites_are_refused_with_an_alternative():
    fed = fc.Federation.local({"a": rows()[:, :1], "b": rows()[:, 1:]}, split="columns")
    with pytest.raises(fc.StudyError, match="works on row splits only; for a column split use FuzzyCMeans"):
        fc.GaussianMixture(3).fit(fed)
