"""The coordinator's net in FCAC (CAE_FC): it learns the nodes that the sites sent, those that won often first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.fcac.site_nets import Batch, Nodes, learn_rows
from fedclust.core.effects import Protocol, each, report
from fedclust.core.site_interface import View
from fedclust.core.types import Floats, Ints, PartyId
from fedclust.kernels.resonance import Net

NODES_NOTE = (
    "Not lossless: the coordinator clustered nodes (points that stand for rows), so the result differs "
    "from that of the pooled rows."
)
NO_NODES = (
    "No node is left, so every row has the label -1 (no cluster). Use more rows, or the method SummaryClustering."
)
NODES_ARE_ROWS = "{exact} of the {sent} nodes that sites sent are copies of single rows."
FREQUENT_WINNERS = 0.75  # the quantile of a site's winning counts from which on its nodes come first


@dataclass(frozen=True)
class Round:
    """What a round left: the coordinator's net, how many nodes all sites sent, and what users should know."""

    net: Net
    sent: int
    notes: tuple[str, ...]
    restarted_sites: tuple[PartyId, ...] = ()  # they remember no earlier round


def fit(view: View, net: Net, *, fresh: bool, max_nodes: int, seed: int) -> Protocol[Round]:
    """One round: the sites learn their rows, the coordinator learns their nodes."""
    answers = yield from each(learn_rows, Batch(view, max_nodes, fresh))
    stream = order_nodes(answers, len(view.exponents), seed)
    net = net.learn(stream, server=True, max_nodes=max_nodes)
    clusters = int(net.components().max(initial=-1)) + 1
    yield from report(round=1, shift=0.0, nodes=len(net.places), clusters=clusters)
    restarted = tuple(party for party, own in answers.items() if own.has_no_memory)
    return Round(net, len(stream), _notes(answers, len(stream), net, max_nodes), restarted)


def _notes(answers: Mapping[PartyId, Nodes], sent: int, net: Net, max_nodes: int) -> tuple[str, ...]:
    """What users should know of a round."""
    notes = [NODES_NOTE]
    single = sum(int((own.wins == 1).sum()) for own in answers.values())
    if single:
        notes.append(NODES_ARE_ROWS.format(exact=single, sent=sent))
    full = [party for party, own in sorted(answers.items()) if own.refused]
    if full:
        notes.append(
            f"The limit of {max_nodes} nodes is reached at {', '.join(full)}. Further rows were added to their "
            "nearest node."
        )
    if net.rows_refused:
        notes.append(
            f"The limit of {max_nodes} nodes is reached at the coordinator. {net.rows_refused} nodes from sites were "
            "merged into their nearest node there."
        )
    if not len(net.places):
        notes.append(NO_NODES)
    return tuple(notes)


def order_nodes(answers: Mapping[PartyId, Nodes], columns: int, seed: int) -> Floats:
    """The nodes in the order the coordinator learns them: frequent winners first, each group shuffled."""
    high: list[Floats] = [np.empty((0, columns))]
    low: list[Floats] = [np.empty((0, columns))]
    for party in sorted(answers):
        own = answers[party]
        if len(own.wins):
            frequent = own.wins >= third_quartile(own.wins)
            high.append(own.places[frequent])
            low.append(own.places[~frequent])
    order = np.random.RandomState(seed)  # the generator of the published runs
    groups = (np.concatenate(high), np.concatenate(low))
    return np.concatenate([group[order.permutation(len(group))] for group in groups])


def third_quartile(wins: Ints) -> float:
    """The third quartile of counts, interpolated between neighbours.

    >>> third_quartile(np.array([4, 1, 1, 2]))
    2.5
    """
    ranked, at = np.sort(wins), FREQUENT_WINNERS * (len(wins) - 1)
    low = int(at)
    return float(ranked[low] + (ranked[min(low + 1, len(wins) - 1)] - ranked[low]) * (at - low))
