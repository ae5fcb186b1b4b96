"""FedCRef under differential privacy of single rows: only noisy sums, paid from the budget, leave a site.

    start     each site's clusters: given labels, or c-means by noisy sums along a few random axes
    local     a model for each cluster: a fixed number of steps, each by the noisy sum of its rows' clipped gradients
    contest   for every model and cluster, on how many rows the model wins (`association`); communities follow
    group     a model for each community from the mean of its clusters' models: steps by sums over all sites
    ballot    for each site, how many rows each model reconstructs best; the site picks the models with the most votes
    usual     how many rows each model has in the end, and how large their errors are

The coordinator computes the models from noisy gradients, so they reveal no more about a row than was paid for, and may
be sent to all sites. Given the earlier answers, a row's cluster, wins and votes depend on that row alone, and it is in
one cluster only. However many clusters, models and communities there are, a row therefore adds one term of norm one to
each sum. Every step uses all rows. Random batches would need as much noise for the same gradient, and their price could
not be added to a site's budget. No site stops early, and there is one pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from fedclust.algorithms.autoencoders import private_gradients as models
from fedclust.algorithms.autoencoders.autoencoder import Weights, draw_weights
from fedclust.algorithms.fedcref import association
from fedclust.algorithms.fedcref.private_site import (
    AXIS_SPREAD,
    ERROR_TERM_NORM,
    MAX_LOG_ERROR,
    START_AXES,
    ClusterRule,
    GivenLabels,
    ModelsQuestion,
    community_gradients,
    count_votes,
    count_wins,
    own_gradients,
    own_sums,
    remember_labels,
    sum_errors,
)
from fedclust.algorithms.private_kmeans import private_fit
from fedclust.algorithms.private_kmeans.private_questions import Box, OffsetsQuestion
from fedclust.algorithms.shared.fixed_order import ordered_sum, orthonormal_basis
from fedclust.core.effects import Protocol, each_to, report, total
from fedclust.core.noise_price import Price
from fedclust.core.types import Floats, Ints, PartyId
from fedclust.kernels.normal_draws import draw_normals

LEARNING_RATE = 0.01
MODEL_STEPS = 15  # of local models, and as many of communities'
START_SHARE, LOCAL_SHARE, CONTEST_SHARE, GROUP_SHARE, BALLOT_SHARE = (
    0.15,
    0.35,
    0.05,
    0.5,
    0.05,
)  # shares of what is spent; the rest is for `usual`
START_ROUNDS = 4  # of c-means
MAX_NOISE_RATIO = (
    8.0  # times as long as all of a cluster's slopes can be together: noise in which nothing is left of them
)


@dataclass
class PrivateFedCRefResult:
    """Communities' models, those of isolated clusters by [site, cluster], whose rows go by which, and the price."""

    models: Weights
    communities: dict[PartyId, Ints]
    isolated_clusters: list[tuple[PartyId, int]]
    isolated_models: Weights
    rule: ClusterRule
    usual_errors: Floats
    sizes: Floats
    isolated: int = 0
    prices: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PrivateRun:
    """Public facts of a run: bounds, layers, clusters at each site, and what may be spent."""

    box: Box
    sizes: tuple[int, ...]
    clusters: Mapping[PartyId, int]
    spending: private_fit.Spending

    def own_price(self, share: float) -> Price:
        """The price of an answer that a site gives as its own: its noise must do by itself."""
        return Price(self.spending.price(share).rho)

    @property
    def cluster_numbers(self) -> dict[str, tuple[int, ...]]:
        """Clusters of all sites, numbered one after the other."""
        ends = np.cumsum([0, *self.clusters.values()]).tolist()
        return {p: tuple(range(a, b)) for p, a, b in zip(self.clusters, ends[:-1], ends[1:], strict=True)}


def fit(
    course: PrivateRun, given: Mapping[PartyId, Ints] | None, rng: np.random.Generator
) -> Protocol[PrivateFedCRefResult]:
    """The whole run."""
    prices: list[float] = []
    rest = 1.0
    if given is None:
        rest -= START_SHARE
        rule = yield from _start_clusters(course, rng, prices)
    else:
        yield from each_to(remember_labels, {p: GivenLabels(np.asarray(given[p], np.int64)) for p in course.clusters})
        rule = ClusterRule("told", np.zeros((course.sizes[0], 0)), np.zeros((0, 0)), course.cluster_numbers)
    local = yield from _train_local_models(course, rule, rng, prices, share=rest * LOCAL_SHARE)
    W, owner, rows = yield from _compare_models(course, rule, local, prices, share=rest * CONTEST_SHARE)
    labels = association.drop_misfits(W, association.find_communities(W, owner))
    shared = yield from _train_communities(course, rule, local, labels, prices, share=rest * GROUP_SHARE)
    every = np.concatenate([shared, local[labels < 0]])
    picked = yield from _pick_by_votes(course, every, labels, prices, share=rest * BALLOT_SHARE)
    found = yield from _assemble_result(course, every, picked, len(shared), prices, share=rest)
    found.prices, found.isolated = prices, len(found.isolated_clusters)
    found.notes = _few_rows_notes(course, rows, course.own_price(rest * LOCAL_SHARE / MODEL_STEPS))
    yield from report(round=1, communities=len(found.models), isolated=found.isolated, active=0)
    return found


def _start_clusters(course: PrivateRun, rng: np.random.Generator, prices: list[float]) -> Protocol[ClusterRule]:
    """Clusters of each site by noisy c-means along drawn axes, from drawn centres around its noisy mean."""
    width = course.sizes[0]
    count = min(START_AXES, width)
    axes = orthonormal_basis(draw_normals(rng, (width, count)))
    price = course.own_price(START_SHARE / (1 + START_ROUNDS))
    reach, noise = AXIS_SPREAD * math.sqrt(count), price.sigma * private_fit.TERM_NORM
    centers = {p: np.zeros((1, count)) for p in course.clusters}
    for number in range(1 + START_ROUNDS):
        wide = 2 * reach if number == 0 else reach
        asks = {p: OffsetsQuestion(price, course.box, axes, c, c, count, wide) for p, c in centers.items()}
        sums = yield from each_to(own_sums, asks)
        prices.append(price.rho)
        for p, before in tuple(centers.items()):
            moved, _ = private_fit.shift_centers(
                sums[p].sums.to_floats() * private_fit.TERM_NORM, before, wide, noise=noise
            )
            if number == 0:
                away = draw_normals(rng, (course.clusters[p], count))
                moved = moved + reach * away / np.sqrt(ordered_sum(away * away))[:, None]
            centers[p] = moved
    return ClusterRule("centers", axes, np.concatenate(list(centers.values())), course.cluster_numbers)


def _train_local_models(
    course: PrivateRun, rule: ClusterRule, rng: np.random.Generator, prices: list[float], *, share: float
) -> Protocol[Weights]:
    """A model for each cluster of each site, all from the same weights."""
    first = draw_weights(course.sizes, rng)
    price = course.own_price(share / MODEL_STEPS)
    trained = {p: models.Adam(np.tile(first, (k, 1)), LEARNING_RATE) for p, k in course.clusters.items()}
    for _ in range(MODEL_STEPS):
        asks = {
            p: ModelsQuestion(
                price, course.box, course.sizes, rule.for_site(p), own.weights, {p: tuple(range(len(own.weights)))}
            )
            for p, own in trained.items()
        }
        sums = yield from each_to(own_gradients, asks)
        prices.append(price.rho)
        for p, own in trained.items():
            own.step(sums[p].sums.to_floats())
    return np.concatenate([own.weights for own in trained.values()])


def _compare_models(
    course: PrivateRun, rule: ClusterRule, local: Weights, prices: list[float], *, share: float
) -> Protocol[tuple[Floats, Ints, Floats]]:
    """The shares W of rows that models win, whose cluster each is, and how many rows clusters have."""
    price = course.spending.price(share)
    ask = ModelsQuestion(price, course.box, course.sizes, rule, local, course.cluster_numbers)
    sums = yield from total(count_wins, ask)
    prices.append(price.rho)
    counts = sums.sums.to_floats() * math.sqrt(len(local) + 1)
    rows = np.maximum(counts[:, -1], private_fit.MIN_CLUSTER_MASS)
    W = np.clip(counts[:, :-1].T / rows, 0.0, 1.0)
    owner = np.repeat(np.arange(len(course.clusters)), list(course.clusters.values()))
    return W, owner.astype(np.int64), counts[:, -1]


def _train_communities(
    course: PrivateRun, rule: ClusterRule, local: Weights, labels: Ints, prices: list[float], *, share: float
) -> Protocol[Weights]:
    """A model for each community, by the rows of all sites."""
    count = int(labels.max(initial=-1)) + 1
    if not count:
        return np.zeros((0, local.shape[1]), np.float32)
    trained = models.Adam(np.stack([local[labels == one].mean(axis=0) for one in range(count)]), LEARNING_RATE)
    of = {p: tuple(labels[list(own)].tolist()) for p, own in course.cluster_numbers.items()}
    price = course.spending.price(share / MODEL_STEPS)
    for _ in range(MODEL_STEPS):
        ask = ModelsQuestion(price, course.box, course.sizes, rule, trained.weights, of)
        sums = yield from total(community_gradients, ask)
        prices.append(price.rho)
        trained.step(sums.sums.to_floats())
    return trained.weights


def _pick_by_votes(
    course: PrivateRun, every: Weights, labels: Ints, prices: list[float], *, share: float
) -> Protocol[dict[PartyId, tuple[int, ...]]]:
    """The models that each site's clusters are formed by: of the communities' and its own isolated ones."""
    count = int(labels.max(initial=-1)) + 1
    alone = np.flatnonzero(labels < 0).tolist()
    candidates = {
        p: (*range(count), *(count + alone.index(c) for c in own if labels[c] < 0))
        for p, own in course.cluster_numbers.items()
    }
    price = course.spending.price(share)
    sums = yield from total(count_votes, _models_question(course, price, every, candidates))
    prices.append(price.rho)
    votes = dict(zip(sorted(candidates), sums.sums.to_floats(), strict=True))
    picked = {}
    for p, own in candidates.items():
        best = np.argsort(-votes[p][list(own)], kind="stable")[: course.clusters[p]]
        picked[p] = tuple(sorted(own[i] for i in best))
    return picked


def _assemble_result(
    course: PrivateRun,
    every: Weights,
    picked: Mapping[PartyId, tuple[int, ...]],
    shared: int,
    prices: list[float],
    *,
    share: float,
) -> Protocol[PrivateFedCRefResult]:
    """The usual errors of each model, and the final result; communities that no site picked are removed."""
    price = course.spending.price(share * (1 - LOCAL_SHARE - CONTEST_SHARE - GROUP_SHARE - BALLOT_SHARE))
    used = sorted({one for own in picked.values() for one in own})
    own = {p: tuple(used.index(one) for one in some) for p, some in picked.items()}
    ask = _models_question(course, price, every[used], own)
    sums = (yield from total(sum_errors, ask)).sums.to_floats() * ERROR_TERM_NORM
    prices.append(price.rho)
    rows = np.maximum(sums[:, 0], private_fit.MIN_CLUSTER_MASS)
    mean = np.clip(sums[:, 1] / rows, 0.0, 1.0)
    spread = np.sqrt(np.clip(sums[:, 2] / rows - mean**2, 1e-4, 1.0))
    at = np.stack([-MAX_LOG_ERROR * mean, MAX_LOG_ERROR * spread])
    kept = sum(one < shared for one in used)
    communities = {p: np.array([one if one < kept else -1 for one in some], np.int64) for p, some in own.items()}
    lone = [(p, c) for p, some in own.items() for c, one in enumerate(some) if one >= kept]
    places = [own[p][c] for p, c in lone]
    return PrivateFedCRefResult(
        every[used][:kept],
        communities,
        lone,
        every[used][places],
        ask.rule,
        np.concatenate([at[:, :kept], at[:, places]], axis=1),
        np.maximum(sums[:kept, 0], 0.0),
    )


def _models_question(
    course: PrivateRun, price: Price, every: Weights, own: dict[PartyId, tuple[int, ...]]
) -> ModelsQuestion:
    """A question about rows by the best of some models for each site."""
    rule = ClusterRule("models", np.zeros((0, 0)), every.astype(np.float64), own)
    return ModelsQuestion(price, course.box, course.sizes, rule, every, own)


def _few_rows_notes(course: PrivateRun, rows: Floats, price: Price) -> list[str]:
    """What to say of clusters whose slopes drown: noise in a step is as long as its numbers are many."""
    noise = price.sigma * math.sqrt(sum((a + 1) * b for a, b in pairwise(course.sizes)))
    few = int((rows * MAX_NOISE_RATIO < noise).sum())
    note = (
        f"Too few rows for this epsilon: in {few} of {len(rows)} clusters, the noise of a training step is more than "
        f"{MAX_NOISE_RATIO:g} times as large as the signal from all rows. Use a larger epsilon, or fewer clusters."
    )
    return [note] if few else []
