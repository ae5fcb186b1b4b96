"""`python -m benchmarks NAME` measures ratios against peers in one run on this machine."""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import sys
from typing import Any

import benchmarks

HELPERS = {"__main__", "drawn_groups", "timing"}


def list_benchmarks() -> list[str]:
    """The names of the benchmarks."""
    return sorted(found.name for found in pkgutil.iter_modules(benchmarks.__path__) if found.name not in HELPERS)


def main(arguments: list[str] | None = None) -> int:
    """Measure fedclust against its peers in one process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__, allow_abbrev=False)
    parser.add_argument("name", choices=list_benchmarks(), help="the benchmark to run")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument(
        "--seeds", metavar="FIRST-LAST", help="the drawn tables of initial_centers, such as 5000-5019 (default: 0-19)"
    )
    chosen, further = parser.parse_known_args(arguments)
    options: dict[str, Any] = {"json": chosen.json}
    if chosen.seeds is not None:
        first, _, last = chosen.seeds.partition("-")
        options["seeds"] = range(int(first), int(last or first) + 1)
    try:
        measure = importlib.import_module(f"benchmarks.{chosen.name}").main
        if "arguments" in inspect.signature(measure).parameters:
            return int(measure(further, **options))
        if further:
            parser.error(f"{chosen.name} takes no arguments such as {further[0]}")
        return int(measure(**options))
    except ModuleNotFoundError as absent:
        how = "run make bench-engines" if absent.name == "fault_rig" else "install it with: pip install -e '.[bench]'"
        print(f"this benchmark needs {absent.name}; {how}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
