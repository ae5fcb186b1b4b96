"""Spherical k-means: rows and centres are directions, and a row goes to the centre with the smallest angle to it.

A site divides each row by its length and sums these unit vectors by cluster; the coordinator makes each sum a unit
vector again. The sums are exact, so the result over sites is the result on the pooled rows, bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedclust import Federation, StudyError
from fedclust.algorithms.shared import initial_centers
from fedclust.core import ring
from fedclust.core.effects import Protocol, handler, report, total
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import COLUMNS, Release, additive
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Floats
from fedclust.kernels import distances, exact_sums
from fedclust.models import Method
from fedclust.models.assignment import CentersModel
from fedclust.models.parameters import COUNT_PARAMETER, QUORUM_PARAMETER, TOLERANCE_PARAMETER
from fedclust.questions import bounds

UNIT = -50  # no coordinate of a unit vector is larger than 1


@dataclass(frozen=True)
class Directions(ViewedQuestion):
    """Sum the unit vectors of the rows nearest to each of these centres."""

    view: View
    centers: Floats


@dataclass(frozen=True)
class DirectionSums(Release):
    rows: Exact = additive("the number of rows of each cluster", cells=True, axes=("centers",))
    sums: Exact = additive("the sum of their unit vectors", power=UNIT, axes=("centers", COLUMNS))


@handler(releases=DirectionSums, methods=("spherical-k-means",), split="rows")
def sum_directions(site: Site, ask: Directions) -> DirectionSums:
    """One pass over this site's rows."""
    clusters, columns = ask.centers.shape
    units = np.full(columns, UNIT, np.int32)
    rows, parts = np.zeros(clusters, np.int64), []
    for block in site.blocks(ask.view):
        unit_rows = unit_length(block)
        labels = distances.nearest_centers(unit_rows, ask.centers)[0]
        rows += np.bincount(labels, minlength=clusters)
        own = [exact_sums.exact_totals(np.ascontiguousarray(unit_rows[:, labels == c]), units) for c in range(clusters)]
        parts.append(Exact(np.stack(own), np.broadcast_to(units, (clusters, columns)).copy()))
    return DirectionSums(Exact.from_counts(rows), ring.total(parts))


def unit_length(block: Array) -> Floats:
    """The rows of a block (columns by rows) divided by their lengths; a row of zeros stays."""
    block = np.asarray(block, np.float64)
    length = np.sqrt((block**2).sum(axis=0))
    return np.ascontiguousarray(block / np.where(length > 0, length, 1.0))


def fit(
    columns: int, clusters: int, *, init: Any, seed: int, tol: float | None, max_iter: int
) -> Protocol[tuple[View, Floats, Floats, Floats, list[dict[str, float]]]]:
    """Centres from sums of directions until they settle: view, initial centres, centres, rows and history."""
    view = yield from bounds.agree_on_bounds(columns)
    if isinstance(init, str):
        places, _ = yield from initial_centers.careful_centers(view, clusters, seed, np.random.default_rng((seed, 1)))
        start = view.to_original_units(places)
    else:
        start = np.asarray(init, np.float64)
    centers = unit_length(start.T).T.copy()
    history: list[dict[str, float]] = []
    for number in range(1, max_iter + 1):
        found = yield from total(sum_directions, Directions(view, centers))
        sums, rows = found.sums.to_floats(), found.rows.to_floats()
        lengths = np.sqrt((sums**2).sum(axis=1))[:, None]
        moved = np.where(lengths > 0, sums / np.where(lengths > 0, lengths, 1.0), centers)
        shift = math.sqrt(math.fsum(((moved - centers) ** 2).ravel().tolist()))
        objective = math.fsum(rows.tolist()) - math.fsum((sums * centers).ravel().tolist())
        yield from report(round=number, objective=objective, shift=shift)
        history.append({"round": number, "shift": shift, "objective": objective})
        centers = moved
        if tol is not None and shift < tol:
            break
    return view, start, centers, rows, history


class SphericalKMeans(CentersModel):
    """Spherical k-means, the same as on pooled rows, bit for bit; row splits only.

    The objective is the sum of 1 - cos(angle between a row and its centre).
    """

    lossless = True
    takes_initial_centers = True
    saved_attributes = (
        "cluster_centers_",
        "scaled_centers_",
        "initial_centers_",
        "cluster_sizes_",
        "objective_",
        "n_iter_",
        "history_",
    )

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "careful",
        tol: float | None = 1e-9,
        max_iter: int = 50,
        quorum: Any = "all",
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.quorum = quorum
        self.random_state = random_state

    @property
    def final_objective(self) -> float:
        return self.objective_

    def protocol(self, fed: Federation) -> Protocol[Any]:
        if fed.split != "rows":
            raise StudyError("SphericalKMeans needs whole rows; split by rows")
        return fit(
            len(fed.columns),
            self.n_clusters,
            init=self.init,
            seed=self.seed_,
            tol=self._stopping_tol(fed),
            max_iter=self.max_iter,
        )

    def store_result(self, fed: Federation, result: Any) -> None:
        view, self.initial_centers_, centers, self.cluster_sizes_, self.history_ = result
        self.n_iter_, self.objective_ = len(self.history_), self.history_[-1]["objective"]
        self.keep_centers(fed, view, centers)

    def labels_in_view(self, block: Array) -> Any:
        return distances.nearest_centers(unit_length(block), self.scaled_centers_)[0]


METHOD = Method(
    "spherical-k-means",
    SphericalKMeans,
    "spherical k-means",
    "Rows go to the centre with the smallest angle to them.",
    {"tol": TOLERANCE_PARAMETER, "max_iter": COUNT_PARAMETER, "quorum": QUORUM_PARAMETER},
)
