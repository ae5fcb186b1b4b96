"""Deep embedded clustering: an encoder learns to reconstruct, then is pulled to the clusters that k-means finds in it.

    pretraining   layer by layer as denoising autoencoders (20% of the inputs dropped), then all layers together
    clusters      q_ij ~ 1 / (1 + |z_i - mu_j|^2), rows sum to 1;  p_ij ~ q_ij^2 / sum_i q_ij, rows sum to 1
    refinement    KL(P || Q) by stochastic gradient; P is computed again from all rows every `refresh` steps; stop where
                  fewer than .1% of the rows changed their cluster since the last time

Paper: Xie, Girshick and Farhadi, "Unsupervised deep embedding for clustering analysis" (2016). Numbers of steps are
parameters, `PUBLISHED_SCHEDULE` has the paper's. Pretraining begins from Glorot's weights and descends by Adam: the
paper's
tiny weights and its rates need its very many steps.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.algorithms.autoencoders.autoencoder import import_torch
from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import DataError, StudyError
from fedclust.core.types import Array, Floats, Ints

ENCODER_SIZES = (500, 500, 2000, 10)
MOMENTUM = 0.9
ENCODE_CHUNK_ROWS = 4096  # rows that are encoded together


@dataclass(frozen=True)
class DecSchedule:
    """How many steps of which size; a step is one batch."""

    layer_steps: int = 500
    fine_steps: int = 2_000
    batch: int = 256
    pretrain_rate: float = 1e-3
    dropped: float = 0.2
    rate: float = 0.01
    refresh: int = 140
    tolerance: float = 0.001
    steps: int = 20_000
    restarts: int = 20


PUBLISHED_SCHEDULE = DecSchedule(layer_steps=50_000, fine_steps=100_000)


@dataclass(frozen=True)
class Embedding:
    """A fitted encoder, layer after layer, with its clusters."""

    layers: tuple[NDArray[np.float32], ...]  # matrix, bias, matrix, bias, ...
    scale: float
    centers: NDArray[np.float32]
    labels: Ints
    steps: int  # of refinement
    settled: bool

    def encode(self, rows: Array) -> NDArray[np.float32]:
        """Where rows lie in the code."""
        z = np.asarray(rows, np.float32) * np.float32(self.scale)
        for at in range(0, len(self.layers), 2):
            z = z @ self.layers[at] + self.layers[at + 1]
            if at + 2 < len(self.layers):
                z = np.maximum(z, 0)
        return z

    def memberships(self, rows: Array) -> Floats:
        """The degree to which each row belongs to each cluster (rows, clusters)."""
        return soft_memberships(self.encode(rows), self.centers)


def soft_memberships(codes: Array, centers: Array) -> Floats:
    """Student's t similarities of codes to centres, each row summing to 1.

    >>> soft_memberships(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4).tolist()
    [[0.6667, 0.3333]]
    """
    near = 1.0 / (1.0 + ((codes[:, None].astype(np.float64) - centers[None]) ** 2).sum(axis=2))
    return np.asarray(near / near.sum(axis=1, keepdims=True), np.float64)


def target_memberships(q: Floats) -> Floats:
    """The sharpened memberships that refinement aims at.

    >>> target_memberships(np.array([[0.8, 0.2], [0.4, 0.6]])).round(4).tolist()
    [[0.9143, 0.0857], [0.2286, 0.7714]]
    """
    weight = q**2 / q.sum(axis=0)
    return np.asarray(weight / weight.sum(axis=1, keepdims=True), np.float64)


def fit(
    rows: Array,
    clusters: int,
    *,
    seed: int = 0,
    schedule: DecSchedule | None = None,
    encoder: Sequence[int] = ENCODER_SIZES,
    device: str = "cpu",
) -> Embedding:
    """Cluster rows; the encoder's layers are d-500-500-2000-10 unless said otherwise."""
    return fit_each(rows, [clusters], seed=seed, schedule=schedule, encoder=encoder, device=device)[clusters]


def fit_each(
    rows: Array,
    counts: Iterable[int],
    *,
    seed: int = 0,
    schedule: DecSchedule | None = None,
    encoder: Sequence[int] = ENCODER_SIZES,
    device: str = "cpu",
) -> dict[int, Embedding]:
    """For each number of clusters what `fit` gives; pretraining knows nothing of clusters, and is done once."""
    wanted = list(counts)
    for count in wanted:
        if not 1 <= count <= len(rows):
            raise DataError(
                f"n_clusters is {count}, but the table has only {count_noun(len(rows), 'row')}; ask for "
                f"1 to {len(rows)} clusters"
            )
    one = _Training(rows, seed, schedule or DecSchedule(), encoder, device)
    one.pretrain()
    return {count: one.find_clusters(count) for count in wanted}


class _Training:
    """One run: the rows on a device, the layers being trained, a stream of batches."""

    def __init__(self, rows: Array, seed: int, schedule: DecSchedule, encoder: Sequence[int], device: str) -> None:
        self.torch = import_torch()
        if device.startswith("cuda") and not self.torch.cuda.is_available():
            raise StudyError("device is 'cuda', but torch finds no CUDA device on this machine; set device to 'cpu'")
        self.device, self.schedule, self.seed = device, schedule, seed
        self.rng = np.random.default_rng(seed)
        self.noise = self.torch.Generator(device).manual_seed(int(self.rng.integers(2**62)))
        square = float((np.asarray(rows, np.float64) ** 2).mean()) if len(rows) else 1.0
        self.scale = float(1.0 / np.sqrt(square)) if square > 0 else 1.0  # so that |x|^2 / d is about 1
        self.X = self.torch.as_tensor(np.asarray(rows, np.float32) * np.float32(self.scale), device=device)
        sizes = (self.X.shape[1], *encoder)
        self.down = [self._layer(a, b) for a, b in pairwise(sizes)]
        self.up = [self._layer(b, a) for a, b in pairwise(sizes)]

    def find_clusters(self, count: int) -> Embedding:
        """Clusters from the encoder as it is now, which is put back afterwards."""
        from sklearn.cluster import KMeans  # noqa: PLC0415 slow to import

        kept, stream = [[part.detach().clone() for part in layer] for layer in self.down], copy.deepcopy(self.rng)
        start = KMeans(count, n_init=self.schedule.restarts, random_state=self.seed).fit(self._encode_all())
        centers = self.torch.tensor(start.cluster_centers_, dtype=self.torch.float32, device=self.device)
        labels, steps, settled = self._refine(centers.requires_grad_())
        layers = tuple(part.detach().cpu().numpy() for layer in self.down for part in layer)
        self.down, self.rng = [[part.requires_grad_() for part in layer] for layer in kept], stream
        return Embedding(layers, self.scale, centers.detach().cpu().numpy(), labels, steps, settled)

    def _layer(self, a: int, b: int) -> list[Any]:
        reach = np.sqrt(6.0 / (a + b))
        matrix = self.torch.tensor(
            self.rng.uniform(-reach, reach, (a, b)), dtype=self.torch.float32, device=self.device
        )
        return [matrix.requires_grad_(), self.torch.zeros(b, device=self.device, requires_grad=True)]

    def _batches(self, count: int) -> Any:
        """Batches of row numbers, all rows in a new order each time around."""
        size = min(self.schedule.batch, len(self.X))
        order, at = self.rng.permutation(len(self.X)), 0
        for _ in range(count):
            if at + size > len(order):
                order, at = self.rng.permutation(len(self.X)), 0
            yield self.torch.as_tensor(order[at : at + size], device=self.device)
            at += size

    def pretrain(self) -> None:
        """Each layer learns to repair the output of those below it; then all learn together, without noise."""
        inputs = self.X
        for number, (down, up) in enumerate(zip(self.down, self.up, strict=True)):
            last, first = number == len(self.down) - 1, number == 0
            adam = self.torch.optim.Adam([*down, *up], lr=self.schedule.pretrain_rate)
            for rows in self._batches(self.schedule.layer_steps):
                x = inputs[rows]
                code = self._apply_layer(down, self._drop_inputs(x), linear=last)
                back = self._apply_layer(up, code if last else self._drop_inputs(code), linear=first)
                self._descend(adam, ((back - x) ** 2).mean())
            with self.torch.no_grad():
                inputs = self._apply_layer(down, inputs, linear=last)
        adam = self.torch.optim.Adam(
            [p for pair in (*self.down, *self.up) for p in pair], lr=self.schedule.pretrain_rate
        )
        for rows in self._batches(self.schedule.fine_steps):
            x = self.X[rows]
            self._descend(adam, ((self._decode(self._encode(x)) - x) ** 2).mean())

    def _refine(self, centers: Any) -> tuple[Ints, int, bool]:
        """Descend KL(P || Q); clusters, steps, and whether they had settled."""
        torch, how = self.torch, self.schedule
        parameters = [centers, *(p for layer in self.down for p in layer)]
        descent = torch.optim.SGD(parameters, lr=how.rate, momentum=MOMENTUM)
        labels = self._current_labels(centers)
        for done in range(0, how.steps, how.refresh):
            q = soft_memberships(self._encode_all(), centers.detach().cpu().numpy())
            now = np.asarray(q.argmax(axis=1), np.int64)
            # The first look is at k-means' own clusters; only from the second on has anything had time to change.
            if done and (now != labels).mean() < how.tolerance:
                return now, done, True
            labels = now
            aim = torch.tensor(target_memberships(q), dtype=torch.float32, device=self.device)
            for rows in self._batches(min(how.refresh, how.steps - done)):
                z = self._encode(self.X[rows])
                near = 1.0 / (1.0 + ((z[:, None] - centers[None]) ** 2).sum(dim=2))
                logs = torch.log(near / near.sum(dim=1, keepdim=True))
                p = aim[rows]
                self._descend(descent, (p * (torch.log(p.clamp(min=1e-12)) - logs)).sum(dim=1).mean())
        return self._current_labels(centers), how.steps, False

    def _current_labels(self, centers: Any) -> Ints:
        return np.asarray(soft_memberships(self._encode_all(), centers.detach().cpu().numpy()).argmax(axis=1), np.int64)

    def _descend(self, optimiser: Any, loss: Any) -> None:
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    def _drop_inputs(self, x: Any) -> Any:
        """Dropout, by a stream of its own on the device: most of what is drawn is this."""
        drawn = self.torch.rand(x.shape, generator=self.noise, device=self.device)
        return x * (drawn >= self.schedule.dropped) / (1.0 - self.schedule.dropped)

    def _apply_layer(self, layer: list[Any], x: Any, *, linear: bool) -> Any:
        z = self.torch.addmm(layer[1], x, layer[0])
        return z if linear else self.torch.relu(z)

    def _encode(self, x: Any) -> Any:
        for number, layer in enumerate(self.down, start=1):
            x = self._apply_layer(layer, x, linear=number == len(self.down))
        return x

    def _decode(self, z: Any) -> Any:
        for number in range(len(self.up) - 1, -1, -1):
            z = self._apply_layer(self.up[number], z, linear=number == 0)
        return z

    def _encode_all(self) -> Array:
        with self.torch.no_grad():
            parts = [
                self._encode(self.X[at : at + ENCODE_CHUNK_ROWS]) for at in range(0, len(self.X), ENCODE_CHUNK_ROWS)
            ]
            return np.asarray(self.torch.cat(parts).cpu().numpy())
