"""Fits of one estimator at several numbers of clusters, with restarts, and how well partitions of these fits agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import numpy as np
from sklearn.base import clone

from fedclust.app import agreement, indices
from fedclust.core.effects import Protocol
from fedclust.core.errors import StudyError
from fedclust.core.site_interface import View
from fedclust.engines.local_engine import LocalEngine
from fedclust.federation.federation import SHORT_PROTOCOL_ASKS, Federation
from fedclust.federation.local_sites import LocalSites
from fedclust.models.assignment import CentersModel
from fedclust.models.base import Model
from fedclust.models.input_checks import SEED_LIMIT, limit_quorum
from fedclust.questions.choice_of_k.contingency_tables import Partition, PartitionPair, contingency_tables

T = TypeVar("T")


@dataclass
class FitsForEachK:
    """Fits of the estimator at any K, with the requested number of restarts."""

    estimator: CentersModel
    fed: Federation
    seed: int
    restarts: int

    def run_protocol(self, protocol: Protocol[T], asks_multiple: int = SHORT_PROTOCOL_ASKS) -> T:
        """Run a protocol with the estimator's quorum and treatment of missing values."""
        return self.fed.run(
            protocol,
            quorum=self.estimator.quorum,
            missing=self.estimator.missing,
            asks_multiple=asks_multiple,
        )[0]

    def estimator_with(self, k: int) -> CentersModel:
        """Return the estimator of k clusters, to be fitted as often as it says itself."""
        made: CentersModel = clone(self.estimator).set_params(n_clusters=k, random_state=self.seed)
        return made

    def fit_with_k(self, k: int, *, fed: Federation | None = None) -> list[CentersModel]:
        """Fit with k clusters and return the models, best first.

        A later fit comes before an earlier one only if it is better by more than rounding.
        """
        models: list[CentersModel] = []
        for number in range(self.restarts):
            model = clone(self.estimator).set_params(n_clusters=k, random_state=(self.seed + number) % SEED_LIMIT)
            if fed is not None and "quorum" in model.get_params():
                model.set_params(quorum=limit_quorum(model.quorum, len(fed.parties)))
            models.append(model.fit(self.fed if fed is None else fed))
        objectives = [_require_objective(model) for model in models]
        least = min(objectives)
        best = next(m for m, found in zip(models, objectives, strict=True) if found <= least + 1e-7 * abs(least))
        return [best, *(m for m in models if m is not best)]


def agreement_of_restarts(fits: FitsForEachK, models: Sequence[CentersModel]) -> float | None:
    """Return the mean agreement of the restarts' partitions over all pairs."""
    if len(models) < 2:
        return None
    if fits.fed.split == "columns":
        return float(np.mean([agreement.ari(a.labels_, b.labels_) for a, b in combinations(models, 2)]))
    return _mean_agreement(fits, list(combinations(models, 2)))


def agreement_without_each_site(fits: FitsForEachK, models: Sequence[CentersModel]) -> float | None:
    """Return the mean agreement of the partition with those found when one site is left out."""
    if not fits.fed.site_data or len(fits.fed.parties) < 2 or fits.fed.split == "columns":
        raise StudyError("stability 'sites' needs at least two sites with different rows, all in this process")
    rest = []
    for party in fits.fed.parties:
        sites = {p: site for p, site in fits.fed.local_sites.items() if p != party}
        some = Federation(
            LocalEngine(sites),
            dict.fromkeys(sites, fits.fed.columns),
            columns=fits.fed.columns,
            seed=fits.fed.seed,
            schema=fits.fed.schema,
            local_sites=LocalSites(sites),
        )
        some.cell_floor = fits.fed.cell_floor
        rest.append(fits.fit_with_k(models[0].n_clusters, fed=some)[0])
    return _mean_agreement(fits, [(models[0], other) for other in rest])


def _mean_agreement(fits: FitsForEachK, pairs: Sequence[tuple[CentersModel, CentersModel]]) -> float:
    """Return the mean adjusted Rand index of pairs of models over all rows, from counts."""

    def script() -> Protocol[float]:
        view, _ = yield from indices.model_view(pairs[0][0], fits.fed)
        tables = yield from contingency_tables(
            view, [PartitionPair(_partition_in_view(a, view), _partition_in_view(b, view)) for a, b in pairs]
        )
        return float(np.mean([agreement.ari(table) for table in tables]))

    return fits.run_protocol(script())


def _require_objective(model: Model) -> float:
    """Return the objective, by which restarts are compared; refuse a method without one."""
    if model.final_objective is None:
        raise StudyError(f"choosing K compares objectives, but {type(model).__name__} has none; give a single K")
    return model.final_objective


def _partition_in_view(model: CentersModel, view: View) -> Partition:
    """Return how a model labels rows in a view that may differ from its own."""
    return Partition(*model.evaluator(view))
