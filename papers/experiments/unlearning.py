"""This experiment compares quick unlearning with a replay: its share of the time, and whether the results agree.

    python -m papers.experiments.unlearning [--sets s_set1 pendigits ...] [--seeds 3] [--json]

For each set (from $FEDCLUST_DATA or the cache, min-max scaled, ten sites of equal size) and each seed a model is
fitted. Then one row, one per cent of a site's rows and a whole site are removed, by a replay from the recorded start
and by the quick method. Times are for the fit only, without the comparison of partitions.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fedclust as fc
from fedclust.app import unlearning

SETS = ("s_set1", "waveform", "satimage", "pendigits")
METHODS: dict[str, Callable[[int, int], Any]] = {
    "KMeans": lambda k, seed: fc.KMeans(k, bounds=(0, 1), init="box", max_iter=1000, random_state=seed),
    "FuzzyCMeans": lambda k, seed: fc.FuzzyCMeans(k, bounds=(0, 1), init="box", max_iter=1000, random_state=seed),
    "MUFC": lambda k, seed: fc.MUFC(k, min_rows=2, bounds=(0, 1), random_state=seed),
}


def timed(model: Any, left: fc.Federation, how: str) -> tuple[Any, float]:
    """The model without the removed rows, and the seconds it took."""
    begun = time.perf_counter()
    made = unlearning._fit_without(model, left, how)  # noqa: SLF001 what unlearn does, without the comparison
    return made, time.perf_counter() - begun


def forgotten(name: str, method: str, seed: int) -> list[dict[str, Any]]:
    """One line for each amount that is removed."""
    known = fc.datasets.load(name)
    X = known.X.astype(float)
    X = (X - X.min(axis=0)) / np.where(np.ptp(X, axis=0) > 0, np.ptp(X, axis=0), 1)
    parts = fc.datasets.split(X, parties=10, seed=seed)
    fed = fc.Federation.local(parts)
    model = METHODS[method](len(known.classes), seed).fit(fed)
    first = next(iter(parts))
    count = len(parts[first])
    amounts = {"a row": np.arange(1), "1% of a site": np.arange(max(2, count // 100)), "a site": None}
    lines = []
    for amount, rows in amounts.items():
        left = unlearning.federation_without(fed, (first,), rows)
        timed(model, left, "replay")  # the first pass over new holdings surveys them
        replay, slow = timed(model, left, "replay")
        quick, fast = timed(
            model, unlearning.federation_without(fed, (first,), rows) if method == "MUFC" else left, "quick"
        )
        a, b = replay.predict(left), quick.predict(left)
        lines.append(
            {
                "set": name,
                "method": method,
                "seed": seed,
                "forgotten": amount,
                "seconds of a replay": slow,
                "share of it": fast / slow,
                "rounds": [replay.n_iter_, quick.n_iter_],
                "same partition": unlearning._is_same_partition(replay, quick, left),  # noqa: SLF001
                "ARI": fc.agreement.ari(a, b),
                "apart": fc.agreement.displacement(replay.cluster_centers_, quick.cluster_centers_),
                "objective": quick.final_objective / replay.final_objective,
            }
        )
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--methods", nargs="+", default=tuple(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    lines = [
        line
        for name in given.sets
        for method in given.methods
        for seed in range(given.seeds)
        for line in forgotten(name, method, seed)
    ]
    if given.json:
        print(json.dumps(lines))
        return
    print("| set | method | forgotten | replay: s, rounds | quick: share, rounds | same partition | ARI | objective |")
    print("|---|---|---|---|---|---|---|---|")
    keys = dict.fromkeys((line["set"], line["method"], line["forgotten"]) for line in lines)
    for key in keys:
        own = [line for line in lines if (line["set"], line["method"], line["forgotten"]) == key]
        slow, share, ari, cost = (
            float(np.mean([line[what] for line in own]))
            for what in ("seconds of a replay", "share of it", "ARI", "objective")
        )
        same = sum(line["same partition"] for line in own)
        slower, faster = np.mean([line["rounds"] for line in own], axis=0)
        times = f"{slow:.3f}, {slower:.0f} | {share:.2f}, {faster:.0f}"
        print(f"| {' | '.join(key)} | {times} | {same} of {len(own)} | {ari:.4f} | {cost:.6f} |")


if __name__ == "__main__":
    main()
