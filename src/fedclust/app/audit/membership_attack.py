"""Tests whether outcomes of a mechanism reveal if one row was present, and derives a lower bound on its epsilon.

A mechanism of epsilon and delta gives every event nearly the same chance on two tables that differ by one row:
P(with) <= e^epsilon P(without) + delta. So counting an event over many runs on both tables gives evidence:

    epsilon >= ln((p - delta) / q),   p, q: Clopper-Pearson bounds on the two chances, from below and from above.

The event is chosen on one half of the runs and counted on the other, so that the choice costs no confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy.stats import beta

from fedclust.core.errors import StudyError
from fedclust.core.types import Floats

Table = TypeVar("Table")
MAX_THRESHOLDS = 199  # thresholds to try


@dataclass(frozen=True)
class Evidence:
    """The result of many runs: with `confidence`, the mechanism's epsilon is at least this.

    The event occurred in `hits` of `runs` on the table where it is likelier, and in `strays` of `runs` on the other.
    """

    epsilon: float
    hits: int
    strays: int
    runs: int
    confidence: float

    def refutes(self, claimed: float) -> bool:
        """Whether a claim cannot be true."""
        return self.epsilon > claimed


def empirical_epsilon(
    mechanism: Callable[[Table], Any],
    with_row: Table,
    without_row: Table,
    *,
    runs: int = 2000,
    delta: float = 0.0,
    confidence: float = 0.95,
    score: Callable[[Any], float] | None = None,
) -> Evidence:
    """Run a mechanism on a table with a row and on the table without it, and return a lower bound on its epsilon.

    `mechanism` is called `runs` times on each, and must draw new noise each time; an outcome is a number or an array of
    numbers. `score` turns an outcome into one number to distinguish the two tables by; without it, half of the runs
    find the direction in which they differ most. The bound cannot exceed about ln(runs / 8).

    >>> rng = np.random.default_rng(0)
    >>> laplace = lambda rows: len(rows) + rng.laplace(scale=1.0)  # epsilon 1
    >>> found = empirical_epsilon(laplace, [1, 2, 3], [1, 2], runs=4000)
    >>> 0.5 < found.epsilon <= 1.0
    True
    """
    if runs < 4:
        raise StudyError(f"runs is {runs}; use at least 4, because half of the runs are used to choose the test")
    there, gone = (np.stack([_score_vector(mechanism(t), score) for _ in range(runs)]) for t in (with_row, without_row))
    half = runs // 2
    along = _separating_direction(there[:half], gone[:half])
    event = _best_event(there[:half] @ along, gone[:half] @ along, delta, confidence)
    return event.gather_evidence(there[half:] @ along, gone[half:] @ along, delta, confidence)


def epsilon_lower_bound(hits: int, strays: int, runs: int, *, delta: float = 0.0, confidence: float = 0.95) -> float:
    """Return the lower bound on epsilon if an event occurs in `hits` runs on one table and `strays` on its neighbour.

    Example: 100 hits and 0 strays in 100 runs. At 95%, p >= .025^(1/100) = .96378 and q <= 1 - .96378 = .03622.

    >>> round(epsilon_lower_bound(100, 0, 100), 4)  # ln(.96378 / .03622)
    3.2813
    """
    each = (1 - confidence) / 2
    p = float(beta.ppf(each, hits, runs - hits + 1)) if hits else 0.0
    q = float(beta.ppf(1 - each, strays + 1, runs - strays)) if strays < runs else 1.0
    return max(0.0, math.log((p - delta) / q)) if p > delta else 0.0


@dataclass(frozen=True)
class _Event:
    """A score above a threshold, or not above it; likelier with the row, or without."""

    threshold: float
    above: bool
    likelier_with: bool

    def gather_evidence(self, there: Floats, gone: Floats, delta: float, confidence: float) -> Evidence:
        hits, strays = (int(((s > self.threshold) == self.above).sum()) for s in (there, gone))
        if not self.likelier_with:
            hits, strays = strays, hits
        epsilon = epsilon_lower_bound(hits, strays, len(there), delta=delta, confidence=confidence)
        return Evidence(epsilon, hits, strays, len(there), confidence)


def _score_vector(outcome: Any, score: Callable[[Any], float] | None) -> Floats:
    return np.ravel(np.asarray(outcome if score is None else score(outcome), np.float64))


def _separating_direction(there: Floats, gone: Floats) -> Floats:
    """Return the direction in which the two differ, each number in units of its own spread."""
    spread = (there.var(axis=0) + gone.var(axis=0)) / 2
    apart = there.mean(axis=0) - gone.mean(axis=0)
    # A number that is constant on each table but differs between them reveals the row by itself.
    return np.asarray(apart / np.where(spread > 0, spread, np.finfo(np.float64).tiny ** 0.25), np.float64)


def _best_event(there: Floats, gone: Floats, delta: float, confidence: float) -> _Event:
    pooled = np.unique(np.concatenate([there, gone]))
    middles = (pooled[1:] + pooled[:-1]) / 2 if len(pooled) > 1 else pooled
    tried = middles[np.unique(np.linspace(0, len(middles) - 1, MAX_THRESHOLDS).astype(np.int64))]
    events = [_Event(float(t), above, with_) for t in tried for above in (True, False) for with_ in (True, False)]
    return max(events, key=lambda event: event.gather_evidence(there, gone, delta, confidence).epsilon)
