"""Paper 4's tables and figures show clusters refined by autoencoders that sites exchange, on substitute data sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedclust.core.errors import FedclustError
from papers.reproduction import runs_deep as runs
from papers.reproduction.catalogue import RECORDED, experiment
from papers.reproduction.published import place
from papers.reproduction.workbench import Bench, Found

SETS = {"EMNIST": "mnist", "KMNIST": "kmnist_partial", "KMNIST-49": "union30"}
STANDS_IN = (
    "Replacement data: MNIST for EMNIST Digits, 16,283 images of KMNIST for KMNIST, and MNIST + KMNIST + Fashion for "
    "Kuzushiji-49."
)
OUTCOME = {
    "communities": "communities",
    "wrong associations, per cent": "wrong %",
    "isolated at the start": "isolated start",
    "isolated at the end": "isolated end",
}
OURS = "FedCRef with our association"
END = "ACC at the end"
RUN = {"full": RECORDED, "quick": RECORDED}


def _found(bench: Bench, name: str) -> Found | None:
    """An empty result, or one that says that the runs are not there."""
    found = bench.found(name)
    if runs.recorded() is None:
        found.absent["fedcref.jsonl"] = runs.HOW
        return None
    found.size = "full"  # recorded runs are those of the paper's sizes, as far as the sets go
    found.notes.append(STANDS_IN)
    found.notes.append(
        "The columns of the paper are computed with the paper's association rule in our loop. The results with our own "
        "association are listed separately."
    )
    return found


def _timed(found: Found, some: list[dict[str, Any]]) -> None:
    seconds = sum(sum(own["seconds"]) for own in some)
    found.notes.append(
        f"{len(some)} recorded runs, {seconds:,.0f} s in all, up to sixteen at a time on an NVIDIA H200."
    )


def _absent(bench: Bench, name: str) -> Found:
    found = bench.found(name)
    found.absent["fedcref.jsonl"] = runs.HOW
    return found


def _rows(table: str) -> dict[str, dict[str, Any]]:
    """The facts of the runs behind each row of a table."""
    if table in {"3", "4"}:
        return {
            f"{name}, {dirt}": {"data": data, "sites": 25, "dirt": dirt, "overlap": 0.0, "start": "oracle"}
            for name, data in SETS.items()
            for dirt in (0.0, 0.3, 0.5)
        }
    common = {"data": "mnist", "dirt": 0.3, "start": "oracle"}
    if table in {"5", "6"}:
        return {f"EMNIST, {o}": {**common, "sites": 25, "overlap": o} for o in (0.0, 0.3, 0.5)}
    return {f"EMNIST, {n}": {**common, "sites": n, "overlap": 0.0} for n in (20, 30, 40, 50)}


def _communities(bench: Bench, number: str) -> Found:
    """Communities, wrong associations and isolated clusters of a table."""
    found = _found(bench, f"paper4-table{number}")
    if found is None:
        return _absent(bench, f"paper4-table{number}")
    shown, used = [], []
    for row, facts in _rows(number).items():
        some, ours = runs.chosen(**facts, rule="paper"), runs.chosen(**facts, rule="win")
        used += some + ours
        for column, key in OUTCOME.items():
            if some:
                found.cell("outcome", row, column, [own[key] for own in some])
        if ours:
            size = min(own["rows per class"] for own in ours)
            means = [float(np.mean([own[key] for own in ours])) for key in OUTCOME.values()]
            shown.append([row, size, np.mean([own["real"] for own in ours]), *means])
    found.table(f"{OURS}, five seeds", ["", "rows per class", "classes at two sites or more", *OUTCOME], shown)
    _timed(found, used)
    return found


def _accuracies(bench: Bench, number: str) -> Found:
    """ACC at the end, by the paper's rule, perfect association and ours."""
    found = _found(bench, f"paper4-table{number}")
    if found is None:
        return _absent(bench, f"paper4-table{number}")
    used = []
    for row, facts in _rows(number).items():
        for column, rule in (("FedCRef", "paper"), ("perfect association", "perfect")):
            if some := runs.chosen(**facts, rule=rule):
                used += some
                found.cell(END, row, column, [own["ACC end"] for own in some])
                if number == "4" and rule == "paper":
                    found.cell("ACC at the start", row, "start", [own["ACC start"] for own in some])
        if ours := runs.chosen(**facts, rule="win"):
            used += ours
            rivals = [place(END, row, column) for column in ("FedCRef", "perfect association")]
            found.best(row, OURS, [own["ACC end"] for own in ours], rivals)
    _timed(found, used)
    return found


@experiment("paper4-table1", **RUN)
def table_1(bench: Bench) -> Found:
    """DEC at each site, then refinement."""
    found = _found(bench, "paper4-table1")
    if found is None:
        return _absent(bench, "paper4-table1")
    facts = {"data": "mnist", "sites": 25, "dirt": 0.0, "overlap": 0.0, "start": "dec"}
    some, ours = runs.chosen(**facts, rule="paper"), runs.chosen(**facts, rule="win")
    for column, key in {"ACC at the start": "ACC start", **OUTCOME}.items():
        found.cell("outcome", "EMNIST", column, [own[key] for own in some])
    found.cell(END, "EMNIST", "FedCRef", [own["ACC end"] for own in some])
    found.best("EMNIST", OURS, [own["ACC end"] for own in ours], [place(END, "EMNIST", "FedCRef")])
    _timed(found, some + ours)
    return found


@experiment("paper4-table2", **RUN)
def table_2(bench: Bench) -> Found:
    """Beside DEC on all rows together."""
    found = _found(bench, "paper4-table2")
    if found is None:
        return _absent(bench, "paper4-table2")
    facts = {"data": "mnist", "sites": 25, "dirt": 0.0, "overlap": 0.0, "start": "dec"}
    some, ours, central = (
        runs.chosen(**facts, rule="paper"),
        runs.chosen(**facts, rule="win"),
        runs.chosen(central=True, data="mnist", start="dec"),
    )
    for row, own, acc, k in (("FedCRef", some, "ACC end", "communities"), ("Global DEC", central, "ACC", "K")):
        found.cell("ACC", row, "ACC", [one[acc] for one in own])
        found.cell("clusters found", row, "K", [one[k] for one in own])
    found.best("ACC", OURS, [own["ACC end"] for own in ours], [place("ACC", "FedCRef", "ACC")])
    means = [float(np.mean(own)) for own in ([o["ACC end"] for o in some], [o["ACC"] for o in central])]
    found.claim("better", holds=means[0] > means[1], measured=f"FedCRef {means[0]:.3f}, central DEC {means[1]:.3f}")
    _timed(found, some + ours)
    return found


@experiment("paper4-table3", **RUN)
def table_3(bench: Bench) -> Found:
    """Dirt: communities."""
    found = _communities(bench, "3")
    ten = [
        float(np.mean(values))
        for at, values in found.cells.items()
        if at.endswith("| communities") and "KMNIST-49" not in at
    ]
    if ten:
        found.claim(
            "classes",
            holds=all(abs(value - 10) <= 1 for value in ten),
            measured="by the paper's rule " + ", ".join(f"{value:.1f}" for value in ten),
        )
    return found


@experiment("paper4-table4", **RUN)
def table_4(bench: Bench) -> Found:
    """Dirt: accuracy."""
    return _accuracies(bench, "4")


@experiment("paper4-table5", **RUN)
def table_5(bench: Bench) -> Found:
    """Overlap: communities."""
    return _communities(bench, "5")


@experiment("paper4-table6", **RUN)
def table_6(bench: Bench) -> Found:
    """Overlap: accuracy."""
    found = _accuracies(bench, "6")
    values = [float(np.mean(own)) for at, own in found.cells.items() if at.endswith("| FedCRef")]
    if values:
        found.claim(
            "overlap helps", holds=values == sorted(values), measured=", ".join(f"{value:.3f}" for value in values)
        )
    return found


@experiment("paper4-table7", **RUN)
def table_7(bench: Bench) -> Found:
    """Sites: communities."""
    return _communities(bench, "7")


@experiment("paper4-table8", **RUN)
def table_8(bench: Bench) -> Found:
    """Sites: accuracy."""
    return _accuracies(bench, "8")


@experiment("paper4-fig4", full="3 min", quick="30 s")
def figures_4_6_and_7(bench: Bench) -> Found:
    """The course of small runs: by both rules, by overlap, by sites."""
    found = bench.found("paper4-fig4")
    rules = {"the paper's rule": "paper", "ours": "win"}
    try:
        done = {
            name: bench.all(runs.course, [{"rule": rule, "seed": seed} for seed in bench.seeds(5, 1)])
            for name, rule in rules.items()
        }
        by = {
            "overlap": {
                f"overlap {o:g}": bench.one(runs.course, rule="win", seed=0, overlap=o) for o in (0.0, 0.3, 0.5)
            },
            "sites": {
                f"{n} sites": bench.one(runs.course, rule="win", seed=0, sites=n) for n in bench.few((6, 8, 12), (6, 8))
            },
        }
    except FedclustError as absent:
        if "torch" not in str(absent):
            raise
        found.absent["torch"] = "not installed; pip install 'fedclust[deep]'"
        return found
    for key in ("communities", "isolated", "active"):
        series = {name: [[float(at), float(own[key])] for at, own in enumerate(some[0])] for name, some in done.items()}
        found.figure(key, f"{key} by iteration, first seed", ("iteration", key), series)
    for what, some in by.items():
        for key in ("communities", "isolated"):
            series = {name: [[float(at), float(own[key])] for at, own in enumerate(one)] for name, one in some.items()}
            found.figure(
                f"{key}-by-{what}", f"{key} by iteration and {what}, with our rule", ("iteration", key), series
            )
    ends = [some[-1] for some in done["ours"]]
    both = list(zip(done["ours"], ends, strict=True))
    found.claim(
        "settles",
        holds=all(own["communities"] >= 5 and own["isolated"] < some[0]["isolated"] / 2 for some, own in both),
        measured="our rule ends with "
        + "; ".join(f"{own['communities']} communities, {own['isolated']} isolated" for own in ends),
    )
    found.notes.append(
        "Replacement data: eight sites, each with 25 rows of two or three of scikit-learn's digits, dirt .3."
    )
    found.notes.append(
        "Accuracy and wrong associations by iteration are not plotted, because a run does not store the labels."
    )
    return found


@experiment("paper4-fig5", **RUN)
def figure_5(bench: Bench) -> Found:
    """DEC on all rows together: silhouette and accuracy by K."""
    found = _found(bench, "paper4-fig5")
    if found is None:
        return _absent(bench, "paper4-fig5")
    central = runs.chosen(central=True, data="mnist", start="dec")
    ks = sorted({int(k) for own in central for k in own["tried"]})
    curves = {
        name: [[float(k), float(np.mean([own["tried"][str(k)][at] for own in central]))] for k in ks]
        for at, name in enumerate(("silhouette", "ACC"))
    }
    for name, points in curves.items():
        found.figure(name.lower(), f"{name}, mean of {len(central)} seeds", ("K", name), {"DEC": points})
    chosen = [own["K"] for own in central]
    found.claim(
        "nine", holds=round(float(np.mean(chosen))) == 9, measured=f"K by the silhouette: {', '.join(map(str, chosen))}"
    )
    return found
