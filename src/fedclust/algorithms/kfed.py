"""k-FED: every device clusters alone, once; the server makes the clusters of all of what the devices found.

A device projects its rows A on their first k singular vectors (not centred), finds centres nu there by k-means++ and
Lloyd, keeps for each the rows that lie three times nearer to it than to any other (the 1:3 rule), and runs Lloyd on its
whole rows from the means of those. The server picks k of all devices' centres, each the farthest from those before, and
runs k-means on all of them from there.

A device's centres leave it, one message in all. None stands for fewer rows than `least`, and none is a row: clusters
too small join the nearest, a centre that is a row but for rounding stays at home, and a device with no more rows than
clusters abstains.

Paper: Dennis, Li and Smith, "Heterogeneity for the win: one-shot federated clustering"; the local part is Awasthi and
Sheffet's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.fit_result import FitResult, Round, frobenius
from fedclust.algorithms.cmeans.row_split import make_question, one_round
from fedclust.algorithms.fuzzy_baselines import averaged_fcm, local_fcm
from fedclust.algorithms.method_contracts import fits_devices
from fedclust.algorithms.shared import initial_centers
from fedclust.algorithms.shared.eigenvectors import eigen
from fedclust.algorithms.shared.fixed_order import gram_matrix, matrix_product
from fedclust.algorithms.shared.row_likeness import near_rows
from fedclust.core.effects import Protocol, each, handler, report
from fedclust.core.errors import DataError
from fedclust.core.question_types import FlooredQuestion, PointsQuestion, ViewedQuestion
from fedclust.core.release import FLOOR_FROM_QUESTION, Release, points
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats, Ints
from fedclust.kernels import distances

NEARER_FACTOR = 3.0  # the 1:3 rule
DEVICE_RESTARTS = 3  # k-means++ starts at a device
KFED_LOSSY_NOTE = (
    "Not lossless: each site clustered its rows separately, so the result differs from that of the pooled rows."
)
KFED_CENTERS_NOTE = "Every site sent its own centres to the coordinator, once."


@dataclass(frozen=True)
class DeviceQuestion(ViewedQuestion, PointsQuestion, FlooredQuestion):
    """Cluster alone into so many, each of at least so many rows."""

    view: View
    count: int
    least: int
    seed: int

    def max_points(self) -> int:
        return self.count

    def rows_per_point(self) -> int:
        return self.least


@dataclass(frozen=True)
class DeviceCenters(Release):
    centers: Floats = points(
        "this site's own centres: each is the mean of several rows, and none equals a row", floor=FLOOR_FROM_QUESTION
    )


# A site clusters alone once in a study: of two ways to split its rows that differ by one, the means show that row.
@handler(releases=DeviceCenters, methods=("k-fed",), max_distinct=1, contract=fits_devices)
def device_centers(site: Site, ask: DeviceQuestion) -> DeviceCenters:
    """Where this site alone puts its centres; none if it has too few rows."""
    nothing = np.empty((0, len(site.columns)))
    if site.rows <= ask.count:
        return DeviceCenters(nothing)
    rng = site.rng_from_seed(ask.seed)
    rows = initial_centers.read_rows(site, ask.view, sample=rng)
    centers = lloyd(rows, trusted_means(rows, ask.count, rng))
    labels = merge_small_clusters(rows, centers, ask.least)
    if labels is None:
        return DeviceCenters(nothing)
    means = np.stack([rows[labels == c].mean(axis=0) for c in np.unique(labels)])
    return DeviceCenters(means[~near_rows(means, rows)])


def trusted_means(rows: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Means of the rows that the 1:3 rule trusts, around centres found in the first `count` singular directions."""
    seen = singular_projection(rows, count)
    starts = (seen[_distinct_picks(seen, initial_centers.plus_plus(seen, count, rng))] for _ in range(DEVICE_RESTARTS))
    nu = min((averaged_fcm.kmeans(seen, begin) for begin in starts), key=lambda found: found[0])[1]
    d2 = distances.squared_distances(np.ascontiguousarray(seen.T), nu)
    nearest = d2.argmin(axis=0)
    if len(nu) == 1:
        return np.asarray(rows.mean(axis=0, keepdims=True), np.float64)
    first, second = np.partition(d2, 1, axis=0)[:2]
    sure = first * NEARER_FACTOR**2 <= second
    means = []
    for c in range(len(nu)):
        own = nearest == c
        if own.any():
            means.append(rows[own & sure if (own & sure).any() else own].mean(axis=0))
    return np.stack(means)


def singular_projection(rows: Floats, count: int) -> Floats:
    """The rows in coordinates of their first `count` singular vectors; all of them where there are no more columns.

    >>> singular_projection(np.array([[3.0, 4.0], [6.0, 8.0]]), 1).round(9).tolist()
    [[5.0], [10.0]]
    """
    if rows.shape[1] <= count:
        return rows
    # The right singular vectors are the eigenvectors of A'A, which is small where A is long.
    first = eigen(gram_matrix(rows.T))[1][:count]
    return matrix_product(rows, first.T)


def lloyd(rows: Floats, centers: Floats) -> Floats:
    """Lloyd's rounds until nothing moves; a centre without rows goes."""
    while True:
        found = averaged_fcm.kmeans(rows, centers)[1]
        held = np.unique(distances.nearest_centers(np.ascontiguousarray(rows.T), found)[0])
        if len(held) == len(found):
            return found
        centers = found[held]


def merge_small_clusters(rows: Floats, centers: Floats, least: int) -> Ints | None:
    """The cluster of each row, none with fewer than `least`: the smallest gives its rows to the nearest that is left.

    None where all rows together are too few.
    """
    columns = np.ascontiguousarray(rows.T)
    while True:
        labels = distances.nearest_centers(columns, centers)[0].astype(np.int64)
        sizes = np.bincount(labels, minlength=len(centers))
        small = np.flatnonzero(sizes < least)
        if not len(small):
            return labels
        if len(centers) == 1:
            return None
        centers = np.delete(centers, small[sizes[small].argmin()], axis=0)


def is_row(points: Floats, rows: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which points are rows, to the last bit."""
    return np.array([bool((rows == point).all(axis=1).any()) for point in points], bool)


def farthest_first(points: Floats, count: int) -> Floats:
    """Points each farthest from all before, the first nearest to the mean of all.

    >>> farthest_first(np.array([[0.0], [1.0], [5.0], [9.0]]), 3).ravel().tolist()
    [5.0, 0.0, 9.0]
    """
    picked = [int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmin())]
    apart = ((points - points[picked[0]]) ** 2).sum(axis=1)
    while len(picked) < count:
        picked.append(int(apart.argmax()))
        apart = np.minimum(apart, ((points - points[picked[-1]]) ** 2).sum(axis=1))
    return points[picked]


def fit(view: View, *, count: int, local: int, least: int, seed: int) -> Protocol[FitResult]:
    """One message from each device, then farthest-first and k-means on what came."""
    answers = yield from each(device_centers, DeviceQuestion(view, local, least, seed))
    own = [answers[party].centers for party in sorted(answers)]
    points = np.unique(np.concatenate(own), axis=0)
    begin, drawn = yield from fill_centers(view, points, count, seed)
    centers = begin if drawn else averaged_fcm.kmeans(np.concatenate(own), begin)[1]
    notes = [
        KFED_LOSSY_NOTE,
        KFED_CENTERS_NOTE,
        *_sent_centers_notes([len(some) for some in own], local, least),
        *drawn_centers_notes(count, drawn),
    ]
    return (yield from one_round_result(view, begin, centers, notes))


def fill_centers(view: View, points: Floats, count: int, seed: int) -> Protocol[tuple[Floats, int]]:
    """Farthest-first centres among different points; where there are too few, the rest are drawn in the box."""
    if not len(points):
        raise DataError(
            "no site could send a centre, because each has too few rows or only equal rows; "
            "ask for fewer clusters, or use KMeans"
        )
    if len(points) >= count:
        return farthest_first(points, count), 0
    drawn = yield from initial_centers.box_centers(view, count - len(points), seed, None)
    return np.concatenate([points, drawn]), len(drawn)


def one_round_result(view: View, begin: Floats, centers: Floats, notes: list[str]) -> Protocol[FitResult]:
    """The result of a method of one round: objectives before and after are those of all rows."""
    before = (yield from one_round(make_question(view, begin, 1.0), None)).objective
    shift = frobenius(centers - begin)
    yield from report(round=1, shift=shift, objective=before)
    return (
        yield from local_fcm.finish_fit(view, centers, 1.0, start=begin, history=[Round(1, shift, before)], notes=notes)
    )


def drawn_centers_notes(count: int, drawn: int) -> list[str]:
    """What to say of centres that nothing was found for."""
    return (
        [f"Only {count - drawn} different centres were found; the other {drawn} were drawn at random."] if drawn else []
    )


def _sent_centers_notes(sent: list[int], local: int, least: int) -> list[str]:
    none, fewer = sum(not one for one in sent), sum(0 < one < local for one in sent)
    notes = (
        [f"{none} of {len(sent)} sites sent no centre, because they have too few rows or all their rows are equal."]
        if none
        else []
    )
    if fewer:
        notes.append(
            f"{fewer} of {len(sent)} sites sent fewer than {local} centres. "
            f"Clusters of fewer than {least} rows were merged into others, and centres equal to a row were left out."
        )
    return notes


def _distinct_picks(points: Floats, picked: list[int]) -> Ints:
    """Picks of different points, in the order they were made."""
    _, first = np.unique(points[picked], axis=0, return_index=True)
    return np.array(picked, np.int64)[np.sort(first)]
