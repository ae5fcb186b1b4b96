"""The estimators as users meet them."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedclust as fc
from fedclust.site.policy import Policy


@parametrize_with_checks([fc.KMeans(), fc.FuzzyCMeans(), fc.FuzzyCMeans(m=1.5, init="box", scale="standardise")])
def test_scikit_learns_own_checks(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("array API dispatch is not offered")
    check(estimator)


def rows(seed=0, count=90):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 3)) + np.repeat(np.array([[0, 0, 0], [9, 0, 9], [0, 9, 9]]), count // 3, axis=0)


@pytest.mark.parametrize("options", [{}, {"scale": "standardise"}, {"scale": "minmax", "bounds": [-20, 20]}])
@pytest.mark.parametrize("kind", [fc.KMeans, fc.FuzzyCMeans])
def test_a_saved_model_is_the_model(kind, options, tmp_path):
    X = rows()
    model = kind(3, **options).fit(X)
    again = fc.load(model.save(tmp_path / "model.json"))
    assert type(again) is kind
    assert again.get_params() == model.get_params()
    assert np.array_equal(again.predict(X), model.predict(X))
    for name in ("cluster_centers_", "initial_centers_", "cluster_sizes_"):
        assert np.array_equal(getattr(again, name), getattr(model, name))
    assert (again.final_objective, again.history_, again.notes_) == (
        model.final_objective,
        model.history_,
        model.notes_,
    )
    assert again.columns_ == model.columns_


def test_a_model_is_not_saved_as_a_folder(tmp_path):
    (tmp_path / "models").mkdir()
    with pytest.raises(fc.StudyError, match=r"models is a folder; name the file to write, such as .*model\.json"):
        fc.KMeans(3).fit(rows()).save(tmp_path / "models")
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


def test_a_value_beyond_all_bounds_is_told_by_site_and_column():
    X = rows()
    X[4, 1] = 1e39
    fed = fc.Federation.local({"one": rows(1), "two": X}, columns=["a", "b", "c"])
    with pytest.raises(
        fc.FedclustError, match=r"^column 'b' of site 'two' holds a value beyond 2\^127; scale the column$"
    ):
        fc.KMeans(3).fit(fed)


def test_a_saved_model_with_an_explicit_start_and_names_comes_back(tmp_path):
    X = pd.DataFrame(rows(), columns=["a", "b", "c"])
    model = fc.FuzzyCMeans(3, init=rows()[[0, 40, 80]]).fit(X)
    again = fc.load(model.save(tmp_path / "model.json"))
    assert np.array_equal(again.memberships(X), model.memberships(X))
    assert np.array_equal(again.init, model.init)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not a saved model"),
        ("{}", "is not a saved model"),
        (
            json.dumps({"format": "fedclust-model", "version": 99}),
            "is in format 99, but this version of fedclust reads format 1",
        ),
        (json.dumps({"format": "fedclust-model", "version": 1, "class": "Oracle"}), "which this version does not know"),
    ],
)
def test_what_is_no_model_is_refused(text, sentence, tmp_path):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(fc.DataError, match=sentence):
        fc.load(tmp_path / "model.json")
    with pytest.raises(fc.DataError, match="no model at"):
        fc.load(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_clusters": 0}, "n_clusters is 0"),
        ({"n_clusters": 2.5}, "n_clusters is 2.5"),
        ({"max_iter": 0}, "max_iter is 0"),
        ({"tol": -1}, "tol is -1"),
        ({"init": "carefull"}, "init is 'carefull'"),
        ({"init": [[1.0, 2.0]]}, "finite centres with the shape"),
        ({"participation": 0}, "'participation' is 0"),
        ({"scale": "log"}, "scale is 'log'"),
        ({"scale": "minmax"}, "needs public bounds"),
        ({"bounds": (1, 0)}, "low <= high"),
        ({"small_sites": "yes"}, "small_sites is 'yes'"),
    ],
)
def test_a_senseless_parameter_is_named(options, sentence):
    for kind in (fc.KMeans, fc.FuzzyCMeans):
        with pytest.raises(fc.StudyError, match=sentence):
            kind(**{"n_clusters": 3, **options}).fit(rows())


def test_fuzziness_must_exceed_one_and_singletons_is_a_named_rule():
    with pytest.raises(fc.StudyError, match="m is 1; it must be above 1"):
        fc.FuzzyCMeans(3, m=1).fit(rows())
    with pytest.raises(fc.StudyError, match="singletons is 'no'"):
        fc.KMeans(3, singletons="no").fit(rows())


def test_fewer_rows_than_clusters_is_said():
    with pytest.raises(fc.DataError, match="n_samples=4 is fewer than n_clusters=5"):
        fc.KMeans(5).fit(fc.Federation.local({"a": np.eye(4)[:2], "b": np.eye(4)[2:]}))


def test_memberships_add_to_one_and_predict_takes_the_largest():
    X = rows()
    model = fc.FuzzyCMeans(3).fit(X)
    u = model.memberships(X)
    assert u.sum(axis=1) == pytest.approx(1, abs=1e-15)
    assert np.array_equal(u.argmax(axis=1), model.predict(X))


def test_labels_follow_the_order_of_the_parties():
    X = rows()
    fed = fc.Federation.local({"z": X[50:], "a": X[:50]})
    model = fc.KMeans(3).fit(fed)
    assert np.array_equal(model.labels_, np.concatenate([model.predict(X[50:]), model.predict(X[:50])]))
    assert np.array_equal(model.predict(fed), model.labels_)


def test_centres_are_in_original_units_and_predict_takes_raw_rows():
    X = rows() * [1, 100, 1e4]
    model = fc.KMeans(3, scale="standardise").fit(X)
    means = np.stack([X[model.labels_ == c].mean(axis=0) for c in range(3)])
    assert model.cluster_centers_ == pytest.approx(means, rel=1e-9)
    assert np.array_equal(model.predict(X), model.labels_)


def test_frames_go_by_name_after_a_federation(tmp_path):
    frame = pd.DataFrame(rows(), columns=["a", "b", "c"])
    model = fc.KMeans(3).fit(fc.Federation.local({"one": frame[:30], "two": frame[30:]}))
    assert np.array_equal(model.predict(frame[["c", "a", "b"]]), model.labels_)
    with pytest.raises(fc.DataError, match="no column 'b'"):
        model.predict(frame[["a", "c"]])


def test_constant_columns_work_and_are_said():
    X = np.column_stack([rows(), np.full(90, 7.0)])
    model = fc.KMeans(3, scale="standardise").fit(fc.Federation.local({"one": X[:30], "two": X[30:]}))
    assert "These columns are constant and have no influence: x3." in model.notes_
    # A column constant at each site, but not the same, is not constant.
    X[:30, 3] = 6.0
    assert not fc.KMeans(3).fit(fc.Federation.local({"one": X[:30], "two": X[30:]})).notes_


def test_no_random_state_draws_a_recorded_seed():
    X = rows()
    model = fc.KMeans(3, random_state=None, init="box").fit(X)
    again = clone(model).set_params(random_state=model.seed_).fit(X)
    assert np.array_equal(again.initial_centers_, model.initial_centers_)


def test_few_rows_still_start_and_say_how():
    model = fc.KMeans(2, init="careful").fit(np.array([[0.0], [1.0], [9.0]]))
    assert any(note.startswith("init='careful' found only 0 means of five rows") for note in model.notes_)
    assert np.isfinite(model.cluster_centers_).all()


def test_no_start_shows_a_row():
    X = rows()
    for start in ("box", "party", "careful"):
        model = fc.KMeans(3, init=start).fit(fc.Federation.local({"a": X[:40], "b": X[40:]}))
        assert not (model.initial_centers_[:, None, :] == X[None]).all(axis=2).any()


@pytest.mark.parametrize(
    ("sites", "options", "sentence"),
    [
        ({}, {}, "at least one site"),
        ({"a/b": np.eye(2)}, {}, "is not a valid site name"),
        ({"a": np.eye(2), "b": np.eye(3)}, {}, "different columns"),
        ({"a": np.eye(2)}, {"split": "diagonal"}, "choose 'rows' or 'columns'"),
        ({"a": np.eye(2)}, {"policy": "lax"}, "there is no policy 'lax'"),
    ],
)
def test_a_federation_that_cannot_be_is_refused(sites, options, sentence):
    with pytest.raises(fc.FedclustError, match=sentence):
        fc.Federation.local(sites, **options)


def test_a_site_below_its_policys_floor_ends_a_lossless_run_by_name():
    sites = {"tiny": rows()[:4], "large": rows()}
    with pytest.raises(fc.QuorumLost, match="tiny: it holds fewer rows than its policy requires"):
        fc.KMeans(3).fit(fc.Federation.local(sites, policy=Policy("own", min_rows=5)))
    model = fc.KMeans(3, quorum=1).fit(fc.Federation.local(sites, policy=Policy("own", min_rows=5)))
    assert np.array_equal(
        model.cluster_centers_, fc.KMeans(3).fit(fc.Federation.local({"large": rows()})).cluster_centers_
    )
    assert model.notes_[0].startswith("Not lossless: tiny did not contribute to")


GAPPED = np.random.default_rng(0).normal(size=(60, 3)) + np.repeat([[0, 0, 0], [9, 9, 9]], 30, axis=0)
GAPPED[[2, 31], 1] = np.nan


@pytest.mark.parametrize("options", [{"missing": "drop"}, {"missing": "partial"}])
def test_masked_values_are_missing_as_they_are_at_a_site(options):
    masked = np.ma.masked_invalid(GAPPED)
    masked.data[masked.mask] = 5.0  # what lies behind the mask
    for kind in (fc.KMeans, fc.FuzzyCMeans):
        model, gapped = kind(2, init="box", **options).fit(masked), kind(2, init="box", **options).fit(GAPPED)
        site = kind(2, init="box", **options).fit(fc.Federation.local({"here": masked}))
        assert np.array_equal(model.cluster_centers_, gapped.cluster_centers_)
        assert np.array_equal(model.cluster_centers_, site.cluster_centers_)
        assert np.array_equal(model.labels_, gapped.labels_)
        assert np.array_equal(model.predict(masked), gapped.predict(GAPPED))
    if options["missing"] == "drop":
        assert model.labels_[2] == -1
        batch, other = (kind(2, init="box", **options).fit(GAPPED) for _ in range(2))
        batch.partial_fit(masked)
        other.partial_fit(GAPPED)
        assert np.array_equal(batch.cluster_centers_, other.cluster_centers_)


@pytest.mark.parametrize("ask", ["fit", "predict", "partial_fit"])
@pytest.mark.parametrize("rows", [GAPPED, np.ma.masked_invalid(GAPPED)], ids=["nan", "masked"])
def test_missing_values_that_may_not_be_are_told_by_column_and_remedy(ask, rows):
    model = fc.KMeans(2).fit(np.nan_to_num(GAPPED))
    told = r"^column 'x1' holds 2 missing values \(NaN\); fill them, set missing to 'drop' or 'partial', or leave"
    with pytest.raises(fc.DataError, match=told):
        getattr(model, ask)(rows)


def test_missing_and_infinite_values_are_told_by_the_names_of_a_frame():
    frame = pd.DataFrame(GAPPED, columns=["age", "bp", "chol"])
    with pytest.raises(fc.DataError, match=r"^column 'bp' holds 2 missing values"):
        fc.KMeans(2).fit(frame)
    frame.loc[4, ["bp", "chol"]] = np.inf
    with pytest.raises(fc.DataError, match=r"^column 'bp' holds 1 infinite value \(as does 1 more column\); correct"):
        fc.KMeans(2, missing="drop").fit(frame)


def test_complex_centres_are_refused():
    with pytest.raises(fc.StudyError, match="init must be an array of finite centres"):
        fc.KMeans(2, init=np.array([[0j, 1.0], [2.0, 3.0 + 1j]])).fit(np.eye(2))
