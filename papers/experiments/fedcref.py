"""This experiment computes paper 4's Tables 1 to 8 with our association rule, the paper's and a perfect one.

    python -m papers.experiments.fedcref --table 3 [--quick] [--device cuda] [--workers 8] [--seeds 5] [--json]

Needs torch, numpy, scipy and scikit-learn, and image sets in $FEDCLUST_DATA: MNIST stands in for EMNIST Digits and the
union of three sets of ten classes for Kuzushiji-49, so the figures cannot be compared directly with the published ones.
`wide` is not a table of the paper: three sets, 10 to 50 sites, all levels of dirt, only our association.

Every run is a line of a file and is not repeated. So a table can be assembled from several sessions on several machines
(`--budget` ends a session after a number of seconds). The runs in `fedcref.jsonl` next to this script count too, unless
`--fresh` is given. `--quick` runs ten sites of 64 rows per class and two seeds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from fedclust import kernels
from papers.experiments.fedcref_sites import Part, central, deep_start, run

SHIPPED = Path(__file__).with_suffix(".jsonl")
RULES = ("win", "rival", "paper", "perfect")
TABLES = ("1", "2", "3", "4", "5", "6", "7", "8", "wide")
ALL = ("3", "7", "5", "1", "wide")  # in order of priority
DIRT = (0.0, 0.3, 0.5)
COUNTED = ("real", "communities", "wrong %", "isolated start", "isolated end", "ACC start", "ACC end")

# Published: communities found, wrong associations in %, isolated at the end, ACC at the end, with perfect association.
PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    "1": {"EMNIST, DEC": (10.8, 1.1, 19.1, 0.894)},
    "3": {
        "EMNIST 0": (10.1, 0.0, 17.3, 0.948, 0.982),
        "EMNIST .3": (9.8, 5.1, 16.1, 0.879, 0.949),
        "EMNIST .5": (10.2, 6.9, 48.0, 0.711, 0.914),
        "KMNIST 0": (9.8, 0.0, 18.6, 0.93, 0.963),
        "KMNIST .3": (9.8, 2.0, 19.2, 0.863, 0.933),
        "KMNIST .5": (10.8, 3.1, 31.0, 0.765, 0.905),
        "KMNIST-49 0": (27.2, 2.4, 40.0, 0.889, 0.933),
        "KMNIST-49 .3": (27.4, 7.4, 53.4, 0.769, 0.889),
        "KMNIST-49 .5": (24.8, 8.2, 89.8, 0.622, 0.849),
    },
    "5": {
        "EMNIST overlap 0": (9.8, 0.0, 18.8, 0.903, 0.953),
        "EMNIST overlap .3": (10.0, 0.0, 8.4, 0.955, 0.962),
        "EMNIST overlap .5": (10.0, 0.0, 1.3, 0.976, 0.97),
    },
    "7": {
        "EMNIST 20": (10.2, 0.2, 21.4, 0.869, 0.921),
        "EMNIST 30": (10.4, 1.4, 20.3, 0.905, 0.937),
        "EMNIST 40": (11.5, 3.4, 30.9, 0.86, 0.953),
        "EMNIST 50": (14.4, 8.7, 65.1, 0.801, 0.955),
    },
    "wide": {},
}
PUBLISHED_CENTRAL = {"ACC": 0.793, "K": 9}  # Table 2


def canonical(table: str) -> str:
    """The name of a table's runs; odd and even tables are two views of the same runs."""
    return table if table == "wide" else str(int(table) - (int(table) + 1) % 2)


def parts(table: str, seeds: int, rules: tuple[str, ...], *, quick: bool) -> Iterator[Part]:
    """The runs a table is made of, those of the first seed first."""
    few: dict[str, Any] = {"sites": 10, "most": 64} if quick else {}
    three = ("mnist",) if quick else ("mnist", "kmnist_partial", "fashion_mnist")
    for seed in range(min(seeds, 2) if quick else seeds):
        for rule in rules:
            common = {"rule": rule, "seed": seed, **few}
            if table == "1":
                yield from (Part(data, start="dec", **common) for data in three)
            elif table == "3":
                sets = three if quick else (*three, "union30")
                yield from (Part(data, dirt=dirt, **common) for data in sets for dirt in DIRT)
            elif table == "5":
                yield from (Part("mnist", dirt=0.3, overlap=overlap, **common) for overlap in DIRT)
            elif table == "7":
                counts = (10, 15) if quick else (20, 30, 40, 50)
                yield from (Part("mnist", dirt=0.3, **{**common, "sites": sites}) for sites in counts)
            elif rule == "win":
                counts = (10, 15) if quick else (10, 20, 30, 40, 50)
                wide = [(data, sites, dirt) for data in three for sites in counts for dirt in DIRT]
                yield from (Part(data, dirt=dirt, **{**common, "sites": sites}) for data, sites, dirt in wide)


@dataclass(frozen=True)
class Task:
    """One unit of work: a run, one site's DEC, or DEC on all rows together."""

    kind: str
    part: Part
    site: str = ""

    @property
    def name(self) -> str:
        return "/".join(filter(None, ("" if self.kind == "run" else self.kind, self.part.name, self.site)))

    def needs(self) -> list[Task]:
        """The work that must be done before; all rules start from the same DEC clusters."""
        if self.kind != "run" or self.part.start != "dec":
            return []
        digits = max(2, len(str(self.part.sites)))
        names = [f"site-{number:0{digits}d}" for number in range(1, self.part.sites + 1)]
        return [Task("dec", replace(self.part, rule="win"), name) for name in names]

    def work(self, device: str, known: list[str]) -> dict[str, Any]:
        if self.kind == "dec":
            return deep_start(self.part, self.site, device)
        if self.kind == "central":
            return central(self.part, device)
        starts = [np.array([int(digit, 16) for digit in labels]) for labels in known]
        names = [task.site for task in self.needs()]
        return run(self.part, device, dict(zip(names, starts, strict=True)) if starts else None)


class Known:
    """The results so far, one per line, and those that are added."""

    def __init__(self, path: Path, *, fresh: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.found: dict[str, dict[str, Any]] = {}
        for source in ([] if fresh else [SHIPPED]) + [path]:
            for line in source.read_text().splitlines() if source.exists() else ():
                one = json.loads(line)
                self.found[one.pop("name")] = one

    def add(self, name: str, one: dict[str, Any]) -> None:
        self.found[name] = one
        with self.path.open("a") as file:
            file.write(json.dumps({"name": name, **one}, default=float) + "\n")


def carried_out(tasks: list[Task], known: Known, *, device: str, workers: int, budget: float) -> None:
    """Run missing work in this order, as soon as its inputs are ready; start nothing after the budget is spent."""
    begin = time.perf_counter()
    left = {task.name: task for task in tasks if task.name not in known.found}
    # Separate processes: a run uses half a GPU and half of one core.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _alone) as pool:
        running: dict[Future[dict[str, Any]], str] = {}
        while left or running:
            late = time.perf_counter() - begin > budget
            ready = (task for task in left.values() if all(need.name in known.found for need in task.needs()))
            while not late and len(running) < workers and (task := next(ready, None)):
                labels = [known.found[need.name]["labels"] for need in task.needs()]
                running[pool.submit(task.work, device, labels)] = task.name
                del left[task.name]
                ready = (t for t in list(left.values()) if all(need.name in known.found for need in t.needs()))
            if not running:
                break
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(done)
                if done.exception():
                    print(f"{name} failed: {done.exception()!r}", file=sys.stderr, flush=True)
                    continue
                known.add(name, done.result())
                print(f"{time.perf_counter() - begin:6.1f} s  {name}  {len(left)} left", file=sys.stderr, flush=True)


def _alone() -> None:
    import torch

    torch.set_num_threads(1)
    kernels.set_threads(1)


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means and half-widths of 95% intervals over seeds."""
    keys = ("data", "sites", "dirt", "overlap", "start", "rule")
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in runs:
        groups.setdefault(tuple(one[key] for key in keys), []).append(one)
    lines = []
    for which, some in groups.items():
        line: dict[str, Any] = {**dict(zip(keys, which, strict=True)), "seeds": len(some)}
        line["rows per class"] = min(one["rows per class"] for one in some)
        for key in COUNTED:
            line[key] = _interval([one[key] for one in some])
        line["seconds"] = round(float(np.mean([sum(one["seconds"]) for one in some])), 1)
        lines.append(line)
    return lines


def _interval(values: list[float]) -> tuple[float, float]:
    wide = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else 0.0
    return round(float(np.mean(values)), 3), round(float(wide), 3)


def told(document: dict[str, Any]) -> None:
    """Print a table for people to read."""
    print(f"Table {document['table']}")
    for line in document["lines"]:
        told = (f"{key} {v[0]} ±{v[1]}" if isinstance(v, tuple) else f"{v}" for key, v in line.items())
        print("  " + "  ".join(told))
    for one in document.get("central", ()):
        print(f"  central DEC on {one['data']}, seed {one['seed']}: K {one['K']}, ACC {one['ACC']:.3f}")
    if document["published"]:
        print(
            "published numbers, on other data (communities, wrong %, isolated at the end, ACC at the end, ACC with "
            "perfect "
            "association):"
        )
    for name, row in document["published"].items():
        print(f"  {name}: {row}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--table", nargs="+", choices=TABLES, default=ALL)
    options.add_argument("--device", default="cpu")
    options.add_argument("--workers", type=int, default=1, help="processes")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--rules", nargs="+", choices=RULES, default=("win", "paper", "perfect"))
    options.add_argument("--only", default="", help="only runs whose name contains this text")
    options.add_argument(
        "--budget", type=float, default=float("inf"), help="start no further run after this many seconds"
    )
    options.add_argument("--out", type=Path, default=Path("runs/fedcref/runs.jsonl"))
    options.add_argument("--fresh", action="store_true", help="ignore the runs stored next to this script")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    known = Known(chosen.out, fresh=chosen.fresh)
    wanted: dict[str, list[Task]] = {}
    for table in dict.fromkeys(canonical(table) for table in chosen.table):
        listed = [
            p for p in parts(table, chosen.seeds, tuple(chosen.rules), quick=chosen.quick) if chosen.only in p.name
        ]
        listed = sorted(listed, key=lambda p: p.data != "mnist") if table == "1" else listed
        runs = [Task("run", part) for part in listed]
        alone = [Task("central", p) for p in listed if p.rule == "win" and p.data == "mnist"] if table == "1" else []
        before = {task: [] if task.name in known.found else task.needs() for task in runs}
        wanted[table] = [*alone, *dict.fromkeys(one for task in runs for one in (*before[task], task))]
    tasks = [task for table in wanted.values() for task in table]
    carried_out(tasks, known, device=chosen.device, workers=chosen.workers, budget=chosen.budget)
    for table, listed in wanted.items():
        there = [(task.kind, known.found[task.name]) for task in listed if task.name in known.found]
        document: dict[str, Any] = {"table": table, "lines": summary([one for kind, one in there if kind == "run"])}
        if table == "1":
            document["central"] = [one for kind, one in there if kind == "central"]
            document["published central"] = PUBLISHED_CENTRAL
        document["published"] = PUBLISHED[table]
        print(json.dumps(document, indent=1)) if chosen.json else told(document)


if __name__ == "__main__":
    main()
