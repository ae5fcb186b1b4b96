"""Lossless c-means and fuzzy c-means of rows with gaps, at several parties: partial distances, nothing filled in.

Each round asks for four sums, where `has_f` are the rows that have column f:

    mass_c = sum u_ic^m      share_cf = sum_{has_f} u_ic^m      pull_cf = sum_{has_f} u_ic^m x_if      objective

and moves each centre to pull_cf / share_cf. The sums are exact integers, so the run is the pooled run, bit for bit. A
column that none of a cluster's rows has keeps its place. The rounds are those of `horizontal`.

Paper: Hathaway and Bezdek, "Fuzzy c-means clustering of incomplete data", 2001 (PDS).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedclust.algorithms import start
from fedclust.algorithms.horizontal import BITS, Centers, deeper
from fedclust.algorithms.model import Moved
from fedclust.core.protocol import Protocol, each, handler, total
from fedclust.core.release import Release, additive, shown
from fedclust.core.ring import Exact, power_above
from fedclust.core.site import Site, View
from fedclust.core.types import Floats, PartyId, Units
from fedclust.kernels.partial import PartialSums, accumulate
from fedclust.preprocessing import standardise


@dataclass(frozen=True)
class Places:
    """Where the centres are, and at which units to sum: 2^-shift_cf of the usual ones."""

    view: View
    centers: Floats
    m: float
    shifts: Units

    @cached_property
    def units(self) -> tuple[Units, Units, Units]:
        """The units of share, pull and objective, from bounds on a single row's term."""
        share = (-BITS - self.shifts).astype(np.int32)
        pull = (self.view.exponents[None, :] - BITS - self.shifts).astype(np.int32)
        # F / F_i times a sum of F_i terms is at most F times the largest.
        far = (np.ldexp(1.0, self.view.exponents) + np.abs(self.centers).max(axis=0)) ** 2
        reach = power_above(float(len(far) * far.max()))
        return share, pull, np.asarray(reach - BITS, np.int32)


@dataclass(frozen=True)
class PartialMoments(Release):
    mass: Exact = additive("the weight of each cluster")
    share: Exact = additive("for each cluster and column, the weight of the rows that have the column")
    pull: Exact = additive("for each cluster and column, the weighted sum of the values that are there")
    objective: Exact = additive("the weighted squared partial distances to the centres")


@handler(releases=PartialMoments)
def moments(site: Site, ask: Places) -> PartialMoments:
    """One sweep over the rows."""
    share, pull, objective = ask.units
    sums = PartialSums.zeros(-BITS, share, pull, int(objective))
    for block in site.blocks(ask.view):
        accumulate(sums, block, ask.centers, ask.m)
    return PartialMoments(
        Exact(sums.mass, sums.pulls.mass_unit),
        Exact(sums.column_mass, share),
        Exact(sums.pull, pull),
        Exact(sums.objective, objective),
    )


def moved(ask: Centers, among: tuple[PartyId, ...] | None) -> Protocol[Moved]:
    """One round of `horizontal.fit`; a column's share that comes out tiny is asked for again, at a finer unit."""
    places = Places(ask.view, ask.centers, ask.m, np.zeros(ask.centers.shape, np.int32))
    first = yield from total(moments, places, among=among)
    share, pull = first.share.floats(), first.pull.floats()
    while ask.m != 1 and (shifts := deeper(share, places.shifts)) is not None:
        places = replace(places, shifts=shifts)
        finer = yield from total(moments, places, among=among)
        share, pull = finer.share.floats(), finer.pull.floats()
    mass = np.where((share > 0).any(axis=1), np.maximum(first.mass.floats(), share.max(axis=1)), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        centers = np.where(share > 0, pull / share, ask.centers)
    return Moved(centers, mass, float(first.objective.floats()), 0, 0)


@dataclass(frozen=True)
class Filled:
    """How many centres are wanted, and what stands for a gap while they are chosen."""

    view: View
    count: int
    fill: Floats


@dataclass(frozen=True)
class Candidates(Release):
    points: Floats = shown("points whose every coordinate is a mean of five values, or the mean over all sites")


@handler(releases=Candidates)
def seeds(site: Site, ask: Filled) -> Candidates:
    """k-means++ on this party's rows with gaps filled, each choice smoothed; a party with too few rows sends none.

    A coordinate is the mean of the five nearest rows that have the column. Were gaps averaged in as filled, a row that
    alone has the column would be shown.
    """
    rows = start.rows_of(site, ask.view, sample=site.rng)
    if len(rows) < start.NEIGHBOURS:
        return Candidates(np.empty((0, len(ask.fill))))
    filled = np.where(np.isnan(rows), ask.fill, rows)
    chosen = start.plus_plus(filled, min(ask.count, len(rows)), site.rng)
    return Candidates(np.stack([_smoothed(rows, filled, filled[i], ask.fill) for i in chosen]))


def careful(view: View, count: int, seed: int, rng: np.random.Generator) -> Protocol[tuple[Floats, int]]:
    """`start.careful` for rows with gaps; the mean over all sites stands for a gap."""
    found = yield from standardise.columns(view)
    answers = yield from each(seeds, Filled(view, count, found.mean))
    candidates = np.concatenate([answer.points for answer in answers.values()])
    return (yield from start.chosen(view, candidates, count, seed, rng))


def _smoothed(rows: Floats, filled: Floats, point: Floats, fill: Floats) -> Floats:
    nearest = np.argsort(((filled - point) ** 2).sum(axis=1), kind="stable")
    out = fill.copy()
    for f, column in enumerate(rows.T):
        values = column[nearest]
        values = values[~np.isnan(values)][: start.NEIGHBOURS]
        if len(values) == start.NEIGHBOURS:
            out[f] = values.mean()
    return out
