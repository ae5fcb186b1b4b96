"""Parameters that make no sense are met by a sentence, and what ends a run by one that fits."""

import re

import numpy as np
import pytest

import fedclust as fc
from fedclust.core.errors import FedclustError

X = np.random.default_rng(0).normal(size=(40, 2)) + np.repeat([[0, 0], [9, 9]], 20, axis=0)
KINDS = {kind.__name__: kind for kind in (fc.KMeans, fc.FuzzyCMeans, fc.GaussianMixture, fc.KFed, fc.MUFC)}
KINDS |= {kind.__name__: kind for kind in (fc.AveragedFuzzyCMeans, fc.GradientFuzzyCMeans)}


@pytest.mark.parametrize(
    ("kind", "parameter", "value"),
    [
        *[(kind, "random_state", value) for kind in KINDS for value in (-1, 1.5, "0", 2**40, True)],
        *[("FuzzyCMeans", "tol", value) for value in ("x", float("nan"), -1, [1])],
        *[("FuzzyCMeans", "m", value) for value in ("2", None, 1, float("nan"))],
        *[("FuzzyCMeans", "n_clusters", value) for value in ("2", 2.0, True, 0, None)],
        *[("KMeans", "participation", value) for value in ("1", None, 0)],
        *[("KMeans", "max_iter", value) for value in ("3", 1.5, True)],
        *[("GaussianMixture", "n_components", value) for value in ("2", True, 1.5)],
        *[("AveragedFuzzyCMeans", "local_tol", value) for value in ("x", 0)],
        *[("GradientFuzzyCMeans", "step", value) for value in ("x", 0, float("inf"))],
        *[("GradientFuzzyCMeans", "local_rounds", value) for value in ("x", 1.5, 0)],
        *[("KFed", "local_clusters", value) for value in ("x", 1.5, 0)],
        *[("MUFC", "min_rows", value) for value in ("x", 2.5, 1)],
        *[("MUFC", "step", value) for value in ("x", 0)],
    ],
)
def test_a_parameter_that_makes_no_sense_is_named_with_what_it_is(kind, parameter, value):
    with pytest.raises(fc.StudyError) as refused:
        KINDS[kind](**{parameter: value}).fit(X)
    assert f"{parameter} is {value!r}; " in str(refused.value).replace(f"'{parameter}' is", f"{parameter} is")


@pytest.mark.parametrize("stream", [np.random.RandomState, np.random.default_rng])
@pytest.mark.parametrize("start", ["box", "careful", "party"])
def test_generators_of_numpy_are_drawn_from(stream, start, tmp_path):
    first, second = (fc.KMeans(2, init=start, random_state=stream(5)).fit(X) for _ in range(2))
    assert first.seed_ == second.seed_
    again = fc.KMeans(2, init=start, random_state=first.seed_).fit(X)
    assert np.array_equal(first.initial_centers_, again.initial_centers_)
    shared = stream(5)
    assert len({fc.KMeans(2, random_state=shared).fit(X).seed_ for _ in range(3)}) == 3
    assert fc.load(first.save(tmp_path / "model.json")).random_state == first.seed_


def test_the_largest_seed_suits_every_start():
    for start in ("box", "careful", "party"):
        assert fc.KMeans(2, init=start, random_state=2**32 - 1).fit(X).seed_ == 2**32 - 1


def test_a_folder_is_no_model(tmp_path):
    with pytest.raises(fc.DataError, match="is a folder; give the path of a model file"):
        fc.load(tmp_path)


@pytest.mark.parametrize("kind", KINDS.values())
def test_where_every_row_has_gaps_no_row_is_left(kind):
    gappy = X.copy()
    gappy[::2, 0], gappy[1::2, 1] = np.nan, np.nan
    with pytest.raises(FedclustError, match="every row has missing values and was left out") as refused:
        kind(2, missing="drop").fit(fc.Federation.local({"a": gappy[:20], "b": gappy[20:]}))
    assert "fewer clusters" not in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_quorum_of_more_sites_than_there_are_is_refused(kind):
    fed = fc.Federation.local({"a": X[::2], "b": X[1::2]})
    told = "quorum is 5, but there are only 2 sites; use at most 2, a share such as 0.8, or 'all'"
    with pytest.raises(fc.StudyError, match=told):
        KINDS[kind](quorum=5).fit(fed)


def test_a_quorum_of_more_sites_than_there_are_is_refused_in_a_batch_and_in_a_choice():
    fed = fc.Federation.local({"a": X[::2], "b": X[1::2]})
    with pytest.raises(fc.StudyError, match="quorum is 5"):
        fc.KMeans(2).fit(fed).set_params(quorum=5).partial_fit(fed)
    with pytest.raises(fc.StudyError, match="quorum is 5"):
        fc.select_k(fc.KMeans(quorum=5), fed, [2])
    found = fc.select_k(fc.KMeans(quorum=2), fed, [2], index="xie-beni", restarts=1, stability="sites")
    assert found.stability is not None  # with one site left out, all that are left must answer


def columns():
    return fc.Federation.local({"a": X[:, :1], "b": X[:, 1:]}, split="columns")


def test_a_stop_over_columns_speaks_of_distances():
    model = fc.FuzzyCMeans(2, max_iter=1).fit(columns())
    assert model.notes_ == [
        "Stopped after 1 round, while the distances still changed by 1e-06 or more. Increase max_iter."
    ]
    model = fc.FuzzyCMeans(2, max_iter=1).fit(X)
    assert model.notes_ == ["Stopped after 1 round, while the centres still moved by 1e-06 or more. Increase max_iter."]


COARSE = "The tolerance 1e-06 is large compared with the"


@pytest.mark.parametrize("kind", [fc.KMeans, fc.FuzzyCMeans])
def test_a_tol_too_coarse_for_the_units_is_told(kind):
    small = X * 1e-7
    (note,) = kind(2, init="box").fit(small).notes_
    assert note.startswith(f"{COARSE} values (x0, x1). Set scale")
    # The same far from zero, where only the centres tell.
    (note,) = kind(2, init="box").fit(small + 1.0).notes_
    assert note.startswith(f"{COARSE} distances between centres")
    (note,) = kind(2, init="box").fit(X * [1.0, 1e-7]).notes_
    assert note.startswith(f"{COARSE} values (x1).")
    split = fc.Federation.local({"a": small[:, :1], "b": small[:, 1:]}, split="columns")
    (note,) = kind(2, init="box").fit(split).notes_
    assert note.startswith(f"{COARSE} distances.")


@pytest.mark.parametrize("options", [{"scale": "standardise"}, {"tol": 1e-12}, {"tol": None, "max_iter": 3}])
def test_nothing_is_told_where_tol_suits_the_units(options):
    assert fc.FuzzyCMeans(2, init="box", **options).fit(X * 1e-7).notes_ == []
    assert fc.FuzzyCMeans(2, init="box").fit(np.c_[X, np.zeros(40)]).notes_ == [
        "These columns are constant and have no influence: x2."
    ]
    assert fc.FuzzyCMeans(1, scale="standardise").fit(X).notes_ == []
    (note,) = fc.KMeans(2, init="box", scale="standardise", tol=0.5).fit(X).notes_
    assert note.endswith("Lower tol.")


def crowded(width, apart, seed=0):
    """Three round groups in many columns; fuzzy c-means finds them only where they are far enough apart."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(3, width)) * apart)[rng.integers(3, size=1500)] + rng.normal(size=(1500, width))


@pytest.mark.parametrize("scale", ["none", "standardise"])
@pytest.mark.parametrize("split", ["rows", "columns"])
def test_fuzzy_centres_that_coincide_are_told(scale, split):
    many = crowded(30, 1.0)
    parts = np.array_split(many, 3, axis=0 if split == "rows" else 1)
    fed = fc.Federation.local(dict(zip("abc", parts, strict=True)), split=split)
    told = (
        "Centres 0, 1 and 2 coincide, so rows belong to each of them equally. "
        "Lower m, use c-means, or ask for fewer clusters."
    )
    assert fc.FuzzyCMeans(3, scale=scale, max_iter=300).fit(fed).notes_ == [told]
    assert "coincide" not in " ".join(fc.FuzzyCMeans(3, m=1.1, scale=scale).fit(fed).notes_)
    assert fc.KMeans(3, scale=scale).fit(fed).notes_ == []


def test_centres_that_coincide_in_pairs_are_told_as_pairs():
    (note,) = fc.FuzzyCMeans(5, scale="standardise", max_iter=300).fit(crowded(20, 1.5)).notes_
    assert re.match(r"Centres \d and \d; \d and \d coincide, ", note)


@pytest.mark.parametrize("far", [30.0, 1e6])
def test_centres_of_clusters_that_are_merely_near_do_not_coincide(far):
    groups = np.repeat([[0.0, 0.0], [1.0, 0.0], [far, far]], 200, axis=0)
    near = groups + np.random.default_rng(1).normal(size=groups.shape) * 0.1
    start = [[0.0, 0.0], [1.0, 0.0], [far, far]]
    for scale in ("none", "standardise"):
        model = fc.FuzzyCMeans(3, init=start, scale=scale, tol=None, max_iter=50).fit(near)
        assert model.notes_ == []
        assert 0.9 < np.ptp(model.cluster_centers_[:2, 0]) < 1.1


def test_nor_do_those_of_narrow_clusters_beside_a_wide_one():
    rng = np.random.default_rng(1)
    rows = np.r_[rng.normal(0, 0.01, 500), rng.normal(0.1, 0.01, 500), rng.normal(1e5, 500, 100)][:, None]
    model = fc.FuzzyCMeans(3, init=[[0.0], [0.1], [1e5]]).fit(rows)
    assert np.bincount(model.labels_).tolist() == [500, 500, 100]
    assert "coincide" not in " ".join(model.notes_)
