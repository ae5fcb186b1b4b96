"""Clusters of weighted points that are balls, by k-means: where points are few, or where balls part them as well.

few    a graph of few points says little: k-means for 2, 3, .. clusters, judged by the score of communities
many   k-means that goes on from communities; theirs are kept where it cuts their graph worse
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedclust.algorithms.shared import weighted_kmeans
from fedclust.core.types import Floats, Ints, Units
from fedclust.kernels import distances
from fedclust.questions import label_agreement

MOST = 15  # clusters of few points
LEAST = 3  # points for each of them
STARTS = 5
STARTS_OF_SUBSETS = 2


def tried(places: Floats, rows: Ints, subsets: Sequence[Ints], seed: int) -> Iterator[tuple[Units, float]]:
    """Balls for every number of clusters: their labels, and the mean adjusted Rand index with those of subsets.

    >>> line = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
    >>> [(own.tolist(), stable) for own, stable in tried(line, np.full(6, 5), [np.array([0, 1, 3, 4])], 0)]
    [([0, 0, 0, 1, 1, 1], 1.0)]
    """
    for count in range(2, min(MOST, max(2, len(places) // LEAST)) + 1):
        rng = np.random.default_rng((seed, 4, count))
        own = _balls(places, rows, count, rng, STARTS)
        agreed = [alike(own[some], _balls(places[some], rows[some], count, rng, STARTS_OF_SUBSETS)) for some in subsets]
        yield own, max(float(np.mean(agreed)), 0.0)


def gone_on(places: Floats, rows: Ints, labels: Units) -> Units:
    """Where k-means comes to that begins with the means of clusters."""
    means = np.stack([np.average(places[labels == c], axis=0, weights=rows[labels == c]) for c in np.unique(labels)])
    _, centers = weighted_kmeans.kmeans(places, rows, means)
    return distances.labels(np.ascontiguousarray(places.T), centers)[0]


def alike(a: Units, b: Units) -> float:
    """The adjusted Rand index of two partitions of the same points.

    >>> alike(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    """
    width = int(b.max()) + 1
    table = np.bincount(a * width + b, minlength=(int(a.max()) + 1) * width)
    return label_agreement.ari(table.reshape(-1, width).astype(np.int64))


def _balls(places: Floats, rows: Ints, count: int, rng: np.random.Generator, times: int) -> Units:
    """The best of some k-means, numbered from 0 on in the order of the points."""
    tries = (
        weighted_kmeans.kmeans(places, rows, begin) for begin in weighted_kmeans.starts(places, rows, count, rng, times)
    )
    _, centers = min(tries, key=lambda found: found[0])
    labels = distances.labels(np.ascontiguousarray(places.T), centers)[0]
    _, first, back = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[back], np.int32)
