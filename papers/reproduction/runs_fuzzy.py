"""Single runs of papers 0 and 1 have one set, one method, one participation and one seed.

Settings: rows scaled to [0, 1] by the extremes of all rows, initial centres from RandomState(seed).rand, 20 parties of
equal size, m = 2, always 30 rounds.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.cluster import kmeans_plusplus

import fedclust as fc
from fedclust.core.errors import RunFailed
from fedclust.core.types import Array, Floats
from fedclust.engines.local_engine import LocalEngine
from fedclust.site.policy import Policy
from papers.reproduction.store import loaded, part

SETS = {
    "XC": "xclara",
    "S1": "s_set1",
    "S2": "s_set2",
    "PE": "pendigits",
    "WA": "waveform",
    "PH": "phoneme",
    "RI": "rice",
    "ST": "satimage",
}
PARTIES, ROUNDS, RESTARTS = 20, 30, 5
SWINGING = 0.5  # centres that still move so far after the last round, in a unit box, have not settled


def scaled(data: str) -> tuple[Floats, Array, int]:
    """Rows between 0 and 1, classes, and how many there are."""
    rows = loaded(data)
    X = rows.X.astype(np.float64)
    low, high = X.min(axis=0), X.max(axis=0)
    return (X - low) / (high - low), np.asarray(rows.y), len(rows.classes)


def dealt(X: Floats, y: Array, beta: float | None) -> dict[str, Array]:
    """Evenly, or each class in Dirichlet(beta) proportions."""
    if beta is None:
        return fc.datasets.split(X, parties=PARTIES, seed=0)
    least = 12 if beta >= 0.3 else 1
    return fc.datasets.split(X, y, PARTIES, "dirichlet", seed=0, alpha=beta, minimum=least)


def drawn(seed: int, k: int, width: int) -> Floats:
    return np.asarray(np.random.RandomState(seed).rand(k, width), np.float64)  # the published stream


def scores(model: Any, fed: fc.Federation, X: Floats, y: Array, pooled: Any) -> dict[str, Any]:
    labels = model.predict(X)
    return {
        "displacement": fc.agreement.displacement(model.cluster_centers_, pooled.cluster_centers_),
        "ARI with the pooled run": fc.agreement.ari(labels, pooled.predict(X)),
        "ARI with the classes": fc.agreement.ari(labels, y),
        "Xie-Beni": fc.indices.xie_beni(model, fed),
        "fuzzy Davies-Bouldin": fc.indices.fuzzy_davies_bouldin(model, fed),
        "shifts": [entry["shift"] for entry in model.history_],
    }


@part(
    "fuzzy/random-start",
    paper="paper0",
    methods=("fuzzy-c-means", "gradient-fuzzy-c-means", "indices", "agreement", "draws"),
    data=("data",),
)
def random_start(
    *,
    data: str,
    method: str,
    participation: float,
    seed: int,
    beta: float | None = None,
    step: float = 0.005,
    rounds: int = ROUNDS,
) -> dict[str, Any]:
    """LLF-FCM or GDF-FCM from random centres, and the pooled run from the same."""
    X, y, k = scaled(data)
    fed = fc.Federation.local(dealt(X, y, beta))
    how: dict[str, Any] = {"init": drawn(seed, k, X.shape[1]), "tol": None, "max_iter": rounds}
    pooled = fc.FuzzyCMeans(k, **how).fit(X)
    own = how | {"participation": participation, "random_state": seed}
    model = fc.FuzzyCMeans(k, **own) if method == "LLF-FCM" else fc.GradientFuzzyCMeans(k, step=step, **own)
    try:
        model.fit(fed)
    except RunFailed as failed:
        return {"failed": str(failed)}
    return scores(model, fed, X, y, pooled)


@part(
    "fuzzy/careful-start",
    paper="paper0",
    methods=("fuzzy-c-means", "averaged-fuzzy-c-means", "indices", "agreement", "draws"),
    data=("data",),
)
def careful_start(data: str, method: str, participation: float, seed: int, beta: float | None = None) -> dict[str, Any]:
    """LLF-FCM or C2F-FCM with careful seeding; the pooled run has k-means++ of its own."""
    X, y, k = scaled(data)
    fed = fc.Federation.local(dealt(X, y, beta))
    begin, _ = kmeans_plusplus(X, k, random_state=seed)
    pooled = fc.FuzzyCMeans(k, init=begin, tol=None, max_iter=ROUNDS).fit(X)
    kind = fc.FuzzyCMeans if method == "LLF-FCM" else fc.AveragedFuzzyCMeans
    model = kind(k, init="careful", tol=None, max_iter=ROUNDS, participation=participation, random_state=seed).fit(fed)
    return scores(model, fed, X, y, pooled)


@part(
    "fuzzy/best-of-restarts", paper="paper0", methods=("fuzzy-c-means", "indices", "agreement", "draws"), data=("data",)
)
def best_of_restarts(data: str, seed: int) -> dict[str, float]:
    """Our best for these tables: LLF-FCM to its end, carefully seeded, the least objective of five; its scores."""
    X, y, k = scaled(data)
    fed = fc.Federation.local(dealt(X, y, None))
    models = [
        fc.FuzzyCMeans(k, init="careful", random_state=RESTARTS * seed + turn).fit(fed) for turn in range(RESTARTS)
    ]
    best = min(models, key=lambda model: model.objective_)
    return {"ARI with the classes": fc.agreement.ari(best.predict(X), y), "Xie-Beni": fc.indices.xie_beni(best, fed)}


@part("fuzzy/same-bits", paper="paper0", methods=("fuzzy-c-means", "draws"), data=("data",))
def same_bits(data: str, seed: int) -> bool:
    """Whether even, uneven, class-wise and pooled runs give the same centres, to the last bit."""
    X, y, k = scaled(data)
    how: dict[str, Any] = {"init": drawn(seed, k, X.shape[1]), "tol": None, "max_iter": 10}
    spread = [dealt(X, y, beta) for beta in (None, 0.5, 0.1)]
    spread.append(fc.datasets.split(X, y, PARTIES, "classes", seed=0))
    spread.append({"here": X})
    found = {fc.FuzzyCMeans(k, **how).fit(fc.Federation.local(own)).cluster_centers_.tobytes() for own in spread}
    return len(found) == 1


@part("fuzzy/by-columns", paper="paper0", methods=("fuzzy-c-means", "agreement"), data=("data",))
def by_columns(data: str, sizes: list[int], seed: int) -> dict[str, Any]:
    """LLF-FCM over columns: how the distances change from round to round, and the ARI with the classes."""
    X, y, k = scaled(data)
    names = [f"c{i}" for i in range(X.shape[1])]
    spans = {f"p{i:02d}": slice(a, b) for i, (a, b) in enumerate(pairwise(np.cumsum([0, *sizes]).tolist()))}
    fed = fc.Federation.local(
        {party: X[:, span] for party, span in spans.items()},
        split="columns",
        columns={party: names[span] for party, span in spans.items()},
    )
    model = fc.FuzzyCMeans(k, init=drawn(seed, k, X.shape[1]), tol=None, max_iter=ROUNDS).fit(fed)
    # Exact, so that "the same" can mean the same.
    return {
        "shifts": [entry["shift"] for entry in model.history_],
        "bits": [float(entry["shift"]).hex() for entry in model.history_],
        "ARI": fc.agreement.ari(model.labels_, y),
    }


class _Listening(LocalEngine):
    """Counts the coordinates of centres that go to a party."""

    down = 0

    def exchange(self, calls: Any, *, timeout: float | None, quorum: int) -> Any:
        centers = getattr(next(iter(calls.values())).message, "centers", None)
        self.down += 0 if centers is None else centers.size
        return super().exchange(calls, timeout=timeout, quorum=quorum)


@part(
    "fuzzy/numbers-in-a-round",
    paper="paper0",
    methods=("fuzzy-c-means", "gradient-fuzzy-c-means", "averaged-fuzzy-c-means", "draws"),
    data=("data",),
)
def numbers_in_a_round(data: str, method: str) -> dict[str, int]:
    """What one more round adds to a site's ledger, and to what it is sent."""
    X, _, k = scaled(data)
    kind = {"LLF-FCM": fc.FuzzyCMeans, "GDF-FCM": fc.GradientFuzzyCMeans, "C2F-FCM": fc.AveragedFuzzyCMeans}[method]
    found = []
    for rounds in (2, 3):
        counted = Policy("counted", max_calls=10**6, withheld=frozenset())  # any rule makes the ledger count numbers
        fed = fc.Federation.local(fc.datasets.split(X, parties=PARTIES, seed=0), policy=counted)
        engine = _Listening(fed.local_sites)
        fed.use_engine(engine)
        kind(k, init=drawn(0, k, X.shape[1]), tol=None, max_iter=rounds).fit(fed)
        ledger = next(iter(engine.site_servers.values())).gate.ledger
        found.append((sum(entry.numbers for entry in ledger.entries), engine.down))
    return {"up": found[1][0] - found[0][0], "down": found[1][1] - found[0][1]}
