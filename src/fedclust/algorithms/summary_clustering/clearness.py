"""How clear clusters of summaries are, compared with what is found in a cloud: even its graph has communities.

cloud   normal rows with the covariance of the summaries, spread over as many sites and summarised as sites do
clear   the best score that the summaries reach / the mean of the best scores that three clouds reach

So summaries of a cloud get about 1. Of many summaries a sample is judged, for speed; few are not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedclust.algorithms.shared.eigenvectors import eigen
from fedclust.algorithms.shared.fixed_order import gram_matrix, matrix_product
from fedclust.algorithms.summary_clustering.neighbor_graph import Level, find_clusters
from fedclust.algorithms.summary_clustering.weighted_points import MAX_SUMMARIES, WeightedPoints
from fedclust.core.types import Floats, Ints
from fedclust.kernels.normal_draws import draw_normals

CLOUDS = 3
UNCLEAR_BELOW = 1.25
MIN_JUDGED, MAX_JUDGED = 16, 256  # summaries
ROWS_PER_SUMMARY = 12  # of a cloud, at most
CLOUD_OVERSAMPLING = 4  # as many summaries of a cloud as are judged, so that its sample is as thin as one of many sites
MANY_AXES = 32  # beyond, for speed, axes with a twentieth of the variance are left out, and nothing is oversampled
DIGITS = 3
UNCLEAR = (
    "The clusters are not much clearer than those found in normally distributed rows ({clear:.2f} times as clear). "
    "There may be fewer clusters, or none."
)


@dataclass(frozen=True)
class Cloud:
    """Normal rows without clusters at so many sites."""

    spread: Floats  # standard deviations along the principal axes; no distance depends on where these point
    rows_per_site: int
    sites: int
    floor: int

    @classmethod
    def of_summaries(cls, places: Floats, rows: Ints, *, sites: int, floor: int) -> Self:
        """With the covariance of summaries, and as many rows at a site, up to a number beyond which little changes.

        >>> Cloud.of_summaries(np.array([[0.0], [2.0]]), np.array([30, 10]), sites=2, floor=5)  # mean .5, variance .75
        Cloud(spread=array([0.8660254]), rows_per_site=20, sites=2, floor=5)
        """
        share = rows / rows.sum()
        apart = (places - matrix_product(share[None], places)) * np.sqrt(share)[:, None]
        short = apart if len(apart) < apart.shape[1] else apart.T
        spread = np.sqrt(np.maximum(eigen(gram_matrix(short))[0], 0.0))
        variance = (spread / (spread[0] or 1.0)) ** 2
        spread = spread[: max(MANY_AXES, int((np.cumsum(variance) < 0.95 * variance.sum()).sum()) + 1)]
        sites = min(max(sites, -(-len(places) // MAX_SUMMARIES)), len(places))
        rows_per_site = max(floor, min(int(rows.sum()) // sites, ROWS_PER_SUMMARY * MAX_SUMMARIES))
        times = CLOUD_OVERSAMPLING if len(spread) <= MANY_AXES else 1
        enough = -(-times * MAX_JUDGED * sites // len(places))
        return cls(spread, rows_per_site, min(sites, enough), floor)

    def draw_summaries(self, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """What the sites would send of one such cloud."""
        columns = len(self.spread)
        sent = WeightedPoints.empty(columns)
        for _ in range(self.sites):
            own = self.spread * draw_normals(rng, (self.rows_per_site, columns))
            sent = sent.append(WeightedPoints.empty(columns).add_rows(own, own).summarise(self.floor, own))
        return _sample(sent.places, sent.weights.astype(np.int64), rng)


def measure_clearness(places: Floats, rows: Ints, levels: Sequence[Level], cloud: Cloud, seed: int) -> float | None:
    """How many times a cloud's score summaries reach; None if they are too few, or they or the clouds have one cluster.

    >>> rng, rows = np.random.default_rng(0), np.full(90, 5)
    >>> blob, far = rng.normal(size=(90, 2)), np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
    >>> for points in (blob, blob + far):
    ...     levels = find_clusters(points, rows, seed=0).levels
    ...     round(measure_clearness(points, rows, levels, Cloud.of_summaries(points, rows, sites=2, floor=5), seed=0))
    1
    3
    """
    best, rng = _best_score(levels), np.random.default_rng((seed, 5))
    if not best or len(places) < MIN_JUDGED:
        return None
    if len(places) > MAX_JUDGED:
        best = _best_score(find_clusters(*_sample(places, rows, rng), seed).levels)
    usual = np.mean([_best_score(find_clusters(*cloud.draw_summaries(rng), seed).levels) for _ in range(CLOUDS)])
    return round(float(best / usual), DIGITS) if best and usual else None


def _best_score(levels: Sequence[Level]) -> float:
    return max((level.score for level in levels), default=0.0)


def _sample(places: Floats, rows: Ints, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """As many summaries as are judged at most."""
    if len(places) <= MAX_JUDGED:
        return places, rows
    some = np.sort(rng.choice(len(places), MAX_JUDGED, replace=False))
    return np.ascontiguousarray(places[some]), rows[some]
