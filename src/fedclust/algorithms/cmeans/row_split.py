"""Lossless c-means and fuzzy c-means over rows that lie at several parties (LLF-CM, LLF-FCM).

Every round asks for three sums over all rows, at fuzziness m (m = 1 is hard c-means):

    mass_c = sum u_ic^m        pull_c = sum u_ic^m x_i        objective = sum u_ic^m |x_i - v_c|^2

and moves each centre to pull_c / mass_c. The sums are exact integers, so the run is the pooled run, bit for bit.

Papers: Corcuera Barcena et al., "Federated c-means and fuzzy c-means clustering algorithms for horizontally and
vertically partitioned data"; the same, "Federated fuzzy c-means".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedclust.algorithms.cmeans.fit_result import Fitted, Moved, Notes, Round, frobenius
from fedclust.algorithms.shared.reseeding import NewPlaces
from fedclust.core.effects import Protocol, handler, heard, report, tallied
from fedclust.core.errors import OutOfBounds, RunFailed
from fedclust.core.release import ROW_BITS, ROWS, Release, additive, together
from fedclust.core.ring import Exact, power_above
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Bools, Floats, PartyId, Units
from fedclust.kernels import distances, fuzzy_sweep, hard_sweep
from fedclust.kernels.exact_sums import Blocks, Sums
from fedclust.kernels.gap_sweep import weights

BITS = 51  # a term is rounded to 2^-51 of its bound
TINY = 2.0**-8  # a cluster of less mass is asked for again, at a finer unit
AT_ONCE = 4096  # rows whose shares of the objective are in memory together
NOISE = 72  # rounding of centres moves an objective by less than 2^-72 of the farthest square
TOO_FAR = "a row's share of the objective exceeds its bound; the rows must not change during a run"
DEEPEST = 780  # no finer unit, for floats have none: below, a cluster is empty


@dataclass(frozen=True)
class Centers:
    """Where the centres are, and at which units to sum: 2^-shift_c of the usual ones."""

    view: View
    centers: Floats
    m: float
    shifts: Units
    reach: int  # a row's share of the objective is at most 2^reach
    singletons: bool
    small_sites: bool

    @cached_property
    def units(self) -> tuple[Units, Units, Units]:
        """The units of mass, pull and objective, from bounds on a single row's term."""
        mass = (-BITS - self.shifts).astype(np.int32)
        pull = (self.view.exponents[None, :] - BITS - self.shifts[:, None]).astype(np.int32)
        return mass, pull, np.asarray(self.reach - BITS, np.int32)

    @cached_property
    def certain(self) -> bool:
        """Whether any row that keeps within the columns' bounds keeps within `reach`."""
        return self.reach >= farthest(self.view, self.centers)


def question(view: View, centers: Floats, m: float) -> Centers:
    """The sums at some centres, at the usual units and by none of the papers' rules."""
    shifts = np.zeros(len(centers), np.int32)
    return Centers(view, centers, m, shifts, farthest(view, centers), singletons=False, small_sites=False)


def farthest(view: View, centers: Floats) -> int:
    """The power of two above any squared distance of a row to a centre."""
    far = np.ldexp(1.0, view.exponents) + np.abs(centers).max(axis=0)
    return power_above(math.fsum((far * far).tolist()))


Sweep = Callable[[Centers, tuple[PartyId, ...] | None], Protocol[Moved]]


@dataclass(frozen=True)
class Moments(Release):
    mass: Exact = additive("the weight of each cluster", cells=True)
    pull: Exact = additive("the weighted sum of the rows of each cluster")
    objective: Exact = additive("the weighted squared distances to the centres", least=0.0)
    hidden: Exact = additive(
        "how many cells were suppressed, how many sites abstained", kind="facts", least=0.0, most=ROWS
    )

    @classmethod
    def plausible(cls, parts: Sequence[Moments], ask: Centers) -> Bools:
        """Besides: a cluster's sum is at most its weight times a column's bound, the objective 2^reach for each row."""
        mass = together(parts, "mass").floats()[..., None]
        return super().plausible(parts, ask) & within_reach(parts, ask.view, mass) & objective_within(parts, ask.reach)


def within_reach(parts: Sequence[Any], view: View, mass: Floats) -> Bools:
    """Whether |pull_cf| <= mass_cf 2^e_f; each row's term may be off by half a unit."""
    pull = together(parts, "pull")
    most = mass * np.ldexp(1.0, view.exponents) + np.ldexp(1.0, pull.unit + ROW_BITS)
    return np.asarray((np.abs(pull.floats()) <= most).all(axis=(1, 2)))


def objective_within(parts: Sequence[Any], reach: int) -> Bools:
    """Whether the objective is at most 2^reach for each row there may be."""
    return np.asarray(together(parts, "objective").floats() <= 2.0 ** (reach + ROW_BITS))


def behind(site: Site, ask: Centers) -> Floats:
    """What the rows weigh in each cluster: u^m, or one for the nearest."""
    return tallied(weights(distances.squared(block, ask.centers), ask.m) for block in site.blocks(ask.view))


@handler(releases=Moments, behind=behind)
def moments(site: Site, ask: Centers) -> Moments:
    """One sweep over the rows."""
    mass, pull, objective = ask.units
    sums = Sums.zeros(mass, pull, int(objective))
    n_clusters, n_columns = ask.centers.shape
    if ask.small_sites and site.rows * n_columns <= n_clusters * (n_columns + 1):
        return _moments(sums, ask, Exact.counts((0, 1)))
    blocks = site.blocks(ask.view)
    cells = 0
    if ask.singletons:
        blocks, cells = _without_singletons(list(blocks), ask)
    for some in [blocks] if isinstance(blocks, list) else blocks:
        if not ask.certain:
            _check_shares(some, ask)
        if ask.m == 1:
            hard_sweep.accumulate(sums, some, ask.centers)
        else:
            fuzzy_sweep.accumulate(sums, some, ask.centers, ask.m)
    return _moments(sums, ask, Exact.counts((cells, 0)) if cells else NOTHING)


def fit(
    view: View,
    start: Floats,
    *,
    m: float,
    tol: float | None,
    max_iter: int,
    parties: Sequence[PartyId],
    rng: np.random.Generator,
    participation: float = 1.0,
    singletons: bool = False,
    small_sites: bool = False,
    moved_by: Sweep | None = None,
) -> Protocol[Fitted]:
    """Move the centres until they move by less than `tol`, or for `max_iter` rounds.

    `moved_by` is another way to ask for the sums of one round, as rows with gaps need.
    """
    centers, history, notes = start, list[Round](), Notes()
    places = NewPlaces(rng, notes)
    likely: int | None = None  # the objective never rises, so its last value bounds what a row can add to the next

    def sweep(among: tuple[PartyId, ...] | None) -> Protocol[Moved]:
        ask = replace(question(view, centers, m), singletons=singletons, small_sites=small_sites)
        if likely is not None:
            ask = replace(ask, reach=min(ask.reach, likely))
        return (yield from (moved_by or one_round)(ask, among))

    for number in range(1, max_iter + 1):
        moved = yield from sweep(some_of(parties, participation, rng))
        notes.suppressed(number, moved)
        if participation >= 1:
            _some_rows(moved)
        target, anew = places.fill(moved, centers, number)
        shift = frobenius(target - centers)
        # Rows that were not in this sum, for a silent party or a rule of the papers, may raise the next one.
        complete = moved.whole and set(parties) <= set(moved.who) and not (singletons or small_sites)
        steady = participation >= 1 and target is moved.centers and complete
        likely = power_above(moved.objective + 2.0 ** (farthest(view, target) - NOISE)) + 1 if steady else None
        centers = target
        history.append(Round(number, shift, moved.objective))
        yield from report(round=number, shift=shift, objective=moved.objective)
        if tol is not None and shift < tol and not anew and moved.mass.any():
            break
    closing = yield from sweep(None)
    _some_rows(closing)
    notes.left_empty(int((closing.mass <= 0).sum()))
    if participation < 1:
        notes.partial(participation, frobenius(np.where(closing.mass[:, None] > 0, closing.centers, centers) - centers))
    return Fitted(centers, start, closing.objective, closing.mass, tuple(history), tuple(notes.sentences()))


def one_round(ask: Centers, among: tuple[PartyId, ...] | None) -> Protocol[Moved]:
    """The sums of one round; what shows too few digits is asked for again, of the same parties, at a finer unit."""
    asked = among
    sums, among = yield from heard(moments, ask, among=among)
    cells, abstained = sums.hidden.integers()
    far = farthest(ask.view, ask.centers)
    moved = ask.reach < far  # centres that were moved are rounded: below, no digit of the objective counts
    for _ in range(DEEPEST // BITS):
        mass, pull, objective = sums.mass.floats(), sums.pull.floats(), float(sums.objective.floats())
        shifts = None if ask.m == 1 else deeper(mass, ask.shifts)
        reach = None if moved and objective <= 2.0 ** (far - NOISE) else nearer(objective, ask)
        if shifts is None and reach is None:
            break
        ask = replace(ask, shifts=ask.shifts if shifts is None else shifts, reach=ask.reach if reach is None else reach)
        sums, among = yield from heard(moments, ask, among=among)
    with np.errstate(divide="ignore", invalid="ignore"):
        centers = pull / mass[:, None]
    return Moved(centers, mass, objective, cells, abstained, whole=asked is None, who=among)


def nearer(objective: float, ask: Centers) -> int | None:
    """A closer bound on a row's share of an objective that shows too few digits, or None.

    The objective is at least each share of it. Rows differ from a centre by no less than their own last digit, so
    2^-104 of the farthest square is as fine as it need be. Each share was rounded, by half a unit at most.
    """
    least = farthest(ask.view, ask.centers) - 2 * (BITS + 1)
    if objective >= 2.0 ** (ask.reach - 8) or ask.reach <= least:
        return None
    return max(power_above(objective + 2.0 ** (ask.reach - BITS)), least)


def deeper(mass: Floats, shifts: Units) -> Units | None:
    """Finer units for the clusters whose mass shows too few digits at the present ones, or None."""
    relative = np.ldexp(mass, shifts)
    again = (relative < TINY) & (shifts < DEEPEST)
    if not again.any():
        return None
    # A mass is at least each of its terms: a unit this fine still holds them.
    gain = np.where(mass > 0, -np.frexp(np.where(mass > 0, relative, 1.0))[1], BITS - 1)
    return np.where(again, shifts + gain, shifts).astype(np.int32)


def _some_rows(moved: Moved) -> None:
    """Centres that no row had a say in are no result."""
    if moved.mass.any():
        return
    if moved.abstained:
        raise RunFailed("every site is too small for the paper's rule; leave small_sites out or ask for fewer clusters")
    raise RunFailed("the singleton rule hid every row; leave singletons out or ask for fewer clusters")


def _check_shares(blocks: Blocks, ask: Centers) -> None:
    """Refuse to add shares beyond the bound they are added under: the sum would be another number."""
    for block in [blocks] if isinstance(blocks, np.ndarray) else blocks:
        if not block.size or _box_within(block, ask):
            continue
        parts = (block[:, at : at + AT_ONCE] for at in range(0, block.shape[1], AT_ONCE))
        if any(_shares(part, ask).max() > 2.0**ask.reach for part in parts):
            raise OutOfBounds(TOO_FAR)


def _box_within(block: Array, ask: Centers) -> bool:
    """Whether the box around the rows lies near enough to one centre: no share exceeds the least squared distance."""
    low, high = block.min(axis=1).astype(np.float64), block.max(axis=1).astype(np.float64)
    far = np.maximum(np.abs(low - ask.centers), np.abs(high - ask.centers))
    return bool((far * far).sum(axis=1).min() <= 2.0 ** (ask.reach - 1))


def _shares(block: Array, ask: Centers) -> Floats:
    if ask.m == 1:
        return distances.labels(block, ask.centers)[1]
    d2 = distances.squared(block, ask.centers)
    return np.asarray((weights(d2, ask.m) * d2).sum(axis=0))


def some_of(parties: Sequence[PartyId], participation: float, rng: np.random.Generator) -> tuple[PartyId, ...] | None:
    """A fresh random subset of the parties, or None for all of them."""
    if participation >= 1:
        return None
    count = max(1, round(participation * len(parties)))
    return tuple(parties[i] for i in sorted(rng.choice(len(parties), count, replace=False)))


def _without_singletons(blocks: list[Array], ask: Centers) -> tuple[list[Array], int]:
    """The paper's rule: a cluster with one row of this site sends nothing. The other rows, and how many were lone."""
    labels = [distances.labels(block, ask.centers)[0] for block in blocks]
    sizes = np.bincount(np.concatenate(labels), minlength=len(ask.centers)) if labels else np.zeros(1)
    lone = sizes == 1
    if not lone.any():
        return blocks, 0
    kept = [np.ascontiguousarray(block[:, ~lone[own]]) for block, own in zip(blocks, labels, strict=True)]
    return kept, int(lone.sum())


def _moments(sums: Sums, ask: Centers, hidden: Exact) -> Moments:
    mass, pull, objective = ask.units
    return Moments(Exact(sums.mass, mass), Exact(sums.pull, pull), Exact(sums.objective, objective), hidden)


NOTHING = Exact.counts((0, 0))
