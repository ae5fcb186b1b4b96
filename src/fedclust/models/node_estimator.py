"""Base of the estimators of weighted nodes, which find the number of clusters and continue in rounds with new rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fedclust.core import effects
from fedclust.core.errors import DataError
from fedclust.core.site_interface import View
from fedclust.core.types import Array, Floats, Ints, PartyId, Units
from fedclust.federation.derived_federations import federation_of_rows
from fedclust.federation.federation import Federation, parse_bounds
from fedclust.kernels import distances
from fedclust.models import site_memories
from fedclust.models.assignment import CentersModel
from fedclust.models.base import require
from fedclust.questions import bounds as limits
from fedclust.questions import schema, standardisation
from fedclust.questions.missing_values import missing_value_notes

LATER_VALUE_EXPONENT = 127  # the power of two below which values of any later round must stay
LABEL_CHUNK_VALUES = 1 << 18
RESTARTED_NOTE = (
    "These sites started from the beginning, because their memory of earlier rounds was not available: {sites}. Rows "
    "that they had not sent yet are lost, and rows of earlier rounds were sent a second time. To avoid this, use "
    "`fedclust update`, or give the previous round's run folder as `after`."
)


class NodeRound(Protocol):
    """The result of one round: how many points were sent, notes, and the sites without memory of earlier rounds."""

    @property
    def sent(self) -> int: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def restarted_sites(self) -> tuple[PartyId, ...]: ...


NodeResult = tuple[Any, View, int, tuple[str, ...]]


class NodeEstimator(CentersModel):
    """An estimator whose clusters are sets of nodes that stand for rows; sites remember what they sent between rounds.

    A method defines `_run_round`, the script of one round; `_keep_round`, which stores what it returned; and
    `_labels_of_rows`.
    """

    lossless: ClassVar[bool] = False
    finds_k: ClassVar[bool] = True
    remembers_rounds: ClassVar[bool] = True
    scales: ClassVar[tuple[str, ...]]
    saved_attributes: ClassVar[tuple[str, ...]] = (
        "nodes_",
        "scaled_nodes_",
        "node_rows_",
        "node_labels_",
        "n_clusters_",
        "cluster_centers_",
        "scaled_centers_",
        "cluster_sizes_",
        "objective_",
        "n_iter_",
        "history_",
        "origin_",
        "spread_",
        "sites_",
    )

    max_nodes: int
    scale: str
    missing: str
    bounds: Any
    nodes_: Floats
    scaled_nodes_: Floats
    node_rows_: Ints
    node_labels_: Units
    sites_: Sequence[PartyId] = ()
    _memories: site_memories.Memories = MappingProxyType({})
    _continues: bool = False

    @property
    def final_objective(self) -> float:
        return self.objective_

    @property
    def takes_batches(self) -> bool:
        return True

    @property
    def saw_batches(self) -> bool:
        return self.n_iter_ > 1

    @property
    def n_clusters(self) -> int:  # type: ignore[override]
        """The number of clusters found."""
        return self.n_clusters_

    def fit(self, X: Any, y: Any = None) -> Self:
        """Cluster a federation, or an array as a federation of one site, from the beginning."""
        self._continues = False
        return super().fit(X, y)

    def partial_fit(self, X: Any, y: Any = None, *, after: str | Path | None = None) -> Self:
        """Run another round with new rows, at the same or other sites; the model keeps what it has learnt.

        Sites continue from their memory of the previous round: in this process, or in the run folder `after`, if this
        process can read it. Sites in other processes keep their memory only if the run is made by `fedclust update`;
        otherwise they start from the beginning, and `notes_` says so.
        """
        if not self.n_iter_:
            return self.fit(X, y)
        if isinstance(X, Federation) and tuple(X.columns) != tuple(self.columns_):
            raise DataError(f"the columns differ from those of the model; use the columns {', '.join(self.columns_)}")
        if after is not None:
            self._memories = site_memories.read_memories(Path(after))
        seed, self._continues = self.seed_, True
        if not isinstance(X, Federation):
            X = self._validate_rows(X)
            X = federation_of_rows(X, self._column_names(X.shape[1]))
        super().fit(X, y)
        self.seed_ = seed
        return self

    def update(self, fed: Federation, *, after: Path | None = None) -> Self:
        return self.partial_fit(fed, after=after)

    def protocol(self, fed: Federation) -> effects.Protocol[NodeResult]:
        self._check_parameters(fed)
        if self._continues:
            site_memories.restore_memories(fed, self._memories)
        return self._round_script(fed)

    def _round_script(self, fed: Federation) -> effects.Protocol[NodeResult]:
        """The script of one round, including the questions that every round asks first."""
        width, missing = len(fed.columns), self._missing_rule
        if fed.declared_schemas:
            yield from schema.check_declarations(fed.declared_schemas, missing)
        rows = yield from limits.total_rows(width, missing)
        if not rows:
            raise DataError("n_samples=0: no site has a row to cluster; check the sites' data")
        notes = list((yield from missing_value_notes(fed.columns, missing)))
        view = self._own_view() if self._continues else (yield from self._agree_view(width))
        view = replace(view, exponents=np.full(width, LATER_VALUE_EXPONENT, np.int32))
        found = yield from self._run_round(view)
        known = self.sites_ if self._continues else ()
        restarted = sorted(set(found.restarted_sites).intersection(known))
        if restarted:
            notes.append(RESTARTED_NOTE.format(sites=", ".join(restarted)))
        return found, view, rows, tuple(notes)

    def _agree_view(self, width: int) -> effects.Protocol[View]:
        """Agree on a view in the first round; later rounds keep it."""
        missing, box = self._missing_rule, parse_bounds(self.bounds, width)
        if self.scale == "none":
            return View(np.full(width, LATER_VALUE_EXPONENT, np.int32), missing=missing)
        view = (
            (yield from limits.agree_on_bounds(width, missing))
            if box is None
            else limits.view_from_bounds(*box, missing)
        )
        return (yield from self._scaled_view(view, box))

    def _scaled_view(self, view: View, box: tuple[Floats, Floats] | None) -> effects.Protocol[View]:
        """A view of the columns scaled by `scale`."""
        if self.scale == "standardise":
            return (yield from standardisation.standardise(view))
        if self.scale == "minmax" and box is not None:
            wide = box[1] - box[0]
            return standardisation.scale_view(view, box[0], np.where(wide > 0, wide, 1.0))
        return view

    @abstractmethod
    def _run_round(self, view: View) -> effects.Protocol[NodeRound]:
        """The script of one round of the method."""

    @abstractmethod
    def _keep_round(self, found: Any) -> Sequence[str]:
        """Set the method's own attributes, among them the nodes by `_keep_nodes`; returns further notes."""

    @abstractmethod
    def _labels_of_rows(self, block: Array) -> Units:
        """Return the cluster of each row of a block (columns by rows) without missing values."""

    def store_result(self, fed: Federation, result: NodeResult) -> None:
        found, view, rows, notes = result
        earlier, nodes_before = (self.history_, self.scaled_nodes_) if self._continues else ((), None)
        self.sites_ = sorted({*(self.sites_ if self._continues else ()), *fed.parties})
        self.origin_, self.spread_ = view.origin, view.spread
        notes = (*notes, *self._keep_round(found))
        self.n_iter_ = len(earlier) + 1
        self.history_ = [
            *earlier,
            {
                "round": self.n_iter_,
                "rows": rows,
                "sent": found.sent,
                "nodes": len(self.nodes_),
                "clusters": self.n_clusters_,
                "shift": 0.0 if nodes_before is None else _mean_distance(self.scaled_nodes_, nodes_before),
                "objective": self.objective_,
            },
        ]
        self.notes_ = [*notes, *found.notes]
        self._memories = {**(self._memories if self._continues else {}), **site_memories.local_memories(fed)}
        if fed.folder is not None:
            site_memories.write_absent_memories(fed.folder, self._memories)
        if fed.site_data and all(own_data.source.resident for own_data in fed.site_data.values()):
            blocks = (block for held in fed.site_data.values() for block in self._view_blocks(held))
            self.labels_ = np.concatenate([self.labels_in_view(some) for some in merge_blocks(blocks)])

    def _keep_nodes(self, places: Floats, rows: Ints, labels: Units) -> None:
        """Keep the coordinator's nodes, and the clusters they form."""
        view = self._own_view()
        self.scaled_nodes_, self.nodes_ = places, view.to_original_units(places)
        self.node_rows_, self.node_labels_ = rows, labels
        self.n_clusters_ = int(labels.max(initial=-1)) + 1
        self.cluster_sizes_ = np.array([rows[labels == c].sum() for c in range(self.n_clusters_)], np.float64)
        self.scaled_centers_ = cluster_means(places, rows, labels)
        self.cluster_centers_ = view.to_original_units(self.scaled_centers_)
        self.objective_ = float((rows * ((places - self.scaled_centers_[labels]) ** 2).sum(axis=1)).sum())

    def labels_in_view(self, block: Array) -> NDArray[np.int32]:
        """Return the cluster of each row of a block; -1 for rows with missing values."""
        gap = np.isnan(block).any(axis=0)
        return np.where(gap, -1, self._labels_of_rows(np.where(gap, 0.0, block))).astype(np.int32)

    def _check_parameters(self, fed: Federation) -> None:
        name = type(self).__name__
        require(fed.split == "rows", f"{name} works on row splits only; for a column split use FuzzyCMeans")
        require(self._missing_rule != "partial", f"{name} needs rows without missing values; set missing to 'drop'")
        require(
            isinstance(self.max_nodes, (int, np.integer)) and self.max_nodes >= 20,
            f"max_nodes is {self.max_nodes}; it must be 20 or more",
        )
        require(self.scale in self.scales, f"scale is {self.scale!r}; choose one of {', '.join(self.scales)}")
        require(
            self.scale != "minmax" or self.bounds is not None,
            "scale='minmax' needs public bounds of every column; set bounds",
        )


def merge_blocks(blocks: Iterable[Array]) -> Iterator[Array]:
    """Merge blocks of columns by rows up to LABEL_CHUNK_VALUES values, because each block costs a separate search."""
    some: list[Array] = []
    for block in blocks:
        some.append(block)
        if sum(one.size for one in some) >= LABEL_CHUNK_VALUES:
            yield np.concatenate(some, axis=1)
            some = []
    if some:
        yield np.concatenate(some, axis=1)


def cluster_means(places: Floats, rows: Ints, labels: Units) -> Floats:
    """Return the mean of each cluster, with nodes weighted by their rows."""
    own = [labels == c for c in range(int(labels.max(initial=-1)) + 1)]
    means = [np.average(places[mine], axis=0, weights=rows[mine]) for mine in own]
    return np.stack(means) if means else np.empty((0, places.shape[1]))


def _mean_distance(now: Floats, before: Floats) -> float:
    """Return the mean distance of the nodes to the nearest node before the round."""
    if not len(now) or not len(before):
        return 0.0
    return float(np.sqrt(distances.nearest_centers(np.ascontiguousarray(now.T), before)[1]).mean())
