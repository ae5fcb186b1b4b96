"""The numbers of papers 0 and 1 that were confirmed: mean of ten starts, 30 rounds, m = 2, pooled min-max scaling."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

import fedclust as fc

DATA = os.environ.get("FEDCLUST_DATA")
needs_data = pytest.mark.skipif(not DATA or not Path(DATA).is_dir(), reason="set FEDCLUST_DATA to the benchmark data")

# set: (ARI, digits it was printed with, Xie-Beni or None)
CONFIRMED = {
    "xclara": (0.99289, 5, 0.050),
    "s_set1": (0.89728, 5, 0.941),
    "s_set2": (0.8977, 4, 0.517),
    "waveform": (0.2436, 4, 0.853),
    "phoneme": (0.149, 3, 0.969),
    "rice": (0.679, 3, 0.216),
    "satimage": (0.534, 3, 0.310),
    "pendigits": (0.4247, 4, None),
}


def scaled(name):
    data = fc.datasets.load(name)
    low, high = data.X.min(axis=0), data.X.max(axis=0)
    return (data.X - low) / (high - low), data.y, len(data.classes)


def parties(X, count=20, seed=0):
    return fc.Federation.local(fc.datasets.split(X, parties=count, seed=seed))


def published(X, k, seed, **options):
    start = np.random.RandomState(seed).rand(k, X.shape[1])
    return fc.FuzzyCMeans(k, init=start, tol=None, max_iter=30, random_state=seed, **options)


@needs_data
@pytest.mark.parametrize("name", CONFIRMED)
def test_table_of_confirmed_numbers(name):
    expected, digits, xie_beni = CONFIRMED[name]
    X, y, k = scaled(name)
    fed = parties(X)
    agreements, indices = [], []
    for seed in range(10):
        model = published(X, k, seed).fit(fed)
        agreements.append(adjusted_rand_score(y, model.predict(X)))
        between = ((model.cluster_centers_[:, None] - model.cluster_centers_) ** 2).sum(axis=2)
        indices.append(model.final_objective / (len(X) * between[~np.eye(k, dtype=bool)].min()))
    assert round(np.mean(agreements), digits) == pytest.approx(expected, abs=1.01 * 10**-digits)
    if xie_beni is not None:
        assert np.mean(indices) == pytest.approx(xie_beni, abs=0.0011)


# Paper 1, at a participation of .25, .5 and .75; its parties were drawn from another random stream.
DISPLACEMENTS = {"xclara": (0.0089, 0.0055, 0.0025), "waveform": (0.032, 0.019, 0.020)}


@needs_data
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "waveform" else ()) for name in DISPLACEMENTS]
)
def test_displacement_shrinks_with_participation(name):
    X, _, k = scaled(name)
    fed = parties(X)
    means = []
    for participation in (0.25, 0.5, 0.75):
        moved = []
        for seed in range(10):
            whole = published(X, k, seed).fit(fed).cluster_centers_
            part = published(X, k, seed, participation=participation).fit(fed).cluster_centers_
            cost = ((whole[:, None] - part) ** 2).sum(axis=2)
            moved.append(np.sqrt(cost[linear_sum_assignment(cost)].sum()))
        means.append(np.mean(moved))
    assert means[0] > means[1]
    assert means[0] > means[2]
    for mean, printed in zip(means, DISPLACEMENTS[name], strict=True):
        assert 0.6 * printed < mean < 1.3 * printed


@needs_data
def test_every_vertical_split_of_pendigits_gives_the_same_curve():
    X, _, k = scaled("pendigits")
    start = np.random.RandomState(0).rand(k, X.shape[1])
    names = [f"c{i}" for i in range(16)]
    curves = []
    for sizes in ([16], [1] * 16, [2] * 8, [4] * 4, [8] * 2, [1, 2, 3, 4, 6]):
        ends = np.cumsum([0, *sizes])
        spans = {f"p{i}": slice(a, b) for i, (a, b) in enumerate(pairwise(ends))}
        fed = fc.Federation.local(
            {p: X[:, span] for p, span in spans.items()},
            split="columns",
            columns={p: names[s] for p, s in spans.items()},
        )
        model = fc.FuzzyCMeans(k, init=start, tol=None, max_iter=4).fit(fed)
        curves.append([r["shift"] for r in model.history_])
    assert all(curve == curves[0] for curve in curves)
