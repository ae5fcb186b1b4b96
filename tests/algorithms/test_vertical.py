"""Vertical c-means by hand, and its agreement with the horizontal one."""

import numpy as np
import pytest

import fedclust as fc
from fedclust.algorithms.cmeans import column_split
from fedclust.site.policy import Policy
from fedclust.testing import Faulty


def columns(X, *groups, **options):
    sites = {f"p{i}": X[:, list(group)] for i, group in enumerate(groups)}
    names = {f"p{i}": [f"c{j}" for j in group] for i, group in enumerate(groups)}
    return fc.Federation.local(sites, split="columns", columns=names, **options)


def table(rows=90, width=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, width)) + np.repeat(rng.normal(size=(3, width)) * 6, rows // 3, axis=0)


def test_one_round_by_hand():
    X = np.array([[0.0, 0.0], [0.0, 2.0], [8.0, 8.0]])
    model = fc.KMeans(2, init=[[0.0, 0.0], [8.0, 6.0]], tol=None, max_iter=1).fit(columns(X, [0], [1]))
    assert model.cluster_centers_.tolist() == [[0, 1], [8, 8]]
    assert model.labels_.tolist() == [0, 0, 1]
    assert model.history_[0]["objective"] == 0 + 4 + 4
    assert model.final_objective == 1 + 1 + 0


@pytest.mark.parametrize("kind", [fc.KMeans, fc.FuzzyCMeans])
def test_it_agrees_with_rows(kind):
    X = table()
    start = X[[0, 40, 80]]
    rows = kind(3, init=start, tol=None, max_iter=10).fit(X)
    split = kind(3, init=start, tol=None, max_iter=10).fit(columns(X, [0, 2], [1], [3]))
    order = [0, 2, 1, 3]
    assert split.columns_ == ("c0", "c2", "c1", "c3")
    # Starts are given in the order of the study's columns.
    again = kind(3, init=start[:, order], tol=None, max_iter=10).fit(columns(X, [0, 2], [1], [3]))
    assert again.cluster_centers_ == pytest.approx(rows.cluster_centers_[:, order], abs=1e-12)
    assert np.array_equal(again.labels_, rows.labels_)


def test_seeding_by_index_finds_the_groups():
    X = table()
    model = fc.KMeans(3, random_state=1).fit(columns(X, [0, 1], [2, 3]))
    assert sorted(np.bincount(model.labels_)) == [30, 30, 30]


def test_standardised_columns_give_the_standardised_result():
    X = table() * np.array([1.0, 1e3, 1e-3, 10.0])
    rows = fc.FuzzyCMeans(3, init=X[[0, 40, 80]], scale="standardise").fit(X)
    split = fc.FuzzyCMeans(3, init=X[[0, 40, 80]], scale="standardise").fit(columns(X, [0, 1], [2, 3]))
    assert np.array_equal(rows.labels_, split.labels_)
    assert split.cluster_centers_ == pytest.approx(rows.cluster_centers_, rel=1e-6)
    assert np.array_equal(split.predict(X), rows.predict(X))


def test_chunks_do_not_change_the_bits(monkeypatch):
    X = table()
    whole = fc.FuzzyCMeans(3, init="box").fit(columns(X, [0, 1], [2, 3]))
    monkeypatch.setattr(column_split, "MATRIX_CHUNK_VALUES", 50)
    parts = fc.FuzzyCMeans(3, init="box").fit(columns(X, [0, 1], [2, 3]))
    assert np.array_equal(whole.cluster_centers_, parts.cluster_centers_)
    assert whole.history_ == parts.history_


def test_rows_are_matched_by_id(tmp_path):
    import pandas as pd

    X, rng = table(), np.random.default_rng(1)
    ids = np.array([f"n{i:03}" for i in range(len(X))])
    one, two = rng.permutation(len(X)), rng.permutation(len(X))
    left = pd.DataFrame({"id": ids[one], "a": X[one, 0], "b": X[one, 1]})
    right = pd.DataFrame({"id": ids[two], "c": X[two, 2], "d": X[two, 3]})
    fed = fc.Federation.local({"left": left, "right": right}, split="columns", id="id")
    model = fc.KMeans(3, init=X[[0, 40, 80]]).fit(fed)
    straight = fc.KMeans(3, init=X[[0, 40, 80]]).fit(columns(X, [0, 1], [2, 3]))
    assert np.array_equal(model.labels_, straight.labels_)
    assert np.array_equal(model.cluster_centers_, straight.cluster_centers_)


def test_sites_that_hold_other_rows_are_told():
    import pandas as pd

    left = pd.DataFrame({"id": [1, 2, 3], "a": [1.0, 2.0, 3.0]})
    right = pd.DataFrame({"id": [1, 2, 4], "b": [1.0, 2.0, 3.0]})
    with pytest.raises(fc.DataError, match="do not hold the same rows"):
        fc.KMeans(2).fit(fc.Federation.local({"left": left, "right": right}, split="columns", id="id"))


def test_an_empty_cluster_is_put_on_a_far_row():
    X = table()
    start = np.vstack([X[[0, 40]], [[500.0] * 4]])
    model = fc.KMeans(3, init=start).fit(columns(X, [0, 1], [2, 3]))
    assert sorted(np.bincount(model.labels_)) == [30, 30, 30]
    assert any("empty" in note for note in model.notes_)


def test_empty_clusters_go_to_rows_of_their_own():
    # Three equal rows lie off the filled centre; after one empty cluster took them, no row is left for the other.
    X = np.array([[0.0, 0.0]] * 30 + [[9.0, 9.0]] * 3)
    for seed in range(10):
        start = [[0.0, 0.0], [700.0, 0.0], [0.0, 700.0]]
        model = fc.KMeans(3, init=start, random_state=seed, max_iter=20).fit(columns(X, [0], [1]))
        assert model.cluster_sizes_.tolist()[0] == 30
        assert model.n_iter_ < 20
        assert (
            "Clusters without rows at the end of the run: 1. Ask for fewer clusters, or use other initial centres."
            in model.notes_
        )


@pytest.mark.parametrize("seed", range(5))
def test_no_cluster_ends_empty_in_a_box_far_wider_than_the_rows(seed):
    fed = columns(np.abs(table(width=2)), [0], [1])
    model = fc.KMeans(4, init="box", bounds=[(0, 1000)] * 2, random_state=seed).fit(fed)
    assert (model.cluster_sizes_ > 0).all()


@pytest.mark.parametrize("m", [1.1, 1.3])
def test_a_far_centre_keeps_its_digits(m):
    X = table()
    start = np.vstack([X[[0, 40]], [[900.0] * 4]])
    model = fc.FuzzyCMeans(3, m=m, init=start, tol=None, max_iter=1).fit(columns(X, [0, 1], [2, 3]))
    rows = fc.FuzzyCMeans(3, m=m, init=start, tol=None, max_iter=1).fit(X)
    assert model.cluster_centers_ == pytest.approx(rows.cluster_centers_, rel=1e-12)


def test_a_site_that_leaves_a_column_split_ends_the_run():
    fed = columns(table(), [0, 1], [2, 3])
    fed.use_engine(Faulty(fed.engine, lambda step, party: "silent" if step > 6 and party == "p1" else None))
    with pytest.raises(fc.QuorumLost, match="p1: no answer came in time"):
        fc.KMeans(3, init="box").fit(fed)


def test_prediction_over_columns_is_a_total_too():
    X = table()
    model = fc.FuzzyCMeans(3, init="box").fit(columns(X, [0, 1], [2, 3]))
    fresh = table(seed=0)[::-1].copy()
    assert np.array_equal(model.predict(columns(fresh, [0, 1], [2, 3])), model.predict(fresh))
    assert model.memberships(columns(fresh, [0, 1], [2, 3])) == pytest.approx(model.memberships(fresh), abs=1e-12)


def test_sites_with_a_policy_keep_their_slices():
    model = fc.KMeans(3, init="box").fit(columns(table(), [0, 1], [2, 3], policy=Policy("own")))
    assert model.cluster_centers_ is None
    assert "Each site keeps its columns of the centres; this model holds no centres." in model.notes_
    assert len(model.labels_) == 90


def test_centres_outside_the_data_do_not_leave_the_ring():
    X = table(rows=60)
    for bounds in ((-50, 50), (-1e4, 1e4)):
        model = fc.KMeans(3, init="box", bounds=bounds, max_iter=1, tol=None).fit(columns(X, [0, 1], [2, 3]))
        d2 = ((X[:, None] - model.initial_centers_) ** 2).sum(axis=2).min(axis=1).sum()
        assert model.history_[0]["objective"] == pytest.approx(d2, rel=1e-12)


def test_two_fits_on_one_recorded_federation_replay_alike(tmp_path):
    def script():
        with columns(table(), [0, 1], [2, 3], run=tmp_path / "run") as fed:
            return [fc.KMeans(k, init="box").fit(fed).cluster_centers_ for k in (2, 3)]

    live, again = script(), script()
    assert all(np.array_equal(a, b) for a, b in zip(live, again, strict=True))
