"""FedCRef: sites compare models of their clusters, train one model per group of similar clusters, and cluster again.

    repeat   each active site trains an autoencoder on each of its clusters and sends it to all others
             each site reports how well every model does on its clusters; communities follow (`association`)
             each community trains one model by federated averaging, over its clusters' rows
             each active site forms its clusters again from the communities' models and those of its isolated clusters,
             and later also from its first clusters (`refining`); a site whose clusters hardly change is stable: it
             no longer trains or refines
    until    no site is active, communities and isolated clusters have settled, or the iterations are used up
    close    a few times, all sites: models of clusters train from the beginning, communities are found again, their
             models and those of isolated clusters train for longer, clusters are formed again

While clusters contain rows of other classes, models that train for long learn these rows too; once clusters are clean,
more training helps. Until the last pass, only rows whose model is clearly the best are used for training (`refining`).
Communities found before that are provisional: models that were trained from a shared one resemble each other even where
rows do not. All models begin from the same weights; local models of later iterations begin from the models that formed
their clusters. Models of clusters travel in sealed messages that the coordinator cannot read; of a community's model it
learns the sum over the community's sites. A stable site's models do not change until the end, so they are sent once and
their errors are stored.

Paper: Nardi, Valerio and Passarella, "Federated Clustering: An Unsupervised Cluster-Wise Training for Decentralized
Data Distributions".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.algorithms.autoencoders.autoencoder import Weights, draw_weights, layers
from fedclust.algorithms.fedcref import association, refining
from fedclust.algorithms.fedcref import fedcref_site as at_site
from fedclust.algorithms.fedcref.association import THETA
from fedclust.algorithms.fedcref.fedcref_site import (
    BeginQuestion,
    ClosingQuestion,
    CommunityStep,
    CompareQuestion,
    RefineQuestion,
    TrainingPlan,
    TrainQuestion,
)
from fedclust.core import wire
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Protocol, each, each_to, relay, report, total
from fedclust.core.errors import DataError, QuorumLost
from fedclust.core.types import Floats, Ints, PartyId

TWO_SITES_REASON = "only two sites share this community, so each could compute the other's contribution from the sum"
MAX_ERROR_DEVIATION = 3.0  # standard deviations of the logarithm of errors, beyond which a row is none of a model's


@dataclass(frozen=True)
class RunLength:
    """How long everything takes and when it ends; the values are the paper's or, for warm starts, measured."""

    association: str = "win"
    theta: float = THETA
    stability: float = 0.8
    epochs: int = 20
    warm_epochs: int = 5
    rounds: int = 15
    group_epochs: int = 2
    iterations: int = 7
    closing_passes: int = 2  # passes at the end
    closing_epochs: int = 12
    min_sites: int = 2  # sites whose models are averaged; of a hidden sum of two, each knows the other's part


@dataclass(frozen=True)
class Iteration:
    """What one iteration found."""

    communities: int
    isolated: int
    active: int


@dataclass
class FedCRefResult:
    """Communities' models, which of them each site's clusters are, and how the run went."""

    models: Weights
    communities: dict[PartyId, Ints] = field(default_factory=dict)
    usual_errors: Floats = field(
        default_factory=lambda: np.zeros((2, 0))
    )  # mean and sd of the log errors, by community
    sizes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    history: list[Iteration] = field(default_factory=list)
    not_averaged: list[str] = field(default_factory=list)  # why communities were not averaged, one reason for each
    notes: list[str] = field(default_factory=list)


def fit(plan: TrainingPlan, begin: Mapping[PartyId, BeginQuestion], course: RunLength) -> Protocol[FedCRefResult]:
    """The whole run; `begin` says how each site finds its first clusters."""
    begun = yield from each_to(at_site.begin, begin)
    first = draw_weights(layers(plan.width), np.random.default_rng((plan.seed, 0)))
    clusters = {party: begun[party].clusters for party in sorted(begun)}
    if not any(clusters.values()):
        raise DataError("n_samples=0: no site has any rows to cluster; check the sites' data")
    found = FedCRefResult(np.zeros((0, len(first)), np.float32))
    fresh = active = tuple(clusters)
    for number in range(1, course.iterations + 1):
        ask = TrainQuestion(
            plan,
            first if number == 1 else None,
            course.epochs if number == 1 else course.warm_epochs,
            number,
            tuple(clusters),
        )
        yield from _exchange_models(ask, fresh)
        found.communities, clusters = yield from _associate_clusters(plan, course, clusters)
        found.not_averaged = []
        fresh = active = tuple(party for party in active if party in clusters)
        yield from _average_communities(found, plan, course, first=first, number=number, epochs=course.group_epochs)
        stable = yield from _refine_sites(found, plan, course, active)
        clusters |= {party: len(found.communities[party]) for party in stable}
        active = tuple(party for party in active if not stable.get(party, True))
        found.history.append(_count_iteration(found, len(active)))
        yield from report(round=number, **vars(found.history[-1]))
        if not active or refining.has_settled([(one.communities, one.isolated) for one in found.history]):
            break
    unsettled = len(active) if len(found.history) == course.iterations else 0
    for number in range(1, course.closing_passes + 1):
        plan = replace(plan, sure=1.0) if number == course.closing_passes else plan
        ask = TrainQuestion(plan, first, course.epochs, course.iterations + number, tuple(clusters))
        yield from _exchange_models(ask, tuple(clusters))
        found.communities, clusters = yield from _associate_clusters(plan, course, clusters)
        found.not_averaged = []
        yield from _average_communities(
            found, plan, course, first=first, number=ask.number, epochs=course.closing_epochs
        )
        yield from _refine_sites(found, plan, course, tuple(clusters), first=first, number=ask.number)
        clusters = {party: len(found.communities[party]) for party in clusters}
        found.history.append(_count_iteration(found, len(active)))
        yield from report(round=len(found.history), **vars(found.history[-1]))
    found.notes = _result_notes(found, course, unsettled)
    return (yield from _measure_errors(plan, found))


def _exchange_models(ask: TrainQuestion, fresh: Sequence[PartyId]) -> Protocol[None]:
    """Every site whose models are new trains them and writes them to all others, who keep the errors they give."""
    routes = {party: tuple(other for other in ask.to if other != party) for party in fresh}
    yield from relay(at_site.train, ask, at_site.keep_errors, wire.encode(ask.plan), routes)


def _associate_clusters(
    plan: TrainingPlan, course: RunLength, clusters: Mapping[PartyId, int]
) -> Protocol[tuple[dict[PartyId, Ints], dict[PartyId, int]]]:
    """The community of each cluster of each site that is still there; a site that left is out from here on."""
    asked = CompareQuestion(plan, course.association)
    answers = yield from each(at_site.compare, asked, among=tuple(clusters))
    left = sorted(answers)
    while gone := [p for p in left if any(p not in answers[other].senders for other in left)]:
        left = [p for p in left if p not in gone]
    W, owner = association.join_tables({p: answers[p].by_sender() for p in left}, left)
    if course.association == "paper":
        labels = association.link_by_percentile(W, owner, course.theta)
    else:
        labels = association.find_communities(W, owner)
    if course.association == "win":
        labels = association.drop_misfits(W, labels)
    return {p: labels[owner == i] for i, p in enumerate(left)}, {p: clusters[p] for p in left}


def _average_communities(
    found: FedCRefResult, plan: TrainingPlan, course: RunLength, *, first: Weights, number: int, epochs: int
) -> Protocol[None]:
    """A model for each community; the clusters of those that get none are isolated, and why is kept."""
    groups = found.communities
    count = max((int(own.max(initial=-1)) for own in groups.values()), default=-1) + 1
    found.models = np.zeros((count, len(first)), np.float32)
    lacking: dict[int, str] = {}
    for one in range(count):
        where = {p: tuple(np.flatnonzero(own == one).tolist()) for p, own in groups.items() if (own == one).any()}
        if len(where) < course.min_sites:
            lacking[one] = TWO_SITES_REASON if len(where) > 1 else ""  # one site alone is no community any more
            continue
        found.models[one] = first
        try:
            for turn in range(course.rounds):
                ask = CommunityStep(plan, where, found.models[one], epochs, number, turn)
                sums = yield from total(at_site.train_community, ask, among=tuple(where))
                found.models[one] = sums.weights.to_floats() / sums.rows.to_floats()
        except QuorumLost as lost:
            lacking[one] = str(lost)
    found.not_averaged += filter(None, lacking.values())
    found.communities = {p: np.where(np.isin(own, list(lacking)), -1, own) for p, own in groups.items()}


def _refine_sites(
    found: FedCRefResult,
    plan: TrainingPlan,
    course: RunLength,
    among: tuple[PartyId, ...],
    *,
    first: Weights | None = None,
    number: int = 0,
) -> Protocol[dict[PartyId, bool]]:
    """New clusters at some sites, and which of these are stable; with `first`, isolated ones' models train before."""
    _renumber(found)
    alone = course.rounds * course.closing_epochs
    places = _isolated_clusters(found.communities)
    ask = RefineQuestion(plan, found.models, places, course.stability, first, alone, number)
    answers = yield from each(at_site.refine, ask, among=among)
    found.communities |= {party: own.chosen for party, own in answers.items()}
    return {party: bool(own.stable) for party, own in answers.items()}


def _measure_errors(plan: TrainingPlan, found: FedCRefResult) -> Protocol[FedCRefResult]:
    """Learn how large errors usually are in each community."""
    _renumber(found)
    ask = ClosingQuestion(plan, found.models, {p: tuple(own.tolist()) for p, own in found.communities.items()})
    sums = yield from total(at_site.close, ask, among=tuple(found.communities))
    rows = sums.rows.to_floats()
    mean = sums.logs.to_floats() / np.maximum(rows, 1)
    variance = sums.squares.to_floats() / np.maximum(rows, 1) - mean**2
    found.usual_errors = np.stack([mean, np.sqrt(np.maximum(variance, 0.0))])
    found.sizes = rows.astype(np.int64)
    return found


def _renumber(found: FedCRefResult) -> None:
    """Number the communities that clusters were formed by, from 0 on, and keep their models only."""
    used = np.unique(np.concatenate([own[own >= 0] for own in found.communities.values()] or [np.zeros(0, np.int64)]))
    found.models = found.models[used]
    found.communities = {
        party: np.where(own < 0, -1, np.searchsorted(used, own)).astype(np.int64)
        for party, own in found.communities.items()
    }


def _isolated_clusters(communities: Mapping[PartyId, Ints]) -> dict[str, tuple[int, ...]]:
    """The isolated clusters of each site."""
    return {party: tuple(np.flatnonzero(own < 0).tolist()) for party, own in communities.items()}


def _count_iteration(found: FedCRefResult, active: int) -> Iteration:
    every = np.concatenate(list(found.communities.values()))
    return Iteration(len(np.unique(every[every >= 0])), int((every < 0).sum()), active)


def _result_notes(found: FedCRefResult, course: RunLength, unsettled: int) -> list[str]:
    last = found.history[-1]
    lone = [p for p in sorted(found.communities) if (found.communities[p] < 0).any()]
    notes = ["Not lossless: sites cluster their rows with models, so the result differs from that of the pooled rows."]
    if last.isolated:
        few = ", ".join(lone[:5]) + (f" and {len(lone) - 5} more" if len(lone) > 5 else "")
        notes.append(
            f"{last.isolated} isolated clusters keep their own models, because no cluster of another site "
            f"matches them ({few})."
        )
    if unsettled:
        notes.append(
            f"Stopped after {count_noun(course.iterations, 'iteration')}, although "
            f"{count_noun(unsettled, 'site was', 'sites were')} not stable yet."
        )
    if found.not_averaged:
        why = "; ".join(sorted(set(found.not_averaged)))
        notes.append(
            f"The models of {len(found.not_averaged)} communities (groups of similar clusters) were not averaged; "
            f"their clusters keep their own models ({why})."
        )
    return notes


def error_deviations(errors: NDArray[Any], usual: Floats) -> Floats:
    """How far errors (models, rows) lie above what is usual for each model, in standard deviations of their logs.

    >>> error_deviations(np.array([[np.e**3]]), np.array([[1.0], [0.5]])).tolist()
    [[4.0]]
    """
    logs = at_site.log_errors(errors)
    return np.asarray((logs - usual[0][:, None]) / np.maximum(usual[1][:, None], 1e-6), np.float64)
