"""This benchmark measures the cost of masks: secure rounds against plain ones, also with many large answers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import fedclust as fc
from benchmarks import timing
from fedclust.core.types import Floats

LIMIT = 3.0  # secure / plain, 20 parties, all answer


def main(*, json: bool) -> int:
    """Measure and print."""
    rows = [_round(), _crowd()]
    return timing.show({"machine": timing.machine(), "secure": rows}, rows, as_json=json)


def _round(rows: int = 1_000_000, width: int = 16, k: int = 10, parties: int = 20) -> dict[str, Any]:
    """One round of fuzzy and of hard c-means in each mode."""
    rng = np.random.default_rng(0)
    X, start = rng.normal(size=(rows, width)), rng.normal(size=(k, width))
    parts = {f"p{i}": part for i, part in enumerate(np.array_split(X, parties))}
    runs = {}
    for mode in ("plain", "secure", "blind"):
        fed = fc.Federation.local(parts, aggregation=mode)
        for name, kind in (("fuzzy", fc.FuzzyCMeans), ("hard", fc.KMeans)):
            runs[f"{name} {mode}"] = _rounds(kind, k, start, fed)
    took = timing.marginal(runs)
    ratios = {
        f"{name} {mode} / plain": took[f"{name} {mode}"] / took[f"{name} plain"]
        for name in ("fuzzy", "hard")
        for mode in ("secure", "blind")
    }
    missed = [
        f"{name}: {ratio:.3g}, at most {LIMIT}" for name, ratio in ratios.items() if "secure" in name and ratio > LIMIT
    ]
    return {"bench": f"{parties} parties, {rows}x{width}x{k}", "plain ms": took["fuzzy plain"] * 1e3, **ratios} | {
        "missed": missed
    }


def _crowd(parties: int = 200, rows: int = 20, width: int = 785, k: int = 100) -> dict[str, Any]:
    """One round of many parties with large answers, each sharing masks with twenty others."""
    rng = np.random.default_rng(0)
    parts = {f"p{i}": rng.random((rows, width)) for i in range(parties)}
    start = rng.random((k, width))
    took, models = {}, {}
    for mode in ("plain", "secure"):
        fed = fc.Federation.local(parts, aggregation=mode)
        model = fc.KMeans(k, init=start, tol=None, max_iter=1, bounds=(0, 1))
        begin = time.perf_counter()
        models[mode] = model.fit(fed)
        took[mode] = time.perf_counter() - begin
    same = np.array_equal(models["plain"].cluster_centers_, models["secure"].cluster_centers_)
    missed = [] if same else [f"{parties} parties: secure and plain differ"]
    return {
        "bench": f"{parties} parties, answers of {k}x{width}",
        "plain s": took["plain"],
        "secure s": took["secure"],
        "same bits": same,
        "missed": missed,
    }


def _rounds(kind: Any, k: int, start: Floats, fed: fc.Federation) -> timing.Run:
    return lambda count: kind(k, init=start, tol=None, max_iter=count, bounds=(-10, 10)).fit(fed)
