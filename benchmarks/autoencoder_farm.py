"""This benchmark compares our joint training of many autoencoders with a plain torch loop over the same models.

Rows and batches are the same. It measures torch's default number of threads, one CPU thread, and a GPU if torch finds
one. The floor applies to the first, which users get: a loop of small products gains little from a second thread.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from benchmarks import timing
from fedclust import kernels
from fedclust.algorithms.autoencoders.autoencoder import (
    AutoencoderTrainer,
    Schedule,
    draw_weights,
    import_torch,
    layers,
    train_one_by_one,
)
from fedclust.core.types import Array

MODELS, ROWS, WIDTH = 90, 500, 784  # 25 sites of paper 4, random rows in the shape of its images
TURNS = 3
FLOORS = {"cpu": 4.0, "cuda": 100.0}
NEAR, AS_IN_LOOP = 1e-5, 80  # tolerance on final models, and how many must be within it on a CPU


def main(*, json: bool) -> int:
    """Time an epoch of both, and print the ratio."""
    torch = import_torch()
    threads, before = torch.get_num_threads(), kernels.threads()
    try:
        kernels.set_threads(threads)
        found = [measured(threads=threads, floor=FLOORS["cpu"])]
        torch.set_num_threads(1)
        kernels.set_threads(1)
        if threads > 1:
            found.append(measured(floor=None))
        if torch.cuda.is_available():
            found.append(measured(device="cuda", floor=FLOORS["cuda"]))
    finally:
        torch.set_num_threads(threads)
        kernels.set_threads(before)
    return timing.show({"machine": timing.machine(), "torch": torch.__version__, "epochs": found}, found, as_json=json)


def measured(*, floor: float | None, device: str = "cpu", threads: int = 1) -> dict[str, Any]:
    """The best of several turns of one epoch each; both start from the same weights and draw the same batches.

    Where all is done by one thread of a CPU, its own time counts, whatever else the machine is doing.
    """
    clock = time.process_time if device == "cpu" and threads == 1 else time.perf_counter
    models, rows, width = MODELS, ROWS, WIDTH
    X = np.random.default_rng(0).random((models * rows, width), np.float32)
    sizes = layers(width)
    start = np.tile(draw_weights(sizes, np.random.default_rng(1)), (models, 1))
    members = list(np.arange(models * rows).reshape(models, rows))
    how, farm = Schedule(epochs=1), AutoencoderTrainer(X, sizes, device)
    held = farm.to_tensor(start)  # weights stay on the training device, as in a run
    ours, loop = np.inf, np.inf
    together, one_by_one = held, start
    for turn in range(TURNS):
        begin = clock()
        together, _ = farm.train(held, members, _streams(models), how)
        ours = min(ours, clock() - begin)
        begin = clock()
        one_by_one = train_one_by_one(
            X, sizes, start, members=members, streams=_streams(models), schedule=how, device=device
        )
        loop = min(loop, clock() - begin)
        print(f"{device}, turn {turn + 1}: farm {ours:.4g} s, loop {loop:.4g} s", file=sys.stderr)
    ratio, missed = loop / ours, list[str]()
    if floor is not None and ratio < floor:
        missed.append(
            f"on {device}, joint training is {ratio:.3g} times as fast as a loop, at least {floor:g} expected"
        )
    found = {
        "device": device,
        "threads": threads,
        "models": models,
        "rows each": rows,
        "farm s": ours,
        "loop s": loop,
        "loop / farm": ratio,
        "floor": floor,
    }
    # Torch's loop rounds differently. If that moves a unit across ReLU's zero, Adam amplifies it. So we count models
    # that end close to the loop's.
    alike = int((np.abs(_array(together) - one_by_one).max(axis=1) <= NEAR).sum())
    found["models as in the loop"] = alike
    if device == "cpu":
        missed += (
            [f"{alike} models end close to those of the loop, at least {AS_IN_LOOP} expected"]
            if alike < AS_IN_LOOP
            else []
        )
        each = zip(members, _streams(models), strict=True)
        alone = np.concatenate([farm.train(start[:1], [own], [stream], how)[0] for own, stream in each])
        found["weights apart"] = apart = float(np.abs(_array(together) - alone).max())
        missed += [f"weights differ by {apart:.2g} from models trained alone"] if apart else []
    return {**found, "missed": missed}


def _array(weights: Any) -> Array:
    return np.asarray(weights.cpu().numpy())


def _streams(models: int) -> list[np.random.Generator]:
    return [np.random.default_rng((2, i)) for i in range(models)]
