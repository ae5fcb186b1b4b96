"""Clustering across organisations that may not pool their data, exact to the last bit."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedclust import agreement, datasets, indices
    from fedclust.core.errors import DataError, FedclustError, QuorumLost, RunFailed, StudyError
    from fedclust.estimators import CMeans, FuzzyCMeans, load
    from fedclust.federation import Federation

__version__ = "0.1.0"
__all__ = [
    "CMeans",
    "DataError",
    "FedclustError",
    "Federation",
    "FuzzyCMeans",
    "QuorumLost",
    "RunFailed",
    "StudyError",
    "agreement",
    "datasets",
    "indices",
    "load",
]

_HOMES = {
    "CMeans": "fedclust.estimators",
    "FuzzyCMeans": "fedclust.estimators",
    "load": "fedclust.estimators",
    "Federation": "fedclust.federation",
    **dict.fromkeys(("DataError", "FedclustError", "QuorumLost", "RunFailed", "StudyError"), "fedclust.core.errors"),
}


def __getattr__(name: str) -> Any:
    """Import on first use: the command line answers before scikit-learn is loaded."""
    if name in ("agreement", "datasets", "indices"):
        return importlib.import_module(f"fedclust.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fedclust' has no attribute '{name}'")
