"""What a site answers in a run of FedCRef; its rows, its clusters and the errors of everyone's models stay with it.

Memory: `labels` (the cluster of each row), `first` (the one it began in), `sure` (the rows that train), `weights` (a
model per cluster), `count` (how many clusters it looks for), `frozen` (whether it is stable), `formed` (whether its
clusters were ever formed by models), and `e/NAME`, the errors (models, rows) of each site's models here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.autoencoders.autoencoder import AutoencoderTrainer, Schedule, Weights, layers
from fedclust.algorithms.fedcref import association, refining
from fedclust.algorithms.fedcref.cluster_memory import relabel_with_memory
from fedclust.algorithms.fedcref.local_clusters import first_clusters
from fedclust.core import wire
from fedclust.core.effects import Keep, SealedMessages, handler
from fedclust.core.errors import OutOfBounds
from fedclust.core.release import Release, additive, additive_counts, additive_weights, facts, sealed_weights, weights
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.study_terms import never_in_study
from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels import exact_sums

WEIGHT_SUM_UNIT = -24  # of weights times rows: half as fine as a float32 of 1/2 is, whatever the number of rows
MAX_WEIGHT_SUM = 2.0**27  # of weights times rows at one site
MAX_FIRST_CLUSTERS = 1 << 16  # that a site may begin with
ISOLATED_STREAM_OFFSET = 1 << 20  # streams of isolated clusters' models come after those of all others
LOG_UNIT, SQUARE_UNIT = np.int32(-45), np.int32(-41)  # |log error| < 32 and its square stay within 51 bits


@dataclass(frozen=True)
class TrainingPlan:
    """What all steps share: the view, which must lie in [0, 1], and how models train, on which share of a cluster."""

    view: View
    width: int
    seed: int
    batch: int = 32
    rate: float = 1e-3
    patience: int = 4
    device: str = "cpu"
    sure: float = 0.8
    remember: bool = True  # the clusters that rows began in


@dataclass(frozen=True)
class BeginQuestion:
    """Find first clusters: so many (0: as many as there seem to be), in this way, or take the labels given."""

    plan: TrainingPlan
    clusters: int
    start: str
    labels: Ints | None


@dataclass(frozen=True)
class FirstClusterCount(Release):
    clusters: int = facts("the initial number of clusters at this site", most=MAX_FIRST_CLUSTERS)


@handler(releases=FirstClusterCount, contract=never_in_study)
def begin(site: Site, ask: BeginQuestion) -> Keep[FirstClusterCount]:
    """First clusters of the site's own rows."""
    rows = float32_rows(site, ask.plan.view)
    labels = first_clusters(
        rows,
        clusters=ask.clusters,
        start=ask.start,
        given=ask.labels,
        seed=int(_stream(site, ask.plan.seed).integers(2**31)),
        device=ask.plan.device,
    )
    count = int(labels.max(initial=-1)) + 1
    kept = {
        "labels": labels,
        "first": labels,
        "sure": np.ones(len(labels), bool),
        "count": np.array(count),
        "frozen": np.array(False),
        "formed": np.array(False),
    }
    return Keep(FirstClusterCount(count), kept)


@dataclass(frozen=True)
class TrainQuestion:
    """Train a model on each cluster, all from these weights or each from its own, and write them to others."""

    plan: TrainingPlan
    first: Weights | None
    epochs: int
    number: int
    to: tuple[str, ...]


@dataclass(frozen=True)
class ModelWeights:
    """The content of a sealed message: the weights of a site's models."""

    weights: Weights


@dataclass(frozen=True)
class SentModels(Release):
    models: dict[str, bytes] = sealed_weights(
        "for each other site: the weights of this site's models, one model for each of its clusters"
    )


@handler(releases=SentModels, contract=never_in_study)
def train(site: Site, ask: TrainQuestion) -> Keep[SentModels]:
    """Train models of the clusters; a stable site keeps its models unless all sites start again."""
    labels = np.asarray(site.memory["labels"])
    trainer = _make_trainer(site, ask.plan)
    weights = np.asarray(site.memory.get("weights", np.zeros((0, 0))), np.float32)
    if ask.first is not None:
        weights = np.tile(ask.first, (int(labels.max(initial=-1)) + 1, 1))
    if len(weights) and (ask.first is not None or not bool(site.memory["frozen"])):
        members = [_training_rows(site, ask.plan, (one,)) for one in range(len(weights))]
        streams = [_stream(site, ask.plan.seed, ask.number, 1 + one) for one in range(len(weights))]
        weights, _ = trainer.train(weights, members, streams, _schedule(ask.plan, ask.epochs))
    errors = trainer.errors(weights) if len(weights) else np.zeros((0, len(labels)), np.float32)
    packed = wire.encode(ModelWeights(weights))
    own = {"weights": weights, f"e/{site.party}": errors}
    return Keep(SentModels({to: packed for to in ask.to if to != site.party}), {**site.memory, **own})


@dataclass(frozen=True)
class ErrorsKept(Release):
    """Nothing."""


@handler(releases=ErrorsKept, note=TrainingPlan, contract=never_in_study)
def keep_errors(site: Site, received: SealedMessages) -> Keep[ErrorsKept]:
    """Keep the errors that others' models give on the rows here; the models are not kept."""
    trainer = _make_trainer(site, wire.decode(TrainingPlan, received.note))
    kept = dict(site.memory)
    for sender, text in received.messages.items():
        weights = wire.decode(ModelWeights, text).weights
        kept[f"e/{sender}"] = trainer.errors(weights) if len(weights) else np.zeros((0, len(trainer.rows)), np.float32)
    return Keep(ErrorsKept(), kept)


@dataclass(frozen=True)
class CompareQuestion:
    """Say how well each model known here does on the clusters here, by one of the rules of association."""

    plan: TrainingPlan
    rule: str


@dataclass(frozen=True)
class WinTables(Release):
    senders: tuple[str, ...] = facts("the names of the sites whose models this site has received")
    models: Ints = weights("how many models this site has received from each of the named sites")
    shares: Floats = weights(
        "for each received model and each cluster of this site, how well the model fits the cluster: the share of rows "
        "that it reconstructs well compared with the site's own models, or, under the paper's rule, a percentile of "
        "the differences between its errors and those of the cluster's own model"
    )

    def by_sender(self) -> dict[str, Floats]:
        """The table of each site's models."""
        return dict(zip(self.senders, np.split(self.shares, np.cumsum(self.models)[:-1]), strict=True))


@handler(releases=WinTables, contract=never_in_study)
def compare(site: Site, ask: CompareQuestion) -> WinTables:
    """This site's columns of the table of all models and all clusters."""
    errors = {name[2:]: np.asarray(e) for name, e in sorted(site.memory.items()) if name.startswith("e/")}
    labels = np.asarray(site.memory["labels"])
    if site.party not in errors:
        return WinTables((), np.zeros(0, np.int64), np.zeros((0, int(site.memory["count"]))))
    if ask.rule == "paper":
        found = association.error_gaps(errors, labels, site.party)
    else:
        found = association.win_shares(errors, labels, site.party, near=ask.rule == "win")
    sizes = np.array([len(e) for e in errors.values()], np.int64)
    return WinTables(tuple(errors), sizes, np.concatenate([found[name] for name in errors]))


@dataclass(frozen=True)
class CommunityStep:
    """One round of a community: train its model on the clusters named, by site."""

    plan: TrainingPlan
    clusters: dict[str, tuple[int, ...]]
    weights: Weights
    epochs: int
    number: int
    turn: int


@dataclass(frozen=True)
class CommunityShare(Release):
    rows: Exact = additive_counts(
        "how many rows each community (a group of similar clusters of different sites) has", cells=True
    )
    weights: Exact = additive_weights(
        "for each community, the sum of its sites' model weights, each multiplied by the site's number of rows"
    )


@handler(releases=CommunityShare, contract=never_in_study)
def train_community(site: Site, ask: CommunityStep) -> CommunityShare:
    """The community's model after a few epochs on the rows here, times how many they are."""
    own = ask.clusters.get(site.party, ())
    members = _training_rows(site, ask.plan, own)
    stream = _stream(site, ask.plan.seed, ask.number, 1000 * (1 + ask.turn) + (own[0] if own else 0))
    weights, _ = _make_trainer(site, ask.plan).train(
        ask.weights[None], [members], [stream], _schedule(ask.plan, ask.epochs)
    )
    return CommunityShare(
        Exact.from_counts(np.array(len(members))), exact_weight_sum(weights[0].astype(np.float64) * len(members))
    )


def exact_weight_sum(values: Floats) -> Exact:
    """Weights times rows as exact numbers."""
    if not (np.abs(values) <= MAX_WEIGHT_SUM).all():
        raise OutOfBounds("the weights of a model grew too large; lower the learning rate (`rate`)")
    return Exact(exact_sums.exact_totals(values[:, None], WEIGHT_SUM_UNIT), np.asarray(WEIGHT_SUM_UNIT, np.int32))


@dataclass(frozen=True)
class RefineQuestion:
    """Form clusters again from the communities' models and those of the named isolated clusters, by site.

    Isolated clusters' models may first train for so many epochs from the weights given, as long as communities' did.
    """

    plan: TrainingPlan
    models: Weights
    isolated: dict[str, tuple[int, ...]]
    stability: float
    first: Weights | None
    epochs: int
    number: int


@dataclass(frozen=True)
class RefinedClusters(Release):
    chosen: Ints = weights(
        "for each new cluster of this site, the community whose model formed it, or -1 if a model of this site "
        "formed it"
    )
    stable: bool = facts("whether this site's clusters hardly changed")


@handler(releases=RefinedClusters, contract=never_in_study)
def refine(site: Site, ask: RefineQuestion) -> Keep[RefinedClusters]:
    """New clusters, each with the model it was formed by."""
    labels, count = np.asarray(site.memory["labels"]), int(site.memory["count"])
    weights, own = np.asarray(site.memory["weights"]), np.asarray(site.memory[f"e/{site.party}"])
    local = np.array(ask.isolated.get(site.party, ()), np.int64)
    if not len(labels) or not len(ask.models) + len(local):
        return Keep(
            RefinedClusters(np.full(len(weights), -1, np.int64), stable=True), {**site.memory, "frozen": np.array(True)}
        )
    trainer, lone, alone = _make_trainer(site, ask.plan), weights[local], own[local]
    if ask.first is not None and len(local):
        members = [_training_rows(site, ask.plan, (int(one),)) for one in local]
        streams = [_stream(site, ask.plan.seed, ask.number, ISOLATED_STREAM_OFFSET + int(one)) for one in local]
        start = np.tile(ask.first, (len(local), 1))
        lone, _ = trainer.train(start, members, streams, _schedule(ask.plan, ask.epochs))
        alone = trainer.errors(lone)
    shared = trainer.errors(ask.models) if len(ask.models) else np.zeros((0, len(labels)), np.float32)
    errors = np.concatenate([shared, alone])
    picked, after = refining.pick_models(errors, count)
    if ask.plan.remember and bool(site.memory["formed"]):  # the first models learned these clusters
        first = np.asarray(site.memory["first"])
        after = relabel_with_memory(errors, picked, first, trainer.rows.cpu().numpy())
    stable = refining.agreement(labels, after) >= ask.stability
    kept = {
        "labels": after,
        "sure": refining.clear_rows(errors[picked], after, ask.plan.sure),
        "weights": np.concatenate([ask.models, lone])[picked] if len(ask.models) else lone[picked],
        f"e/{site.party}": errors[picked],
        "frozen": np.array(stable),
        "formed": np.array(True),
    }
    chosen = np.where(picked < len(ask.models), picked, -1).astype(np.int64)
    return Keep(RefinedClusters(chosen, stable=bool(stable)), {**site.memory, **kept})


@dataclass(frozen=True)
class ClosingQuestion:
    """How large the errors of the communities' models are; and which community each cluster ended in, by site."""

    plan: TrainingPlan
    models: Weights
    communities: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class UsualErrors(Release):
    rows: Exact = additive_counts("how many rows each community has", cells=True)
    logs: Exact = additive("for each community, the sum of the logarithms of its rows' errors")
    squares: Exact = additive("for each community, the sum of the squares of the logarithms of its rows' errors")


@handler(releases=UsualErrors, contract=never_in_study)
def close(site: Site, ask: ClosingQuestion) -> Keep[UsualErrors]:
    """What errors are usual in each community; the site keeps which community its clusters are."""
    labels = np.asarray(site.memory["labels"])
    mine = np.array(ask.communities[site.party], np.int64)
    count = len(ask.models)
    where = mine[labels] if len(labels) else labels
    terms = np.zeros((count, len(labels)))
    if count and len(labels):
        logs = log_errors(_make_trainer(site, ask.plan).errors(ask.models))
        terms = np.where(where[None, :] == np.arange(count)[:, None], logs, 0.0)
    rows = np.bincount(where[where >= 0], minlength=count)
    kept = {name: value for name, value in site.memory.items() if not name.startswith("e/")}
    answer = UsualErrors(
        Exact.from_counts(rows),
        Exact(exact_sums.exact_totals(terms, int(LOG_UNIT)), np.asarray(LOG_UNIT)),
        Exact(exact_sums.exact_totals(terms**2, int(SQUARE_UNIT)), np.asarray(SQUARE_UNIT)),
    )
    own = log_errors(np.asarray(site.memory[f"e/{site.party}"]))
    usual = [(own[c, labels == c].mean(), own[c, labels == c].std()) for c in range(len(mine))]
    return Keep(answer, {**kept, "communities": mine, "usual": np.array(usual).reshape(-1, 2).T})


def log_errors(errors: Array) -> Floats:
    """Logarithms of errors, the tiniest taken as one."""
    return np.asarray(np.log(np.maximum(errors.astype(np.float64), refining.MIN_ERROR)), np.float64)


def float32_rows(site: Site, view: View) -> Array:
    """The site's rows, as float32."""
    blocks = [block.T.astype(np.float32) for block in site.blocks(view)]
    return np.concatenate(blocks) if blocks else np.zeros((0, len(site.columns)), np.float32)


def _training_rows(site: Site, plan: TrainingPlan, clusters: tuple[int, ...]) -> Ints:
    """The rows of some clusters that train: those of which the site is sure, or all."""
    held = np.isin(np.asarray(site.memory["labels"]), clusters)
    return np.flatnonzero(held & np.asarray(site.memory["sure"]) if plan.sure < 1 else held)


def _make_trainer(site: Site, plan: TrainingPlan) -> AutoencoderTrainer:
    return AutoencoderTrainer(float32_rows(site, plan.view), layers(plan.width), plan.device)


def _schedule(plan: TrainingPlan, epochs: int) -> Schedule:
    return Schedule(epochs, plan.batch, plan.rate, plan.patience)


def _stream(site: Site, *numbers: int) -> np.random.Generator:
    """A stream of its own for each run, iteration and model at this site."""
    return site.rng_from_seed(sum(number << (32 * place) for place, number in enumerate(numbers)))
