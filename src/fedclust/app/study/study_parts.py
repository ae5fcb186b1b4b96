"""The parts of a validated study, and the open sites and the estimator that are made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedclust.algorithms.shared.spread_free_centers import STUDY_CELL_FLOOR
from fedclust.app.choose_k import DEFAULT_RESTARTS
from fedclust.app.study.study_keys import suggest_key
from fedclust.core.errors import StudyError
from fedclust.federation.aggregation import Aggregation
from fedclust.federation.federation import Federation
from fedclust.federation.run_record import RunRecord
from fedclust.models.base import FederatedEstimator
from fedclust.models.methods import find_study_method, private_methods
from fedclust.questions.alignment import Alignment
from fedclust.questions.schema import Column, encoded_names
from fedclust.site.policy import Policy, find_policy


@dataclass(frozen=True)
class StudySite:
    """One site of a study that runs in this process: its source of rows, and its policy."""

    name: str
    source: Path | str | Mapping[str, str]
    policy: str = "none"
    columns: tuple[str, ...] | None = None
    packages: tuple[str, ...] = ()  # other packages whose questions are answered

    @property
    def rules(self) -> Policy:
        """Return the policy, with the packages that the study names."""
        found = find_policy(self.policy)
        if found.packages is None or not self.packages:
            return found
        return replace(found, packages=found.packages | set(self.packages))


@dataclass(frozen=True)
class KSearch:
    """The values of k to search; None takes the range from what the sites find on their own.

    `options` are keyword arguments of `select_k`.
    """

    ks: tuple[int, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_by_index(self) -> bool:
        """Whether an index of fits for each k chooses it."""
        return self.options.get("criterion") == "index" or "index" in self.options or "rule" in self.options

    @property
    def fits_per_k(self) -> int:
        """How often the method is fitted with each k; 0 if only the chosen k is fitted, once."""
        return int(self.options.get("restarts", DEFAULT_RESTARTS)) if self.is_by_index else 0


@dataclass(frozen=True)
class ClusterSettings:
    """What to look for: `k` clusters, or as many as `choice` finds.

    `options` has the study's other settings, under the estimator's parameter names.
    """

    method: str
    k: int | None
    options: Mapping[str, Any] = field(default_factory=dict)
    choice: KSearch | None = None

    @property
    def max_clusters(self) -> int:
        """Return the largest number of clusters that is certain to be tried."""
        return self.choice.ks[-1] if self.choice and self.choice.ks else self.k or 1


@dataclass(frozen=True)
class Study:
    """A study file, validated. `text` is the file as its author wrote it."""

    name: str
    text: str
    cluster: ClusterSettings
    sites: tuple[StudySite, ...]
    columns: tuple[str, ...] | None = None
    schema: Mapping[str, Column] = field(default_factory=dict)
    scale: str = "none"
    missing: str = "refuse"
    split: Literal["rows", "columns"] = "rows"
    id: str | None = None
    bounds: tuple[float, float] | Mapping[str, tuple[float, float]] | None = None
    aggregation: Aggregation = Aggregation()
    align: Alignment | None = None
    seed: int = 0
    is_verified: bool = False  # whether remote sites run the script themselves, and check every question and sum
    noise: Mapping[str, Any] = field(default_factory=dict)  # epsilon, delta and variant of differential privacy

    def open_federation(self, run: str | Path | RunRecord | None = None) -> Federation:
        """Open the study's sites in this process."""
        own = {
            site.name: {name: self.schema.get(name, Column()) for name in site.columns}
            for site in self.sites
            if site.columns is not None
        }
        fed = Federation.local(
            {site.name: site.source for site in self.sites},
            columns=own or self.schema or None,
            order=encoded_names(self.schema) if own and self.schema and self.split == "columns" else None,
            split=self.split,
            id=self.id,
            aggregation=self.aggregation,
            align=self.align.method if self.align else None,
            duplicates=self.align.duplicates if self.align else "refuse",
            policy={site.name: site.rules for site in self.sites},
            run=run,
            seed=self.seed,
        )
        fed.cell_floor = STUDY_CELL_FLOOR
        return fed

    def make_estimator(self, columns: Sequence[str] | None = None) -> FederatedEstimator:
        """Return the study's method, ready to fit; `columns` are the sites' columns if the study names none."""
        if self.noise:
            return self._private_estimator(columns)
        method = find_study_method(self.cluster.method)
        ready = method.estimator(**self.cluster.options)
        taken = ready.get_params()
        said = {"missing": self.missing != "refuse", "scale": self.scale != "none", "bounds": self.bounds is not None}
        for name in (name for name, is_said in said.items() if is_said and name not in taken):
            why = "needs complete rows" if name == "missing" else f"has no setting {name}"
            raise StudyError(f"method '{method.name}' {why}; remove the key {name}")
        # Settings that the study leaves out keep the method's defaults.
        values = {"missing": self.missing, "scale": self.scale, "bounds": self._bounds_by_column(columns)}
        ready.set_params(**{name: values[name] for name, is_said in said.items() if is_said})
        if not method.finds_k:
            ready.set_params(n_clusters=self.cluster.max_clusters)
        return ready

    def private_form(self) -> Study:
        """Return the same study under differential privacy, with epsilon 1 if it names none."""
        if self.noise:
            return self
        private = private_methods()
        if self.cluster.method not in private:
            raise StudyError(
                f"method '{self.cluster.method}' does not support differential privacy; use {' or '.join(private)}"
            )
        taken = private[self.cluster.method]().get_params()
        options = {name: value for name, value in self.cluster.options.items() if name in taken}
        return replace(
            self,
            noise={"epsilon": 1.0},
            cluster=replace(self.cluster, options={**options, "n_clusters": self.cluster.max_clusters}, choice=None),
        )

    def _private_estimator(self, columns: Sequence[str] | None) -> FederatedEstimator:
        kind = private_methods()[self.cluster.method]
        if self.missing == "partial":
            raise StudyError("under differential privacy, rows with missing values are left out; set missing to 'drop'")
        for name in self.noise:
            if name not in kind().get_params():
                raise StudyError(f"method '{self.cluster.method}' has no setting {name}; leave it out of [privacy]")
        return kind(scale=self.scale, bounds=self._bounds_by_column(columns), **self.noise, **self.cluster.options)

    def _bounds_by_column(
        self, columns: Sequence[str] | None
    ) -> list[tuple[float, float]] | tuple[float, float] | None:
        if not isinstance(self.bounds, Mapping):
            return self.bounds
        names = tuple(self.bounds) if columns is None else tuple(columns)
        limits = {n: column.limits() for raw, column in self.schema.items() for n in column.encoded_column_names(raw)}
        pairs = {**{name: pair for name, pair in limits.items() if pair is not None}, **self.bounds}
        for name in names:
            if name not in pairs:
                raise StudyError(
                    f"[bounds] has no pair for column '{name}'; give every column a pair, or one pair for all"
                )
        for name in self.bounds:
            if name not in names:
                raise StudyError(
                    f"[bounds] names '{name}', which is not a column; {suggest_key(name, names) or 'leave it out'}"
                )
        return [pairs[name] for name in names]
