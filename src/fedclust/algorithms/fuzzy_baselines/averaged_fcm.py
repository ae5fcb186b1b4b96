"""Federated fuzzy c-means by averaging (FedFCM): each party clusters alone, the server makes one of what they found.

Every round the parties start from the same centres, run fuzzy c-means until their memberships settle, and answer with
their own centres; then either

    kmeans   unweighted k-means of all P x K local centres (k-means++ in round 1, then from the last global centres)
    index    the mean of the k-th centres of all parties, weighted by their sum of memberships

Not lossless: a party's centres count as much as any other's, however many rows are behind them. With `kmeans` every
party's own centres leave it; `index` needs sums only.

Paper: Stallmann and Wilbik, "On a framework for federated cluster analysis", section 2.2.1; index-wise averaging is its
comparator "federated averaging".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedclust.algorithms.cmeans.fit_result import FitResult, Round
from fedclust.algorithms.fuzzy_baselines import local_fcm
from fedclust.algorithms.method_contracts import fits_local_centers
from fedclust.algorithms.shared import initial_centers
from fedclust.algorithms.shared.participation import draw_parties
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Protocol, each, handler, report, total
from fedclust.core.errors import DataError
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import MAX_ROWS, Release, additive, additive_counts, points
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats, PartyId
from fedclust.kernels import distances
from fedclust.kernels.units import unit_of

Average = Literal["kmeans", "index"]
AVERAGING_RESTARTS = 10  # of k-means++ in the first round
CENTER_BITS = 60  # of a weighted centre, below its bound; sums of 2^60 of them fit the ring
AVERAGED_LOSSY_NOTE = (
    "Not lossless: the sites' centres were averaged, so the result differs from that of the pooled rows."
)
AVERAGED_CENTERS_NOTE = "Every site sent its own centres to the coordinator in every round."


@dataclass(frozen=True)
class LocalCentersQuestion(ViewedQuestion):
    """Cluster alone from these centres, until memberships change by less than `tol`."""

    view: View
    centers: Floats
    m: float
    tol: float


@dataclass(frozen=True)
class LocalCenters(Release):
    centers: Floats = points(
        "this site's own centres, which are weighted means of its rows",
        floor=initial_centers.SMOOTHING_NEIGHBORS,
    )


# A site's own centres, which in few rounds are its rows; a published method to compare with.
@handler(releases=LocalCenters, withheld=True, contract=fits_local_centers)
def local_centers(site: Site, ask: LocalCentersQuestion) -> LocalCenters:
    """Where this party alone would put the centres; none if it has too few rows."""
    if _has_too_few_rows(site, ask):
        return LocalCenters(np.empty((0, ask.centers.shape[1])))
    return LocalCenters(local_fcm.run_until_settled(site, ask.view, ask.centers, ask.m, ask.tol)[0])


@dataclass(frozen=True)
class WeightedCenters(Release):
    mass: Exact = additive("the sum of the memberships in each cluster", least=0.0, most=MAX_ROWS)
    pull: Exact = additive("the sum of the centres that the sites found, each multiplied by the sum of its memberships")
    silent: Exact = additive_counts("how many sites had too few rows to take part")


@handler(releases=WeightedCenters, withheld=True, contract=fits_local_centers)
def weighted_centers(site: Site, ask: LocalCentersQuestion) -> WeightedCenters:
    """Where this party alone would put the centres, times how much belongs to them; zeros if it has too few rows."""
    few = _has_too_few_rows(site, ask)
    centers, mass = ask.centers, np.zeros(len(ask.centers))
    if not few:
        centers, mass = local_fcm.run_until_settled(site, ask.view, centers, ask.m, ask.tol)
    unit = np.tile(unit_of(ask.view.exponents, CENTER_BITS), (len(centers), 1))
    pull = Exact.from_floats(mass[:, None] * centers, unit=unit)
    return WeightedCenters(Exact.from_floats(mass, unit=-CENTER_BITS), pull, Exact.from_counts(int(few)))


def _has_too_few_rows(site: Site, ask: LocalCentersQuestion) -> bool:
    return site.rows < min_local_rows(len(ask.centers))


def min_local_rows(clusters: int) -> int:
    """The rows a party needs: centres of fewer would be rows, and would not settle."""
    return max(initial_centers.SMOOTHING_NEIGHBORS, clusters + 1)


def fit(
    view: View,
    begin: Floats,
    *,
    average: Average,
    m: float,
    tol: float | None,
    local_tol: float,
    max_iter: int,
    rng: np.random.Generator,
    parties: Sequence[PartyId] = (),
    participation: float = 1.0,
) -> Protocol[FitResult]:
    """Cluster alone and average, until the centres move by less than `tol` in sum, or for `max_iter` rounds.

    Below a participation of 1, a fresh share of the parties is asked in each round.
    """
    centers, history, silent = begin, list[Round](), 0
    for number in range(1, max_iter + 1):
        objective = yield from local_fcm.total_objective(view, centers, m)
        ask = LocalCentersQuestion(view, centers, m, local_tol)
        among = draw_parties(parties, participation, rng)
        if average == "index":
            target, few = yield from _average_by_index(ask, among)
        else:
            answers = yield from each(local_centers, ask, among=among)
            found = [answers[party].centers for party in sorted(answers)]
            few = sum(not len(own) for own in found)
            target = cluster_local_centers(np.concatenate(found), centers, rng if number == 1 else None)
        silent = max(silent, few)
        shift = math.fsum(np.sqrt(((target - centers) ** 2).sum(axis=1)).tolist())
        centers = target
        history.append(Round(number, shift, objective))
        yield from report(round=number, shift=shift, objective=objective)
        if tol is not None and shift < tol:
            break
    notes = [
        AVERAGED_LOSSY_NOTE,
        *([] if average == "index" else [AVERAGED_CENTERS_NOTE]),
        *local_fcm.participation_notes(participation),
    ]
    if silent:
        notes.append(
            f"{count_noun(silent, 'site')} had too few rows for {count_noun(len(centers), 'centre')} and "
            "did not take part."
        )
    return (yield from local_fcm.finish_fit(view, centers, m, start=begin, history=history, notes=notes))


def _average_by_index(ask: LocalCentersQuestion, among: tuple[PartyId, ...] | None) -> Protocol[tuple[Floats, int]]:
    """The weighted mean of the k-th centres of all parties, and how many parties had none."""
    sums = yield from total(weighted_centers, ask, among=among)
    mass = sums.mass.to_floats()[:, None]
    if not mass.any():
        raise _no_site_error(len(mass))
    return np.where(
        mass > 0, sums.pull.to_floats() / np.where(mass > 0, mass, 1.0), ask.centers
    ), sums.silent.to_integers()[0]


def cluster_local_centers(points: Floats, centers: Floats, rng: np.random.Generator | None) -> Floats:
    """k-means of local centres: from the given ones, or with a stream the best of a few k-means++ starts."""
    if not len(points):
        raise _no_site_error(len(centers))
    if rng is None:
        return kmeans(points, centers)[1]
    starts = (points[initial_centers.plus_plus(points, len(centers), rng)] for _ in range(AVERAGING_RESTARTS))
    return min((kmeans(points, begin) for begin in starts), key=lambda found: found[0])[1]


def kmeans(points: Floats, centers: Floats, rounds: int = 300) -> tuple[float, Floats]:
    """Plain k-means of a few points: objective and centres. A centre without points stays.

    >>> kmeans(np.array([[0.0], [2.0], [9.0]]), np.array([[1.5], [8.0]]))[1].ravel().tolist()
    [1.0, 9.0]
    """
    columns = np.ascontiguousarray(points.T)
    for _ in range(rounds):
        labels, d2 = distances.nearest_centers(columns, centers)
        groups = [points[labels == c] for c in range(len(centers))]
        moved = np.stack([own.mean(axis=0) if len(own) else at for own, at in zip(groups, centers, strict=True)])
        if np.array_equal(moved, centers):
            break
        centers = moved
    return math.fsum(d2.tolist()), centers


def _no_site_error(clusters: int) -> DataError:
    return DataError(f"no site has enough rows for {count_noun(clusters, 'centre')}; ask for fewer clusters")
