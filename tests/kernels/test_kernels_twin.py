"""The compiled sweeps and the NumPy twin agree in every bit, on ordinary and on hostile tables."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust import kernels
from fedclust.kernels import Sums, _backend, distances, elementary, exact_sums, fuzzy_sweep, hard_sweep

pytestmark = pytest.mark.skipif("c" not in _backend.available, reason="no compiled kernels here")


def both(compute):
    with kernels.use_backend("c"):
        compiled = compute()
    with kernels.use_backend("numpy"):
        twin = compute()
    return compiled, twin


def same_bits(compiled, twin):
    return all(
        a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
        for a, b in zip(compiled, twin, strict=True)
    )


tables = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "F": st.integers(1, 40),
        "n": st.integers(0, 300),
        "C": st.integers(1, 12),
        "m": st.sampled_from([2.0, 1.7, 1.1, 1.3, 3.0, 2.5, 2]),
        "dtype": st.sampled_from([np.float64, np.float32]),
        "offset": st.sampled_from([0.0, 1e6, -1e3]),
        "scaled": st.booleans(),
        "on_centres": st.booleans(),
        "coincident": st.booleans(),
        "whole": st.booleans(),
        "far": st.booleans(),
        "own_units": st.booleans(),
    }
)


def build(t):
    rng = np.random.default_rng(t["seed"])
    F, n, C = t["F"], t["n"], t["C"]
    block, centers = rng.normal(size=(F, n)), rng.normal(size=(C, F))
    if t["whole"]:  # many ties
        block, centers = np.rint(block), np.rint(centers)
    scale = 10.0 ** rng.integers(-8, 8, (F, 1)) if t["scaled"] else np.ones((F, 1))
    block, centers = (block * scale + t["offset"]).astype(t["dtype"]), centers * scale.T + t["offset"]
    if t["on_centres"] and n:
        centers[rng.integers(C)] = block[:, rng.integers(n)]
    if t["coincident"]:
        centers[-1] = centers[0]
    if t["far"]:
        centers[0] *= 1e120
    return block, centers


@settings(max_examples=120, deadline=None)
@given(tables)
def test_sweeps_agree(t):
    block, centers = build(t)
    with np.errstate(over="ignore"):
        bound = np.abs(block).astype(np.float64).max(initial=1.0)
        d2 = distances.squared_distances(block, centers).min(axis=0).max(initial=1.0)
    unit = int(np.frexp(bound)[1]) - 51
    objective_unit = int(np.frexp(d2 * t["C"])[1]) - 51

    def compute():
        found = []
        for rule in ("hard", "fuzzy"):
            own = np.arange(t["C"]) % 3 * t["own_units"]
            s = Sums.zeros(own - 51, np.full(centers.shape, unit) + own[:, None], objective_unit)
            if rule == "hard":
                hard_sweep.accumulate(s, block, centers)
            else:
                fuzzy_sweep.accumulate(s, block, centers, t["m"])
            found += [s.mass, s.pull, s.objective]
        return found

    assert same_bits(*both(compute))


@settings(max_examples=120, deadline=None)
@given(tables)
def test_answers_for_rows_agree(t):
    block, centers = build(t)

    def compute():
        d2 = distances.squared_distances(block, centers)
        um = fuzzy_sweep.weights_from_distances(d2, t["m"])
        s = Sums.zeros(np.full(t["C"], -51), np.full(centers.shape, 0), 0)
        exact_sums.add_weighted(s, block, um)
        return [
            d2,
            um,
            s.mass,
            s.pull,
            *distances.nearest_centers(block, centers),
            hard_sweep.labels_from_distances(d2),
            fuzzy_sweep.memberships(block, centers, t["m"]),
            fuzzy_sweep.memberships_from_distances(d2, t["m"]),
            exact_sums.exact_totals(block, 0),
        ]

    assert same_bits(*both(compute))


@settings(max_examples=60, deadline=None)
@given(tables, st.integers(-80, -40))
def test_exact_distances_agree(t, unit):
    block, centers = build(t | {"far": False})

    assert same_bits(*both(lambda: [distances.exact_distances(block, centers, unit)]))


@pytest.mark.parametrize("p", [0.5, 10.0, 10, 2.5, -1.7, 1e-3, 0.0, 1000.0])
def test_powers_agree(p):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random(1001), 10.0 ** rng.uniform(-323, 308, 3000), [0.0, 1.0, 5e-324, 2.0**-1022]])
    assert same_bits(*both(lambda: [elementary.power(x, p)]))


@pytest.mark.parametrize(("function", "low", "high"), [("exp", -760, 720), ("exp2", -1100, 1030)])
def test_exponentials_agree(function, low, high):
    x = np.random.default_rng(1).uniform(low, high, 5003)
    assert same_bits(*both(lambda: [getattr(elementary, function)(x)]))


@pytest.mark.parametrize("function", ["log", "log2"])
def test_logarithms_agree(function):
    x = np.concatenate([10.0 ** np.random.default_rng(2).uniform(-323, 308, 5000), [0.0, 1.0, 5e-324]])
    assert same_bits(*both(lambda: [getattr(elementary, function)(x)]))


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    F=st.integers(1, 30),
    C=st.integers(16, 60),
    whole=st.booleans(),
    nudge=st.sampled_from([0.0, 1e-16, 1e-15, 1e-13, 1e-8]),
    offset=st.sampled_from([0.0, 1.0, 1e6]),
    scale=st.sampled_from([1.0, 1e-165, 1e-150, 1e160]),
)
def test_the_nearest_of_many_centres_is_the_same_however_close_the_next(seed, F, C, whole, nudge, offset, scale):
    rng = np.random.default_rng(seed)
    block, centers = rng.normal(size=(F, 200)), rng.normal(size=(C, F))
    if whole:
        block, centers = np.rint(block), np.rint(centers)
    half = C // 2
    centers[half : 2 * half] = centers[:half] + nudge * rng.normal(size=(half, F))
    block[:, :50] = (centers[rng.integers(C, size=50)] + centers[rng.integers(C, size=50)]).T / 2  # on the border
    block, centers = (block + offset) * scale, (centers + offset) * scale
    unit = int(np.frexp(np.abs(block).max() + scale)[1]) - 51

    def compute():
        s = Sums.zeros(np.full(C, -51), np.full((C, F), unit), 0 if scale <= 1.0 else 900)
        hard_sweep.accumulate(s, block, centers)
        return [*distances.nearest_centers(block, centers), s.mass, s.pull]

    assert same_bits(*both(compute))
