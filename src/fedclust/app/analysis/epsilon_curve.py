"""Shows how good private clusters are at each epsilon, so that a site can look before it spends any budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from fedclust.core.types import Floats
from fedclust.federation.federation import Federation
from fedclust.models import FuzzyCMeans, KMeans
from fedclust.models.assignment import CentersModel
from fedclust.models.base import FederatedEstimator, Model, PrivacyPart
from fedclust.models.private_cmeans import draw_similar_rows
from fedclust.privacy import accountant

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
MAX_DRAWN_ROWS = 4000  # rows to draw for a prediction
NEARLY_NOISELESS_EPSILON = 100.0  # an epsilon with almost no noise
MAX_RHO = 300.0  # beyond this, the noise has no visible effect


@dataclass(frozen=True)
class CurvePoint:
    """How well private labels agree with those without noise at one epsilon: the mean and the lowest of the tries."""

    epsilon: float
    mean: float
    least: float


def measure_curve(
    private: FederatedEstimator, X: Floats, *, sites: int = 1, epsilons: Sequence[float] = EPSILONS, tries: int = 3
) -> list[CurvePoint]:
    """Return, for each epsilon, the adjusted Rand index of private labels and those of exact c-means on the same rows.

    Rows stay in this process, and no budget is spent. The rows are split evenly over `sites`; under secure aggregation
    the sites also share the noise.
    """
    known = private.n_clusters
    if not isinstance(known, int):  # as many as are found in these rows with almost no noise
        known = clone(private).set_params(epsilon=NEARLY_NOISELESS_EPSILON).fit(X).cluster_count
    exact = _exact_estimator(private, known).fit(X)
    parts = np.array_split(X, sites)
    mode = "secure" if sites > 2 else "plain"
    points = []
    for epsilon in epsilons:
        scores = []
        for one in range(tries):
            fed = Federation.local({f"s{i}": part for i, part in enumerate(parts)}, aggregation=mode)
            model = clone(private).set_params(epsilon=epsilon, n_clusters=known, random_state=one).fit(fed)
            scores.append(float(adjusted_rand_score(exact.labels_, model.labels_)))
        points.append(CurvePoint(epsilon, float(np.mean(scores)), min(scores)))
    return points


def _exact_estimator(private: FederatedEstimator, clusters: int) -> FederatedEstimator:
    if private.fuzziness > 1:
        return FuzzyCMeans(clusters, m=private.fuzziness, bounds=private.bounds, scale=private.scale or "none")
    return KMeans(clusters, bounds=private.bounds, scale=private.scale or "none")


def predict_curve(model: CentersModel, promise: PrivacyPart, sites: int) -> list[CurvePoint]:
    """Return the same curve on simulated rows drawn from a private model; this costs no further budget.

    Real clusters are not round. The curve shows the effect of noise, not how good the clusters are.
    """
    rows = int(np.clip(promise.rows, 20 * model.cluster_count, MAX_DRAWN_ROWS))
    X = draw_similar_rows(model, promise.cluster_width, rows, np.random.default_rng(model.seed_))
    low, high = np.broadcast_arrays(*np.moveaxis(np.asarray(model.bounds, np.float64).reshape(-1, 2), 1, 0))
    X = np.clip(X, low, high)
    # Noise has more effect on fewer rows, so it is scaled down to its effect on all rows.
    fewer = min(1.0, rows / max(promise.rows, 1.0)) ** 2
    template = clone(model).set_params(n_clusters=model.cluster_count)
    rhos = [min(accountant.rho_from_epsilon(epsilon, promise.delta) / fewer, MAX_RHO) for epsilon in EPSILONS]
    scaled = [accountant.epsilon_from_rho(rho, promise.delta) for rho in rhos]
    found = measure_curve(template, X, sites=sites, epsilons=scaled, tries=2)
    return [CurvePoint(epsilon, point.mean, point.least) for epsilon, point in zip(EPSILONS, found, strict=True)]


def describe_privacy(model: Model, promise: PrivacyPart, sites: int) -> dict[str, Any]:
    """Describe the privacy of a run for the report; with the curve if the model has centres and usable widths."""
    points = (
        predict_curve(model, promise, sites)
        if isinstance(model, CentersModel) and np.isfinite(promise.cluster_width)
        else []
    )
    return {
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "enforced": promise.enforced_epsilon,
        "reported": promise.reported_epsilon,
        "prices": promise.prices,
        "honest": promise.honest_sites,
        "meaning": accountant.meaning(promise.epsilon, promise.delta),
        "warning": accountant.warning(promise.epsilon),
        "curve": [asdict(point) for point in points],
    }
