"""How good private clusters are at each epsilon: the curve a site looks at before it spends anything."""

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
MAX_DRAWN_ROWS = 4000  # that are drawn for a prediction
NEARLY_NOISELESS_EPSILON = 100.0  # an epsilon at which noise is next to nothing
MAX_RHO = 300.0  # less noise than that shows nowhere


@dataclass(frozen=True)
class CurvePoint:
    """At one epsilon, how well private labels agree with those without noise: mean and least of the tries."""

    epsilon: float
    mean: float
    least: float


def measure_curve(
    private: FederatedEstimator, X: Floats, *, sites: int = 1, epsilons: Sequence[float] = EPSILONS, tries: int = 3
) -> list[CurvePoint]:
    """The adjusted Rand index of a private estimator's labels to exact c-means on the same rows, by epsilon.

    Rows stay in this process, and no budget is spent: nothing of this leaves. `sites` shares them out as evenly as can
    be; under secure aggregation sites share the noise, too.
    """
    known = private.n_clusters
    if not isinstance(known, int):  # as many as these rows show when noise hardly hides any
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
    """The same curve on rows drawn like those that a private model describes: made of what was told already, so free.

    Real clusters are not round: this says what noise costs, not how good the clusters are.
    """
    rows = int(np.clip(promise.rows, 20 * model.cluster_count, MAX_DRAWN_ROWS))
    X = draw_similar_rows(model, promise.cluster_width, rows, np.random.default_rng(model.seed_))
    low, high = np.broadcast_arrays(*np.moveaxis(np.asarray(model.bounds, np.float64).reshape(-1, 2), 1, 0))
    X = np.clip(X, low, high)
    # With fewer rows than there are, noise weighs more: it is scaled down as if all were there.
    fewer = min(1.0, rows / max(promise.rows, 1.0)) ** 2
    template = clone(model).set_params(n_clusters=model.cluster_count)
    rhos = [min(accountant.rho_from_epsilon(epsilon, promise.delta) / fewer, MAX_RHO) for epsilon in EPSILONS]
    scaled = [accountant.epsilon_from_rho(rho, promise.delta) for rho in rhos]
    found = measure_curve(template, X, sites=sites, epsilons=scaled, tries=2)
    return [CurvePoint(epsilon, point.mean, point.least) for epsilon, point in zip(EPSILONS, found, strict=True)]


def describe_privacy(model: Model, promise: PrivacyPart, sites: int) -> dict[str, Any]:
    """What a report says of the privacy of a run; the curve where the model has centres and noise does not hide all."""
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
