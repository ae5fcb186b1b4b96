"""What every estimator shares: rows or a federation in, an honest model out, saved as text that keeps every bit."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fedclust.core.atomic_files import write_file
from fedclust.core.drive import Absence
from fedclust.core.effects import ALL, Protocol
from fedclust.core.envelope import REMEDIES
from fedclust.core.errors import DataError, StudyError
from fedclust.core.types import Array, Floats
from fedclust.federation.federation import Federation
from fedclust.models.input_checks import complete, reachable, seed_of, unmasked
from fedclust.models.input_checks import require as require  # noqa: PLC0414 subclasses find it here
from fedclust.privacy.padding import Room
from fedclust.questions.missing_values import MISSING
from fedclust.questions.schema import Column, plain_schema, schema_from

FORMAT, VERSION = "fedclust-model", 1
BESIDES = 24  # questions before the first round and after the last


def room_for(columns: int, clusters: int) -> Room:
    """Room for what is asked and told about so many clusters at most."""
    points = columns * clusters
    return Room(question=32 * points + 2048, numbers=3 * points + 4 * clusters + 64, told=64 * points + 2048)


class FederatedEstimator(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators. `protocol` is the script; `_keep` stores what it returned."""

    lossless: ClassVar[bool] = True  # whether a run over parties is the pooled run
    remembers_rounds: ClassVar[bool] = False  # whether later rounds continue from what sites remember
    kept: ClassVar[tuple[str, ...]] = ()  # the fitted attributes a saved model holds
    n_clusters: Any
    random_state: Any
    tol: float | None
    notes_: list[str]
    columns_: tuple[str, ...]
    schema_: dict[str, dict[str, Any]]

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 scikit-learn's signature
        """Cluster a federation, or an array as a federation of one site."""
        if not isinstance(X, Federation):
            X = self._rows(X, reset=True)
            X = Federation.local({"here": X}, columns=self._names(X.shape[1]))
        reachable(quorum := getattr(self, "quorum", ALL), len(X.parties))
        self.n_features_in_ = len(X.schema)
        self.columns_ = tuple(X.columns)
        self.schema_ = plain_schema(X.schema)
        self.seed_ = seed_of(self.random_state)
        script = self.protocol(X)
        if hasattr(self, "max_iter"):
            X.make_room(room_for(len(X.columns), self.n_clusters))
        result, absences = X.run(script, quorum=quorum, missing=self._missing, asks=self._asks)
        self._keep(X, result)
        self.notes_ = [*_absent(absences), *_noised(X), *self.notes_]
        return self

    @property
    def _missing(self) -> str:
        """What happens to rows with gaps, for methods that know more than to refuse them."""
        found = getattr(self, "missing", "refuse")
        require(found in MISSING, f"missing is {found!r}; choose one of {', '.join(MISSING)}")
        return str(found)

    def _rows(self, X: Any, *, reset: bool = False) -> Array:
        """Bare rows as scikit-learn takes them; what is masked is missing, and what is missing must be allowed."""
        rows: Array = validate_data(
            self, unmasked(X), dtype=[np.float64, np.float32], reset=reset, ensure_all_finite=False
        )
        names = self._names(rows.shape[1]) if reset else self.columns_
        fill = "fill them, set missing to 'drop' or 'partial'," if hasattr(self, "missing") else "fill them,"
        complete(names, rows, gaps=self._missing != "refuse", remedy=f"{fill} or leave the column out")
        return rows

    def _stop(self, fed: Federation) -> float | None:
        """When to stop: a blind run goes on to its last round, so that the coordinator cannot see when it settled."""
        return None if fed.aggregation.fixed_rounds else self.tol

    @property
    def _asks(self) -> int:
        """Questions of a fit of as many rounds as it may have; some are asked again at a finer unit."""
        rounds = getattr(self, "max_iter", 0)
        return rounds + rounds // 4 + BESIDES if rounds else 1

    @property
    def schema(self) -> dict[str, Column]:
        """What the columns were declared to be; models of older versions know plain numbers only."""
        return schema_from(getattr(self, "schema_", None) or {name: {} for name in self.columns_})

    @abstractmethod
    def protocol(self, fed: Federation) -> Protocol[Any]:
        """The coordinator's script for this estimator's parameters."""

    @abstractmethod
    def _keep(self, fed: Federation, result: Any) -> None:
        """Set the fitted attributes."""

    def document(self) -> dict[str, Any]:
        """The fitted model as plain values; numbers keep every bit."""
        check_is_fitted(self)
        given = self.get_params(deep=False)
        if isinstance(given.get("random_state"), (np.random.RandomState, np.random.Generator)):
            given["random_state"] = self.seed_  # what it stood for
        return {
            "format": FORMAT,
            "version": VERSION,
            "class": type(self).__name__,
            "parameters": {name: _plain(value) for name, value in given.items()},
            "fitted": {name: _plain(getattr(self, name)) for name in self._fitted()},
        }

    def save(self, path: str | Path) -> Path:
        """Write the fitted model as JSON."""
        document = self.document()
        path = Path(path)
        if path.is_dir():
            raise StudyError(f"{path} is a folder; name the file to write, such as {path / 'model.json'}")
        write_file(path, json.dumps(document, indent=1) + "\n", one_writer=False, mode=0o666)
        return path

    @classmethod
    def restore(cls, document: dict[str, Any]) -> Self:
        """A fitted estimator from a saved document."""
        model = cls(**{name: _rich(value) for name, value in document["parameters"].items()})
        for name, value in document["fitted"].items():
            setattr(model, name, _rich(value))
        model.columns_ = tuple(model.columns_)
        return model

    def _fitted(self) -> Iterable[str]:
        names = ("n_features_in_", "feature_names_in_", "columns_", "schema_", "seed_", "notes_", *self.kept)
        return (name for name in names if hasattr(self, name))

    def _names(self, width: int) -> tuple[str, ...]:
        return tuple(getattr(self, "feature_names_in_", ())) or tuple(f"x{i}" for i in range(width))


def read_model(path: str | Path) -> dict[str, Any]:
    """A saved model's document, checked for format and version."""
    try:
        document = json.loads(Path(path).read_text())
    except FileNotFoundError:
        raise DataError(f"there is no model at {path}") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; name the model in it, such as {Path(path) / 'model.json'}") from None
    except (ValueError, UnicodeDecodeError):
        raise DataError(f"{path} is not a saved model") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(f"{path} is not a saved model")
    if document.get("version") != VERSION:
        raise DataError(f"{path} has format {document.get('version')}, this version reads {VERSION}; update fedclust")
    return document


def _noised(fed: Federation) -> list[str]:
    """What sites of this process did to their rows before anything was computed."""
    told = (getattr(holding.source, "remarks", ()) for holding in fed.holdings.values())
    return list(dict.fromkeys(remark for own in told for remark in own))


def _absent(absences: Sequence[Absence]) -> list[str]:
    """What to say of parties that were asked and did not contribute."""
    counts = Counter((a.party, a.code) for a in absences)
    return [
        f"Not lossless: {party} did not contribute to {count} steps ({REMEDIES.get(code, code)})."
        for (party, code), count in counts.items()
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == object:
        return {"names": [str(name) for name in value]}
    if isinstance(value, np.ndarray):
        return {"array": value.ravel().tolist(), "shape": list(value.shape), "dtype": value.dtype.name}
    if isinstance(value, np.generic):
        return value.item()
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def _rich(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"array", "shape", "dtype"}:
        return _array(value)
    if isinstance(value, dict) and set(value) == {"names"}:
        return np.array(value["names"], object)
    return [_rich(item) for item in value] if isinstance(value, list) else value


def _array(value: dict[str, Any]) -> Array:
    if value["dtype"] not in ("float64", "float32", "int64", "int32"):
        raise DataError("a saved model holds an array of a kind it cannot have")
    return np.array(value["array"], value["dtype"]).reshape(value["shape"])


def columns_of(X: Floats) -> Array:
    """Rows as one block of columns, as the kernels want them."""
    return np.ascontiguousarray(X.T)
