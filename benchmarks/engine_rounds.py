"""This benchmark measures the time per round of one study on every installed engine, and compares the bits."""

from __future__ import annotations

import json as json_
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from fault_rig.loops import LOOPS, carry_by_engine
from fedclust import Federation, FuzzyCMeans
from fedclust.engines.run_status import ObservedEngine

SITES, ROWS, COLUMNS, CLUSTERS, ROUNDS = 3, 1000, 8, 4, 30
MOST = {("nvflare", "ms_per_step"): 100.0, ("files", "cpu_ms_per_step"): 50.0}


def sites() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(CLUSTERS, COLUMNS)) * 6
    return {
        f"site{i}": rng.normal(size=(ROWS, COLUMNS)) + centers[rng.integers(CLUSTERS, size=ROWS)] for i in range(SITES)
    }


def measured(name: str | None) -> dict[str, Any]:
    """Run one engine, or the plain loop in this process if none is given; return step times, CPU times and centres."""
    walls: list[float] = []
    cpu: list[float] = []
    began = 0.0

    def tell(event: str, **facts: Any) -> None:
        nonlocal began
        if event == "asked":
            began = time.process_time()
        elif event == "settled":
            walls.append(facts["seconds"])
            cpu.append(time.process_time() - began)

    with tempfile.TemporaryDirectory(prefix="fedclust-") as folder:
        fed = Federation.local(sites())
        if name is not None:
            carry_by_engine(name, fed, Path(folder))
        fed.use_engine(ObservedEngine(fed.engine, tell))
        model = FuzzyCMeans(CLUSTERS, tol=None, max_iter=ROUNDS, random_state=0, scale="standardise").fit(fed)
        if name is not None:
            fed.engine.close()  # type: ignore[attr-defined]
    return {
        "engine": name or "local",
        "steps": len(walls),
        "ms_per_step": round(1e3 * median(walls), 3),
        "cpu_ms_per_step": round(1e3 * median(cpu), 3),
        "centers": model.cluster_centers_.tobytes().hex(),
    }


def main(*, json: bool = False) -> int:
    """Measure, and print a table or one JSON document."""
    # Flower is left out: its processes take most of its time, and its loop has none.
    found = [measured(name) for name in (None, *LOOPS) if name != "flower"]
    same = len({one.pop("centers") for one in found}) == 1
    missed = [
        f"{one['engine']}: {key} is {one[key]:g}, at most {most:g} allowed"
        for (engine, key), most in MOST.items()
        for one in found
        if one["engine"] == engine and one[key] > most
    ]
    about = {"sites": SITES, "rows": ROWS, "columns": COLUMNS, "clusters": CLUSTERS, "rounds": ROUNDS}
    if json:
        print(json_.dumps({**about, "engines": found, "same_bits": same, "missed": missed}))
        return 0 if same and not missed else 1
    print(f"{SITES} sites of {ROWS:,} rows, {COLUMNS} columns, {CLUSTERS} fuzzy clusters, {ROUNDS} rounds")
    print(f"{'engine':10}{'ms/step':>12}{'CPU ms/step':>16}   (medians; CPU time of this process, including its sites)")
    for one in found:
        print(f"{one['engine']:10}{one['ms_per_step']:>12.2f}{one['cpu_ms_per_step']:>16.2f}")
    print("same bits on all engines" if same else "THE BITS DIFFER")
    print("".join(f"missed: {line}\n" for line in missed), end="")
    return 0 if same and not missed else 1
