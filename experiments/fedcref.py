# ruff: noqa: INP001, T201  (a script, not part of the package)
"""Paper 4's Tables 1 to 8, with our association, the paper's and a perfect one in the same loop.

    python experiments/fedcref.py --table 3 [--quick] [--device cuda] [--seeds 5] [--out runs/fedcref] [--json]

Needs torch, numpy, scipy and scikit-learn, and image sets in $FEDCLUST_DATA: MNIST stands in for EMNIST Digits and the
union of three sets of ten classes for Kuzushiji-49, so figures stand beside the published ones, not against them. All
sites' models train as one stack. Every run is a file in the folder; what is there is not run again, so that a table can
be assembled from several goes. `--quick` runs ten sites of 100 rows a class and two seeds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from fedclust.algorithms import dec
from fedclust.algorithms import fedcref_association as association
from fedclust.algorithms import fedcref_refining as refining
from fedclust.algorithms.autoencoder import Farm, Schedule, drawn, layers
from fedclust.datasets.deep import Population, affordable, images, populate

RULES = ("win", "rival", "paper", "perfect")
CLEAR = 0.55  # share of a cluster that one class must be for a perfect association to know it

# Published: communities found, wrong associations in %, isolated at the end, ACC at the end, with perfect association.
PUBLISHED = {
    1: {"EMNIST, DEC": (10.8, 1.1, 19.1, 0.894, None)},
    3: {
        "EMNIST 0": (10.1, 0.0, 17.3, 0.948, 0.982),
        "EMNIST .3": (9.8, 5.1, 16.1, 0.879, 0.949),
        "EMNIST .5": (10.2, 6.9, 48.0, 0.711, 0.914),
        "KMNIST 0": (9.8, 0.0, 18.6, 0.93, 0.963),
        "KMNIST .3": (9.8, 2.0, 19.2, 0.863, 0.933),
        "KMNIST .5": (10.8, 3.1, 31.0, 0.765, 0.905),
        "KMNIST-49 0": (27.2, 2.4, 40.0, 0.889, 0.933),
        "KMNIST-49 .3": (27.4, 7.4, 53.4, 0.769, 0.889),
        "KMNIST-49 .5": (24.8, 8.2, 89.8, 0.622, 0.849),
    },
    5: {
        "EMNIST overlap 0": (9.8, 0.0, 18.8, 0.903, 0.953),
        "EMNIST overlap .3": (10.0, 0.0, 8.4, 0.955, 0.962),
        "EMNIST overlap .5": (10.0, 0.0, 1.3, 0.976, 0.97),
    },
    7: {
        "EMNIST 20": (10.2, 0.2, 21.4, 0.869, 0.921),
        "EMNIST 30": (10.4, 1.4, 20.3, 0.905, 0.937),
        "EMNIST 40": (11.5, 3.4, 30.9, 0.86, 0.953),
        "EMNIST 50": (14.4, 8.7, 65.1, 0.801, 0.955),
    },
}
PUBLISHED_CENTRAL = {"ACC": 0.793, "K": 9}  # Table 2


@dataclass(frozen=True)
class Part:
    """One run of one table."""

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
        return "-".join(str(value) for value in dataclasses.astuple(self)) + ".json"


def parts(table: int, seeds: int, quick: bool, rules: tuple[str, ...]) -> Iterator[Part]:  # noqa: FBT001
    """The runs a table is made of; odd and even tables are two views of the same runs."""
    few: dict[str, Any] = {"sites": 10, "most": 100} if quick else {}
    table -= (table + 1) % 2
    for seed in range(min(seeds, 2) if quick else seeds):
        for rule in rules:
            common = {"rule": rule, "seed": seed, **few}
            if table == 1:
                yield Part("mnist", start="dec", **common)
            elif table == 3:
                sets = ("mnist",) if quick else ("mnist", "kmnist_partial", "fashion_mnist", "union30")
                for data in sets:
                    for dirt in (0.0, 0.3, 0.5):
                        yield Part(data, dirt=dirt, **common)
            elif table == 5:
                for overlap in (0.0, 0.3, 0.5):
                    yield Part("mnist", dirt=0.3, overlap=overlap, **common)
            else:
                for sites in (10, 15) if quick else (20, 30, 40, 50):
                    yield Part("mnist", dirt=0.3, **{**common, "sites": sites})


class Sites:
    """All sites of a run on one device: rows together, clusters and models by site."""

    def __init__(self, X: np.ndarray, pop: Population, device: str, seed: int) -> None:
        self.names = list(pop.rows)
        self.places = np.cumsum([0] + [len(pop.rows[name]) for name in self.names])
        rows = np.concatenate([pop.rows[name] for name in self.names])
        self.classes = [pop.classes[name] for name in self.names]
        self.labels = [pop.start[name].copy() for name in self.names]
        self.counts = [int(own.max()) + 1 for own in self.labels]
        width = X.shape[1]
        self.farm = Farm(X[rows].astype(np.float32) / 255, layers(width), device)
        self.first = drawn(layers(width), np.random.default_rng((seed, 0)))
        self.seed = seed
        self.models = [np.tile(self.first, (count, 1)) for count in self.counts]
        self.errors = [np.zeros((count, int(self.places[-1])), np.float32) for count in self.counts]

    def rows_of(self, site: int, cluster: int) -> np.ndarray:
        return self.places[site] + np.flatnonzero(self.labels[site] == cluster)

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
                    tables[name] = association.gaps(errors, self.labels[i], name)
                else:
                    tables[name] = association.wins(errors, self.labels[i], name, near=rule == "win")
            W, owner = association.square(tables, self.names)
            labels = association.linked(W, owner) if rule == "paper" else association.communities(W, owner)
            if rule == "win":
                labels = association.let_go(W, labels)
        return [labels[owner == i] for i in range(len(self.names))]

    def _perfect(self) -> np.ndarray:
        """Clusters joined by the class most of their rows have, where there is one."""
        kinds = []
        for classes, labels, models in zip(self.classes, self.labels, self.models, strict=True):
            for cluster in range(len(models)):
                counts = np.bincount(classes[labels == cluster], minlength=1)
                clear = counts.max() > CLEAR * max(counts.sum(), 1)
                kinds.append(int(counts.argmax()) if clear else -1 - len(kinds))
        return association._numbered(np.array(kinds))  # noqa: SLF001

    def averaged(self, groups: list[np.ndarray], rounds: int, epochs: int, number: int) -> np.ndarray:
        """Every community's model by federated averaging, all of them in one stack that stays on the device."""
        count = max((int(own.max(initial=-1)) for own in groups), default=-1) + 1
        if not count:
            return np.zeros((0, len(self.first)), np.float32)
        torch = self.farm.torch
        where = [(g, i) for g in range(count) for i, own in enumerate(groups) if (own == g).any()]
        members = [np.concatenate([self.rows_of(i, c) for c in np.flatnonzero(groups[i] == g)]) for g, i in where]
        group = torch.as_tensor([g for g, _ in where], device=self.farm.device)
        rows = torch.as_tensor([float(len(own)) for own in members], device=self.farm.device)
        total = torch.zeros(count, device=self.farm.device).index_add_(0, group, rows)
        models = self.farm.hold(np.tile(self.first, (count, 1)))
        for turn in range(rounds):
            streams = [np.random.default_rng((self.seed, number, 1 + turn, g, i)) for g, i in where]
            local, _ = self.farm.train(models[group], members, streams, Schedule(epochs))
            models = torch.zeros_like(models).index_add_(0, group, local * (rows / total[group])[:, None])
        return np.asarray(models.cpu().numpy())

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
            picked, labels = refining.refined(errors[:, here], self.counts[i])
            if refining.agreement(self.labels[i], labels) < stability:
                moving.append(i)
            self.models[i] = np.concatenate([models, self.models[i][local]])[picked]
            self.errors[i], self.labels[i] = errors[picked], labels
            groups[i] = np.where(picked < len(models), picked, -1)
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


def run(part: Part, device: str, folder: Path) -> dict[str, Any]:
    """One run: what was found, how accurate the sites' clusters were at the beginning and the end, seconds."""
    data = images(part.data)
    size = affordable(data.y, part.sites, overlap=part.overlap, seed=part.seed, most=part.most)
    pop = populate(data.y, part.sites, per_class=size, overlap=part.overlap, dirt=part.dirt, seed=part.seed)
    if part.start == "dec":
        pop = dataclasses.replace(pop, start=dec_starts(part, pop, data.X, device, folder))
    sites = Sites(data.X, pop, device, part.seed)
    found: dict[str, Any] = {**dataclasses.asdict(part), "rows per class": size, "ACC start": sites.accuracy()}
    found["isolated start"], found["real"] = sum(sites.counts), pop.shared_classes
    fresh = active = list(range(len(sites.names)))
    seconds, history, groups = [], [], []
    for number in range(1, 8):
        begin = time.perf_counter()
        sites.train(active, 20 if number == 1 else 5, number)
        sites.measure(fresh)
        groups = sites.associated(part.rule)
        models = sites.averaged(groups, 15, 2, number)
        fresh = active
        active = sites.refine(active, models, groups, 0.8)
        every = np.concatenate(groups)
        history.append((len(np.unique(every[every >= 0])), int((every < 0).sum())))
        seconds.append(time.perf_counter() - begin)
        print(f"  {part.name} iteration {number}: {history[-1]}, {len(active)} active, {seconds[-1]:.1f} s", flush=True)
        if not active or refining.settled(history):
            break
    return {
        **found,
        "communities": history[-1][0],
        "isolated end": history[-1][1],
        "wrong %": sites.wrong(groups),
        "ACC end": sites.accuracy(),
        "iterations": len(history),
        "seconds": seconds,
        "device": device,
    }


def dec_starts(part: Part, pop: Population, X: np.ndarray, device: str, folder: Path) -> dict[str, np.ndarray]:
    """Every site's own DEC, kept in the folder: all rules begin from the same."""
    path = folder / f"dec-{part.data}-{part.sites}-{part.seed}-{part.most}.npz"
    if not path.exists():
        found = {}
        for name, rows in pop.rows.items():
            count = len(np.unique(pop.classes[name]))
            labels = dec.fit(X[rows].astype(np.float32) / 255, count, seed=part.seed, device=device).labels
            found[name] = np.unique(labels, return_inverse=True)[1]
        np.savez(path, **found)
    with np.load(path) as file:
        return {name: file[name] for name in pop.rows}


def central(part: Part, device: str) -> dict[str, Any]:
    """Table 2's comparator: DEC on all rows together, K by the silhouette on a 2-D t-SNE of a sample."""
    from sklearn.manifold import TSNE  # noqa: PLC0415 slow to import
    from sklearn.metrics import silhouette_score  # noqa: PLC0415

    data = images(part.data)
    size = affordable(data.y, part.sites, seed=part.seed, most=part.most)
    pop = populate(data.y, part.sites, per_class=size, seed=part.seed)
    rows = np.concatenate(list(pop.rows.values()))
    X, y = data.X[rows].astype(np.float32) / 255, np.concatenate(list(pop.classes.values()))
    some = np.random.default_rng(part.seed).choice(len(X), min(len(X), 5000), replace=False)
    flat = TSNE(2, random_state=part.seed).fit_transform(X[some])
    tried = {}
    for count in range(6, 15):
        labels = dec.fit(X, count, seed=part.seed, device=device).labels
        tried[count] = (float(silhouette_score(flat, labels[some])), refining.agreement(y, labels))
        print(f"  central K = {count}: silhouette {tried[count][0]:.3f}, ACC {tried[count][1]:.3f}", flush=True)
    best = max(tried, key=lambda count: tried[count][0])
    return {**dataclasses.asdict(part), "K": best, "ACC": tried[best][1], "tried": tried}


def cached(path: Path, work: Any) -> dict[str, Any]:
    """What a file holds, or what work makes of it."""
    if not path.exists():
        found = work()
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(found, default=float))
        draft.replace(path)
    return dict(json.loads(path.read_text()))


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means and half-widths of 95% intervals over seeds."""
    keys = ("data", "sites", "dirt", "overlap", "start", "rule")
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in runs:
        groups.setdefault(tuple(one[key] for key in keys), []).append(one)
    lines = []
    for which, some in groups.items():
        line: dict[str, Any] = {**dict(zip(keys, which, strict=True)), "seeds": len(some)}
        line["rows per class"] = min(one["rows per class"] for one in some)
        for key in ("real", "communities", "wrong %", "isolated start", "isolated end", "ACC start", "ACC end"):
            values = np.array([one[key] for one in some], float)
            wide = (
                stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
                if len(values) > 1
                else 0
            )
            line[key] = (round(float(values.mean()), 3), round(float(wide), 3))
        line["seconds"] = round(float(np.mean([sum(one["seconds"]) for one in some])), 1)
        lines.append(line)
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--table", type=int, choices=range(1, 9), required=True)
    options.add_argument("--device", default="cpu")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--rules", nargs="+", choices=RULES, default=("win", "paper", "perfect"))
    options.add_argument("--only", default="", help="runs whose name holds this text")
    options.add_argument("--out", type=Path, default=Path("runs/fedcref"))
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    listed = [p for p in parts(chosen.table, chosen.seeds, chosen.quick, tuple(chosen.rules)) if chosen.only in p.name]
    runs = [cached(chosen.out / p.name, lambda p=p: run(p, chosen.device, chosen.out)) for p in listed]
    document: dict[str, Any] = {"table": chosen.table, "lines": summary(runs)}
    if chosen.table == 2:
        firsts = {p.seed: p for p in listed}
        document["central"] = [
            cached(chosen.out / f"central-{p.name}", lambda p=p: central(p, chosen.device)) for p in firsts.values()
        ]
        document["published central"] = PUBLISHED_CENTRAL
    document["published"] = PUBLISHED[chosen.table - (chosen.table + 1) % 2]
    if chosen.json:
        print(json.dumps(document, indent=1))
        return
    for line in document["lines"]:
        print(
            "  ".join(
                f"{key} {value[0]} ±{value[1]}" if isinstance(value, tuple) else f"{value}"
                for key, value in line.items()
            )
        )
    for one in document.get("central", ()):
        print(f"central DEC, seed {one['seed']}: K {one['K']}, ACC {one['ACC']:.3f}")
    print("published (communities, wrong %, isolated at the end, ACC end, ACC with perfect association; other data):")
    for name, row in document["published"].items():
        print(f"  {name}: {row}")


if __name__ == "__main__":
    main()
