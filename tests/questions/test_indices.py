"""Indices by hand, against scikit-learn, and the same bits for every partition of rows or columns."""

import math
from decimal import Decimal
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score

import fedclust as fc
from fedclust import kernels
from fedclust.app import indices
from fedclust.core.effects import run_on_own_rows
from fedclust.core.site_interface import View
from fedclust.questions import cluster_indices as scripts
from fedclust.questions import index_formulas, index_terms
from fedclust.site.site_data import HandlerContext, SiteData
from fedclust.site.sources import open_source

ROWS = [[1.0], [4.0]]  # distances 1, 3 and 4, 0 to the centres 0 and 4: memberships .9, .1 and 0, 1 at m = 2


def alone_on(X, centers, m, names, exponents=(4,), **powers):
    site = HandlerContext(SiteData("p", open_source(np.asarray(X, float), site="p")), (0, 1), {})
    view = View(np.array(exponents, np.int32))
    return run_on_own_rows(scripts.compute_indices(view, np.asarray(centers, float), m, names, **powers), site)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fuzzy-davies-bouldin", ((0.9 + 0) / 2 * (1 + 4) / 2 + (0.1 + 1) / 2 * (3 + 0) / 2) / 4),
        ("xie-beni", (0.81 * 1 + 0.01 * 9) / (2 * 16)),
        ("simplified-silhouette", (2 / 3 + 1) / 2),
        ("partition-coefficient", (0.81 + 0.01 + 0 + 1) / 2),
        ("partition-entropy", -(0.9 * math.log(0.9) + 0.1 * math.log(0.1)) / 2),
        ("davies-bouldin", 0.0),  # a label of one row has no spread
    ],
)
def test_fuzzy_indices_by_hand(name, expected):
    assert alone_on(ROWS, [[0.0], [4.0]], 2.0, [name]) == {name: pytest.approx(expected, abs=1e-15)}


def test_powers_of_the_fuzzy_index_by_hand():
    X, centers = [[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0], [3.0, 4.0]]  # each row on a centre, 5 from the other
    spread = 0.5 * math.sqrt(25 / 2)  # q = 2
    name = "fuzzy-davies-bouldin"
    assert alone_on(X, centers, 2.0, [name], (3, 3), q=2.0)[name] == pytest.approx(2 * spread / 5, abs=1e-15)
    assert alone_on(X, centers, 2.0, [name], (3, 3), p=1.0)[name] == pytest.approx(2 * 0.5 * 2.5 / 7, abs=1e-15)
    cubic = 2 * 0.5 * (125 / 2) ** (1 / 3) / (27 + 64) ** (1 / 3)
    assert alone_on(X, centers, 2.0, [name], (3, 3), p=3.0, q=3.0)[name] == pytest.approx(cubic, abs=1e-14)


def test_hard_indices_by_hand():
    X, centers = [[0.0], [2.0], [10.0], [12.0], [14.0]], [[0.0], [11.0]]  # labels 0 0 1 1 1, means 1 and 12
    found = alone_on(X, centers, 1.0, scripts.BEST_DIRECTION)
    assert found["davies-bouldin"] == pytest.approx((1 + 4 / 3) / 11, abs=1e-15)
    between = 2 * (1 - 7.6) ** 2 + 3 * (12 - 7.6) ** 2
    assert found["calinski-harabasz"] == pytest.approx(between * 3 / (1 + 1 + 4 + 0 + 4), abs=1e-12)
    assert found["xie-beni"] == pytest.approx((0 + 4 + 1 + 1 + 9) / (5 * 121), abs=1e-15)
    assert found["fuzzy-davies-bouldin"] == pytest.approx((2 / 5 * 38 / 5 + 3 / 5 * (11 + 9 + 1 + 1 + 3) / 5) / 11)
    assert found["simplified-silhouette"] == pytest.approx((1 + 7 / 9 + 9 / 10 + 11 / 12 + 11 / 14) / 5)
    assert found["partition-coefficient"] == 1
    assert found["partition-entropy"] == 0


def test_the_worst_neighbour_counts():
    # Three centres on a line: the middle one is nearest to the last, whose spread is larger.
    apart = np.array([[0.0, 4.0, 7.0], [4.0, 0.0, 3.0], [7.0, 3.0, 0.0]])
    expected = (max(2 / 4, 4 / 7) + max(2 / 4, 4 / 3) + max(4 / 7, 4 / 3)) / 3
    assert index_formulas.davies_bouldin(np.array([1.0, 1.0, 3.0]), apart) == pytest.approx(expected, abs=1e-15)


def test_coincident_centres_are_the_worst_there_is():
    found = alone_on([[0.0], [1.0], [5.0]], [[0.0], [0.0], [5.0]], 2.0, scripts.BEST_DIRECTION)
    assert found["fuzzy-davies-bouldin"] == math.inf
    assert found["xie-beni"] == math.inf
    assert found["simplified-silhouette"] == pytest.approx(1 / 3)  # rows between two equal centres count 0
    assert math.isfinite(found["davies-bouldin"])  # the second centre has no label, and is left out


def test_a_label_without_rows_is_left_out_as_scikit_learn_would():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(20, 2)), rng.normal(size=(20, 2)) + 8])
    found = alone_on(X, [[0.0, 0.0], [-60.0, -60.0], [8.0, 8.0]], 1.0, scripts.CRISP_INDICES, (4, 4))
    labels = np.repeat([0, 1], 20)
    assert found["davies-bouldin"] == pytest.approx(davies_bouldin_score(X, labels), abs=1e-12)
    assert found["calinski-harabasz"] == pytest.approx(calinski_harabasz_score(X, labels), rel=1e-12)


def test_rows_on_their_means_leave_nothing_within():
    assert alone_on([[0.0], [4.0]], [[0.0], [4.0]], 1.0, ["calinski-harabasz"])["calinski-harabasz"] == math.inf


@pytest.mark.parametrize(
    ("centers", "names", "powers", "sentence"),
    [
        ([[0.0]], ["xie-beni"], {}, "at least two clusters"),
        ([[0.0], [90.0]], ["davies-bouldin"], {}, "at least two clusters with rows"),
        ([[0.0], [4.0]], ["dunn"], {}, "there is no index 'dunn'; choose one of fuzzy-davies-bouldin"),
        ([[0.0], [4.0]], ["fuzzy-davies-bouldin"], {"p": 0.5}, "between 1 and 8"),
        ([[0.0], [4.0]], ["fuzzy-davies-bouldin"], {"q": math.inf}, "between 1 and 8"),
    ],
)
def test_what_cannot_be_asked_is_said(centers, names, powers, sentence):
    with pytest.raises(fc.StudyError, match=sentence):
        alone_on(ROWS, centers, 2.0, names, **powers)


def test_a_model_of_other_columns_is_refused():
    X = groups(0)
    with pytest.raises(fc.DataError, match="2 columns, but the model has 3"):
        indices.xie_beni(fc.KMeans(2).fit(X), fc.Federation.local({"a": X[:, :2]}))


def groups(seed, width=3):
    """Groups of rows, with whatever makes arithmetic hard."""
    rng = np.random.default_rng(seed)
    rows, count = int(rng.integers(60, 200)), int(rng.integers(2, 6))
    X = rng.normal(size=(rows, width)) + rng.normal(size=(count, width))[rng.integers(count, size=rows)] * 5
    kind = seed % 4
    return X + 1e6 if kind == 1 else X * 10.0 ** rng.integers(-5, 6, size=width) if kind == 2 else np.round(X, kind)


def fitted(X, seed, columns=None):
    """A model of each kind, one of them scaled."""
    rng = np.random.default_rng(seed)
    start = X[rng.choice(len(X), 4, replace=False)] + rng.normal(size=(4, X.shape[1]))
    options = {"n_clusters": 4, "init": start, "max_iter": 4, "scale": ["none", "standardise"][seed % 2]}
    models = [fc.KMeans(**options), fc.FuzzyCMeans(**options), fc.FuzzyCMeans(m=1.4, **options)]
    return [model.fit(X if columns is None else columns) for model in models]


def over_rows(X, rng):
    cuts = np.sort(rng.choice(np.arange(1, len(X)), int(rng.integers(1, 30)), replace=False))
    parts = np.split(X[rng.permutation(len(X))], cuts)
    return fc.Federation.local({f"p{i}": parts[i] for i in rng.permutation(len(parts))}, wire=bool(rng.integers(2)))


def over_columns(X, *held, **options):
    names = {f"p{i}": [f"c{j}" for j in own] for i, own in enumerate(held)}
    sites = {f"p{i}": X[:, own] for i, own in enumerate(held)}
    return fc.Federation.local(sites, columns=names, split="columns", **options)


@pytest.mark.parametrize("seed", range(12))
def test_any_partition_of_rows_gives_the_pooled_bits(seed):
    X = groups(seed)
    rng = np.random.default_rng(seed)
    for model in fitted(X, seed):
        pooled = indices.scores(model, X)
        with kernels.use_backend(str(rng.choice(["c", "numpy"])) if kernels.backend() == "c" else "numpy"):
            assert indices.scores(model, over_rows(X, rng)) == pooled
        assert set(pooled) == set(indices.BEST_DIRECTION)
        assert not any(math.isnan(value) for value in pooled.values())


@pytest.mark.parametrize("seed", range(8))
def test_any_split_of_columns_gives_the_bits_of_one_site(seed):
    X = groups(seed, width=4)
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(4)
    parts = np.split(shuffled, np.sort(rng.choice([1, 2, 3], int(rng.integers(1, 4)), replace=False)))
    for model in fitted(X, seed, over_columns(X, np.arange(4))):
        alone_ = indices.scores(model, over_columns(X, np.arange(4)))
        assert indices.scores(model, over_columns(X, *parts, wire=bool(rng.integers(2)))) == alone_
        assert alone_ == pytest.approx(indices.scores(model, fc.Federation.local({"a": X})), rel=1e-9)


def test_powers_over_columns_give_the_bits_of_one_site_and_agree_with_rows():
    X = groups(0)
    (model,) = fitted(X, 0, over_columns(X, np.arange(3)))[1:2]
    for p, q in ((1.0, 1.0), (3.0, 2.0), (1.5, 2.5)):
        one = indices.fuzzy_davies_bouldin(model, over_columns(X, [0, 1, 2]), p=p, q=q)
        assert indices.fuzzy_davies_bouldin(model, over_columns(X, [2], [1, 0]), p=p, q=q) == one
        assert indices.fuzzy_davies_bouldin(model, X, p=p, q=q) == pytest.approx(one, rel=1e-12)


def test_a_column_split_keeps_its_centres_through_an_index():
    X = groups(0)
    fed = over_columns(X, [0], [1, 2])
    model = fitted(X, 0, fed)[0]
    indices.scores(model, fed)
    kept = {party: desk.memory[fed.run_id] for party, desk in fed.local_sites.items()}
    assert np.array_equal(np.concatenate([kept[p]["centers"] for p in ("p0", "p1")], axis=1), model.scaled_centers_)


def test_labels_travel_in_chunks(monkeypatch):
    X = groups(1)
    fed = over_columns(X, [0], [1, 2])
    model = fitted(X, 1, fed)[0]
    whole = indices.scores(model, fed)
    monkeypatch.setattr("fedclust.questions.cluster_indices_columns.LABEL_CHUNK_ROWS", 17)
    assert indices.scores(model, fed) == whole


def centred(model, X):
    """The rows as the model sees them, about their mean: scikit-learn loses digits at a large offset."""
    seen = (X - model.origin_) / model.spread_ if model.origin_ is not None else X
    return seen - seen.mean(axis=0)


def exact_davies_bouldin(rows, labels):
    """The index in fractions, with roots and quotients to 28 digits."""
    by_label = [[[Fraction(v) for v in row] for row in rows[labels == k].tolist()] for k in np.unique(labels)]
    means = [[sum(column) / len(own) for column in zip(*own, strict=True)] for own in by_label]
    spreads = [
        sum(exact_distance(row, mean) for row in own) / len(own) for own, mean in zip(by_label, means, strict=True)
    ]
    clusters = range(len(means))
    similarities = [
        max((spreads[a] + spreads[b]) / exact_distance(means[a], means[b]) for b in clusters if b != a)
        for a in clusters
    ]
    return float(sum(similarities) / len(means))


def exact_distance(x, y):
    square = sum((a - b) ** 2 for a, b in zip(x, y, strict=True))
    return (Decimal(square.numerator) / square.denominator).sqrt()


@pytest.mark.parametrize("seed", range(8))
def test_davies_bouldin_is_the_exact_value(seed):
    X = groups(seed)
    for model in fitted(X, seed):
        exact = exact_davies_bouldin(centred(model, X), model.labels_)
        assert indices.davies_bouldin(model, X) == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("seed", range(8))
def test_scikit_learn_agrees_on_the_pooled_rows(seed):
    X = groups(seed)
    for model in fitted(X, seed):
        seen = centred(model, X)
        theirs = davies_bouldin_score(seen, model.labels_)
        slack = scikit_learn_slack(seen, model.labels_)
        assert indices.davies_bouldin(model, X) == pytest.approx(theirs, rel=1e-9, abs=slack)
        theirs = calinski_harabasz_score(seen, model.labels_)
        assert indices.calinski_harabasz(model, X) == pytest.approx(theirs, rel=1e-9)


def scikit_learn_slack(rows, labels):
    """What scikit-learn's index may be off where a cluster has one row, and its spread should be 0.

    Its distances are roots of |x|^2 - 2 x.y + |y|^2, three terms rounded to about eps |x|^2 that should cancel. Of a
    row and itself may remain 2 sqrt(eps) |x| instead of 0, which enters the index divided by a distance of means.
    """
    if np.bincount(labels).min() > 1:
        return 0.0
    means = np.array([rows[labels == k].mean(axis=0) for k in np.unique(labels)])
    nearest = min(np.linalg.norm(a - b) for a, b in combinations(means, 2))
    return 2 * np.sqrt(np.finfo(float).eps) * np.linalg.norm(rows, axis=1).max() / nearest


@pytest.mark.parametrize("seed", range(4))
def test_the_definitions_on_pooled_rows_agree(seed):
    X = groups(seed)
    model = fitted(X, seed)[1]
    seen, V = model._own_view().transform_points(X), model.scaled_centers_
    u, N = model.memberships(X), len(X)
    d = np.linalg.norm(seen[:, None] - V, axis=2)
    M = np.linalg.norm(V[:, None] - V, axis=2) + np.diag(np.full(len(V), np.inf))
    S = u.mean(axis=0) * d.mean(axis=0)
    a, b = np.sort(d, axis=1)[:, :2].T
    expected = {
        "fuzzy_davies_bouldin": ((S[:, None] + S) / M).max(axis=1).mean(),
        "xie_beni": (u**2 * d**2).sum() / (N * M.min() ** 2),
        "simplified_silhouette": ((b - a) / np.maximum(a, b)).mean(),
        "partition_coefficient": (u**2).sum() / N,
        "partition_entropy": -(u * np.log(u)).sum() / N,
    }
    for name, value in expected.items():
        assert getattr(indices, name)(model, X) == pytest.approx(value, rel=1e-9)


def test_rows_with_gaps_count_by_the_values_they_have():
    # The second row has one of two columns, 1 from the first centre and 8 from the second: twice that squared.
    X = np.array([[0.0, 0.0], [1.0, np.nan], [9.0, 9.0]])
    options = {"init": [[0.0, 0.0], [9.0, 9.0]], "max_iter": 1, "tol": None}
    model = fc.KMeans(2, missing="partial", **options).fit(X)
    assert model.cluster_centers_.tolist() == [[0.5, 0], [9, 9]]
    within = 0.25 + 2 * 0.25
    fed = fc.Federation.local({"a": X[:1], "b": X[1:]})
    assert indices.xie_beni(model, fed) == pytest.approx(within / (3 * (8.5**2 + 81)), abs=1e-15)
    with pytest.raises(fc.StudyError, match="need rows without missing values"):
        indices.davies_bouldin(model, fed)
    dropped = fc.KMeans(2, missing="drop", **options).fit(X)
    assert indices.scores(dropped, fed) == indices.scores(fc.KMeans(2, **options).fit(X[[0, 2]]), X[[0, 2]])


@pytest.mark.parametrize("seed", range(4))
def test_any_partition_of_rows_with_gaps_gives_the_pooled_bits(seed):
    rng = np.random.default_rng(seed)
    X = groups(seed)
    X[rng.random(X.shape) < 0.1] = np.nan
    whole = [name for name in indices.BEST_DIRECTION if name not in scripts.CRISP_INDICES]
    for kind in (fc.KMeans, fc.FuzzyCMeans):
        model = kind(3, missing="partial", max_iter=3, scale=["none", "standardise"][seed % 2]).fit(X)
        assert indices.scores(model, over_rows(X, rng), whole) == indices.scores(model, X, whole)


def test_columns_go_by_name():
    X = groups(0)
    model = fc.FuzzyCMeans(3).fit(fc.Federation.local({"a": X}, columns=["u", "v", "w"]))
    turned = fc.Federation.local({"a": X[:, [2, 0, 1]]}, columns=["w", "u", "v"])
    assert indices.xie_beni(model, turned) == pytest.approx(indices.xie_beni(model, X), rel=1e-12)


def test_public_bounds_spare_a_question():
    X = groups(0)
    model = fc.KMeans(2, bounds=(-64, 64)).fit(X)
    fed = fc.Federation.local({"a": X[:9], "b": X[9:]})
    before = fed.traffic()["a"]["messages"]
    assert indices.scores(model, fed, ["xie-beni", "partition-entropy", "fuzzy-davies-bouldin"])
    assert fed.traffic()["a"]["messages"] == before + 1  # three indices, one total


def test_only_what_an_index_needs_leaves():
    site = HandlerContext(SiteData("p", open_source(np.asarray(ROWS), site="p")), (0, 1), {})
    wanted = index_terms.IndexTerms(2.0, 1.0, 9, scripts.terms_needed(["partition-coefficient"]))
    ask = scripts.IndexQuestion(View(np.array([4], np.int32)), np.array([[0.0], [4.0]]), wanted)
    answer = scripts.index_sums.answer(site, ask)
    sizes = {part: getattr(answer, part).limbs.size for part in index_terms.TERM_NAMES}
    assert sizes == {**dict.fromkeys(index_terms.TERM_NAMES, 0), "squares": 2}


@pytest.mark.parametrize("name", fc.indices.BEST_DIRECTION)
def test_an_index_over_rows_that_were_all_dropped_is_refused(name):
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = fc.KMeans(2, missing="drop").fit(X)
    X[:, 1] = np.nan
    with pytest.raises(fc.DataError, match="n_samples=0: every row has a missing value and was dropped"):
        fc.indices.scores(model, X, [name])
