"""Initial centres for rows at several sites; none of the methods reveals a row.

box      uniform in public bounds, else in mean +- 2 sd of the pooled columns: the same for every partition
party    drawn by one random party in its own mean +- 2 sd
careful  k-means++ at each party, each chosen row replaced by the mean of its 5 nearest; c-means of all candidates
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.shared.fixed_order import smallest_places
from fedclust.algorithms.shared.row_likeness import count_equal_rows
from fedclust.algorithms.shared.start_contracts import fits_start
from fedclust.core.effects import Protocol, each, each_to, handler
from fedclust.core.errors import DataError
from fedclust.core.question_types import PointsQuestion, ViewedQuestion
from fedclust.core.release import Release, points
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Bools, Floats, PartyId
from fedclust.kernels import distances
from fedclust.questions import standardisation

SMOOTHING_NEIGHBORS = 5  # paper 0: the mean of the 5 nearest rows stands for a row
CANDIDATE_RESTARTS = 8


@dataclass(frozen=True)
class StartQuestion(ViewedQuestion, PointsQuestion):
    """How many centres are wanted."""

    view: View
    count: int
    seed: int

    def max_points(self) -> int:
        return self.count


@dataclass(frozen=True)
class Candidates(Release):
    points: Floats = points(
        "candidate initial centres: means of at least five rows each, or points drawn at random",
        floor=SMOOTHING_NEIGHBORS,
    )

    @classmethod
    def plausible(cls, parts: Sequence[Candidates], ask: StartQuestion) -> Bools:
        """Also: at most as many points as requested, and in each column at most three times as far out as any row."""
        most = 3 * np.ldexp(1.0, ask.view.exponents)  # a mean and twice a standard deviation
        shapes = [own.points.ndim == 2 and own.points.shape[1] == len(most) for own in parts]
        near = [
            fits and len(own.points) <= ask.count and (np.abs(own.points) <= most).all()
            for own, fits in zip(parts, shapes, strict=True)
        ]
        return np.asarray(super().plausible(parts, ask) & np.array(near, bool))


def box_centers(view: View, count: int, seed: int, bounds: tuple[Floats, Floats] | None) -> Protocol[Floats]:
    """Uniform between bounds (in the view), one draw per centre and column."""
    if bounds is None:
        found = yield from standardisation.column_statistics(view)
        low, high = found.mean - 2 * found.sd, found.mean + 2 * found.sd
    else:
        low, high = bounds
    return low + (high - low) * np.random.RandomState(seed).rand(count, len(low))  # the papers' own stream


@handler(releases=Candidates, contract=fits_start)
def draw_candidates(site: Site, ask: StartQuestion) -> Candidates:
    """Points drawn in this party's mean +- 2 sd, never a row; a party with too few rows draws none."""
    rows = read_rows(site, ask.view)
    if len(rows) < SMOOTHING_NEIGHBORS:
        return Candidates(np.empty((0, rows.shape[1])))
    mean, sd = rows.mean(axis=0), rows.std(axis=0)
    # Of a column that is constant here the draw must not show the value.
    sd = np.where(sd > 0, sd, np.ldexp(1.0, ask.view.exponents - 6))
    return Candidates(mean + 2 * sd * site.rng_from_seed(ask.seed).uniform(-1, 1, (ask.count, rows.shape[1])))


def party_centers(
    view: View, count: int, parties: tuple[PartyId, ...], seed: int, rng: np.random.Generator
) -> Protocol[Floats]:
    """Centres drawn by one party, chosen at random among those with rows enough."""
    for i in rng.permutation(len(parties)):
        answers = yield from each_to(draw_candidates, {parties[i]: StartQuestion(view, count, seed)})
        if len(answers[parties[i]].points):
            return answers[parties[i]].points
    raise DataError(
        f"no site has the {SMOOTHING_NEIGHBORS} rows that it needs to draw initial centres; set init to 'box'"
    )


@handler(releases=Candidates, contract=fits_start)
def seed_candidates(site: Site, ask: StartQuestion) -> Candidates:
    """k-means++ on this party's rows, each choice smoothed; a party with too few rows sends none."""
    rng = site.rng_from_seed(ask.seed)
    rows = read_rows(site, ask.view, sample=rng)
    if len(rows) < SMOOTHING_NEIGHBORS:
        return Candidates(np.empty((0, rows.shape[1])))
    picked = plus_plus(rows, min(ask.count, len(rows)), rng)
    return Candidates(np.stack([_smooth_point(rows, rows[i], site.point_floor) for i in picked]))


def careful_centers(view: View, count: int, seed: int, rng: np.random.Generator) -> Protocol[tuple[Floats, int]]:
    """c-means of all parties' candidates, the best of a few starts; centres too few to choose are drawn as in `box`.

    Also returns how many were drawn.
    """
    answers = yield from each(seed_candidates, StartQuestion(view, count, seed))
    candidates = np.concatenate([answer.points for answer in answers.values()])
    return (yield from choose_centers(view, candidates, count, seed, rng))


def choose_centers(
    view: View, candidates: Floats, count: int, seed: int, rng: np.random.Generator
) -> Protocol[tuple[Floats, int]]:
    """Centres among candidates, drawn where there are too few; also how many were drawn."""
    if len(candidates) < count:
        drawn = yield from box_centers(view, count - len(candidates), seed, None)
        return np.concatenate([candidates, drawn]), len(drawn)
    return min((_lloyd(candidates, count, rng) for _ in range(CANDIDATE_RESTARTS)), key=lambda found: found[0])[1], 0


def plus_plus(rows: Floats, count: int, rng: np.random.Generator, tries: int = 3) -> list[int]:
    """Indices by D^2 sampling (Arthur and Vassilvitskii), the best of a few tries for each."""
    picked = [int(rng.integers(len(rows)))]
    nearest = _squared_distances(rows, rows[picked[0]])
    while len(picked) < count:
        mass = np.cumsum(nearest)
        if mass[-1] <= 0:
            picked.append(int(rng.integers(len(rows))))
            continue
        picks = np.minimum(np.searchsorted(mass, rng.random(tries) * mass[-1], side="right"), len(rows) - 1)
        left = [np.minimum(nearest, _squared_distances(rows, rows[i])) for i in picks]
        best = int(np.argmin([d.sum() for d in left]))
        picked.append(int(picks[best]))
        nearest = left[best]
    return picked


def _lloyd(points: Floats, count: int, rng: np.random.Generator, rounds: int = 50) -> tuple[float, Floats]:
    """Plain c-means of a few points at the coordinator: objective and centres."""
    centers = points[plus_plus(points, count, rng)].copy()
    columns = np.ascontiguousarray(points.T)
    for _ in range(rounds):
        labels, d2 = distances.nearest_centers(columns, centers)
        moved = np.stack(
            [points[labels == c].mean(axis=0) if (labels == c).any() else centers[c] for c in range(count)]
        )
        if np.array_equal(moved, centers):
            break
        centers = moved
    return float(d2.sum()), centers


def read_rows(site: Site, view: View, sample: np.random.Generator | None = None, max_rows: int = 20_000) -> Floats:
    """The party's rows in memory; of a large table a random sample of whole rows."""
    keep = (
        None if sample is None or site.rows <= max_rows else np.sort(sample.choice(site.rows, max_rows, replace=False))
    )
    parts: list[Array] = []
    at = 0
    for block in site.blocks(view):
        stop = at + block.shape[1]
        parts.append(block.T if keep is None else block[:, keep[(keep >= at) & (keep < stop)] - at].T)
        at = stop
    return np.concatenate(parts).astype(np.float64)


def _smooth_point(rows: Floats, point: Floats, floor: int) -> Floats:
    """The mean of the five nearest rows.

    At a site with a floor for points, the mean of as many more rows as it takes until it equals no row, or a row that
    at least five share. Without a floor the rows are in one process, and the published starts keep their bits.
    """
    far = _squared_distances(rows, point)
    reach = np.abs(rows).max(axis=0)
    for many in range(SMOOTHING_NEIGHBORS, len(rows) + 1):
        mean = np.asarray(rows[smallest_places(far[None], many)[0]].mean(axis=0), np.float64)
        if not floor or not 0 < count_equal_rows(mean[None], [rows.T], reach)[0] < SMOOTHING_NEIGHBORS:
            break
    return mean


def _squared_distances(rows: Floats, point: Floats) -> Floats:
    return np.asarray(((rows - point) ** 2).sum(axis=1), np.float64)
