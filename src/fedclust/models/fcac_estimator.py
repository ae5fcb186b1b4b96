"""FCAC, paper 3's federated clustering by adaptive resonance, as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from fedclust.algorithms.fcac import coordinator_net
from fedclust.core.effects import Protocol, Quorum
from fedclust.core.site_interface import View
from fedclust.core.types import Array, Units
from fedclust.kernels import resonance
from fedclust.kernels.resonance import Net
from fedclust.models.node_estimator import NodeEstimator


class FCAC(NodeEstimator):
    """Federated clustering by adaptive resonance (paper 3), which finds the number of clusters; row splits only.

    Not lossless, and meant for comparison: a site sends the nodes of its network, and most nodes are single rows. The
    settings are those of the published runs, which differ from the paper's text. `SummaryClustering` finds the
    number of clusters without sending rows.

    Parameters
    ----------
    max_nodes : int, default=4096
        Largest number of nodes at a site and at the coordinator; `notes_` says when it is reached.
    scale : {"none", "standardise", "minmax"}, default="none"
        How to scale the columns. "minmax" needs public `bounds`. The published runs do not scale.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with missing values.
    bounds, quorum, random_state
        As for `KMeans`.

    Attributes
    ----------
    nodes_ : array of shape (n_nodes, n_columns)
        Nodes of the coordinator in original units.
    node_rows_ : array of shape (n_nodes,)
        Number of site nodes that each node stands for.
    node_labels_ : array of shape (n_nodes,)
        Cluster of each node.
    n_clusters_ : int
        Number of clusters found.
    cluster_centers_, cluster_sizes_ : arrays
        Means and sizes of the clusters, computed from the nodes.
    net_ : dict
        Arrays of the coordinator's network.
    sites_ : list of str
        All sites that took part in any round.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(600, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 200, axis=0)
    >>> model = fc.FCAC().fit(fc.Federation.local({"a": X[::2], "b": X[1::2]}))
    >>> len(model.nodes_) == len(model.node_labels_) >= model.n_clusters_
    True
    """

    scales: ClassVar[tuple[str, ...]] = ("none", "standardise", "minmax")
    saved_attributes: ClassVar[tuple[str, ...]] = (*NodeEstimator.saved_attributes, "net_")

    net_: list[Array]

    def __init__(
        self,
        *,
        max_nodes: int = 4096,
        scale: str = "none",
        missing: str = "refuse",
        bounds: Any = None,
        quorum: Quorum = "all",
        random_state: int | None = 0,
    ) -> None:
        self.max_nodes = max_nodes
        self.scale = scale
        self.missing = missing
        self.bounds = bounds
        self.quorum = quorum
        self.random_state = random_state

    def _run_round(self, view: View) -> Protocol[coordinator_net.Round]:
        net = Net(*self.net_) if self._continues else Net.empty(len(view.exponents))
        return coordinator_net.fit(view, net, fresh=not self._continues, max_nodes=self.max_nodes, seed=self.seed_)

    def _keep_round(self, found: coordinator_net.Round) -> Sequence[str]:
        self._keep_nodes(found.net.places, found.net.wins, found.net.components())
        self.net_ = [vars(found.net)[f.name] for f in fields(Net)]
        return ()

    def _labels_of_rows(self, block: Array) -> Units:
        """Return the cluster of each row's nearest node; -1 if no node is left."""
        rows = np.ascontiguousarray(block.T, np.float64)
        if not len(self.node_labels_):
            return np.full(len(rows), -1, np.int32)
        net = Net(*self.net_)
        return self.node_labels_[resonance.nearest_places(rows, net.places, net.width)[0]]
