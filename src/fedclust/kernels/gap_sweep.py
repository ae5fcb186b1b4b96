"""Rows with gaps: distances and sums over the values that are there (the partial-distance strategy).

With F columns of which row i has F_i (a gap is NaN):

    d2_ic = F / F_i  sum_f (x_if - v_cf)^2        over the columns that row i has, added in their order

A cluster's mean of a column is taken over the rows that have it, so each column has a mass of its own. Where nothing is
missing, F / F_i is 1 and these are the ordinary distances. Plain NumPy around the exact sums: the same bits everywhere.

Paper: Hathaway and Bezdek, "Fuzzy c-means clustering of incomplete data", 2001 (PDS).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedclust.core.types import Array, Floats, Limbs, Units
from fedclust.kernels import exact_sums, fuzzy_sweep, hard_sweep
from fedclust.kernels.exact_sums import Sums

DISTANCE_CHUNK_ROWS = 4096  # rows whose distances are in memory together


def partial_distances(block: Array, centers: Floats) -> Floats:
    """Partial d2 (C, n) of a block (F, n) to centres (C, F); NaN for a row without any value.

    >>> partial_distances(np.array([[3.0], [np.nan]]), np.array([[0.0, 7.0]])).tolist()
    [[18.0]]
    """
    x = np.asarray(block, np.float64)
    out = np.zeros((len(centers), x.shape[1]))
    there = ~np.isnan(x)
    for f, (values, here) in enumerate(zip(x, there, strict=True)):
        away = np.where(here, values, 0.0) - centers[:, f, None]
        out += np.where(here, away * away, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        out *= len(x) / there.sum(axis=0)  # nothing times infinity is NaN: such a row has no distance
    return out


def hard_or_fuzzy_weights(d2: Floats, m: float) -> Floats:
    """u^m (C, n) from squared distances, or at m = 1 a one for the nearest centre."""
    if m != 1:
        return fuzzy_sweep.weights_from_distances(d2, m)
    nearest = hard_sweep.labels_from_distances(d2)
    return np.asarray(nearest == np.arange(len(d2))[:, None], np.float64)


def partial_labels(block: Array, centers: Floats) -> Units:
    """The nearest centre of each row by partial distance; -1 for a row without any value."""
    d2 = partial_distances(block, centers)
    empty = np.isnan(d2[0])
    return np.where(empty, -1, hard_sweep.labels_from_distances(np.where(empty, 0.0, d2))).astype(np.int32)


def partial_memberships(block: Array, centers: Floats, m: float) -> Floats:
    """Memberships u (C, n) by partial distance; NaN for a row without any value."""
    d2 = partial_distances(block, centers)
    empty = np.isnan(d2)
    return np.where(empty, np.nan, fuzzy_sweep.memberships_from_distances(np.where(empty, 0.0, d2), m))


@dataclass(slots=True)
class PartialSums:
    """Mass (C), mass of each column (C, F), pull (C, F) and objective, two limbs each.

    `mass_unit` and `pull_unit` are those of each cluster's column; a cluster's own mass is in `weight_unit`.
    """

    pulls: Sums
    shares: Sums
    objective: Limbs
    objective_unit: int

    @classmethod
    def zeros(cls, weight_unit: int, mass_unit: Units, pull_unit: Units, objective_unit: int) -> Self:
        own = np.full(len(pull_unit), weight_unit, np.int32)
        return cls(
            Sums.zeros(own, pull_unit, 0), Sums.zeros(own, mass_unit, 0), np.zeros(2, np.uint64), int(objective_unit)
        )

    @property
    def mass(self) -> Limbs:
        return self.pulls.mass

    @property
    def column_mass(self) -> Limbs:
        return self.shares.pull

    @property
    def pull(self) -> Limbs:
        return self.pulls.pull


def accumulate(into: PartialSums, block: Array, centers: Floats, m: float) -> None:
    """Add rows, each with some value: mass sum u^m, by column sum u^m and sum u^m x over rows that have it, sum u^m d2.

    >>> unit = np.full((1, 2), -4, np.int32)
    >>> found = PartialSums.zeros(-4, unit, unit, -4)
    >>> accumulate(found, np.array([[3.0, 5.0], [np.nan, 1.0]]), np.array([[4.0, 1.0]]), m=1.0)
    >>> (found.mass[:, 0] / 16).tolist(), (found.column_mass[..., 0] / 16).tolist(), (found.pull[..., 0] / 16).tolist()
    ([2.0], [[2.0, 1.0]], [[8.0, 1.0]])
    """
    for at in range(0, block.shape[1], DISTANCE_CHUNK_ROWS):
        x = np.asarray(block[:, at : at + DISTANCE_CHUNK_ROWS], np.float64)
        d2 = partial_distances(x, centers)
        w = hard_or_fuzzy_weights(d2, m)
        there = ~np.isnan(x)
        exact_sums.add_weighted(into.pulls, np.where(there, x, 0.0), w)
        exact_sums.add_weighted(into.shares, there.astype(np.float64), w)
        for term in exact_sums.exact_totals(w * d2, into.objective_unit):
            exact_sums.add_in_place(into.objective, term)
