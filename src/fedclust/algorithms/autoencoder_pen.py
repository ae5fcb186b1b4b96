"""Models that train together: batch by batch through all layers and back, then a step of Adam.

Beside `autoencoder`, whose `Farm` says which models train together and on what.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedclust.core.types import Array, Floats, Ints

if TYPE_CHECKING:
    from fedclust.algorithms.autoencoder import Farm, Schedule


class Pen:
    """Models that train together, the one with most rows first; a row of `room` each for weights, slopes and moments.

    What is in such a row stands layer after layer, all models' weights of one beside each other.
    """

    def __init__(
        self, farm: Farm, room: Any, members: list[Ints], streams: list[np.random.Generator], how: Schedule
    ) -> None:
        self.farm, self.how = farm, how
        self.members, self.streams = members, streams
        self._settle(room)
        self.steps = np.zeros(len(members), np.int64)
        most = how.epochs * -(-max(len(own) for own in members) // how.batch)
        self.ticks = farm.torch.arange(most + 1, dtype=farm.torch.float32, device=farm.device)

    def _settle(self, room: Any) -> None:
        """Take the places of as many models as there are."""
        count = len(self.members)
        self.flat = [own[: count * self.farm.length] for own in room]  # weights, slopes, means, squares
        self.parts = [self.farm.layered(own, count) for own in self.flat]
        self.views: dict[tuple[int, int], tuple[Any, Any]] = {}
        self.pieces: dict[tuple[int, int], list[list[Any]]] = {}

    def run(self, given: Any, done: Any, places: Ints) -> Floats:
        """Epoch after epoch; a model whose loss stalls goes to its place in `done`, and makes room; last losses."""
        self._begin(given, self._index(places))
        losses, left = np.zeros(len(places)), np.arange(len(places))
        best, since = np.full(len(left), math.inf), np.zeros(len(left), np.int64)
        for _ in range(self.how.epochs):
            loss = self._epoch()
            losses[left] = loss
            better = loss < best
            best, since = np.where(better, loss, best), np.where(better, 0, since + 1)
            going = np.ones(len(left), bool) if self.how.patience is None else since < self.how.patience
            if not going.all():
                self._finish(done, places, left, ~going)
                self._only(going)
                left, best, since = left[going], best[going], since[going]
            if not len(left):
                break
        self._finish(done, places, left, np.ones(len(left), bool))
        return losses

    def _begin(self, given: Any, pick: Any) -> None:
        """Weights as they are given, moments zero."""
        for theirs, ours in zip(self.farm.parts(given), _pairs(self.parts[0]), strict=True):
            for their, own in zip(theirs, ours, strict=True):
                self.farm.torch.index_select(their, 0, pick, out=own)
        self.flat[2].zero_(), self.flat[3].zero_()

    def _finish(self, done: Any, places: Ints, left: Ints, which: Array) -> None:
        """Put the weights of some models where they belong."""
        to, keep = self._index(places[left[which]]), self._index(np.flatnonzero(which))
        for theirs, ours in zip(self.farm.parts(done), _pairs(self.parts[0]), strict=True):
            for their, own in zip(theirs, ours, strict=True):
                their.index_copy_(0, to, own.index_select(0, keep))

    def _index(self, which: Array) -> Any:
        return self.farm.torch.as_tensor(which, device=self.farm.device)

    def _only(self, going: Array) -> None:
        where = np.flatnonzero(going)
        keep = self._index(where)
        weights, means, squares = (
            self.farm.torch.cat([own.index_select(0, keep).flatten() for own in self.parts[which]])
            for which in (0, 2, 3)
        )
        self.members = [self.members[i] for i in where]
        self.streams = [self.streams[i] for i in where]
        self.steps = self.steps[going]
        self._settle([weights, self.flat[1], means, squares])

    def _epoch(self) -> Floats:
        """One pass of every model over its rows; the mean loss of each on the way."""
        torch, size = self.farm.torch, self.how.batch
        counts = np.array([len(own) for own in self.members])
        batches = -(-counts // size)
        order = np.zeros((len(counts), int(batches[0]) * size), np.int64)
        for row, own, stream in zip(order, self.members, self.streams, strict=True):
            row[: len(own)] = own[stream.permutation(len(own))]
        ids = torch.as_tensor(order.reshape(len(counts), -1, size).swapaxes(0, 1).copy(), device=self.farm.device)
        # Of each batch: its rows, and 2 / (rows x columns), the slope of a mean of squares, rounded once as torch does.
        shares = np.clip(counts - size * np.arange(batches[0])[:, None], 0, size)
        scales = (2.0 / (np.maximum(shares, 1) * self.farm.sizes[0])).astype(np.float32)
        held = torch.as_tensor(shares, device=self.farm.device)
        scaled = torch.as_tensor(scales[:, :, None, None], device=self.farm.device)
        losses = torch.zeros(len(counts), device=self.farm.device)
        place = torch.arange(size, device=self.farm.device)
        for number, share in enumerate(shares):
            for some, wide in self._runs(share):
                ragged = self.farm.device != "cpu" and bool((share[some] < wide).any())
                real = (place[:wide] < held[number, some, None]).to(torch.float32)[:, :, None] if ragged else None
                places = ids[number, some, :wide]
                x = self.farm.rows.index_select(0, places.reshape(-1)).view(*places.shape, -1)
                losses[some].add_(self._step(some, x, real, scaled[number, some]))
        return np.asarray(losses.cpu().numpy() / (counts * self.farm.sizes[0]), np.float64)

    def _runs(self, shares: Ints) -> Iterator[tuple[slice, int]]:
        """The models that have a batch, and its width: on a CPU those of equal width, elsewhere all, under a mask.

        Zeros under a mask change no sum, but a CPU adds a wider batch in another order; and Adam's first steps go by
        the sign of a slope, however small.
        """
        active = int((shares > 0).sum())
        if self.farm.device != "cpu":
            yield slice(0, active), int(shares[0])
            return
        start = 0
        while start < active:
            stop = start + int((shares[start:active] == shares[start]).argmin() or active - start)
            yield slice(start, stop), int(shares[start])
            start = stop

    def _step(self, some: slice, x: Any, real: Any, scale: Any) -> Any:
        """One batch of each model at work: errors back through the layers, then Adam; summed squares of the rows."""
        torch = self.farm.torch
        relu_back = torch.ops.aten.threshold_backward.grad_input  # by its full name: to find it takes time, too
        parts, slopes = self._views(some)
        found = self.farm.through(parts, x)
        out = found[-1]
        off = out - x if real is None else (out - x).mul_(real)
        loss = torch.linalg.vector_norm(off, dim=(1, 2)).square_()
        delta = torch.ops.aten.sigmoid_backward.grad_input(off.mul_(scale), out, grad_input=off)
        for number in range(len(parts) - 1, -1, -1):
            torch.bmm(found[number].transpose(1, 2), delta, out=slopes[number][0])
            torch.sum(delta, dim=1, keepdim=True, out=slopes[number][1])
            if number == len(parts) - 1:
                # W d^T, not d W^T: of wide layers the library does this one in half the time.
                delta = torch.bmm(parts[number][0], delta.transpose(1, 2)).transpose(1, 2)
            elif number:
                delta = torch.bmm(delta, parts[number][0].transpose(1, 2))
            if number:
                relu_back(delta, found[number], 0, grad_input=delta)
        self._adam(some)
        return loss

    def _views(self, some: slice) -> tuple[Any, Any]:
        """The layers of some models' weights and of their slopes; made once, since making them takes time too."""
        place = (some.start, some.stop)
        if place not in self.views:
            weights, slopes = ([own[some] for own in parts] for parts in self.parts[:2])
            self.views[place] = (_pairs(weights), _pairs(slopes))
        return self.views[place]

    def _adam(self, some: slice) -> None:
        """Adam in one pass over weights, slopes and moments; neighbours that made as many steps go together."""
        self.steps[some] += 1
        runs = [(self._pieces(run), self.ticks[step]) for run, step in self._equal(some)]
        self.farm.torch.ops.aten._fused_adam_.default(  # what torch's own Adam calls, without its wrappings
            *([own for pieces, _ in runs for own in pieces[which]] for which in range(4)),
            [],
            [tick for pieces, tick in runs for _ in pieces[0]],
            lr=self.how.rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    def _pieces(self, run: slice) -> list[list[Any]]:
        """Some models' weights, slopes and moments, by layer; of all models in one piece."""
        place = (run.start, run.stop)
        if place not in self.pieces:
            whole = place == (0, len(self.members))
            self.pieces[place] = [
                [own] if whole else [p[run] for p in parts] for own, parts in zip(self.flat, self.parts, strict=True)
            ]
        return self.pieces[place]

    def _equal(self, some: slice) -> Iterator[tuple[slice, int]]:
        """Runs of models that made as many steps, and how many."""
        start = some.start
        while start < some.stop:
            stop = start + int((self.steps[start : some.stop] == self.steps[start]).argmin() or some.stop - start)
            yield slice(start, stop), int(self.steps[start])
            start = stop


def _pairs(parts: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Matrices and biases that stand in turn, as pairs."""
    return list(zip(parts[::2], parts[1::2], strict=True))
