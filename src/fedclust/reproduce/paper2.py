"""Paper 2's tables and figures: an index that parties compute together, and the number of clusters by it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedclust.reproduce import runs_choice as runs
from fedclust.reproduce.bench import Bench, Found
from fedclust.reproduce.catalogue import experiment
from fedclust.reproduce.published import place
from fedclust.validation.select_range import elbow

INDEX = "fuzzy Davies-Bouldin"
CLIENTS = ("client 1", "client 2", "client 3")
PARTIES = {"central": 1, "2 clients": 2, "5 clients": 5, "10 clients": 10}
SDS, DIMS = range(10, 101, 10), (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
FILTER = 1.3
QUANTILES = {"25% quantile": 0.25, "50% quantile": 0.5, "75% quantile": 0.75, "minimum": 0.0, "maximum": 1.0}
SUBSET = "quick: 6 of the 100 sets, so quantiles and rates are shown and not compared"


def _draws(bench: Bench) -> dict[int, list[dict[str, Any]]]:
    seeds = bench.seeds(20, 3)
    asked = [{"seed": seed, "k": k} for k in range(2, 9) for seed in seeds]
    done = bench.all(runs.motivational_draw, asked)
    return {k: [own for own, what in zip(done, asked, strict=True) if what["k"] == k] for k in range(2, 9)}


def _least(draws: dict[int, list[dict[str, Any]]], of: Any, ks: range) -> list[int]:
    """Of each draw the K with the least value."""
    count = len(draws[2])
    return [min(ks, key=lambda k: float(of(draws[k][at]))) for at in range(count)]


@experiment("paper2-table1", full="10 min", quick="2 min")
def table_1(bench: Bench) -> Found:
    """The example with k-means averaging."""
    found = bench.found("paper2-table1")
    draws = _draws(bench)
    for k, some in draws.items():
        found.cell(INDEX, f"K = {k}", "central", [own["central"] for own in some])
        found.cell(INDEX, f"K = {k}", "federated", [own["k-means"] for own in some])
        for at, client in enumerate(CLIENTS if k <= 5 else ()):
            found.cell(INDEX, f"K = {k}", client, [own["clients"][at] for own in some])
    central = _least(draws, lambda own: own["central"], range(2, 9))
    federated = _least(draws, lambda own: own["k-means"], range(2, 9))
    alone = [_least(draws, lambda own, at=at: own["clients"][at], range(2, 6)) for at in range(3)]
    found.claim(
        "five",
        holds=bool(np.mean([k == 5 for k in central + federated]) > 0.8),
        measured=f"{central.count(5)} of {len(central)} draws centrally, {federated.count(5)} federated",
    )
    found.claim(
        "two",
        holds=all(k == 2 for own in alone for k in own),
        measured=f"{sum(k == 2 for own in alone for k in own)} of {3 * len(central)} clients",
    )
    rivals = [place(INDEX, "K = 5", "central"), place(INDEX, "K = 5", "federated")]
    found.best(
        "index at K = 5",
        "averaged fuzzy c-means, best of 4 by the objective",
        [own["k-means"] for own in draws[5]],
        rivals,
    )
    chosen = bench.all(runs.motivational_choice, [{"seed": seed} for seed in bench.seeds(20, 3)])
    found.notes.append(f"K by our default over the three clients: 5 in {chosen.count(5)} of {len(chosen)} draws.")
    return found


@experiment("paper2-table2", full="as paper2-table1", quick="as paper2-table1")
def table_2(bench: Bench) -> Found:
    """The example with federated averaging, index by index."""
    found = bench.found("paper2-table2")
    draws = _draws(bench)
    for k, some in draws.items():
        found.cell(INDEX, f"K = {k}", "central", [own["central"] for own in some])
        found.cell(INDEX, f"K = {k}", "federated", [own["index"] for own in some])
        for at, client in enumerate(CLIENTS if k <= 5 else ()):
            found.cell(INDEX, f"K = {k}", client, [own["scored at clients"][at] for own in some])
    federated = _least(draws, lambda own: own["index"], range(2, 9))
    found.claim(
        "wrong",
        holds=federated.count(5) < len(federated) / 2,
        measured=f"five in {federated.count(5)} of {len(federated)} draws",
    )
    higher = [float(own["index"]) > float(own["k-means"]) for some in draws.values() for own in some]
    found.claim("higher", holds=bool(np.mean(higher) > 0.8), measured=f"in {np.mean(higher):.0%} of draws and K")
    found.best(
        "index at K = 5",
        "averaged fuzzy c-means, best of 4 by the objective",
        [own["k-means"] for own in draws[5]],
        [place(INDEX, "K = 5", "federated")],
    )
    return found


@experiment("paper2-fig1", full="as paper2-table1", quick="as paper2-table1")
def figure_1(bench: Bench) -> Found:
    """The example's clients, and the federated centres over them."""
    import fedclust as fc  # noqa: PLC0415 rows to draw

    found = bench.found("paper2-fig1")
    draws = _draws(bench)
    parties, _ = fc.datasets.motivational(0)
    series: dict[str, Any] = {name: rows[::4].tolist() for name, rows in parties.items()}
    series["federated centres"] = draws[5][0]["centres"]
    found.figure(
        "example", "Every fourth row of one draw, and the centres of FedFCM", ("x", "y"), series, kind="points"
    )
    apart = [own["apart"] for own in draws[5]]
    found.claim(
        "recovered",
        holds=bool(np.median(apart) < 0.2),
        measured=f"distance of the five centres from the true ones: median {np.median(apart):.3f}, "
        f"largest {np.max(apart):.3f}",
    )
    return found


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
    shown.append(["our default of select_k, 10 clients, no filter", f"{ours:.1f}", len(chosen)])
    found.table("Per cent of sets on which two clusters are found", ["", "per cent", "sets"], shown)
    if bench.quick:
        found.notes.append(SUBSET)
    else:
        block = "per cent of sets with an index below 1.3"
        rivals = [place(block, "k-means averaging", column) for column in PARTIES]
        found.best("sets on which two are found", "select_k's default on all sets, unfiltered", [ours], rivals)
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
    found.claim("two dimensions", holds=0.15 <= central["dim"][2] <= 0.4, measured=f"central: {central['dim'][2]:.2f}")
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


@experiment("paper2-fig5", full="3 min", quick="1 min")
def figure_5(bench: Bench) -> Found:
    """The index of single jobs by K."""
    found = bench.found("paper2-fig5")
    if not bench.at_hand(["bank_full"], found):
        return found
    series = {}
    for job in bench.few(["management", "technician", "student", "entrepreneur"], ["student", "entrepreneur"]):
        ks = range(2, 10)
        values = [own["index"] for own in bench.all(runs.bank_alone, [_alone(job, k) for k in ks])]
        series[job] = [[float(k), float(v)] for k, v in zip(ks, values, strict=True)]
        found.cell("K by the elbow", job, "K", [elbow(list(ks), [float(v) for v in values])])
    found.figure("jobs", "Index of single jobs", ("K", INDEX), series)
    return found


def _alone(job: str, k: int) -> dict[str, Any]:
    return {"data": "bank_full", "job": job, "k": k}


def _curve(bench: Bench, method: str, ks: list[int]) -> list[dict[str, Any]]:
    asked = [{"data": "bank_full", "method": method, "k": k, "restarts": 1 if bench.quick else 3} for k in ks]
    return bench.all(runs.bank_fit, asked)


@experiment("paper2-fig6", full="8 min", quick="2 min")
def figure_6(bench: Bench) -> Found:
    """The index over all jobs by K, federated and central."""
    found = bench.found("paper2-fig6")
    if not bench.at_hand(["bank_full"], found):
        return found
    counts = bench.one(runs.bank_counts, data="bank_full")["rows"]
    for job, rows in {"all": sum(counts.values()), **counts}.items():
        found.cell("rows", job, "rows", [rows])
    ks = bench.few(list(range(3, 10)), [3, 4, 5, 6])
    curves = {m: [float(own["index"]) for own in _curve(bench, m, ks)] for m in ("federated", "central")}
    series = {m: [[float(k), v] for k, v in zip(ks, own, strict=True)] for m, own in curves.items()}
    found.figure("bank", "Index by K", ("K", INDEX), series)
    bends = {m: elbow(ks, own) for m, own in curves.items()}
    found.claim(
        "elbow",
        holds=bends["federated"] in {4, 5, 6} and bends["central"] in {4, 6},
        measured=f"federated {bends['federated']}, central {bends['central']}",
    )
    lower = [a < b for a, b in zip(curves["federated"], curves["central"], strict=True)]
    found.claim("lower", holds=bool(np.mean(lower) > 0.5), measured=f"lower at {sum(lower)} of {len(lower)} K")
    return found


@experiment("paper2-fig7", full="part of paper2-fig6", quick="part of paper2-fig6")
def figure_7(bench: Bench) -> Found:
    """Four clusters of customers: where the wealthy are."""
    found = bench.found("paper2-fig7")
    if not bench.at_hand(["bank_full"], found):
        return found
    centres = {m: np.array(_curve(bench, m, [4])[0]["centres"]) for m in ("federated", "central")}
    block = "balance of the wealthiest centre, in standard deviations"
    for method, own in centres.items():
        found.cell(block, method, "balance", [own[:, 1].max()])
    counts = bench.one(runs.bank_counts, data="bank_full")
    found.cell("per cent with a balance above 2.4", "rows", "per cent", [100 * counts["wealthy"]])
    if not bench.quick:
        local = np.concatenate(
            [own["centres"] for own in bench.all(runs.bank_alone, [_alone(job, 4) for job in counts["rows"]])]
        )
        share = 100 * float((local[:, 1] > 2.4).mean())
        found.cell("per cent with a balance above 2.4", "local centres", "per cent", [share])
    poor = {m: own[np.argsort(own[:, 1])[:3]] for m, own in centres.items()}
    apart = [float(np.linalg.norm(poor["central"] - one, axis=1).min()) for one in poor["federated"]]
    found.claim(
        "three alike", holds=max(apart) < 0.5, measured=f"distances {', '.join(f'{value:.2f}' for value in apart)}"
    )
    series = {m: [[float(age), float(balance)] for age, balance, _ in own] for m, own in centres.items()}
    found.figure("centres", "Centres at K = 4", ("age", "balance"), series, kind="points")
    return found
