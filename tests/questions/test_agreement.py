"""Agreement by hand, against scikit-learn on pooled labels, and from a table that is summed over parties."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, normalized_mutual_info_score

import fedclust as fc
from fedclust.app import agreement
from fedclust.questions.label_agreement import expected_information, mutual_information

THEIRS = {
    agreement.ari: adjusted_rand_score,
    agreement.ami: adjusted_mutual_info_score,
    agreement.nmi: normalized_mutual_info_score,
}


def labelled(seed, rows=None):
    """Two labellings that agree somewhat."""
    rng = np.random.default_rng(seed)
    rows = rows or int(rng.integers(2, 400))
    truth = rng.integers(int(rng.integers(1, 8)), size=rows)
    labels = np.where(rng.random(rows) < rng.random(), truth, rng.integers(int(rng.integers(1, 9)), size=rows))
    return labels, truth


@pytest.mark.parametrize("seed", range(40))
def test_scikit_learn_agrees(seed):
    labels, truth = labelled(seed)
    for ours, theirs in THEIRS.items():
        assert ours(labels, truth) == pytest.approx(theirs(truth, labels), abs=1e-12)


def test_the_adjusted_rand_index_by_hand():
    # Pairs together in both 1, in labels 2, in the truth 3, of 6: (1 - 2 3 / 6) / ((2 + 3) / 2 - 2 3 / 6) = 0.
    assert agreement.ari([0, 0, 1, 1], [0, 0, 0, 1]) == 0
    # 3 pairs in both, 4 in labels, 3 in the truth, of 10.
    assert agreement.ari([0, 0, 0, 1, 1], ["a", "a", "a", "b", "c"]) == pytest.approx(
        (3 - 1.2) / (3.5 - 1.2), abs=1e-15
    )


def test_mutual_information_by_hand():
    table = np.array([[2, 0], [1, 1]])
    expected = 0.5 * np.log(0.5 / (0.5 * 0.75)) + 0.25 * np.log(0.25 / (0.5 * 0.75)) + 0.25 * np.log(0.25 / 0.125)
    assert mutual_information(table) == pytest.approx(expected, abs=1e-15)
    # Of 4 rows 2 are drawn, and 3 bear the first mark: 1 or 2 of them are marked, with chances 1/2 each.
    marked = (0.5 * 0.25 * np.log(4 / 6) + 0.5 * 0.5 * np.log(8 / 6)) * 2
    unmarked = 0.5 * 0.25 * np.log(4 / 2) * 2
    assert expected_information(np.array([2, 2]), np.array([3, 1])) == pytest.approx(marked + unmarked, abs=1e-15)
    mean = (np.log(2) - 0.75 * np.log(0.75) - 0.25 * np.log(0.25)) / 2
    assert agreement.nmi(table) == pytest.approx(expected / mean, abs=1e-15)
    chance = marked + unmarked
    assert agreement.ami(table) == pytest.approx((expected - chance) / (mean - chance), abs=1e-14)


def test_accuracy_names_clusters_for_the_best():
    assert agreement.accuracy(["x", "x", "y", "y", "z"], [1, 1, 0, 1, 0]) == 3 / 5
    assert agreement.accuracy(np.array([[0, 5], [4, 1]])) == 0.9


@pytest.mark.parametrize("index", [*THEIRS, agreement.accuracy])
def test_the_same_clusters_under_other_names_agree_wholly(index):
    labels, _ = labelled(3, 90)
    assert index(labels, np.array(list("hgfedcbaz"))[labels]) == pytest.approx(1, abs=1e-12)
    assert index([0, 0], ["a", "a"]) == 1


@pytest.mark.parametrize("bad", [([[0.5, 1.0]],), ([1, 2],), (np.zeros((2, 2), int),), ([0, 1], [0]), ([], [])])
def test_what_is_no_table_is_refused(bad):
    with pytest.raises(fc.DataError):
        agreement.ari(*bad)


def parts(rng, *arrays):
    cuts = np.sort(rng.choice(np.arange(1, len(arrays[0])), 6, replace=False))
    return [{f"p{i}": part for i, part in enumerate(np.split(array, cuts))} for array in arrays]


@pytest.mark.parametrize("seed", range(6))
def test_a_table_over_parties_is_the_pooled_one(seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=120)
    X = rng.normal(size=(120, 2)) + 2.5 * np.eye(3)[y][:, :2]
    names = np.array(["low", "mid", "high"])[y]
    sites, truth = parts(rng, X, names)
    for kind in (fc.KMeans, fc.FuzzyCMeans):
        fed = fc.Federation.local(sites, wire=bool(seed % 2))
        model = kind(4, scale=["none", "standardise"][seed % 2]).fit(fed)
        table = agreement.contingency(model, fed, truth)
        assert table.tolist() == agreement.contingency_table(model.labels_, names, clusters=4).tolist()
        assert table.sum() == 120
        for ours, theirs in THEIRS.items():
            assert ours(table) == pytest.approx(theirs(names, model.labels_), abs=1e-12)


def test_the_truth_does_not_stay_at_the_sites():
    X = np.arange(8.0)[:, None]
    fed = fc.Federation.local({"a": X[:4], "b": X[4:]})
    model = fc.KMeans(2).fit(fed)
    agreement.contingency(model, fed, {"a": [0] * 4, "b": [1] * 4})
    assert len(fed.local_sites) == 2
    assert not any("truth" in desk.memory[fed.run_id] for desk in fed.local_sites.values())


def test_a_table_over_columns():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.integers(2, size=40)
    fed = fc.Federation.local({"a": X[:, :1], "b": X[:, 1:]}, split="columns")
    model = fc.KMeans(3).fit(fed)
    assert agreement.contingency(model, fed, y).tolist() == agreement.contingency_table(model.labels_, y).tolist()


def test_dropped_rows_have_no_truth_and_gaps_are_looked_over():
    X = np.array([[0.0, 0.0], [1.0, np.nan], [8.0, 8.0], [9.0, 9.0]])
    fed = fc.Federation.local({"a": X})
    start = [[0.0, 0.0], [9.0, 9.0]]
    dropped = fc.KMeans(2, init=start, missing="drop").fit(fed)
    assert agreement.contingency(dropped, fed, {"a": [0, 1, 1]}).tolist() == [[1, 0], [0, 2]]
    partial = fc.KMeans(2, init=start, missing="partial").fit(fed)
    assert agreement.contingency(partial, fed, {"a": [0, 0, 1, 1]}).tolist() == [[2, 0], [0, 2]]


@pytest.mark.parametrize(
    ("truth", "sentence"),
    [
        ({"a": [0, 1]}, "must map each site to the classes of its rows; the sites are a, b"),
        ([0, 1, 0, 1], "must map each site to the classes of its rows; the sites are a, b"),
        ({"a": [0, 1, 1], "b": [0, 1]}, "2 rows of site 'a' can take part, but 3 true classes were given"),
    ],
)
def test_a_truth_that_does_not_fit_is_refused(truth, sentence):
    fed = fc.Federation.local({"a": np.eye(2), "b": 5 + np.eye(2)})
    with pytest.raises(fc.DataError, match=sentence):
        agreement.contingency(fc.KMeans(2).fit(fed), fed, truth)


def test_displacement_by_hand():
    A = [[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]]
    B = [[0.0, 12.0], [1.0, 0.0], [10.0, 2.0]]
    assert agreement.displacement(A, B) == pytest.approx((4 + 1 + 4) ** 0.5, abs=1e-15)
    with pytest.raises(fc.StudyError, match="cannot be matched"):
        agreement.displacement(A, B[:2])


def test_the_knowledge_gap_by_hand_and_from_a_federation():
    X = np.array([[0.0, 0.0], [4.0, 2.0], [0.0, 2.0], [4.0, 0.0]])  # variances 4 and 1
    fed = fc.Federation.local({"a": X[:1], "b": X[1:]})
    centers, truth = [[3.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [3.0, 2.0]]
    expected = 2 + 1  # crossed: (0, 2 / 1) and (0, 1 / 1); straight: 3 / 2 and sqrt(9 / 4 + 1) are more
    assert agreement.knowledge_gap(centers, truth, [4.0, 1.0]) == pytest.approx(expected, abs=1e-15)
    assert agreement.knowledge_gap(centers, truth, fed) == pytest.approx(expected, abs=1e-15)
    with pytest.raises(fc.StudyError, match="without variance"):
        agreement.knowledge_gap(centers, truth, [4.0, 0.0])


def matched_by_id():
    """Rows of two sites, in two orders; those with ids from 5 on are far away."""
    who = np.arange(10)
    near = np.where(who < 5, 0.0, 50.0) + who / 10
    mixed, turned = np.random.default_rng(0).permutation(10), who[::-1]
    sites = {
        "p": pd.DataFrame({"who": mixed, "a": near[mixed]}),
        "q": pd.DataFrame({"who": turned, "b": -near[turned]}),
    }
    return fc.Federation.local(sites, split="columns", id="who"), mixed


def test_labels_of_rows_matched_by_id_are_in_the_order_of_ids():
    fed, _ = matched_by_id()
    model = fc.KMeans(2, init=[[0.0, 0.0], [50.0, -50.0]]).fit(fed)
    assert fed.ids == model.ids_ == list(range(10))
    assert model.labels_.tolist() == model.predict(fed).tolist() == [0] * 5 + [1] * 5


@pytest.mark.parametrize("kind", [int, str])
def test_a_truth_by_id_needs_no_order(kind):
    fed, mixed = matched_by_id()
    model = fc.KMeans(2, init=[[0.0, 0.0], [50.0, -50.0]]).fit(fed)
    truth = {kind(who): "far" if who >= 5 else "near" for who in mixed}
    assert agreement.contingency(model, fed, truth).tolist() == [[0, 5], [5, 0]]


def test_a_truth_by_id_must_know_every_row():
    fed, _ = matched_by_id()
    model = fc.KMeans(2).fit(fed)
    with pytest.raises(fc.DataError, match="gives no class for 7 rows"):
        agreement.contingency(model, fed, {0: 1, 1: 1, 2: 0})
    X = np.arange(8.0).reshape(4, 2)
    nameless = fc.Federation.local({"p": X[:, :1], "q": X[:, 1:]}, split="columns")
    with pytest.raises(fc.DataError, match="rows have no ids"):
        agreement.contingency(fc.KMeans(2).fit(nameless), nameless, {0: 1})
