"""One run of paper 4's experiments trains all sites on one device, with their models in one stack, and scores them.

The loop is that of `fedclust.algorithms.fedcref` without a federation. The true labels are known here; they are used
for scores and for perfect association.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedclust.algorithms import dec
from fedclust.algorithms.autoencoders.autoencoder import AutoencoderTrainer, Schedule, draw_weights, layers
from fedclust.algorithms.fedcref import association, refining
from fedclust.algorithms.fedcref.cluster_memory import relabel_with_memory
from fedclust.datasets.loading import Dataset
from papers.deep_sites import Population, affordable, images, populate

CLEAR = 0.55  # share of a cluster that one class must be for a perfect association to know it
ROUNDS, EPOCHS = 15, 2  # of averaging in an iteration
CLOSING, CLOSING_EPOCHS = 2, 12  # passes at the end, and epochs in each of their rounds
SURE = 0.8  # share of a cluster's rows that trains before the last pass
LOOP = 4  # which loop made a run; 3 did not weigh models, 2 forgot first clusters, 1 had no sure rows or swaps either
CENTRAL = dec.DecSchedule(layer_steps=5_000, fine_steps=20_000)  # of all sites' rows together
COUNTS = range(6, 15)  # of clusters, tried on those
SEEN = 5_000  # rows of a t-SNE


@dataclass(frozen=True)
class Part:
    """One run of one table; it has at most so many rows per class."""

    data: str
    sites: int = 25
    dirt: float = 0.0
    overlap: float = 0.0
    start: str = "oracle"
    rule: str = "win"
    seed: int = 0
    most: int = 500

    @property
    def name(self) -> str:
        return "-".join(str(value) for value in dataclasses.astuple(self))

    def population(self) -> tuple[Dataset, Population, int]:
        """The images, who holds which, and rows per class."""
        data = loaded(self.data)
        size = affordable(data.y, self.sites, overlap=self.overlap, seed=self.seed, most=self.most)
        return (
            data,
            populate(data.y, self.sites, per_class=size, overlap=self.overlap, dirt=self.dirt, seed=self.seed),
            size,
        )


@functools.lru_cache(4)
def loaded(name: str) -> Dataset:
    """A set of images; the next run may be of the same."""
    return images(name)


class Sites:
    """All sites of a run on one device: rows together, clusters and models by site."""

    def __init__(self, X: np.ndarray, pop: Population, device: str, seed: int) -> None:
        self.names = list(pop.rows)
        self.places = np.cumsum([0] + [len(pop.rows[name]) for name in self.names])
        rows = np.concatenate([pop.rows[name] for name in self.names])
        self.classes = [pop.classes[name] for name in self.names]
        self.labels = [pop.start[name].copy() for name in self.names]
        self.began = list(self.labels)
        self.counts = [int(own.max()) + 1 for own in self.labels]
        self.formed = False  # whether clusters were ever formed by models
        self.sure = [np.ones(len(own), bool) for own in self.labels]
        width = X.shape[1]
        self.rows = X[rows].astype(np.float32) / 255
        self.farm = AutoencoderTrainer(self.rows, layers(width), device)
        self.first = draw_weights(layers(width), np.random.default_rng((seed, 0)))
        self.seed = seed
        self.models = [np.tile(self.first, (count, 1)) for count in self.counts]
        self.errors = [np.zeros((count, int(self.places[-1])), np.float32) for count in self.counts]

    def rows_of(self, site: int, cluster: int) -> np.ndarray:
        """The rows of a cluster that train."""
        return self.places[site] + np.flatnonzero((self.labels[site] == cluster) & self.sure[site])

    def anew(self, epochs: int, number: int) -> None:
        """All models of clusters from the beginning."""
        every = list(range(len(self.names)))
        self.models = [np.tile(self.first, (len(own), 1)) for own in self.models]
        self.train(every, epochs, number)
        self.measure(every)

    def train(self, active: list[int], epochs: int, number: int) -> None:
        """Models of the active sites' clusters, all in one stack."""
        where = [(i, c) for i in active for c in range(len(self.models[i]))]
        streams = [np.random.default_rng((self.seed, number, i, c)) for i, c in where]
        weights = np.concatenate([self.models[i] for i in active])
        weights, _ = self.farm.train(weights, [self.rows_of(i, c) for i, c in where], streams, Schedule(epochs))
        for i, own in zip(
            active, np.split(weights, np.cumsum([len(self.models[i]) for i in active])[:-1]), strict=True
        ):
            self.models[i] = own

    def measure(self, fresh: list[int]) -> None:
        """Errors of new models on all rows; those of stable sites are known."""
        errors = self.farm.errors(np.concatenate([self.models[i] for i in fresh]))
        cuts = np.cumsum([len(self.models[i]) for i in fresh])[:-1]
        for i, own in zip(fresh, np.split(errors, cuts), strict=True):
            self.errors[i] = own

    def associated(self, rule: str) -> list[np.ndarray]:
        """The community of each cluster, by site."""
        owner = np.repeat(np.arange(len(self.names)), [len(own) for own in self.models])
        if rule == "perfect":
            labels = self._perfect()
        else:
            tables = {}
            for i, name in enumerate(self.names):
                here = slice(self.places[i], self.places[i + 1])
                errors = {other: self.errors[j][:, here] for j, other in enumerate(self.names)}
                if rule == "paper":
                    tables[name] = association.error_gaps(errors, self.labels[i], name)
                else:
                    tables[name] = association.win_shares(errors, self.labels[i], name, near=rule == "win")
            W, owner = association.join_tables(tables, self.names)
            labels = (
                association.link_by_percentile(W, owner) if rule == "paper" else association.find_communities(W, owner)
            )
            if rule == "win":
                labels = association.drop_misfits(W, labels)
        return [labels[owner == i] for i in range(len(self.names))]

    def _perfect(self) -> np.ndarray:
        """Clusters joined by the class most of their rows have, where there is one."""
        kinds = []
        for classes, labels, models in zip(self.classes, self.labels, self.models, strict=True):
            for cluster in range(len(models)):
                counts = np.bincount(classes[labels == cluster], minlength=1)
                clear = counts.max() > CLEAR * max(counts.sum(), 1)
                kinds.append(int(counts.argmax()) if clear else -1 - len(kinds))
        return association._number_communities(np.array(kinds))  # noqa: SLF001

    def averaged(self, groups: list[np.ndarray], rounds: int, epochs: int, number: int) -> np.ndarray:
        """Every community's model by federated averaging, all of them in one stack that stays on the device."""
        count = max((int(own.max(initial=-1)) for own in groups), default=-1) + 1
        if not count:
            return np.zeros((0, len(self.first)), np.float32)
        torch = self.farm.torch
        where = [(g, i) for g in range(count) for i, own in enumerate(groups) if (own == g).any()]
        members = [np.concatenate([self.rows_of(i, c) for c in np.flatnonzero(groups[i] == g)]) for g, i in where]
        group = torch.as_tensor([g for g, _ in where], device=self.farm.device)
        rows = self.farm.to_tensor([float(len(own)) for own in members])
        share = (rows / torch.zeros(count, device=self.farm.device).index_add_(0, group, rows)[group])[:, None]
        models = self.farm.to_tensor(np.tile(self.first, (count, 1)))
        for turn in range(rounds):
            streams = [np.random.default_rng((self.seed, number, 1 + turn, g, i)) for g, i in where]
            local, _ = self.farm.train(models[group], members, streams, Schedule(epochs))
            models = torch.zeros_like(models).index_add_(0, group, local * share)
        return np.asarray(models.cpu().numpy())

    def alone(self, groups: list[np.ndarray], epochs: int, number: int) -> None:
        """Models of isolated clusters from the beginning, as long as the communities' train."""
        where = [(i, c) for i, own in enumerate(groups) for c in np.flatnonzero(own < 0)]
        if not where:
            return
        streams = [np.random.default_rng((self.seed, number, 0, i, c)) for i, c in where]
        start = np.tile(self.first, (len(where), 1))
        weights, _ = self.farm.train(start, [self.rows_of(i, c) for i, c in where], streams, Schedule(epochs))
        for (i, c), own, errors in zip(where, weights, self.farm.errors(weights), strict=True):
            self.models[i][c], self.errors[i][c] = own, errors

    def refine(self, active: list[int], models: np.ndarray, groups: list[np.ndarray], stability: float) -> list[int]:
        """New clusters at the active sites; which of them are still active."""
        shared = self.farm.errors(models) if len(models) else np.zeros((0, int(self.places[-1])), np.float32)
        moving = []
        for i in active:
            here = slice(self.places[i], self.places[i + 1])
            local = np.flatnonzero(groups[i] < 0)
            errors = np.concatenate([shared, self.errors[i][local]])
            if not len(errors):
                continue
            picked, labels = refining.pick_models(errors[:, here], self.counts[i])
            if self.formed:
                labels = relabel_with_memory(errors[:, here], picked, self.began[i], self.rows[here])
            if refining.agreement(self.labels[i], labels) < stability:
                moving.append(i)
            self.models[i] = np.concatenate([models, self.models[i][local]])[picked]
            self.errors[i], self.labels[i] = errors[picked], labels
            self.sure[i] = refining.clear_rows(errors[picked][:, here], labels, SURE)
            groups[i] = np.where(picked < len(models), picked, -1)
        self.formed = True
        return moving

    def accuracy(self) -> float:
        return float(np.mean([refining.agreement(c, own) for c, own in zip(self.classes, self.labels, strict=True)]))

    def wrong(self, groups: list[np.ndarray]) -> float:
        """Per cent of the clusters whose community mostly holds another class."""
        kinds = [
            [int(np.bincount(c[own == k], minlength=1).argmax()) for k in range(len(g))]
            for c, own, g in zip(self.classes, self.labels, groups, strict=True)
        ]
        labels, majority = np.concatenate(groups), np.concatenate([np.array(k, np.int64) for k in kinds])
        bad = sum(
            int((majority[labels == one] != np.bincount(majority[labels == one]).argmax()).sum())
            for one in np.unique(labels[labels >= 0])
        )
        return 100.0 * bad / max(len(labels), 1)


def run(part: Part, device: str, starts: Mapping[str, np.ndarray] | None = None) -> dict[str, Any]:
    """What was found, how accurate the sites' clusters were at the beginning and the end, seconds of each iteration."""
    data, pop, size = part.population()
    if starts is not None:
        pop = dataclasses.replace(pop, start=dict(starts))
    sites = Sites(data.X, pop, device, part.seed)
    found: dict[str, Any] = {**dataclasses.asdict(part), "rows per class": size, "ACC start": sites.accuracy()}
    found["isolated start"], found["real"] = sum(sites.counts), pop.shared_classes
    found["of one site"] = len(np.unique(np.concatenate(sites.classes))) - pop.shared_classes
    fresh = active = list(range(len(sites.names)))
    seconds, history, groups = [], [], []
    for number in range(1, 8):
        begin = time.perf_counter()
        sites.train(active, 20 if number == 1 else 5, number)
        sites.measure(fresh)
        groups = sites.associated(part.rule)
        models = sites.averaged(groups, ROUNDS, EPOCHS, number)
        fresh = active
        active = sites.refine(active, models, groups, 0.8)
        history.append(_counted(groups))
        seconds.append(round(time.perf_counter() - begin, 3))
        if not active or refining.has_settled(history):
            break
    found["ACC before closing"], found["iterations"] = sites.accuracy(), len(history)
    for number in range(CLOSING):
        begin = time.perf_counter()
        if number == CLOSING - 1:
            sites.sure = [np.ones(len(own), bool) for own in sites.labels]
        sites.anew(20, 8 + number)
        groups = sites.associated(part.rule)
        models = sites.averaged(groups, ROUNDS, CLOSING_EPOCHS, 8 + number)
        sites.alone(groups, ROUNDS * CLOSING_EPOCHS, 8 + number)
        sites.refine(list(range(len(sites.names))), models, groups, 0.8)
        seconds.append(round(time.perf_counter() - begin, 3))
    communities, isolated = _counted(groups)
    return {
        **found,
        "loop": LOOP,
        "communities": communities,
        "isolated end": isolated,
        "wrong %": sites.wrong(groups),
        "ACC end": sites.accuracy(),
        "seconds": seconds,
    }


def _counted(groups: list[np.ndarray]) -> tuple[int, int]:
    """Communities and isolated clusters."""
    every = np.concatenate(groups)
    return len(np.unique(every[every >= 0])), int((every < 0).sum())


def deep_start(part: Part, site: str, device: str) -> dict[str, Any]:
    """One site's own DEC, told how many clusters there are: a digit for each row."""
    data, pop, _ = part.population()
    begin = time.perf_counter()
    found = dec.fit(_scaled(data.X[pop.rows[site]]), len(np.unique(pop.classes[site])), seed=part.seed, device=device)
    labels = np.unique(found.labels, return_inverse=True)[1]
    return {
        "labels": "".join(f"{label:x}" for label in labels),
        "steps": found.steps,
        "ACC": refining.agreement(pop.classes[site], labels),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def central(part: Part, device: str) -> dict[str, Any]:
    """Table 2's comparator: DEC on all rows together, K by the silhouette on a 2-D t-SNE of some of them."""
    from sklearn.manifold import TSNE
    from sklearn.metrics import silhouette_score

    data, pop, _ = part.population()
    X = _scaled(data.X[np.concatenate(list(pop.rows.values()))])
    y = np.concatenate(list(pop.classes.values()))
    some = np.random.default_rng(part.seed).choice(len(X), min(len(X), SEEN), replace=False)
    flat = TSNE(2, random_state=part.seed).fit_transform(X[some])
    tried = {}
    for count, fitted in dec.fit_each(X, COUNTS, seed=part.seed, schedule=CENTRAL, device=device).items():
        score = float(silhouette_score(flat, fitted.labels[some]))
        tried[count] = (round(score, 4), round(refining.agreement(y, fitted.labels), 4))
    best = max(tried, key=lambda count: tried[count][0])
    return {**dataclasses.asdict(part), "K": best, "ACC": tried[best][1], "tried": tried}


def _scaled(X: np.ndarray) -> np.ndarray:
    return X.reshape(len(X), -1).astype(np.float32) / 255
