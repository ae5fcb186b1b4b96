"""Nets of nodes that learn row by row (adaptive resonance by correntropy): CA+ at a site, CAE_FC at the server.

A node stands for the rows it won. A row is compared with all nodes by the correntropy-induced metric

    CIM(x, w) = sqrt(1 - mean_j exp(-(x_j - w_j)^2 / (2 width^2)))

where the width is the mean of the nodes' bandwidths. Within the vigilance threshold it moves its winner, beyond it
becomes a node. At the server edges join a row's first and second winner, age, and are pruned; nodes that no edge
reached go from time to time. Clusters are the connected components.

Paper: Masuyama et al., federated clustering with adaptive resonance (FCAC), in the setting of its published runs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedclust.core.types import Array, Floats, Ints, Units
from fedclust.kernels import _art_twin, _backend, _threads

_compiled: Any
try:
    from fedclust.kernels import _art as _compiled
except ImportError:
    _compiled = _art_twin

MIN_SHARED_EXPONENTIALS = 1 << 20  # exponentials for which a second thread is worth waking


@dataclass(frozen=True)
class Net:
    """Nodes in the order in which they came, and all it takes to go on learning.

    >>> net = Net.empty(1).learn(np.repeat([[0.0], [1.0], [2.0]], 20, axis=0))
    >>> net.places.ravel().tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0]
    """

    places: Floats  # (nodes, columns)
    wins: Ints  # how many rows each node stands for
    widths: Floats
    order: Units  # nodes from the one touched longest ago to the latest
    edges: Units  # (edges, 3): two nodes, the lower first, and the edge's age
    counts: Ints  # rows seen, half of lambda, whether it is settled, edges deleted, the sum of their ages, rows refused
    levels: Floats  # vigilance threshold, latest bandwidth

    @classmethod
    def empty(cls, columns: int) -> Self:
        """A net that has seen nothing."""
        return cls(
            np.empty((0, columns)),
            np.empty(0, np.int64),
            np.empty(0),
            np.empty(0, np.int32),
            np.empty((0, 3), np.int32),
            np.zeros(6, np.int64),
            np.zeros(2),
        )

    def learn(self, rows: Array, *, server: bool = False, max_nodes: int = 1 << 12) -> Net:
        """The net after some more rows, one after another; beyond `max_nodes` nodes a row goes to its nearest."""
        found = _arithmetic().learn(
            server,
            max_nodes,
            np.ascontiguousarray(rows, np.float64),
            self.places,
            self.wins,
            self.widths,
            self.order,
            self.edges,
            self.counts,
            self.levels,
        )
        kinds = (np.float64, np.int64, np.float64, np.int32, np.int32, np.int64, np.float64)
        places, wins, widths, order, edges, counts, levels = map(np.frombuffer, found, kinds)
        edges = edges.reshape(-1, 3)
        edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
        return Net(places.reshape(-1, self.places.shape[1]), wins, widths, order, edges, counts, levels)

    @property
    def is_settled(self) -> bool:
        """Whether rows have been enough to set lambda and the threshold; until then every row becomes a node."""
        return bool(self.counts[2])

    @property
    def half_lambda(self) -> int:
        """Half of lambda: how many recent nodes a bandwidth is taken from."""
        return int(self.counts[1])

    @property
    def rows_refused(self) -> int:
        """Rows that went to their nearest node because there was no room for another."""
        return int(self.counts[5])

    @property
    def vigilance(self) -> float:
        """Rows farther than this from every node become nodes."""
        return float(self.levels[0])

    @property
    def width(self) -> float:
        """The bandwidth that distances are measured with; 0 of no nodes."""
        total = 0.0
        for one in self.widths.tolist():
            total += one
        return total / max(len(self.widths), 1)

    def nearest_nodes(self, rows: Array) -> tuple[Units, Floats]:
        """The node of each row and its distance; a net of no nodes has none."""
        return nearest_places(np.ascontiguousarray(rows, np.float64), self.places, self.width)

    def components(self) -> Units:
        """The cluster of each node: connected components, numbered by their first node; isolated nodes count."""
        return components(len(self.places), self.edges[:, :2])


def nearest_places(rows: Floats, places: Floats, width: float) -> tuple[Units, Floats]:
    """The place most like each row, the first among equals, and its distance by correntropy at a width.

    >>> labels, least = nearest_places(np.array([[0.0], [9.0]]), np.array([[0.0], [8.0]]), 1.0)
    >>> labels.tolist(), (1 - least**2).round(6).tolist()
    ([0, 1], [1.0, 0.606531])
    """
    labels, least = np.empty(len(rows), np.int32), np.empty(len(rows))
    places = np.ascontiguousarray(places, np.float64)

    def answer(some: slice) -> None:
        _arithmetic().nearest(width, rows[some], places, labels[some], least[some])

    if rows.size * len(places) < MIN_SHARED_EXPONENTIALS or _threads.threads() == 1:
        answer(slice(None))
    else:
        _threads.run_in_threads(_threads.ranges(len(rows), 256), lambda pieces: deque(map(answer, pieces), 0))
    return labels, least


def components(nodes: int, edges: Array) -> Units:
    """Connected components, numbered in the order of their first nodes.

    >>> components(5, np.array([[1, 3], [3, 4]])).tolist()
    [0, 1, 2, 1, 1]
    """
    root = list(range(nodes))

    def find(node: int) -> int:
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for a, b in edges.tolist():
        low, high = sorted((find(a), find(b)))
        root[high] = low
    _, labels = np.unique([find(node) for node in range(nodes)], return_inverse=True)
    return labels.astype(np.int32)


def _arithmetic() -> Any:
    return _compiled if _backend.backend() == "c" else _art_twin
