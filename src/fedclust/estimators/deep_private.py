"""FedCRef with an epsilon: what it may be asked, what its run spends, and what may be said of the result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedclust.algorithms import fedcref_private, private
from fedclust.algorithms.autoencoder import layers
from fedclust.algorithms.autoencoder_private import HIDDEN, WIDEST, stepped
from fedclust.algorithms.fedcref_private import Course, Found
from fedclust.algorithms.fedcref_private_site import parted
from fedclust.algorithms.private_asks import Box
from fedclust.core.private import FINITE, honest
from fedclust.core.protocol import ALL, Protocol
from fedclust.core.types import Array, Ints, PartyId
from fedclust.estimators.checking import number, require, whole
from fedclust.federation import Federation, box_of
from fedclust.privacy import accountant
from fedclust.site.sources import taking_part

MOST_CLUSTERS = 64  # at a site
MOST_IN_ALL = 2048


def sizes(width: int) -> tuple[int, ...]:
    """The layers of models that noise is added to."""
    return layers(width, HIDDEN)


def check(model: Any, fed: Federation) -> None:
    """Whether the parameters make sense with an epsilon; nothing may be taken from the rows but under noise."""
    require(
        number(model.epsilon) and 0 < model.epsilon <= 1000,
        f"epsilon is {model.epsilon!r}; it must be a number above 0, such as 8.0, or None for no noise",
    )
    require(
        number(model.delta) and 0 < model.delta < 1,
        f"delta is {model.delta!r}; it must be a number above 0 and far below 1 / rows, such as 1e-6",
    )
    require(model.bounds is not None, "differential privacy needs public bounds of every column; set bounds")
    require(
        isinstance(model.start, Mapping) or model.start == "kmeans",
        f"start is {model.start!r}; with an epsilon it is 'kmeans', which is done under noise, or {{site: labels}}",
    )
    require(model.association == "win", f"association is {model.association!r}; with an epsilon it is 'win'")
    require(model.quorum == ALL, f"quorum is {model.quorum!r}; with an epsilon all sites must answer, so leave it out")
    counts = _counts(model, fed)
    require(
        all(whole(k) and 1 <= k <= MOST_CLUSTERS for k in counts.values()) and sum(counts.values()) <= MOST_IN_ALL,
        f"n_clusters is {model.n_clusters!r}; with an epsilon it cannot be estimated from rows: give a number from 1 "
        f"to {MOST_CLUSTERS} for each site",
    )
    if isinstance(model.start, Mapping):
        require(set(fed.parties) <= set(model.start), "start names labels for some sites only; give them for all")
    width = len(fed.columns)
    require(width <= WIDEST, f"there are {width} columns; with an epsilon at most {WIDEST} can be")


def _counts(model: Any, fed: Federation) -> dict[PartyId, Any]:
    """Clusters at each site: as given or, where labels are, as many as these."""
    found = {}
    for party in fed.parties:
        count = model.n_clusters.get(party) if isinstance(model.n_clusters, Mapping) else model.n_clusters
        if count is None and isinstance(model.start, Mapping) and party in model.start:
            count = int(np.max(model.start[party], initial=0)) + 1
        found[party] = count
    return found


def script(model: Any, fed: Federation) -> Protocol[tuple[Found, Box]]:
    """The run within the epsilon."""
    width, counts = len(fed.columns), _counts(model, fed)
    low, high = box_of(model.bounds, width) or (np.zeros(0), np.zeros(0))
    box = Box(low, high, np.where(high > low, high - low, 1.0))
    rho = accountant.rho_of(float(model.epsilon), float(model.delta))
    spending = private.Spending(rho, relied_on(fed), fed.parties)
    course = Course(box, sizes(width), {party: int(counts[party]) for party in sorted(counts)}, spending)
    given = {p: np.asarray(model.start[p]) for p in fed.parties} if isinstance(model.start, Mapping) else None
    found = yield from fedcref_private.fit(course, given, np.random.default_rng((model.seed_, 4)))
    return found, box


def relied_on(fed: Federation) -> int:
    """How many sites' noise a sum relies on: where the coordinator sees each site's answer, on that site's alone."""
    return 1 if fed.aggregation.mode == "plain" else honest(len(fed.parties), len(fed.parties))


def keep(model: Any, fed: Federation, result: tuple[Found, Box]) -> None:
    """Set the fitted attributes."""
    found, box = result
    model.origin_, model.spread_ = box.low, box.unit
    model.models_, model.cluster_sizes_ = found.models, found.sizes
    model.n_communities_ = count = len(found.models)
    model.usual_, model.isolated_usual_ = found.usual[:, :count], found.usual[:, count:]
    model.sites_ = sorted(found.communities)
    model.communities_ = [found.communities[party] for party in model.sites_]
    model.isolated_, model.isolated_models_ = [[p, c] for p, c in found.lone], found.lone_models
    model.n_rounds_ = 1
    model.history_ = [{"round": 1, "communities": count, "isolated": found.isolated, "active": 0}]
    model.prices_, model.honest_ = found.prices, relied_on(fed)
    model.epsilon_ = accountant.epsilon_of(math.fsum(found.prices), model.delta)
    model.reported_epsilon_ = accountant.reported_epsilon(found.prices, model.delta)
    model.notes_ = [*_claims(model, fed), *found.notes]
    if fed.holdings and set(fed.holdings) == set(fed.parties):
        rows = {p: np.concatenate([*held.source.blocks()], axis=1) for p, held in fed.holdings.items()}
        model.labels_ = np.concatenate([_labels(model, found, box, p, rows[p]) for p in fed.parties]).astype(np.int32)


def _labels(model: Any, found: Found, box: Box, party: PartyId, block: Array) -> Ints:
    """The community of each of a site's rows, as the site finds it; -1 for a row that is not finite."""
    lone = {one: model.n_communities_ + i for i, one in enumerate(found.lone)}
    own = found.communities[party]
    names = np.array([one if one >= 0 else lone[party, c] for c, one in enumerate(own)], np.int64)
    finite = np.isfinite(block).all(axis=0)
    z = box.of(taking_part(block, FINITE))
    labels = np.full(block.shape[1], -1, np.int64)
    picked = list(found.parting.own[party])
    labels[finite] = names[parted(found.parting, picked, z, stepped(z.T + 0.5), sizes(len(box.low)))]
    return labels


def _claims(model: Any, fed: Federation) -> list[str]:
    """What the result may be said to promise, on what conditions, in plain sentences."""
    told = [
        (
            "Not lossless: all that left a site are sums under noise, for differential privacy of single rows, "
            f"epsilon = {model.epsilon:g} at delta = {model.delta:g} "
            f"({model.reported_epsilon_:.3g} by its privacy loss distribution)."
        ),
        accountant.meaning(model.epsilon, model.delta),
    ]
    if isinstance(model.start, Mapping):
        told.append("Clusters to begin with were given: whoever gave them knows them, and no noise covers that.")
    if fed.aggregation.mode != "plain":
        told.append(
            f"That holds while {model.honest_} of {len(fed.parties)} sites, or more, keep their noise to themselves."
        )
    return [*told, *filter(None, [accountant.warning(model.epsilon)])]
