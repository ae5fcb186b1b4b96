"""Lossless c-means and fuzzy c-means of rows with gaps, at several parties: partial distances, nothing filled in.

Each round asks for four sums, where `has_f` are the rows that have column f:

    mass_c = sum u_ic^m      share_cf = sum_{has_f} u_ic^m      pull_cf = sum_{has_f} u_ic^m x_if      objective

and moves each centre to pull_cf / share_cf. The sums are exact integers, so the run is the pooled run, bit for bit. A
column that none of a cluster's rows has keeps its place. The rounds are those of `horizontal`.

Paper: Hathaway and Bezdek, "Fuzzy c-means clustering of incomplete data", 2001 (PDS).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedclust.algorithms.cmeans.fit_result import Moved
from fedclust.algorithms.cmeans.row_split import (
    BITS,
    DEEPEST,
    TOO_FAR,
    Centers,
    deeper,
    nearer,
    objective_within,
    within_reach,
)
from fedclust.algorithms.shared import initial_centers
from fedclust.core.effects import Protocol, each, handler, heard, tallied
from fedclust.core.errors import OutOfBounds
from fedclust.core.release import Release, additive, shown, together
from fedclust.core.ring import Exact, power_above
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Bools, Floats, PartyId, Units
from fedclust.kernels.gap_sweep import AT_ONCE, PartialSums, accumulate, squared, weights
from fedclust.questions import standardisation


@dataclass(frozen=True)
class Places:
    """Where the centres are, and at which units to sum: 2^-shift_cf of the usual ones."""

    view: View
    centers: Floats
    m: float
    shifts: Units
    reach: int  # a row's share of the objective is at most 2^reach

    @cached_property
    def units(self) -> tuple[Units, Units, Units]:
        """The units of share, pull and objective, from bounds on a single row's term."""
        share = (-BITS - self.shifts).astype(np.int32)
        pull = (self.view.exponents[None, :] - BITS - self.shifts).astype(np.int32)
        return share, pull, np.asarray(self.reach - BITS, np.int32)


def farthest(view: View, centers: Floats) -> int:
    """The power of two above any partial distance: F / F_i times a sum of F_i terms is at most F times the largest."""
    far = (np.ldexp(1.0, view.exponents) + np.abs(centers).max(axis=0)) ** 2
    return power_above(float(len(far) * far.max()))


@dataclass(frozen=True)
class PartialMoments(Release):
    mass: Exact = additive("the weight of each cluster", cells=True)
    share: Exact = additive("for each cluster and column, the weight of the rows that have the column", cells=True)
    pull: Exact = additive("for each cluster and column, the weighted sum of the values that are there")
    objective: Exact = additive("the weighted squared partial distances to the centres", least=0.0)

    @classmethod
    def plausible(cls, parts: Sequence[PartialMoments], ask: Places) -> Bools:
        """Besides, as for rows without gaps: no sum exceeds the weight of its cluster times the bound of a column."""
        share = together(parts, "share").floats()
        return super().plausible(parts, ask) & within_reach(parts, ask.view, share) & objective_within(parts, ask.reach)


def behind(site: Site, ask: Places) -> Floats:
    """What the rows weigh in each cluster, and in each cluster and column that they have."""
    return tallied(
        _weights(block[:, at : at + AT_ONCE], ask) for block in site.blocks(ask.view) for at in _starts(block)
    )


def _starts(block: Array) -> range:
    return range(0, block.shape[1], AT_ONCE)


def _share(block: Array, ask: Places) -> float:
    """The largest share of the objective among some rows."""
    d2 = squared(block, ask.centers)
    return float((weights(d2, ask.m) * d2).sum(axis=0).max(initial=0.0))


def _weights(block: Array, ask: Places) -> Floats:
    own = weights(squared(block, ask.centers), ask.m)
    there = ~np.isnan(block)
    return np.concatenate([own, (own[:, None, :] * there[None, :, :]).reshape(-1, block.shape[1])])


@handler(releases=PartialMoments, behind=behind)
def moments(site: Site, ask: Places) -> PartialMoments:
    """One sweep over the rows."""
    share, pull, objective = ask.units
    sums = PartialSums.zeros(-BITS, share, pull, int(objective))
    certain = ask.reach >= farthest(ask.view, ask.centers)
    for block in site.blocks(ask.view):
        if not certain and any(_share(block[:, at : at + AT_ONCE], ask) > 2.0**ask.reach for at in _starts(block)):
            raise OutOfBounds(TOO_FAR)
        accumulate(sums, block, ask.centers, ask.m)
    return PartialMoments(
        Exact(sums.mass, sums.pulls.mass_unit),
        Exact(sums.column_mass, share),
        Exact(sums.pull, pull),
        Exact(sums.objective, objective),
    )


def moved(ask: Centers, among: tuple[PartyId, ...] | None) -> Protocol[Moved]:
    """One round of `row_split.fit`; what shows too few digits is asked for again, of the same parties.

    Unlike the ordinary objective, this one may rise from round to round, so each round finds its own bound.
    """
    asked = among
    places = Places(
        ask.view, ask.centers, ask.m, np.zeros(ask.centers.shape, np.int32), farthest(ask.view, ask.centers)
    )
    sums, among = yield from heard(moments, places, among=among)
    mass = sums.mass.floats()
    for _ in range(DEEPEST // BITS):
        share, pull, objective = sums.share.floats(), sums.pull.floats(), float(sums.objective.floats())
        shifts = None if ask.m == 1 else deeper(share, places.shifts)
        reach = nearer(objective, replace(ask, reach=places.reach))
        if shifts is None and reach is None:
            break
        places = replace(
            places,
            shifts=places.shifts if shifts is None else shifts,
            reach=places.reach if reach is None else reach,
        )
        sums, among = yield from heard(moments, places, among=among)
    # A far cluster's mass may be nothing at the usual unit; its shares are not.
    mass = np.maximum(mass, share.max(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        centers = np.where(share > 0, pull / share, ask.centers)
    return Moved(centers, mass, objective, 0, 0, whole=asked is None, who=among)


@dataclass(frozen=True)
class Filled:
    """How many centres are wanted, and what stands for a gap while they are chosen."""

    view: View
    count: int
    seed: int
    fill: Floats


@dataclass(frozen=True)
class Candidates(Release):
    points: Floats = shown(
        "points whose every coordinate is a mean of five values, or the mean over all sites", kind="points"
    )


@handler(releases=Candidates)
def seeds(site: Site, ask: Filled) -> Candidates:
    """k-means++ on this party's rows with gaps filled, each choice smoothed; a party with too few rows sends none.

    A coordinate is the mean of the five nearest rows that have the column. Were gaps averaged in as filled, a row that
    alone has the column would be shown.
    """
    rng = site.stream(ask.seed)
    rows = initial_centers.rows_of(site, ask.view, sample=rng)
    if len(rows) < initial_centers.NEIGHBOURS:
        return Candidates(np.empty((0, len(ask.fill))))
    filled = np.where(np.isnan(rows), ask.fill, rows)
    chosen = initial_centers.plus_plus(filled, min(ask.count, len(rows)), rng)
    return Candidates(np.stack([_smoothed(rows, filled, filled[i], ask.fill) for i in chosen]))


def careful(view: View, count: int, seed: int, rng: np.random.Generator) -> Protocol[tuple[Floats, int]]:
    """`start.careful` for rows with gaps; the mean over all sites stands for a gap."""
    found = yield from standardisation.columns(view)
    answers = yield from each(seeds, Filled(view, count, seed, found.mean))
    candidates = np.concatenate([answer.points for answer in answers.values()])
    return (yield from initial_centers.chosen(view, candidates, count, seed, rng))


def _smoothed(rows: Floats, filled: Floats, point: Floats, fill: Floats) -> Floats:
    nearest = np.argsort(((filled - point) ** 2).sum(axis=1), kind="stable")
    out = fill.copy()
    for f, column in enumerate(rows.T):
        values = column[nearest]
        values = values[~np.isnan(values)][: initial_centers.NEIGHBOURS]
        if len(values) == initial_centers.NEIGHBOURS:
            out[f] = values.mean()
    return out
