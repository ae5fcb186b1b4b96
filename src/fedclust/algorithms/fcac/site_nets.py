"""A site's net in FCAC (CA+): it learns the rows in their order and stays in the site's memory; all its nodes leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from fedclust.algorithms.method_contracts import fits_nodes
from fedclust.core.effects import Keep, handler
from fedclust.core.question_types import UnitlessQuestion
from fedclust.core.release import Release, counts, facts, points
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels.resonance import Net

NET_PREFIX = "net."  # of the net's arrays in a site's memory


@dataclass(frozen=True)
class Batch(UnitlessQuestion):
    """Learn the rows at hand, in a net of at most so many nodes: a fresh one, or the one from the round before."""

    view: View
    max_nodes: int
    fresh: bool


@dataclass(frozen=True)
class Nodes(Release):
    places: Floats = points(
        "every node (a point that stands for rows) of this site's network; many nodes are exact copies of rows", floor=1
    )
    wins: Ints = counts("how many rows each node stands for", hide_small=False)
    refused: int = counts("how many rows got no node because the network was full", hide_small=False)
    has_no_memory: bool = facts("whether this site has no memory of earlier rounds")


# Nodes that are rows.
@handler(releases=Nodes, methods=("fcac",), withheld=True, contract=fits_nodes)
def learn_rows(site: Site, ask: Batch) -> Keep[Nodes]:
    """All nodes after this round's rows; the net stays in the site's memory."""
    columns = len(site.columns)
    net = Net.empty(columns) if ask.fresh else net_from_memory(site.memory, columns)
    for block in site.blocks(ask.view):
        net = net.learn(block.T, max_nodes=ask.max_nodes)
    release = Nodes(net.places, net.wins, net.rows_refused, has_no_memory=not has_net(site.memory))
    return Keep(release, {**site.memory, **net_to_memory(net)})


def has_net(memory: Mapping[str, Array]) -> bool:
    """Whether a memory holds a net of an earlier round."""
    return NET_PREFIX + "places" in memory


def net_to_memory(net: Net) -> dict[str, Array]:
    """A net as arrays under names of its own."""
    return {NET_PREFIX + f.name: vars(net)[f.name] for f in fields(net)}


def net_from_memory(memory: Mapping[str, Array], columns: int) -> Net:
    """The net in a memory, or an empty one."""
    if not has_net(memory):
        return Net.empty(columns)
    return Net(**{f.name: np.ascontiguousarray(memory[NET_PREFIX + f.name]) for f in fields(Net)})
