"""This benchmark counts answers per second from ten thousand parties of fifty rows in one process."""

from __future__ import annotations

import time

import numpy as np

import fedclust as fc
from benchmarks import timing


def main(*, json: bool, parties: int = 10_000, rows: int = 50, rounds: int = 20) -> int:
    """Run fuzzy c-means over many small parties and count answers per second."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(3, 4))
    begin = time.perf_counter()
    fed = fc.Federation.local({f"p{i}": rng.normal(size=(rows, 4)) + i % 3 * 5 for i in range(parties)})
    opened = time.perf_counter()
    model = fc.FuzzyCMeans(3, init=start, tol=None, max_iter=rounds).fit(fed)
    done = time.perf_counter()
    asked = sum(own["messages"] for own in fed.traffic().values())
    row = {
        "parties": parties,
        "rows each": rows,
        "rounds": model.n_iter_,
        "open s": opened - begin,
        "run s": done - opened,
        "answers": asked,
        "answers/s": asked / (done - opened),
    }
    return timing.show({"machine": timing.machine(), **row}, [row], as_json=json)
