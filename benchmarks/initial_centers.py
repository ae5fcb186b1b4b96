"""Initial centres: the final inertia of a fit, compared with the best of 20 runs of scikit-learn, and what it costs.

Drawn tables have 3 to 15 groups of unequal size and shape. Real tables are those of the folder $FEDCLUST_DATA, with as
many clusters as classes and with 20; a table is left out where scikit-learn's best run has a cluster of fewer than 20
rows. The rows are spread over three sites; for "k-means++, columns" the columns are, over at most three.
"""

from __future__ import annotations

import json as documents
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import fedclust as fc
from fedclust.core.release import count_numbers
from fedclust.core.types import Floats, PartyId

COLUMNS = "k-means++, columns"
STARTS = ("k-means++", "careful", COLUMNS)
RUNS = 20  # of scikit-learn
MAX_ROWS, MAX_WIDE_ROWS, WIDE = 20_000, 5_000, 500
MIN_CLUSTER = 20
SITES = 3
SAME_RESULT = 1.01


def main(*, json: bool, seeds: range = range(20)) -> int:
    """Print one line for each table and start, and a summary of each kind of table."""
    lines = []
    for kind, name, X, k in (*drawn_tables(seeds), *real_tables()):
        best, smallest = best_of_peer(X, k)
        if kind == "real" and smallest < MIN_CLUSTER:
            continue
        for start in STARTS:
            line = {"kind": kind, "table": name, "k": k, "init": start, **measure(X, k, start, best)}
            lines.append(line)
            if not json:
                print(documents.dumps(line), flush=True)
    summary = [summarise(lines, kind, start) for kind in ("drawn", "real") for start in STARTS]
    if json:
        print(documents.dumps({"lines": lines, "summary": summary}))
    else:
        for line in summary:
            print(documents.dumps(line))
    return 0


def drawn_tables(seeds: range) -> Iterator[tuple[str, str, Floats, int]]:
    """Groups with unequal weights, sizes and widths by column, from far apart to overlapping."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        k, columns = int(rng.integers(3, 16)), int(rng.integers(2, 21))
        rows = int(np.exp(rng.uniform(np.log(500), np.log(5000))))
        apart = rng.uniform(2.0, 10.0) / np.sqrt(columns)
        centers = rng.normal(size=(k, columns)) * apart * (1.5 if columns < 4 else 1)
        sd = np.exp(rng.normal(0, 0.35, k))
        stretch = np.exp(rng.normal(0, 0.3, (k, columns)))
        labels = rng.choice(k, rows, p=rng.dirichlet(np.full(k, 2.0)) * 0.85 + 0.15 / k)
        yield (
            "drawn",
            str(seed),
            centers[labels] + rng.normal(size=(rows, columns)) * sd[labels][:, None] * stretch[labels],
            k,
        )


def real_tables() -> Iterator[tuple[str, str, Floats, int]]:
    """Each table once with as many clusters as classes, and once with 20; large ones are thinned."""
    for path in sorted(Path(os.environ.get("FEDCLUST_DATA", "data")).glob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            if "y" not in file.files:
                continue
            X, y = file["X"].reshape(len(file["X"]), -1), file["y"]
        most = MAX_WIDE_ROWS if X.shape[1] > WIDE else MAX_ROWS
        kept = np.sort(np.random.default_rng(0).choice(len(X), min(most, len(X)), replace=False))
        X, y = X[kept].astype(np.float64), y[kept]
        X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
        sd = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
        for k in sorted({len(np.unique(y)), 20}):
            yield "real", path.stem, X, k


def best_of_peer(X: Floats, k: int) -> tuple[float, int]:
    """The least inertia of some runs of scikit-learn, and the smallest cluster of that run."""
    from sklearn.cluster import KMeans

    runs = (KMeans(k, n_init=1, random_state=seed).fit(X) for seed in range(RUNS))
    found = min((run.inertia_, int(np.bincount(run.labels_, minlength=k).min())) for run in runs)
    return float(found[0]), found[1]


def measure(X: Floats, k: int, start: str, best: float) -> dict[str, Any]:
    """Fit over the sites, and count exchanges and opened numbers."""
    by_columns = start == COLUMNS
    if by_columns:
        slices = np.array_split(X, min(SITES, X.shape[1]), axis=1)
        fed = fc.Federation.local({f"site {i}": own for i, own in enumerate(slices)}, split="columns")
    else:
        parts = np.array_split(np.random.default_rng(0).permutation(len(X)), SITES)
        fed = fc.Federation.local({f"site {i}": X[own] for i, own in enumerate(parts)})
    counter = Counter(fed.engine)
    fed.use_engine(counter)
    model = fc.KMeans(k, init="k-means++" if by_columns else start).fit(fed)
    assert model.inertia_ is not None
    ratio = round(model.inertia_ / best, 5)
    return {"ratio": ratio, "iterations": model.n_iter_, "exchanges": counter.exchanges, "opened": counter.opened}


class Counter:
    """Passes exchanges on, and counts them and the numbers that they open."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.parties = engine, engine.parties
        self.exchanges = self.opened = 0

    def exchange(self, calls: Mapping[PartyId, Any], *, timeout: float | None, quorum: int) -> dict[PartyId, Any]:
        replies: dict[PartyId, Any] = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        self.exchanges += 1
        sizes = [count_numbers(reply.release, all_counts=True) for reply in replies.values()]
        together = next(iter(calls.values())).want == "total"
        self.opened += max(sizes) if together else sum(sizes)
        return replies


def summarise(lines: list[dict[str, Any]], kind: str, start: str) -> dict[str, Any]:
    """Mean and worst ratio, the share of good results, and mean costs."""
    own = [line for line in lines if (line["kind"], line["init"]) == (kind, start)]
    ratios = np.array([line["ratio"] for line in own])
    return {
        "tables": f"{len(own)} {kind}",
        "init": start,
        "mean": round(float(ratios.mean()), 4) if own else None,
        "worst": float(ratios.max()) if own else None,
        "within 1%": round(float((ratios <= SAME_RESULT).mean()), 3) if own else None,
        **{
            cost: round(float(np.mean([line[cost] for line in own])), 1)
            for cost in ("iterations", "exchanges", "opened")
        },
    }
