"""Spherical clusters of weighted points, by k-means: where points are few, or where it separates them equally well.

few    a graph of few points says little: k-means for 2, 3, .. clusters, judged by the score of communities
many   k-means that starts from communities; these are kept where k-means cuts their graph worse
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedclust.algorithms.shared import weighted_kmeans
from fedclust.core.types import Floats, Ints, Units
from fedclust.kernels import distances
from fedclust.questions import label_agreement

MAX_CLUSTERS = 15
MIN_POINTS_PER_CLUSTER = 3
STARTS = 5
STARTS_OF_SUBSETS = 2


def try_each_count(places: Floats, rows: Ints, subsets: Sequence[Ints], seed: int) -> Iterator[tuple[Units, float]]:
    """K-means for every number of clusters: the labels, and the mean adjusted Rand index with those of subsets.

    >>> line = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
    >>> [(own.tolist(), stable) for own, stable in try_each_count(line, np.full(6, 5), [np.array([0, 1, 3, 4])], 0)]
    [([0, 0, 0, 1, 1, 1], 1.0)]
    """
    for count in range(2, min(MAX_CLUSTERS, max(2, len(places) // MIN_POINTS_PER_CLUSTER)) + 1):
        rng = np.random.default_rng((seed, 4, count))
        own = _best_kmeans(places, rows, count, rng, STARTS)
        agreed = [
            adjusted_rand(own[some], _best_kmeans(places[some], rows[some], count, rng, STARTS_OF_SUBSETS))
            for some in subsets
        ]
        yield own, max(float(np.mean(agreed)), 0.0)


def refine_by_kmeans(places: Floats, rows: Ints, labels: Units) -> Units:
    """The labels of k-means that starts from the means of clusters."""
    means = np.stack([np.average(places[labels == c], axis=0, weights=rows[labels == c]) for c in np.unique(labels)])
    _, centers = weighted_kmeans.kmeans(places, rows, means)
    return distances.nearest_centers(np.ascontiguousarray(places.T), centers)[0]


def adjusted_rand(a: Units, b: Units) -> float:
    """The adjusted Rand index of two partitions of the same points.

    >>> adjusted_rand(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    """
    width = int(b.max()) + 1
    table = np.bincount(a * width + b, minlength=(int(a.max()) + 1) * width)
    return label_agreement.ari(table.reshape(-1, width).astype(np.int64))


def _best_kmeans(places: Floats, rows: Ints, count: int, rng: np.random.Generator, times: int) -> Units:
    """The labels of the best of some runs of k-means, numbered from 0 in the order of the points."""
    starts = weighted_kmeans.plus_plus_starts(places, rows, count, rng, times)
    tries = (weighted_kmeans.kmeans(places, rows, start) for start in starts)
    _, centers = min(tries, key=lambda found: found[0])
    labels = distances.nearest_centers(np.ascontiguousarray(places.T), centers)[0]
    _, first, back = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first, kind="stable"), kind="stable")[back], np.int32)
