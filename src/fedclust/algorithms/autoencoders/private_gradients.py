"""Gradients of autoencoders that one row can change only by a known amount, whatever it and other rows contain.

A row x has the slope g(x) of (out - x)^2 / 2 by all weights; layer by layer it is an outer product of what goes in and
what comes back, so its norm needs no more than theirs:

    |g|^2 = sum_l (|h_l|^2 + 1) |d_l|^2,    and the row adds  g / max(|g|, 1),  rounded towards zero, in units of 2^-36.

Whatever is multiplied here is a whole number so small that floats add up the products exactly, in any order: values of
rows and layers count in 2^-12, weights in 2^-20, what comes back in 2^-19 of its largest. So what a row adds, which
model does best on it and by how much does not depend on the other rows, on threads or on a library's way of
multiplying; with a ReLU, one bit could otherwise turn another row's slope around. NumPy alone, on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from fedclust.algorithms.autoencoders.autoencoder import Weights
from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels import bounded_sums, elementary

PRIVATE_HIDDEN_LAYERS = (8,)  # noise grows with the number of weights, so these models are small
VALUE_BITS, MAX_ACTIVATION = 12, 2.0**6  # of values: units of 2^-12, and what a ReLU lets pass at most
WEIGHT_BITS, MAX_WEIGHT = 20, 8.0
DELTA_BITS = 19
DELTA_SHIFT_BITS = bounded_sums.FRACTION_BITS - VALUE_BITS  # so that products count in 2^-36
MAX_PRIVATE_COLUMNS = 2048  # columns: 2^18 x 2^23 x 2^11 and 2^19 x 2^23 x 2^11 stay within the 53 bits of a float
MAX_GRADIENT_NORM = 1.0
GRADIENT_CHUNK_ROWS = 1 << 12  # at once
MAX_LOGIT = 40.0  # beyond, a sigmoid is 0 or 1


def round_weights(weights: Array) -> Weights:
    """Weights as models have them here: multiples of 2^-20 up to 8."""
    return np.clip(
        np.rint(np.ldexp(np.asarray(weights, np.float64), WEIGHT_BITS)) / 2.0**WEIGHT_BITS, -MAX_WEIGHT, MAX_WEIGHT
    ).astype(np.float32)


def round_values(values: Array) -> Floats:
    """Values of rows, which lie in [0, 1], in steps of 2^-12."""
    return np.asarray(np.floor(np.clip(values, 0.0, 1.0) * 2.0**VALUE_BITS) / 2.0**VALUE_BITS, np.float64)


def split_layers(weights: Array, sizes: Sequence[int]) -> list[tuple[Floats, Floats]]:
    """A model's matrices and biases, fit to be multiplied exactly."""
    exact, found, at = np.rint(np.ldexp(np.asarray(weights, np.float64), WEIGHT_BITS)) / 2.0**WEIGHT_BITS, [], 0
    for a, b in pairwise(sizes):
        found.append((exact[at : at + a * b].reshape(a, b), exact[at + a * b : at + (a + 1) * b]))
        at += (a + 1) * b
    return found


def forward_layers(model: Sequence[tuple[Floats, Floats]], x: Floats) -> list[Floats]:
    """What each layer gives for rows (rows, columns) in steps of 2^-12, the rows themselves first."""
    found = [x]
    for matrix, bias in model[:-1]:
        z = found[-1] @ matrix + bias
        found.append(np.clip(np.floor(z * 2.0**VALUE_BITS) / 2.0**VALUE_BITS, 0.0, MAX_ACTIVATION - 2.0**-VALUE_BITS))
    matrix, bias = model[-1]
    z = np.clip(found[-1] @ matrix + bias, -MAX_LOGIT, MAX_LOGIT)
    return [*found, 1 / (1 + elementary.exp(-z))]


def errors(weights: Array, x: Floats, sizes: Sequence[int]) -> Floats:
    """The mean squared error of each model on each row: (models, rows)."""
    found = np.empty((len(weights), len(x)))
    for own, model in zip(found, weights, strict=True):
        layers = split_layers(model, sizes)
        for some in _row_chunks(len(x)):
            off = np.floor(forward_layers(layers, x[some])[-1] * 2.0**WEIGHT_BITS) - x[some] * 2.0**WEIGHT_BITS
            own[some] = (off * off).sum(axis=1)  # whole numbers below 2^53
    return np.asarray(found / (4.0**WEIGHT_BITS * x.shape[1]), np.float64)


def sum_clipped_gradients(weights: Array, x: Floats, model_of_row: Ints, sizes: Sequence[int]) -> Ints:
    """For each model the sum over its rows (`model_of_row` names each row's model, -1 none) of cut slopes, in units of
    2^-36.
    """
    total = np.zeros(weights.shape, np.int64)
    for number, model in enumerate(weights):
        rows, layers = np.flatnonzero(model_of_row == number), split_layers(model, sizes)
        for some in _row_chunks(len(rows)):
            total[number] += _sum_row_gradients(layers, x[rows[some]])
    return total


@np.errstate(over="ignore", invalid="ignore")
def _sum_row_gradients(model: Sequence[tuple[Floats, Floats]], x: Floats) -> Ints:
    """The sum of the rows' cut slopes, in the order of the weights; a row whose slope no float holds adds nothing."""
    ahead = forward_layers(model, x)
    out = ahead.pop()
    back, places = _backpropagate(model, ahead, (out - x) * out * (1 - out))
    square = np.zeros(len(x))
    for h, d, e in zip(ahead, back, places, strict=True):
        square += np.ldexp(((h * h).sum(axis=1) + 1) * (d * d).sum(axis=1), 2 * e)
    share = bounded_sums.MAX_ROW_NORM / np.maximum(np.sqrt(square), MAX_GRADIENT_NORM)
    lefts = [
        np.trunc(np.ldexp(d * share[:, None], (e + DELTA_SHIFT_BITS)[:, None]))
        for d, e in zip(back, places, strict=True)
    ]
    sound = np.isfinite(square) & np.all([np.isfinite(left).all(axis=1) for left in lefts], axis=0)
    found = []
    for h, left in zip(ahead, (np.where(sound[:, None], left, 0.0) for left in lefts), strict=True):
        found += [(h * 2.0**VALUE_BITS).T @ left, left.sum(axis=0)[None] * 2.0**VALUE_BITS]
    return np.concatenate([part.ravel() for part in found]).astype(np.int64)


def _backpropagate(
    model: Sequence[tuple[Floats, Floats]], ahead: Sequence[Floats], delta: Floats
) -> tuple[list[Array], ...]:
    """What comes back to each layer, as whole numbers (rows, out), and the power of two each row counts in."""
    found, places = [], []
    for number in range(len(model) - 1, -1, -1):
        _, place = np.frexp(np.abs(delta).max(axis=1))
        whole = np.trunc(np.ldexp(delta, (DELTA_BITS - place)[:, None]))
        found.append(whole)
        places.append(place - DELTA_BITS)
        if number:
            passed = np.where(ahead[number] > 0, whole @ model[number][0].T, 0.0)
            delta = np.ldexp(passed, (place - DELTA_BITS)[:, None])
    return found[::-1], places[::-1]


def _row_chunks(count: int) -> Iterator[slice]:
    return (slice(at, at + GRADIENT_CHUNK_ROWS) for at in range(0, count, GRADIENT_CHUNK_ROWS))


class Adam:
    """Adam's steps for stacked weights, by sums of slopes: how many rows are behind them plays no part."""

    def __init__(self, weights: Weights, rate: float) -> None:
        self.weights, self.rate, self.steps = round_weights(weights), rate, 0
        self._mean, self._square = np.zeros(weights.shape), np.zeros(weights.shape)

    def step(self, slope: Floats) -> None:
        """Move against a slope."""
        self.steps += 1
        self._mean += 0.1 * (slope - self._mean)
        self._square += 0.001 * (slope * slope - self._square)
        ahead = self._mean / (1 - 0.9**self.steps)
        wide = np.sqrt(self._square / (1 - 0.999**self.steps))
        self.weights = round_weights(self.weights - self.rate * ahead / np.maximum(wide, 1e-12))
