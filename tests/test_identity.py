"""Lossless means the same bits: any partition, any order of parties, any backend, any number of threads, any wire."""

import contextlib

import numpy as np
import pytest
from sklearn.base import clone

import fedclust as fc
from fedclust import kernels

RUNS = 60
LONG = 1000
BACKENDS = sorted({kernels.backend(), "numpy"})


def table(rng, hard=None):
    """Rows from a few groups, with whatever makes arithmetic hard; now and then enough of them for two threads."""
    rows, width, groups = int(rng.integers(120, 400)), int(rng.integers(1, 7)), int(rng.integers(2, 6))
    if hard is None and rng.integers(10) == 0:
        rows, width, groups = int(rng.integers(5000, 9000)), int(rng.integers(8, 40)), int(rng.integers(6, 14))
    X = rng.normal(size=(rows, width)) + rng.normal(size=(groups, width))[rng.integers(groups, size=rows)] * 5
    kind = hard or rng.choice(["plain", "offset", "scales", "ties", "on-centres", "float32"])
    if kind == "offset":
        X += 1e6
    if kind == "scales":
        X *= 10.0 ** rng.integers(-6, 7, size=width)
    if kind == "ties":
        X = np.round(X)
    if kind == "float32":
        X = X.astype(np.float32)
    start = X[rng.choice(rows, groups, replace=False)].astype(float)
    if kind != "on-centres":
        start += rng.normal(size=start.shape) * 0.1 * (np.abs(start) + 1e-3)
    return X, start


def partition(rng, X, parties=None):
    """Uneven parts of shuffled rows, each with at least one, in random order."""
    count = parties or int(min(100, len(X)) ** rng.random() + 0.5)  # small numbers as often as large ones
    rows = rng.permutation(len(X))
    cuts = np.sort(rng.choice(np.arange(1, len(X)), count - 1, replace=False))
    names = rng.permutation(count)
    return {f"p{n}": X[part] for n, part in zip(names, np.split(rows, cuts), strict=True)}


def estimators(start, rng, rounds):
    explicit = bool(rng.integers(2))
    options = {"init": start if explicit else "box", "tol": float(rng.choice([1e-3, 1e-8])), "max_iter": rounds}
    options["scale"] = str(rng.choice(["none", "standardise"]))
    k = len(start)
    return [fc.KMeans(k, **options), fc.FuzzyCMeans(k, **options), fc.FuzzyCMeans(k, m=1.7, **options)]


def same(a, b, X):
    assert np.array_equal(a.cluster_centers_, b.cluster_centers_)
    assert np.array_equal(a.initial_centers_, b.initial_centers_)
    assert np.array_equal(a.cluster_sizes_, b.cluster_sizes_)
    assert a.history_ == b.history_
    assert a.final_objective == b.final_objective
    assert a.n_iter_ == b.n_iter_
    assert np.array_equal(a.predict(X), b.predict(X))
    if isinstance(a, fc.FuzzyCMeans):
        assert np.array_equal(a.memberships(X), b.memberships(X))


@contextlib.contextmanager
def threads(count):
    before = kernels.threads()
    kernels.set_threads(count)
    try:
        yield
    finally:
        kernels.set_threads(before)


def check_rows(seed):
    rng = np.random.default_rng(seed)
    X, start = table(rng)
    for estimator in estimators(start, rng, rounds=12 if len(X) < 1000 else 3):
        pooled = estimator.fit(X)
        fed = fc.Federation.local(partition(rng, X), wire=bool(rng.integers(2)))
        with threads(int(rng.integers(1, 3))), kernels.use_backend(str(rng.choice(BACKENDS))):
            federated = clone(estimator).fit(fed)
        same(federated, pooled, X)


def check_columns(seed):
    rng = np.random.default_rng(seed)
    X, start = table(rng)
    names = [f"c{i}" for i in range(X.shape[1])]
    alone = fc.Federation.local({"all": X}, split="columns", columns={"all": names})
    shuffled = rng.permutation(X.shape[1])
    cuts = np.sort(rng.choice(np.arange(1, X.shape[1]), int(rng.integers(X.shape[1])), replace=False))
    parts = {f"p{i}": held for i, held in enumerate(np.split(shuffled, cuts))}
    for estimator in estimators(start, rng, rounds=12 if len(X) < 1000 else 3):
        one = estimator.fit(alone)
        fed = fc.Federation.local(
            {party: X[:, held] for party, held in parts.items()},
            split="columns",
            columns={party: [names[i] for i in held] for party, held in parts.items()},
            wire=bool(rng.integers(2)),
            order=names,
        )
        with threads(int(rng.integers(1, 3))), kernels.use_backend(str(rng.choice(BACKENDS))):
            many = clone(estimator).fit(fed)
            assert np.array_equal(many.predict(fed), one.predict(alone))
            if isinstance(many, fc.FuzzyCMeans):
                assert np.array_equal(many.memberships(fed), one.memberships(alone))
        same(many, one, X)
        assert np.array_equal(one.labels_, many.labels_)


def check_defaults(seed, *, one_method=False):
    """The estimators as they come, with rows that make starts hard now and then; or one of them, with few rows."""
    rng = np.random.default_rng(seed)
    X, start = table(rng)
    if one_method:
        X = X[: int(rng.integers(100, 160))]
    kind = str(rng.choice(["plain", "duplicates", "constant", "binary", "outlier", "few"]))
    if kind == "duplicates":
        X = X[rng.integers(len(X) // 8, size=len(X))]
    if kind == "constant":
        X[:, rng.integers(X.shape[1])] = 0.1
    if kind == "binary":
        X = (np.median(X, axis=0) < X).astype(X.dtype)
    if kind == "outlier":
        X[0] = 1e6
    k = len(start) if kind != "few" else 40
    options = {"random_state": int(rng.integers(1000)), "scale": str(rng.choice(["none", "standardise"]))}
    gaps = str(rng.choice(["refuse", "refuse", "drop", "partial"]))
    if gaps != "refuse":
        X = np.where(rng.random(X.shape) < 0.05, np.nan, X.astype(float))
        X[:2] = np.nan_to_num(X[:2])
        X = X[~np.isnan(X).all(axis=1)]
    if gaps == "drop":
        k = min(k, int((~np.isnan(X).any(axis=1)).sum()))
    mode = str(rng.choice(["plain", "secure", "blind"], p=[0.6, 0.25, 0.15]))
    parties = None if mode == "plain" else int(rng.integers(3, 9))
    if one_method:
        fewest = 1 if mode == "plain" else 3
        parties = int(np.exp(rng.uniform(np.log(fewest), np.log(100 if mode == "plain" else 8))))
        parties = min(max(parties, fewest), len(X))
    parts = partition(rng, X, parties)
    how = {"wire": bool(rng.integers(2))} if mode == "plain" else {"aggregation": mode}
    how |= {"early_stopping": True} if mode == "blind" else {}
    made = [fc.KMeans(k, missing=gaps, max_iter=2, **options), fc.FuzzyCMeans(k, missing=gaps, max_iter=2, **options)]
    if gaps != "partial" and len(X) < 1000:
        made.append(fc.GaussianMixture(k, missing=gaps, max_iter=2, **options))
    if one_method:
        made = [made[int(rng.integers(len(made)))]]
    for estimator in made:
        pooled = estimator.fit(X)
        with threads(int(rng.integers(1, 3))), kernels.use_backend(str(rng.choice(BACKENDS))):
            federated = clone(estimator).fit(fc.Federation.local(parts, **how))
        same(federated, pooled, np.nan_to_num(X))
        drawn, also = ([note for note in m.notes_ if note.startswith("init=")] for m in (federated, pooled))
        assert drawn == also


@pytest.mark.parametrize("seed", range(RUNS))
def test_defaults_give_the_pooled_bits_at_any_parties(seed):
    check_defaults(seed)


def check_floored(seed):
    rng = np.random.default_rng(seed)
    X, start = table(rng, "plain" if seed % 2 else "ties")
    options = {"init": start, "scale": str(rng.choice(["none", "standardise"])), "max_iter": 8}
    estimator = fc.KMeans(len(start), opening="floored", floor=int(rng.integers(2, 15)), **options)
    pooled = estimator.fit(X)
    parties = int(rng.choice([2, 3, 5, 12, 25]))
    how = {} if parties < 3 else {"aggregation": str(rng.choice(["plain", "secure", "blind"])), "early_stopping": True}
    fed = fc.Federation.local(partition(rng, X, parties), wire=bool(rng.integers(2)), **how)
    with threads(int(rng.integers(1, 3))), kernels.use_backend(str(rng.choice(BACKENDS))):
        federated = clone(estimator).fit(fed)
    same(federated, pooled, X)
    assert federated.notes_ == pooled.notes_


@pytest.mark.parametrize("seed", range(RUNS))
def test_sums_above_a_floor_give_the_pooled_bits(seed):
    check_floored(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(RUNS, RUNS + LONG))
def test_a_thousand_partitions_at_the_defaults(seed):
    check_defaults(seed, one_method=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(RUNS, RUNS + LONG))
def test_a_thousand_partitions_with_sums_above_a_floor(seed):
    check_floored(seed)


@pytest.mark.parametrize("seed", range(RUNS))
def test_rows_at_any_parties_give_the_pooled_bits(seed):
    check_rows(seed)


@pytest.mark.parametrize("seed", range(RUNS))
def test_columns_at_any_parties_give_the_bits_of_one_site(seed):
    check_columns(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(RUNS, RUNS + LONG))
def test_a_thousand_partitions_of_rows(seed):
    check_rows(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(RUNS, RUNS + LONG))
def test_a_thousand_partitions_of_columns(seed):
    check_columns(seed)


@pytest.mark.parametrize("start", ["party", "careful"])
@pytest.mark.parametrize("seed", range(5))
def test_starts_drawn_by_parties_equal_the_pooled_run_from_the_recorded_start(start, seed):
    rng = np.random.default_rng(seed)
    X, centers = table(rng)
    for kind in (fc.KMeans, fc.FuzzyCMeans):
        federated = kind(len(centers), init=start, max_iter=8, random_state=seed).fit(
            fc.Federation.local(partition(rng, X, parties=6))
        )
        pooled = kind(len(centers), init=federated.initial_centers_, max_iter=8, random_state=seed).fit(X)
        same(federated, pooled, X)


@pytest.mark.parametrize("m", [1.1, 1.3])
def test_a_far_centre_keeps_its_digits_and_its_bits(m):
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(150, 3)), rng.normal(size=(150, 3)) + 20])
    start = np.array([[0.0, 0, 0], [20.0, 20, 20], [4e3, 4e3, 4e3]])
    pooled = fc.FuzzyCMeans(3, m=m, init=start, tol=None, max_iter=1).fit(X)
    parts = fc.Federation.local(partition(rng, X, parties=30), wire=True)
    same(fc.FuzzyCMeans(3, m=m, init=start, tol=None, max_iter=1).fit(parts), pooled, X)
    # The far centre's weights are down to 1e-50 and less; its next place is still their exact weighted mean.
    d2 = ((X[:, None].astype(np.longdouble) - start) ** 2).sum(axis=2)
    w = 1 / ((d2[:, :, None] / d2[:, None, :]) ** np.longdouble(1 / (m - 1))).sum(axis=2) ** np.longdouble(m)
    expected = (w.T @ X) / w.sum(axis=0)[:, None]
    assert np.abs(pooled.cluster_centers_ / expected.astype(float) - 1).max() < 1e-12


@pytest.mark.parametrize("kind", ["offset", "scales", "ties", "on-centres", "float32"])
def test_hard_tables_one_by_one(kind):
    rng = np.random.default_rng(11)
    X, start = table(rng, kind)
    options = {"n_clusters": len(start), "init": start, "max_iter": 6}
    made = [fc.KMeans(**options), *(fc.FuzzyCMeans(m=m, **options) for m in (2.0, 1.1, 1.3))]
    for estimator in made:
        pooled = clone(estimator).fit(X)
        same(clone(estimator).fit(fc.Federation.local(partition(rng, X, parties=17), wire=True)), pooled, X)
