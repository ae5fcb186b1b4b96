"""The lossless estimators: k-means (hard c-means) and fuzzy c-means, over rows and over columns."""

from __future__ import annotations

from typing import Any, ClassVar

from fedclust.core.effects import Quorum
from fedclust.models.assignment import FuzzyCentersModel
from fedclust.models.centers_estimator import CentersEstimator
from fedclust.models.input_checks import is_real_number, require
from fedclust.models.labels_only import LabelsOnlyEstimator
from fedclust.models.streamed_fit import StreamingEstimator

MAX_FUZZINESS = 100  # beyond, memberships raised to m leave the range of floats


class KMeans(StreamingEstimator, LabelsOnlyEstimator, CentersEstimator):
    """Hard c-means (k-means), the same as on pooled rows, bit for bit.

    Parameters
    ----------
    n_clusters : number of clusters.
    init : "box", "party", "careful", or centres.
    tol, max_iter : stop when the centres move by less than tol (None: never), or after max_iter.
    scale : "none", "standardise", or "minmax" with public `bounds` (a pair, or a pair per column).
    missing : "refuse" gaps, "drop" rows that have any, or "partial": distances over the values a row has.
    participation : share of the parties asked in each round.
    quorum : "all", or the number or share of parties that must answer.
    singletons : "paper" hides a site's cluster of one row, which costs exactness and leaks; see the threat model.
    small_sites : "paper" lets sites with few rows abstain.
    opens : over a column split, what is opened in each round: "distances", or "labels" alone, found on shares.

    Attributes
    ----------
    inertia_ : the sum of squared distances of all rows to their nearest centre, in the scale the model was fitted in.
    labels_ : the nearest centre of each row, site after site; over a column split with an `id`, in the order of ids.
    ids_ : over a column split with an `id`, the id of each of these rows, where all sites are in this process.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> a, b = np.array([[0.0], [1.0], [10.0]]), np.array([[11.0], [12.0]])
    >>> model = fc.KMeans(2, init=[[0.0], [10.0]]).fit(fc.Federation.local({"a": a, "b": b}))
    >>> model.cluster_centers_.ravel().tolist()
    [0.5, 11.0]
    """

    saved_attributes: ClassVar[tuple[str, ...]] = (
        *(name for name in CentersEstimator.saved_attributes if name != "objective_"),
        "inertia_",
    )

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "careful",
        tol: float | None = 1e-6,
        max_iter: int = 100,
        scale: str = "none",
        missing: str = "refuse",
        bounds: Any = None,
        participation: float = 1.0,
        quorum: Quorum = "all",
        singletons: str | None = None,
        small_sites: str | None = None,
        opens: str = "distances",
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.scale = scale
        self.missing = missing
        self.bounds = bounds
        self.participation = participation
        self.quorum = quorum
        self.singletons = singletons
        self.small_sites = small_sites
        self.opens = opens
        self.random_state = random_state

    def _keep_objective(self, objective: float) -> None:
        self.inertia_ = objective

    @property
    def final_objective(self) -> float | None:
        return self.inertia_

    @property
    def _hide_singletons(self) -> bool:  # type: ignore[override]
        require(self.singletons in (None, "paper"), f"singletons is {self.singletons!r}; choose None or 'paper'")
        return self.singletons == "paper"


class FuzzyCMeans(StreamingEstimator, FuzzyCentersModel, CentersEstimator):
    """Fuzzy c-means at fuzziness m > 1, the same as on pooled rows, bit for bit.

    Parameters are those of `KMeans`, and m.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
    >>> pooled = fc.FuzzyCMeans(2, init="box").fit(X)
    >>> parts = fc.FuzzyCMeans(2, init="box").fit(fc.Federation.local({"a": X[:7], "b": X[7:40], "c": X[40:]}))
    >>> bool((parts.cluster_centers_ == pooled.cluster_centers_).all())
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float = 2.0,
        init: Any = "careful",
        tol: float | None = 1e-6,
        max_iter: int = 100,
        scale: str = "none",
        missing: str = "refuse",
        bounds: Any = None,
        participation: float = 1.0,
        quorum: Quorum = "all",
        small_sites: str | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.init = init
        self.tol = tol
        self.max_iter = max_iter
        self.scale = scale
        self.missing = missing
        self.bounds = bounds
        self.participation = participation
        self.quorum = quorum
        self.small_sites = small_sites
        self.random_state = random_state

    @property
    def fuzziness(self) -> float:
        require(
            is_real_number(self.m) and 1 < self.m <= MAX_FUZZINESS,
            f"m is {self.m!r}; fuzziness must be above 1 (use KMeans for hard clusters) and at most {MAX_FUZZINESS}",
        )
        return float(self.m)
