"""Choosing K: each formula by hand, the same bits for every partition, and honest notes."""

import json
import math
import warnings

import numpy as np
import pytest
from sklearn.cluster import KMeans

import fedclust as fc
from fedclust.algorithms.gaussian_mixture import mixture
from fedclust.questions import bounds
from fedclust.questions.choice_of_k import centers_for_each_k, choice_notes, k_range
from fedclust.questions.choice_of_k.centers_for_each_k import CenterSet, CenterSets, GrownCenters
from fedclust.questions.choice_of_k.choice import KChoice


def framed(fed, then):
    """The result of a protocol that starts from a frame of the federation's columns."""

    def script():
        view = yield from bounds.agree_on_bounds(len(fed.columns))
        frame = yield from mixture.make_frame(view, full=True)
        return (yield from then(frame))

    return fed.run(script())[0]


def groups(seed=0, k=3, width=2, rows=240, apart=8.0):
    return fc.datasets.mixture(k, width, rows, seed, separation=apart).X


def dealt(X, parties, seed=0):
    rows = np.random.default_rng(seed).permutation(X)
    return {f"p{i}": part for i, part in enumerate(np.array_split(rows, parties))}


# Formulas


@pytest.mark.parametrize(
    ("counts", "rows", "found"),
    [
        ([2, 2, 2], 1000, (2, 6)),  # the paper's rule stops at 4, the sites' sum is 6
        ([2, 5], 1000, (2, 7)),
        ([4], 1000, (4, 8)),
        ([3] * 50, 1000, (3, 20)),  # no further than 20
        ([3, 3], 25, (3, 5)),  # five rows to a cluster
        ([1, 1], 9, (1, 1)),
    ],
)
def test_the_range_from_what_sites_find(counts, rows, found):
    assert k_range.range_of_k(counts, rows) == found


def test_a_range_widens_by_half_within_limits():
    assert [k_range.widen_range(n, 1000) for n in (2, 8, 12, 18, 20)] == [4, 12, 18, 20, 20]
    assert k_range.widen_range(8, 45) == 9
    assert k_range.widen_range(8, 30) == 8


def test_the_elbow_lies_farthest_below_the_line_between_the_ends():
    # Line from 10 to 2: 10, 8, 6, 4, 2; the curve is 0, 3, 2.5, 1, 0 below it
    assert k_range.elbow([2, 3, 4, 5, 6], [10.0, 5.0, 3.5, 3.0, 2.0]) == 3
    assert k_range.elbow([2, 3], [2.0, 1.0]) == 3


def test_an_infinite_index_is_no_point_of_the_curve():
    assert k_range.elbow([2, 3, 4, 5], [1.0, 0.5, math.inf, math.inf]) == 3
    assert k_range.elbow([2, 3, 4, 5, 6], [10.0, math.inf, 3.0, 2.5, 2.0]) == 4
    assert k_range.elbow([2, 3, 4], [5.0, -math.inf, 7.0]) == 2
    assert k_range.elbow([2, 3], [math.inf, math.inf]) == 2


def test_what_a_new_centre_would_gain_by_hand():
    fed = fc.Federation.local({"a": np.array([[0.0], [1.0]]), "b": np.array([[5.0], [6.0]])})

    def script(frame):
        places = frame.view.transform_points(np.array([[5.0], [20.0]]))
        lots = (CenterSet(frame.view.transform_points(np.array([[0.0]])), places),)
        asked = CenterSets(frame.view, frame.reach, lots)
        return (yield from centers_for_each_k.total(centers_for_each_k.gains, asked)).gains.to_floats()

    # At 5: rows 5 and 6 come 25 and 36 - 1 nearer; at 20: none does
    assert framed(fed, script).tolist() == [60.0, 0.0]


def test_joining_takes_the_cheapest_pair_by_wards_cost():
    # 1 * 1 / 2 * 9 = 4.5, 1 * 8 / 9 * 16 = 14.2, 1 * 8 / 9 * 1 = .89
    of = GrownCenters(np.array([[0.0], [3.0], [4.0]]), np.array([1.0, 1.0, 8.0]), 0.0)
    assert centers_for_each_k._join_cheapest_pair(of) == pytest.approx(np.array([[0.0], [35 / 9]]))


# Centres for every K


@pytest.mark.parametrize("seed", range(3))
def test_grown_centres_are_as_good_as_many_restarts(seed):
    X = groups(seed, k=7, width=3, rows=350, apart=5.0)
    grown = framed(fc.Federation.local({"a": X}), lambda frame: centers_for_each_k.grow_centers(frame, 9))
    assert [found.centers.shape for found in grown] == [(k, 3) for k in range(1, 10)]
    assert [found.mass.sum() for found in grown] == [350] * 9
    for k, slack in ((4, 1.03), (7, 1.0001), (9, 1.03)):
        assert grown[k - 1].objective <= slack * KMeans(k, n_init=8, random_state=0).fit(X).inertia_


# The whole


def document(found):
    judged = [found.verdict, found.certainty, found.reason]
    return json.dumps([found.k, found.scores, found.range, found.stability, found.notes, judged])


@pytest.mark.parametrize("estimator", [fc.KMeans(), fc.FuzzyCMeans(scale="standardise"), fc.GaussianMixture()])
def test_every_partition_gives_the_same_choice_to_the_bit(estimator):
    X = groups(1, k=4, rows=200)
    estimator.set_params(random_state=3)
    pooled = fc.select_k(estimator, X, range(1, 7))
    assert pooled.k == 4
    for parties, wire in ((2, False), (7, True)):
        found = fc.select_k(estimator, fc.Federation.local(dealt(X, parties, seed=parties), wire=wire), range(1, 7))
        assert document(found) == document(pooled)
        assert np.array_equal(found.model.cluster_centers_, pooled.model.cluster_centers_)
        assert found.model.final_objective == pooled.model.final_objective


def test_the_motivational_example_by_default():
    parties, truth = fc.datasets.motivational(3)
    found = fc.select_k(fc.FuzzyCMeans(), fc.Federation.local(parties))
    assert (found.k, found.criterion, found.verdict, found.certainty) == (5, "evidence", "groups", "clear")
    assert found.reason == "Clear: 5 by evidence, and 5 by valleys at the mild and at the strict limit."
    assert (found.range, found.stability, found.notes) == ((1, 10), None, [])
    assert [row["k"] for row in found.scores if row["chosen"]] == [5]
    assert max(found.scores, key=lambda row: row["evidence"])["k"] == 5
    assert fc.agreement.displacement(found.model.cluster_centers_, truth.centers) < 0.3


def test_only_the_chosen_k_is_fitted(monkeypatch):
    fitted = []

    fit = fc.KMeans.fit

    def count(self, X, y=None, **weights):
        fitted.append(self.n_clusters)
        return fit(self, X, y, **weights)

    monkeypatch.setattr(fc.KMeans, "fit", count)
    assert fc.select_k(fc.KMeans(), groups(1, k=4, rows=200)).k == 4
    assert fitted == [4]


def test_the_papers_index_finds_five_where_every_client_finds_two():
    parties, _ = fc.datasets.motivational(4)
    fed = fc.Federation.local(parties)
    found = fc.select_k(fc.FuzzyCMeans(tol=1e-4), fed, criterion="index", restarts=3, stability=None)
    assert (found.k, found.range, found.stability) == (5, (2, 6), None)
    values = {row["k"]: row["value"] for row in found.scores}
    assert values[5] == min(values.values())
    assert values[5] == fc.indices.fuzzy_davies_bouldin(found.model, fed)

    def script():
        return (yield from k_range.local_counts((yield from bounds.agree_on_bounds(2))))

    assert fed.run(script())[0] == [2, 2, 2]


def test_no_structure_is_said():
    X = np.random.default_rng(1).normal(size=(300, 2))
    found = fc.select_k(fc.KMeans(), X)
    assert found.k == found.model.n_clusters == 1
    assert (found.verdict, found.notes) == ("none", ["No structure found: the rows form one group."])
    asked = fc.select_k(fc.KMeans(), X, range(2, 5))
    assert asked.k in range(2, 5)
    assert asked.notes[0] == f"Without limits K would be 1. Of the candidates, {asked.k} has the most evidence."


def test_tails_are_no_groups():
    X = np.random.default_rng(10).exponential(size=(600, 8))
    found = fc.select_k(fc.KMeans(), X)
    assert max(found.scores, key=lambda row: row["evidence"])["k"] > 3
    assert (found.k, found.verdict, found.certainty) == (1, "none", "likely")
    assert "no valley separates these components" in found.notes[1]


def test_groups_that_are_not_round_are_said():
    a = np.random.default_rng(0).uniform(0, 2 * np.pi, 600)
    ring = np.column_stack([np.cos(a), np.sin(a)]) * np.where(np.arange(600) % 2, 1.0, 0.4)[:, None]
    found = fc.select_k(fc.KMeans(), ring + 0.05 * np.random.default_rng(1).normal(size=(600, 2)))
    assert (found.verdict, found.certainty) == ("not round", "unsure")
    assert found.notes[0].startswith("The groups are not round: some are bent or hollow")


def test_how_sure_a_choice_is_depends_on_three_counts_and_on_rivals():
    def word(k, evidence, mild, strict, verdict="groups", rival=90.0, rows=100, floor=1, taken=None):
        curve = {evidence: (100.0, "round"), evidence + 1: (rival, "round")}
        found = KChoice(k, verdict, evidence, mild, strict, curve, rows, is_sample=False, floor=floor)
        return choice_notes.how_sure(found, taken)[0]

    assert word(3, 3, 3, 3) == "clear"
    assert word(3, 3, 3, 3, rival=95.0) == "unsure"
    assert word(3, 3, 3, 3, rival=101.0) == "unsure"
    assert word(1, 1, 1, 1, "none", rival=99.0) == "clear"
    assert word(3, 4, 3, 3) == "likely"
    assert word(3, 3, 3, 2) == "unsure"
    assert word(1, 4, 1, 1, "none") == "likely"
    assert word(2, 4, 2, 1) == "unsure"
    assert word(3, 3, 3, 3, "not round") == "unsure"
    assert word(3, 3, 3, 3, taken=5) == "unsure"
    assert word(1, 1, 1, 1, "none", rows=9) == "unsure"
    assert [word(3, 3, 3, 3, rows=rows, floor=10) for rows in (179, 180)] == ["unsure", "clear"]


def test_many_groups_are_counted():
    assert fc.select_k(fc.KMeans(), groups(2, k=14, width=5, rows=560)).k == 14


def test_columns_at_several_sites_are_chosen_by_index():
    X = groups(3, k=3, width=4, rows=90, apart=12.0)
    fed = fc.Federation.local({"a": X[:, :1], "b": X[:, 1:]}, split="columns")
    found = fc.select_k(fc.FuzzyCMeans(max_iter=12), fed, index="xie-beni", restarts=2)
    assert (found.k, found.criterion, found.range) == (3, "index", (2, 8))
    assert found.stability == 1.0
    assert found.notes[0] == (
        "K from 2 to 8 was examined. The sites could not suggest a range, because they hold different columns."
    )
    with pytest.raises(fc.StudyError, match="criterion='evidence' works on row splits only"):
        fc.select_k(fc.FuzzyCMeans(), fed, criterion="evidence")


def test_an_index_of_which_more_is_better_and_the_elbow():
    X = groups(4, k=4, rows=200)
    more = fc.select_k(fc.KMeans(), X, range(2, 7), index="calinski-harabasz", restarts=3)
    values = [row["value"] for row in more.scores]
    assert (more.k, more.criterion) == (4, "index")
    assert values[2] == max(values)
    elbow = fc.select_k(fc.KMeans(), X, range(2, 9), index="davies-bouldin", rule="elbow", restarts=3, stability=None)
    assert elbow.k == k_range.elbow(range(2, 9), [row["value"] for row in elbow.scores])


def test_the_best_of_the_restarts_is_kept():
    X = groups(5, k=6, rows=300)
    estimator = fc.KMeans(init="box")
    found = fc.select_k(estimator, X, [6], criterion="index", restarts=6)
    tried = [fc.KMeans(6, init="box", random_state=seed).fit(X).final_objective for seed in range(6)]
    assert found.model.final_objective == pytest.approx(min(tried), rel=1e-6)
    assert max(tried) > 1.1 * min(tried)
    assert found.stability < 0.99


def test_leaving_a_site_out_shows_who_holds_a_cluster_alone():
    X = groups(6, k=3, rows=150, apart=10.0)
    how = {"criterion": "index", "restarts": 2, "stability": "sites"}
    even = fc.select_k(fc.KMeans(), fc.Federation.local(dealt(X, 3)), [3], **how)
    assert even.stability == 1.0
    order = np.argsort(fc.KMeans(3, init=even.model.cluster_centers_).fit(X).labels_, kind="stable")
    apart = fc.Federation.local({f"p{i}": X[part] for i, part in enumerate(np.array_split(order, 3))})
    assert fc.select_k(fc.KMeans(), apart, [3], **how).stability < 0.8
    with pytest.raises(fc.StudyError, match="stability 'sites' needs at least two sites"):
        fc.select_k(fc.KMeans(), X, [3], **how)


def test_ties_flat_curves_and_coinciding_centres_are_said():
    notes = choice_notes.index_notes({2: 0.50, 3: 0.502, 4: 0.9}, 2, given=False, elbow=False)
    assert notes == ["These K are almost as good as 2: 3."]
    assert choice_notes.index_notes({2: 0.5, 3: 0.51, 4: 3.0, 5: 1e6}, 2, given=False, elbow=False) == []
    assert choice_notes.index_notes({2: -400.0, 3: -397.0, 4: -9.0}, 2, given=False, elbow=False) == notes
    assert choice_notes.index_notes({2: 0.0, 3: 0.0, 4: 1.0}, 2, given=False, elbow=False) == notes
    assert "hardly depends on K" in choice_notes.index_notes({2: 0.50, 3: 0.51, 4: 0.52}, 2, given=False, elbow=True)[0]
    (told,) = choice_notes.index_notes({2: 0.5, 3: math.inf, 4: 0.9}, 2, given=False, elbow=False)
    assert told == "The index is infinite at K = 3: centres coincide."
    (told,) = choice_notes.index_notes({2: -321.0, 3: -math.inf, 4: -math.inf}, 3, given=False, elbow=False)
    assert told == "The index is infinite at K = 3, 4: every row equals its centre."
    (told,) = choice_notes.index_notes({2: 0.9, 3: 0.5}, 3, given=True, elbow=False)
    assert told.startswith("The choice is the largest candidate K")
    assert choice_notes.index_notes({2: 0.9, 3: 0.5, 4: 0.7}, 3, given=True, elbow=False) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"criterion": "bic"}, "criterion is 'bic'; choose one of evidence, index"),
        ({"rule": "max"}, "'rule' is 'max'"),
        ({"index": "dunn"}, "'index' is 'dunn'; choose one of"),
        ({"restarts": 0}, "restarts is 0"),
        ({"stability": "yes"}, "'stability' is 'yes'"),
        ({"ks": []}, "at least 1"),
        ({"ks": [0, 2]}, "at least 1"),
        ({"restarts": 2}, "only criterion='index' fits every K several times"),
        ({"stability": "sites"}, "only criterion='index' compares fits"),
        ({"ks": [1], "criterion": "index"}, "an index needs at least two clusters"),
    ],
)
def test_a_senseless_question_is_named(options, sentence):
    with pytest.raises(fc.StudyError, match=sentence):
        fc.select_k(fc.KMeans(), groups(), **options)


def test_rows_with_gaps_may_be_dropped_for_the_choice_as_for_the_fit():
    X = groups(7, rows=150)
    X[::10, 0] = np.nan
    found = fc.select_k(fc.KMeans(missing="drop"), X, range(1, 6))
    whole = fc.select_k(fc.KMeans(), X[~np.isnan(X[:, 0])], range(1, 6))
    assert found.k == 3
    assert found.scores == whole.scores


def test_leaving_sites_out_is_refused_where_sums_are_masked():
    fed = fc.Federation.local(dealt(groups(6, rows=90), 4), aggregation="secure")
    with pytest.raises(
        fc.StudyError,
        match="stability='sites' would reveal each site's sums; set aggregation to 'plain'",
    ):
        fc.select_k(fc.KMeans(), fed, [3], criterion="index", stability="sites")
    assert all(not counted["messages"] for counted in fed.traffic().values())


@pytest.mark.parametrize("ks", [3, 2.0, "2..4", [2.7, 3], ["2"], [None], [True, 2]])
def test_candidates_that_are_no_whole_numbers_are_refused(ks):
    with pytest.raises(fc.StudyError, match="give whole numbers of at least 1, such as"):
        fc.select_k(fc.KMeans(), groups(), ks)


@pytest.mark.parametrize("estimator", [KMeans, fc.KMeans, "KMeans", fc.FCAC(), fc.SummaryClustering()])
def test_what_has_no_number_of_clusters_is_refused(estimator):
    with pytest.raises(fc.StudyError, match="has no number of clusters to choose"):
        fc.select_k(estimator, groups())


@pytest.mark.parametrize("criterion", ["evidence", "index"])
def test_a_choice_over_rows_that_were_all_dropped_is_refused(criterion):
    X = groups(rows=40)
    X[:, 1] = np.nan
    with pytest.raises(fc.DataError, match="n_samples=0: every row has a missing value and was dropped"):
        fc.select_k(fc.KMeans(missing="drop", scale="standardise"), X, criterion=criterion)


# Rows of which few differ


def chosen(X, ks=None):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fc.select_k(fc.KMeans(), X, ks)


@pytest.mark.parametrize("seed", range(6))
def test_yes_and_no_in_two_columns_are_four_clusters_or_none(seed):
    found = chosen(np.random.default_rng(seed).integers(0, 2, size=(200, 2)).astype(float))
    assert found.k in {1, 4}


def test_answers_from_one_to_five_at_random_have_no_structure():
    assert chosen(np.random.default_rng(0).integers(1, 6, size=(150, 3)).astype(float)).k == 1


def test_answers_from_one_to_five_of_two_opinions_are_two_clusters():
    rng = np.random.default_rng(0)
    opinions = np.where(rng.random((200, 1)) < 0.5, 1, 4) + rng.integers(0, 2, size=(200, 6))
    assert chosen(opinions.astype(float)).k == 2


@pytest.mark.parametrize(
    ("points", "ks"),
    [
        ([[0.13, -0.13], [5.3, 6.1]], {1, 2}),
        ([[0.0, 0.0], [1.0, 1.0]], {1, 2}),
        ([[0.1, -0.1], [5.3, 6.1], [-4.1, 7.7]], {1, 3}),
        ([[0.3, 0.7]], {1}),
    ],
)
def test_rows_that_repeat_a_few_points_are_as_many_clusters_or_none(points, ks):
    assert chosen(np.repeat(points, 20, axis=0)).k in ks


def test_more_clusters_than_rows_are_left_out():
    X = np.random.default_rng(0).normal(size=(6, 2))
    found = chosen(X, [2, 10])
    assert found.range == (2, 2)
    assert found.notes[0] == "The table has only 6 rows, so K = 10 was not tried."
    with pytest.raises(fc.DataError, match="n_samples=6 is fewer than n_clusters=7"):
        chosen(X, [7, 10])


# Columns that have nothing to do with the clusters


def beside(seed, more=1):
    """Three Gaussians in two columns beside columns that know nothing of them."""
    rng = np.random.default_rng(seed)
    X = np.repeat([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]], 100, axis=0) + rng.normal(size=(300, 2))
    return np.column_stack([X, rng.normal(size=(300, more))])


@pytest.mark.parametrize("seed", [2, 5, 6, 11])
def test_an_irrelevant_column_hides_no_clusters(seed):
    found = fc.select_k(fc.KMeans(scale="standardise"), beside(seed), range(1, 6))
    assert (found.k, found.notes) == (3, [])


@pytest.mark.parametrize("criterion", ["evidence", "index"])
@pytest.mark.parametrize(
    "state", [None, np.int64(3), np.random.RandomState(0), np.random.default_rng(0), np.random], ids=str
)
def test_every_random_state_of_scikit_learn_is_taken(state, criterion):
    rows = np.repeat(np.eye(2) * 20, 20, axis=0) + np.random.default_rng(0).normal(size=(40, 2))
    restarts = 2 if criterion == "index" else None
    found = fc.select_k(fc.KMeans(random_state=state), rows, [2, 3], criterion=criterion, restarts=restarts)
    assert found.k == 2


def test_a_choice_that_is_the_largest_candidate_needs_no_larger_ones_by_evidence():
    rows = np.repeat([[0.0], [20.0], [50.0]], 50, axis=0) + np.random.default_rng(0).normal(size=(150, 1))
    found = fc.select_k(fc.KMeans(), rows, {2, 3})
    assert (found.k, found.range, found.certainty, found.notes) == (3, (2, 3), "clear", [])


def test_given_centres_leave_no_k_to_choose():
    with pytest.raises(fc.StudyError, match="init gives centres for one K"):
        fc.select_k(fc.KMeans(init=np.zeros((8, 2))), np.random.default_rng(0).normal(size=(90, 2)))


@pytest.mark.parametrize("sites", [1, 2])
def test_a_column_without_values_is_named_before_the_choice(sites):
    rows = np.random.default_rng(0).normal(size=(60, 3))
    rows[:, 1] = np.nan
    fed = fc.Federation.local({f"s{i}": own for i, own in enumerate(np.array_split(rows, sites))})
    with pytest.raises(fc.DataError, match="column 'x1' has no value at any site"):
        fc.select_k(fc.KMeans(missing="partial"), fed)


def test_two_values_in_a_single_column_are_a_category():
    found = fc.select_k(fc.KMeans(), np.repeat([[0.0], [100.0]], 50, axis=0))
    assert (found.k, found.certainty) == (1, "unsure")
    assert "counts as a category" in found.reason


@pytest.mark.parametrize("seed", [8, 32, 39])
def test_one_skewed_column_has_no_shape(seed):
    found = fc.select_k(fc.KMeans(), np.random.default_rng(seed).exponential(size=(300, 1)))
    assert found.verdict == "none"
