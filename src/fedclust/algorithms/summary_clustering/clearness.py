"""How clear FCAC's clusters are beside those found in a cloud without any: even its graph has communities.

cloud   normal rows with the covariance of the summaries, dealt to as many sites, and summed up as sites do
clear   the best score that the summaries reach / the mean of the best that three clouds reach

So summaries of a cloud get about 1. Of many a sample is judged, for time; of few nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedclust.algorithms.summary_clustering import neighbor_graph
from fedclust.algorithms.summary_clustering.neighbor_graph import Level
from fedclust.algorithms.summary_clustering.summaries import MOST_SENT, Held
from fedclust.core.types import Floats, Ints

CLOUDS = 3
HARDLY = 1.25
LEAST, MOST = 16, 256  # summaries
ROWS = 12  # of a cloud for each summary, at most
TIMES = 4  # as many summaries of a cloud, for a sample to be thinned as that of many sites is
MANY = 32  # axes; beyond, for time, those go that hold a twentieth of the variance, and a cloud is as large as judged
DIGITS = 3
TOLD = (
    "The clusters are hardly clearer, if at all, than those of a cloud of normal rows ({clear:.2f} times): there may "
    "be fewer, or none."
)


@dataclass(frozen=True)
class Cloud:
    """Normal rows without clusters at so many sites."""

    spread: Floats  # standard deviations along the principal axes; no distance depends on where these point
    each: int  # rows of a site
    sites: int
    floor: int

    @classmethod
    def like(cls, places: Floats, rows: Ints, *, sites: int, floor: int) -> Self:
        """With the covariance of summaries, and as many rows at a site, up to what makes little difference.

        >>> Cloud.like(np.array([[0.0], [2.0]]), np.array([30, 10]), sites=2, floor=5)  # mean .5, variance .75
        Cloud(spread=array([0.8660254]), each=20, sites=2, floor=5)
        """
        share = rows / rows.sum()
        apart = (places - share @ places) * np.sqrt(share)[:, None]
        spread = np.linalg.svd(apart, compute_uv=False)
        part = (spread / (spread[0] or 1.0)) ** 2
        spread = spread[: max(MANY, int((np.cumsum(part) < 0.95 * part.sum()).sum()) + 1)]
        sites = min(max(sites, -(-len(places) // MOST_SENT)), len(places))
        each = max(floor, min(int(rows.sum()) // sites, ROWS * MOST_SENT))
        enough = -(-(TIMES if len(spread) <= MANY else 1) * MOST * sites // len(places))
        return cls(spread, each, min(sites, enough), floor)

    def summed_up(self, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """What the sites would send of one such cloud."""
        held = Held.none(len(self.spread))
        for _ in range(self.sites):
            own = rng.normal(scale=self.spread, size=(self.each, len(self.spread)))
            held = held.and_also(Held.none(len(self.spread)).taking(own, own).summed_up(self.floor, own))
        return _some(held.places, held.weights.astype(np.int64), rng)


def measured(places: Floats, rows: Ints, levels: Sequence[Level], cloud: Cloud, seed: int) -> float | None:
    """How many times a cloud's score summaries reach; None if they are too few, or nothing parts them or the clouds.

    >>> rng, rows = np.random.default_rng(0), np.full(90, 5)
    >>> blob, far = rng.normal(size=(90, 2)), np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
    >>> for points in (blob, blob + far):
    ...     levels = neighbor_graph.clusters(points, rows, seed=0).levels
    ...     round(measured(points, rows, levels, Cloud.like(points, rows, sites=2, floor=5), seed=0))
    1
    3
    """
    best, rng = _best(levels), np.random.default_rng((seed, 5))
    if not best or len(places) < LEAST:
        return None
    if len(places) > MOST:
        best = _best(neighbor_graph.clusters(*_some(places, rows, rng), seed).levels)
    usual = np.mean([_best(neighbor_graph.clusters(*cloud.summed_up(rng), seed).levels) for _ in range(CLOUDS)])
    return round(float(best / usual), DIGITS) if best and usual else None


def _best(levels: Sequence[Level]) -> float:
    return max((level.score for level in levels), default=0.0)


def _some(places: Floats, rows: Ints, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """A sample of the most that are judged."""
    if len(places) <= MOST:
        return places, rows
    some = np.sort(rng.choice(len(places), MOST, replace=False))
    return np.ascontiguousarray(places[some]), rows[some]
