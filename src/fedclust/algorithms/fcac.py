"""FCAC as published: each party's rows run through a net of nodes (CA+), and the nodes through another (CAE_FC).

    party    net <- CA+(net, rows in their order); all nodes and their winning counts leave
    server   nodes of each party whose count is at least its 75th percentile, of all parties together, shuffled;
             then the others, shuffled; net <- CAE_FC(net, that stream)
    cluster  connected component of the server's net; a row belongs to the component of its nearest node

Nothing is ever initialised anew: in a later round the nets go on with new rows, and all current nodes feed the server
again. Most nodes of a small party are its rows, bit for bit, so a site must allow this question by name.

Paper: Masuyama et al., federated clustering by adaptive resonance. Its text and its published runs differ; this is the
setting of the runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from fedclust.core.effects import Keep, Protocol, each, handler, report
from fedclust.core.release import Release, shown
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Floats, Ints, PartyId
from fedclust.kernels.resonance import Net

LOSSY = "Not lossless: the server saw nodes that stand for rows, so the result is not that of the pooled rows."
ROWS_LEFT = "Published setting: {exact} of {sent} nodes sent stand for a single row, so they are rows of a site."
HIGH = 0.75  # of the winning counts: nodes from here on come first


@dataclass(frozen=True)
class Batch:
    """Learn the rows at hand, into a net of at most so many nodes; a fresh one, or the one from the round before."""

    view: View
    most: int
    fresh: bool


@dataclass(frozen=True)
class Nodes(Release):
    places: Floats = shown("every node of this party's net; many are rows, bit for bit", kind="points")
    wins: Ints = shown("how many rows each node stands for")
    refused: int = shown("how many rows found no room for a node of their own")
    anew: bool = shown("whether this party remembers no earlier round")


@handler(releases=Nodes)
def nodes(site: Site, ask: Batch) -> Keep[Nodes]:
    """All nodes after this round's rows; the net stays in the party's memory."""
    net = Net.empty(len(site.columns)) if ask.fresh else recalled(site.memory, len(site.columns))
    for block in site.blocks(ask.view):
        net = net.learn(block.T, most=ask.most)
    release = Nodes(net.places, net.wins, net.refused, anew="net.places" not in site.memory)
    return Keep(release, {**site.memory, **remembered(net)})


def remembered(net: Net) -> dict[str, Array]:
    """A net as arrays under names of its own."""
    return {f"net.{f.name}": getattr(net, f.name) for f in fields(net)}


def recalled(memory: Mapping[str, Array], columns: int) -> Net:
    """The net in a memory, or an empty one."""
    if "net.places" not in memory:
        return Net.empty(columns)
    return Net(**{f.name: np.ascontiguousarray(memory[f"net.{f.name}"]) for f in fields(Net)})


@dataclass(frozen=True)
class Round:
    """What a round left: the server's net, and of all parties together how many nodes were sent and what to say."""

    net: Net
    sent: int
    notes: tuple[str, ...]
    anew: tuple[PartyId, ...] = ()  # parties that remember no earlier round


def fit(view: View, net: Net, *, fresh: bool, most: int, seed: int) -> Protocol[Round]:
    """One round: the parties learn their rows, the server learns their nodes."""
    answers = yield from each(nodes, Batch(view, most, fresh))
    stream = server_stream(answers, len(view.exponents), seed)
    net = net.learn(stream, server=True, most=most)
    yield from report(round=1, shift=0.0, nodes=len(net.places), clusters=int(net.components().max(initial=-1)) + 1)
    single = sum(int((own.wins == 1).sum()) for own in answers.values())
    told = [LOSSY]
    if single:
        told.append(ROWS_LEFT.format(exact=single, sent=len(stream)))
    full = [party for party, own in sorted(answers.items()) if own.refused]
    if full:
        told.append(f"The memory of {most} nodes is full at {', '.join(full)}: rows there went to their nearest node.")
    if net.refused:
        told.append(f"The coordinator's memory of {most} nodes is full: {net.refused} nodes went to their nearest one.")
    return Round(net, len(stream), tuple(told), tuple(party for party, own in answers.items() if own.anew))


def server_stream(answers: Mapping[PartyId, Nodes], columns: int, seed: int) -> Floats:
    """The nodes in the order the server learns them: those that won often first, either group shuffled."""
    high: list[Floats] = [np.empty((0, columns))]
    low: list[Floats] = [np.empty((0, columns))]
    for party in sorted(answers):
        own = answers[party]
        if len(own.wins):
            often = own.wins >= quartile(own.wins)
            high.append(own.places[often])
            low.append(own.places[~often])
    order = np.random.RandomState(seed)  # the generator of the published runs
    groups = (np.concatenate(high), np.concatenate(low))
    return np.concatenate([group[order.permutation(len(group))] for group in groups])


def quartile(wins: Ints) -> float:
    """The third quartile of counts, interpolated between neighbours.

    >>> quartile(np.array([4, 1, 1, 2]))
    2.5
    """
    ranked, at = np.sort(wins), HIGH * (len(wins) - 1)
    low = int(at)
    return float(ranked[low] + (ranked[min(low + 1, len(wins) - 1)] - ranked[low]) * (at - low))
