"""Single runs of paper 3 have one set, one method, one split and one seed; its generated examples are here too."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.stats import wasserstein_distance
from sklearn.cluster import KMeans

import fedclust as fc
from fedclust.core.errors import FedclustError, StudyError
from fedclust.core.types import Array, Floats
from fedclust.kernels.resonance import Net
from fedclust.privacy import row_noise
from papers.reproduction.store import loaded, part

SETS = {  # name in the tables: our name, parties
    "Hill-Valley": ("hill_valley", 5),
    "Ozone": ("ozone_8hr", 5),
    "Bioresponse": ("bioresponse", 10),
    "Phoneme": ("phoneme_openml", 10),
    "Optdigits": ("optdigits", 50),
    "Pendigits": ("pendigits", 50),
    "Mozilla4": ("mozilla4", 10),
    "Magic": ("magic_telescope", 50),
    "FMNIST": ("fashion_mnist", 100),
    "Skin": ("skin_segmentation", 100),
}
KINDS = {"published": fc.FCAC, "default": fc.SummaryClustering}  # by the names under which results are kept
# The layout of Figs. 4-6 cannot be told from the paper. Here: six Gaussian groups in the unit square, 7,500 points
# each; A1 to A4 are halves of two groups, B1, B2, C1 and C2 whole ones.
GROUPS = {"A": (0.2, 0.8), "A'": (0.5, 0.85), "B": (0.82, 0.75), "B'": (0.2, 0.3), "C": (0.55, 0.4), "C'": (0.85, 0.2)}
SUBSETS = {  # subset: (group, rows)
    "A1": ("A", 3750),
    "A2": ("A", 3750),
    "A3": ("A'", 3750),
    "A4": ("A'", 3750),
    "B1": ("B", 7500),
    "B2": ("B'", 7500),
    "C1": ("C", 7500),
    "C2": ("C'", 7500),
}
ROUNDS = (  # which subsets each of the two sites gets in each round: classes come, and do not come back
    {"site-1": ("A1", "B1"), "site-2": ("A2",)},
    {"site-1": ("A3",), "site-2": ("A4", "B2")},
    {"site-1": ("C1",), "site-2": ("C2",)},
)


def dealt(X: Array, y: Array, parties: int, how: Any, seed: int) -> dict[str, Array]:
    try:
        return fc.datasets.split(X, y, parties, how, seed=seed, setting="fcac")
    except StudyError:  # too few rows for the published minimum of 40
        return fc.datasets.split(X, y, parties, how, seed=seed, minimum=5)


@part(
    "art/one-run",
    paper="paper3",
    methods=(
        "fcac",
        "summary-clustering",
        "k-fed",
        "mufc",
        "averaged-fuzzy-c-means",
        "agreement",
        "draws",
        "local-noise",
    ),
    data=("data",),
)
def one(*, data: str, parties: int, method: str, how: str, seed: int, epsilon: float | None = None) -> dict[str, Any]:
    """Scores of one method; noise, where there is any, as the published runs draw it."""
    rows = loaded(data)
    X, y = rows.X.astype(np.float64), np.asarray(rows.y)
    k = len(rows.classes)
    parts = dealt(X, y, parties, how, seed)
    if epsilon is not None:
        parts = {party: row_noise.add_published_noise(own, epsilon) for party, own in parts.items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels, nodes, clusters = _labels(method, parts, X, k, seed)
    except FedclustError as failed:
        return {"failed": str(failed)}
    return {
        "ARI": fc.agreement.ari(labels, y),
        "AMI": fc.agreement.ami(labels, y),
        "NMI": fc.agreement.nmi(labels, y),
        "nodes": nodes,
        "clusters": clusters,
    }


def _labels(method: str, parts: dict[str, Array], X: Floats, k: int, seed: int) -> tuple[Array, int, int]:
    if method == "k-means":
        pooled = KMeans(k, n_init=10, max_iter=100, random_state=seed).fit(np.concatenate(list(parts.values())))
        return pooled.predict(X), k, k
    fed = fc.Federation.local(parts)
    if method in {"FCAC", "ours"}:
        model = (fc.FCAC() if method == "FCAC" else fc.SummaryClustering()).fit(fed)
        return model.predict(X), len(model.nodes_), model.n_clusters_
    kinds: dict[str, Any] = {
        "k-FED": fc.KFed(k, random_state=seed),
        "MUFC": fc.MUFC(k, random_state=seed),
        "FedFCM": fc.AveragedFuzzyCMeans(k, random_state=seed, max_iter=20),
    }
    return kinds[method].fit(fed).predict(X), k, k


@part(
    "art/gaussian",
    paper="paper3",
    methods=("fcac",),
)
def gaussian(seed: int) -> dict[str, Any]:
    """16,000 points of a round Gaussian, scaled to [0, 1], given once to CAE_FC and to CA+: their nodes."""
    rows = np.random.default_rng(seed).normal(size=(16_000, 2))
    rows = (rows - rows.min(axis=0)) / (rows.max(axis=0) - rows.min(axis=0))
    nets = {name: Net.empty(2).learn(rows, server=name == "CAE_FC") for name in ("CAE_FC", "CA+")}
    return {name: {"nodes": len(net.places), "places": net.places} for name, net in nets.items()}


@part(
    "art/noised",
    paper="paper3",
    methods=("local-noise",),
)
def noised(epsilon: float, seed: int) -> dict[str, Any]:
    """1,000 points of a Gaussian in [-1, 1] under the paper's noise: 1-Wasserstein distance, mean of the columns."""
    rows = np.random.default_rng(seed).normal(size=(1000, 2))
    rows = 2 * (rows - rows.min(axis=0)) / (rows.max(axis=0) - rows.min(axis=0)) - 1
    after = row_noise.add_published_noise(rows, epsilon)
    apart = [wasserstein_distance(rows[:, c], after[:, c]) for c in range(2)]
    return {"distance": float(np.mean(apart))}


@part(
    "art/continual",
    paper="paper3",
    methods=("fcac", "summary-clustering", "agreement"),
)
def continual(setting: str) -> list[dict[str, Any]]:
    """Three rounds at two sites; after each, ARI of all rows so far and of the rows of round 1."""
    rng = np.random.default_rng(0)
    names = list(GROUPS)
    drawn = {s: rng.normal(GROUPS[g], 0.045, (count, 2)).clip(0, 1) for s, (g, count) in SUBSETS.items()}
    model, seen, truth = KINDS[setting](), list[Array](), list[Array]()
    found, first = [], 0
    for shares in ROUNDS:
        parts = {site: np.concatenate([drawn[s] for s in own]) for site, own in shares.items()}
        model.partial_fit(fc.Federation.local(parts))
        seen += list(parts.values())
        truth += [np.full(len(drawn[s]), names.index(SUBSETS[s][0])) for own in shares.values() for s in own]
        X, y = np.concatenate(seen), np.concatenate(truth)
        first = first or len(X)
        labels = model.predict(X)
        found.append(
            {
                "rows": len(X),
                "nodes": len(model.nodes_),
                "clusters": model.n_clusters_,
                "ARI": fc.agreement.ari(labels, y),
                "ARI of round 1": fc.agreement.ari(labels[:first], y[:first]),
                "places": model.nodes_,
            }
        )
    return found
