"""Clustering across organisations that may not pool their data, exact to the last bit."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedclust import datasets
    from fedclust.app import agreement, indices
    from fedclust.app.choose_k import Selection, select_k
    from fedclust.app.features import Features, select_features
    from fedclust.app.unlearning import Certificate, unlearn
    from fedclust.core.errors import DataError, FedclustError, QuorumLost, RunFailed, StudyError
    from fedclust.federation.federation import Federation
    from fedclust.models import (
        DEC,
        FCAC,
        MUFC,
        AveragedFuzzyCMeans,
        FedCRef,
        FuzzyCMeans,
        GaussianMixture,
        GradientFuzzyCMeans,
        KFed,
        KMeans,
        PrivateFuzzyCMeans,
        PrivateKMeans,
        SummaryClustering,
        load,
    )
    from fedclust.questions.schema import Column
    from fedclust.site.sources.noised_rows import LocalNoise

__version__ = "0.1.0"
__all__ = [
    "DEC",
    "FCAC",
    "MUFC",
    "AveragedFuzzyCMeans",
    "Certificate",
    "Column",
    "DataError",
    "Features",
    "FedCRef",
    "FedclustError",
    "Federation",
    "FuzzyCMeans",
    "GaussianMixture",
    "GradientFuzzyCMeans",
    "KFed",
    "KMeans",
    "LocalNoise",
    "PrivateFuzzyCMeans",
    "PrivateKMeans",
    "QuorumLost",
    "RunFailed",
    "Selection",
    "StudyError",
    "SummaryClustering",
    "agreement",
    "datasets",
    "indices",
    "load",
    "select_features",
    "select_k",
    "statistics",
    "unlearn",
]

_HOMES = {
    "DEC": "fedclust.models",
    "FedCRef": "fedclust.models",
    "FCAC": "fedclust.models",
    "AveragedFuzzyCMeans": "fedclust.models",
    "KMeans": "fedclust.models",
    "FuzzyCMeans": "fedclust.models",
    "GaussianMixture": "fedclust.models",
    "GradientFuzzyCMeans": "fedclust.models",
    "KFed": "fedclust.models",
    "MUFC": "fedclust.models",
    "PrivateKMeans": "fedclust.models",
    "SummaryClustering": "fedclust.models",
    "PrivateFuzzyCMeans": "fedclust.models",
    "load": "fedclust.models",
    "Column": "fedclust.questions.schema",
    "Features": "fedclust.app.features",
    "select_features": "fedclust.app.features",
    "Federation": "fedclust.federation.federation",
    "LocalNoise": "fedclust.site.sources.noised_rows",
    "Certificate": "fedclust.app.unlearning",
    "unlearn": "fedclust.app.unlearning",
    "Selection": "fedclust.app.choose_k",
    "select_k": "fedclust.app.choose_k",
    **dict.fromkeys(("DataError", "FedclustError", "QuorumLost", "RunFailed", "StudyError"), "fedclust.core.errors"),
}


_MODULES = {
    "agreement": "fedclust.app.agreement",
    "datasets": "fedclust.datasets",
    "indices": "fedclust.app.indices",
    "statistics": "fedclust.report.method_ranks",
}


def __getattr__(name: str) -> Any:
    """Import on first use: the command line answers before scikit-learn is loaded."""
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fedclust' has no attribute '{name}'")
