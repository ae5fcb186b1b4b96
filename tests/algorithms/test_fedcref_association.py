"""Which clusters belong together, computed by hand on small tables."""

import numpy as np
import pytest

from fedclust.algorithms.fedcref import association, refining

# Site b holds rows 0, 1 in cluster 0 and rows 2, 3 in cluster 1; site a has two models.
ERRORS = {
    "a": np.array([[2.0, 4.0, 6.0, 6.0], [6.0, 6.0, 0.5, 0.9]], np.float32),
    "b": np.array([[1.0, 1.0, 5.0, 5.0], [3.0, 3.0, 1.0, 1.0]], np.float32),
}
LABELS = np.array([0, 0, 1, 1])


def test_a_model_wins_rows_that_it_reconstructs_better_than_the_other_own_models():
    found = association.win_shares(ERRORS, LABELS, "b", near=False)
    assert found["a"].tolist() == [[0.5, 0.0], [0.0, 1.0]]  # 2 < 3 but 4 > 3; .5 and .9 < 5
    assert np.diag(found["b"]).tolist() == [1.0, 1.0]


def test_by_default_it_must_come_nearer_to_the_own_model_than_to_the_rival():
    found = association.win_shares(ERRORS, LABELS, "b")
    assert found["a"].tolist() == [[0.0, 0.0], [0.0, 1.0]]  # 2 and 4 > sqrt(1 * 3); .5 and .9 < sqrt(1 * 5)
    assert np.diag(found["b"]).tolist() == [1.0, 1.0]


def test_a_site_of_one_cluster_measures_against_models_known_to_be_others():
    errors = {"a": ERRORS["a"], "b": ERRORS["b"][:1], "c": np.array([[0.5, 7.0, 7.0, 0.5]], np.float32)}
    labels = np.zeros(4, np.int64)
    # a's second model is the better on average (3.35 against 4.5), so its first is known to be another cluster's: the
    # bar is 2, 4, 6, 6, or near its root with the own error, sqrt(2), sqrt(4), sqrt(30), sqrt(30).
    assert association.win_shares(errors, labels, "b", near=False)["a"].tolist() == [[0.0], [0.5]]
    assert association.win_shares(errors, labels, "b", near=False)["c"].tolist() == [
        [0.5]
    ]  # .5 < 2, 7 > 4, 7 > 6, .5 < 6
    assert association.win_shares(errors, labels, "b")["c"].tolist() == [[0.5]]


def test_where_every_site_has_one_cluster_a_model_must_come_near_the_own():
    errors = {"a": ERRORS["a"][:1], "b": ERRORS["b"][:1]}
    assert association.win_shares(errors, np.zeros(4, np.int64), "b")["a"].tolist() == [
        [0.5]
    ]  # 2 > 1.5, 4 > 1.5; 6 < 7.5 twice


def test_an_empty_cluster_wins_and_loses_nothing():
    found = association.win_shares(ERRORS, np.zeros(4, np.int64), "b")
    assert found["a"][:, 1].tolist() == [0.0, 0.0]
    assert association.error_gaps(ERRORS, np.zeros(4, np.int64), "b")["a"][:, 1].tolist() == [1.0, 1.0]


def test_gaps_are_percentiles_of_scaled_differences():
    errors = {"a": np.array([[1.0, 2.0, 3.0, 5.0, 9.0]]), "b": np.ones((1, 5))}
    # Differences 0 1 2 4 8, scaled 0 1/8 1/4 1/2 1; of five the 75th percentile is the fourth.
    assert association.error_gaps(errors, np.zeros(5, np.int64), "b")["a"].tolist() == [[0.5]]


def test_the_paper_links_both_ways_or_not_at_all_and_takes_components():
    P = np.array([[0.0, 0.9, 0.1, 0.9], [0.9, 0.0, 0.9, 0.1], [0.1, 0.9, 0.0, 0.9], [0.9, 0.5, 0.9, 0.0]])
    assert association.link_by_percentile(P, np.array([0, 0, 1, 1])).tolist() == [0, -1, 0, -1]
    P[3, 1] = 0.19
    assert association.link_by_percentile(P, np.array([0, 0, 1, 1])).tolist() == [0, 1, 0, 1]


def test_communities_never_hold_two_clusters_of_one_site():
    rng = np.random.default_rng(0)
    for _ in range(20):
        owner = np.sort(rng.integers(5, size=15))
        found = association.find_communities(rng.random((15, 15)), owner)
        for one in range(found.max() + 1):
            assert len(set(owner[found == one])) == (found == one).sum() >= 2


def test_the_cut_needs_no_threshold():
    truth = np.array([0, 1, 0, 1, 2, 1, 2, 3])
    owner = np.array([0, 0, 1, 1, 1, 2, 2, 3])
    W = np.where(truth[:, None] == truth, 0.6, 0.2)
    assert association.find_communities(W, owner).tolist() == [0, 1, 0, 1, 2, 1, 2, -1]


def test_a_cluster_that_its_community_fits_badly_is_let_go_and_so_is_who_is_left_alone():
    labels = np.array([0, 1, 0, 1, 0])
    V = np.where(labels[:, None] == labels, 0.8, 0.0)
    assert association.drop_misfits(V, labels).tolist() == labels.tolist()
    V[3, 1] = 0.2  # one way is enough: 1 and 3 lie .8 apart, usual is .2, the bar .6
    assert association.drop_misfits(V, labels).tolist() == [0, -1, 0, -1, 0]
    assert association.drop_misfits(V, np.full(5, -1)).tolist() == [-1] * 5


def test_where_nothing_fits_well_nobody_is_let_go():
    labels = np.array([0, 1, 0, 1, 0])
    V = np.where(labels[:, None] == labels, 0.3, 0.0)
    V[3, 1] = 0.2  # .8 where .7 is usual: the bar is .85
    assert association.drop_misfits(V, labels).tolist() == labels.tolist()


def test_clusters_that_nothing_joins_stay_isolated():
    assert association.find_communities(np.eye(4), np.array([0, 0, 1, 1])).tolist() == [-1] * 4
    assert association.find_communities(np.zeros((1, 1)), np.array([0])).tolist() == [-1]


def test_two_sites_of_one_and_the_same_cluster_are_joined():
    W = np.array([[1.0, 0.9], [0.8, 1.0]])
    assert association.find_communities(W, np.array([0, 1])).tolist() == [0, 0]


def test_tables_of_all_sites_make_one_square():
    tables = {"a": {"a": np.eye(2), "b": np.array([[0.1, 0.2]])}, "b": {"a": np.array([[0.3], [0.4]]), "b": np.eye(1)}}
    W, owner = association.join_tables(tables, ("a", "b"))
    assert W.tolist() == [[1, 0, 0.3], [0, 1, 0.4], [0.1, 0.2, 1]]
    assert owner.tolist() == [0, 0, 1]


def test_a_model_with_many_votes_gives_way_to_one_that_serves_all_rows_better():
    # By votes 1 (three rows), then 0; row 4 would cost log 8. Model 2 for 0 costs log 4 in row 3 and nothing in row 4.
    errors = np.array([[5, 5, 5, 1, 9], [1, 1, 1, 5, 8], [4, 4, 4, 4, 1]])
    picked, labels = refining.pick_models(errors, 2)
    assert picked.tolist() == [1, 2]
    assert labels.tolist() == [0, 0, 0, 1, 1]


def test_rows_between_two_models_do_not_train():
    # Own over next best: .5, .9, .1 in cluster 0 and 1/3, 1 in cluster 1; medians .5 and 2/3.
    errors = np.array([[1, 0.9, 0.1, 6, 2], [2, 1, 1, 2, 2]])
    assert refining.clear_rows(errors, np.array([0, 0, 0, 1, 1]), 0.5).tolist() == [True, False, True, True, False]
    assert refining.clear_rows(errors, np.array([0, 0, 0, 1, 1]), 1.0).all()
    assert refining.clear_rows(errors[:1], np.zeros(5, np.int64), 0.5).all()  # one cluster: nothing to doubt


def test_leftovers_go_to_the_best_of_the_models_picked_under_its_own_number():
    # Model 1 is best for rows 0-2, model 0 for row 3, model 2 for row 4; two clusters: 1 first, then 0 (the first of
    # equals); row 4 is left, and of 1 and 0 model 1 is better. Model 2 for 0 would cost log 4 + log 7, not log 8.
    errors = np.array([[5, 5, 5, 1, 9], [1, 1, 1, 5, 8], [4, 4, 4, 4, 7]])
    picked, labels = refining.pick_models(errors, 2)
    assert picked.tolist() == [1, 0]
    assert labels.tolist() == [0, 0, 0, 1, 0]


def test_a_cluster_that_nobody_is_left_for_is_dropped():
    picked, labels = refining.pick_models(np.array([[1, 1, 1], [2, 2, 2], [3, 3, 3]]), 3)
    assert picked.tolist() == [0]
    assert labels.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("history", "stop"),
    [
        ([(10, 5)], False),
        ([(9, 5), (10, 5), (10, 5)], True),  # a change of 1 in 10
        ([(8, 5), (10, 5), (10, 5)], False),
        ([(1, 90), (10, 0), (10, 0), (10, 0)], True),
    ],
)
def test_the_system_has_settled_when_nothing_changes_by_more_than_a_tenth(history, stop):
    assert refining.has_settled(history) == stop
