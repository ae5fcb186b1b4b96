"""How clear clusters are beside those that are found in a cloud without any.

cloud   as many points, with the same rows behind them, of one normal distribution with the covariance of the points
clear   the best score that the points reach / the mean of the best that two clouds reach

Normal rows without clusters stay below 1.25 but for a few runs in a hundred; normal clusters four standard deviations
apart, 2,000 rows or more in all, do not. Of many points a sample is looked at, for time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedclust.algorithms import fcac_graph
from fedclust.algorithms.fcac_graph import Level
from fedclust.core.types import Floats, Ints

CLOUDS = 2
HARDLY = 1.25
MOST = 256  # points
TOLD = (
    "The clusters are hardly clearer than those of a single cloud of normal points ({clear:.2f} times): there may be "
    "fewer, or none."
)


def clearness(places: Floats, rows: Ints, levels: Sequence[Level], seed: int) -> float | None:
    """How many times a cloud's score the best level reaches; None if there are no clusters to judge.

    >>> rng = np.random.default_rng(0)
    >>> blob, far = rng.normal(size=(90, 2)), np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
    >>> for points in (blob, blob + far):
    ...     found = fcac_graph.clusters(points, np.full(90, 5), seed=0)
    ...     round(clearness(points, np.full(90, 5), found.levels, seed=0), 1)
    1.0
    2.9
    """
    rng = np.random.default_rng((seed, 5))
    if len(places) > MOST:
        some = np.sort(rng.choice(len(places), MOST, replace=False))
        places, rows = np.ascontiguousarray(places[some]), rows[some]
        levels = fcac_graph.clusters(places, rows, seed).levels
    if not (best := _best(levels)):
        return None
    share = rows / rows.sum()
    apart = (places - share @ places) * np.sqrt(share)[:, None]
    clouds = [rng.normal(size=(len(places), len(places))) @ apart for _ in range(CLOUDS)]
    usual = np.mean([_best(fcac_graph.clusters(cloud, rows, seed).levels) for cloud in clouds])
    return float(best / usual) if usual else None


def _best(levels: Sequence[Level]) -> float:
    return max((level.score for level in levels), default=0.0)
