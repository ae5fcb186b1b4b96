"""Fuzzy c-means by averaging and by gradients: published federated methods that are not lossless, for comparison."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedclust.algorithms.cmeans.fit_result import FitResult
from fedclust.algorithms.fuzzy_baselines import averaged_fcm, gradient_fcm
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Protocol, Quorum
from fedclust.core.errors import DataError
from fedclust.core.site_interface import View
from fedclust.core.types import Floats
from fedclust.federation.federation import Federation
from fedclust.models.cmeans import FuzzyCentersEstimator
from fedclust.models.input_checks import is_real_number, is_whole_number, require

AVERAGE_METHODS = ("kmeans", "index")


class _LocalFuzzyCMeans(FuzzyCentersEstimator):
    """What both methods share: sites run fuzzy c-means on their own rows; row splits only."""

    lossless: ClassVar[bool] = False
    small_sites = None

    def _check_parameters(self, fed: Federation) -> None:
        require(
            fed.split == "rows", f"{type(self).__name__} works on row splits only; for a column split use FuzzyCMeans"
        )
        super()._check_parameters(fed)
        require(
            self.missing != "partial", f"{type(self).__name__} needs rows without missing values; set missing to 'drop'"
        )


class AveragedFuzzyCMeans(_LocalFuzzyCMeans):
    """Fuzzy c-means at each site until it converges, then an average of the sites' centres (FedFCM in paper 2).

    Not lossless. With average "kmeans" every site sends its own centres in every round; `notes_` says so.

    Parameters
    ----------
    n_clusters, init, scale, bounds, participation, quorum, random_state
        As for `FuzzyCMeans`.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with missing values.
    m : float, default=2.0
        Fuzziness.
    average : {"kmeans", "index"}, default="kmeans"
        "kmeans" clusters the centres of all sites, unweighted. "index" averages the k-th centres of all sites, weighted
        by memberships. This is the "federated averaging" of paper 2, which fails if sites have different clusters.
    tol : float or None, default=1e-3
        Stop when the centres move by less than this in sum. With None, the run never stops early.
    max_iter : int, default=100
        Largest number of rounds.
    local_tol : float, default=1e-3
        A site has converged when its memberships change by less than this, in the Frobenius norm.

    Examples
    --------
    >>> import fedclust as fc
    >>> parties, truth = fc.datasets.motivational()
    >>> model = fc.AveragedFuzzyCMeans(5, init="box", scale="standardise").fit(fc.Federation.local(parties))
    >>> bool(fc.agreement.displacement(model.cluster_centers_, truth.centers) < 0.2)
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float = 2.0,
        average: str = "kmeans",
        init: Any = "careful",
        tol: float | None = 1e-3,
        local_tol: float = 1e-3,
        max_iter: int = 100,
        scale: str = "none",
        missing: str = "refuse",
        bounds: Any = None,
        participation: float = 1.0,
        quorum: Quorum = "all",
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.average = average
        self.init = init
        self.tol = tol
        self.local_tol = local_tol
        self.max_iter = max_iter
        self.scale = scale
        self.missing = missing
        self.bounds = bounds
        self.participation = participation
        self.quorum = quorum
        self.random_state = random_state

    def _check_row_count(self, rows: int) -> None:
        if rows < (least := averaged_fcm.min_local_rows(self.n_clusters)):
            raise DataError(
                f"n_samples={rows} is fewer than the {count_noun(least, 'row')} that each site needs; "
                "ask for fewer clusters"
            )

    def _check_parameters(self, fed: Federation) -> None:
        super()._check_parameters(fed)
        require(
            self.average in AVERAGE_METHODS,
            f"the parameter 'average' is '{self.average}'; choose one of {', '.join(AVERAGE_METHODS)}",
        )
        require(
            is_real_number(self.local_tol) and self.local_tol > 0,
            f"local_tol is {self.local_tol!r}; it must be a number above 0",
        )

    def _iterate_rows(self, fed: Federation, view: View, centers: Floats) -> Protocol[FitResult]:
        return averaged_fcm.fit(
            view,
            centers,
            average="index" if self.average == "index" else "kmeans",
            m=self.fuzziness,
            tol=self._stopping_tol(fed),
            local_tol=self.local_tol,
            max_iter=self.max_iter,
            rng=np.random.default_rng((self.seed_, 2)),
            parties=fed.parties,
            participation=self.participation,
        )


class GradientFuzzyCMeans(_LocalFuzzyCMeans):
    """Fuzzy c-means by gradients that sites compute after a few iterations of their own (Pedrycz's GDF-FCM).

    Not lossless. The gradient is a sum over a site's rows, so sites with more rows need a smaller step. A run whose
    centres diverge ends with `RunFailed`.

    Parameters
    ----------
    n_clusters, init, scale, bounds, participation, quorum, random_state
        As for `FuzzyCMeans`.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with missing values.
    m : float, default=2.0
        Fuzziness.
    step : float, default=0.005
        Factor of the averaged gradient. The default is that of paper 0; the author's own value, .05, is too large for
        most data sets.
    local_rounds : int, default=10
        Iterations of fuzzy c-means at a site before it computes its gradient.
    tol : float or None, default=1e-6
        Stop when the centres move by less than this. With None, the run never stops early.
    max_iter : int, default=100
        Largest number of rounds.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
    >>> parts = fc.Federation.local({"a": X[::2], "b": X[1::2]})
    >>> model, pooled = (kind(2, max_iter=300).fit(parts) for kind in (fc.GradientFuzzyCMeans, fc.FuzzyCMeans))
    >>> bool(fc.agreement.displacement(model.cluster_centers_, pooled.cluster_centers_) < 0.1)
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float = 2.0,
        step: float = 0.005,
        local_rounds: int = 10,
        init: Any = "careful",
        tol: float | None = 1e-6,
        max_iter: int = 100,
        scale: str = "none",
        missing: str = "refuse",
        bounds: Any = None,
        participation: float = 1.0,
        quorum: Quorum = "all",
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.step = step
        self.local_rounds = local_rounds
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.scale = scale
        self.missing = missing
        self.bounds = bounds
        self.participation = participation
        self.quorum = quorum
        self.random_state = random_state

    def _check_parameters(self, fed: Federation) -> None:
        super()._check_parameters(fed)
        require(
            is_real_number(self.step) and 0 < self.step < np.inf,
            f"the parameter 'step' is {self.step!r}; it must be a number above 0",
        )
        require(
            is_whole_number(self.local_rounds) and self.local_rounds >= 1,
            f"local_rounds is {self.local_rounds!r}; it must be a whole number of at least 1",
        )

    def _iterate_rows(self, fed: Federation, view: View, centers: Floats) -> Protocol[FitResult]:
        return gradient_fcm.fit(
            view,
            centers,
            m=self.fuzziness,
            step=self.step,
            local_rounds=self.local_rounds,
            tol=self._stopping_tol(fed),
            max_iter=self.max_iter,
            parties=fed.parties,
            participation=self.participation,
            rng=np.random.default_rng((self.seed_, 2)),
        )
