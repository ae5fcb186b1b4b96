"""FedCRef with an epsilon: checks of its parameters, the budget of its run, and notes on its result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedclust.algorithms.autoencoders.autoencoder import layers
from fedclust.algorithms.autoencoders.private_gradients import MAX_PRIVATE_COLUMNS, PRIVATE_HIDDEN_LAYERS
from fedclust.algorithms.fedcref import private_loop
from fedclust.algorithms.fedcref.private_loop import PrivateFedCRefResult, PrivateRun
from fedclust.algorithms.fedcref.private_site import assign_rows, scale_rows
from fedclust.algorithms.private_kmeans import private_fit
from fedclust.algorithms.private_kmeans.private_questions import Box
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import ALL_PARTIES, Protocol
from fedclust.core.noise_price import MAX_VALUE_EXPONENT, count_honest_sites
from fedclust.core.types import Array, Bools, Floats, Ints, PartyId
from fedclust.federation.federation import Federation, parse_bounds
from fedclust.models.input_checks import is_real_number, is_whole_number, require
from fedclust.privacy import accountant
from fedclust.privacy.discrete_noise import MIN_DELTA
from fedclust.site.sources import Source

if TYPE_CHECKING:
    from fedclust.models.fedcref_estimator import FedCRef

MAX_SITE_CLUSTERS = 64  # at a site
MAX_TOTAL_CLUSTERS = 2048


def layer_sizes(width: int) -> tuple[int, ...]:
    """Return the layer sizes of models that are trained with noise."""
    return layers(width, PRIVATE_HIDDEN_LAYERS)


def epsilon_of(model: FedCRef) -> float:
    """Return the epsilon of a model; refuse a model without one."""
    require(model.epsilon is not None, "epsilon is None; give a number above 0, such as 8.0")
    return float(model.epsilon or 0.0)


def check_private_parameters(model: FedCRef, fed: Federation) -> None:
    """Check the parameters for a run with an epsilon; nothing may be taken from the rows without noise."""
    require(
        model.epsilon is not None and is_real_number(model.epsilon) and 0 < model.epsilon <= 1000,
        f"epsilon is {model.epsilon!r}; it must be a number above 0, such as 8.0, or None for no noise",
    )
    require(
        is_real_number(model.delta) and MIN_DELTA <= model.delta <= accountant.MAX_DELTA,
        f"delta is {model.delta!r}; it must be a number from {MIN_DELTA:g} to {accountant.MAX_DELTA:g}, far below "
        "1 / (number of rows), such as 1e-6",
    )
    require(model.bounds is not None, "differential privacy needs public bounds of every column; set bounds")
    require(
        isinstance(model.init, Mapping) or model.init == "kmeans",
        f"init is {model.init!r}; with an epsilon choose 'kmeans', which runs with noise, or give a mapping "
        f"{{site: labels}}",
    )
    require(
        model.association == "win", f"the parameter 'association' is {model.association!r}; with an epsilon use 'win'"
    )
    require(
        model.quorum == ALL_PARTIES,
        f"quorum is {model.quorum!r}; with an epsilon all sites must answer, so remove quorum",
    )
    counts = _clusters_by_site(model, fed)
    require(
        all(is_whole_number(k) and 1 <= k <= MAX_SITE_CLUSTERS for k in counts.values())
        and sum(counts.values()) <= MAX_TOTAL_CLUSTERS,
        f"n_clusters is {model.n_clusters!r}; with an epsilon it cannot be estimated from rows: give a number from 1 "
        f"to {MAX_SITE_CLUSTERS} for each site",
    )
    if isinstance(model.init, Mapping):
        _check_labels(model.init, fed, counts)
    width = len(fed.columns)
    require(
        width <= MAX_PRIVATE_COLUMNS, f"there are {width} columns; with an epsilon use at most {MAX_PRIVATE_COLUMNS}"
    )


def _clusters_by_site(model: FedCRef, fed: Federation) -> dict[PartyId, Any]:
    """Return the number of clusters at each site; it never comes from labels, because one row may have the last one."""
    given = model.n_clusters
    return {party: given.get(party) if isinstance(given, Mapping) else given for party in fed.parties}


def _check_labels(start: Mapping[PartyId, Any], fed: Federation, counts: Mapping[PartyId, int]) -> None:
    """Check that labels are where their rows are, and that each row has one."""
    require(set(fed.parties) <= set(start), "init gives labels for some sites only; give them for all sites")
    servers = fed.local_sites
    require(
        set(fed.parties) <= set(servers) and not any(server.gate.policy.epsilon for server in servers.values()),
        "init gives labels; with an epsilon, this works only if all sites are in one process and no site has its own "
        "privacy budget; use init='kmeans'",
    )
    for party in fed.parties:
        labels, count = np.asarray(start[party]), counts[party]
        require(
            labels.ndim == 1 and (labels.dtype.kind in "iu" or not labels.size),
            f"init gives labels for {party} that are not whole numbers; number clusters from 0, and use -1 for rows "
            "without a cluster",
        )
        low, high = int(labels.min(initial=0)), int(labels.max(initial=0))
        require(
            low >= -1 and high < count,
            f"init gives labels from {low} to {high} for {party}, which has "
            f"{count_noun(count, 'cluster')} (n_clusters); number "
            "clusters from 0, and use -1 for rows without a cluster",
        )
        rows = sum(block.shape[1] for block in fed.site_data[party].source.blocks())
        require(
            len(labels) == rows,
            f"init gives {count_noun(len(labels), 'label')} for {party}, which has "
            f"{count_noun(rows, 'row')}; give one per row",
        )


def public_box(model: FedCRef, width: int) -> Box:
    """Return the public bounds, with each column in units of their distance."""
    low, high = parse_bounds(model.bounds, width) or (np.zeros(0), np.zeros(0))
    return Box(low, high, np.where(high > low, high - low, 1.0))


def are_taking_part(block: Array) -> Bools:
    """Return which rows of a block of columns take part."""
    return np.asarray((np.abs(np.asarray(block, np.float64)) <= 2.0**MAX_VALUE_EXPONENT).all(axis=0))


def labels_taking_part(labels: Any, source: Source) -> Ints:
    """Return the labels of the rows that take part."""
    there = np.concatenate([np.zeros(0, np.bool_), *map(are_taking_part, source.blocks())])
    found: Ints = np.asarray(labels, np.int64)[there]
    return found


def private_script(model: FedCRef, fed: Federation) -> Protocol[tuple[PrivateFedCRefResult, Box]]:
    """Return the script of a run within the epsilon."""
    width, counts = len(fed.columns), _clusters_by_site(model, fed)
    box = public_box(model, width)
    rho = accountant.rho_from_epsilon(epsilon_of(model), float(model.delta))
    spending = private_fit.Spending(rho, count_relied_sites(fed), fed.parties)
    course = PrivateRun(box, layer_sizes(width), {party: int(counts[party]) for party in sorted(counts)}, spending)
    labelled = isinstance(model.init, Mapping)
    given = {p: labels_taking_part(model.init[p], fed.site_data[p].source) for p in fed.parties} if labelled else None
    found = yield from private_loop.fit(course, given, np.random.default_rng((model.seed_, 4)))
    return found, box


def count_relied_sites(fed: Federation) -> int:
    """Return how many sites' noise a sum relies on; one if the coordinator sees each site's answer."""
    return 1 if fed.aggregation.mode == "plain" else count_honest_sites(len(fed.parties), len(fed.parties))


def store_private_result(model: FedCRef, fed: Federation, result: tuple[PrivateFedCRefResult, Box]) -> None:
    """Set the fitted attributes."""
    found, box = result
    model.origin_, model.spread_ = box.low, box.unit
    model.models_, model.cluster_sizes_ = found.models, found.sizes
    model.n_communities_ = count = len(found.models)
    model.usual_, model.isolated_usual_ = found.usual_errors[:, :count], found.usual_errors[:, count:]
    model.sites_ = sorted(found.communities)
    model.communities_ = [found.communities[party] for party in model.sites_]
    model.isolated_, model.isolated_models_ = [[p, c] for p, c in found.isolated_clusters], found.isolated_models
    model.n_iter_ = 1
    model.history_ = [{"round": 1, "communities": count, "isolated": found.isolated, "active": 0}]
    model.prices_, model.honest_ = found.prices, count_relied_sites(fed)
    model.epsilon_ = accountant.epsilon_from_rho(math.fsum(found.prices), model.delta)
    model.reported_epsilon_ = accountant.reported_epsilon(found.prices, model.delta)
    model.notes_ = [*_privacy_notes(model, fed), *found.notes]
    if fed.site_data and set(fed.site_data) == set(fed.parties):
        blocks = ((p, block) for p in fed.parties for block in fed.site_data[p].source.blocks())
        labels = [_label_site_block(model, found, box, p, block) for p, block in blocks]
        model.labels_ = np.concatenate([np.zeros(0, np.int64), *labels]).astype(np.int32)


def _label_site_block(model: FedCRef, found: PrivateFedCRefResult, box: Box, party: PartyId, block: Array) -> Ints:
    """Return the community of some of a site's rows, as the site computes it; -1 for a row that is left out."""
    lone = {one: model.n_communities_ + i for i, one in enumerate(found.isolated_clusters)}
    own = found.communities[party]
    names = np.array([one if one >= 0 else lone[party, c] for c, one in enumerate(own)], np.int64)
    there = are_taking_part(block)
    z, x = scale_rows(box, block[:, there])
    labels = np.full(block.shape[1], -1, np.int64)
    picked = list(found.rule.own[party])
    labels[there] = names[assign_rows(found.rule, picked, z, x, layer_sizes(len(box.low)))]
    return labels


def scale_private_rows(model: FedCRef, X: Array) -> Floats:
    """Scale rows to [0, 1] as the sites do; NaN for a row that they would leave out."""
    there = are_taking_part(X.T)
    found = np.full(X.shape, np.nan)
    found[there] = scale_rows(public_box(model, X.shape[1]), X[there].T)[1]
    return found


def _privacy_notes(model: FedCRef, fed: Federation) -> list[str]:
    """Notes on what the result guarantees, and under which conditions."""
    notes = [
        (
            "Not lossless: only noisy sums left the sites. They give differential privacy for single rows: "
            f"epsilon = {model.epsilon:g} at delta = {model.delta:g} "
            f"({model.reported_epsilon_:.3g} when computed from the privacy loss distribution)."
        ),
        accountant.meaning(epsilon_of(model), model.delta),
    ]
    if isinstance(model.init, Mapping):
        notes.append(
            "Initial labels were given. The guarantee covers adding or removing a row together with its label; a row "
            "whose label changes counts as two."
        )
    if fed.aggregation.mode != "plain":
        notes.append(
            f"The guarantee holds if at least {model.honest_} of {len(fed.parties)} sites keep their noise secret."
        )
    return [*notes, *filter(None, [accountant.warning(epsilon_of(model))])]
