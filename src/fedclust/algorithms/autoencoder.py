"""Many small autoencoders trained as one stacked model, each as if it were trained alone.

Model i is a row of weights; layer l of all models is one batched product, h <- f(b_l + h W_l), ReLU but for the last,
which is a sigmoid. Each model has batches of its own; those with fewer rows rest while the others finish an epoch.
On CPU and CUDA alike; torch is imported when a farm is made, not before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.core.errors import StudyError
from fedclust.core.types import Array, Floats, Ints

Weights = NDArray[np.float32]
HIDDEN = (100, 64, 32)  # the paper's encoder; the decoder mirrors it
CPU_CACHED = 6_000_000  # weights, slopes and moments, of all models that train together, that a CPU's caches hold
MIN_STACK = 4  # models that train together on a CPU, however large: fewer would wait for Python
ERRORS_AT_ONCE = 1 << 26  # values of one layer while errors are measured


def torch_() -> Any:
    """The torch module, or a sentence that says how to get it."""
    try:
        import torch  # noqa: PLC0415 an extra, and slow to load
    except ModuleNotFoundError:
        raise StudyError("deep clustering needs torch; install it with: pip install 'fedclust[deep]'") from None
    return torch


def layers(width: int, hidden: Sequence[int] = HIDDEN) -> tuple[int, ...]:
    """The sizes of all layers for rows of so many values; narrow rows get layers that still compress.

    >>> layers(784)
    (784, 100, 64, 32, 64, 100, 784)
    >>> layers(8)
    (8, 6, 4, 2, 4, 6, 8)
    """
    shares = np.linspace(0.75, 0.25, len(hidden)) if len(hidden) > 1 else [0.5]
    down = [min(h, max(1 if h == hidden[-1] else 2, int(width * s))) for h, s in zip(hidden, shares, strict=True)]
    return (width, *down, *down[-2::-1], width)


def length(sizes: Sequence[int]) -> int:
    """How many weights a model has.

    >>> length((4, 2, 4))
    22
    """
    return sum((a + 1) * b for a, b in pairwise(sizes))


def drawn(sizes: Sequence[int], rng: np.random.Generator) -> Weights:
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


class Farm:
    """Rows on a device, and models of one architecture to train on parts of them.

    Weights go in and come out as arrays (models, weights), or stay on the device as tensors.
    """

    def __init__(self, rows: Array, sizes: Sequence[int], device: str = "cpu") -> None:
        self.torch = torch_()
        if device.startswith("cuda") and not self.torch.cuda.is_available():
            raise StudyError("device is 'cuda', and torch finds no such device here; set device to 'cpu'")
        self.device = device
        self.sizes = tuple(sizes)
        self.rows = self.hold(rows)

    def hold(self, weights: Any) -> Any:
        """Weights, or rows, as a tensor on the device."""
        if self.torch.is_tensor(weights):
            return weights
        held = np.array(weights, np.float32, order="C")  # a copy: what came is not ours
        return self.torch.from_numpy(held).to(self.device)

    def room(self, *shape: int) -> Any:
        """Fresh memory on the device; on a CPU by NumPy, which asks for large pages where torch does not."""
        if self.device == "cpu":
            return self.torch.from_numpy(np.empty(shape, np.float32))
        return self.torch.empty(shape, device=self.device)

    def train(
        self,
        weights: Any,
        members: Sequence[Ints],
        streams: Sequence[np.random.Generator],
        how: Schedule | None = None,
        stack: int | None = None,
    ) -> tuple[Any, Floats]:
        """Train model i on the rows `members[i]`, in an order that `streams[i]` draws; weights and last losses.

        A model without rows stays as it is, with loss 0.
        """
        how = how or Schedule()
        given = self.hold(weights)
        done, losses = self.room(*given.shape), np.zeros(len(members))
        idle = [i for i, own in enumerate(members) if not len(own)]
        done[idle] = given[idle]
        # Models of like size train together, the largest first: those still at work are always the first ones.
        order = np.argsort([-len(own) for own in members], kind="stable")
        order = np.array([i for i in order if len(members[i])], np.int64)
        pens = self._pens(order, stack)
        # Taken once: fresh memory costs a page fault every few kilobytes, and what was just in use is in the cache.
        rooms: SimpleQueue[Any] = SimpleQueue()
        threads = min(self._threads(), len(pens))
        for _ in range(threads):
            rooms.put(self.room(4, max(map(len, pens)) * given.shape[1]))

        def trained(some: Ints) -> None:
            room = rooms.get()
            with self.torch.no_grad():
                pen = _Pen(self, room, [members[i] for i in some], [streams[i] for i in some], how)
                losses[some] = pen.run(given, done, some)
            rooms.put(room)

        self._at_once(trained, pens, threads)
        return (done if self.torch.is_tensor(weights) else done.cpu().numpy()), losses

    def _threads(self) -> int:
        return int(self.torch.get_num_threads()) if self.device == "cpu" else 1

    def _pens(self, order: Ints, most: int | None) -> list[Ints]:
        """Models that train together: on a CPU as many as it caches, and as many pens as keep all its threads busy."""
        if self.device != "cpu" and most is None:
            return [order] if len(order) else []
        most = most or max(MIN_STACK, CPU_CACHED // (4 * length(self.sizes)))
        rounds = -(-len(order) // (most * self._threads()))
        return [own for own in np.array_split(order, max(1, rounds * self._threads())) if len(own)]

    def _at_once(self, work: Callable[[Ints], None], pens: Sequence[Ints], threads: int) -> None:
        """Pens side by side, a thread each: threads within a product wait for one another time and again."""
        if threads < 2:
            for own in pens:
                work(own)
            return
        every = self._threads()

        def alone(own: Ints) -> None:
            self.torch.set_num_threads(1)  # of this thread
            work(own)

        try:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(alone, pens))
        finally:
            self.torch.set_num_threads(every)  # of this thread, and of those to come

    def errors(self, weights: Any, rows: Ints | None = None) -> NDArray[np.float32]:
        """The mean squared error of each model on each row: (models, rows)."""
        torch, held = self.torch, self.hold(weights)
        X = self.rows if rows is None else self.rows[torch.as_tensor(rows, device=self.device)]
        out = np.empty((len(held), len(X)), np.float32)
        step = max(1, ERRORS_AT_ONCE // max(1, self.sizes[0] * max(len(X), 1)))
        piece = max(1, ERRORS_AT_ONCE // self.sizes[0])
        with torch.no_grad():
            for at in range(0, len(held), step):
                some = held[at : at + step]
                for start in range(0, len(X), piece):
                    x = X[None, start : start + piece].expand(len(some), -1, -1)
                    off = self.forward(some, x)[-1] - x
                    out[at : at + step, start : start + piece] = (off * off).mean(dim=2).cpu().numpy()
        return out

    def parts(self, weights: Any) -> list[tuple[Any, Any]]:
        """Views of stacked weights: for each layer the matrices (models, in, out) and the biases (models, 1, out)."""
        found, at, count = [], 0, len(weights)
        for a, b in pairwise(self.sizes):
            matrix = weights[:, at : at + a * b].view(count, a, b)
            bias = weights[:, at + a * b : at + (a + 1) * b].view(count, 1, b)
            found.append((matrix, bias))
            at += (a + 1) * b
        return found

    def layered(self, flat: Any, count: int) -> list[Any]:
        """The same of so many models, matrices and biases in turn, but each a block of its own in a row of numbers.

        Products that are written into such blocks are done for all models at once, others one after the other.
        """
        shapes = [shape for a, b in pairwise(self.sizes) for shape in ((count, a, b), (count, 1, b))]
        blocks = flat.split([math.prod(shape) for shape in shapes])
        return [block.view(shape) for block, shape in zip(blocks, shapes, strict=True)]

    def forward(self, weights: Any, x: Any) -> list[Any]:
        """What each layer gives, the rows themselves first."""
        return self.through(self.parts(weights), x)

    def through(self, parts: Sequence[tuple[Any, Any]], x: Any) -> list[Any]:
        """The same from `parts` of the weights."""
        found = [x]
        for number, (matrix, bias) in enumerate(parts, start=1):
            z = self.torch.baddbmm(bias, found[-1], matrix)
            found.append(z.sigmoid_() if number == len(parts) else z.relu_())
        return found


def encoded(rows: Array, *, seed: int, device: str = "cpu", how: Schedule | None = None) -> NDArray[np.float32]:
    """The rows in the innermost layer of one autoencoder trained on all of them."""
    sizes = layers(rows.shape[1])
    farm, rng = Farm(rows, sizes, device), np.random.default_rng(seed)
    weights, _ = farm.train(drawn(sizes, rng)[None], [np.arange(len(rows))], [rng], how)
    with farm.torch.no_grad():
        codes = farm.forward(farm.hold(weights), farm.rows[None])[len(sizes) // 2][0]
    return np.asarray(codes.cpu().numpy(), np.float32)


def looped(
    rows: Array,
    sizes: Sequence[int],
    weights: Weights,
    *,
    members: Sequence[Ints],
    streams: Sequence[np.random.Generator],
    how: Schedule,
    device: str = "cpu",
) -> Weights:
    """What `Farm.train` does, one model after the other by torch's own layers and optimiser: the yardstick for it."""
    torch = torch_()
    X = torch.tensor(np.ascontiguousarray(rows, np.float32), device=device)
    found = np.array(weights, np.float32)
    for own, stream, place in zip(members, streams, found, strict=True):
        net, parts = _network(torch, sizes, place, device)
        adam = torch.optim.Adam(net.parameters(), lr=how.rate)
        best, since = math.inf, 0
        for _ in range(how.epochs if len(own) else 0):
            order, loss = own[stream.permutation(len(own))], 0.0
            for at in range(0, len(own), how.batch):
                x = X[torch.as_tensor(order[at : at + how.batch], device=device)]
                adam.zero_grad()
                error = torch.nn.functional.mse_loss(net(x), x)
                error.backward()
                adam.step()
                loss += error.item() * len(x) / len(own)
            best, since = (loss, 0) if loss < best else (best, since + 1)
            if how.patience is not None and since >= how.patience:
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


class _Pen:
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
        self.flat = [own[: count * length(self.farm.sizes)] for own in room]  # weights, slopes, means, squares
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
