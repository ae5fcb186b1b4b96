"""The one-shot estimators: each site sends its local result once, and the coordinator clusters all of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

from fedclust.algorithms import kfed, mufc
from fedclust.algorithms.cmeans.fit_result import FitResult
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Protocol, Quorum
from fedclust.core.errors import DataError
from fedclust.core.site_interface import View
from fedclust.core.types import Floats
from fedclust.federation.federation import Federation
from fedclust.models.centers_estimator import CentersEstimator
from fedclust.models.input_checks import is_real_number, is_whole_number, require
from fedclust.questions import bounds as limits
from fedclust.questions import standardisation

GRID_DEVIATIONS = 4.0  # standard deviations around the mean that a grid covers without public bounds


class _OneShot(CentersEstimator):
    """What both methods share: view, prediction, and a single round over rows."""

    lossless: ClassVar[bool] = False
    takes_initial_centers: ClassVar[bool] = False
    participation = 1.0
    small_sites = None
    init = "careful"  # fixed by the method, not a parameter
    tol = None
    max_iter = 1
    local_clusters: int | None
    min_rows: int

    @property
    def _clusters_per_site(self) -> int:
        return self.n_clusters if self.local_clusters is None else self.local_clusters

    def _check_row_count(self, rows: int) -> None:
        if rows <= self._clusters_per_site:
            raise DataError(
                f"n_samples={rows} is too few for {count_noun(self._clusters_per_site, 'cluster')} at a "
                "site; ask for fewer clusters"
            )

    def _check_parameters(self, fed: Federation) -> None:
        name = type(self).__name__
        require(fed.split == "rows", f"{name} works on row splits only; for a column split use KMeans")
        super()._check_parameters(fed)
        require(self.missing != "partial", f"{name} needs rows without missing values; set missing to 'drop'")
        require(
            is_whole_number(self._clusters_per_site) and self._clusters_per_site >= 1,
            f"local_clusters is {self.local_clusters!r}; it must be a whole number of at least 1, or None",
        )
        require(
            is_whole_number(self.min_rows) and self.min_rows >= 2,
            f"min_rows is {self.min_rows!r}; it must be at least 2, because a centre must represent at least 2 rows",
        )

    def _fit_rows(self, fed: Federation) -> Protocol[tuple[FitResult, View]]:
        view, box, gaps = yield from self._agree_on_view(fed)
        fitted = yield from self._fit_once(fed, view, box)
        return replace(fitted, start=view.to_original_units(fitted.start), notes=(*gaps, *fitted.notes)), view

    @abstractmethod
    def _fit_once(self, fed: Federation, view: View, box: tuple[Floats, Floats] | None) -> Protocol[FitResult]:
        """The script of the single round and of the coordinator's clustering."""


class KFed(_OneShot):
    """k-FED: each site clusters its own rows and sends its centres once; the coordinator clusters the centres.

    Not lossless, and every site sends its own centres. A site that does not have more rows than clusters sends
    nothing. No centre stands for fewer than `min_rows` rows or equals a row. `notes_` says how many sites this
    affected.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    local_clusters : int or None, default=None
        Clusters at each site; None means `n_clusters`.
    min_rows : int, default=5
        Smallest number of rows that a centre may stand for. Smaller clusters join the nearest one.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with missing values.
    scale, bounds, quorum, random_state
        As for `KMeans`.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
    >>> model = fc.KFed(3).fit(fc.Federation.local({"a": X[::2], "b": X[1::2]}))
    >>> fc.agreement.ari(model.predict(X), np.repeat([0, 1, 2], 30))
    1.0
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        local_clusters: int | None = None,
        min_rows: int = 5,
        scale: str = "none",
        missing: str = "refuse",
        bounds: Any = None,
        quorum: Quorum = "all",
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.local_clusters = local_clusters
        self.min_rows = min_rows
        self.scale = scale
        self.missing = missing
        self.bounds = bounds
        self.quorum = quorum
        self.random_state = random_state

    def _fit_once(self, fed: Federation, view: View, box: tuple[Floats, Floats] | None) -> Protocol[FitResult]:  # noqa: ARG002
        return kfed.fit(
            view, count=self.n_clusters, local=self._clusters_per_site, least=self.min_rows, seed=self.seed_
        )


class MUFC(_OneShot):
    """MUFC: each site counts its rows around a few selected ones, and only the sum over all sites can be read.

    Not lossless. For each selected row, the mean of the rows around it leaves the site, rounded to a grid; the paper
    rounds the selected row itself. The method is designed for removing rows: `fc.unlearn` with how "quick" keeps all
    selected rows that were not removed.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    local_clusters : int or None, default=None
        Number of rows selected at each site; None means `n_clusters`.
    min_rows : int, default=5
        Smallest number of rows that a selected row may stand for. If a selected row stands for fewer rows, or the mean
        of these rows equals a row, the rows are assigned to the other selected rows.
    step : float or None, default=None
        Width of a grid cell as a share of the box; None means 1 / sqrt(number of rows).
    bounds : pair or list of pairs, default=None
        The box of the grid. Without it, the box is the mean of all rows plus and minus four standard deviations, and
        values outside it are moved to its edge.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with missing values.
    scale, quorum, random_state
        As for `KMeans`.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
    >>> model = fc.MUFC(3, local_clusters=5).fit(fc.Federation.local({"a": X[::2], "b": X[1::2]}))
    >>> fc.agreement.ari(model.predict(X), np.repeat([0, 1, 2], 30)) > 0.9
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        local_clusters: int | None = None,
        min_rows: int = 5,
        step: float | None = None,
        scale: str = "none",
        missing: str = "refuse",
        bounds: Any = None,
        quorum: Quorum = "all",
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.local_clusters = local_clusters
        self.min_rows = min_rows
        self.step = step
        self.scale = scale
        self.missing = missing
        self.bounds = bounds
        self.quorum = quorum
        self.random_state = random_state

    keeps_site_picks: ClassVar[bool] = True

    @property
    def sites_that_picked(self) -> int:
        return self.n_sites_picked_

    def _check_parameters(self, fed: Federation) -> None:
        super()._check_parameters(fed)
        require(
            self.step is None or (is_real_number(self.step) and 1e-9 <= self.step <= 1),
            f"the parameter 'step' is {self.step!r}; it must be a number above 0 and at most 1",
        )

    def _fit_once(self, fed: Federation, view: View, box: tuple[Floats, Floats] | None) -> Protocol[FitResult]:
        rows = yield from limits.total_rows(len(fed.columns), self._missing_rule)
        if box is None:
            found = yield from standardisation.column_statistics(view)
            seen = found.mean - GRID_DEVIATIONS * found.sd, found.mean + GRID_DEVIATIONS * found.sd
        else:
            seen = view.transform_points(box[0]), view.transform_points(box[1])
        fitted, self.n_sites_picked_ = yield from mufc.fit(
            view,
            seen,
            count=self.n_clusters,
            levels=math.ceil(math.sqrt(rows)) if self.step is None else math.ceil(1 / self.step),
            local=self._clusters_per_site,
            least=self.min_rows,
            parties=len(fed.parties),
            seed=self.seed_,
            again=self.keep_picks,
        )
        return fitted
