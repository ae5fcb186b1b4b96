"""What users fit: the estimators, in the manner of scikit-learn, and the registry that finds them by method."""

from pathlib import Path
from typing import Any

from fedclust.core.errors import DataError
from fedclust.models.base import FederatedEstimator, read_model
from fedclust.models.cmeans import FuzzyCMeans, KMeans
from fedclust.models.deep import DEC, FedCRef
from fedclust.models.fcac_estimator import FCAC
from fedclust.models.fuzzy_variants import AveragedFuzzyCMeans, GradientFuzzyCMeans
from fedclust.models.gaussian_mixtures import GaussianMixture
from fedclust.models.one_shot import MUFC, KFed
from fedclust.models.private_cmeans import PrivateFuzzyCMeans, PrivateKMeans
from fedclust.models.summary_estimator import SummaryClustering

__all__ = [
    "DEC",
    "FCAC",
    "METHODS",
    "MUFC",
    "PRIVATE",
    "AveragedFuzzyCMeans",
    "FedCRef",
    "FederatedEstimator",
    "FuzzyCMeans",
    "GaussianMixture",
    "GradientFuzzyCMeans",
    "KFed",
    "KMeans",
    "PrivateFuzzyCMeans",
    "PrivateKMeans",
    "SummaryClustering",
    "load",
]

METHODS: dict[str, type[FederatedEstimator]] = {
    "k-means": KMeans,
    "fuzzy-c-means": FuzzyCMeans,
    "averaged-fuzzy-c-means": AveragedFuzzyCMeans,
    "gradient-fuzzy-c-means": GradientFuzzyCMeans,
    "gaussian-mixture": GaussianMixture,
    "summary-clustering": SummaryClustering,
    "fcac": FCAC,
    "k-fed": KFed,
    "mufc": MUFC,
}

PRIVATE: dict[str, type[FederatedEstimator]] = {  # what a method becomes where a study has an epsilon
    "k-means": PrivateKMeans,
    "fuzzy-c-means": PrivateFuzzyCMeans,
}
DEEP: tuple[type[FederatedEstimator], ...] = (FedCRef, DEC)  # not for studies: they have no centres to report


def load(path: str | Path) -> Any:
    """A fitted estimator that `save` wrote."""
    document = read_model(path)
    kinds = {kind.__name__: kind for kind in (*METHODS.values(), *PRIVATE.values(), *DEEP)}
    if document.get("class") not in kinds:
        raise DataError(f"{path} holds a {document.get('class')}, which this version does not know; update fedclust")
    return kinds[document["class"]].restore(document)
