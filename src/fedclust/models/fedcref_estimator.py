"""The estimator `FedCRef`: autoencoders of clusters, compared and trained across sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from fedclust.algorithms.autoencoders.autoencoder import AutoencoderTrainer, import_torch, layers
from fedclust.algorithms.fedcref import refinement_loop
from fedclust.algorithms.fedcref.fedcref_site import BeginQuestion, TrainingPlan
from fedclust.algorithms.fedcref.local_clusters import LOCAL_STARTS
from fedclust.core.effects import Protocol, Quorum
from fedclust.core.errors import DataError
from fedclust.core.noise_price import FINITE_ROWS_ONLY
from fedclust.core.site_interface import View
from fedclust.core.types import Array, Bools, Floats, Ints, PartyId
from fedclust.federation.federation import Federation, parse_bounds
from fedclust.models import private_deep
from fedclust.models.base import FederatedEstimator, require
from fedclust.models.input_checks import fill_masked
from fedclust.questions import bounds as limits
from fedclust.questions import ranges, standardisation

FedCRefResult = tuple[refinement_loop.FedCRefResult, View]
ASSOCIATION_RULES = ("win", "rival", "paper")


@dataclass(frozen=True)
class Assignment:
    """Labels of rows: a community or, if `local`, an isolated cluster of one site. `novel` rows fit no cluster."""

    labels: Ints
    errors: Floats
    local: Bools
    novel: Bools


class FedCRef(FederatedEstimator):
    """Federated cluster refinement (paper 4): sites train an autoencoder per cluster and compare them; row splits only.

    Clusters of different sites form a community if their models show that the clusters are the same. Not lossless.
    Every site learns the weights of all other sites' models. The coordinator learns how well each model fits each
    cluster, and the sums of model weights over the sites of a community.

    Parameters
    ----------
    n_clusters : int, {site: int} or None, default=None
        Number of clusters at each site. With None, each site estimates it by the silhouette.
    init : {"kmeans", "encoded", "dec"} or {site: labels}, default="kmeans"
        Initial clusters. "encoded" is k-means on the codes that an autoencoder computes from the rows.
    association : {"win", "rival", "paper"}, default="win"
        The rule that decides which clusters form a community. "paper" needs the threshold `theta`; the others do not.
    theta : float, default=0.2
        The threshold of the rule "paper".
    stability : float, default=0.8
        A site is stable if this share of its rows keeps its cluster.
    max_iterations, rounds : int, default=7 and 15
        Largest number of iterations, and number of averaging rounds in each iteration.
    epochs, warm_epochs, group_epochs : int, default=20, 5 and 2
        Epochs of local training in the first iteration and in later ones, and epochs in each averaging round.
    closing, closing_epochs : int, default=2 and 12
        Number of final passes over all sites, and epochs in each of their averaging rounds.
    sure : float, default=0.8
        Share of each cluster's rows on which its model is trained: the rows that most clearly belong to the cluster.
        In the last pass models are trained on all rows.
    remember : bool, default=True
        Whether sites also use a row's initial cluster when they assign rows to clusters in later iterations. It gets
        less weight if initial clusters are unreliable.
    batch, rate : int and float, default=32 and 1e-3
        Number of rows in a batch, and learning rate of the optimiser Adam.
    bounds : pair or list of pairs, default=None
        Public limits of the columns, such as (0, 255). Without them the sites agree on the range.
    device : {"cpu", "cuda"}, default="cpu"
        The device on which sites train their models.
    quorum, random_state
        As for `KMeans`.
    epsilon, delta : float or None, default=None and 1e-6
        The privacy budget: how much the whole run may reveal about any single row. With None, no noise is added. With
        an epsilon, a different algorithm runs, with a single pass; of the other parameters only n_clusters, init,
        bounds and random_state have an effect.

    Attributes
    ----------
    n_communities_ : int
        Number of clusters that sites share.
    communities_ : list of arrays
        For each of `sites_`, the community of each of its clusters; -1 for an isolated one.
    models_ : array
        Weights of each community's model.
    isolated_, isolated_models_ : lists
        [site, cluster] of the isolated clusters whose models are in this process, and these models.
    cluster_sizes_ : array
        Number of rows of each community; with an epsilon, an estimate from noisy counts.
    epsilon_, reported_epsilon_, prices_, honest_
        With an epsilon, as for `PrivateKMeans`.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> rng = np.random.default_rng(0)
    >>> base = rng.uniform(size=(3, 16))
    >>> def rows(*kinds): return np.clip(np.repeat(base[list(kinds)], 40, axis=0) + rng.normal(0, .05, (80, 16)), 0, 1)
    >>> fed = fc.Federation.local({"a": rows(0, 1), "b": rows(1, 2), "c": rows(2, 0)})
    >>> model = fc.FedCRef(2, bounds=(0, 1), epochs=60, rounds=8, group_epochs=6, rate=.005).fit(fed)
    >>> model.n_communities_, model.isolated_
    (3, [])
    """

    lossless: ClassVar[bool] = False
    saved_attributes: ClassVar[tuple[str, ...]] = (
        "n_communities_",
        "sites_",
        "communities_",
        "models_",
        "usual_",
        "isolated_",
        "isolated_models_",
        "isolated_usual_",
        "cluster_sizes_",
        "n_iter_",
        "history_",
        "origin_",
        "spread_",
        "epsilon_",
        "reported_epsilon_",
        "prices_",
        "honest_",
    )

    def __init__(
        self,
        n_clusters: int | Mapping[PartyId, int] | None = None,
        *,
        init: Any = "kmeans",
        association: str = "win",
        theta: float = 0.2,
        stability: float = 0.8,
        max_iterations: int = 7,
        rounds: int = 15,
        epochs: int = 20,
        warm_epochs: int = 5,
        group_epochs: int = 2,
        closing: int = 2,
        closing_epochs: int = 12,
        sure: float = 0.8,
        remember: bool = True,
        batch: int = 32,
        rate: float = 1e-3,
        bounds: Any = None,
        device: str = "cpu",
        quorum: Quorum = "all",
        epsilon: float | None = None,
        delta: float = 1e-6,
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.association = association
        self.theta = theta
        self.stability = stability
        self.max_iterations = max_iterations
        self.rounds = rounds
        self.epochs = epochs
        self.warm_epochs = warm_epochs
        self.group_epochs = group_epochs
        self.closing = closing
        self.closing_epochs = closing_epochs
        self.sure = sure
        self.remember = remember
        self.batch = batch
        self.rate = rate
        self.bounds = bounds
        self.device = device
        self.quorum = quorum
        self.epsilon = epsilon
        self.delta = delta
        self.random_state = random_state

    def protocol(self, fed: Federation) -> Protocol[Any]:
        self._check_parameters(fed)
        if self.epsilon is None:
            return self._fit_script(fed)
        private_deep.check_private_parameters(self, fed)
        return private_deep.private_script(self, fed)

    @property
    def _missing_rule(self) -> str:
        return (
            "refuse" if self.epsilon is None else FINITE_ROWS_ONLY
        )  # under noise, sites always leave out rows that are not finite

    def _fit_script(self, fed: Federation) -> Protocol[FedCRefResult]:
        width = len(fed.columns)
        box = parse_bounds(self.bounds, width)
        if box is None:
            view = yield from ranges.scale_to_range((yield from limits.agree_on_bounds(width)))
        else:
            wide = box[1] - box[0]
            view = standardisation.scale_view(limits.view_from_bounds(*box), box[0], np.where(wide > 0, wide, 1.0))
        plan = TrainingPlan(
            view,
            width,
            self.seed_,
            self.batch,
            self.rate,
            device=self.device,
            sure=self.sure,
            remember=self.remember,
        )
        course = refinement_loop.RunLength(
            self.association,
            self.theta,
            self.stability,
            self.epochs,
            self.warm_epochs,
            self.rounds,
            self.group_epochs,
            self.max_iterations,
            self.closing,
            self.closing_epochs,
            min_sites=2 if fed.aggregation.mode == "plain" else 3,
        )
        found = yield from refinement_loop.fit(
            plan, {party: self._begin_site(plan, party) for party in fed.parties}, course
        )
        return found, view

    def _begin_site(self, plan: TrainingPlan, party: PartyId) -> BeginQuestion:
        count = self.n_clusters.get(party) if isinstance(self.n_clusters, Mapping) else self.n_clusters
        given = self.init.get(party) if isinstance(self.init, Mapping) else None
        labels = None if given is None else np.asarray(given, np.int64)
        return BeginQuestion(plan, count or 0, self.init if isinstance(self.init, str) else "kmeans", labels)

    def _check_parameters(self, fed: Federation) -> None:
        import_torch()
        require(fed.split == "rows", "FedCRef works on row splits only; for a column split use FuzzyCMeans")
        known = isinstance(self.init, Mapping) or self.init in LOCAL_STARTS
        require(
            known, f"init is {self.init!r}; choose one of {', '.join(LOCAL_STARTS)}, or give a mapping {{site: labels}}"
        )
        require(
            self.association in ASSOCIATION_RULES,
            f"the parameter 'association' is {self.association!r}; choose one of {', '.join(ASSOCIATION_RULES)}",
        )
        counts = self.n_clusters.values() if isinstance(self.n_clusters, Mapping) else [self.n_clusters]
        good = all(count is None or (isinstance(count, (int, np.integer)) and count >= 1) for count in counts)
        require(good, f"n_clusters is {self.n_clusters}; give numbers of at least 1, or None to estimate them")
        given = self.get_params(deep=False)
        for name in ("max_iterations", "rounds", "epochs", "group_epochs", "closing_epochs", "batch"):
            require(given[name] >= 1, f"{name} is {given[name]}; it must be at least 1")
        for name in ("warm_epochs", "closing"):
            require(given[name] >= 0, f"{name} is {given[name]}; it must not be negative")
        require(
            0 < self.sure <= 1,
            f"the parameter 'sure' is {self.sure}; it must be a share of rows, above 0 and at most 1",
        )
        require(self.rate > 0, f"the parameter 'rate' is {self.rate}; it must be above 0")
        require(0 <= self.stability <= 1, f"the parameter 'stability' is {self.stability}; it must be between 0 and 1")

    def store_result(self, fed: Federation, result: Any) -> None:
        if self.epsilon is not None:
            private_deep.store_private_result(self, fed, result)
            return
        found, view = result
        self.origin_, self.spread_ = view.origin, view.spread
        self.models_, self.usual_, self.cluster_sizes_ = found.models, found.usual_errors, found.sizes
        self.n_communities_ = len(found.models)
        self.sites_ = sorted(found.communities)
        self.communities_ = [found.communities[party] for party in self.sites_]
        self.n_iter_ = len(found.history)
        self.history_ = [{"round": i, **vars(one)} for i, one in enumerate(found.history, start=1)]
        self.notes_ = list(found.notes)
        servers = fed.local_sites
        memories = {p: servers[p].memory.get(fed.run_id, {}) for p in self.sites_ if p in servers}
        places = [(p, int(c)) for p in memories for c in np.flatnonzero(found.communities[p] < 0) if memories[p]]
        lone = [(memories[p]["weights"][c], memories[p]["usual"][:, c]) for p, c in places]
        self.isolated_: list[list[Any]] = [[p, c] for p, c in places]
        width = found.models.shape[1]
        self.isolated_models_ = np.stack([w for w, _ in lone]) if lone else np.zeros((0, width), np.float32)
        self.isolated_usual_ = np.stack([u for _, u in lone], axis=1) if lone else np.zeros((2, 0))
        if memories and set(memories) == set(fed.parties):
            self.labels_ = np.concatenate([self._community_labels(p, memories[p]) for p in fed.parties]).astype(
                np.int32
            )

    def _community_labels(self, party: PartyId, memory: Mapping[str, Array]) -> Ints:
        """Return the community of each row of a site; isolated clusters are numbered after all communities."""
        own = self.communities_[self.sites_.index(party)].copy()
        for number, (site, cluster) in enumerate(self.isolated_):
            if site == party:
                own[cluster] = self.n_communities_ + number
        labels = np.asarray(memory["labels"])
        return np.asarray(own[labels], np.int64) if len(labels) else labels

    def to_document(self) -> dict[str, Any]:
        """Return the fitted model as plain values; initial labels become lists, or "given" with an epsilon."""
        found = super().to_document()
        if isinstance(self.init, Mapping):
            start = {site: np.asarray(labels).tolist() for site, labels in self.init.items()}
            found["parameters"] |= {
                "init": start if self.epsilon is None else "given"
            }  # labels of rows that no budget covers
        return found

    def assign(self, X: Any, site: PartyId | None = None) -> Assignment:
        """Label rows by all communities and the isolated clusters of `site`, and return the models' errors.

        Without `site`, all isolated clusters that this process knows are used. Isolated clusters are numbered after the
        communities, in the order of `isolated_`. A row is novel if, for every model, the logarithm of its error is more
        than three standard deviations above the usual value for that model. With an epsilon, a row that is
        not finite is novel too, with the label -1.
        """
        rows = self._scale_rows(X)
        lone = [i for i, (owner, _) in enumerate(self.isolated_) if site is None or owner == site]
        weights = np.concatenate([self.models_, self.isolated_models_[lone]])
        usual = np.concatenate([self.usual_, self.isolated_usual_[:, lone]], axis=1)
        names = np.concatenate([np.arange(self.n_communities_), self.n_communities_ + np.array(lone, np.int64)])
        if not len(weights):
            raise DataError(
                "this model has no communities, and the sites' isolated clusters are not known in this process; assign "
                "rows at a site"
            )
        width = self.n_features_in_
        sizes = layers(width) if self.epsilon is None else private_deep.layer_sizes(width)
        out = np.asarray(np.isnan(rows).any(axis=1))  # with an epsilon, these rows belong to no model
        errors = AutoencoderTrainer(np.where(out[:, None], 0.0, rows), sizes, self.device).errors(weights)
        labels = np.where(out, -1, names[errors.argmin(axis=0)]).astype(np.int64)
        novel = np.asarray(
            (refinement_loop.error_deviations(errors, usual) > refinement_loop.MAX_ERROR_DEVIATION).all(axis=0) | out,
            np.bool_,
        )
        least = np.where(out, np.nan, errors.min(axis=0)).astype(np.float64)
        return Assignment(labels, least, labels >= self.n_communities_, novel)

    def predict(self, X: Any, site: PartyId | None = None) -> NDArray[np.int32]:
        """Return the community, or isolated cluster, of each row; -1 for a novel one."""
        if isinstance(X, Federation):
            return np.concatenate([self.predict(self._site_rows(X, party), party) for party in X.parties])
        found = self.assign(X, site)
        return np.where(found.novel, -1, found.labels).astype(np.int32)

    def _site_rows(self, fed: Federation, party: PartyId) -> Array:
        if party not in fed.site_data:
            raise DataError("rows stay at the sites; to label them, run 'fedclust site assign' at each site")
        return np.concatenate([block.T for block in fed.site_data[party].source.blocks()])

    def _scale_rows(self, X: Any) -> Array:
        check_is_fitted(self)
        if self.epsilon is not None:
            dtype = [np.float64, np.float32]
            rows = validate_data(self, fill_masked(X), dtype=dtype, reset=False, ensure_all_finite=False)
            return private_deep.scale_private_rows(self, rows)
        rows = self._validate_rows(X)
        view = View(np.zeros(rows.shape[1], np.int32), self.origin_, self.spread_)
        return np.clip(view.transform_points(rows), 0.0, 1.0)
