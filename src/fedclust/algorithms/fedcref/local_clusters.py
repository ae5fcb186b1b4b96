"""The initial clusters of a site: from k-means, from deep embedded clustering, or given as labels."""

from __future__ import annotations

import numpy as np

from fedclust.algorithms import dec
from fedclust.algorithms.autoencoders import autoencoder
from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import DataError
from fedclust.core.types import Array, Ints

LOCAL_STARTS = ("kmeans", "encoded", "dec")
MAX_ESTIMATED_CLUSTERS = 10  # clusters that are looked for where their number is not known
ESTIMATE_SAMPLE_ROWS = 2_000  # rows on which the number of clusters is judged


def first_clusters(
    rows: Array, *, clusters: int, start: str, given: Ints | None, seed: int, device: str = "cpu"
) -> Ints:
    """A cluster for each row, numbered from 0 without gaps; `clusters` 0 leaves their number to the silhouette."""
    if given is not None:
        if given.shape != (len(rows),):
            raise DataError(
                f"init gives {count_noun(len(given), 'label')} for {count_noun(len(rows), 'row')}; give "
                "one label per row"
            )
        return np.unique(given, return_inverse=True)[1].astype(np.int64)
    if not len(rows):
        return np.zeros(0, np.int64)
    seen = autoencoder.encode_rows(rows, seed=seed, device=device) if start == "encoded" else rows
    count = min(clusters or estimate_cluster_count(seen, seed), len(np.unique(seen, axis=0)))
    if count == 1:
        return np.zeros(len(rows), np.int64)
    deep = start == "dec"
    labels = dec.fit(rows, count, seed=seed, device=device).labels if deep else _kmeans(seen, count, seed)
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def estimate_cluster_count(rows: Array, seed: int) -> int:
    """The number of clusters, from 2 on, whose k-means partition has the largest silhouette; 1 for very few rows."""
    from sklearn.metrics import silhouette_score  # noqa: PLC0415 slow to import

    some = rows
    if len(rows) > ESTIMATE_SAMPLE_ROWS:
        some = rows[np.random.default_rng(seed).choice(len(rows), ESTIMATE_SAMPLE_ROWS, replace=False)]
    different = len(np.unique(some, axis=0))
    scores = {}
    for count in range(2, min(MAX_ESTIMATED_CLUSTERS, different - 1) + 1):
        labels = _kmeans(some, count, seed)
        if len(np.unique(labels)) > 1:
            scores[count] = float(silhouette_score(some, labels))
    return max(scores, key=lambda count: scores[count]) if scores else 1


def _kmeans(rows: Array, count: int, seed: int) -> Ints:
    from sklearn.cluster import KMeans  # noqa: PLC0415 slow to import

    found = KMeans(count, n_init=5, random_state=seed).fit(np.asarray(rows, np.float64))
    return np.asarray(found.labels_, np.int64)
