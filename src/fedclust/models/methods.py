"""The registry of methods: name, estimator, description and study keys of each; packages add theirs by entry point.

A package registers a method in its own pyproject.toml, by the name that studies give it:

    [project.entry-points."fedclust.methods"]
    spherical-k-means = "spherical.method:METHOD"

where `METHOD` is a `Method`. It is imported when a method is first looked up. If one cannot be loaded, a warning names
it, and the other methods still work.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from fedclust.algorithms.gaussian_mixture.mixture import FAMILIES
from fedclust.core.errors import DataError, StudyError
from fedclust.models.base import FederatedEstimator, Model
from fedclust.models.centers_checks import INIT_METHODS, MAX_INITS
from fedclust.models.cmeans import FuzzyCMeans, KMeans
from fedclust.models.dec_estimator import DEC
from fedclust.models.fcac_estimator import FCAC
from fedclust.models.fedcref_estimator import FedCRef
from fedclust.models.fuzzy_variants import AVERAGE_METHODS, AveragedFuzzyCMeans, GradientFuzzyCMeans
from fedclust.models.gaussian_mixtures import GaussianMixture
from fedclust.models.labels_only import OPENS_CHOICES
from fedclust.models.one_shot import MUFC, KFed
from fedclust.models.parameters import (
    COUNT_PARAMETER,
    FUZZINESS_PARAMETER,
    POSITIVE_PARAMETER,
    QUORUM_PARAMETER,
    SHARE_PARAMETER,
    TOLERANCE_PARAMETER,
    Parameter,
    at_least,
    initial_centers_parameter,
    is_whole,
    one_of,
)
from fedclust.models.private_cmeans import PrivateFuzzyCMeans, PrivateKMeans
from fedclust.models.saved_models import read_model_document
from fedclust.models.summary_estimator import SummaryClustering

ENTRY_POINT_GROUP = "fedclust.methods"


@dataclass(frozen=True)
class Method:
    """One method: its name in studies, its estimator, its description, and the keys it takes in [cluster]."""

    name: str
    estimator: type[FederatedEstimator]
    title: str  # in a sentence: "found by ..."
    summary: str  # one sentence
    parameters: Mapping[str, Parameter] = field(
        default_factory=dict
    )  # by study key, which is the estimator's parameter
    private: type[FederatedEstimator] | None = None  # the estimator if a study has an epsilon
    deep: bool = False  # not for studies: it has no centres to report
    # whether its script follows from sums and from answers that every site may see, so that a site can run it itself
    verifiable: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.parameters, Mapping):
            raise TypeError(f"a method's parameters must be a mapping, not {type(self.parameters).__name__}")
        for text in (self.name, self.title, self.summary, *self.parameters):
            if type(text) is not str:  # a subclass may compare and print as it likes
                raise TypeError(f"a method's texts must be plain strings, not {type(text).__name__}")
        for kind in self.classes:
            if not (isinstance(kind, type) and issubclass(kind, FederatedEstimator)):
                raise TypeError(f"method '{self.name}' has an estimator that is no class of FederatedEstimator")
        if not all(isinstance(key, Parameter) for key in self.parameters.values()):
            raise TypeError(f"method '{self.name}' must describe each of its keys by a Parameter")
        taken = self.estimator().get_params()
        unknown = [key for key in self.parameters if key not in taken]
        if unknown:
            raise ValueError(f"method '{self.name}' has a key '{unknown[0]}', but {self.estimator.__name__} does not")

    @property
    def finds_k(self) -> bool:
        """Whether it finds the number of clusters itself."""
        return self.estimator.finds_k

    @property
    def classes(self) -> tuple[type[FederatedEstimator], ...]:
        """The classes that its models may have."""
        return (self.estimator,) if self.private is None else (self.estimator, self.private)


INITIAL_CENTERS = initial_centers_parameter(*INIT_METHODS)
CANDIDATES = Parameter(
    f"'auto', or a whole number from 1 to {MAX_INITS}",
    lambda value: value == "auto" or (is_whole(value) and 1 <= value <= MAX_INITS),
    choices=("auto",),
)
PAPER_RULE = one_of("none", "paper")
ITERATED_PARAMETERS = {
    "tol": TOLERANCE_PARAMETER,
    "max_iter": COUNT_PARAMETER,
    "init": INITIAL_CENTERS,
    "participation": SHARE_PARAMETER,
    "quorum": QUORUM_PARAMETER,
}
ONE_SHOT_PARAMETERS = {"local_clusters": COUNT_PARAMETER, "min_rows": at_least(2), "quorum": QUORUM_PARAMETER}
BUILT_IN_METHODS = (
    Method(
        "k-means",
        KMeans,
        "k-means",
        "Assigns every row to the nearest centre; the result equals that of a fit on the pooled rows, bit for bit.",
        {
            **ITERATED_PARAMETERS,
            "n_init": CANDIDATES,
            "singletons": PAPER_RULE,
            "small_sites": PAPER_RULE,
            "opens": one_of(*OPENS_CHOICES),
        },
        private=PrivateKMeans,
        verifiable=True,
    ),
    Method(
        "fuzzy-c-means",
        FuzzyCMeans,
        "fuzzy c-means",
        "Gives every row a membership in each cluster; the result equals that of a fit on the pooled rows, bit for "
        "bit.",
        {"m": FUZZINESS_PARAMETER, **ITERATED_PARAMETERS, "n_init": CANDIDATES, "small_sites": PAPER_RULE},
        private=PrivateFuzzyCMeans,
        verifiable=True,
    ),
    Method(
        "averaged-fuzzy-c-means",
        AveragedFuzzyCMeans,
        "averaged fuzzy c-means",
        "Runs fuzzy c-means at each site and averages the centres; a published baseline for comparison.",
        {
            "m": FUZZINESS_PARAMETER,
            **ITERATED_PARAMETERS,
            "average": one_of(*AVERAGE_METHODS),
            "local_tol": POSITIVE_PARAMETER,
        },
    ),
    Method(
        "gradient-fuzzy-c-means",
        GradientFuzzyCMeans,
        "gradient fuzzy c-means",
        "Moves fuzzy centres along gradients that the sites compute; a published baseline for comparison.",
        {"m": FUZZINESS_PARAMETER, **ITERATED_PARAMETERS, "step": POSITIVE_PARAMETER, "local_rounds": COUNT_PARAMETER},
    ),
    Method(
        "gaussian-mixture",
        GaussianMixture,
        "a Gaussian mixture",
        "Fits a mixture of Gaussian clusters, in which a row can belong partly to several clusters; the result equals "
        "that of a fit on the pooled rows, bit for bit.",
        {
            "family": one_of(*FAMILIES),
            "init": INITIAL_CENTERS,
            "n_init": CANDIDATES,
            "tol": TOLERANCE_PARAMETER,
            "max_iter": COUNT_PARAMETER,
            "quorum": QUORUM_PARAMETER,
        },
        verifiable=True,
    ),
    Method(
        "summary-clustering",
        SummaryClustering,
        "clustering of summaries",
        "Each site sends means of groups of similar rows; the coordinator clusters these means, finds the number of "
        "clusters, and can add more rows in later rounds.",
        {"floor": COUNT_PARAMETER, "max_nodes": COUNT_PARAMETER, "quorum": QUORUM_PARAMETER},
    ),
    Method(
        "fcac",
        FCAC,
        "FCAC",
        "Finds the number of clusters by adaptive resonance (paper 3), and can add more rows in later rounds.",
        {"max_nodes": COUNT_PARAMETER, "quorum": QUORUM_PARAMETER},
    ),
    Method(
        "k-fed",
        KFed,
        "k-FED",
        "Clusters each site separately; each site sends its centres once, and the coordinator clusters the centres.",
        ONE_SHOT_PARAMETERS,
    ),
    Method(
        "mufc",
        MUFC,
        "MUFC",
        "Each site counts its rows around a few points; the coordinator clusters all points, weighted by these "
        "counts. Removing rows later is cheap.",
        {**ONE_SHOT_PARAMETERS, "step": POSITIVE_PARAMETER},
    ),
    Method(
        "fedcref",
        FedCRef,
        "FedCRef",
        "Trains an autoencoder for each cluster, compares the autoencoders of all sites, and averages similar ones.",
        deep=True,
    ),
    Method(
        "dec", DEC, "deep embedded clustering", "Clusters the rows of one site by deep embedded clustering.", deep=True
    ),
)


@dataclass
class MethodRegistry:
    """All known methods, and the packages whose methods could not be loaded."""

    methods: dict[str, Method] = field(default_factory=dict)
    broken_plugins: dict[str, str] = field(default_factory=dict)  # by method, a sentence

    def add_method(self, method: Method) -> None:
        """Add a method; its name and its classes must not be in use."""
        for known in self.methods.values():
            if known.name == method.name:
                raise ValueError(f"a method named '{method.name}' is already registered")
            for kind in method.classes:
                if kind.__name__ in {own.__name__ for own in known.classes}:
                    raise ValueError(f"method '{known.name}' already uses the class {kind.__name__}")
        self.methods[method.name] = method

    def load_plugin(self, plugin: EntryPoint) -> None:
        """Add the method of a package; if it cannot be loaded, a warning says why, and nothing else fails.

        What its import prints goes to stderr, because stdout may be a document for another program.
        """
        package = plugin.dist.name if plugin.dist else plugin.module
        try:
            with contextlib.redirect_stdout(sys.stderr):
                self.add_method(_load_method(plugin))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 the code of others may raise anything, SystemExit too
            why = f"{type(error).__name__}: {error}"
            self.broken_plugins[plugin.name] = f"method '{plugin.name}' of package '{package}' cannot be loaded ({why})"
            warnings.warn(
                f"{self.broken_plugins[plugin.name]}; update or remove the package", RuntimeWarning, stacklevel=2
            )


def _load_method(plugin: EntryPoint) -> Method:
    method = plugin.load()
    if not isinstance(method, Method):
        raise TypeError(f"{plugin.value} is not a fedclust.models.Method")
    if method.name != plugin.name:
        raise ValueError(f"the entry point is named '{plugin.name}', but its method is named '{method.name}'")
    return method


@cache
def method_registry() -> MethodRegistry:
    """Return all methods: those of fedclust, and those that other packages register."""
    found = MethodRegistry()
    for method in BUILT_IN_METHODS:
        found.add_method(method)
    for plugin in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda plugin: plugin.name):
        found.load_plugin(plugin)
    return found


def study_methods() -> dict[str, Method]:
    """Return the methods that a study may name."""
    return {name: method for name, method in method_registry().methods.items() if not method.deep}


def private_methods() -> dict[str, type[FederatedEstimator]]:
    """Return the private estimators of the methods that have one."""
    return {name: method.private for name, method in study_methods().items() if method.private is not None}


def find_study_method(name: str) -> Method:
    """Return a method by its name in studies."""
    found, known = method_registry(), study_methods()
    if name in known:
        return known[name]
    if name in found.broken_plugins:
        raise StudyError(f"{found.broken_plugins[name]}; update or remove the package")
    raise StudyError(f"there is no method '{name}'; choose one of {', '.join(known)}")


def method_of_model(model: Model) -> Method | None:
    """Return the method of a model; None if its class is not registered."""
    return next((method for method in method_registry().methods.values() if type(model) in method.classes), None)


def load(path: str | Path) -> FederatedEstimator:
    """Load a fitted estimator that `save` wrote; its class must belong to a registered method."""
    document = read_model_document(path)
    kinds = {kind.__name__: kind for method in method_registry().methods.values() for kind in method.classes}
    if document.get("class") not in kinds:
        raise DataError(
            f"{path} holds a model of class {document.get('class')}, which this version does not know; update "
            "fedclust, or install "
            "the package that provides it"
        )
    return kinds[document["class"]].restore(document)
