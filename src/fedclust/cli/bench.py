"""`fedclust bench`: ratios against peers, measured in one run on this machine."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from typing import Any

from fedclust.core.errors import RunFailed, StudyError


def add(verbs: Any) -> None:
    bench = verbs.add_parser("bench", help="measure speed against peers", description=act_bench.__doc__)
    bench.add_argument("name", metavar="NAME", help="which measurement; an unknown name lists them")
    bench.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    bench.set_defaults(act=act_bench)


def act_bench(chosen: argparse.Namespace) -> int:
    """Measure fedclust against its peers, side by side in one process."""
    known = _names()
    if chosen.name not in known:
        from fedclust.study.keys import meant

        hint = meant(chosen.name, known) or (f"choose from {', '.join(known)}" if known else "this version has none")
        raise StudyError(f"there is no benchmark '{chosen.name}'; {hint}")
    try:
        measure = importlib.import_module(f"fedclust.benchmarks.{chosen.name}")
        return int(measure.main(json=chosen.json))
    except ModuleNotFoundError as absent:
        raise RunFailed(f"this benchmark needs {absent.name}; install it with: pip install 'fedclust[bench]'") from None


def _names() -> list[str]:
    import pkgutil

    import fedclust.benchmarks as all_of_them

    return sorted(found.name for found in pkgutil.iter_modules(all_of_them.__path__) if not found.name.startswith("_"))
