"""What keeps a round of c-means exact: the units of its sums, the bound on a row's share, and asking again.

A row's share of the objective is s_i = sum_c u_ic^m d2_ic. It is at most the least squared distance, and at most the
whole objective, which is a far closer bound once the centres have settled. Weights u^m are at most 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from fedclust.core.effects import Handler, Protocol
from fedclust.core.errors import OutOfBounds
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import ROW_BITS, Release, stack_field
from fedclust.core.repeated_totals import RepeatedTotal, total_at_finest_unit
from fedclust.core.ring import Exact, power_above
from fedclust.core.site_interface import View
from fedclust.core.types import Array, Bools, Floats, PartyId, Units
from fedclust.kernels import units
from fedclust.kernels.units import unit_of

SHARE_CHUNK_ROWS = 4096  # rows whose shares of the objective are in memory together
MAX_REPEATS = units.MAX_SHIFT_BITS // units.TERM_BITS


@dataclass(frozen=True)
class RoundQuestion(ViewedQuestion):
    """Where the centres are, and at which units to sum: those of mass and pull at 2^-shift of the usual ones."""

    view: View
    centers: Floats
    m: float
    shifts: Units  # of each cluster, or of each cluster and column
    reach: int  # a row's share of the objective is at most 2^reach

    @cached_property
    def units(self) -> tuple[Units, Units, Units]:
        """The units of mass, pull and objective, from bounds on a single row's term."""
        by_column = self.shifts.reshape(len(self.shifts), -1)
        return unit_of(-self.shifts), unit_of(self.view.exponents - by_column), unit_of(self.reach)

    @cached_property
    def farthest(self) -> int:
        """The power of two above any squared distance of a row to a centre."""
        return units.squared_distance_bound(self.view.exponents, self.centers)

    @property
    def largest_share(self) -> int:
        """The power of two above any row's share of the objective."""
        return self.farthest

    @cached_property
    def holds_any_row(self) -> bool:
        """Whether any row that keeps within the columns' bounds keeps within `reach`."""
        return self.reach >= self.largest_share


@dataclass(frozen=True)
class RoundSums:
    """Mass, pull and objective of a round as floats, each rounded once."""

    mass: Floats
    pull: Floats
    objective: float

    @classmethod
    def from_exact(cls, mass: Exact, pull: Exact, objective: Exact) -> RoundSums:
        return cls(mass.to_floats(), pull.to_floats(), float(objective.to_floats()))


Q = TypeVar("Q", bound=RoundQuestion)
R = TypeVar("R", bound=Release)


def total_with_digits(
    who: Handler[Q, R], ask: Q, read: Callable[[R], RoundSums], among: tuple[PartyId, ...] | None
) -> Protocol[RepeatedTotal[RoundSums, R]]:
    """The sums of one round; what shows too few digits is asked for again, of the same parties, at a finer unit."""
    moved = ask.reach < ask.farthest  # the bound comes from a round before, which rounded the centres

    def finer(asked: Q, sums: RoundSums) -> Q | None:
        shifts = None if asked.m == 1 else units.finer_shifts(sums.mass, asked.shifts)
        reach = units.closer_share_bound(sums.objective, asked.reach, asked.farthest)
        if moved and sums.objective <= 2.0 ** (asked.farthest - units.CENTER_ROUNDING_BITS):
            reach = None  # no digit below counts
        if shifts is None and reach is None:
            return None
        return replace(
            asked,
            shifts=asked.shifts if shifts is None else shifts,
            reach=asked.reach if reach is None else reach,
        )

    return (
        yield from total_at_finest_unit(
            who, ask, read=read, finer=finer, max_repeats=MAX_REPEATS, read_last=False, among=among
        )
    )


@dataclass
class FallingObjective:
    """A bound on what a row may add to the next objective: the last one, which never rises while rows stay the same."""

    reach: int | None = None

    def tighten(self, ask: Q) -> Q:
        """The question, with the closer of its own bound and this one."""
        return ask if self.reach is None else replace(ask, reach=min(ask.reach, self.reach))

    def observe(self, objective: float, view: View, moved: Floats) -> None:
        """After a round of all rows that moved the centres; these are rounded, which may raise the objective a bit."""
        farthest = units.squared_distance_bound(view.exponents, moved)
        self.reach = power_above(objective + 2.0 ** (farthest - units.CENTER_ROUNDING_BITS)) + 1

    def forget(self) -> None:
        """After a round that says nothing of the next."""
        self.reach = None


def check_shares(blocks: Iterable[Array], reach: int, shares: Callable[[Array], Floats]) -> None:
    """Refuse to add shares beyond the bound they are added under: the sum would be another number."""
    for block in blocks:
        for at in range(0, block.shape[1], SHARE_CHUNK_ROWS):
            if shares(block[:, at : at + SHARE_CHUNK_ROWS]).max() > 2.0**reach:
                raise OutOfBounds(
                    "one row adds more to the objective than is possible; keep the site's data unchanged during a run"
                )


def pull_is_plausible(parts: Sequence[Any], view: View, mass: Floats) -> Bools:
    """Whether |pull_cf| <= mass_cf 2^e_f; each row's term may be off by half a unit."""
    pull = stack_field(parts, "pull")
    most = mass * np.ldexp(1.0, view.exponents) + np.ldexp(1.0, pull.unit + ROW_BITS)
    return np.asarray((np.abs(pull.to_floats()) <= most).all(axis=(1, 2)))


def objective_is_plausible(parts: Sequence[Any], reach: int) -> Bools:
    """Whether the objective is at most 2^reach for each row there may be."""
    return np.asarray(stack_field(parts, "objective").to_floats() <= 2.0 ** (reach + ROW_BITS))
