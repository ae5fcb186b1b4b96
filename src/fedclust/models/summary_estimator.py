"""The estimator SummaryClustering: sites send means of several rows each, and the number of clusters is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np

from fedclust.algorithms.summary_clustering import clearness, neighbor_graph, summaries
from fedclust.algorithms.summary_clustering.outlier_fences import OutlierFences
from fedclust.core.effects import Protocol, Quorum
from fedclust.core.site_interface import View
from fedclust.core.types import Array, Floats, Units
from fedclust.federation.federation import Federation
from fedclust.kernels import distances
from fedclust.models.base import require
from fedclust.models.node_estimator import NodeEstimator, cluster_means
from fedclust.questions import ranges

RANGE_SCALES = ("damped", "range")


class SummaryClustering(NodeEstimator):
    """Clusters k-anonymous summaries of rows and finds the number of clusters; row splits only.

    Not lossless. A site sends means of at least `floor` rows. Each row is in one mean, and each mean is sent once. The
    coordinator looks for stable communities in the neighbour graph of all means.

    Parameters
    ----------
    floor : int, default=5
        Smallest number of rows that a summary stands for.
    max_nodes : int, default=4096
        Largest number of summaries that the coordinator remembers; `notes_` says when it is reached.
    scale : {"damped", "range", "none", "standardise", "minmax"}, default="damped"
        How to scale the columns. "range" uses the range of each column over all sites, known to within a factor of
        1.19. "damped" does the same and compresses outliers logarithmically. "minmax" needs public `bounds`.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with missing values.
    bounds, quorum, random_state
        As for `KMeans`.

    Attributes
    ----------
    nodes_ : array of shape (n_nodes, n_columns)
        Summaries in original units.
    node_rows_ : array of shape (n_nodes,)
        Number of rows behind each summary.
    node_labels_ : array of shape (n_nodes,)
        Cluster of each summary.
    n_clusters_ : int
        Number of clusters found.
    cluster_centers_, cluster_sizes_ : arrays
        Means of the clusters and their numbers of rows.
    levels_ : list
        The clusterings that were tried, one for each resolution or number of clusters.
    clearness_ : float or None
        Score of the summaries divided by the score of data without clusters. `notes_` warns if it is below 1.25. None
        if it was not computed.
    spherical_ : bool
        Whether the clusters come from k-means because there were few summaries. A row then goes to the nearest centre;
        otherwise the nearest summaries vote.
    fences_ : array or None
        Limits of each column beyond which values are damped, in the units of `scaled_nodes_`.
    sites_ : list of str
        All sites that took part in any round.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(600, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 200, axis=0)
    >>> model = fc.SummaryClustering().fit(fc.Federation.local({"a": X[::2], "b": X[1::2]}))
    >>> model.n_clusters_, bool(model.node_rows_.min() >= 5)
    (3, True)
    >>> model.partial_fit(fc.Federation.local({"a": X[:300] + 30})).n_clusters_
    5
    """

    scales: ClassVar[tuple[str, ...]] = (*RANGE_SCALES, "none", "standardise", "minmax")
    saved_attributes: ClassVar[tuple[str, ...]] = (
        *NodeEstimator.saved_attributes,
        "levels_",
        "clearness_",
        "spherical_",
        "fences_",
    )

    levels_: list[dict[str, Any]]
    spherical_: bool = False  # False for saved models without it, which used votes
    clearness_: float | None = None  # None for saved models without it
    fences_: Floats | None = None  # None for saved models without them, which damped nothing

    def __init__(
        self,
        *,
        floor: int = 5,
        max_nodes: int = 4096,
        scale: str = "damped",
        missing: str = "refuse",
        bounds: Any = None,
        quorum: Quorum = "all",
        random_state: int | None = 0,
    ) -> None:
        self.floor = floor
        self.max_nodes = max_nodes
        self.scale = scale
        self.missing = missing
        self.bounds = bounds
        self.quorum = quorum
        self.random_state = random_state

    def _scaled_view(self, view: View, box: tuple[Floats, Floats] | None) -> Protocol[View]:
        if self.scale in RANGE_SCALES:
            return (yield from ranges.scale_to_range(view))
        return (yield from super()._scaled_view(view, box))

    def _run_round(self, view: View) -> Protocol[summaries.Round]:
        width, known = len(view.exponents), None
        if self._continues:
            known = self.scaled_nodes_, self.node_rows_
        has_summaries = known is not None and any(entry["sent"] for entry in self.history_)
        places, rows = known if known and has_summaries else (np.empty((0, width)), np.empty(0, np.int64))
        return summaries.fit(
            view,
            places,
            rows,
            stand_in=None if has_summaries else known,
            fresh=not self._continues,
            damped=self._damps_outliers,
            floor=self.floor,
            max_nodes=self.max_nodes,
            seed=self.seed_,
        )

    def _keep_round(self, found: summaries.Round) -> Sequence[str]:
        self._keep_nodes(found.places, found.rows, found.clusters.labels)
        self.spherical_ = found.clusters.spherical
        self.fences_ = None if found.fences is None else np.stack([found.fences.low, found.fences.high])
        self.levels_ = [asdict(level) for level in found.clusters.levels]
        places, rows = found.compared_places, found.rows
        cloud = clearness.Cloud.of_summaries(places, rows, sites=len(self.sites_), floor=self.floor)
        clear = clearness.measure_clearness(places, rows, found.clusters.levels, cloud, self.seed_)
        self.clearness_ = clear
        return [clearness.UNCLEAR.format(clear=clear)] if clear and clear < clearness.UNCLEAR_BELOW else []

    def _labels_of_rows(self, block: Array) -> Units:
        """Return the cluster of each row; rows and summaries are damped as the coordinator damped the summaries."""
        nodes, block = self.scaled_nodes_, np.ascontiguousarray(block)
        if self.fences_ is not None:
            fences = OutlierFences(*self.fences_)
            nodes, block = fences.damp(nodes), np.ascontiguousarray(fences.damp(block.T).T)
        if self.spherical_:
            return distances.nearest_centers(block, cluster_means(nodes, self.node_rows_, self.node_labels_))[0]
        return neighbor_graph.labels_by_vote(block, nodes, self.node_labels_)

    @property
    def _damps_outliers(self) -> bool:
        """Whether outliers are damped; a model that continues keeps its setting."""
        return self.scale == "damped" and (not self._continues or self.fences_ is not None)

    def _check_parameters(self, fed: Federation) -> None:
        super()._check_parameters(fed)
        require(
            isinstance(self.floor, (int, np.integer)) and self.floor >= 2,
            f"the parameter 'floor' is {self.floor}; it must be 2 or more",
        )
