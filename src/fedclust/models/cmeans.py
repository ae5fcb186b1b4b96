"""The lossless estimators KMeans and FuzzyCMeans, for row splits and column splits."""

from __future__ import annotations

from typing import Any, ClassVar

from fedclust.core.effects import Quorum
from fedclust.models.assignment import FuzzyCentersModel
from fedclust.models.centers_estimator import CentersEstimator
from fedclust.models.floored_kmeans import FlooredEstimator
from fedclust.models.input_checks import is_real_number, require
from fedclust.models.labels_only import LabelsOnlyEstimator
from fedclust.models.streamed_fit import StreamingEstimator

MAX_FUZZINESS = 100  # above this, memberships to the power of m leave the range of floats


class KMeans(FlooredEstimator, LabelsOnlyEstimator, CentersEstimator):
    """k-means (hard c-means), with the same result as on pooled rows, bit for bit.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    init : {"k-means++", "random", "box", "party", "careful"} or array, default="k-means++"
        Initial centres. "k-means++" is greedy k-means++ on the means of small cells of the table, and "random" draws
        among these means; both need only sums over all sites. "box" draws uniformly within the bounds or, without
        bounds, within mean +- 2 standard deviations. An array gives the centres in original units. "party" lets one
        random site draw within its own mean +- 2 standard deviations, and "careful" is k-means++ on means of five rows
        at each site; with these two, the result depends on how the rows are spread over the sites. For a column split,
        the cells of "k-means++" come from squared distances; the other choices are "box" and an array.
    n_init : "auto" or int, default="auto"
        Number of sets of initial centres that are compared over all rows. The best of them is used. "auto" is 20 for
        "k-means++" and 1 for all others; "random" and "box" over a row split also take a number.
    tol : float or None, default=1e-6
        Stop when the centres move by less than this. With None, all `max_iter` iterations run.
    max_iter : int, default=100
        Largest number of iterations.
    scale : {"none", "standardise", "minmax"}, default="none"
        How to scale the columns. "minmax" needs public `bounds`.
    missing : {"refuse", "drop", "partial"}, default="refuse"
        What to do with missing values: refuse them, drop the rows that have any, or compute distances from the values
        that a row has.
    bounds : pair or list of pairs, default=None
        Public limits (low, high) of all columns, or one pair per column.
    participation : float, default=1.0
        Share of the sites that each round asks. Below 1 the result is not lossless.
    quorum : "all", int or float, default="all"
        Number or share of the sites that must answer.
    singletons : {None, "paper"}, default=None
        "paper" leaves out a site's sum for a cluster if only one of its rows is in the cluster. The result is then not
        exact, and the hidden row can still be computed; see docs/what-leaves-a-site.md.
    small_sites : {None, "paper"}, default=None
        "paper" leaves out sites with few rows.
    opens : {"distances", "labels"}, default="distances"
        What each round of a column split reveals: all squared distances, or only each row's label, computed on secret
        shares.
    opening : {"exact", "floored"}, default="exact"
        Which sums an iteration over a row split opens. "floored" opens a cluster's sum only if no row or at least
        `floor` rows distinguish the cluster from every cell opened before; otherwise its centre stays. The result is
        then not that of exact k-means, but still the same however the rows are spread.
    floor : int, default=10
        That number of rows, over all sites.
    random_state : int, NumPy generator or None, default=0
        Seed of all random draws.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_columns)
        Centres in original units.
    inertia_ : float or None
        Sum of the squared distances of all rows to their nearest centre, in the scale of the fit. None if only labels
        were revealed.
    labels_ : array
        Nearest centre of each row, site after site. For a column split with an `id`, rows are in the order of the ids.
    ids_ : array
        For a column split with an `id`, the id of each row, if all sites are in this process.
    notes_ : list of str
        What users of the result must know.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> a, b = np.array([[0.0], [1.0], [10.0]]), np.array([[11.0], [12.0]])
    >>> model = fc.KMeans(2, init=[[0.0], [10.0]]).fit(fc.Federation.local({"a": a, "b": b}))
    >>> model.cluster_centers_.ravel().tolist()
    [0.5, 11.0]
    """

    lossless: ClassVar[bool] = True
    saved_attributes: ClassVar[tuple[str, ...]] = (
        *(name for name in CentersEstimator.saved_attributes if name != "objective_"),
        "inertia_",
    )

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int | str = "auto",
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
        opening: str = "exact",
        floor: int = 10,
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
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
        self.opening = opening
        self.floor = floor
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


class FuzzyCentersEstimator(FuzzyCentersModel, CentersEstimator):
    """Base of the methods that move centres of fuzzy clusters."""

    m: float

    @property
    def fuzziness(self) -> float:
        require(
            is_real_number(self.m) and 1 < self.m <= MAX_FUZZINESS,
            f"m is {self.m!r}; it must be above 1 and at most {MAX_FUZZINESS}; for hard clusters use KMeans",
        )
        return float(self.m)


class FuzzyCMeans(StreamingEstimator, FuzzyCentersEstimator):
    """Fuzzy c-means with fuzziness m > 1, with the same result as on pooled rows, bit for bit.

    Parameters
    ----------
    n_clusters, init, n_init, tol, max_iter, scale, missing, bounds, participation, quorum, small_sites, random_state
        As for `KMeans`.
    m : float, default=2.0
        Fuzziness, the exponent of the memberships: above 1 and at most 100.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
    >>> pooled = fc.FuzzyCMeans(2, init="box").fit(X)
    >>> parts = fc.FuzzyCMeans(2, init="box").fit(fc.Federation.local({"a": X[:7], "b": X[7:40], "c": X[40:]}))
    >>> bool((parts.cluster_centers_ == pooled.cluster_centers_).all())
    True
    """

    lossless: ClassVar[bool] = True

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float = 2.0,
        init: Any = "k-means++",
        n_init: int | str = "auto",
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
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.scale = scale
        self.missing = missing
        self.bounds = bounds
        self.participation = participation
        self.quorum = quorum
        self.small_sites = small_sites
        self.random_state = random_state
