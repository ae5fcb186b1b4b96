"""These runs count the numbers that leave a party by its own ledger, in one more round or in a one-shot run."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import fedclust as fc
from fedclust.core.types import Floats
from fedclust.site.policy import Policy
from papers.reproduction.runs_fuzzy import drawn, scaled
from papers.reproduction.store import part

PARTIES = 20
ONE_SHOT = {  # by the names under which results are kept
    "k-FED": "k-FED",
    "MUFC": "MUFC",
    "FCAC, published": "FCAC",
    "FCAC, default": "SummaryClustering",
}


@part(
    "ledger/numbers-sent",
    paper="paper0",
    methods=("fuzzy-c-means", "k-fed", "mufc", "fcac", "summary-clustering", "draws"),
    data=("data",),
)
def sent(data: str, method: str) -> dict[str, int]:
    """Numbers that the first party sends, and the rows it holds: in one round by columns, else in all."""
    X, _, k = scaled(data)
    if method == "by columns":
        halves = {"p00": X[:, ::2], "p01": X[:, 1::2]}
        columns = {party: [f"{party}-{i}" for i in range(own.shape[1])] for party, own in halves.items()}
        begin = np.hstack([drawn(0, k, X.shape[1])[:, at::2] for at in (0, 1)])
        counts = [
            _counted(halves, fc.FuzzyCMeans(k, init=begin, tol=None, max_iter=rounds), split="columns", columns=columns)
            for rounds in (2, 3)
        ]
        return {"numbers": counts[1] - counts[0], "rows": len(X)}
    parts = fc.datasets.split(X, parties=PARTIES, seed=0)
    kinds: dict[str, Any] = {
        "k-FED": fc.KFed(k, random_state=0),
        "MUFC": fc.MUFC(k, random_state=0),
        "FCAC, published": fc.FCAC(),
        "FCAC, default": fc.SummaryClustering(),
    }
    return {"numbers": _counted(parts, kinds[method]), "rows": len(next(iter(parts.values())))}


def _counted(parts: dict[str, Floats], model: Any, **how: Any) -> int:
    """What a run writes into the ledger of the first party, whose rules make it count and refuse nothing."""
    fed = fc.Federation.local(parts, policy=Policy("counted", max_calls=10**6, withheld=frozenset()), **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(fed)
    ledger = next(iter(fed.local_sites.values())).gate.ledger
    return sum(entry.numbers for entry in ledger.entries)
