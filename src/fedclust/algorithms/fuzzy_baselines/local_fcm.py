"""Fuzzy c-means within one party: from the server's centres to where the party's own rows pull them.

Methods that average what parties found alone share it. Sums are exact, so a party's answer does not depend on how its
rows are stored.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.fit_result import FitResult, Round
from fedclust.algorithms.cmeans.row_split import Moments, make_question, moments, one_round
from fedclust.algorithms.method_contracts import fits_cost
from fedclust.core.effects import Protocol, handler, run_on_own_rows, total
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats
from fedclust.kernels import exact_sums, fuzzy_sweep
from fedclust.kernels.units import MIN_SUM_FRACTION, squared_distance_bound, unit_of

OBJECTIVE_BITS = 80  # of a party's objective, below the bound on one row's share
MAX_LOCAL_ROUNDS = 300  # after which a party answers with what it has


def run_local_round(site: Site, view: View, centers: Floats, m: float) -> tuple[Floats, Floats]:
    """One round on this party's rows: centres, and sum u^m of each; a centre that no row pulls stays."""
    ask = make_question(view, centers, m)
    found = typing.cast("Moments", moments.answer(site, ask))
    limbs = np.concatenate([found.mass.limbs, found.pull.limbs.reshape(-1, 2)])
    numbers = Exact(limbs, np.concatenate([found.mass.unit, found.pull.unit.ravel()])).to_floats()
    mass, pull = numbers[: len(centers)], numbers[len(centers) :].reshape(centers.shape)
    if mass.min() < MIN_SUM_FRACTION:  # too few digits: ask at finer units
        finer = run_on_own_rows(one_round(ask, None), site)
        return np.where(finer.mass[:, None] > 0, finer.centers, centers), finer.mass
    return pull / mass[:, None], mass


def run_until_settled(site: Site, view: View, centers: Floats, m: float, tol: float) -> tuple[Floats, Floats]:
    """Rounds until memberships change by less than `tol` in the Frobenius norm: centres, and sum u of each."""
    u = list(_memberships(site, view, centers, m))
    for _ in range(MAX_LOCAL_ROUNDS):
        centers, _ = run_local_round(site, view, centers, m)
        before, u = u, list(_memberships(site, view, centers, m))
        if _change(before, u, len(centers)) < tol:
            break
    return centers, _sum_over_rows(u, len(centers))


@dataclass(frozen=True)
class CostQuestion(ViewedQuestion):
    """Where the centres are."""

    view: View
    centers: Floats
    m: float


@dataclass(frozen=True)
class Cost(Release):
    objective: Exact = additive("the sum of the weighted squared distances to the centres", least=0.0)


@handler(releases=Cost, withheld=True, contract=fits_cost)
def cost(site: Site, ask: CostQuestion) -> Cost:
    """The objective at given centres."""
    return Cost(own_objective(site, ask.view, ask.centers, ask.m))


def own_objective(site: Site, view: View, centers: Floats, m: float) -> Exact:
    """This party's share of the objective."""
    found = run_on_own_rows(one_round(make_question(view, centers, m), None), site)
    return Exact.from_floats(found.objective, unit=squared_distance_bound(view.exponents, centers) - OBJECTIVE_BITS)


def total_objective(view: View, centers: Floats, m: float) -> Protocol[float]:
    """The objective of all rows at given centres."""
    return float((yield from total(cost, CostQuestion(view, centers, m))).objective.to_floats())


def finish_fit(
    view: View, centers: Floats, m: float, *, start: Floats, history: list[Round], notes: list[str]
) -> Protocol[FitResult]:
    """The run's result, with its objective and sizes over all rows."""
    closing = yield from one_round(make_question(view, centers, m), None)
    return FitResult(centers, start, closing.objective, closing.mass, tuple(history), tuple(notes))


def _memberships(site: Site, view: View, centers: Floats, m: float) -> Iterator[Floats]:
    return (fuzzy_sweep.memberships(block, centers, m) for block in site.blocks(view))


def _change(before: list[Floats], after: list[Floats], clusters: int) -> float:
    squares = [(b - a) ** 2 for b, a in zip(before, after, strict=True)]
    return math.sqrt(math.fsum(_sum_over_rows(squares, clusters).tolist()))


def _sum_over_rows(parts: list[Floats], clusters: int) -> Floats:
    """The exact sum over rows of numbers of at most 1, for each cluster."""
    unit, limbs = unit_of(0), np.zeros((clusters, 2), np.uint64)
    for part in parts:
        exact_sums.add_in_place(limbs, exact_sums.exact_totals(part, unit))
    return Exact(limbs, unit).to_floats()


def participation_notes(participation: float) -> list[str]:
    """What to say of rounds that asked a share of the parties."""
    return [f"In each round, a new random {participation:.0%} of the sites took part."] if participation < 1 else []
