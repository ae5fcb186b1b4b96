"""The Model contract, on which every reader of a fitted model relies, and the base class of the estimators."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fedclust.algorithms.cmeans.opened_cells import OpenedCell
from fedclust.core.atomic_files import write_file
from fedclust.core.counted_nouns import count_noun
from fedclust.core.drive import Absence
from fedclust.core.effects import ALL_PARTIES, Protocol, Quorum
from fedclust.core.envelope import REMEDIES
from fedclust.core.errors import StudyError
from fedclust.core.types import Array, Floats
from fedclust.federation.derived_federations import federation_of_rows
from fedclust.federation.federation import Federation
from fedclust.models.input_checks import check_complete, check_quorum_reachable, fill_masked, seed_from_random_state
from fedclust.models.input_checks import require as require  # noqa: PLC0414 subclasses find it here
from fedclust.models.saved_models import MODEL_FORMAT, MODEL_VERSION, from_plain_value, to_plain_value
from fedclust.privacy.padding import Padding
from fedclust.questions.missing_values import MISSING_RULES
from fedclust.questions.schema import Column, schema_from_dict, schema_to_dict
from fedclust.site.sources.noised_rows import NoisedRows

EXTRA_ASKS = 24  # questions before the first round and after the last


def padding_for(columns: int, clusters: int) -> Padding:
    """Return the padding for questions and answers about at most this many clusters."""
    points = columns * clusters
    return Padding(question=32 * points + 2048, numbers=3 * points + 4 * clusters + 64, own_answer=64 * points + 2048)


@dataclass(frozen=True)
class MixturePart:
    """What a mixture model has in addition to its centres, over all rows."""

    rows: int
    entropy: float
    log_likelihood: float


@dataclass(frozen=True)
class PrivacyPart:
    """The guarantee of a model under differential privacy, and the budget it spent."""

    epsilon: float
    delta: float
    enforced_epsilon: float  # as the sites enforce it
    reported_epsilon: float  # from the privacy loss distribution
    prices: Sequence[float]  # of each question, in rho
    honest_sites: int  # whose noise is relied on
    rows: float  # as far as the noise allows
    cluster_width: float  # not finite if the noise hides it


class Model:
    """The contract of a model: everything that report, indices, choice of K, unlearning, export and audit may read.

    If a method lacks an attribute, it keeps the default given here, and the model is described without it. Arrays have
    one row per cluster, and columns in the order of `columns_`.
    """

    # What the method is.
    lossless: ClassVar[bool] = False  # whether a run over sites is the run on the pooled rows; a method that is says so
    finds_k: ClassVar[bool] = False  # whether the method finds the number of clusters itself
    takes_initial_centers: ClassVar[bool] = False  # whether `init` may be an array of centres
    keeps_site_picks: ClassVar[bool] = False  # whether sites can reuse rows they picked; `keep_picks` makes a fit do so
    remembers_rounds: ClassVar[bool] = False  # whether sites continue from their memory of earlier rounds

    # The settings that readers ask for, by scikit-learn's names where it has one.
    n_clusters: Any
    random_state: Any
    missing: str = "refuse"  # what happens to rows with missing values
    quorum: Quorum = ALL_PARTIES
    scale: str | None = "none"
    bounds: Any = None
    tol: float | None = None
    max_iter: int | None = None

    # What every fitted model has.
    columns_: tuple[str, ...]
    schema_: dict[str, dict[str, Any]]
    seed_: int = 0  # also while `protocol` is called only to check the parameters
    notes_: list[str]  # what a reader of the result must know, in sentences

    # What a fitted model may have.
    cluster_centers_: Floats | None = None  # in original units
    scaled_centers_: Floats | None = None  # the same centres in the view of the model: (x - origin_) / spread_
    origin_: Floats | None = None  # what the view subtracts from each column; None for nothing
    spread_: Floats | None = None  # what the view divides each column by; None for nothing
    initial_centers_: Floats | None = None  # in original units
    cluster_sizes_: Floats | None = None  # rows of each cluster, or their total membership in a soft model
    opened_cells_: Sequence[OpenedCell | None] | None = None  # whose sums were opened last, if `opens_floored`
    labels_: NDArray[np.int32] | None = None  # if the rows are in this process, or all sites know the labels
    n_iter_: int = 0
    history_: Sequence[Mapping[str, Any]] = ()  # one entry per iteration: "round", "shift", "objective"

    @property
    def fuzziness(self) -> float:
        """The exponent m of the memberships; 1 if every row belongs to one cluster."""
        return 1.0

    @property
    def is_soft(self) -> bool:
        """Whether rows have memberships in several clusters, which `memberships_of_block` returns."""
        return False

    @property
    def final_objective(self) -> float | None:
        """The final value of the objective that the method minimises; None if it has none or may not reveal it."""
        return None

    @property
    def cluster_count(self) -> int:
        """The number of clusters."""
        for part in (self.cluster_sizes_, self.cluster_centers_):
            if part is not None:
                return len(part)
        return int(self.n_clusters)

    @property
    def shifts(self) -> list[float | None]:
        """How far each iteration moved the centres."""
        return [entry.get("shift") for entry in self.history_]

    @property
    def objectives(self) -> list[float | None]:
        """The objective of each iteration."""
        return [entry.get("objective") for entry in self.history_]

    @property
    def mixture_part(self) -> MixturePart | None:
        """The entropy and the log-likelihood of a mixture model; None for other models."""
        return None

    @property
    def privacy_part(self) -> PrivacyPart | None:
        """The guarantee and the spent budget of a model under differential privacy; None for other models."""
        return None

    @property
    def opens_labels(self) -> bool:
        """Whether a column split revealed only labels."""
        return False

    @property
    def opens_floored(self) -> bool:
        """Whether a cluster's sum is opened only if enough rows have changed; then questions about other cells than
        `opened_cells_` could show few rows.
        """
        return False

    @property
    def full_covariance(self) -> bool:
        """Whether clusters have a full covariance matrix."""
        return False

    @property
    def sites_that_picked(self) -> int | None:
        """How many sites selected rows in the last fit; None if the method selects none."""
        return None

    @property
    def takes_batches(self) -> bool:
        """Whether `partial_fit` can update the model with further rows."""
        return False

    @property
    def saw_batches(self) -> bool:
        """Whether the model was fitted on several batches, of which the sites still hold only the last one."""
        return False

    @property
    def schema(self) -> dict[str, Column]:
        """The declaration of each column."""
        return schema_from_dict(self.schema_ or {name: {} for name in self.columns_})


class FederatedEstimator(Model, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators. `protocol` returns the script of a fit; `store_result` stores its result."""

    saved_attributes: ClassVar[tuple[str, ...]] = ()  # the fitted attributes a saved model holds
    keep_picks: bool = False  # where `keeps_site_picks`: whether sites use the rows they picked before

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 scikit-learn's signature
        """Cluster a federation, or an array as a federation of one site.

        Parameters
        ----------
        X : Federation or array of shape (n_rows, n_columns)
            The rows to cluster.
        y : None
            Ignored; part of scikit-learn's interface.

        Returns
        -------
        self
        """
        if not isinstance(X, Federation):
            X = self._validate_rows(X, reset=True)
            X = federation_of_rows(X, self._column_names(X.shape[1]))
        check_quorum_reachable(self.quorum, len(X.parties))
        self.n_features_in_ = len(X.schema)
        self.columns_ = tuple(X.columns)
        self.schema_ = schema_to_dict(X.schema)
        self.seed_ = seed_from_random_state(self.random_state)
        script = self.protocol(X)
        if self.max_iter is not None:
            X.widen_padding(self._message_padding(len(X.columns)))
        result, absences = X.run(script, quorum=self.quorum, missing=self._missing_rule, asks_multiple=self._max_asks)
        self.notes_ = []
        self.store_result(X, result)
        self.notes_ = [*absence_notes(absences), *_noise_notes(X), *self.notes_]
        return self

    def update(self, fed: Federation, *, after: Path | None = None) -> Self:  # noqa: ARG002
        """Update the model with the rows that the sites hold now, if it `takes_batches`.

        `after` is the run folder of the previous round, which holds the memory of sites in this process.
        """
        raise StudyError(f"{type(self).__name__} cannot be updated with further rows; fit it again with all rows")

    @property
    def _missing_rule(self) -> str:
        """The rule for rows with missing values."""
        require(
            self.missing in MISSING_RULES,
            f"the parameter 'missing' is {self.missing!r}; choose one of {', '.join(MISSING_RULES)}",
        )
        return self.missing

    def _validate_rows(self, X: Any, *, reset: bool = False) -> Array:
        """Check an array as scikit-learn does; masked values are missing, and missing values must be allowed."""
        rows: Array = validate_data(
            self, fill_masked(X), dtype=[np.float64, np.float32], reset=reset, ensure_all_finite=False
        )
        names = self._column_names(rows.shape[1]) if reset else self.columns_
        settable = "missing" in self.get_params(deep=False)
        fill = "fill them, set missing to 'drop' or 'partial'," if settable else "fill them,"
        check_complete(names, rows, gaps=self._missing_rule != "refuse", remedy=f"{fill} or leave the column out")
        return rows

    def _stopping_tol(self, fed: Federation) -> float | None:
        """The tolerance; None in a blind run, so that the coordinator cannot see when it converged."""
        return None if fed.aggregation.has_fixed_rounds else self.tol

    def _message_padding(self, columns: int) -> Padding:
        """The padding that hides the length of a fit's messages."""
        return padding_for(columns, self.n_clusters)

    @property
    def _max_asks(self) -> int:
        """The largest number of questions of a fit; some are asked again at a finer unit."""
        return self.max_iter + self.max_iter // 4 + EXTRA_ASKS if self.max_iter else 1

    @abstractmethod
    def protocol(self, fed: Federation) -> Protocol[Any]:
        """Return the coordinator's script for this estimator's parameters."""

    @abstractmethod
    def store_result(self, fed: Federation, result: Any) -> None:
        """Set the fitted attributes, from the federation of the fit and what `protocol` returned."""

    def to_document(self) -> dict[str, Any]:
        """Return the fitted model as plain values; numbers keep every bit."""
        check_is_fitted(self)
        given = self.get_params(deep=False)
        state = given.get("random_state")
        if isinstance(state, (np.random.RandomState, np.random.Generator)) or state is np.random:
            given["random_state"] = self.seed_  # what it stood for
        fitted = vars(self)
        return {
            "format": MODEL_FORMAT,
            "version": MODEL_VERSION,
            "class": type(self).__name__,
            "parameters": {name: to_plain_value(value) for name, value in given.items()},
            "fitted": {name: to_plain_value(fitted[name]) for name in self._saved_names() if name in fitted},
        }

    def save(self, path: str | Path) -> Path:
        """Write the fitted model as JSON."""
        document = self.to_document()
        path = Path(path)
        if path.is_dir():
            raise StudyError(f"{path} is a folder; name the file to write, such as {path / 'model.json'}")
        write_file(path, json.dumps(document, indent=1, allow_nan=False) + "\n", one_writer=False, mode=0o666)
        return path

    @classmethod
    def restore(cls, document: dict[str, Any]) -> Self:
        """Return a fitted estimator from a saved document."""
        model = cls(**{name: from_plain_value(value) for name, value in document["parameters"].items()})
        for name, value in document["fitted"].items():
            setattr(model, name, from_plain_value(value))
        model.columns_ = tuple(model.columns_)
        return model

    def _saved_names(self) -> Iterable[str]:
        return ("n_features_in_", "feature_names_in_", "columns_", "schema_", "seed_", "notes_", *self.saved_attributes)

    @property
    def _knows_names(self) -> bool:
        """Whether the rows came with column names that scikit-learn noted."""
        return "feature_names_in_" in vars(self)

    def _column_names(self, width: int) -> tuple[str, ...]:
        return tuple(self.feature_names_in_) if self._knows_names else tuple(f"x{i}" for i in range(width))


def _noise_notes(fed: Federation) -> list[str]:
    """Notes on noise that sites of this process added to their rows before the fit."""
    sources = (own_data.source for own_data in fed.site_data.values())
    remarks = (remark for source in sources if isinstance(source, NoisedRows) for remark in source.remarks)
    return list(dict.fromkeys(remarks))


def absence_notes(absences: Sequence[Absence]) -> list[str]:
    """Notes on sites that were asked and did not contribute."""
    counts = Counter((a.party, a.code) for a in absences)
    return [
        f"Not lossless: {party} did not contribute to {count_noun(count, 'step')} ({REMEDIES.get(code, code)})."
        for (party, code), count in counts.items()
    ]


def block_from_rows(X: Floats) -> Array:
    """Return rows as one block of columns, as the kernels need them."""
    return np.ascontiguousarray(X.T)
