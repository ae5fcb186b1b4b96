"""Benchmarks interleave their runs and take the marginal cost of an iteration, the best of several passes."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedclust import __version__, kernels

Run = Callable[[int], Any]  # runs this many iterations


def marginal(runs: Mapping[str, Run], *, few: int = 1, most: int = 12) -> dict[str, float]:
    """Seconds that one more iteration costs, for each run; runs alternate, so that noise affects all equally.

    A quick run is given more iterations, and more turns, than a slow one.
    """
    more = {name: _iterations(run, few, most) for name, run in runs.items()}
    turns = {name: 6 if 2 * extra >= most else 3 for name, extra in more.items()}
    seen: dict[tuple[str, int], list[float]] = {}
    for turn in range(max(turns.values())):
        for name, run in runs.items():
            for count in (few, few + more[name]) if turn < turns[name] else ():
                seen.setdefault((name, count), []).append(_seconds(run, count))
    # The shortest time is the least disturbed one.
    return {n: (min(seen[n, few + more[n]]) - min(seen[n, few])) / more[n] for n in runs}


def _iterations(run: Run, few: int, most: int) -> int:
    """How many more iterations take about half a second, from 2 to `most`; the smaller of two measurements."""
    run(few)
    longer, shorter = (min(_seconds(run, count) for _ in range(2)) for count in (few + 2, few))
    each = max((longer - shorter) / 2, 1e-3)
    return min(max(round(0.5 / each), 2), most)


def _seconds(run: Run, count: int) -> float:
    begin = time.perf_counter()
    run(count)
    return time.perf_counter() - begin


def machine() -> dict[str, Any]:
    """The machine that was measured."""
    return {
        "fedclust": __version__,
        "kernels": kernels.backend(),
        "threads": kernels.threads(),
        "cores": os.cpu_count(),
        "processor": processor(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def show(document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> int:
    """Print the figures as one JSON document, or as a table."""
    if as_json:
        print(json.dumps(document, indent=1))
        return _missed(rows)
    columns = [key for key in dict.fromkeys(key for row in rows for key in row) if key != "missed"]
    cells = [[_cell(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(c) for c in (key, *(line[i] for line in cells))) for i, key in enumerate(columns)]
    for line in (columns, *cells):
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))
    return _missed(rows)


def _missed(rows: Sequence[Mapping[str, Any]]) -> int:
    """Print the floors that were missed; if there are any, the command fails."""
    missed = [text for row in rows for text in row.get("missed", ())]
    for text in missed:
        print(f"missed: {text}", file=sys.stderr)
    return 1 if missed else 0


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 a pseudo-file
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
