"""The compiled training of autoencoders does what its NumPy twin does, and that is what the formulas say."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels_building import built, chosen

from fedclust import kernels
from fedclust.kernels import _coder_twin, autoencoder_kernel
from fedclust.kernels.autoencoder_kernel import Coder

needs_c = pytest.mark.skipif(autoencoder_kernel._compiled is _coder_twin, reason="no compiled kernels here")


def model(sizes, seed=0):
    rng = np.random.default_rng(seed)
    drawn = [rng.uniform(-1, 1, (a + 1) * b) * np.sqrt(6 / (a + b)) for a, b in pairwise(sizes)]
    return np.concatenate(drawn).astype(np.float32)


def trained(backend, sizes, count, batch, epochs=2, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.random((count + 3, sizes[0]), np.float32)
    own = Coder(model(sizes, seed), sizes)
    with kernels.use_backend(backend):
        losses = [
            own.epoch(rows, rng.permutation(count + 3)[:count], batch=batch, rate=0.003125) for _ in range(epochs)
        ]
    return own.weights, np.array(losses)


@needs_c
@settings(max_examples=80, deadline=None)
@given(
    hidden=st.lists(st.integers(1, 70), min_size=1, max_size=4),
    width=st.integers(1, 70),
    count=st.integers(1, 40),
)
def test_a_batch_of_any_shape_has_the_slopes_of_the_twin(hidden, width, count):
    sizes = (width, *hidden, width)
    rows = np.random.default_rng(count).random((count, width), np.float32)
    states, losses = [], []
    for name in ("c", "numpy"):
        own = Coder(model(sizes), sizes)
        with kernels.use_backend(name):
            losses.append(own.epoch(rows, np.arange(count), batch=count, rate=0.01))
        states.append(own._state)
    # Of the moments, not the weights: Adam's first step goes by the sign of a slope, however small.
    for compiled, reference in zip(states[0][1:], states[1][1:], strict=True):
        assert np.allclose(compiled, reference, rtol=1e-4, atol=1e-7)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@needs_c
def test_c_and_numpy_agree_on_a_model_of_the_paper():
    sizes = (784, 100, 64, 32, 64, 100, 784)
    compiled, reference = (trained(name, sizes, 84, 32) for name in ("c", "numpy"))
    assert np.abs(compiled[0] - reference[0]).max() < 1e-5
    assert np.allclose(compiled[1], reference[1], rtol=1e-6)


def test_a_batch_by_hand(backend):
    # One weight and one bias, zero: o = sigmoid(0) = 1/2, x = 1, slope 2 (o - 1) o (1 - o) = -1/4 for both.
    own = Coder(np.zeros(2, np.float32), (1, 1))
    rows, rate = np.ones((1, 1), np.float32), 0.25
    assert own.epoch(rows, np.array([0]), batch=1, rate=rate) == 0.25
    means, squares = (next(_coder_twin.layers(part, np.array([1, 1]))).ravel() for part in own._state[1:])
    assert means == pytest.approx([0.1 * -0.25] * 2)
    assert squares == pytest.approx([0.001 * 0.25**2] * 2)
    assert own.weights == pytest.approx([0.25, 0.25], rel=1e-6)
    # A second step: z = 1/4 + 1/4; Adam with .9 and .999, both corrected for having begun at zero.
    o = 1 / (1 + math.exp(-0.5))
    slope = 2 * (o - 1) * o * (1 - o)
    mean, square = 0.9 * -0.025 + 0.1 * slope, 0.999 * 6.25e-5 + 0.001 * slope**2
    step = rate * mean / (1 - 0.9**2) / (math.sqrt(square / (1 - 0.999**2)) + 1e-8)
    assert own.epoch(rows, np.array([0]), batch=1, rate=rate) == pytest.approx((o - 1) ** 2, rel=1e-6)
    assert own.weights == pytest.approx([0.25 - step] * 2, rel=1e-6)


def test_two_layers_by_hand(backend):
    # x = (1, 0) -> h = relu(x1 + x2 - 1/2) = 1/2 -> o = sigmoid(h (1, -1)). One step of Adam moves each weight that has
    # a slope by the rate; the one behind x2 = 0 has none.
    start = np.array([1, 1, -0.5, 1, -1, 0, 0], np.float32)  # W1 (2x1), b1, W2 (1x2), b2
    own = Coder(start, (2, 1, 2))
    loss = own.epoch(np.array([[1, 0]], np.float32), np.array([0]), batch=1, rate=0.01)
    out = 1 / (1 + np.exp([-0.5, 0.5]))
    assert loss == pytest.approx(((out - [1, 0]) ** 2).mean(), rel=1e-6)
    # o1 < 1, so slopes of z1 are below zero; o2 > 0, above; h's slope is the first less the second, below zero.
    assert own.weights - start == pytest.approx([0.01, 0, 0.01, 0.01, -0.01, 0.01, -0.01], abs=1e-7)


def test_a_unit_below_zero_learns_nothing(backend):
    start = np.array([1, 1, -3, 1, -1, 0, 0], np.float32)
    own = Coder(start, (2, 1, 2))
    own.epoch(np.array([[1, 0]], np.float32), np.array([0]), batch=1, rate=0.01)
    assert (own.weights - start).tolist()[:5] == [0.0] * 5


def test_weights_that_explode_saturate(backend):
    own = Coder(np.array([1e6, -1e6, 1e6, -1e6, 0, 0], np.float32), (2, 2))
    loss = own.epoch(np.array([[1, 1]], np.float32), np.array([0]), batch=1, rate=0.01)
    assert 0 <= loss <= 1
    assert np.isfinite(own.weights).all()


def test_an_epoch_in_pieces_is_the_same_epoch(backend):
    rows, order = np.random.default_rng(0).random((64, 20), np.float32), np.random.default_rng(1).permutation(64)
    whole, pieces = (Coder(model((20, 9, 20)), (20, 9, 20)) for _ in range(2))
    whole.epoch(rows, order, batch=16, rate=0.01)
    for at in range(0, 64, 16):
        pieces.epoch(rows, order[at : at + 16], batch=16, rate=0.01)
    assert whole.weights.tobytes() == pieces.weights.tobytes()


def test_what_is_not_a_number_is_not_hidden(backend):
    sizes, rows = (5, 3, 5), np.random.default_rng(0).random((9, 5), np.float32)
    lost = Coder(np.full(38, np.nan, np.float32), sizes)
    assert math.isnan(lost.epoch(rows, np.arange(9), batch=4, rate=0.1))
    rows[4, 2] = np.nan
    own = Coder(model(sizes), sizes)
    assert math.isnan(own.epoch(rows, np.arange(9), batch=4, rate=0.1))
    assert np.isnan(own.weights).all()


def test_a_batch_larger_than_all_rows_is_all_rows(backend):
    rows = np.random.default_rng(0).random((9, 5), np.float32)
    large, whole = (Coder(model((5, 3, 5)), (5, 3, 5)) for _ in range(2))
    losses = [own.epoch(rows, np.arange(9), batch=n, rate=0.1) for own, n in ((large, 1 << 62), (whole, 9))]
    assert losses[0] == losses[1]
    assert large.weights.tobytes() == whole.weights.tobytes()


@needs_c
@pytest.mark.parametrize(
    ("which", "wrong", "says"),
    [
        (3, np.zeros((4, 5)), "rows: wrong type"),
        (3, np.zeros((4, 6), np.float32), "belong together"),
        (4, np.array([0, 4]), "belong together"),
        (4, np.array([-1]), "belong together"),
        (4, np.array([0, 1], np.int32), "order: wrong type"),
        (5, np.array([5, 3, 4]), "belong together"),
        (5, np.array([5, 0, 5]), "belong together"),
        (5, np.array([5]), "belong together"),
        (5, np.array([5] * 40), "belong together"),
        (6, np.zeros(7, np.float32), "belong together"),
        (7, np.zeros(7, np.float32), "belong together"),
        (0, 0, "belong together"),
        (2, -1, "belong together"),
    ],
)
def test_what_would_reach_beyond_an_array_is_refused(which, wrong, says):
    state = np.zeros((3, 6 * 16 + 4 * 16), np.float32)
    given = [2, 0.1, 0, np.zeros((4, 5), np.float32), np.array([0, 3]), np.array([5, 3, 5]), *state]
    assert autoencoder_kernel._compiled.epoch(*given) > 0
    given[which] = wrong
    with pytest.raises(ValueError, match=says):
        autoencoder_kernel._compiled.epoch(*given)


def test_lines_are_padded_and_pads_stay_zero(backend):
    sizes = (5, 3, 5)
    own = Coder(model(sizes), sizes)
    assert np.array_equal(own.weights, model(sizes))
    own.epoch(np.random.default_rng(0).random((9, 5), np.float32), np.arange(9), batch=4, rate=0.1)
    state = own._state.copy()
    for part in state:
        for layer in _coder_twin.layers(part, np.array(sizes)):
            layer[:] = 0
    assert not state.any()


@needs_c
@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "same"),
    [
        ({"FEDCLUST_PORTABLE": "1"}, {"avx512", "avx2"}),
        ({"CFLAGS": "-DLANES=4"}, {"base"}),
        ({"CFLAGS": "-DLANES=1"}, set()),
    ],
)
def test_every_build_ends_at_the_same_place(tmp_path, monkeypatch, environment, same):
    module = built("_coder", tmp_path, **environment)
    sizes = (70, 21, 9, 21, 70)
    expected = trained("c", sizes, 90, 32)
    monkeypatch.setattr(autoencoder_kernel, "_compiled", module)
    bits = set()
    for name in chosen(module):
        weights, losses = trained("c", sizes, 90, 32)
        assert np.abs(weights - expected[0]).max() < 1e-5, name
        assert np.allclose(losses, expected[1], rtol=1e-6), name
        bits |= {weights.tobytes()} if name in same else set()
    assert bits <= {expected[0].tobytes()}, "the width of vectors shows"
