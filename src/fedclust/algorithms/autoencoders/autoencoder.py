"""Many small autoencoders trained together, each as if it were trained alone.

Model i is a row of weights; its layers are h <- f(b_l + h W_l), ReLU but for the last, which is a sigmoid. On a GPU all
models are one stacked model, a layer of all of them one batched product (`StackedModels`); those with fewer rows rest
while the
others finish an epoch. On a CPU each keeps to one thread and its caches (`Coder`). torch is imported when a farm is
made, not before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.algorithms.autoencoders.stacked_models import StackedModels
from fedclust.core.errors import StudyError
from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels.autoencoder_kernel import Coder, share_models

Weights = NDArray[np.float32]
HIDDEN_LAYERS = (100, 64, 32)  # the paper's encoder; the decoder mirrors it
ERROR_CHUNK_VALUES = 1 << 26  # values of one layer while errors are measured


def import_torch() -> Any:
    """The torch module, or a sentence that says how to get it."""
    try:
        import torch  # noqa: PLC0415 an extra, and slow to load
    except ModuleNotFoundError:
        raise StudyError("deep clustering needs torch; install it with: pip install 'fedclust[deep]'") from None
    return torch


def layers(width: int, hidden: Sequence[int] = HIDDEN_LAYERS) -> tuple[int, ...]:
    """The sizes of all layers for rows of so many values; narrow rows get layers that still compress.

    >>> layers(784)
    (784, 100, 64, 32, 64, 100, 784)
    >>> layers(8)
    (8, 6, 4, 2, 4, 6, 8)
    """
    shares = np.linspace(0.75, 0.25, len(hidden)) if len(hidden) > 1 else [0.5]
    down = [min(h, max(1 if h == hidden[-1] else 2, int(width * s))) for h, s in zip(hidden, shares, strict=True)]
    return (width, *down, *down[-2::-1], width)


def count_weights(sizes: Sequence[int]) -> int:
    """How many weights a model has.

    >>> count_weights((4, 2, 4))
    22
    """
    return sum((a + 1) * b for a, b in pairwise(sizes))


def draw_weights(sizes: Sequence[int], rng: np.random.Generator) -> Weights:
    """The weights of one model before training: uniform within sqrt(6 / (in + out)) (Glorot), biases zero."""
    parts = []
    for a, b in pairwise(sizes):
        reach = math.sqrt(6.0 / (a + b))
        parts += [rng.uniform(-reach, reach, a * b), np.zeros(b)]
    return np.concatenate(parts).astype(np.float32)


@dataclass(frozen=True)
class Schedule:
    """How models train: Adam on the mean squared error of batches, until the loss of an epoch stalls."""

    epochs: int = 20
    batch: int = 32
    rate: float = 1e-3
    patience: int | None = 4  # epochs without a lower training loss; None: never stop early


class AutoencoderTrainer:
    """Rows on a device, and models of one architecture to train on parts of them.

    Weights go in and come out as arrays (models, weights), or stay on the device as tensors.
    """

    def __init__(self, rows: Array, sizes: Sequence[int], device: str = "cpu") -> None:
        self.torch = import_torch()
        if device.startswith("cuda") and not self.torch.cuda.is_available():
            raise StudyError("device is 'cuda', but torch finds no CUDA device on this machine; set device to 'cpu'")
        self.device = device
        self.sizes = tuple(sizes)
        self.rows = self.to_tensor(rows)

    def to_tensor(self, weights: Any) -> Any:
        """Weights, or rows, as a tensor on the device."""
        if self.torch.is_tensor(weights):
            return weights
        held = np.array(weights, np.float32, order="C")  # a copy: what came is not ours
        return self.torch.from_numpy(held).to(self.device)

    def train(
        self,
        weights: Any,
        members: Sequence[Ints],
        streams: Sequence[np.random.Generator],
        schedule: Schedule | None = None,
    ) -> tuple[Any, Floats]:
        """Train model i on the rows `members[i]`, in an order that `streams[i]` draws; weights and last losses.

        A model without rows stays as it is, with loss 0.
        """
        schedule = schedule or Schedule()
        given = self.to_tensor(weights)
        done, losses = given.clone(), np.zeros(len(members))
        # The largest first: of a stack those still at work are always the first ones, and no thread ends much later.
        order = np.argsort([-len(own) for own in members], kind="stable")
        order = np.array([i for i in order if len(members[i])], np.int64)
        if self.device == "cpu":
            places = done.numpy()

            def work(some: Iterator[int]) -> None:
                for i in some:
                    places[i], losses[i] = self._train_one(places[i], members[i], streams[i], schedule)

            share_models(order.tolist(), work)
        elif len(order):
            with self.torch.no_grad():
                some = self.torch.as_tensor(order, device=self.device)
                stack = StackedModels(
                    self, given[some], [members[i] for i in order], [streams[i] for i in order], schedule
                )
                losses[order] = stack.run(done, order)
        return (done if self.torch.is_tensor(weights) else done.cpu().numpy()), losses

    def _train_one(
        self, weights: Weights, own: Ints, stream: np.random.Generator, schedule: Schedule
    ) -> tuple[Weights, float]:
        """One model from first to last epoch, in the compiled loop."""
        model, rows = Coder(weights, self.sizes), self.rows.numpy()
        loss, best, since = 0.0, math.inf, 0
        for _ in range(schedule.epochs):
            loss = model.epoch(rows, own[stream.permutation(len(own))], batch=schedule.batch, rate=schedule.rate)
            best, since = (loss, 0) if loss < best else (best, since + 1)
            if schedule.patience is not None and since >= schedule.patience:
                break
        return model.weights, loss

    def errors(self, weights: Any, rows: Ints | None = None) -> NDArray[np.float32]:
        """The mean squared error of each model on each row: (models, rows)."""
        torch, held = self.torch, self.to_tensor(weights)
        X = self.rows if rows is None else self.rows[torch.as_tensor(rows, device=self.device)]
        out = np.empty((len(held), len(X)), np.float32)
        step = max(1, ERROR_CHUNK_VALUES // max(1, self.sizes[0] * max(len(X), 1)))
        piece = max(1, ERROR_CHUNK_VALUES // self.sizes[0])
        with torch.no_grad():
            for at in range(0, len(held), step):
                some = held[at : at + step]
                for start in range(0, len(X), piece):
                    x = X[None, start : start + piece].expand(len(some), -1, -1)
                    off = self.forward(some, x)[-1] - x
                    out[at : at + step, start : start + piece] = (off * off).mean(dim=2).cpu().numpy()
        return out

    def layer_views(self, weights: Any) -> list[tuple[Any, Any]]:
        """Views of stacked weights: for each layer the matrices (models, in, out) and the biases (models, 1, out)."""
        found, at, count = [], 0, len(weights)
        for a, b in pairwise(self.sizes):
            matrix = weights[:, at : at + a * b].view(count, a, b)
            bias = weights[:, at + a * b : at + (a + 1) * b].view(count, 1, b)
            found.append((matrix, bias))
            at += (a + 1) * b
        return found

    def forward(self, weights: Any, x: Any) -> list[Any]:
        """What each layer gives, the rows themselves first."""
        return self.forward_layers(self.layer_views(weights), x)

    def forward_layers(self, parts: Sequence[tuple[Any, Any]], x: Any) -> list[Any]:
        """The same from `parts` of the weights."""
        found = [x]
        for number, (matrix, bias) in enumerate(parts, start=1):
            z = self.torch.baddbmm(bias, found[-1], matrix)
            found.append(z.sigmoid_() if number == len(parts) else z.relu_())
        return found


def encode_rows(
    rows: Array, *, seed: int, device: str = "cpu", schedule: Schedule | None = None
) -> NDArray[np.float32]:
    """The rows in the innermost layer of one autoencoder trained on all of them."""
    sizes = layers(rows.shape[1])
    trainer, rng = AutoencoderTrainer(rows, sizes, device), np.random.default_rng(seed)
    weights, _ = trainer.train(draw_weights(sizes, rng)[None], [np.arange(len(rows))], [rng], schedule)
    with trainer.torch.no_grad():
        codes = trainer.forward(trainer.to_tensor(weights), trainer.rows[None])[len(sizes) // 2][0]
    return np.asarray(codes.cpu().numpy(), np.float32)


def train_one_by_one(
    rows: Array,
    sizes: Sequence[int],
    weights: Weights,
    *,
    members: Sequence[Ints],
    streams: Sequence[np.random.Generator],
    schedule: Schedule,
    device: str = "cpu",
) -> Weights:
    """What `AutoencoderTrainer.train` does, one model after the other by torch's own layers and optimiser: the
    yardstick for it.
    """
    torch = import_torch()
    X = torch.tensor(np.ascontiguousarray(rows, np.float32), device=device)
    found = np.array(weights, np.float32)
    for own, stream, place in zip(members, streams, found, strict=True):
        net, parts = _network(torch, sizes, place, device)
        adam = torch.optim.Adam(net.parameters(), lr=schedule.rate)
        best, since = math.inf, 0
        for _ in range(schedule.epochs if len(own) else 0):
            order, loss = own[stream.permutation(len(own))], 0.0
            for at in range(0, len(own), schedule.batch):
                x = X[torch.as_tensor(order[at : at + schedule.batch], device=device)]
                adam.zero_grad()
                error = torch.nn.functional.mse_loss(net(x), x)
                error.backward()
                adam.step()
                loss += error.item() * len(x) / len(own)
            best, since = (loss, 0) if loss < best else (best, since + 1)
            if schedule.patience is not None and since >= schedule.patience:
                break
        place[:] = np.concatenate([part.detach().cpu().numpy().T.ravel() for part in parts])
    return found


def _network(torch: Any, sizes: Sequence[int], weights: Weights, device: str) -> tuple[Any, list[Any]]:
    """One model of torch's own making, and its matrices and biases in the order of our weights."""
    modules, parts, at = [], [], 0
    for a, b in pairwise(sizes):
        layer = torch.nn.Linear(a, b, device=device)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weights[at : at + a * b].reshape(a, b).T.copy()))
            layer.bias.copy_(torch.from_numpy(weights[at + a * b : at + (a + 1) * b].copy()))
        at += (a + 1) * b
        modules += [layer, torch.nn.ReLU()]
        parts += [layer.weight, layer.bias]
    return torch.nn.Sequential(*modules[:-1], torch.nn.Sigmoid()), parts
