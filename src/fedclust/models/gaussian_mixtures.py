"""The estimator of Gaussian mixtures: soft clusters with shapes, a likelihood, and two criteria for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedclust.algorithms.cmeans.fit_result import FitResult
from fedclust.algorithms.gaussian_mixture import densities, mixture
from fedclust.algorithms.gaussian_mixture.densities import Gaussians
from fedclust.algorithms.gaussian_mixture.mixture import FAMILIES, EvaluatedMixture, Family, Frame, Mixture
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Protocol, Quorum
from fedclust.core.site_interface import View
from fedclust.core.types import Array, Floats
from fedclust.federation.federation import Federation
from fedclust.kernels import elementary
from fedclust.models.base import MixturePart
from fedclust.models.centers_estimator import CentersEstimator
from fedclust.models.input_checks import is_whole_number, require


@dataclass(frozen=True)
class FittedMixture(FitResult):
    """The result of EM; centres are in the frame's view, whose columns have mean 0."""

    frame: Frame
    found: EvaluatedMixture


class GaussianMixture(CentersEstimator):
    """Gaussian mixture by expectation-maximisation (EM), the same as on pooled rows, bit for bit; row splits only.

    Parameters
    ----------
    n_components : int, default=8
        Number of components.
    family : {"EII", "VII", "VVI", "EEE"}, default="VVI"
        Form of the covariances: "EII" is one variance for all components, "VII" one variance for each component, "VVI"
        a diagonal matrix for each, "EEE" one full matrix for all.
    init : {"k-means++", "random", "box", "party", "careful"} or array, default="k-means++"
        Initial centres, as for `KMeans`. At first, every row belongs entirely to the component of its nearest centre.
    tol : float or None, default=1e-6
        Stop when a round adds less than this to the mean log-likelihood. With None, the run never stops early.
    max_iter : int, default=200
        Largest number of rounds.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with missing values.
    n_init, scale, bounds, quorum, random_state
        As for `KMeans`.

    Attributes
    ----------
    weights_ : array of shape (n_components,)
        Share of each component, summing to 1.
    cluster_centers_ : array of shape (n_components, n_columns)
        Means of the components in original units.
    variances_ : array
        Variances in the scale of the fit: one number, one per component, one per component and column, or a matrix.
    log_likelihood_, entropy_ : float
        Log-likelihood and entropy of all rows, in original units.
    bic_, icl_ : float
        Criteria for comparing models of the same rows; smaller is better.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
    >>> fed = fc.Federation.local({"a": X[:50], "b": X[50:]})
    >>> [min(range(1, 6), key=lambda k: fc.GaussianMixture(k, random_state=1).fit(fed).bic_)]
    [3]
    """

    lossless: ClassVar[bool] = True
    saved_attributes: ClassVar[tuple[str, ...]] = (
        *CentersEstimator.saved_attributes,
        "weights_",
        "variances_",
        "log_likelihood_",
        "entropy_",
        "bic_",
        "icl_",
        "n_rows_",
    )

    participation = 1.0
    small_sites = None

    def __init__(
        self,
        n_components: int = 8,
        *,
        family: str = "VVI",
        init: Any = "k-means++",
        n_init: int | str = "auto",
        tol: float | None = 1e-6,
        max_iter: int = 200,
        scale: str = "none",
        missing: str = "refuse",
        bounds: Any = None,
        quorum: Quorum = "all",
        random_state: int | None = 0,
    ) -> None:
        self.n_components = n_components
        self.family = family
        self.init = init
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.scale = scale
        self.missing = missing
        self.bounds = bounds
        self.quorum = quorum
        self.random_state = random_state

    @property
    def is_soft(self) -> bool:
        return True  # although its fuzziness is 1, because indices use the nearest centre

    @property
    def mixture_part(self) -> MixturePart:
        return MixturePart(self.n_rows_, self.entropy_, self.log_likelihood_)

    @property
    def full_covariance(self) -> bool:
        return self.family == "EEE"

    @property
    def n_clusters(self) -> int:
        """The number of components, by the name that the other estimators use."""
        return self.n_components

    @n_clusters.setter
    def n_clusters(self, count: int) -> None:
        self.n_components = count

    def set_params(self, **params: Any) -> Self:
        """Set parameters; `n_clusters` is accepted for `n_components`."""
        if "n_clusters" in params:
            params["n_components"] = params.pop("n_clusters")
        return super().set_params(**params)  # type: ignore[no-any-return]

    def _check_parameters(self, fed: Federation) -> None:
        require(
            is_whole_number(self.n_components) and self.n_components >= 1,
            f"n_components is {self.n_components!r}; it must be a whole number of at least 1",
        )
        require(
            self.family in FAMILIES, f"the parameter 'family' is {self.family!r}; choose one of {', '.join(FAMILIES)}"
        )
        require(fed.split == "rows", "a Gaussian mixture works on row splits only; for a column split use FuzzyCMeans")
        require(
            self._missing_rule != "partial",
            "a Gaussian mixture needs rows without missing values; set missing to 'refuse' or 'drop'",
        )
        super()._check_parameters(fed)

    def _iterate_rows(self, fed: Federation, view: View, centers: Floats) -> Protocol[FitResult]:
        family: Family = next(f for f in FAMILIES if f == self.family)
        frame = yield from mixture.make_frame(view, full=family == "EEE", floor=fed.cell_floor)
        ((start,),) = yield from mixture.start_mixtures(
            frame, [family], [frame.view.transform_points(view.to_original_units(centers))]
        )
        (found,) = yield from mixture.run_em(frame, [start], tol=self._stopping_tol(fed), max_iter=self.max_iter)
        means = found.mixture.means
        return FittedMixture(
            means, centers, -found.log, found.mass, found.history, self._stop_notes(found), frame, found
        )

    def _stop_notes(self, found: EvaluatedMixture) -> tuple[str, ...]:
        thin = int((found.mass < mixture.MIN_COMPONENT_MASS).sum())
        notes = list[str]()
        if thin:
            notes.append(
                f"{count_noun(thin, 'component has', 'components have')} no rows, so the centres of these components "
                "did not move."
            )
        if self.tol is not None and not found.converged:
            notes.append(
                f"Stopped after {count_noun(self.max_iter, 'round')}, while each round still added "
                f"{self.tol:g} or more "
                "to the mean log-likelihood. Increase max_iter."
            )
        return tuple(notes)

    def store_result(self, fed: Federation, result: Any) -> None:
        fitted: FittedMixture = result[0]
        found, frame = fitted.found, fitted.frame
        self.weights_ = found.mixture.weights
        self.variances_ = _family_variances(found.mixture)
        self.n_rows_ = frame.rows
        # In original units a density is that of the scaled row, divided by every column's spread.
        shift = frame.rows * _log_spread(frame.view.spread)
        self.log_likelihood_ = found.log - shift
        self.entropy_ = found.entropy
        self.bic_ = mixture.bic(found, frame.rows) + 2 * shift
        self.icl_ = mixture.icl(found, frame.rows) + 2 * shift
        super().store_result(fed, (fitted, frame.view))
        self._keep_objective(-self.log_likelihood_)

    def _ending_notes(self, fed: Federation, result: Any) -> list[str]:  # noqa: ARG002
        return []  # EM stops by the likelihood, which `_stop_notes` reports

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each component for each row, rows by components; NaN for a row that is left out."""
        t, gap = self._log_densities(X)
        return np.where(gap[:, None], np.nan, elementary.exp(t - densities.log_density(t)).T)

    def memberships(self, X: Any) -> Floats:
        """Return the same as `predict_proba`, under the name that fuzzy methods use."""
        return self.predict_proba(X)

    def memberships_of_block(self, block: Array) -> Floats:
        """Return each row's probabilities (components by rows) in a block of unscaled columns."""
        t, gap = self._block_log_densities(self._transform_block(block))
        return np.where(gap, np.nan, elementary.exp(t - densities.log_density(t)))

    def score_samples(self, X: Any) -> Floats:
        """Return the log density of each row in original units; NaN for a row left out because of missing values."""
        t, gap = self._log_densities(X)
        return np.where(gap, np.nan, densities.log_density(t) - _log_spread(self.spread_))

    def _log_densities(self, X: Any) -> tuple[Floats, NDArray[np.bool_]]:
        """Return log pi_k N(x | m_k, S_k), components by rows, and which rows have missing values."""
        seen = self._row_blocks(X) if isinstance(X, Federation) else [self._rows_in_view(X)]
        found = [self._block_log_densities(block) for block in seen]
        return np.concatenate([t for t, _ in found], axis=1), np.concatenate([gap for _, gap in found])

    def _block_log_densities(self, block: Array) -> tuple[Floats, NDArray[np.bool_]]:
        g, root = self.evaluator()
        x = np.asarray(block, np.float64)
        gap: NDArray[np.bool_] = np.asarray(np.isnan(x).any(axis=0))
        x = np.where(gap, 0.0, x)
        return densities.component_scores(g, x if root is None else densities.whiten(x, root)), gap

    def labels_in_view(self, block: Array) -> NDArray[np.int32]:
        t, gap = self._block_log_densities(block)
        return np.where(gap, -1, t.argmax(axis=0)).astype(np.int32)

    def evaluator(self, view: View | None = None) -> tuple[Gaussians, Floats | None]:
        """Return the densities that score rows in the model's own view or another, and for EEE the whitening matrix."""
        family: Family = next(f for f in FAMILIES if f == self.family)
        means, variance, columns = self.scaled_centers_, self.variances_, self.scaled_centers_.shape[1]
        if family != "EEE":
            variance = variance.reshape(-1, columns if family == "VVI" else 1)
        if view is not None:
            means = view.transform_points(self.cluster_centers_)
            ratio = np.asarray(self.spread_, np.float64) / (1.0 if view.spread is None else view.spread)
            if np.any(ratio != 1):
                family, variance = ("EEE", variance) if family == "EEE" else ("VVI", variance + np.zeros_like(means))
                variance = variance * (np.outer(ratio, ratio) if family == "EEE" else ratio**2)
        fitted = Mixture(family, self.weights_, means, variance)
        if family == "EEE":
            return mixture.gaussians_from_covariance(fitted)
        nowhere = View(np.zeros(columns, np.int32))
        return mixture.to_gaussians(fitted, Frame(nowhere, nowhere.exponents, self.n_rows_, np.ones(columns))), None


def _family_variances(m: Mixture) -> Floats:
    """Return variances in the shape of their family: one, one per component, by columns, or a matrix."""
    return m.variance.ravel() if m.family in ("EII", "VII") else m.variance


def _log_spread(spread: Floats | None) -> float:
    return 0.0 if spread is None else float(elementary.log(spread).sum())
