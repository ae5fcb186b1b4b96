"""A sketch in floats may rule centres out; no label, distance or sum shows whether it did."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust import kernels
from fedclust.kernels import Sums, _backend, distances, hard_sweep

pytestmark = pytest.mark.skipif("c" not in _backend.available, reason="no compiled kernels here")


def strict(block, centers):
    """Labels and distances from all distances: the lowest index among the least."""
    d2 = distances.squared_distances(block, centers)
    return d2.argmin(axis=0).astype(np.int32), d2.min(axis=0)


def same(found, expected):
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


def swept(block, centers):
    units = units_of(block, centers)
    s = Sums.zeros(*units)
    hard_sweep.accumulate(s, block, centers)
    return s.mass, s.pull, s.objective


def swept_one_by_one(block, centers):
    """Each cluster's rows by themselves: a sweep with one centre rules nothing out."""
    mass, pull, objective = units_of(block, centers)
    labels, _ = strict(block, centers)
    whole = Sums.zeros(mass, pull, objective)
    for c in range(len(centers)):
        own = Sums.zeros(mass[c : c + 1], pull[c : c + 1], objective)
        hard_sweep.accumulate(own, np.ascontiguousarray(block[:, labels == c]), centers[c : c + 1])
        part = whole.zeros_like()
        part.mass[c], part.pull[c], part.objective[:] = own.mass[0], own.pull[0], own.objective
        whole.add(part)
    return whole.mass, whole.pull, whole.objective


def units_of(block, centers):
    C = len(centers)
    column = np.frexp(np.abs(block).astype(np.float64).max(axis=1, initial=0.0))[1] - 51
    far = np.frexp(strict(block, centers)[1].max(initial=1.0))[1] - 51
    return np.full(C, -51), np.tile(np.maximum(column, -1074), (C, 1)), max(int(far), -1074)


tables = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "F": st.sampled_from([1, 3, 8, 29, 64, 127, 128, 129, 300]),
        "C": st.sampled_from([1, 8, 10, 33, 100, 256]),
        "n": st.sampled_from([1, 31, 33, 64, 200, 300]),
        "dtype": st.sampled_from([np.float64, np.float32]),
        "offset": st.sampled_from([0.0, 1.0, 1e6, 1e12]),
        "scale": st.sampled_from([1.0, 1e-30, 1e-150, 1e-165, 5e-324, 1e25, 1e150]),
        "columns": st.sampled_from(["alike", "1e-8..1e8", "1e-300..1e150"]),
        "whole": st.booleans(),
        "nudge": st.sampled_from([None, 0.0, 1e-16, 1e-12, 1e-8, 1e-6, 1e-4]),
        "on_centres": st.booleans(),
        "constant": st.booleans(),
        "far": st.booleans(),
        "threads": st.sampled_from([1, 2]),
    }
)


def build(t):
    rng = np.random.default_rng(t["seed"])
    F, C, n = t["F"], t["C"], t["n"]
    block, centers = rng.normal(size=(F, n)), rng.normal(size=(C, F))
    if t["whole"]:  # ties everywhere
        block, centers = np.rint(block), np.rint(centers)
    if t["nudge"] is not None:
        half = C // 2
        centers[half : 2 * half] = centers[:half] + t["nudge"] * rng.normal(size=(half, F))
        between = (centers[rng.integers(C, size=n)] + centers[rng.integers(C, size=n)]).T / 2
        block[:, ::2] = between[:, ::2]
    if t["on_centres"]:
        block[:, ::3] = centers[rng.integers(C, size=n)].T[:, ::3]
    if t["constant"]:
        block[:] = block[:, :1]
    lowest, highest = {"alike": (0, 1), "1e-8..1e8": (-8, 9), "1e-300..1e150": (-300, 151)}[t["columns"]]
    scale = 10.0 ** rng.integers(lowest, highest, (F, 1))
    if t["columns"] != "1e-300..1e150":
        scale = scale * t["scale"]
    if t["far"]:
        centers[0] *= 1e6
    block, centers = (block + t["offset"]) * scale, (centers + t["offset"]) * scale.T
    if t["dtype"] == np.float32:
        block = np.clip(block, -3e38, 3e38)
    return block.astype(t["dtype"]), centers


def bounded(block, centers):
    """Sums are asked for within bounds only: a federation refuses values beyond 2^127."""
    return max(np.abs(block).max(initial=0.0), np.abs(centers).max(initial=0.0)) <= 2.0**127


@settings(max_examples=250, deadline=None)
@given(tables)
def test_labels_distances_and_sums_are_those_of_the_strict_distances(t):
    block, centers = build(t)
    before = kernels.threads()
    kernels.set_threads(t["threads"])
    try:
        assert same(distances.nearest_centers(block, centers), strict(block, centers))
        if bounded(block, centers):
            assert same(swept(block, centers), swept_one_by_one(block, centers))
    finally:
        kernels.set_threads(before)


@settings(max_examples=60, deadline=None)
@given(tables)
def test_the_twin_agrees(t):
    block, centers = build(t)
    sums = bounded(block, centers)

    def answers():
        return (*distances.nearest_centers(block, centers), *(swept(block, centers) if sums else ()))

    compiled = answers()
    with kernels.use_backend("numpy"):
        assert same(compiled, answers())


def rows_near_the_border(rng, F, C, *, offset, slant):
    """Rows whose two nearest centres differ in squared distance by from nothing to some thousandths of it.

    With `slant`, values sit just above the middle between two floats, and signs agree: roundings add up.
    """
    centers = rng.normal(size=(C, F))
    if slant:
        centers = np.float64(np.float32(np.abs(centers))) * (1 + 2.0**-24 + 2.0**-30)
    pairs = rng.permuted(np.tile(np.arange(C), (400, 1)), axis=1)[:, :2]
    a, b = centers[pairs[:, 0]], centers[pairs[:, 1]]
    towards = 2.0 ** rng.uniform(-50, -5, (400, 1)) * rng.choice([-1, 0, 1], (400, 1))
    middle = (a + b) / 2 + towards * (a - b)
    away = rng.normal(size=(400, F)) * 10.0 ** rng.uniform(-2, 1, (400, 1))
    axis = (a - b) / np.linalg.norm(a - b, axis=1, keepdims=True)
    away -= (away * axis).sum(axis=1, keepdims=True) * axis  # along the border, as far as rounding lets it
    return np.ascontiguousarray((middle + away + offset).T), centers + offset


@pytest.mark.parametrize("slant", [False, True])
@pytest.mark.parametrize("offset", [0.0, 100.0, 1e6])
@pytest.mark.parametrize(("F", "C"), [(3, 100), (30, 9), (128, 12), (500, 8), (784, 20)])
def test_no_border_is_so_near_that_the_sketch_decides(F, C, offset, slant):
    for seed in range(20):
        block, centers = rows_near_the_border(np.random.default_rng(seed), F, C, offset=offset, slant=slant)
        assert same(distances.nearest_centers(block, centers), strict(block, centers))


def test_far_rows_for_which_the_strict_distances_round_coarsely():
    rng = np.random.default_rng(2)
    for power in range(6, 17):
        block, centers = rng.normal(size=(100, 300)) * 10.0**power, rng.normal(size=(20, 100))
        assert same(distances.nearest_centers(block, centers), strict(block, centers)), power


def test_rows_too_far_for_floats_are_measured_strictly():
    rng = np.random.default_rng(3)
    block, centers = rng.normal(size=(40, 200)), rng.normal(size=(10, 40))
    block[:, ::2] *= 1e40
    block[:, 1::4] *= 1e140
    assert same(distances.nearest_centers(block, centers), strict(block, centers))


def test_many_rows_in_doubt_after_many_that_are_clear():
    rng = np.random.default_rng(4)
    centers = rng.normal(size=(20, 50))
    centers[10:] = centers[:10] + 1e-9 * rng.normal(size=(10, 50))
    clear = np.tile(centers[3][:, None], (1, 3000)) + 0.01 * rng.normal(size=(50, 3000))
    centers[13] = 50.0
    block = np.hstack([clear, centers[rng.integers(20, size=3000)].T + 1e-6 * rng.normal(size=(50, 3000))])
    assert same(distances.nearest_centers(block, centers), strict(block, centers))
    assert same(swept(block, centers), swept_one_by_one(block, centers))
