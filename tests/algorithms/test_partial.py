"""Clustering of rows with gaps: by hand, against a reference, and the same bits wherever the rows lie."""

import numpy as np
import pytest

import fedclust as fc
from fedclust.algorithms.cmeans import rows_with_gaps
from fedclust.core.site_interface import View
from fedclust.site.site_data import HandlerContext, SiteData
from fedclust.site.sources import open_source

NAN = np.nan
SECRET = 77777.25


def turn(X):
    return HandlerContext(SiteData("p", open_source(np.asarray(X, float), site="p")), (0, 1), {}, "partial")


def table(rng, gaps=0.25):
    rows, width, groups = int(rng.integers(60, 200)), int(rng.integers(2, 6)), int(rng.integers(2, 4))
    X = rng.normal(size=(rows, width)) + rng.normal(size=(groups, width))[rng.integers(groups, size=rows)] * 6
    X = X * 10.0 ** rng.integers(-3, 4, size=width) + rng.choice([0.0, 1e4])
    start = X[rng.choice(rows, groups, replace=False)] * 1.01
    X[rng.random(X.shape) < gaps] = NAN
    return X, start


def parted(rng, X):
    count = int(rng.integers(2, 25))
    cuts = np.sort(rng.choice(np.arange(1, len(X)), count - 1, replace=False))
    parts = np.split(rng.permutation(len(X)), cuts)
    whole = [f"p{i}" for i in rng.permutation(count)]
    return {name: X[own] for name, own in zip(whole, parts, strict=True)}


def reference(X, V, m, rounds):
    """Hathaway and Bezdek's iteration, in extended precision."""
    X, V = np.asarray(X, np.longdouble), np.asarray(V, np.longdouble)
    has = ~np.isnan(X)
    X = np.where(has, X, 0)
    for _ in range(rounds):
        d2 = (np.where(has, (X - V[:, None]) ** 2, 0)).sum(axis=2) * X.shape[1] / has.sum(axis=1)
        w = (1 / ((d2[:, None] / d2[None]) ** (1 / np.longdouble(m - 1))).sum(axis=1)) ** np.longdouble(m)
        V = (w @ X) / (w @ has)
    return V.astype(float)


def test_sums_by_hand():
    # One column of two each: rows (1, -) and (-, 4) lie at 2*1 and 2*4 of the only centre (0, 2).
    view = View(np.array([3, 3], np.int32), missing="partial")
    ask = rows_with_gaps.GapCentersQuestion(view, np.array([[0.0, 2.0]]), 2.0, np.zeros((1, 2), np.int32), 8)
    found = rows_with_gaps.moments.answer(turn([[1, NAN], [NAN, 4], [NAN, NAN]]), ask)
    assert found.mass.to_floats().tolist() == [2]
    assert found.share.to_floats().tolist() == [[1, 1]]
    assert found.pull.to_floats().tolist() == [[1, 4]]
    assert float(found.objective.to_floats()) == 2 * 1 + 2 * 4


def test_a_share_beyond_the_bound_it_is_asked_under_is_refused():
    view = View(np.array([3, 3], np.int32), missing="partial")
    ask = rows_with_gaps.GapCentersQuestion(view, np.array([[0.0, 2.0]]), 2.0, np.zeros((1, 2), np.int32), 2)
    with pytest.raises(fc.FedclustError, match="one row adds more to the objective than is possible"):
        rows_with_gaps.moments.answer(turn([[1, NAN], [NAN, 4]]), ask)


def test_a_hard_round_by_hand():
    X = [[0.0, 5.0], [1.0, NAN], [10.0, NAN], [12.0, NAN]]
    model = fc.KMeans(2, init=[[0.0, 5.0], [9.0, 70.0]], tol=None, max_iter=1, missing="partial").fit(X)
    # No row of the second cluster has the second column: its centre stays where it was.
    assert model.cluster_centers_.tolist() == [[0.5, 5.0], [11.0, 70.0]]
    assert model.cluster_sizes_.tolist() == [2, 2]


@pytest.mark.parametrize("m", [1.5, 2.0])
def test_the_published_iteration(m):
    rng = np.random.default_rng(5)
    X, start = table(rng)
    X = X[~np.isnan(X).all(axis=1)]
    model = fc.FuzzyCMeans(len(start), m=m, init=start, tol=None, max_iter=6, missing="partial").fit(X)
    assert model.cluster_centers_ == pytest.approx(reference(X, start, m, 6), rel=1e-9)


@pytest.mark.parametrize("kind", [fc.KMeans, fc.FuzzyCMeans])
def test_where_nothing_is_missing_it_is_the_ordinary_method(kind):
    X, start = table(np.random.default_rng(2), gaps=0)
    options = {"init": start, "tol": None, "max_iter": 8}
    plain, gapped = (kind(len(start), missing=how, **options).fit(X) for how in ("refuse", "partial"))
    assert gapped.cluster_centers_ == pytest.approx(plain.cluster_centers_, rel=1e-12)
    assert gapped.final_objective == pytest.approx(plain.final_objective, rel=1e-12)
    assert np.array_equal(gapped.labels_, plain.labels_)


@pytest.mark.parametrize("missing", ["drop", "partial"])
@pytest.mark.parametrize("seed", range(15))
def test_rows_with_gaps_at_any_parties_give_the_pooled_bits(seed, missing):
    rng = np.random.default_rng(seed)
    X, start = table(rng)
    X[rng.integers(len(X))] = NAN
    for kind in (fc.KMeans, fc.FuzzyCMeans):
        options = {
            "init": start if rng.integers(2) else "box",
            "scale": str(rng.choice(["none", "standardise"])),
            "max_iter": 6,
            "missing": missing,
        }
        pooled = kind(len(start), **options).fit(X)
        fed = fc.Federation.local(parted(rng, X), wire=bool(rng.integers(2)))
        federated = kind(len(start), **options).fit(fed)
        assert np.array_equal(federated.cluster_centers_, pooled.cluster_centers_)
        assert federated.history_ == pooled.history_
        assert federated.final_objective == pooled.final_objective
        assert np.array_equal(federated.predict(X), pooled.predict(X))
        assert np.isfinite(pooled.cluster_centers_).all()


def test_a_far_centre_keeps_its_digits():
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(80, 2)), rng.normal(size=(80, 2)) + 20])
    X[::5, 1] = NAN
    start = np.array([[0.0, 0.0], [20.0, 20.0], [4e3, 4e3]])
    model = fc.FuzzyCMeans(3, m=1.2, init=start, tol=None, max_iter=1, missing="partial").fit(X)
    assert model.cluster_centers_ == pytest.approx(reference(X, start, 1.2, 1), rel=1e-10)


def test_careful_seeding_with_gaps_finds_the_groups():
    rng = np.random.default_rng(8)
    X = np.repeat([[0.0, 0.0, 0.0], [40.0, 0.0, 40.0], [0.0, 40.0, 40.0]], 40, axis=0) + rng.normal(size=(120, 3))
    X[rng.random(X.shape) < 0.2] = NAN
    parts = parted(rng, X[~np.isnan(X).all(axis=1)])
    model = fc.FuzzyCMeans(3, missing="partial").fit(fc.Federation.local(parts))
    order = np.lexsort(model.cluster_centers_.T[:2])
    expected = np.array([[0.0, 0.0, 0.0], [40.0, 0.0, 40.0], [0.0, 40.0, 40.0]])
    assert np.abs(model.cluster_centers_[order] - expected).max() < 2


def test_seeding_never_shows_a_value_that_one_row_alone_has():
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=40), np.full(40, NAN)]
    X[7, 1] = SECRET
    ask = rows_with_gaps.FilledStartQuestion(
        View(np.array([3, 17], np.int32), missing="partial"), 5, 0, np.array([0.0, 10.0])
    )
    points = rows_with_gaps.seed_candidates.answer(turn(X), ask).points
    assert points.shape == (5, 2)
    assert (points[:, 1] == 10.0).all()


def test_a_party_with_few_rows_sends_no_candidates():
    ask = rows_with_gaps.FilledStartQuestion(View(np.array([3], np.int32), missing="partial"), 3, 0, np.zeros(1))
    assert rows_with_gaps.seed_candidates.answer(turn([[1.0], [2.0], [NAN], [NAN], [3.0]]), ask).points.shape == (0, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"init": "party"}, "'party' needs rows without missing values"),
        ({"small_sites": "paper"}, "small_sites='paper' need rows without missing values"),
        ({"missing": "impute"}, "'missing' is 'impute'; choose one of refuse, drop, partial"),
    ],
)
def test_what_partial_distances_cannot_do_is_said(options, words):
    with pytest.raises(fc.StudyError, match=words):
        fc.KMeans(2, **{"missing": "partial", **options}).fit(np.ones((20, 2)))


def test_a_column_split_refuses_gaps():
    fed = fc.Federation.local({"a": np.ones((9, 1)), "b": np.ones((9, 1))}, split="columns")
    with pytest.raises(fc.StudyError, match="a column split cannot have missing values"):
        fc.KMeans(2, missing="drop").fit(fed)
