"""Centres of c-means for every K, grown one by one from sums alone, by which a site looks for its own K.

From K to K + 1: places for a new centre are the middles between two centres and the points a standard deviation to
either side of a centre, along the column in which its cluster is widest. What a place would gain,

    sum over rows of max(0, d2 to the nearest centre - d2 to the place),

is a total; from the best few c-means runs. Then back from the largest K: the two clusters that cost least are joined,
and what that leads to is kept where it is better. Runs of one K share messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from fedclust.algorithms.gaussian_mixture.densities import check_reach
from fedclust.algorithms.gaussian_mixture.mixture import Frame
from fedclust.core.effects import Protocol, handler, total
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.core.row_weights import tally_unit_weights, tally_weights
from fedclust.core.site_interface import Site, View
from fedclust.core.study_terms import never_in_study
from fedclust.core.types import Floats, Limbs, Units
from fedclust.kernels import distances, hard_sweep
from fedclust.kernels import exact_sums as exact
from fedclust.kernels.exact_sums import Sums
from fedclust.kernels.units import TERM_BITS, squared_distance_bound, unit_of

STARTS_PER_K = 3  # of the places for a new centre, how many c-means starts from
MAX_ROUNDS_PER_K = 40
OBJECTIVE_TOLERANCE = 1e-5  # c-means stops when a round lowers the objective by less than this share


@dataclass(frozen=True)
class CenterSet:
    """Centres, and places to try next to them."""

    centers: Floats
    places: Floats


@dataclass(frozen=True)
class CenterSets(ViewedQuestion):
    """Several lots, each to be answered for in one sweep."""

    view: View
    reach: Units
    lots: tuple[CenterSet, ...]

    def distance_units(self) -> Units:
        """For each lot the unit of a squared distance to its points."""
        points = (np.concatenate([lot.centers, lot.places]) for lot in self.lots)
        return unit_of(np.array([squared_distance_bound(self.reach, own) for own in points]))


@dataclass(frozen=True)
class ClusterMoments(Release):
    mass: Exact = additive("the number of rows in each cluster", cells=True)
    pull: Exact = additive("the sum of the rows in each cluster")
    objective: Exact = additive("the sum of the squared distances of the rows to their nearest centres", least=0.0)


@handler(releases=ClusterMoments, contract=never_in_study)
def cluster_moments(site: Site, ask: CenterSets) -> ClusterMoments:
    """One sweep of c-means for each lot."""
    one, row, units = unit_of(0), unit_of(ask.reach), ask.distance_units()
    counts = [len(lot.centers) for lot in ask.lots]
    sums = [Sums.zeros(np.full(k, one), np.tile(row, (k, 1)), int(unit)) for k, unit in zip(counts, units, strict=True)]
    for x, lot, own in _blocks_by_set(site, ask, sums):
        hard_sweep.accumulate(own, x, lot.centers)
    return ClusterMoments(
        Exact(np.concatenate([s.mass for s in sums]), np.full(sum(counts), one, np.int32)),
        Exact(np.concatenate([s.pull for s in sums]), np.tile(row, (sum(counts), 1))),
        Exact(np.stack([s.objective for s in sums]), units),
    )


@dataclass(frozen=True)
class Widths(Release):
    squares: Exact = additive("for each cluster and column, the sum of the squares of its values", least=0.0)


def _cluster_row_weights(site: Site, ask: CenterSets) -> Floats:
    """How many rows each cluster of each lot has."""
    sizes = [np.zeros(len(lot.centers), np.int64) for lot in ask.lots]
    for x, lot, own in _blocks_by_set(site, ask, sizes):
        np.add.at(own, distances.nearest_centers(x, lot.centers)[0], 1)
    return tally_unit_weights(np.concatenate(sizes))


@handler(releases=Widths, row_weights=_cluster_row_weights, contract=never_in_study)
def widths(site: Site, ask: CenterSets) -> Widths:
    """How wide each cluster is in each column."""
    row = unit_of(2 * ask.reach)
    counts = [len(lot.centers) for lot in ask.lots]
    sums = [Sums.zeros(np.full(k, unit_of(0)), np.tile(row, (k, 1)), 0) for k in counts]
    for x, lot, own in _blocks_by_set(site, ask, sums):
        labels, _ = distances.nearest_centers(x, lot.centers)
        exact.add_weighted(own, x * x, np.asarray(labels == np.arange(len(lot.centers))[:, None], np.float64))
    return Widths(Exact(np.concatenate([s.pull for s in sums]), np.tile(row, (sum(counts), 1))))


@dataclass(frozen=True)
class Gains(Release):
    gains: Exact = additive("how much a new centre at each candidate place would lower the objective", least=0.0)


def _gain_weights(site: Site, ask: CenterSets) -> Floats:
    """What rows weigh in the gain of each place of each lot: what they gain, of what a row may gain at most."""
    parts: list[tuple[list[Floats], int]] = [
        ([np.zeros((len(lot.places), 0))], int(unit)) for lot, unit in zip(ask.lots, ask.distance_units(), strict=True)
    ]
    for x, lot, (own, unit) in _blocks_by_set(site, ask, parts):
        own.append(np.ldexp(_row_gains(x, lot), -(unit + TERM_BITS)))
    return np.concatenate([tally_weights(own) for own, _ in parts], axis=1)


@handler(releases=Gains, row_weights=_gain_weights, contract=never_in_study)
def gains(site: Site, ask: CenterSets) -> Gains:
    """What each place of each lot would gain."""
    found: list[Limbs] = [np.zeros((len(lot.places), 2), np.uint64) for lot in ask.lots]
    units = ask.distance_units()
    for x, lot, (own, unit) in _blocks_by_set(site, ask, list(zip(found, units, strict=True))):
        exact.add_in_place(own, exact.exact_totals(_row_gains(x, lot), unit))
    return Gains(Exact(np.concatenate(found), np.repeat(units, [len(lot.places) for lot in ask.lots])))


def _row_gains(x: Floats, lot: CenterSet) -> Floats:
    """How much nearer than its nearest centre each place is to each row, or 0."""
    return np.maximum(distances.nearest_centers(x, lot.centers)[1] - distances.squared_distances(x, lot.places), 0.0)


T = TypeVar("T")


def _blocks_by_set(site: Site, ask: CenterSets, each: Sequence[T]) -> Iterator[tuple[Floats, CenterSet, T]]:
    """For every block and lot the rows, and what belongs to the lot."""
    for block in site.blocks(ask.view):
        x = check_reach(np.asarray(block, np.float64), ask.reach)
        for lot, own in zip(ask.lots, each, strict=True):
            yield x, lot, own


@dataclass(frozen=True)
class GrownCenters:
    """Centres where c-means left them."""

    centers: Floats
    mass: Floats
    objective: float


def grow_centers(frame: Frame, max_clusters: int) -> Protocol[list[GrownCenters]]:
    """The centres for K = 1, 2, ..., most."""
    width = len(frame.reach)
    grown = yield from _run_kmeans(frame, [CenterSet(np.zeros((1, width)), np.empty((0, width)))])
    for _ in range(1, max_clusters):
        found = yield from _run_kmeans(frame, (yield from _starts(frame, grown[-1])))
        grown.append(min(found, key=lambda one: one.objective))
    for k in range(max_clusters - 1, 1, -1):
        joined = CenterSet(_join_cheapest_pair(grown[k]), np.empty((0, width)))
        (one,) = yield from _run_kmeans(frame, [joined])
        if one.objective < grown[k - 1].objective:
            grown[k - 1] = one
    return grown


def _run_kmeans(frame: Frame, lots: Sequence[CenterSet]) -> Protocol[list[GrownCenters]]:
    """c-means from each lot's centres; a centre without rows stays where it is."""
    now = list(lots)
    found: list[GrownCenters | None] = [None] * len(now)
    active = list(range(len(now)))
    for _ in range(MAX_ROUNDS_PER_K):
        asked = [now[j] for j in active]
        sums = yield from total(cluster_moments, CenterSets(frame.view, frame.reach, tuple(asked)))
        mass, pull, objectives = sums.mass.to_floats(), sums.pull.to_floats(), sums.objective.to_floats().tolist()
        cuts = np.cumsum([len(lot.centers) for lot in asked])[:-1]
        going: list[int] = []
        for j, own, pulled, objective in zip(
            active, np.split(mass, cuts), np.split(pull, cuts), objectives, strict=True
        ):
            before, centers = found[j], now[j].centers
            found[j] = GrownCenters(centers, own, objective)
            if before is not None and before.objective - objective <= OBJECTIVE_TOLERANCE * before.objective:
                continue
            moved = np.where(own[:, None] > 0, pulled / np.where(own > 0, own, 1.0)[:, None], centers)
            now[j] = replace(now[j], centers=moved)
            going.append(j)
        active = going
        if not active:
            break
    return [one for one in found if one is not None]


def _starts(frame: Frame, last: GrownCenters) -> Protocol[list[CenterSet]]:
    """A few sets of one centre more, at the places that gain most."""
    lot = CenterSet(last.centers, np.empty((0, len(frame.reach))))
    squares = (yield from total(widths, CenterSets(frame.view, frame.reach, (lot,)))).squares.to_floats()
    places = _candidate_places(last, squares)
    ask = CenterSets(frame.view, frame.reach, (replace(lot, places=places),))
    found = (yield from total(gains, ask)).gains.to_floats()
    best = np.argsort(-found, kind="stable")[:STARTS_PER_K]
    return [CenterSet(np.concatenate([last.centers, places[[i]]]), lot.places) for i in best]


def _candidate_places(grown: GrownCenters, squares: Floats) -> Floats:
    """Where a new centre might go."""
    k = len(grown.centers)
    variance = squares / np.where(grown.mass > 0, grown.mass, 1.0)[:, None] - grown.centers**2
    widest = variance.argmax(axis=1)
    aside = np.zeros_like(grown.centers)
    aside[np.arange(k), widest] = np.sqrt(np.maximum(variance[np.arange(k), widest], 0.0))
    i, j = np.triu_indices(k, 1)
    return np.concatenate([grown.centers + aside, grown.centers - aside, (grown.centers[i] + grown.centers[j]) / 2])


def _join_cheapest_pair(grown: GrownCenters) -> Floats:
    """The centres with the two joined whose rows then lie least farther from theirs (Ward)."""
    i, j = np.triu_indices(len(grown.centers), 1)
    mass = grown.mass[i] + grown.mass[j]
    cost = (
        grown.mass[i]
        * grown.mass[j]
        / np.where(mass > 0, mass, 1.0)
        * ((grown.centers[i] - grown.centers[j]) ** 2).sum(axis=1)
    )
    best = int(np.argmin(cost))
    a, b, both = i[best], j[best], mass[best]
    centers = grown.centers.copy()
    if both > 0:
        centers[a] = (grown.mass[a] * grown.centers[a] + grown.mass[b] * grown.centers[b]) / both
    return np.delete(centers, b, axis=0)
