"""Horizontal c-means by hand, and what it must admit."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import fedclust as fc
from fedclust.algorithms.cmeans.fit_result import FitNotes, RoundResult
from fedclust.algorithms.cmeans.row_split import make_question, moments
from fedclust.algorithms.shared.reseeding import MAX_RESEED_TRIES, CenterReseeder
from fedclust.core.effects import run_on_own_rows
from fedclust.core.site_interface import View
from fedclust.kernels.units import closer_share_bound
from fedclust.questions import standardisation
from fedclust.site.site_data import HandlerContext, SiteData
from fedclust.site.sources import open_source
from fedclust.testing import Faulty


def turn(X):
    return HandlerContext(SiteData("p", open_source(np.asarray(X, float), site="p")), (0, 1), {})


def question(centers, m, exponents=(4,)):
    return make_question(View(np.array(exponents, np.int32)), np.asarray(centers, float), m)


def test_hard_sums_by_hand():
    found = moments.answer(turn([[0], [1], [10]]), question([[0.0], [8.0]], 1.0))
    assert found.mass.to_floats().tolist() == [2, 1]
    assert found.pull.to_floats().tolist() == [[1], [10]]
    assert found.objective.to_floats() == 0 + 1 + 4


def test_fuzzy_sums_by_hand():
    # Row 1 lies at distances 1 and 3 of the centres: u = (9/10, 1/10). Row 4 lies on the second centre.
    found = moments.answer(turn([[1], [4]]), question([[0.0], [4.0]], 2.0))
    assert found.mass.to_floats() == pytest.approx([0.81, 0.01 + 1], abs=1e-15)
    assert found.pull.to_floats().ravel() == pytest.approx([0.81, 0.01 + 4], abs=1e-14)
    assert found.objective.to_floats() == pytest.approx(0.81 * 1 + 0.01 * 9, abs=1e-13)


def test_a_row_between_coincident_centres_is_shared_equally():
    found = moments.answer(turn([[2]]), question([[2.0], [2.0], [5.0]], 2.0))
    assert found.mass.to_floats().tolist() == [0.25, 0.25, 0]


def test_one_round_by_hand():
    model = fc.KMeans(2, init=[[0.0], [9.0]], tol=None, max_iter=1).fit([[0.0], [1.0], [10.0], [12.0]])
    assert model.cluster_centers_.ravel().tolist() == [0.5, 11.0]
    assert model.history_ == [{"round": 1, "shift": (0.5**2 + 2.0**2) ** 0.5, "objective": 0 + 1 + 1 + 9}]
    assert model.final_objective == 0.25 + 0.25 + 1 + 1
    assert model.cluster_sizes_.tolist() == [2, 2]


def test_standardisation_by_hand():
    site = turn([[1.0, 5.0], [3.0, 5.0]])
    view = run_on_own_rows(standardisation.standardise(View(np.array([2, 3], np.int32))), site)
    assert view.origin.tolist() == [2, 5]
    assert view.spread.tolist() == [1, 1]  # sd 1, and a constant column keeps 1
    (block,) = site.blocks(view)
    assert block.tolist() == [[-1, 1], [0, 0]]


def test_a_large_offset_does_not_spoil_the_variance():
    site = turn([[1e6 - 1], [1e6 + 1]])
    assert run_on_own_rows(standardisation.column_statistics(View(np.array([20], np.int32))), site).sd.tolist() == [1.0]


def test_an_empty_cluster_is_seeded_anew_and_said():
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    model = fc.KMeans(3, init=[[0.5], [10.5], [500.0]]).fit(X)
    assert np.isfinite(model.cluster_centers_).all()
    assert any("empty" in note for note in model.notes_)
    again = fc.KMeans(3, init=[[0.5], [10.5], [500.0]]).fit(X)
    assert np.array_equal(model.cluster_centers_, again.cluster_centers_)


def two_groups():
    rng = np.random.default_rng(0)
    return np.abs(np.concatenate([rng.normal(size=(50, 2)), rng.normal(size=(50, 2)) + 10]))


@pytest.mark.parametrize("missing", ["refuse", "partial"])
def test_a_start_far_from_all_rows_still_finds_both_groups(missing):
    model = fc.KMeans(2, init=[[5.0, 5], [1000, 1000]], missing=missing).fit(two_groups())
    assert model.cluster_sizes_.tolist() == [50, 50]


@pytest.mark.parametrize("seed", range(40))
def test_no_cluster_ends_empty_in_a_box_far_wider_than_the_rows(seed):
    X = two_groups()
    made = fc.KMeans(2 + seed % 4, init="box", bounds=[(0, 1000)] * 2, random_state=seed)
    pooled = made.fit(X)
    assert (pooled.cluster_sizes_ > 0).all()
    spread = clone(made).fit(fc.Federation.local({"a": X[:7], "b": X[7:60], "c": X[60:]}))
    assert np.array_equal(spread.cluster_centers_, pooled.cluster_centers_)
    assert spread.history_ == pooled.history_


@pytest.mark.parametrize("kind", ["many columns", "skewed", "outlier", "line"])
def test_an_empty_cluster_wins_rows_of_any_shape(kind):
    rng = np.random.default_rng(1)
    X = {
        "many columns": rng.normal(size=(200, 64)),
        "skewed": np.exp(2 * rng.normal(size=(300, 3))),
        "outlier": np.r_[rng.normal(size=(100, 2)), [[1e6, 1e6]]],
        "line": np.outer(rng.normal(size=100), np.ones(30)),
    }[kind]
    start = np.r_[X.mean(axis=0)[None], np.full((3, X.shape[1]), 1e8)]
    for seed in range(5):
        assert (fc.KMeans(4, init=start, random_state=seed).fit(X).cluster_sizes_ > 0).all()


def test_clusters_that_no_row_is_left_for_stay_empty_and_are_told():
    model = fc.KMeans(3, init=[[0.0], [8.0], [50.0]]).fit(np.repeat([[0.0], [8.0]], 10, axis=0))
    assert model.cluster_sizes_.tolist() == [10, 10, 0]
    assert model.n_iter_ == 1
    assert (
        "Clusters without rows at the end of the run: 1. Ask for fewer clusters, or use other initial centres."
        in model.notes_
    )


def test_a_new_place_by_hand():
    # Rows at 0 and 4: mean 2, objective 2 * 2^2, so spread 2; the new centre lies that far off, then half as far.
    places = CenterReseeder(np.random.default_rng(0), FitNotes())
    moved = RoundResult(np.array([[2.0], [np.nan]]), np.array([2.0, 0.0]), objective=8.0, hidden=0, abstained=0)
    for step in (2.0, 1.0, 0.5):
        target, anew = places.reseed_empty(moved, np.array([[2.0], [99.0]]), 1)
        assert anew
        assert (target[0, 0], abs(target[1, 0] - 2)) == (2, step)


def test_places_run_out():
    places = CenterReseeder(np.random.default_rng(0), FitNotes())
    moved = RoundResult(np.array([[2.0], [np.nan]]), np.array([2.0, 0.0]), objective=8.0, hidden=0, abstained=0)
    found = [places.reseed_empty(moved, np.array([[2.0], [99.0]]), 1) for _ in range(MAX_RESEED_TRIES + 1)]
    assert [anew for _, anew in found] == [True] * MAX_RESEED_TRIES + [False]
    assert found[-1][0].tolist() == [[2], [99]]


def test_singletons_are_hidden_only_under_the_papers_rule_and_said():
    sites = {"a": np.array([[0.0], [1.0], [10.0]]), "b": np.array([[11.0], [12.0], [0.5]])}
    fed = fc.Federation.local(sites)
    model = fc.KMeans(2, init=[[0.0], [10.0]], singletons="paper").fit(fed)
    assert model.cluster_centers_.ravel().tolist() == [0.5, 11.5]  # neither 10 nor the second site's 0.5 counts
    assert any("singleton rule hid" in note for note in model.notes_)


def test_small_sites_abstain_only_under_the_papers_rule_and_said():
    # N_m > C (F + 1) / F = 2 * 2: four rows are too few, five enough.
    sites = {"small": np.array([[100.0]] * 4), "large": np.array([[0.0], [1.0], [2.0], [9.0], [10.0]])}
    model = fc.FuzzyCMeans(2, init=[[0.0], [10.0]], small_sites="paper").fit(fc.Federation.local(sites))
    assert model.cluster_centers_.max() < 11
    assert any("1 site abstained, because of too few rows" in note for note in model.notes_)


def test_partial_participation_says_how_far_it_is_from_all():
    rng = np.random.default_rng(0)
    fed = fc.Federation.local({f"p{i}": rng.normal(size=(30, 2)) + (i % 2) * 6 for i in range(10)})
    model = fc.FuzzyCMeans(2, participation=0.4, max_iter=10).fit(fed)
    (note,) = [note for note in model.notes_ if "40% of the sites" in note]
    assert "would move the centres by" in note


def test_a_smaller_quorum_goes_on_without_a_party_and_says_so():
    rng = np.random.default_rng(0)
    fed = fc.Federation.local({f"p{i}": rng.normal(size=(30, 2)) + (i % 2) * 6 for i in range(4)})
    fed.use_engine(Faulty(fed.engine, lambda step, party: "silent" if step > 5 and party == "p3" else None))
    model = fc.FuzzyCMeans(2, quorum=3, init="box").fit(fed)
    assert any(note.startswith("Not lossless: p3 did not contribute") for note in model.notes_)


@pytest.mark.parametrize("back", [6, 8, 9])
def test_a_party_that_returns_with_far_rows_is_counted_in_full(back):
    rng = np.random.default_rng(0)
    sites = {name: at + 0.01 * rng.normal(size=(n, 1)) for name, at, n in [("a", 0, 50), ("b", 10, 50), ("c", 40, 10)]}
    fed = fc.Federation.local(sites)
    fed.use_engine(Faulty(fed.engine, lambda step, party: "silent" if party == "c" and 4 <= step < back else None))
    model = fc.KMeans(2, init=[[0.0], [10.0]], quorum=2, max_iter=6, tol=None).fit(fed)
    X = np.concatenate(list(sites.values()))
    d2 = (X - model.cluster_centers_.T) ** 2
    assert model.final_objective == pytest.approx(d2.min(axis=1).sum(), rel=1e-10)
    assert model.final_objective > 5000


@pytest.mark.parametrize("m", [1.0, 2.0])
def test_a_share_beyond_the_bound_it_is_asked_under_is_refused(m):
    site = turn([[0.0], [1.0], [10.0]])
    asked = question([[0.0], [6.0]], m)
    expected = 1 + 16 if m == 1 else 1 / (1 + 1 / 25) + 1 / (1 / 100 + 1 / 16)
    for reach in (4, asked.reach):
        found = moments.answer(site, replace(asked, reach=reach))
        assert float(found.objective.to_floats()) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(fc.FedclustError, match="one row adds more to the objective than is possible"):
        moments.answer(site, replace(asked, reach=3))


def test_a_bound_found_from_a_rounded_sum_holds_the_row():
    # 1.4 units round to one: a bound of one unit would not hold the row.
    rough = question([[0.0]], 1.0)
    unit = 2.0 ** (rough.reach - 51)
    assert 2.0 ** closer_share_bound(unit, rough.reach, rough.farthest) >= 1.5 * unit


def test_centres_that_rounding_moved_off_their_rows_do_not_end_a_run():
    # Beside a value of 1e6 the terms of a pull end at 2^-31, so the centre of the small rows leaves them by 1e-10.
    small = 0.125 + 0.4 * 2.0**-31
    X = np.array([[small]] * 40 + [[small + 1e-12]] + [[1e6]] * 3)
    model = fc.KMeans(2, init=[[small], [1e6]], tol=None, max_iter=5).fit(X)
    assert model.cluster_sizes_.tolist() == [41, 3]
    assert model.final_objective > 1e3 * model.history_[0]["objective"] > 0


def test_the_singleton_rule_goes_on_when_a_hidden_row_shows_again():
    rng = np.random.default_rng(0)
    a = np.concatenate([0.01 * rng.normal(size=(50, 1)), [[1000.0]]])
    b = np.concatenate([0.01 * rng.normal(size=(50, 1)), 1 + 0.01 * rng.normal(size=(50, 1))])
    model = fc.KMeans(2, init=[[0.0], [1.0]], singletons="paper").fit(fc.Federation.local({"a": a, "b": b}))
    assert any("singleton rule hid" in note for note in model.notes_)
    assert model.cluster_centers_.ravel() == pytest.approx([0, 1], abs=0.05)


@pytest.mark.parametrize("seed", range(10))
def test_the_singleton_rule_blames_no_honest_site(seed):
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(size=(60, 2)), rng.normal(size=(60, 2)) + 6, rng.standard_cauchy(size=(6, 2)) * 8])
    fed = fc.Federation.local({f"s{i}": part for i, part in enumerate(np.array_split(rng.permutation(X), 12))})
    model = fc.KMeans(4, singletons="paper", init="box", random_state=seed).fit(fed)
    assert np.isfinite(model.cluster_centers_).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"small_sites": "paper"}, "every site has too few rows"),
        ({"singletons": "paper"}, "the singleton rule hid every row"),
    ],
)
def test_a_run_in_which_no_row_counts_ends_without_a_result(options, words):
    fed = fc.Federation.local({"a": np.array([[0.0], [5.0]]), "b": np.array([[0.0], [5.0]])})
    with pytest.raises(fc.RunFailed, match=words):
        fc.KMeans(2, init=[[0.0], [5.0]], **options).fit(fed)


def test_a_value_beyond_declared_bounds_is_refused_not_wrapped():
    with pytest.raises(fc.FedclustError, match="exceeds its bound"):
        fc.KMeans(2, bounds=(0, 1)).fit(fc.Federation.local({"a": np.array([[0.1], [0.2], [7.0]] * 4)}))


def test_tol_none_never_stops_early():
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    assert fc.KMeans(2, init=[[0.0], [10.0]], tol=None, max_iter=9).fit(X).n_iter_ == 9


def test_the_published_box_start_is_the_papers_own_stream():
    model = fc.FuzzyCMeans(3, init="box", bounds=(0, 1), max_iter=1, random_state=4).fit(
        np.random.default_rng(0).random((50, 2))
    )
    assert np.array_equal(model.initial_centers_, np.random.RandomState(4).rand(3, 2))


@pytest.mark.parametrize(("offset", "sd"), [(1e6, 0.01), (1.7e9, 10.0), (1e9, 1.0), (1e6, 1e-4)])
def test_digits_survive_any_offset(offset, sd):
    X = offset + sd * np.random.default_rng(0).normal(size=(300, 1))
    fed = fc.Federation.local({"a": X[:100], "b": X[100:]})
    raw = fc.KMeans(2).fit(fed)
    assert raw.final_objective == pytest.approx(((X - raw.cluster_centers_[raw.labels_]) ** 2).sum(), rel=1e-9)
    scaled = fc.KMeans(2, scale="standardise").fit(fed)
    assert scaled.spread_[0] == pytest.approx(X.std(), rel=1e-6)


def test_a_constant_column_stays_one_at_any_digits():
    X = np.column_stack([np.random.default_rng(0).normal(size=60), np.full(60, 0.1), np.full(60, 1e9 + 0.3)])
    model = fc.KMeans(2, scale="standardise").fit(fc.Federation.local({"a": X[:20], "b": X[20:]}))
    assert model.spread_[1:].tolist() == [1, 1]


def test_very_fuzzy_objectives_keep_their_digits():
    X = np.random.default_rng(0).normal(size=(100, 2))
    model = fc.FuzzyCMeans(4, m=30, max_iter=2, tol=None).fit(X)
    d2 = ((X[:, None] - model.cluster_centers_) ** 2).sum(axis=2)
    assert model.final_objective == pytest.approx((model.memberships(X) ** 30 * d2).sum(), rel=1e-10)


def test_a_party_back_between_a_question_and_its_repeat_does_not_enter_it():
    rng = np.random.default_rng(0)
    sites = {"a": rng.normal(size=(40, 2)), "b": rng.normal(size=(40, 2)) + 100, "c": rng.normal(size=(40, 2))}
    start = np.array([[0.0, 0], [1.0, 1], [100.0, 100]])
    fed = fc.Federation.local(sites)
    asked = []

    def plan(step, party):
        asked.append(step)
        return "silent" if party == "b" and step == 3 else None

    fed.use_engine(Faulty(fed.engine, plan))
    model = fc.FuzzyCMeans(3, m=1.3, init=start, quorum=2, max_iter=1, tol=None).fit(fed)
    assert np.abs(model.cluster_centers_).max() < 104


def test_the_singleton_rule_hides_the_row_from_the_objective_too():
    site = turn([[0.0], [1.0], [9.0]])
    plain = moments.answer(site, question([[0.0], [8.0]], 1.0))
    hidden = moments.answer(site, replace(question([[0.0], [8.0]], 1.0), singletons=True))
    assert (plain.objective.to_floats(), hidden.objective.to_floats()) == (0 + 1 + 1, 0 + 1)
