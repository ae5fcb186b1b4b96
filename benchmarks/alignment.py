"""The alignment benchmark measures private alignment of two and three sites that share half of their many ids."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import fedclust as fc
from benchmarks import timing
from fedclust.algorithms.cmeans import column_split
from fedclust.core.effects import each
from fedclust.core.types import Array

IDS = 100_000


def main(*, json: bool, ids: int = IDS) -> int:
    """Measure and print."""
    rows = [_aligned(2, ids), _aligned(3, ids // 10)]
    return timing.show({"machine": timing.machine(), "psi": rows}, rows, as_json=json)


def _aligned(parties: int, ids: int) -> dict[str, Any]:
    """Align sites whose ids are half their own and half common."""
    rng = np.random.default_rng(0)
    common = ids // 2
    sites: dict[str, Array] = {}
    for i in range(parties):
        held = np.concatenate([np.arange(common), common + i * ids + np.arange(ids - common)])
        sites[f"site {i}"] = np.column_stack([rng.permutation(held), rng.normal(size=ids)]).astype(np.float64)
    columns = {name: ["id", f"{name}.x"] for name in sites}
    fed = fc.Federation.local(sites, columns=columns, split="columns", id="id", align="psi")
    begin, busy = time.perf_counter(), time.process_time()
    found = _found(fed)
    took, used = time.perf_counter() - begin, time.process_time() - busy
    sent = [own["bytes"] for own in fed.traffic().values()]
    missed = [] if found == common else [f"{parties} sites: {found} rows in common, {common} expected"]
    return {
        "sites": parties,
        "ids each": ids,
        "in common": found,
        "seconds, all in one process": took,
        "CPU seconds a site": used / parties,
        "MB sent by a site": max(sent) / 1e6,
        "MB in all": sum(sent) / 1e6,
        "missed": missed,
    }


def _found(fed: fc.Federation) -> int:
    """The number of common rows, asked of the sites as in a study; -1 if they do not agree."""
    answers, _ = fed.run(each(column_split.identify_rows, column_split.EmptyQuestion()))
    rows = {answer.rows for answer in answers.values()}
    keys = {answer.key for answer in answers.values()}
    return rows.pop() if len(rows) == len(keys) == 1 else -1
