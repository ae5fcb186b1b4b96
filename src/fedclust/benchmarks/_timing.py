"""How benchmarks measure: interleaved, the marginal cost of an iteration, the best of several passes."""

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

Run = Callable[[int], Any]  # carry out this many iterations


def marginal(runs: Mapping[str, Run], *, few: int = 1, many: int = 4, passes: int = 5) -> dict[str, float]:
    """Seconds that one more iteration costs, for each run; all runs take turns, so that noise meets them alike."""
    seen: dict[tuple[str, int], list[float]] = {}
    for _ in range(passes):
        for name, run in runs.items():
            for count in (few, many):
                begin = time.perf_counter()
                run(count)
                seen.setdefault((name, count), []).append(time.perf_counter() - begin)
    # The least time is the one least disturbed; a difference below the clock's noise counts as that noise.
    return {n: max((min(seen[n, many]) - min(seen[n, few])) / (many - few), 1e-7) for n in runs}


def machine() -> dict[str, Any]:
    """Where the figures were taken."""
    return {
        "fedclust": __version__,
        "kernels": kernels.backend(),
        "threads": kernels.threads(),
        "cores": os.cpu_count(),
        "processor": _processor(),
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
    """Say which floors were missed, if any; then the command fails."""
    missed = [text for row in rows for text in row.get("missed", ())]
    for text in missed:
        print(f"missed: {text}", file=sys.stderr)
    return 1 if missed else 0


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 a pseudo-file
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
