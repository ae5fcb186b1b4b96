"""What one row adds to an index, and the sums over rows, exact whatever their order.

Distances keep their digits beside far larger bounds: they are summed to 2^-93 of these, not the usual 2^-51.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedclust.core.ring import Exact
from fedclust.core.types import Floats, Limbs
from fedclust.kernels import elementary, exact_sums, fuzzy_sweep, hard_sweep
from fedclust.kernels.fine_sums import fine_sums
from fedclust.kernels.units import DISTANCE_BITS, unit_of
from fedclust.questions import index_formulas

TERM_NAMES = ("members", "distances", "compactness", "silhouette", "squares", "entropy")


@dataclass(frozen=True)
class IndexTerms:
    """Which sums to take of rows at squared distances d2 <= 2^reach of the centres, at fuzziness m and power q."""

    m: float
    q: float
    reach: int
    parts: tuple[str, ...]

    def term_unit(self, part: str) -> int:
        """The unit of a part, from the bound on one row's term; memberships are at most 1."""
        if part == "compactness":
            return int(unit_of(self.reach, DISTANCE_BITS))
        if part == "distances":
            return int(unit_of(math.ceil(self.reach * self.q / 2) + 1, DISTANCE_BITS))
        return int(unit_of(0))

    def sum_terms(self, d2: Floats) -> dict[str, Limbs]:
        """The sums over rows with these squared distances (C, n): one per cluster, or one."""
        u = memberships_from_distances(d2, self.m)
        made: dict[str, Callable[[], Floats]] = {
            "members": lambda: u,
            "distances": lambda: index_formulas.raise_power(np.sqrt(d2), self.q) if self.q != 2 else d2,
            "compactness": lambda: _as_one_row(
                (u if self.m == 1 else fuzzy_sweep.weights_from_distances(d2, self.m)) * d2
            ),
            "silhouette": lambda: _as_one_row(silhouettes(d2)),
            "squares": lambda: _as_one_row(u * u),
            "entropy": lambda: _as_one_row(-u * elementary.log(np.where(u > 0, u, 1.0))),
        }
        summed = {
            part: fine_sums if part in ("distances", "compactness") else exact_sums.exact_totals for part in self.parts
        }
        return {part: summed[part](made[part](), self.term_unit(part)) for part in self.parts}

    def zero_sums(self, clusters: int) -> dict[str, Limbs]:
        """The sums over no rows."""
        sizes = {"members": clusters, "distances": clusters}
        return {part: np.zeros((sizes.get(part, 1), 2), np.uint64) for part in self.parts}

    def with_units(self, found: dict[str, Limbs]) -> dict[str, Exact]:
        """The sums with their units; a part that was not asked for is empty."""
        empty: Limbs = np.zeros((0, 2), np.uint64)
        return {part: Exact(found.get(part, empty), np.asarray(self.term_unit(part), np.int32)) for part in TERM_NAMES}


def memberships_from_distances(d2: Floats, m: float) -> Floats:
    """Memberships (C, n) from squared distances; m = 1: one for the nearest centre, the first of equals."""
    if m != 1:
        return fuzzy_sweep.memberships_from_distances(d2, m)
    return np.asarray(hard_sweep.labels_from_distances(d2) == np.arange(len(d2))[:, None], np.float64)


def silhouettes(d2: Floats) -> Floats:
    """(b - a) / max(a, b) of each row, a to the nearest centre, b to the next; 0 where both are 0."""
    a, b = np.sqrt(np.partition(d2, 1, axis=0)[:2])
    return np.asarray(np.divide(b - a, b, out=np.zeros_like(b), where=b > 0), np.float64)


def _as_one_row(values: Floats) -> Floats:
    return np.ascontiguousarray(values.reshape(1, -1))
