"""Lossless c-means and fuzzy c-means over rows that lie at several parties (LLF-CM, LLF-FCM).

Every round asks for three sums over all rows, at fuzziness m (m = 1 is hard c-means):

    mass_c = sum u_ic^m        pull_c = sum u_ic^m x_i        objective = sum u_ic^m |x_i - v_c|^2

and moves each centre to pull_c / mass_c. The sums are exact integers, so the run is the pooled run, bit for bit.

Papers: Corcuera Barcena et al., "Federated c-means and fuzzy c-means clustering algorithms for horizontally and
vertically partitioned data"; the same, "Federated fuzzy c-means".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedclust.algorithms.model import Fitted, Moved, Notes, Round, frobenius
from fedclust.core.protocol import Protocol, handler, report, total
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact, power_above
from fedclust.core.site import Site, View
from fedclust.core.types import Floats, PartyId, Units
from fedclust.kernels import cmeans, fcm
from fedclust.kernels.sums import Sums

BITS = 51  # a term is rounded to 2^-51 of its bound
TINY = 2.0**-8  # a cluster of less mass is asked for again, at a finer unit
DEEPEST = 900  # no finer unit: below, a cluster is empty


@dataclass(frozen=True)
class Centers:
    """Where the centres are, and at which units to sum: 2^-shift_c of the usual ones."""

    view: View
    centers: Floats
    m: float
    shifts: Units
    singletons: bool
    small_sites: bool

    @cached_property
    def units(self) -> tuple[Units, Units, Units]:
        """The units of mass, pull and objective, from bounds on a single row's term."""
        mass = (-BITS - self.shifts).astype(np.int32)
        pull = (self.view.exponents[None, :] - BITS - self.shifts[:, None]).astype(np.int32)
        far = zip(self.view.exponents.tolist(), np.abs(self.centers).max(axis=0).tolist(), strict=True)
        reach = power_above(math.fsum((2.0**e + v) ** 2 for e, v in far))
        return mass, pull, np.asarray(reach - BITS, np.int32)


@dataclass(frozen=True)
class Moments(Release):
    mass: Exact = additive("the weight of each cluster")
    pull: Exact = additive("the weighted sum of the rows of each cluster")
    objective: Exact = additive("the weighted squared distances to the centres")
    hidden: Exact = additive("how many cells were suppressed, how many sites abstained")


@handler(releases=Moments)
def moments(site: Site, ask: Centers) -> Moments:
    """One sweep over the rows."""
    mass, pull, objective = ask.units
    sums = Sums.zeros(mass, pull, int(objective))
    n_clusters, n_columns = ask.centers.shape
    if ask.small_sites and site.rows * n_columns <= n_clusters * (n_columns + 1):
        return _moments(sums, ask, Exact.counts((0, 1)))
    blocks = site.blocks(ask.view)
    for some in [blocks] if isinstance(blocks, list) else blocks:
        if ask.m == 1:
            cmeans.accumulate(sums, some, ask.centers)
        else:
            fcm.accumulate(sums, some, ask.centers, ask.m)
    cells = _hide_singletons(sums) if ask.singletons else 0
    return _moments(sums, ask, Exact.counts((cells, 0)) if cells else NOTHING)


def fit(
    view: View,
    start: Floats,
    *,
    m: float,
    tol: float | None,
    max_rounds: int,
    parties: Sequence[PartyId],
    rng: np.random.Generator,
    participation: float = 1.0,
    singletons: bool = False,
    small_sites: bool = False,
) -> Protocol[Fitted]:
    """Move the centres until they move by less than `tol`, or for `max_rounds` rounds."""
    centers, history, notes = start, list[Round](), Notes()

    def sweep(among: tuple[PartyId, ...] | None) -> Protocol[Moved]:
        shifts = np.zeros(len(centers), np.int32)
        return (yield from _moved(Centers(view, centers, m, shifts, singletons, small_sites), among))

    for number in range(1, max_rounds + 1):
        moved = yield from sweep(_some(parties, participation, rng))
        notes.suppressed(number, moved)
        target = _reseed(moved, centers, rng, notes, number)
        shift = frobenius(target - centers)
        centers = target
        history.append(Round(number, shift, moved.objective))
        yield from report(round=number, shift=shift, objective=moved.objective)
        if tol is not None and shift < tol:
            break
    closing = yield from sweep(None)
    if participation < 1:
        notes.partial(participation, frobenius(np.where(closing.mass[:, None] > 0, closing.centers, centers) - centers))
    return Fitted(centers, start, closing.objective, closing.mass, tuple(history), tuple(notes.sentences()))


def _moved(ask: Centers, among: tuple[PartyId, ...] | None) -> Protocol[Moved]:
    """The sums of one round; a cluster of tiny mass is asked for again until its digits are there."""
    sums = yield from total(moments, ask, among=among)
    mass, pull = sums.mass.floats(), sums.pull.floats()
    cells, abstained = sums.hidden.integers()
    shifts = ask.shifts
    while ask.m != 1 and (deeper := _deeper(mass, shifts)) is not None:
        shifts = deeper
        finer = yield from total(moments, replace(ask, shifts=shifts), among=among)
        mass, pull = finer.mass.floats(), finer.pull.floats()
    with np.errstate(divide="ignore", invalid="ignore"):
        centers = pull / mass[:, None]
    return Moved(centers, mass, float(sums.objective.floats()), cells, abstained)


def _deeper(mass: Floats, shifts: Units) -> Units | None:
    """Finer units for the clusters whose mass shows too few digits at the present ones, or None."""
    relative = np.ldexp(mass, shifts)
    again = (relative < TINY) & (shifts < DEEPEST)
    if not again.any():
        return None
    # A mass is at least each of its terms: a unit this fine still holds them.
    gain = np.where(mass > 0, -np.frexp(np.where(mass > 0, relative, 1.0))[1], BITS - 1)
    return np.where(again, shifts + gain, shifts).astype(np.int32)


def _reseed(moved: Moved, centers: Floats, rng: np.random.Generator, notes: Notes, number: int) -> Floats:
    """An empty cluster gets a new centre, uniform in the box that the other centres span."""
    empty = np.flatnonzero(moved.mass <= 0)
    if not len(empty):
        return moved.centers
    filled = moved.centers[moved.mass > 0] if len(empty) < len(centers) else centers
    low, high = filled.min(axis=0), filled.max(axis=0)
    target = moved.centers.copy()
    target[empty] = low + (high - low) * rng.random((len(empty), centers.shape[1]))
    notes.reseeded(number, len(empty))
    return target


def _some(parties: Sequence[PartyId], participation: float, rng: np.random.Generator) -> tuple[PartyId, ...] | None:
    """A fresh random subset of the parties, or None for all of them."""
    if participation >= 1:
        return None
    count = max(1, round(participation * len(parties)))
    return tuple(parties[i] for i in sorted(rng.choice(len(parties), count, replace=False)))


def _hide_singletons(sums: Sums) -> int:
    """The paper's rule: a cluster with one row of this site sends nothing. Returns how many cells were hidden."""
    lone = Exact(sums.mass, sums.mass_unit).floats() == 1
    sums.mass[lone] = 0
    sums.pull[lone] = 0
    return int(lone.sum())


def _moments(sums: Sums, ask: Centers, hidden: Exact) -> Moments:
    mass, pull, objective = ask.units
    return Moments(Exact(sums.mass, mass), Exact(sums.pull, pull), Exact(sums.objective, objective), hidden)


NOTHING = Exact.counts((0, 0))
