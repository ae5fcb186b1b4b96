"""Stacked training of autoencoders beside a loop of torch's own over them, on a CPU: same models, rows and batches."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from fedclust.algorithms.autoencoder import Farm, Schedule, drawn, layers, looped, torch_
from fedclust.benchmarks import _timing
from fedclust.core.types import Array

MODELS, ROWS, WIDTH = 90, 500, 784  # 25 sites of paper 4, drawn rows of the shape of its images
FLOOR = 4.0
NEAR = 1e-5


def main(*, json: bool) -> int:
    """Time an epoch of either on one thread, and print their ratio."""
    torch = torch_()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = measured()
    finally:
        torch.set_num_threads(threads)
    return _timing.show(
        {"machine": _timing.machine(), "torch": torch.__version__, "epochs": [found]}, [found], as_json=json
    )


def measured(models: int = MODELS, rows: int = ROWS, width: int = WIDTH, turns: int = 3) -> dict[str, Any]:
    """The best of several turns of one epoch each; both start from the same weights and draw the same batches."""
    X = np.random.default_rng(0).random((models * rows, width), np.float32)
    sizes = layers(width)
    start = np.tile(drawn(sizes, np.random.default_rng(1)), (models, 1))
    members = list(np.arange(models * rows).reshape(models, rows))
    how, farm = Schedule(epochs=1), Farm(X, sizes)
    stacked, loop = np.inf, np.inf
    together: Array = start
    for turn in range(turns):
        begin = time.perf_counter()
        together, _ = farm.train(start, members, _streams(models), how)
        stacked = min(stacked, time.perf_counter() - begin)
        begin = time.perf_counter()
        looped(X, sizes, start, members=members, streams=_streams(models), how=how)
        loop = min(loop, time.perf_counter() - begin)
        print(f"turn {turn + 1}: stacked {stacked:.2f} s, loop {loop:.2f} s", file=sys.stderr)
    # One by one by the same optimiser: torch's own rounds otherwise, and where a slope is next to nothing Adam makes
    # much of that.
    alone, _ = farm.train(start, members, _streams(models), how, stack=1)
    apart = float(np.abs(together - alone).max())
    missed = (
        [f"stacked training is {loop / stacked:.3g} times as fast as a loop, floor {FLOOR:g}"]
        if loop < FLOOR * stacked
        else []
    )
    missed += [f"weights differ by {apart:.2g}, at most {NEAR:g}"] if apart > NEAR else []
    return {
        "models": models,
        "rows each": rows,
        "stacked s": stacked,
        "loop s": loop,
        "loop / stacked": loop / stacked,
        "floor": FLOOR,
        "weights apart": apart,
        "missed": missed,
    }


def _streams(models: int) -> list[np.random.Generator]:
    return [np.random.default_rng((2, i)) for i in range(models)]
