"""Where to look for K when nobody says: what each site finds in its own rows, and how such findings combine.

Paper 2's rule of thumb is [min_l K_l, min_l K_l + max_l K_l]. Sites that all find the same few clusters can still hold
many between them (its own example: three sites find 2 each where there are 5), so the range reaches to sum_l K_l.

Paper: Stallmann and Wilbik, "On a framework for federated cluster analysis".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans import row_split
from fedclust.algorithms.gaussian_mixture import mixture
from fedclust.core.effects import Protocol, each, handler, run_on_own_rows
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, facts
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats, PartyId
from fedclust.questions import bounds, cluster_indices, schema, standardisation
from fedclust.questions.choice_of_k.centers_for_each_k import grow_centers
from fedclust.questions.question_contracts import fits_local_k

LOCAL_INDEX = "fuzzy-davies-bouldin"
MAX_LOCAL_CLUSTERS = 6  # a site looks no further
MAX_CHOSEN_CLUSTERS = 20  # nor does the federation
MIN_CLUSTER_ROWS = 5  # rows that a cluster needs
LOCAL_FUZZINESS = 2.0


@dataclass(frozen=True)
class LocalKQuestion(ViewedQuestion):
    """Find the number of clusters in your own rows."""

    view: View


@dataclass(frozen=True)
class LocalK(Release):
    k: int = facts(
        "how many clusters the site finds in its own rows, to limit the K that are tried on all rows",
        most=MAX_LOCAL_CLUSTERS,
    )


@handler(releases=LocalK, contract=fits_local_k)
def own_k(site: Site, ask: LocalKQuestion) -> LocalK:
    """The K of the least index of fuzzy c-means on this party's rows alone; 1 where they are too few to tell."""
    most = min(MAX_LOCAL_CLUSTERS, site.rows // MIN_CLUSTER_ROWS)
    if most < 2:
        return LocalK(1)
    values = run_on_own_rows(curve(ask.view, most), site)
    return LocalK(2 + int(np.argmin(values)))


def curve(view: View, max_clusters: int) -> Protocol[list[float]]:
    """The index of fuzzy c-means for K = 2, ..., most, each from grown centres of c-means."""
    frame = yield from mixture.make_frame(view, full=False)
    grown = yield from grow_centers(frame, max_clusters)
    values = []
    for one in grown[1:]:
        centers = view.transform_points(frame.view.to_original_units(one.centers))
        fitted = yield from row_split.fit(
            view, centers, m=LOCAL_FUZZINESS, tol=1e-4, max_iter=60, parties=(), rng=np.random.default_rng(0)
        )
        scores = yield from cluster_indices.compute_indices(view, fitted.centers, LOCAL_FUZZINESS, (LOCAL_INDEX,))
        values.append(scores[LOCAL_INDEX])
    return values


def study_view(
    width: int,
    declared: Mapping[PartyId, schema.Schema],
    *,
    missing: str,
    scale: str,
    box: tuple[Floats, Floats] | None,
) -> Protocol[View]:
    """How an estimator with these parameters looks at the columns of a row split."""
    if declared:
        yield from schema.check_declarations(declared, missing)
    view = (
        (yield from bounds.agree_on_bounds(width, missing)) if box is None else bounds.view_from_bounds(*box, missing)
    )
    if scale == "standardise":
        return (yield from standardisation.standardise(view))
    if scale == "minmax" and box is not None:
        return standardisation.scale_view(view, box[0], np.where(box[1] > box[0], box[1] - box[0], 1.0))
    return view


def local_counts(view: View) -> Protocol[list[int]]:
    """Every site's own K."""
    answers = yield from each(own_k, LocalKQuestion(view))
    return [answer.k for answer in answers.values()]


def range_of_k(counts: Sequence[int], rows: int) -> tuple[int, int]:
    """The range of K: the paper's rule, reaching at least to the sum of the sites' own, within reason."""
    low, high = min(counts), max(min(counts) + max(counts), sum(counts))
    return low, max(min(high, MAX_CHOSEN_CLUSTERS, rows // MIN_CLUSTER_ROWS), low)


def widen_range(high: int, rows: int) -> int:
    """The next upper end, where the choice fell on this one."""
    return max(min(high + max(2, high // 2), MAX_CHOSEN_CLUSTERS, rows // MIN_CLUSTER_ROWS), high)


def elbow(ks: Sequence[int], values: Sequence[float]) -> int:
    """The K at which a falling curve bends most: farthest below the straight line between its ends.

    An infinite value is no point of the curve; with fewer than three points, the least value decides.
    """
    x, y = np.asarray(ks, float), np.asarray(values, float)
    finite = np.isfinite(y)
    if finite.sum() < 3:
        return int(ks[int(np.argmin(np.where(finite.any() & ~finite, np.inf, y)))])
    x, y = x[finite], y[finite]
    line = y[0] + (y[-1] - y[0]) * (x - x[0]) / (x[-1] - x[0])
    return int(x[int(np.argmax(line - y))])
