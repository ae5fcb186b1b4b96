"""A small autoencoder that trains on a CPU: Adam on the mean squared error of batches.

Layer by layer h <- f(b + h W), ReLU but for the last, which is a sigmoid. The weights and both moments of one model
fit a processor's caches, so one model after the other is faster than all of them abreast. With a compiler's help the
same bits come out whatever the number of threads; NumPy's differ in the last ones, since C fuses multiply and add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.core.types import Array, Ints
from fedclust.kernels import _backend, _coder_twin, _threads

_compiled: Any
try:
    from fedclust.kernels import _coder as _compiled
except ImportError:
    _compiled = _coder_twin


class Coder:
    """One model on its way: weights and moments, each line of a layer padded to whole vectors.

    >>> tiny = Coder(np.zeros(2, np.float32), (1, 1))  # one weight, one bias: out = sigmoid(0) = 1/2
    >>> tiny.epoch(np.ones((1, 1), np.float32), np.array([0]), batch=1, rate=0.25)
    0.25
    >>> tiny.weights.round(6).tolist()  # Adam's first step is the rate, down the slope
    [0.25, 0.25]
    """

    def __init__(self, weights: Array, sizes: Sequence[int]) -> None:
        self._sizes = np.array(sizes, np.int64)
        room = sum((a + 1) * _coder_twin.padded_width(b) for a, b in pairwise(sizes))
        self._state = np.zeros((3, room), np.float32)
        self._steps = 0
        at = 0
        for layer in _coder_twin.layers(self._state[0], self._sizes):
            layer[:] = np.reshape(weights[at : at + layer.size], layer.shape)
            at += layer.size

    def epoch(self, rows: Array, order: Ints, *, batch: int, rate: float) -> float:
        """Train on some rows, batch by batch in their order; the mean squared error along the way."""
        order = np.ascontiguousarray(order, np.int64)
        lost = _arithmetic().epoch(batch, rate, self._steps, rows, order, self._sizes, *self._state)
        self._steps += -(-len(order) // batch)
        return float(lost / (len(order) * rows.shape[1]))

    @property
    def weights(self) -> NDArray[np.float32]:
        """Layer after layer: the matrix, then the biases."""
        return np.concatenate([layer.ravel() for layer in _coder_twin.layers(self._state[0], self._sizes)])


def share_models(models: Sequence[int], work: Callable[[Iterator[int]], None]) -> None:
    """Let threads take models one by one; not in NumPy, whose products have threads of their own."""
    if _threads.threads() == 1 or _arithmetic() is _coder_twin:
        work(iter(models))
    else:
        _threads.run_in_threads(models, work)


def _arithmetic() -> Any:
    return _compiled if _backend.backend() == "c" else _coder_twin
