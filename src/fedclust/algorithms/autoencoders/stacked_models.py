"""All models of a run as one stacked model: batch by batch through all layers and back, then a step of Adam.

See `autoencoder`: its `AutoencoderTrainer` trains like this on devices that are fast at few, large products.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fedclust.core.types import Array, Floats, Ints

if TYPE_CHECKING:
    from fedclust.algorithms.autoencoders.autoencoder import AutoencoderTrainer, Schedule


class StackedModels:
    """Models that train together, the one with most rows first; a row of weights, slopes and moments each."""

    def __init__(
        self,
        trainer: AutoencoderTrainer,
        weights: Any,
        members: list[Ints],
        streams: list[np.random.Generator],
        schedule: Schedule,
    ) -> None:
        self.trainer, self.schedule = trainer, schedule
        self.members, self.streams = members, streams
        self.weights, self.gradients = weights, trainer.torch.empty_like(weights)  # the weights are overwritten
        self.means, self.squares = trainer.torch.zeros_like(weights), trainer.torch.zeros_like(weights)
        self.steps = np.zeros(len(members), np.int64)
        most = schedule.epochs * -(-max(len(own) for own in members) // schedule.batch)
        self.step_numbers = trainer.torch.arange(most + 1, dtype=trainer.torch.float32, device=trainer.device)
        self.views: dict[int, tuple[Any, Any]] = {}

    def run(self, done: Any, places: Ints) -> Floats:
        """Epoch after epoch; a model whose loss stalls goes to its place in `done`, and makes room; last losses."""
        losses, left = np.zeros(len(places)), np.arange(len(places))
        best, since = np.full(len(left), math.inf), np.zeros(len(left), np.int64)
        for _ in range(self.schedule.epochs):
            loss = self._epoch()
            losses[left] = loss
            better = loss < best
            best, since = np.where(better, loss, best), np.where(better, 0, since + 1)
            going = np.ones(len(left), bool) if self.schedule.patience is None else since < self.schedule.patience
            if not going.all():
                done[self._index(places[left[~going]])] = self.weights[self._index(~going)]
                self._keep_models(going)
                left, best, since = left[going], best[going], since[going]
            if not len(left):
                break
        done[self._index(places[left])] = self.weights
        return losses

    def _index(self, which: Array) -> Any:
        return self.trainer.torch.as_tensor(which, device=self.trainer.device)

    def _keep_models(self, going: Array) -> None:
        keep = self._index(going)
        self.weights, self.means, self.squares = self.weights[keep], self.means[keep], self.squares[keep]
        self.gradients = self.gradients[: len(self.weights)]
        self.views.clear()
        where = np.flatnonzero(going)
        self.members = [self.members[i] for i in where]
        self.streams = [self.streams[i] for i in where]
        self.steps = self.steps[going]

    def _epoch(self) -> Floats:
        """One pass of every model over its rows; the mean loss of each on the way."""
        torch, size = self.trainer.torch, self.schedule.batch
        counts = np.array([len(own) for own in self.members])
        batches = -(-counts // size)
        order = np.zeros((len(counts), int(batches[0]) * size), np.int64)
        for row, own, stream in zip(order, self.members, self.streams, strict=True):
            row[: len(own)] = own[stream.permutation(len(own))]
        ids = torch.as_tensor(order, device=self.trainer.device)
        # Of each batch: its rows, and 2 / (rows x columns), the slope of a mean of squares, rounded once as torch does.
        shares = np.clip(counts[:, None] - size * np.arange(batches[0]), 0, size)
        scales = (2.0 / (np.maximum(shares, 1) * self.trainer.sizes[0])).astype(np.float32)
        held = torch.as_tensor(shares, device=self.trainer.device)
        scaled = torch.as_tensor(scales, device=self.trainer.device)
        losses = torch.zeros(len(counts), device=self.trainer.device)
        place = torch.arange(size, device=self.trainer.device)
        for number in range(int(batches[0])):
            share = shares[:, number]
            active, wide = int((share > 0).sum()), int(share[0])
            # Who has fewer rows in this batch than the first has zeros in their place, and under a mask.
            ragged = bool((share[:active] < wide).any())
            real = (place[:wide] < held[:active, number, None]).to(torch.float32)[:, :, None] if ragged else None
            places = ids[:active, number * size : number * size + wide]
            x = self.trainer.rows.index_select(0, places.reshape(-1)).view(*places.shape, -1)
            losses[:active] += self._step(active, x, real, scaled[:active, number, None, None])
        return np.asarray(losses.cpu().numpy() / (counts * self.trainer.sizes[0]), np.float64)

    def _step(self, active: int, x: Any, real: Any, scale: Any) -> Any:
        """One batch of each model at work: errors back through the layers, then Adam; summed squares of the rows."""
        torch = self.trainer.torch
        parts, slopes = self._views(active)
        found = self.trainer.forward_layers(parts, x)
        out = found[-1]
        off = out - x if real is None else (out - x).mul_(real)
        loss = torch.linalg.vector_norm(off, dim=(1, 2)).square_()
        delta = torch.ops.aten.sigmoid_backward(off.mul_(scale), out, grad_input=off)
        for number in range(len(parts) - 1, -1, -1):
            torch.bmm(found[number].transpose(1, 2), delta, out=slopes[number][0])
            torch.sum(delta, dim=1, keepdim=True, out=slopes[number][1])
            if number == len(parts) - 1:
                # W d^T, not d W^T: of wide layers the library does this one in half the time.
                delta = torch.bmm(parts[number][0], delta.transpose(1, 2)).transpose(1, 2)
            elif number:
                delta = torch.bmm(delta, parts[number][0].transpose(1, 2))
            if number:
                delta = torch.ops.aten.threshold_backward(delta, found[number], 0)  # ReLU lets pass what is above 0
        self._adam(active)
        return loss

    def _views(self, active: int) -> tuple[Any, Any]:
        """The layers of the first models' weights and of their slopes; made once, since making them takes time too."""
        if active not in self.views:
            self.views[active] = (
                self.trainer.layer_views(self.weights[:active]),
                self.trainer.layer_views(self.gradients[:active]),
            )
        return self.views[active]

    def _adam(self, active: int) -> None:
        """Adam in one pass over weights, slopes and moments; neighbours that made as many steps are one tensor."""
        self.steps[:active] += 1
        runs, start = [], 0
        while start < active:
            stop = start + int((self.steps[start:active] == self.steps[start]).argmin() or active - start)
            runs.append(slice(start, stop))
            start = stop
        self.trainer.torch.ops.aten._fused_adam_(  # what torch's own Adam calls, without its wrappings
            [self.weights[run] for run in runs],
            [self.gradients[run] for run in runs],
            [self.means[run] for run in runs],
            [self.squares[run] for run in runs],
            [],
            [self.step_numbers[self.steps[run.start]] for run in runs],
            lr=self.schedule.rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
