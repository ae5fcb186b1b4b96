"""FCAC as an estimator: clusters without a number of clusters, in one exchange, and more rows in later rounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedclust.algorithms import fcac
from fedclust.algorithms.summary_clustering import clearness, neighbor_graph, summaries
from fedclust.algorithms.summary_clustering.outlier_fences import Fences
from fedclust.core import wire
from fedclust.core.atomic_files import write_file
from fedclust.core.effects import Protocol, Quorum
from fedclust.core.errors import DataError
from fedclust.core.site_interface import View
from fedclust.core.types import Array, Floats, Ints, PartyId, Units
from fedclust.federation.federation import Federation, box_of
from fedclust.kernels import distances, resonance
from fedclust.kernels.resonance import Net
from fedclust.models.assignment import Assigning
from fedclust.models.base import require
from fedclust.questions import bounds as limits
from fedclust.questions import ranges, schema, standardisation
from fedclust.questions.missing_values import told
from fedclust.site.server import Desk, State

SETTINGS = ("default", "published")
SCALES = (None, "damped", "range", "standardise", "minmax", "none")
AGREED = ("damped", "range")
ANYTHING = 127  # the power of two below which values of any later round must stay
NO_NODES = "No node is left, so no row has a cluster (label -1); give more rows, or use the default setting."
ANEW = (
    "Sites began anew, for what they remember of earlier rounds is not at hand: {sites}. Rows that waited there are "
    "lost, and rows told before are told again; use `fedclust update`, or give the run folder of the round before as "
    "`after`."
)
AT_ONCE = 1 << 18
CARRIED = "carried"  # in a run folder, what a site remembers that took no part in the round
Result = tuple[fcac.Round | summaries.Round, View, int, tuple[str, ...]]


class FCAC(Assigning):
    """Federated clustering by adaptive resonance (paper 3), which finds the number of clusters; row splits only.

    Not lossless. In the default setting a site sends means of at least `floor` rows, each row in one of them, and the
    coordinator looks for stable communities in their neighbour graph. In the published setting it sends the nodes of
    its net, most of which are rows; that is for comparison.

    Parameters
    ----------
    setting : "default" or "published".
    floor : rows that a summary stands for at least (default setting).
    max_nodes : nodes that a site (published) and the coordinator remember at most; `notes_` says when they are full.
    scale : "none", "standardise", "minmax" with public `bounds`, "range": by how far the columns reach over all
        sites, agreed to a factor of 1.19, or "damped": the same, with values far out damped by their logarithm. None is
        "damped" in the default setting and "none" in the published one.
    missing, bounds, quorum : as for `KMeans`; gaps may be refused or dropped.

    Attributes
    ----------
    nodes_, node_rows_, node_labels_ : what the coordinator holds, in original units; rows behind each; its cluster.
    n_clusters_, cluster_centers_, cluster_sizes_ : clusters, their means and rows by the nodes.
    levels_ : the resolutions, or numbers of balls, that the clusters were chosen from (default setting).
    clearness_ : how many times a cloud's score the summaries reach; below 1.25 `notes_` says so. None if not judged.
    round_ : whether nodes were few and clusters are balls: rows go to the nearest centre, not where nodes vote.
    fences_ : in the units of `scaled_nodes_`, below and above which values of each column are damped; or None.
    sites_ : all sites that took part in some round.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(600, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 200, axis=0)
    >>> model = fc.FCAC().fit(fc.Federation.local({"a": X[::2], "b": X[1::2]}))
    >>> model.n_clusters_, bool(model.node_rows_.min() >= 5)
    (3, True)
    >>> model.partial_fit(fc.Federation.local({"a": X[:300] + 30})).n_clusters_
    5
    """

    lossless: ClassVar[bool] = False
    kept: ClassVar[tuple[str, ...]] = (
        "nodes_",
        "scaled_nodes_",
        "node_rows_",
        "node_labels_",
        "n_clusters_",
        "cluster_centers_",
        "scaled_centers_",
        "cluster_sizes_",
        "levels_",
        "clearness_",
        "round_",
        "objective_",
        "n_iter_",
        "history_",
        "net_",
        "origin_",
        "spread_",
        "fences_",
        "sites_",
    )

    net_: list[Array] | None
    round_: bool = False  # models saved without it voted
    clearness_: float | None = None  # models saved without it were not judged
    fences_: Floats | None = None  # models saved without them damped nothing
    history_: list[dict[str, Any]]
    sites_: list[PartyId]
    _memories: dict[PartyId, dict[str, Array]]
    _going_on: bool = False
    _m = 1.0  # indices and reports take the nearest centre

    def __init__(
        self,
        setting: str = "default",
        *,
        floor: int = 5,
        max_nodes: int = 4096,
        scale: str | None = None,
        missing: str = "refuse",
        bounds: Any = None,
        quorum: Quorum = "all",
        random_state: int | None = 0,
    ) -> None:
        self.setting = setting
        self.floor = floor
        self.max_nodes = max_nodes
        self.scale = scale
        self.missing = missing
        self.bounds = bounds
        self.quorum = quorum
        self.random_state = random_state

    @property
    def n_clusters(self) -> int:  # type: ignore[override]
        """How many clusters were found."""
        return self.n_clusters_

    def fit(self, X: Any, y: Any = None) -> Self:
        """Cluster a federation, or an array as a federation of one site, from the beginning."""
        self._going_on = False
        return super().fit(X, y)

    def partial_fit(self, X: Any, y: Any = None, *, after: str | Path | None = None) -> Self:
        """One more round with new rows, at the same sites or others; nothing learnt is forgotten.

        Sites go on from what they remember: of the round before in this process, or in the run folder `after`, where
        this process reads it. Rows that a site told before are not told again, whether its table still holds them or
        not. Sites in other processes remember in the runs that `fedclust update` makes; in any other they begin anew,
        and `notes_` says so.
        """
        if not hasattr(self, "n_iter_"):
            return self.fit(X, y)
        if isinstance(X, Federation) and tuple(X.columns) != tuple(self.columns_):
            raise DataError(f"this round has other columns than the model's: {', '.join(self.columns_)}")
        if after is not None:
            self._memories = memories_in(Path(after))
        seed, self._going_on = self.seed_, True
        if not isinstance(X, Federation):
            X = self._rows(X)
            X = Federation.local({"here": X}, columns=self._names(X.shape[1]))
        super().fit(X, y)
        self.seed_ = seed
        return self

    def protocol(self, fed: Federation) -> Protocol[Result]:
        self._check(fed)
        known = getattr(self, "_memories", {}) if self._going_on else {}
        desks: Mapping[PartyId, Desk] = getattr(fed.engine, "desks", {})
        for party, desk in desks.items():
            # A round that was broken off goes on with what its own folder holds.
            if self._going_on and party in known and fed.run_id not in desk.memory:
                desk.memory[fed.run_id] = known[party]
        return self._round(fed)

    def _round(self, fed: Federation) -> Protocol[Result]:
        width, missing = len(fed.columns), self._missing
        if fed.declared:
            yield from schema.agree(fed.declared, missing)
        rows = yield from limits.count(width, missing)
        if not rows:
            raise DataError("n_samples=0: no site has a row that takes part")
        gaps = yield from told(fed.columns, missing)
        view = self._view() if self._going_on else (yield from self._looking(width))
        view = replace(view, exponents=np.full(width, ANYTHING, np.int32))
        fresh, seed = not self._going_on, self.seed_
        found: fcac.Round | summaries.Round
        if self.setting == "published":
            net = Net.empty(width) if fresh or self.net_ is None else Net(*self.net_)
            found = yield from fcac.fit(view, net, fresh=fresh, most=self.max_nodes, seed=seed)
        else:
            nothing = fresh or not any(entry["sent"] for entry in self.history_)
            found = yield from summaries.fit(
                view,
                np.empty((0, width)) if nothing else self.scaled_nodes_,
                np.empty(0, np.int64) if nothing else self.node_rows_,
                instead=(self.scaled_nodes_, self.node_rows_) if nothing and not fresh else None,
                fresh=fresh,
                damped=self._damped,
                floor=self.floor,
                most=self.max_nodes,
                seed=seed,
            )
        lost = sorted(set(found.anew).intersection(() if fresh else self.sites_))
        return found, view, rows, (*gaps, *([ANEW.format(sites=", ".join(lost))] if lost else []))

    def _looking(self, width: int) -> Protocol[View]:
        """The first round's view, which later rounds keep."""
        missing, box = self._missing, box_of(self.bounds, width)
        if self._scale == "none":
            return View(np.full(width, ANYTHING, np.int32), missing=missing)
        view = (yield from limits.agree(width, missing)) if box is None else limits.declared(*box, missing)
        if self._scale in AGREED:
            return (yield from ranges.ranged(view))
        if self._scale == "standardise":
            return (yield from standardisation.standardise(view))
        if self._scale == "minmax" and box is not None:
            wide = box[1] - box[0]
            return standardisation.scaled(view, box[0], np.where(wide > 0, wide, 1.0))
        return view

    def _keep(self, fed: Federation, result: Result) -> None:
        found, view, rows, notes = result
        self.sites_ = sorted({*(getattr(self, "sites_", ()) if self._going_on else ()), *fed.parties})
        before = (self.scaled_nodes_, self.history_) if self._going_on else (None, [])
        self.origin_, self.spread_ = view.origin, view.spread
        if isinstance(found, fcac.Round):
            self._hold(found.net.places, found.net.wins, found.net.components())
            self.net_ = [getattr(found.net, f.name) for f in fields(Net)]
            self.levels_, self.clearness_, self.round_, self.fences_ = [], None, False, None
        else:
            self._hold(found.places, found.rows, found.found.labels)
            self.net_, self.round_ = None, found.found.round
            self.fences_ = None if found.fences is None else np.stack([found.fences.low, found.fences.high])
            self.levels_ = [asdict(level) for level in found.found.levels]
            seen = found.places if found.fences is None else found.fences.seen(found.places)
            cloud = clearness.Cloud.like(seen, found.rows, sites=len(self.sites_), floor=self.floor)
            self.clearness_ = clear = clearness.measured(seen, found.rows, found.found.levels, cloud, self.seed_)
            notes = (*notes, *([clearness.TOLD.format(clear=clear)] if clear and clear < clearness.HARDLY else []))
        self.n_iter_ = len(before[1]) + 1
        self.history_ = [
            *before[1],
            {
                "round": self.n_iter_,
                "rows": rows,
                "sent": found.sent,
                "nodes": len(self.nodes_),
                "clusters": self.n_clusters_,
                "shift": 0.0 if before[0] is None else _novelty(self.scaled_nodes_, before[0]),
                "objective": self.objective_,
            },
        ]
        self.notes_ = [*notes, *found.notes, *([] if len(self.nodes_) else [NO_NODES])]
        desks: Mapping[PartyId, Desk] = getattr(fed.engine, "desks", {})
        kept = {party: desk.memory[fed.run_id] for party, desk in desks.items() if fed.run_id in desk.memory}
        self._memories = {**(getattr(self, "_memories", {}) if self._going_on else {}), **kept}
        if fed.folder is not None:
            carry_on(fed.folder, self._memories)
        if fed.holdings and all(holding.source.resident for holding in fed.holdings.values()):
            blocks = (block for held in fed.holdings.values() for block in self._looked_at(held))
            self.labels_ = np.concatenate([self._labels(some) for some in joined(blocks)])

    def _hold(self, places: Floats, rows: Ints, labels: Units) -> None:
        """Keep the coordinator's nodes, and the clusters they make."""
        view = self._view()
        self.scaled_nodes_, self.nodes_ = places, view.back(places)
        self.node_rows_, self.node_labels_ = rows, labels
        self.n_clusters_ = int(labels.max(initial=-1)) + 1
        self.cluster_sizes_ = np.array([rows[labels == c].sum() for c in range(self.n_clusters_)], np.float64)
        self.scaled_centers_ = _means(places, rows, labels)
        self.cluster_centers_ = view.back(self.scaled_centers_)
        self.objective_ = float((rows * ((places - self.scaled_centers_[labels]) ** 2).sum(axis=1)).sum())

    def _labels(self, block: Array) -> NDArray[np.int32]:
        """The cluster of the nearest centre, that nodes nearby vote for, or of the net's nearest; -1 for gaps."""
        gap = np.isnan(block).any(axis=0)
        whole = np.where(gap, 0.0, block)
        if self.net_ is None:
            labels = self._by_summaries(whole)
        else:
            labels = self._by_net(np.ascontiguousarray(whole.T, np.float64))
        return np.where(gap, -1, labels).astype(np.int32)

    def _by_summaries(self, block: Array) -> Units:
        """The cluster of each row, all seen as the coordinator saw the summaries."""
        nodes, block = self.scaled_nodes_, np.ascontiguousarray(block)
        if self.fences_ is not None:
            fences = Fences(*self.fences_)
            nodes, block = fences.seen(nodes), np.ascontiguousarray(fences.seen(block.T).T)
        if self.round_:
            return distances.labels(block, _means(nodes, self.node_rows_, self.node_labels_))[0]
        return neighbor_graph.voted(block, nodes, self.node_labels_)

    def _by_net(self, rows: Floats) -> NDArray[np.int32]:
        """The cluster of each row's nearest node in the published net; -1 where it has none left."""
        if not len(self.node_labels_):
            return np.full(len(rows), -1, np.int32)
        net = Net(*self.net_ or ())
        return np.asarray(self.node_labels_[resonance.nearest(rows, net.places, net.width)[0]], np.int32)

    @property
    def _damped(self) -> bool:
        """Whether values far out count damped; a model that goes on stays as it was."""
        return self._scale == "damped" and (not self._going_on or self.fences_ is not None)

    @property
    def _scale(self) -> str:
        return self.scale or ("none" if self.setting == "published" else "damped")

    def _check(self, fed: Federation) -> None:
        require(self.setting in SETTINGS, f"setting is {self.setting!r}; choose one of {', '.join(SETTINGS)}")
        require(fed.split == "rows", "FCAC needs whole rows; over a column split use FuzzyCMeans")
        require(self._missing != "partial", "FCAC needs whole rows; set missing to 'drop'")
        require(
            isinstance(self.floor, (int, np.integer)) and self.floor >= 2,
            f"floor is {self.floor}; it must be 2 or more",
        )
        require(
            isinstance(self.max_nodes, (int, np.integer)) and self.max_nodes >= 20,
            f"max_nodes is {self.max_nodes}; it must be 20 or more",
        )
        named = ", ".join(str(scale) for scale in SCALES)
        require(self.scale in SCALES, f"scale is {self.scale!r}; choose one of {named}")
        require(
            self.scale not in AGREED or self.setting == "default",
            f"scale {self.scale!r} needs summaries; set setting to 'default'",
        )
        require(self.scale != "minmax" or self.bounds is not None, "scale 'minmax' needs public bounds; set bounds")


@dataclass(frozen=True)
class Carried:
    """What a site remembers that took no part in a round."""

    memory: dict[str, Array]


def memories_in(folder: Path) -> dict[PartyId, dict[str, Array]]:
    """What the sites of a run folder remember, and those that it carries on."""
    found = {}
    for path in sorted((folder / "sites").glob(f"*/{CARRIED}")):
        found[path.parent.name] = wire.decode(Carried, path.read_bytes()).memory
    for path in sorted((folder / "sites").glob("*/state")):
        found[path.parent.name] = State.read(path).memory
    if not found:
        raise DataError(f"{folder} holds no memory of sites; give the run folder of the round before")
    return found


def carry_on(folder: Path, memories: Mapping[PartyId, dict[str, Array]]) -> None:
    """Keep in a run folder what sites remember that answered nothing there, for the next round to find."""
    for party, memory in memories.items():
        own = folder / "sites" / party
        if not (own / "state").exists():
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(own / CARRIED, wire.encode(Carried(memory)))


def joined(blocks: Iterable[Array]) -> Iterator[Array]:
    """Blocks of columns by rows side by side, as many as are AT_ONCE values: each costs a search of its own."""
    some: list[Array] = []
    for block in blocks:
        some.append(block)
        if sum(one.size for one in some) >= AT_ONCE:
            yield np.concatenate(some, axis=1)
            some = []
    if some:
        yield np.concatenate(some, axis=1)


def _means(places: Floats, rows: Ints, labels: Units) -> Floats:
    """The mean of each cluster, every row of a node counted."""
    own = [labels == c for c in range(int(labels.max(initial=-1)) + 1)]
    means = [np.average(places[mine], axis=0, weights=rows[mine]) for mine in own]
    return np.stack(means) if means else np.empty((0, places.shape[1]))


def _novelty(now: Floats, before: Floats) -> float:
    """How far the coordinator's nodes lie from those before the round, on average."""
    if not len(now) or not len(before):
        return 0.0
    return float(np.sqrt(distances.labels(np.ascontiguousarray(now.T), before)[1]).mean())
