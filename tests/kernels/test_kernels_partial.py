"""Distances and sums over the values that are there, against an independent reference."""

import numpy as np
import pytest

from fedclust.kernels import distances, fuzzy_sweep, gap_sweep
from fedclust.kernels.exact_sums import Sums
from fedclust.kernels.gap_sweep import PartialSums, accumulate

NAN = np.nan


def reference(X, centers, m):
    """Row by row, value by value, in extended precision: mass, column mass, pull and objective."""
    X, centers = np.asarray(X, np.longdouble), np.asarray(centers, np.longdouble)
    clusters, width = centers.shape
    mass, share = np.zeros(clusters, np.longdouble), np.zeros((clusters, width), np.longdouble)
    pull, objective = np.zeros((clusters, width), np.longdouble), np.longdouble(0)
    for row in X:
        has = [f for f in range(width) if not np.isnan(row[f])]
        d2 = [sum((row[f] - v[f]) ** 2 for f in has) * width / len(has) for v in centers]
        if m == 1:
            u = [np.longdouble(c == int(np.argmin(d2))) for c in range(clusters)]
        else:
            u = [1 / sum((a / b) ** (1 / np.longdouble(m - 1)) for b in d2) for a in d2]
        for c in range(clusters):
            w = u[c] ** np.longdouble(m)
            mass[c] += w
            objective += w * d2[c]
            for f in has:
                share[c, f] += w
                pull[c, f] += w * row[f]
    return mass, share, pull, objective


def sums_of(blocks, centers, m):
    unit = np.full(centers.shape, -45, np.int32)
    found = PartialSums.zeros(-45, unit, unit, -40)
    for block in blocks:
        accumulate(found, block, centers, m)
    return found


def floats(limbs, unit):
    low, high = limbs[..., 0].astype(np.float64), limbs[..., 1].view(np.int64).astype(np.float64)
    return np.ldexp(high * 2.0**64 + low, unit)


def table(seed, rows=300, width=4, gaps=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, width)) + rng.integers(3, size=(rows, 1)) * 4
    X[rng.random(X.shape) < gaps] = NAN
    return X[~np.isnan(X).all(axis=1)], rng.normal(size=(3, width)) + np.arange(3)[:, None] * 4


def test_distances_by_hand():
    block = np.array([[1.0, NAN, NAN], [NAN, 2.0, NAN], [3.0, 2.0, NAN]])  # three columns, three rows
    d2 = gap_sweep.partial_distances(block, np.array([[0.0, 0.0, 1.0]]))
    assert d2[0, :2].tolist() == [3 / 2 * (1 + 4), 3 / 2 * (4 + 1)]
    assert np.isnan(d2[0, 2])


def test_memberships_by_hand():
    # The row's one value lies at 1 and 3 of the centres; doubling both squares changes no ratio.
    u = gap_sweep.partial_memberships(np.array([[1.0], [NAN]]), np.array([[0.0, 50.0], [4.0, -50.0]]), 2.0)
    assert u.ravel() == pytest.approx([0.9, 0.1], abs=1e-15)


def test_a_row_on_a_centre_in_all_it_has_belongs_there():
    block = np.array([[2.0], [NAN]])
    assert gap_sweep.hard_or_fuzzy_weights(
        gap_sweep.partial_distances(block, np.array([[2.0, 9.0], [3.0, 1.0]])), 2.0
    ).ravel().tolist() == [
        1,
        0,
    ]


def test_a_row_without_any_value_has_no_label_and_no_memberships():
    block = np.array([[NAN, 1.0], [NAN, NAN]])
    centers = np.array([[0.0, 0.0], [5.0, 5.0]])
    assert gap_sweep.partial_labels(block, centers).tolist() == [-1, 0]
    u = gap_sweep.partial_memberships(block, centers, 2.0)
    assert np.isnan(u[:, 0]).all()
    assert u[:, 1].sum() == pytest.approx(1)


@pytest.mark.parametrize("m", [1.0, 1.7, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_sums_agree_with_the_reference(m, seed, backend):
    X, centers = table(seed, rows=120)
    found = sums_of([np.ascontiguousarray(X.T)], centers, m)
    mass, share, pull, objective = reference(X, centers, m)
    assert floats(found.mass, -45) == pytest.approx(mass.astype(float), abs=1e-10)
    assert floats(found.column_mass, -45) == pytest.approx(share.astype(float), abs=1e-10)
    assert floats(found.pull, -45) == pytest.approx(pull.astype(float), abs=1e-10)
    assert floats(found.objective, -40) == pytest.approx(float(objective), rel=1e-11)


@pytest.mark.parametrize("seed", range(5))
def test_no_cut_into_blocks_changes_a_bit(seed, backend):
    X, centers = table(seed)
    rng = np.random.default_rng(seed)
    whole = sums_of([np.ascontiguousarray(X.T)], centers, 1.8)
    cuts = np.sort(rng.choice(np.arange(1, len(X)), 7, replace=False))
    parts = sums_of([np.ascontiguousarray(X[own].T) for own in np.split(rng.permutation(len(X)), cuts)], centers, 1.8)
    for name in ("mass", "column_mass", "pull", "objective"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))


def test_more_rows_than_are_looked_at_together(monkeypatch):
    X, centers = table(9)
    whole = sums_of([np.ascontiguousarray(X.T)], centers, 2.0)
    monkeypatch.setattr(gap_sweep, "DISTANCE_CHUNK_ROWS", 7)
    assert np.array_equal(sums_of([np.ascontiguousarray(X.T)], centers, 2.0).pull, whole.pull)


@pytest.mark.parametrize("m", [1.3, 2.0])
def test_where_nothing_is_missing_distances_and_sums_are_the_ordinary_ones(m, backend):
    X, centers = table(4, gaps=0)
    block = np.ascontiguousarray(X.T)
    assert np.array_equal(gap_sweep.partial_distances(block, centers), distances.squared_distances(block, centers))
    unit = np.full(centers.shape, -45, np.int32)
    ordinary = Sums.zeros(np.full(3, -45), unit, -40)
    fuzzy_sweep.accumulate(ordinary, block, centers, m)
    found = sums_of([block], centers, m)
    assert floats(found.mass, -45) == pytest.approx(floats(ordinary.mass, -45), abs=1e-11)
    assert floats(found.pull, -45) == pytest.approx(floats(ordinary.pull, -45), abs=1e-11)
    assert (floats(found.column_mass, -45) == floats(found.mass, -45)[:, None]).all()
