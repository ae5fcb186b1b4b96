"""Paper 2's tables and figures show an index that parties compute together, and the K that it chooses."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedclust.questions.choice_of_k.k_range import elbow
from papers.reproduction import runs_choice as runs
from papers.reproduction.catalogue import experiment
from papers.reproduction.published import place
from papers.reproduction.workbench import Bench, Found

INDEX = "fuzzy Davies-Bouldin"
CLIENTS = ("client 1", "client 2", "client 3")


def _draws(bench: Bench) -> dict[int, list[dict[str, Any]]]:
    seeds = bench.seeds(20, 3)
    asked = [{"seed": seed, "k": k} for k in range(2, 9) for seed in seeds]
    done = bench.all(runs.motivational_draw, asked)
    return {k: [own for own, what in zip(done, asked, strict=True) if what["k"] == k] for k in range(2, 9)}


def _least(draws: dict[int, list[dict[str, Any]]], of: Any, ks: range) -> list[int]:
    """The K with the smallest value, for each draw."""
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
        measured=f"five clusters in {central.count(5)} of {len(central)} draws (central) and in {federated.count(5)} "
        "(federated)",
    )
    found.claim(
        "two",
        holds=all(k == 2 for own in alone for k in own),
        measured=f"two clusters at {sum(k == 2 for own in alone for k in own)} of {3 * len(central)} clients",
    )
    rivals = [place(INDEX, "K = 5", "central"), place(INDEX, "K = 5", "federated")]
    found.best(
        "index at K = 5",
        "averaged fuzzy c-means, best of 4 by the objective",
        [own["k-means"] for own in draws[5]],
        rivals,
    )
    chosen = bench.all(runs.motivational_choice, [{"seed": seed} for seed in bench.seeds(20, 3)])
    found.notes.append(f"Our default chooses K = 5 for the three clients in {chosen.count(5)} of {len(chosen)} draws.")
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
        measured=f"five clusters in {federated.count(5)} of {len(federated)} draws",
    )
    higher = [float(own["index"]) > float(own["k-means"]) for some in draws.values() for own in some]
    found.claim(
        "higher",
        holds=bool(np.mean(higher) > 0.8),
        measured=f"higher in {np.mean(higher):.0%} of all draws and values of K",
    )
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
    import fedclust as fc

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


@experiment("paper2-fig5", full="3 min", quick="1 min", methods=("choice-of-k",))
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


@experiment("paper2-fig6", full="8 min", quick="2 min", methods=("choice-of-k",))
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
        measured=f"elbow at K = {bends['federated']} (federated) and {bends['central']} (central)",
    )
    lower = [a < b for a, b in zip(curves["federated"], curves["central"], strict=True)]
    found.claim(
        "lower", holds=bool(np.mean(lower) > 0.5), measured=f"lower at {sum(lower)} of {len(lower)} values of K"
    )
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
        "three alike",
        holds=max(apart) < 0.5,
        measured=f"distances to the nearest central centre: {', '.join(f'{value:.2f}' for value in apart)}",
    )
    series = {m: [[float(age), float(balance)] for age, balance, _ in own] for m, own in centres.items()}
    found.figure("centres", "Centres at K = 4", ("age", "balance"), series, kind="points")
    return found
