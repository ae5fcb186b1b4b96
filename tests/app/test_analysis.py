"""Runs described: by hand where numbers are small, the same for every partition, honest about what is missing."""

import json

import numpy as np
import pytest

import fedclust as fc
from fedclust.app.analysis import describe
from fedclust.app.analysis.hidden_counts import hide_derivable_counts
from fedclust.app.analysis.k_curve import describe_choice
from fedclust.app.choose_k import Selection
from fedclust.core.effects import HANDLERS
from fedclust.site.policy import Policy

RNG = np.random.default_rng(8)
X = RNG.normal(size=(90, 3)) + np.repeat([[0, 0, 0], [9, 0, 3], [0, 9, 3]], 30, axis=0)
START = X[[0, 40, 70]]


def described(sites, model=None, **options):
    fed = fc.Federation.local(sites, columns=["age", "chol", "thalach"], **options)
    return describe((model or fc.FuzzyCMeans(3, init=START)).fit(fed), fed)


def test_a_small_case_by_hand():
    fed = fc.Federation.local({"a": np.array([[0.0], [2.0], [10.0]]), "b": np.array([[12.0]])}, columns=["age"])
    found = describe(fc.KMeans(2, init=[[0.0], [9.0]]).fit(fed), fed)
    assert found["sizes"] == {"rows": [2, 2], "weights": None}
    assert found["composition"] == {"sites": {"a": [2, 1], "b": [0, 1]}}
    assert found["profiles"]["mean"] == [6.0]
    assert found["profiles"]["sd"] == pytest.approx([26**0.5])
    assert found["profiles"]["standardised"] == [pytest.approx([-5 / 26**0.5]), pytest.approx([5 / 26**0.5])]
    assert found["map"]["centers"] == [pytest.approx([-5, 0]), pytest.approx([5, 0])]
    assert found["map"]["covariances"][0] == [pytest.approx([1, 0]), pytest.approx([0, 0])]
    assert found["indices"]["davies-bouldin"] == {"value": 0.2, "best": "min"}
    assert "hard" in found["fuzziness"]["absent"]


def test_a_description_is_json_and_knows_its_version():
    found = described({"a": X[:50], "b": X[50:]})
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["format"], found["version"]) == ("fedclust-analysis", 1)


def test_every_partition_is_described_alike():
    own = ("composition", "left", "parties")
    pooled = {k: v for k, v in described({"all": X}).items() if k not in own}
    order = RNG.permutation(90)
    parts = dict(zip("abc", np.split(X[order], [7, 50]), strict=True))
    assert {k: v for k, v in described(parts).items() if k not in own} == pooled


def test_what_left_is_what_the_ledgers_hold():
    fed = fc.Federation.local({"a": X[:50], "b": X[50:]}, policy={"a": Policy("own", min_rows=5), "b": "none"})
    found = describe(fc.KMeans(3, init=START).fit(fed), fed)["left"]
    for party, own in fed.traffic().items():
        assert {name: found["sites"][party][name] for name in own} == own
        assert sum(question["bytes"][party] for question in found["questions"]) == own["bytes"]
    assert found["sites"]["a"]["policy"] == "own"
    names = {question["name"]: question for question in found["questions"]}
    assert names["composition.composition"]["fields"][0]["leaves"] == "each"
    assert all(field["why"] for question in names.values() for field in question["fields"])


def test_units_are_told_where_they_were_declared():
    fed = fc.Federation.local({"a": X}, columns={"age": fc.Column(unit="years"), "b": fc.Column(), "c": fc.Column()})
    found = describe(fc.KMeans(3, init=START).fit(fed), fed)
    assert found["columns"][0] == {"name": "age", "type": "number", "unit": "years"}


def test_small_counts_stay_hidden_beside_the_totals():
    rows = {"a": np.r_[X[:30], X[30:32]], "b": X[30:60], "c": X[60:]}
    names = ["age", "chol", "thalach"]
    model = fc.KMeans(3, init=START).fit(fc.Federation.local(rows, columns=names))
    # A sum over too few rows would keep the site out of the whole run, so nothing that holds one is asked.
    asked = frozenset(n for n in HANDLERS if not n.startswith(("pca", "cluster_indices")))
    rules = Policy("own", min_cell=5, handlers=asked)
    found = describe(model, fc.Federation.local(rows, columns=names, policy=rules))
    cells = found["composition"]["sites"]
    assert None in cells["a"]
    for cluster in range(3):
        assert sum(own[cluster] is None for own in cells.values()) != 1


@pytest.mark.parametrize("seed", range(20))
def test_no_total_tells_a_hidden_count(seed):
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 30, (5, 4))
    hidden = (cells > 0) & (cells < 6)
    table = {
        f"s{i}": [None if h else int(n) for n, h in zip(*row, strict=True)]
        for i, row in enumerate(zip(cells, hidden, strict=True))
    }
    found = np.array([[n is None for n in own] for own in hide_derivable_counts(table).values()])
    assert (found >= hidden).all()
    assert (found.sum(axis=0) != 1).all()
    assert (found.sum(axis=1) != 1).all()


def test_a_question_that_a_site_does_not_allow_leaves_a_gap_with_a_reason():
    rules = Policy("own", handlers=frozenset(n for n in HANDLERS if not n.startswith(("pca", "composition"))))
    found = described({"a": X[:50], "b": X[50:]}, policy={"a": rules, "b": "none"})
    for part in ("map", "sizes", "composition"):
        assert found[part]["absent"].startswith("Sites did not answer (a: its policy does not allow this question; ")
    assert "value" in found["indices"]["xie-beni"]


def test_sites_that_allow_the_fit_alone_get_a_description_of_the_centres():
    rules = Policy("own", handlers=frozenset({"bounds.count_rows", "row_split.moments"}))
    found = described({"a": X[:50], "b": X[50:]}, fc.FuzzyCMeans(3, init=START, bounds=(-9, 29)), policy=rules)
    assert found["profiles"]["against"] == "centres"
    assert "does not allow this question" in found["map"]["absent"]
    assert found["map"] == found["sizes"] == found["indices"] == found["composition"] == found["fuzziness"]


def test_a_column_split_says_what_it_cannot_show():
    fed = fc.Federation.local({"clinic": X[:, :2], "laboratory": X[:, 2:]}, split="columns")
    found = describe(fc.FuzzyCMeans(3).fit(fed), fed)
    assert "no map over all columns" in found["map"]["absent"]
    assert "there are no counts by site" in found["composition"]["absent"]
    assert sum(found["sizes"]["rows"]) == 90
    assert found["profiles"]["against"] == "centres"
    assert found["fuzziness"]["coefficient"] > 0.5


def test_gaps_are_described_by_the_values_there_are():
    gapped = X.copy()
    gapped[RNG.random(X.shape) < 0.1] = np.nan
    found = described({"a": gapped[:40], "b": gapped[40:]}, fc.FuzzyCMeans(3, missing="partial"))
    assert sum(found["sizes"]["rows"]) == (~np.isnan(gapped).all(axis=1)).sum()
    assert "davies-bouldin" not in found["indices"]
    assert any("took part with partial distances" in note for note in found["notes"])


@pytest.mark.parametrize("model", [fc.GaussianMixture(3), fc.AveragedFuzzyCMeans(3), fc.KMeans(1)], ids=repr)
def test_every_method_can_be_described(model):
    found = described({"a": X[:50], "b": X[50:]}, model)
    json.dumps(found, allow_nan=False)
    assert sum(found["sizes"]["rows"]) == 90
    assert found["lossless"] == getattr(model, "lossless", True)


def test_the_reason_says_what_the_rows_show():
    scores = [{"k": n, "family": "round", "evidence": -10.0 * n, "chosen": n == 1} for n in (1, 2, 3)]
    found = Selection(1, None, scores, (1, 3), "evidence", None, [], "none", "clear", "Clear: so.")
    described = describe_choice(found)
    assert described["why"] == "K = 1: the rows show no groups. Clear: so."
    assert (described["verdict"], described["certainty"], described["best"]) == ("none", "clear", "max")
    assert described["curve"] == [{"k": 1, "value": -10.0}, {"k": 2, "value": -20.0}, {"k": 3, "value": -30.0}]


def test_an_elbow_and_the_highest_value_are_named():
    rows = [
        {"k": n, "index": "calinski-harabasz", "value": v, "objective": 1.0} for n, v in ((2, 5.0), (3, 9.0), (4, 7.0))
    ]
    best = describe_choice(Selection(3, None, rows, (2, 4), "index", 0.5, []))
    assert best["why"].startswith("K = 3 has the highest Calinski-Harabasz index")
    assert "bends most" in describe_choice(Selection(4, None, rows, (2, 4), "index", None, []))["why"]
