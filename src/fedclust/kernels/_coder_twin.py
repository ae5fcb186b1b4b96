"""What `_coder` computes, in NumPy: reference and fallback, alike but for rounding, since C fuses multiply and add."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from fedclust.core.types import Array, Ints

LINE_MULTIPLE = 16  # a line of weights is padded to a multiple of so many


def epoch(  # noqa: PLR0917  (positions are the C function's)
    batch: int,
    rate: float,
    steps: int,
    rows: Array,
    order: Ints,
    sizes: Ints,
    weights: Array,
    means: Array,
    squares: Array,
    /,
) -> float:
    """One batch after the other of the rows in `order`; weights and moments change; summed squared errors."""
    state = [list(layers(own, sizes)) for own in (weights, means, squares)]
    lost = 0.0
    for begin in range(0, len(order), batch):
        found = [rows[order[begin : begin + batch]]]
        for number, layer in enumerate(state[0], start=1):
            z = found[-1] @ layer[:-1] + layer[-1]
            found.append(_sigmoid(z) if number == len(state[0]) else np.maximum(z, 0, out=z))
        off = found[-1] - found[0]
        lost += float(np.square(off).sum(dtype=np.float64))
        delta = off * np.float32(2.0 / off.size) * (found[-1] * (1 - found[-1]))
        steps += 1
        for number in range(len(state[0]) - 1, -1, -1):
            w, m, v = (own[number] for own in state)
            slope = np.concatenate([found[number].T @ delta, delta.sum(axis=0, keepdims=True)])
            if number:
                delta = (delta @ w[:-1].T) * (found[number] > 0)
            m += (slope - m) * np.float32(0.1)
            v *= np.float32(0.999)
            v += slope * slope * np.float32(0.001)
            pace, sharp = rate / (1 - math.pow(0.9, steps)), 1 / math.sqrt(1 - math.pow(0.999, steps))
            w -= np.float32(pace) * m / (np.sqrt(v) * np.float32(sharp) + np.float32(1e-8))
    return lost


def padded_width(units: int) -> int:
    """How long a line of so many weights is.

    >>> padded_width(100)
    112
    """
    return -(-units // LINE_MULTIPLE) * LINE_MULTIPLE


def layers(flat: Array, sizes: Ints) -> Iterator[Array]:
    """Views of a model's weights: of each layer a line for each unit before it, and one of biases."""
    at = 0
    for a, b in pairwise(map(int, sizes)):
        width = padded_width(b)
        yield flat[at : at + (a + 1) * width].reshape(a + 1, width)[:, :b]
        at += (a + 1) * width


def _sigmoid(z: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(np.clip(-z, -87, 87))))
