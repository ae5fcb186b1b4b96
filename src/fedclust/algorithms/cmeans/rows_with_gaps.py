"""Lossless c-means and fuzzy c-means of rows with gaps, at several parties: partial distances, nothing filled in.

Each round asks for four sums, where `has_f` are the rows that have column f:

    mass_c = sum u_ic^m      share_cf = sum_{has_f} u_ic^m      pull_cf = sum_{has_f} u_ic^m x_if      objective

and moves each centre to pull_cf / share_cf. The sums are exact integers, so the run is the pooled run, bit for bit. A
column that none of a cluster's rows has keeps its place. The rounds are those of `row_split`.

Paper: Hathaway and Bezdek, "Fuzzy c-means clustering of incomplete data", 2001 (PDS).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedclust.algorithms.cmeans.cmeans_contracts import fits_gap_centers
from fedclust.algorithms.cmeans.exact_rounds import (
    RoundQuestion,
    RoundSums,
    check_shares,
    objective_is_plausible,
    pull_is_plausible,
    total_with_digits,
)
from fedclust.algorithms.cmeans.fit_result import RoundResult
from fedclust.algorithms.cmeans.row_split import CentersQuestion
from fedclust.algorithms.shared import initial_centers
from fedclust.algorithms.shared.start_contracts import fits_filled_start
from fedclust.core.effects import Protocol, each, handler
from fedclust.core.question_types import PointsQuestion, ViewedQuestion
from fedclust.core.release import Release, additive, points, stack_field
from fedclust.core.ring import Exact
from fedclust.core.row_weights import tally_weights
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Bools, Floats, PartyId
from fedclust.kernels.gap_sweep import (
    DISTANCE_CHUNK_ROWS,
    PartialSums,
    accumulate,
    hard_or_fuzzy_weights,
    partial_distances,
)
from fedclust.kernels.units import partial_distance_bound, unit_of
from fedclust.questions import standardisation


@dataclass(frozen=True)
class GapCentersQuestion(RoundQuestion):
    """The centres at which to sum; shifts are of each cluster and column."""

    @cached_property
    def largest_share(self) -> int:
        return partial_distance_bound(self.view.exponents, self.centers)


def make_question(view: View, centers: Floats, m: float) -> GapCentersQuestion:
    """The sums at some centres, at the usual units."""
    shifts = np.zeros(centers.shape, np.int32)
    return GapCentersQuestion(view, centers, m, shifts, partial_distance_bound(view.exponents, centers))


@dataclass(frozen=True)
class PartialMoments(Release):
    mass: Exact = additive("the total weight of each cluster", cells=True)
    share: Exact = additive("for each cluster and column, the total weight of the rows that have a value", cells=True)
    pull: Exact = additive("for each cluster and column, the weighted sum of the known values")
    objective: Exact = additive("the sum of the weighted squared partial distances to the centres", least=0.0)

    @classmethod
    def plausible(cls, parts: Sequence[PartialMoments], ask: GapCentersQuestion) -> Bools:
        """Also, as for rows without gaps: no sum exceeds the weight of its cluster times the bound of a column."""
        share = stack_field(parts, "share").to_floats()
        sound = pull_is_plausible(parts, ask.view, share) & objective_is_plausible(parts, ask.reach)
        return super().plausible(parts, ask) & sound


def membership_weights(site: Site, ask: GapCentersQuestion) -> Floats:
    """What the rows weigh in each cluster, and in each cluster and column that they have."""
    return tally_weights(
        _weights_by_column(block[:, at : at + DISTANCE_CHUNK_ROWS], ask)
        for block in site.blocks(ask.view)
        for at in range(0, block.shape[1], DISTANCE_CHUNK_ROWS)
    )


def _weights_by_column(rows: Array, ask: GapCentersQuestion) -> Floats:
    own = hard_or_fuzzy_weights(partial_distances(rows, ask.centers), ask.m)
    there = ~np.isnan(rows)
    return np.concatenate([own, (own[:, None, :] * there[None, :, :]).reshape(-1, rows.shape[1])])


@handler(releases=PartialMoments, row_weights=membership_weights, opens_all_clusters=True, contract=fits_gap_centers)
def moments(site: Site, ask: GapCentersQuestion) -> PartialMoments:
    """One sweep over the rows."""
    share, pull, objective = ask.units
    sums = PartialSums.zeros(int(unit_of(0)), share, pull, int(objective))
    for block in site.blocks(ask.view):
        if not ask.holds_any_row:
            check_shares([block], ask.reach, lambda rows: _shares(rows, ask))
        accumulate(sums, block, ask.centers, ask.m)
    return PartialMoments(
        Exact(sums.mass, sums.pulls.mass_unit),
        Exact(sums.column_mass, share),
        Exact(sums.pull, pull),
        Exact(sums.objective, objective),
    )


def _shares(rows: Array, ask: GapCentersQuestion) -> Floats:
    """What each row adds to the objective: sum_c u_c^m d2_c."""
    d2 = partial_distances(rows, ask.centers)
    return np.asarray((hard_or_fuzzy_weights(d2, ask.m) * d2).sum(axis=0))


def one_round(ask: CentersQuestion, among: tuple[PartyId, ...] | None) -> Protocol[RoundResult]:
    """Where the sums over the values that are there move the centres.

    Unlike the ordinary objective, this one may rise from round to round, so each round finds its own bound.
    """
    answer = yield from total_with_digits(moments, make_question(ask.view, ask.centers, ask.m), _read_sums, among)
    share, pull = answer.found.mass, answer.found.pull
    # A far cluster's mass may be nothing at the usual unit; its shares are not.
    mass = np.maximum(answer.first.mass.to_floats(), share.max(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        centers = np.where(share > 0, pull / share, ask.centers)
    return RoundResult(
        centers, mass, answer.found.objective, 0, 0, everyone_asked=among is None, answered_by=answer.parties
    )


def _read_sums(sums: PartialMoments) -> RoundSums:
    return RoundSums.from_exact(sums.share, sums.pull, sums.objective)


@dataclass(frozen=True)
class FilledStartQuestion(ViewedQuestion, PointsQuestion):
    """How many centres are wanted, and what stands for a gap while they are chosen."""

    view: View
    count: int
    seed: int
    fill: Floats

    def max_points(self) -> int:
        return self.count


@dataclass(frozen=True)
class GapCandidates(Release):
    points: Floats = points(
        "candidate initial centres: each coordinate is the mean of five values, or the mean of its column over "
        "all sites",
        floor=initial_centers.SMOOTHING_NEIGHBORS,
    )


@handler(releases=GapCandidates, contract=fits_filled_start)
def seed_candidates(site: Site, ask: FilledStartQuestion) -> GapCandidates:
    """k-means++ on this party's rows with gaps filled, each choice smoothed; a party with too few rows sends none.

    A coordinate is the mean of the five nearest rows that have the column. Were gaps averaged in as filled, a row that
    alone has the column would be shown.
    """
    rng = site.rng_from_seed(ask.seed)
    rows = initial_centers.read_rows(site, ask.view, sample=rng)
    if len(rows) < initial_centers.SMOOTHING_NEIGHBORS:
        return GapCandidates(np.empty((0, len(ask.fill))))
    filled = np.where(np.isnan(rows), ask.fill, rows)
    chosen = initial_centers.plus_plus(filled, min(ask.count, len(rows)), rng)
    return GapCandidates(np.stack([_smooth_point(rows, filled, filled[i], ask.fill) for i in chosen]))


def careful_centers(view: View, count: int, seed: int, rng: np.random.Generator) -> Protocol[tuple[Floats, int]]:
    """`start.careful` for rows with gaps; the mean over all sites stands for a gap."""
    found = yield from standardisation.column_statistics(view)
    answers = yield from each(seed_candidates, FilledStartQuestion(view, count, seed, found.mean))
    candidates = np.concatenate([answer.points for answer in answers.values()])
    return (yield from initial_centers.choose_centers(view, candidates, count, seed, rng))


def _smooth_point(rows: Floats, filled: Floats, point: Floats, fill: Floats) -> Floats:
    nearest = np.argsort(((filled - point) ** 2).sum(axis=1), kind="stable")
    out = fill.copy()
    for f, column in enumerate(rows.T):
        values = column[nearest]
        values = values[~np.isnan(values)][: initial_centers.SMOOTHING_NEIGHBORS]
        if len(values) == initial_centers.SMOOTHING_NEIGHBORS:
            out[f] = values.mean()
    return out
