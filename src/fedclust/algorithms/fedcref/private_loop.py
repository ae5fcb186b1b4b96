"""FedCRef under differential privacy of single rows: all that leaves a site is sums under noise that were paid for.

    start     each site's clusters: told, or c-means by noisy sums along a few drawn axes
    local     a model for each cluster: so many steps, each by the noisy sum of its rows' cut slopes
    contest   for every model and cluster, on how many rows the model wins (fedcref_association); communities follow
    group     a model for each community from the mean of its clusters' models: steps by sums over all sites
    ballot    for each site, how many rows do best on which model; it picks those with the most votes
    usual     how many rows each model has in the end, and how large their errors are

Models are made by whoever asks, of noisy slopes, so they say no more of a row than was paid for, and may be told to
all. Given what was told before, which cluster a row is in, what it wins and what it votes for depends on that row
alone, and it is in one cluster only: so however many clusters, models and communities there are, a row adds one term of
norm one to each sum. Every step sees all rows. Batches drawn at random would need as much noise for the same
slope, and their price could not be added to a site's budget. No site stops early, and there is one pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from fedclust.algorithms.autoencoders import private_gradients as models
from fedclust.algorithms.autoencoders.autoencoder import Weights, drawn
from fedclust.algorithms.fedcref import association
from fedclust.algorithms.fedcref.private_site import (
    AXES,
    LENGTH,
    LOGS,
    SPAN,
    Labels,
    Look,
    Parting,
    ballot,
    contest,
    own_slopes,
    own_sums,
    slopes,
    told,
    usual,
)
from fedclust.algorithms.private_kmeans import private_fit
from fedclust.algorithms.private_kmeans.private_questions import Box, Places
from fedclust.core.effects import Protocol, each_to, report, total
from fedclust.core.noise_price import Price
from fedclust.core.types import Floats, Ints, PartyId

RATE = 0.01
STEPS = 15  # of local models, and as many of communities'
START, LOCAL, CONTEST, GROUP, BALLOT = 0.15, 0.35, 0.05, 0.5, 0.05  # shares of what is spent; the rest is for `usual`
ROUNDS = 4  # of c-means
LOUD = 8.0  # times as long as all of a cluster's slopes can be together: noise in which nothing is left of them


@dataclass
class Found:
    """Communities' models, those of isolated clusters by [site, cluster], whose rows go by which, and the price."""

    models: Weights
    communities: dict[PartyId, Ints]
    lone: list[tuple[PartyId, int]]
    lone_models: Weights
    parting: Parting
    usual: Floats
    sizes: Floats
    isolated: int = 0
    prices: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Course:
    """Public facts of a run: bounds, layers, clusters at each site, and what may be spent."""

    box: Box
    sizes: tuple[int, ...]
    clusters: Mapping[PartyId, int]
    spending: private_fit.Spending

    def own(self, share: float) -> Price:
        """The price of an answer that a site gives as its own: its noise must do by itself."""
        return Price(self.spending.price(share).rho)

    @property
    def places(self) -> dict[str, tuple[int, ...]]:
        """Clusters of all sites, numbered one after the other."""
        ends = np.cumsum([0, *self.clusters.values()]).tolist()
        return {p: tuple(range(a, b)) for p, a, b in zip(self.clusters, ends[:-1], ends[1:], strict=True)}


def fit(course: Course, given: Mapping[PartyId, Ints] | None, rng: np.random.Generator) -> Protocol[Found]:
    """The whole run."""
    prices: list[float] = []
    rest = 1.0
    if given is None:
        rest -= START
        parting = yield from _started(course, rng, prices)
    else:
        yield from each_to(told, {p: Labels(np.asarray(given[p], np.int64)) for p in course.clusters})
        parting = Parting("told", np.zeros((course.sizes[0], 0)), np.zeros((0, 0)), course.places)
    local = yield from _local(course, parting, rng, prices, share=rest * LOCAL)
    W, owner, rows = yield from _contested(course, parting, local, prices, share=rest * CONTEST)
    labels = association.let_go(W, association.communities(W, owner))
    shared = yield from _grouped(course, parting, local, labels, prices, share=rest * GROUP)
    every = np.concatenate([shared, local[labels < 0]])
    picked = yield from _voted(course, every, labels, prices, share=rest * BALLOT)
    found = yield from _told(course, every, picked, len(shared), prices, share=rest)
    found.prices, found.isolated = prices, len(found.lone)
    found.notes = _too_few(course, rows, course.own(rest * LOCAL / STEPS))
    yield from report(round=1, communities=len(found.models), isolated=found.isolated, active=0)
    return found


def _started(course: Course, rng: np.random.Generator, prices: list[float]) -> Protocol[Parting]:
    """Clusters of each site by noisy c-means along drawn axes, from drawn centres around its noisy mean."""
    width = course.sizes[0]
    count = min(AXES, width)
    axes = np.linalg.qr(rng.normal(size=(width, count)))[0]
    price = course.own(START / (1 + ROUNDS))
    reach, noise = SPAN * math.sqrt(count), price.sigma * private_fit.LONG
    centers = {p: np.zeros((1, count)) for p in course.clusters}
    for number in range(1 + ROUNDS):
        wide = 2 * reach if number == 0 else reach
        asks = {p: Places(price, course.box, axes, c, c, count, wide) for p, c in centers.items()}
        sums = yield from each_to(own_sums, asks)
        prices.append(price.rho)
        for p, before in tuple(centers.items()):
            moved, _ = private_fit.shifted(sums[p].sums.floats() * private_fit.LONG, before, wide, noise=noise)
            if number == 0:
                away = rng.normal(size=(course.clusters[p], count))
                moved = moved + reach * away / np.linalg.norm(away, axis=1, keepdims=True)
            centers[p] = moved
    return Parting("centers", axes, np.concatenate(list(centers.values())), course.places)


def _local(
    course: Course, parting: Parting, rng: np.random.Generator, prices: list[float], *, share: float
) -> Protocol[Weights]:
    """A model for each cluster of each site, all from the same weights."""
    first = drawn(course.sizes, rng)
    price = course.own(share / STEPS)
    trained = {p: models.Adam(np.tile(first, (k, 1)), RATE) for p, k in course.clusters.items()}
    for _ in range(STEPS):
        asks = {
            p: Look(price, course.box, course.sizes, parting.of(p), own.weights, {p: tuple(range(len(own.weights)))})
            for p, own in trained.items()
        }
        sums = yield from each_to(own_slopes, asks)
        prices.append(price.rho)
        for p, own in trained.items():
            own.step(sums[p].sums.floats())
    return np.concatenate([own.weights for own in trained.values()])


def _contested(
    course: Course, parting: Parting, local: Weights, prices: list[float], *, share: float
) -> Protocol[tuple[Floats, Ints, Floats]]:
    """The shares W of rows that models win, whose cluster each is, and how many rows clusters have."""
    price = course.spending.price(share)
    ask = Look(price, course.box, course.sizes, parting, local, course.places)
    sums = yield from total(contest, ask)
    prices.append(price.rho)
    counts = sums.sums.floats() * math.sqrt(len(local) + 1)
    rows = np.maximum(counts[:, -1], private_fit.LEAST)
    W = np.clip(counts[:, :-1].T / rows, 0.0, 1.0)
    owner = np.repeat(np.arange(len(course.clusters)), list(course.clusters.values()))
    return W, owner.astype(np.int64), counts[:, -1]


def _grouped(
    course: Course, parting: Parting, local: Weights, labels: Ints, prices: list[float], *, share: float
) -> Protocol[Weights]:
    """A model for each community, by the rows of all sites."""
    count = int(labels.max(initial=-1)) + 1
    if not count:
        return np.zeros((0, local.shape[1]), np.float32)
    trained = models.Adam(np.stack([local[labels == one].mean(axis=0) for one in range(count)]), RATE)
    of = {p: tuple(labels[list(own)].tolist()) for p, own in course.places.items()}
    price = course.spending.price(share / STEPS)
    for _ in range(STEPS):
        ask = Look(price, course.box, course.sizes, parting, trained.weights, of)
        sums = yield from total(slopes, ask)
        prices.append(price.rho)
        trained.step(sums.sums.floats())
    return trained.weights


def _voted(
    course: Course, every: Weights, labels: Ints, prices: list[float], *, share: float
) -> Protocol[dict[PartyId, tuple[int, ...]]]:
    """The models that each site's clusters are formed by: of the communities' and its own isolated ones."""
    count = int(labels.max(initial=-1)) + 1
    alone = np.flatnonzero(labels < 0).tolist()
    candidates = {
        p: (*range(count), *(count + alone.index(c) for c in own if labels[c] < 0)) for p, own in course.places.items()
    }
    price = course.spending.price(share)
    sums = yield from total(ballot, _by_models(course, price, every, candidates))
    prices.append(price.rho)
    votes = dict(zip(sorted(candidates), sums.sums.floats(), strict=True))
    picked = {}
    for p, own in candidates.items():
        best = np.argsort(-votes[p][list(own)], kind="stable")[: course.clusters[p]]
        picked[p] = tuple(sorted(own[i] for i in best))
    return picked


def _told(
    course: Course,
    every: Weights,
    picked: Mapping[PartyId, tuple[int, ...]],
    shared: int,
    prices: list[float],
    *,
    share: float,
) -> Protocol[Found]:
    """What is usual for each model, and all of it put together; communities that nobody picked are gone."""
    price = course.spending.price(share * (1 - LOCAL - CONTEST - GROUP - BALLOT))
    used = sorted({one for own in picked.values() for one in own})
    own = {p: tuple(used.index(one) for one in some) for p, some in picked.items()}
    ask = _by_models(course, price, every[used], own)
    sums = (yield from total(usual, ask)).sums.floats() * LENGTH
    prices.append(price.rho)
    rows = np.maximum(sums[:, 0], private_fit.LEAST)
    mean = np.clip(sums[:, 1] / rows, 0.0, 1.0)
    spread = np.sqrt(np.clip(sums[:, 2] / rows - mean**2, 1e-4, 1.0))
    at = np.stack([-LOGS * mean, LOGS * spread])
    kept = sum(one < shared for one in used)
    communities = {p: np.array([one if one < kept else -1 for one in some], np.int64) for p, some in own.items()}
    lone = [(p, c) for p, some in own.items() for c, one in enumerate(some) if one >= kept]
    places = [own[p][c] for p, c in lone]
    return Found(
        every[used][:kept],
        communities,
        lone,
        every[used][places],
        ask.parting,
        np.concatenate([at[:, :kept], at[:, places]], axis=1),
        np.maximum(sums[:kept, 0], 0.0),
    )


def _by_models(course: Course, price: Price, every: Weights, own: dict[PartyId, tuple[int, ...]]) -> Look:
    """A question about rows by the best of some models for each site."""
    parting = Parting("models", np.zeros((0, 0)), every.astype(np.float64), own)
    return Look(price, course.box, course.sizes, parting, every, own)


def _too_few(course: Course, rows: Floats, price: Price) -> list[str]:
    """What to say of clusters whose slopes drown: noise in a step is as long as its numbers are many."""
    noise = price.sigma * math.sqrt(sum((a + 1) * b for a, b in pairwise(course.sizes)))
    few = int((rows * LOUD < noise).sum())
    told = (
        f"Too few rows for this epsilon: at {few} of {len(rows)} clusters the noise in a step of training is over "
        f"{LOUD:g} times as long as what all rows say. Use a larger epsilon, or fewer clusters."
    )
    return [told] if few else []
