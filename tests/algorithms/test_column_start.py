"""Initial centres of a column split: good, the same for every split of the columns, in few questions."""

import numpy as np
import pytest

import fedclust as fc
from benchmarks.initial_centers import Counter
from fedclust import kernels
from fedclust.algorithms.cmeans import column_split


def columns(X, *groups, **options):
    sites = {f"p{i}": X[:, list(group)] for i, group in enumerate(groups)}
    names = {f"p{i}": [f"c{j}" for j in group] for i, group in enumerate(groups)}
    order = [f"c{j}" for j in range(X.shape[1])]
    return fc.Federation.local(sites, split="columns", columns=names, order=order, **options)


def table(seed=0, clusters=9, rows=300):
    rng = np.random.default_rng([seed, 4])
    return rng.normal(size=(rows, 4)) + 6 * rng.normal(size=(clusters, 4))[rng.integers(clusters, size=rows)]


@pytest.mark.parametrize("seed", range(6))
def test_the_default_is_within_a_percent_of_the_pooled_rows(seed):
    X = table(seed)
    assert fc.KMeans(9).fit(columns(X, [0, 1], [2, 3])).inertia_ <= 1.01 * fc.KMeans(9).fit(X).inertia_


@pytest.mark.parametrize("how", [{}, {"wire": True}, {"aggregation": "secure"}, {"aggregation": "blind"}])
@pytest.mark.parametrize("backend", sorted({kernels.backend(), "numpy"}))
def test_every_split_of_the_columns_has_the_bits_of_one_site(how, backend):
    X = table() * [1.0, 1e3, 1e-3, 1.0]
    rounds = {"tol": None, "max_iter": 2, "scale": "standardise"}
    one = fc.KMeans(9, **rounds).fit(columns(X, range(4)))
    with kernels.use_backend(backend):
        many = fc.KMeans(9, **rounds).fit(columns(X, [3], [0, 2], [1], **how))
    assert np.array_equal(one.initial_centers_, many.initial_centers_)
    assert np.array_equal(one.cluster_centers_, many.cluster_centers_)


def test_chunks_of_rows_do_not_change_the_start(monkeypatch):
    X = table()
    whole = fc.KMeans(9, max_iter=1).fit(columns(X, [0, 1], [2, 3]))
    monkeypatch.setattr(column_split, "MATRIX_CHUNK_VALUES", 500)
    parts = fc.KMeans(9, max_iter=1).fit(columns(X, [0, 1], [2, 3]))
    assert np.array_equal(whole.initial_centers_, parts.initial_centers_)


HARD_TABLES = {
    "groups": table(),
    "equal rows": np.ones((300, 4)),
    "two values": np.repeat([[0.0], [1.0]], 150, axis=0) * np.ones(4),
    "as many values as clusters": np.repeat(np.arange(9.0), 34)[:300, None] * np.ones(4),
}


@pytest.mark.parametrize("aggregation", ["plain", "blind"])
def test_the_number_of_questions_does_not_depend_on_the_rows(aggregation):
    asked = {}
    for kind, X in HARD_TABLES.items():
        fed = columns(X, [0], [1], [2, 3], aggregation=aggregation)
        counter = Counter(fed.engine)
        fed.use_engine(counter)
        fc.KMeans(9, tol=None, max_iter=2).fit(fed)
        asked[kind] = counter.exchanges
    assert len(set(asked.values())) == 1


@pytest.mark.parametrize("kind", HARD_TABLES)
def test_tables_of_few_values_have_an_exact_fit(kind):
    model = fc.KMeans(9).fit(columns(HARD_TABLES[kind], [0, 1], [2, 3]))
    assert np.isfinite(model.cluster_centers_).all()
    assert kind == "groups" or model.inertia_ == 0


def test_the_start_takes_as_many_questions_for_many_clusters_as_for_few():
    counts = []
    for clusters in (2, 20):
        fed = columns(table(), [0, 1], [2, 3])
        counter = Counter(fed.engine)
        fed.use_engine(counter)
        fc.KMeans(clusters, tol=None, max_iter=1).fit(fed)
        counts.append(counter.exchanges)
    assert counts[0] == counts[1]


def test_one_cluster_starts_at_the_mean():
    X = table()
    model = fc.KMeans(1).fit(columns(X, [0, 1], [2, 3]))
    assert model.initial_centers_[0] == pytest.approx(X.mean(axis=0), abs=1e-12)


def test_more_candidates_give_better_fits():
    tables = [np.random.default_rng(seed).uniform(size=(200, 4)) for seed in range(6)]
    few, many = (sum(fc.KMeans(12, n_init=n).fit(columns(X, [0, 1], [2, 3])).inertia_ for X in tables) for n in (1, 50))
    assert many < few


def test_a_box_over_columns_has_one_candidate():
    with pytest.raises(fc.StudyError, match="set n_init to 'auto'"):
        fc.KMeans(3, init="box", n_init=2).fit(columns(table(), [0, 1], [2, 3]))


def test_as_many_clusters_as_rows_put_each_row_in_its_own():
    X = np.arange(12.0).reshape(6, 2) ** 2
    assert fc.KMeans(6).fit(columns(X, [0], [1])).inertia_ == 0
