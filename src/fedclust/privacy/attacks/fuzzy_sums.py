"""Attack b: sums of fuzzy c-means are equations in the rows, and a few rounds of them have one solution.

A round gives C (F + 1) numbers of N F unknown ones:

    mass_c = sum_i u_ic^m        pull_c = sum_i u_ic^m x_i        u_ic = d_ic^(-2/(m-1)) / sum_k d_ik^(-2/(m-1))

From many starts at once, drawn around the centres, damped Gauss-Newton steps go down; a start that arrives at
residuals of rounding size has the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedclust.core.types import Floats
from fedclust.privacy.attacks.transcript import (
    Observation,
    RecoveredPoint,
    Transcript,
    distinct_points,
    group_by_question,
)

STARTS_PER_BATCH = 64
MAX_DESCENT_STEPS = 60
SOLVED_TOLERANCE = 1e-8  # of the largest number, per equation
MAX_UNKNOWNS = 80  # unknowns: beyond, this solver rarely arrives
EQUATIONS_PER_UNKNOWN = 1.15  # equations for each unknown: fewer leave room for wrong solutions


@dataclass(frozen=True)
class FuzzyEquations:
    """What one party's sums say: centres (R, C, F), masses and pulls side by side (R, C, 1 + F), fuzziness, rows."""

    centers: Floats
    target: Floats
    m: float
    rows: int

    @property
    def is_solvable(self) -> bool:
        """Whether there are equations for all unknowns, and no more of those than the solver can take."""
        unknowns = self.rows * self.centers.shape[2]
        return bool(self.target.size >= EQUATIONS_PER_UNKNOWN * unknowns and unknowns <= MAX_UNKNOWNS)


def attack_fuzzy_sums(
    transcript: Transcript, *, batches: int = 6, rounds: int = 12, seed: int = 0
) -> tuple[RecoveredPoint, ...]:
    """Rows that solve the equations of a party's rounds, or of all parties'; tries 64 starts a batch."""
    found: list[RecoveredPoint] = []
    for last, sums in _systems(transcript, rounds):
        solution = solve(sums, batches=batches, rng=np.random.default_rng(seed))
        if solution is not None:
            found += [
                RecoveredPoint(
                    last.to_original_units(x),
                    last.step,
                    last.parties,
                    "a row that solves the equations of several rounds' sums",
                )
                for x in solution
            ]
    return distinct_points(found)


def has_solvable_sums(transcript: Transcript, *, rounds: int = 12) -> bool:
    """Whether any party's equations are enough, and few enough to be tried."""
    return any(sums.is_solvable for _, sums in _systems(transcript, rounds))


def _systems(transcript: Transcript, rounds: int) -> Iterator[tuple[Observation, FuzzyEquations]]:
    """The equations of each party, and of all, with the last answer among them."""
    counts = row_counts(transcript)
    for (_, parties), seen in group_by_question(transcript, "mass", "pull"):
        usable = _fuzzy_rounds(seen)[:rounds]
        rows = counts.get(parties, 0)
        if usable and rows and usable[0].floats_of("mass").ndim == 1:
            yield (
                usable[-1],
                FuzzyEquations(
                    np.stack([np.asarray(s.centers) for s in usable]),
                    np.stack([np.column_stack([s.floats_of("mass"), s.floats_of("pull")]) for s in usable]),
                    float(usable[0].asked["m"]),
                    rows,
                ),
            )


def row_counts(transcript: Transcript) -> dict[tuple[str, ...], int]:
    """How many rows each party, or all together, hold, where an answer said so."""
    said = {}
    for seen in transcript:
        if seen.has_fields("rows") and np.ndim(seen.floats_of("rows")) == 0:
            value = float(seen.floats_of("rows"))
            if 0 < value < 2**31:
                said[seen.parties] = int(value)
    return said


def solve(sums: FuzzyEquations, *, batches: int, rng: np.random.Generator) -> Floats | None:
    """The rows, or None where no start arrived."""
    mass, size = sums.target[..., 0], np.abs(sums.target).max()
    possible = bool((mass > 0).all() and (mass.sum(axis=1) <= sums.rows + 1e-6).all() and np.isfinite(size))
    if not sums.is_solvable or not possible:
        return None
    for _ in range(batches):
        X, cost = descend(sums, _starts(sums, rng))
        if cost.min() < (SOLVED_TOLERANCE * size) ** 2:
            return np.asarray(X[np.argmin(cost)])
    return None


def descend(sums: FuzzyEquations, X: Floats) -> tuple[Floats, Floats]:
    """Levenberg-Marquardt from many starts (B, N, F) at once; rows and mean squared residuals where each came to."""
    size = (len(X), -1)
    unknowns = X[0].size
    damping = np.full(len(X), 1e-2)
    residual, jacobian = equations(sums, X)
    cost = (residual**2).mean(axis=1)
    for _ in range(MAX_DESCENT_STEPS):
        normal = np.einsum("bei,bej->bij", jacobian, jacobian, optimize=True)
        slope = np.einsum("bei,be->bi", jacobian, residual, optimize=True)
        at = np.arange(unknowns)
        normal[:, at, at] += damping[:, None] * normal[:, at, at] + 1e-14 * normal[:, at, at].max(axis=1)[:, None]
        step = np.linalg.solve(normal, slope[..., None])[..., 0]
        tried = X - step.reshape(X.shape)
        there, slopes = equations(sums, tried)
        cheaper = np.nan_to_num((there**2).mean(axis=1), nan=np.inf)
        better = cheaper < cost
        X = np.where(better[:, None, None], tried, X)
        residual = np.where(better[:, None], there.reshape(size), residual)
        jacobian = np.where(better[:, None, None], slopes, jacobian)
        cost = np.where(better, cheaper, cost)
        damping = np.clip(np.where(better, damping / 5, damping * 4), 1e-12, 1e8)
        if cost.min() < 1e-26 * float((sums.target**2).max()):
            break
    return X, cost


def equations(sums: FuzzyEquations, X: Floats) -> tuple[Floats, Floats]:
    """Residuals (B, E) of every equation at rows X, and their derivatives (B, E, N F)."""
    m, power = sums.m, 1 / (sums.m - 1)
    B, N, F = X.shape
    gap = X[:, None, None] - sums.centers[None, :, :, None]  # B, R, C, N, F
    d2 = (gap**2).sum(axis=-1) + 1e-200
    pulls = (d2.min(axis=2, keepdims=True) / d2) ** power
    u = pulls / pulls.sum(axis=2, keepdims=True)
    w = u**m
    g = -2 * power * gap / d2[..., None]
    dw = m * w[..., None] * (g - (u[..., None] * g).sum(axis=2, keepdims=True))
    R, C = sums.centers.shape[:2]
    slopes = np.empty((B, R, C, 1 + F, N, F))
    slopes[:, :, :, 0] = dw
    slopes[:, :, :, 1:] = dw[:, :, :, None] * X.transpose(0, 2, 1)[:, None, None, :, :, None]
    for f in range(F):
        slopes[:, :, :, 1 + f, :, f] += w
    values = np.empty((B, R, C, 1 + F))
    values[..., 0] = w.sum(axis=-1)
    values[..., 1:] = np.einsum("brcn,bnf->brcf", w, X, optimize=True)
    return (values - sums.target).reshape(B, -1), slopes.reshape(B, R * C * (1 + F), N * F)


def _starts(sums: FuzzyEquations, rng: np.random.Generator) -> Floats:
    """Rows around the last centres, as many around each as its mass suggests, some starts wider than others."""
    last = sums.target[-1]
    centers = last[:, 1:] / last[:, :1]
    spread = np.concatenate([sums.centers.reshape(-1, centers.shape[1]), centers]).std(axis=0) + 1e-12
    share = last[:, 0] / last[:, 0].sum()
    places = centers[rng.choice(len(centers), (STARTS_PER_BATCH, sums.rows), p=share)]
    wide = rng.uniform(0.3, 2.0, (STARTS_PER_BATCH, 1, 1)) * spread
    return np.asarray(places + wide * rng.normal(size=places.shape), np.float64)


def _fuzzy_rounds(seen: list[Observation]) -> list[Observation]:
    """One answer for each set of centres; a finer unit at the same centres says nothing new."""
    kept: dict[bytes, Observation] = {}
    for one in seen:
        if one.centers is not None and float(one.asked.get("m", 1.0)) > 1:
            kept[one.centers.tobytes()] = one
    return list(kept.values())
