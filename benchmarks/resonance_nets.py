"""This benchmark compares FCAC with its authors' reported times, and its nets with our NumPy twin in the same run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import fedclust as fc
from benchmarks import timing
from fedclust import kernels
from fedclust.algorithms.fcac.coordinator_net import order_nodes
from fedclust.algorithms.fcac.site_nets import Nodes
from fedclust.core.errors import DataError
from fedclust.core.types import Array
from fedclust.kernels.resonance import Net

# set: rows used (None: all), parties, the authors' reported CPU seconds, the floor of their time over ours
PUBLISHED: dict[str, tuple[int | None, int, float, float]] = {
    "optdigits": (None, 50, 5.2, 10),
    "pendigits": (None, 50, 8.2, 30),
    "skin_segmentation": (10_000, 100, 3.5, 100),
}
WHOLE = {"skin_segmentation": (100, 3.0), "fashion_mnist": (100, None)}  # parties, CPU seconds at most
ABSENT = "the data set was not found, so the speed was not judged; put it into the folder $FEDCLUST_DATA"
SHAPES = {"optdigits": (5620, 64, 10), "pendigits": (10_992, 16, 10), "skin_segmentation": (245_057, 3, 2)}


def main(*, json: bool) -> int:
    """Measure each set and print seconds and ratios; floors apply to whole fits on the real rows."""
    rows: list[dict[str, Any]] = []
    for name, (count, parties, authors, floor) in PUBLISHED.items():
        X, y, real = _rows(name, count)
        fed = _spread(X, y, parties)
        parts = fc.datasets.split(X, y, parties, seed=0, setting="fcac")
        nets = min(_seconds(_nets, parts) for _ in range(10))
        whole = min(_seconds(_learn, fed) for _ in range(20))
        with kernels.use_backend("numpy"):
            twin = _seconds(_nets, parts)
        ratio = authors / whole
        label = _label(name, X, parties, real=real)
        missed = [f"{label}: {ratio:.3g} times the authors' speed, at least {floor} expected"] if ratio < floor else []
        rows.append(
            {
                "set": label,
                "whole fit s": whole,
                "authors s": authors,
                "authors / whole fit": ratio,
                "floor": floor,
                "nets alone s": nets,
                "twin's nets s": twin,
                "twin / nets": twin / nets,
                "missed": missed if real else [f"{label}: {ABSENT}"],
            }
        )
        print(f"{label}: {whole:.3f} s, authors' time divided by ours: {ratio:.3g}", file=sys.stderr)
    rows += [_whole(name) for name in WHOLE]
    return timing.show({"machine": timing.machine(), "sets": rows}, rows, as_json=json)


def _label(name: str, X: Array, parties: int, *, real: bool) -> str:
    return f"{name} {len(X)}x{X.shape[1]}, {parties} parties" + ("" if real else ", random rows of the same shape")


def _whole(name: str) -> dict[str, Any]:
    """A set with all its rows."""
    parties, most = WHOLE[name]
    try:
        X, y, real = _rows(name, None)
    except DataError as absent:  # too special to draw at random
        return {"set": name, "missed": [str(absent)]}
    label = _label(name, X, parties, real=real)
    seconds = _seconds(_learn, _spread(X, y, parties))
    print(f"{label}: {seconds:.3g} s", file=sys.stderr)
    missed = [f"{label}: {seconds:.3g} CPU s, at most {most}"] if most is not None and seconds > most else []
    return {"set": label, "whole fit s": seconds, "missed": missed if real else [f"{label}: {ABSENT}"]}


def _nets(parts: Mapping[str, Array]) -> None:
    """Only the learning, as in the authors' code: all nets of the parties, then the server's."""
    found = {}
    for party, rows in parts.items():
        net = Net.empty(rows.shape[1]).learn(rows)
        found[party] = Nodes(net.places, net.wins, net.rows_refused, has_no_memory=True)
    columns = next(iter(parts.values())).shape[1]
    Net.empty(columns).learn(order_nodes(found, columns, 0), server=True)


def _learn(fed: fc.Federation) -> None:
    fc.FCAC().fit(fed)


def _spread(X: Array, y: Array, parties: int) -> fc.Federation:
    return fc.Federation.local(fc.datasets.split(X, y, parties, seed=0, setting="fcac"))


def _rows(name: str, count: int | None) -> tuple[Array, Array, bool]:
    """Rows and classes, and whether they are the real set."""
    try:
        data = fc.datasets.load(name)
        X, y, real = data.X, np.asarray(data.y), True
    except DataError:
        if name not in SHAPES:
            raise
        shape = SHAPES[name]
        X, y, _ = fc.datasets.mixture(shape[2], shape[1], shape[0], seed=0)
        real = False
    if count is not None:
        some = np.random.RandomState(0).permutation(len(X))[:count]
        X, y = X[some], y[some]
    return X, y, real


def _seconds(work: Callable[[Any], None], on: Any) -> float:
    """CPU seconds of all threads."""
    begin = time.process_time()
    work(on)
    return time.process_time() - begin
