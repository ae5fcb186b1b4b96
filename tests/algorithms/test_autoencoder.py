"""Models that train together end where each would end alone."""

import sys
import time
from itertools import pairwise

import numpy as np
import pytest

from fedclust import kernels
from fedclust.algorithms.autoencoders import autoencoder
from fedclust.algorithms.autoencoders.autoencoder import AutoencoderTrainer, Schedule
from fedclust.core.errors import StudyError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'fedclust[deep]'")
torch.set_num_threads(1)
SIZES = (12, 8, 3, 8, 12)


@pytest.fixture
def rows():
    return np.random.default_rng(0).uniform(size=(300, 12)).astype(np.float32)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])  # the second as any other device: all in one batch, under a mask
@pytest.mark.parametrize("patience", [None, 1])
def test_models_end_where_each_ends_alone(rows, patience, device):
    sizes_of = [100, 7, 64, 0, 33]
    cuts = np.cumsum([0, *sizes_of])
    members = [np.arange(a, b) for a, b in pairwise(cuts)]
    starts = np.stack([autoencoder.draw_weights(SIZES, np.random.default_rng(i)) for i in range(5)])
    how = Schedule(epochs=6, rate=0.01, patience=patience)
    trained, losses = AutoencoderTrainer(rows, SIZES, device).train(
        starts, members, [np.random.default_rng(10 + i) for i in range(5)], how
    )
    one_by_one = autoencoder.train_one_by_one(
        rows, SIZES, starts, members=members, streams=[np.random.default_rng(10 + i) for i in range(5)], schedule=how
    )
    assert np.abs(trained - one_by_one).max() < 1e-5
    assert [np.array_equal(a, b) for a, b in zip(trained, starts, strict=True)] == [not n for n in sizes_of]
    assert losses[3] == 0.0
    assert (losses[[0, 1, 2, 4]] > 0).all()


@pytest.fixture
def two_threads():
    before = kernels.threads()
    kernels.set_threads(2)
    yield
    kernels.set_threads(before)


def test_any_number_of_threads_ends_at_the_same_bits(rows, two_threads):
    members = [np.arange(60 * i, 60 * i + 40 + i) for i in range(5)]
    start = np.tile(autoencoder.draw_weights(SIZES, np.random.default_rng(0)), (5, 1))

    def trained():
        return AutoencoderTrainer(rows, SIZES).train(
            start, members, [np.random.default_rng(i) for i in range(5)], Schedule(epochs=4)
        )

    two = trained()
    kernels.set_threads(1)
    one = trained()
    assert two[0].tobytes() == one[0].tobytes()
    assert two[1].tobytes() == one[1].tobytes()


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_all_models_or_some_end_at_the_same_place(rows, device):
    members = [np.arange(60 * i, 60 * i + 40 + 3 * i) for i in range(5)]
    start = np.stack([autoencoder.draw_weights(SIZES, np.random.default_rng(i)) for i in range(5)])
    farm, how = AutoencoderTrainer(rows, SIZES, device), Schedule(epochs=3)
    every, _ = farm.train(start, members, [np.random.default_rng(i) for i in range(5)], how)
    alone = [farm.train(start[i : i + 1], members[i : i + 1], [np.random.default_rng(i)], how)[0] for i in range(5)]
    assert np.abs(every - np.concatenate(alone)).max() <= (0 if device == "cpu" else 1e-5)


def test_nothing_to_train_is_no_error(rows):
    for device in ("cpu", "cpu:0"):
        start = np.tile(autoencoder.draw_weights(SIZES, np.random.default_rng(0)), (2, 1))
        trained, losses = AutoencoderTrainer(rows, SIZES, device).train(
            start, [np.arange(0)] * 2, [np.random.default_rng(0)] * 2
        )
        assert np.array_equal(trained, start)
        assert losses.tolist() == [0.0, 0.0]
        none, losses = AutoencoderTrainer(rows, SIZES, device).train(start[:0], [], [])
        assert none.shape == (0, start.shape[1])
        assert losses.tolist() == []


def test_what_goes_wrong_in_every_thread_is_said_and_nobody_waits(rows, two_threads):
    class Broken:
        def permutation(self, count):
            raise RuntimeError(f"no order of {count}")

    start = np.tile(autoencoder.draw_weights(SIZES, np.random.default_rng(0)), (6, 1))
    with pytest.raises(RuntimeError, match="no order"):
        AutoencoderTrainer(rows, SIZES).train(start, [np.arange(9)] * 6, [Broken()] * 6)


def test_nobody_goes_on_training_after_a_failure(rows, two_threads):
    begun = []

    class Slow:
        def __init__(self, number):
            self.number = number

        def permutation(self, count):
            begun.append(self.number)
            if self.number == 3:
                raise RuntimeError("stop")
            time.sleep(0.05)
            return np.arange(count)

    start = np.tile(autoencoder.draw_weights(SIZES, np.random.default_rng(0)), (60, 1))
    with pytest.raises(RuntimeError, match="stop"):
        AutoencoderTrainer(rows, SIZES).train(
            start, [np.arange(9)] * 60, [Slow(i) for i in range(60)], Schedule(epochs=1)
        )
    time.sleep(1.2)
    assert len(begun) < 20


def test_errors_are_mean_squares_of_what_a_model_gets_wrong():
    # One layer of weights zero: every output is sigmoid(0) = 1/2.
    farm = AutoencoderTrainer(np.array([[0.5, 0.5], [1.0, 0.5], [0.0, 1.0]]), (2, 2))
    errors = farm.errors(np.zeros((1, autoencoder.count_weights((2, 2))), np.float32))
    assert errors.tolist() == [[0.0, 0.125, 0.25]]


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_a_step_of_adam_goes_down_the_slope_by_hand(device):
    # out = sigmoid(0) = 1/2, x = 1: d loss / d z = 2 (1/2 - 1) 1/4 = -1/4 for weight and bias; Adam's first step is
    # rate * g / (|g| + eps), so both rise by the rate.
    farm = AutoencoderTrainer(np.array([[1.0]]), (1, 1), device)
    trained, losses = farm.train(
        np.zeros((1, 2), np.float32), [np.array([0])], [np.random.default_rng(0)], Schedule(epochs=1, rate=0.1)
    )
    assert np.allclose(trained, [[0.1, 0.1]], atol=1e-6)
    assert losses[0] == 0.25


def test_weights_may_stay_on_the_device(rows):
    farm = AutoencoderTrainer(rows, SIZES)
    start = autoencoder.draw_weights(SIZES, np.random.default_rng(0))[None]
    how, own = Schedule(epochs=1), [np.arange(50)]
    array, _ = farm.train(start, own, [np.random.default_rng(1)], how)
    tensor, _ = farm.train(farm.to_tensor(start), own, [np.random.default_rng(1)], how)
    assert isinstance(array, np.ndarray)
    assert np.array_equal(tensor.numpy(), array)
    assert np.array_equal(farm.errors(tensor, np.arange(5)), farm.errors(array)[:, :5])


def test_a_device_that_is_not_there_is_named():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(StudyError, match="set device to 'cpu'"):
        AutoencoderTrainer(np.zeros((1, 2)), (2, 1, 2), "cuda")


def test_without_torch_one_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(StudyError, match=r"pip install 'fedclust\[deep\]'"):
        autoencoder.import_torch()
