"""Single runs of paper 2 compute the index for several K on the motivational example, G2 sets and bank marketing."""

from __future__ import annotations

from typing import Any

import numpy as np

import fedclust as fc
from fedclust.core.errors import DataError
from fedclust.core.types import Floats
from fedclust.datasets import loading
from papers.reproduction.store import part

TOL, ROUNDS, RESTARTS = 1e-3, 60, 4
DRAWS = 10_000_000  # apart are the seeds of a set's draws
G2_KS = range(2, 7)
LEVELS = {"primary": 1.0, "secondary": 2.0, "tertiary": 3.0}
BANK_COLUMNS = ("age", "balance", "education")


def _best(kind: Any, k: int, on: Any, seed: int, restarts: int = RESTARTS, **how: Any) -> Any:
    """Of several starts the least objective: one in four ends in a bad optimum."""
    models = [kind(k, init="careful", random_state=100 * seed + turn, **how).fit(on) for turn in range(restarts)]
    return min(models, key=lambda model: model.final_objective)


@part(
    "choice/motivational-draw",
    paper="paper2",
    methods=("fuzzy-c-means", "averaged-fuzzy-c-means", "indices", "agreement", "draws"),
)
def motivational_draw(seed: int, k: int) -> dict[str, Any]:
    """One draw of the example at one K: central, both averages, and each client alone (K up to 5)."""
    parties, truth = fc.datasets.motivational(seed)
    fed, rows = fc.Federation.local(parties), np.concatenate(list(parties.values()))
    index = fc.indices.fuzzy_davies_bouldin
    central = _best(fc.FuzzyCMeans, k, rows, seed, tol=1e-4)
    averaged = _best(fc.AveragedFuzzyCMeans, k, fed, seed, max_iter=ROUNDS)
    by_index = fc.AveragedFuzzyCMeans(k, average="index", init="box", max_iter=ROUNDS, random_state=seed).fit(fed)
    found = {
        "central": index(central, rows),
        "k-means": index(averaged, fed),
        "index": index(by_index, fed),
        "scored at clients": [index(by_index, own) for own in parties.values()],
        "centres": averaged.cluster_centers_,
    }
    if k == len(truth.centers):
        found["apart"] = fc.agreement.displacement(averaged.cluster_centers_, truth.centers)
    if k <= 5:
        alone = [_best(fc.FuzzyCMeans, k, own, seed, tol=1e-4) for own in parties.values()]
        found["clients"] = [index(model, own) for model, own in zip(alone, parties.values(), strict=True)]
    return found


@part(
    "choice/motivational-choice",
    paper="paper2",
    methods=("fuzzy-c-means", "choice-of-k", "draws"),
)
def motivational_choice(seed: int) -> int:
    """K by our default, over the three clients."""
    fed = fc.Federation.local(fc.datasets.motivational(seed)[0])
    return fc.select_k(fc.FuzzyCMeans(init="careful"), fed).k


@part(
    "choice/g2-run",
    paper="paper2",
    methods=("fuzzy-c-means", "averaged-fuzzy-c-means", "indices", "agreement", "draws"),
)
def g2_run(sd: int, dim: int, parties: int, average: str, seed: int) -> dict[str, Any]:
    """A draw of one G2 set over so many clients (1: central): the index for K = 2..6, the knowledge gap at 2."""
    data = fc.datasets.g2(sd, dim, 1000 * dim + sd + DRAWS * seed)
    fed = fc.Federation.local(fc.datasets.split(data.X, parties=parties, seed=seed))
    values, gap = [], 0.0
    for k in G2_KS:
        if parties == 1:
            model: Any = fc.FuzzyCMeans(k, init="careful", tol=TOL, max_iter=100, random_state=seed)
        else:
            model = fc.AveragedFuzzyCMeans(k, average=average, max_iter=ROUNDS, random_state=seed)
        model.fit(fed)
        values.append(fc.indices.fuzzy_davies_bouldin(model, fed))
        if k == 2:
            gap = fc.agreement.knowledge_gap(model.cluster_centers_, data.centers, data.X.var(axis=0))
    return {"index": values, "gap": gap}


@part(
    "choice/g2-ours",
    paper="paper2",
    methods=("c-means", "indices", "agreement", "choice-of-k", "draws"),
)
def g2_ours(sd: int, dim: int, *, choose: bool) -> dict[str, Any]:
    """Ours on the same set over ten clients: hard c-means at K = 2, and K by our default."""
    data = fc.datasets.g2(sd, dim, 1000 * dim + sd)
    fed = fc.Federation.local(fc.datasets.split(data.X, parties=10, seed=0))
    model = fc.KMeans(2, init="careful").fit(fed)
    return {
        "gap": fc.agreement.knowledge_gap(model.cluster_centers_, data.centers, data.X.var(axis=0)),
        "index": fc.indices.fuzzy_davies_bouldin(model, fed),
        "k": fc.select_k(fc.KMeans(init="careful"), fed).k if choose else None,
    }


def bank(*, clip: bool = True) -> dict[str, Floats]:
    """Age, balance and education of each job's customers, without unknowns, standardised over all of them."""
    for folder in loading._folders():  # noqa: SLF001 categories are no part of a `Dataset`
        path = folder / "bank_full.npz"
        if path.is_file():
            break
    else:
        raise DataError("data set 'bank_full' is not here; put bank_full.npz into the folder $FEDCLUST_DATA")
    with np.load(path, allow_pickle=False) as file:
        names = [str(name) for name in file["cat_features"]]
        levels = [str(level).split("|") for level in file["cat_levels"]]
        X, codes = file["X"].astype(np.float64), file["C"]
    text = {name: np.array(levels[names.index(name)])[codes[:, names.index(name)]] for name in ("job", "education")}
    known = (text["job"] != "unknown") & (text["education"] != "unknown")
    level = np.array([LEVELS.get(word, np.nan) for word in text["education"]])
    rows = np.column_stack([X[:, 0], X[:, 1], level])[known]
    if clip:
        rows[:, :2] = np.clip(rows[:, :2], *np.percentile(rows[:, :2], [1, 99], axis=0))
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    job = text["job"][known]
    return {str(name).strip("."): rows[job == name] for name in sorted(set(job))}


@part("choice/bank-fit", paper="paper2", methods=("fuzzy-c-means", "averaged-fuzzy-c-means", "indices"), data=("data",))
def bank_fit(data: str, method: str, k: int, restarts: int) -> dict[str, Any]:  # noqa: ARG001 named for its digest
    """One K over the eleven jobs: centres and index."""
    fed = fc.Federation.local(bank(), columns=list(BANK_COLUMNS))
    kind = fc.FuzzyCMeans if method == "central" else fc.AveragedFuzzyCMeans
    model = _best(kind, k, fed, 0, restarts=restarts, tol=1e-4 if method == "central" else TOL)
    return {"index": fc.indices.fuzzy_davies_bouldin(model, fed), "centres": model.cluster_centers_}


@part("choice/bank-alone", paper="paper2", methods=("fuzzy-c-means", "indices"), data=("data",))
def bank_alone(data: str, job: str, k: int) -> dict[str, Any]:  # noqa: ARG001
    """One job's own clusters."""
    rows = bank()[job]
    model = _best(fc.FuzzyCMeans, k, rows, 0, restarts=2, tol=1e-4)
    return {"index": fc.indices.fuzzy_davies_bouldin(model, rows), "centres": model.cluster_centers_}


@part("choice/bank-counts", paper="paper2", data=("data",))
def bank_counts(data: str) -> dict[str, Any]:  # noqa: ARG001
    """Rows of each job, and the share of customers with a balance above 2.4."""
    parts = bank()
    rows = np.concatenate(list(parts.values()))
    return {"rows": {job: len(own) for job, own in parts.items()}, "wealthy": float((rows[:, 1] > 2.4).mean())}


@part(
    "choice/g2-uneven",
    paper="paper2",
    methods=("fuzzy-c-means", "averaged-fuzzy-c-means", "agreement", "draws"),
)
def g2_uneven(sd: int, dim: int, method: str, beta: float | None, seed: int) -> dict[str, Any]:
    """One G2 set at K = 2 over five clients, even or uneven in its two clusters: the knowledge gap."""
    data = fc.datasets.g2(sd, dim, 1000 * dim + sd)
    if beta is None:
        parts = fc.datasets.split(data.X, parties=5, seed=seed)
    else:
        parts = fc.datasets.split(data.X, data.y, 5, "dirichlet", seed=seed, alpha=beta, minimum=20)
    fed = fc.Federation.local(parts)
    if method == "lossless":
        begin = np.random.default_rng(seed).uniform(500, 600, (2, dim))
        model: Any = fc.FuzzyCMeans(2, init=begin, tol=TOL, max_iter=100)
    else:
        model = fc.AveragedFuzzyCMeans(2, average=method, max_iter=ROUNDS, random_state=seed)
    model.fit(fed)
    gap = fc.agreement.knowledge_gap(model.cluster_centers_, data.centers, data.X.var(axis=0))
    return {"gap": gap, "bits": [float(v).hex() for v in np.sort(model.cluster_centers_, axis=0).ravel()]}
