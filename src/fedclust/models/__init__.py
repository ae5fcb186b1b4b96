"""The estimators that users fit, with scikit-learn's interface, and the registry that finds them by method."""

from fedclust.models.base import FederatedEstimator, Model
from fedclust.models.cmeans import FuzzyCMeans, KMeans
from fedclust.models.dec_estimator import DEC
from fedclust.models.fcac_estimator import FCAC
from fedclust.models.fedcref_estimator import FedCRef
from fedclust.models.fuzzy_variants import AveragedFuzzyCMeans, GradientFuzzyCMeans
from fedclust.models.gaussian_mixtures import GaussianMixture
from fedclust.models.methods import Method, load
from fedclust.models.one_shot import MUFC, KFed
from fedclust.models.private_cmeans import PrivateFuzzyCMeans, PrivateKMeans
from fedclust.models.summary_estimator import SummaryClustering

__all__ = [
    "DEC",
    "FCAC",
    "MUFC",
    "AveragedFuzzyCMeans",
    "FedCRef",
    "FederatedEstimator",
    "FuzzyCMeans",
    "GaussianMixture",
    "GradientFuzzyCMeans",
    "KFed",
    "KMeans",
    "Method",
    "Model",
    "PrivateFuzzyCMeans",
    "PrivateKMeans",
    "SummaryClustering",
    "load",
]
