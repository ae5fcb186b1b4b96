"""Paper 2's experiments on the G2 sets count how often two clusters are found, with even and uneven clients."""

from __future__ import annotations

from typing import Any

import numpy as np

from papers.reproduction import runs_choice as runs
from papers.reproduction.catalogue import experiment
from papers.reproduction.published import place
from papers.reproduction.workbench import Bench, Found

INDEX = "fuzzy Davies-Bouldin"
PARTIES = {"central": 1, "2 clients": 2, "5 clients": 5, "10 clients": 10}
SDS, DIMS = range(10, 101, 10), (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
FILTER = 1.3
QUANTILES = {"25% quantile": 0.25, "50% quantile": 0.5, "75% quantile": 0.75, "minimum": 0.0, "maximum": 1.0}
SUBSET = "--quick uses 6 of the 100 sets, so quantiles and rates are shown but not compared"


def _g2(bench: Bench, average: str) -> dict[str, dict[tuple[int, int], list[dict[str, Any]]]]:
    """Runs by number of clients, standard deviation and dimension."""
    sets = [(sd, dim) for dim in bench.few(DIMS, (2, 8)) for sd in bench.few(SDS, (10, 50, 90))]
    asked = [
        {"sd": sd, "dim": dim, "parties": count, "average": "kmeans" if count == 1 else average, "seed": seed}
        for count in bench.few(list(PARTIES.values()), [1, 2, 10])
        for sd, dim in sets
        for seed in bench.seeds(3, 1)
    ]
    found: dict[str, dict[tuple[int, int], list[dict[str, Any]]]] = {}
    names = {count: name for name, count in PARTIES.items()}
    for what, own in zip(asked, bench.all(runs.g2_run, asked), strict=True):
        found.setdefault(names[what["parties"]], {}).setdefault((what["sd"], what["dim"]), []).append(own)
    return found


def _right(own: dict[str, Any]) -> bool:
    values = [float(value) for value in own["index"]]
    return values[0] == min(values)


def _repeats(some: dict[tuple[int, int], list[dict[str, Any]]], of: Any) -> list[float]:
    """A number of each repeat over all sets."""
    return [of([own[at] for own in some.values()]) for at in range(min(map(len, some.values())))]


def _rate(some: list[dict[str, Any]]) -> float:
    kept = [own for own in some if float(own["index"][0]) < FILTER]
    return 100 * float(np.mean([_right(own) for own in kept])) if kept else float("nan")


@experiment("paper2-table3", full="3 h", quick="3 min")
def table_3(bench: Bench) -> Found:
    """How often the least index is at two."""
    found = bench.found("paper2-table3")
    shown = []
    for row, average in (("k-means averaging", "kmeans"), ("federated averaging", "index")):
        for column, some in _g2(bench, average).items():
            if row != "k-means averaging" and column == "central":
                continue
            values = _repeats(some, _rate)
            shown.append([f"{row}, {column}", f"{np.mean(values):.1f}", len(some)])
            if not bench.quick:
                found.cell("per cent of sets with an index below 1.3", row, column, values)
    chosen = _ours(bench, choose=True)
    ours = 100 * float(np.mean([own["k"] == 2 for own in chosen.values()]))
    shown.append(["our default of select_k, 10 clients, no filter, D up to 64", f"{ours:.1f}", len(chosen)])
    found.table("Per cent of sets on which two clusters are found", ["", "per cent", "sets"], shown)
    if bench.quick:
        found.notes.append(SUBSET)
    else:
        block = "per cent of sets with an index below 1.3"
        rivals = [place(block, "k-means averaging", column) for column in PARTIES]
        rivals += [place(block, "federated averaging", column) for column in PARTIES if column != "central"]
        found.best(
            "sets on which two are found", "select_k's default, ten clients, no filter, D up to 64", [ours], rivals
        )
    return found


def _ours(bench: Bench, *, choose: bool) -> dict[tuple[int, int], dict[str, Any]]:
    few = (2, 4, 8, 16, 32, 64) if choose else DIMS
    asked = [
        {"sd": sd, "dim": dim, "choose": choose}
        for dim in bench.few(few, (2, 8))
        for sd in bench.few(SDS, (10, 50, 90))
    ]
    done = bench.all(runs.g2_ours, asked)
    return {(what["sd"], what["dim"]): own for what, own in zip(asked, done, strict=True)}


def _quantiles(bench: Bench, name: str, *, average: str, block: str, of: Any, ours_of: str) -> Found:
    found = bench.found(name)
    shown = []
    for column, some in _g2(bench, average).items():
        for row, share in QUANTILES.items():
            values = _repeats(some, lambda own, share=share: float(np.quantile([of(one) for one in own], share)))
            shown.append([f"{row}, {column}", f"{np.mean(values):.4f}"])
            if not bench.quick:
                found.cell(block, row, column, values)
    own = [float(one[ours_of]) for one in _ours(bench, choose=False).values()]
    for row, share in QUANTILES.items():
        value = float(np.quantile(own, share))
        shown.append([f"{row}, ours (hard c-means)", f"{value:.4f}"])
        if not bench.quick and row != "maximum":
            found.best(row, "lossless hard c-means, 10 clients", [value], [place(block, row, c) for c in PARTIES])
    if bench.quick:
        found.notes.append(SUBSET)
    found.table("Quantiles over the sets", ["", block], shown)
    return found


def _index(own: dict[str, Any]) -> float:
    return float(own["index"][0])


def _gap(own: dict[str, Any]) -> float:
    return float(own["gap"])


@experiment("paper2-table4", full="as paper2-table3", quick="as paper2-table3")
def table_4(bench: Bench) -> Found:
    """Index, k-means averaging."""
    return _quantiles(
        bench, "paper2-table4", average="kmeans", block="fuzzy Davies-Bouldin at K = 2", of=_index, ours_of="index"
    )


@experiment("paper2-table5", full="as paper2-table3", quick="as paper2-table3")
def table_5(bench: Bench) -> Found:
    """Index, federated averaging."""
    return _quantiles(
        bench, "paper2-table5", average="index", block="fuzzy Davies-Bouldin at K = 2", of=_index, ours_of="index"
    )


@experiment("paper2-table6", full="as paper2-table3", quick="as paper2-table3")
def table_6(bench: Bench) -> Found:
    """Knowledge gap, k-means averaging."""
    return _quantiles(bench, "paper2-table6", average="kmeans", block="knowledge gap at K = 2", of=_gap, ours_of="gap")


@experiment("paper2-table7", full="as paper2-table3", quick="as paper2-table3")
def table_7(bench: Bench) -> Found:
    """Knowledge gap, federated averaging."""
    return _quantiles(bench, "paper2-table7", average="index", block="knowledge gap at K = 2", of=_gap, ours_of="gap")


@experiment("paper2-fig2", full="as paper2-table3", quick="as paper2-table3")
def figures_2_and_3(bench: Bench) -> Found:
    """Detection by standard deviation and by dimension."""
    found = bench.found("paper2-fig2")
    by: dict[str, dict[str, list[list[float]]]] = {"sd": {}, "dim": {}}
    done = _g2(bench, "kmeans")
    for column, some in done.items():
        for at, axis in enumerate(("sd", "dim")):
            for value in sorted({key[at] for key in some}):
                rate = np.mean([_right(one) for key, own in some.items() if key[at] == value for one in own])
                by[axis].setdefault(column, []).append([float(value), float(rate)])
    found.figure("by-sd", "Two clusters found, by standard deviation", ("standard deviation", "share"), by["sd"])
    dims = {name: [[float(np.log2(x)), y] for x, y in points] for name, points in by["dim"].items()}
    found.figure("by-dimension", "Two clusters found, by dimension", ("log2 of the dimension", "share"), dims)
    central = {axis: {point[0]: point[1] for point in by[axis]["central"]} for axis in by}
    easy = [rate for sd, rate in central["sd"].items() if sd <= 30]
    found.claim("easy", holds=min(easy) >= 0.9, measured=f"central: {', '.join(f'{rate:.2f}' for rate in easy)}")
    found.claim(
        "two dimensions",
        holds=0.15 <= central["dim"][2] <= 0.4,
        measured=f"central: {central['dim'][2]:.2f}; .15 to .4 is enough for the claim",
    )
    found.claim(
        "eight",
        holds=central["dim"][8] >= 0.9 and central["dim"][8] == max(central["dim"].values()),
        measured=f"central: {central['dim'][8]:.2f}",
    )
    if bench.quick:
        found.notes.append(SUBSET)
    return found


@experiment("paper2-fig4", full="as paper2-table3", quick="as paper2-table3")
def figure_4(bench: Bench) -> Found:
    """The index at two, by standard deviation."""
    found = bench.found("paper2-fig4")
    series = {
        column: [
            [float(sd), float(np.median([_index(one) for key, own in some.items() if key[0] == sd for one in own]))]
            for sd in sorted({key[0] for key in some})
        ]
        for column, some in _g2(bench, "kmeans").items()
    }
    found.figure("index-by-sd", "Median index at K = 2", ("standard deviation", INDEX), series, log=True)
    rising = [[y for _, y in points] for points in series.values()]
    found.claim(
        "grows",
        holds=all(own == sorted(own) for own in rising),
        measured="medians over dimensions, " + "; ".join(f"{own[0]:.2f} to {own[-1]:.2f}" for own in rising),
    )
    return found


@experiment("paper2-noniid", full="2 min", quick="20 s")
def uneven_clients(bench: Bench) -> Found:
    """G2 sets whose clients hold ever more of one cluster: the gap of the averages, and of the lossless run."""
    found = bench.found("paper2-noniid")
    betas: list[float | None] = bench.few([None, 5.0, 1.0, 0.3, 0.1], [None, 1.0, 0.1])
    same = []
    for sd in bench.few([30, 50, 70], [50]):
        series: dict[str, list[list[float]]] = {}
        for name, method in (("lossless", "lossless"), ("k-means averaging", "kmeans"), ("by index", "index")):
            for at, beta in enumerate(betas):
                asked = [
                    {"sd": sd, "dim": 8, "method": method, "beta": beta, "seed": seed} for seed in bench.seeds(5, 2)
                ]
                done = bench.all(runs.g2_uneven, asked)
                series.setdefault(name, []).append([float(at), float(np.mean([own["gap"] for own in done]))])
                if method == "lossless":
                    same.append([own["bits"] for own in done])
        axis = "even, then Dirichlet " + ", ".join(f"{beta:g}" for beta in betas if beta is not None)
        found.figure(f"uneven-{sd}", f"sd {sd}, D 8, five clients", (axis, "knowledge gap"), series)
        found.claim(
            "same bits",
            holds=all(own == same[0] for own in same),
            measured=f"{len(same)} ways to distribute the rows, compared bit by bit",
        )
        if not found.claims["same bits"]["holds"]:
            break
        same.clear()
    return found
