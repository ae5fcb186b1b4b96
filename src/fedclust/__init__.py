"""Clustering across organisations that may not pool their data, exact to the last bit."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedclust import agreement, datasets, indices
    from fedclust.core.errors import DataError, FedclustError, QuorumLost, RunFailed, StudyError
    from fedclust.estimators import (
        DEC,
        FCAC,
        MUFC,
        AveragedFuzzyCMeans,
        CMeans,
        FedCRef,
        FuzzyCMeans,
        GaussianMixture,
        GradientFuzzyCMeans,
        KFed,
        PrivateCMeans,
        PrivateFuzzyCMeans,
        load,
    )
    from fedclust.features import Features, select_features
    from fedclust.federation import Federation
    from fedclust.preprocessing.schema import Column
    from fedclust.selection import Selection, select_k
    from fedclust.site.sources.noised import LocalNoise
    from fedclust.unlearning import Certificate, unlearn

__version__ = "0.1.0"
__all__ = [
    "DEC",
    "FCAC",
    "MUFC",
    "AveragedFuzzyCMeans",
    "CMeans",
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
    "LocalNoise",
    "PrivateCMeans",
    "PrivateFuzzyCMeans",
    "QuorumLost",
    "RunFailed",
    "Selection",
    "StudyError",
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
    "DEC": "fedclust.estimators",
    "FedCRef": "fedclust.estimators",
    "FCAC": "fedclust.estimators",
    "AveragedFuzzyCMeans": "fedclust.estimators",
    "CMeans": "fedclust.estimators",
    "FuzzyCMeans": "fedclust.estimators",
    "GaussianMixture": "fedclust.estimators",
    "GradientFuzzyCMeans": "fedclust.estimators",
    "KFed": "fedclust.estimators",
    "MUFC": "fedclust.estimators",
    "PrivateCMeans": "fedclust.estimators",
    "PrivateFuzzyCMeans": "fedclust.estimators",
    "load": "fedclust.estimators",
    "Column": "fedclust.preprocessing.schema",
    "Features": "fedclust.features",
    "select_features": "fedclust.features",
    "Federation": "fedclust.federation",
    "LocalNoise": "fedclust.site.sources.noised",
    "Certificate": "fedclust.unlearning",
    "unlearn": "fedclust.unlearning",
    "Selection": "fedclust.selection",
    "select_k": "fedclust.selection",
    **dict.fromkeys(("DataError", "FedclustError", "QuorumLost", "RunFailed", "StudyError"), "fedclust.core.errors"),
}


def __getattr__(name: str) -> Any:
    """Import on first use: the command line answers before scikit-learn is loaded."""
    if name in ("agreement", "datasets", "indices", "statistics"):
        return importlib.import_module(f"fedclust.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fedclust' has no attribute '{name}'")
