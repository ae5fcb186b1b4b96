"""Where a cluster without rows moves: next to a cluster with rows, near enough to its mean to win some of them.

A centre v + h d, with d of length one, wins the rows of v that lie farther than h / 2 along d. Their spread along a
random d is about s = sqrt(objective / (mass F)), so h = s; with h near 0 some rows are won for certain, so h is halved
from try to try. Both sums are those of the round, exact: the place is the same wherever the rows lie. Where columns lie
at several parties, all distances are known, and the place is a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.fit_result import FitNotes, RoundResult, frobenius
from fedclust.core.types import Floats, Ints

MAX_RESEED_TRIES = 20  # new places in a row without a cluster filled, then the empty ones stay so


@dataclass
class CenterReseeder:
    """New centres for empty clusters, round by round."""

    rng: np.random.Generator
    notes: FitNotes
    tries: int = 0
    empty_count: int = 0  # how many clusters were when places were last given

    def reseed_empty(self, moved: RoundResult, centers: Floats, number: int) -> tuple[Floats, bool]:
        """The next centres, and whether there are new places among them. Without a row to win a centre stays."""
        empty = np.flatnonzero(moved.mass <= 0)
        if not len(empty):
            self.tries = self.empty_count = 0
            return moved.centers, False
        self.tries = self.tries + 1 if len(empty) == self.empty_count else 0
        self.empty_count = len(empty)
        target = moved.centers.copy()
        target[empty] = centers[empty]
        if moved.objective <= 0 or self.tries >= MAX_RESEED_TRIES or len(empty) == len(centers):
            return target, False
        width = centers.shape[1]
        step = math.sqrt(moved.objective / math.fsum(moved.mass.tolist()) / width) * 0.5**self.tries
        beside = self._draw_clusters(moved.mass, len(empty))
        away = np.stack([random_direction(self.rng, width) for _ in empty])
        target[empty] = moved.centers[beside] + step * away
        self.notes.note_reseeded(number, len(empty))
        return target, True

    def _draw_clusters(self, mass: Floats, count: int) -> Ints:
        """Clusters, each as likely as its mass."""
        upto = np.cumsum(mass)
        at = np.searchsorted(upto, self.rng.random(count) * upto[-1], side="right")
        return np.asarray(np.minimum(at, np.flatnonzero(mass > 0)[-1]), np.int64)


def random_direction(rng: np.random.Generator, width: int) -> Floats:
    """A random vector of length one, by operations that round alike everywhere."""
    while True:
        drawn = 2 * rng.random(width) - 1
        if (length := frobenius(drawn)) > 0:
            return np.asarray(drawn / length, np.float64)


def reseed_rows(weights: Floats, d2: Floats, rng: np.random.Generator, notes: FitNotes, number: int) -> Ints:
    """For each cluster without mass a row of its own that it is put on, far rows first; -1 for the others.

    Where every row lies on a centre there is none to win, and an empty cluster stays where it is.
    """
    rows = np.full(len(weights), -1, np.int64)
    nearest = d2.min(axis=0)
    for cluster in np.flatnonzero(weights.sum(axis=1) <= 0):
        if not nearest.any():
            break
        rows[cluster] = draw_index(nearest, rng)
        nearest[rows[cluster]] = 0.0
        notes.note_reseeded(number, 1)
    return rows


def draw_index(weights: Floats, rng: np.random.Generator) -> int:
    """A number, each as likely as its weight."""
    mass = np.cumsum(weights)
    if mass[-1] <= 0:
        return int(rng.integers(len(weights)))
    return min(int(np.searchsorted(mass, rng.random() * mass[-1], side="right")), len(weights) - 1)
