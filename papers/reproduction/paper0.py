"""Paper 0's tables and figures compare lossless fuzzy c-means with two federated methods that are not lossless."""

from __future__ import annotations

from typing import Any

import numpy as np

from papers.reproduction import runs_fuzzy as runs
from papers.reproduction import runs_ledger as ledger
from papers.reproduction.catalogue import experiment
from papers.reproduction.published import place
from papers.reproduction.workbench import Bench, Found

SHARES = {"0.25": 0.25, "0.50": 0.5, "0.75": 0.75, "1.00": 1.0}
METRICS = ("displacement", "ARI with the pooled run", "ARI with the classes", "Xie-Beni")
TRUTH = "ARI with the classes"
SCORES = (TRUTH, "Xie-Beni")  # displacement is 0 for lossless methods
OURS = "LLF-FCM, careful seeding, to its end, best of 5 by the objective"
SPLITS = {
    "16 parties": [1] * 16,
    "8 parties": [2] * 8,
    "4 parties": [4] * 4,
    "2 parties": [8] * 2,
    "1-2-3-4-6": [1, 2, 3, 4, 6],
}


def here(bench: Bench, found: Found, wanted: dict[str, str] = runs.SETS) -> dict[str, str]:
    """The available sets, by their abbreviations in the tables."""
    names = bench.at_hand(wanted.values(), found)
    return {short: name for short, name in wanted.items() if name in names}


def shares(bench: Bench) -> list[str]:
    return bench.few(list(SHARES), ["1.00"])


def seeds(bench: Bench, method: str) -> range:
    return range(10) if method == "LLF-FCM" else bench.seeds(10, 3)


def table_of_runs(
    bench: Bench, function: Any, sets: dict[str, str], methods: tuple[str, ...]
) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """The repeats of each method, set and participation; quick runs reduce the slow methods, but not ours."""
    asked = [
        ((method, short, share), {"data": name, "method": method, "participation": SHARES[share], "seed": seed})
        for method in methods
        for short, name in sets.items()
        for share in (SHARES if method == "LLF-FCM" else shares(bench))
        for seed in seeds(bench, method)
        if not (bench.quick and method == "C2F-FCM" and short == "PE")
    ]
    return bench.grouped(function, asked)


def ours(bench: Bench, found: Found, sets: dict[str, str], against: Any, metrics: tuple[str, ...] = (TRUTH,)) -> None:
    """Our best method on each set, compared with printed cells."""
    for short, name in sets.items():
        done = bench.all(runs.best_of_restarts, [{"data": name, "seed": seed} for seed in bench.seeds(10, 1)])
        for metric in metrics:
            found.best(f"{short}: {metric}", OURS, [own[metric] for own in done], against(short, metric))


@experiment("paper0-table2", full="as paper0-table3", quick="as paper0-table3")
def table_2(bench: Bench) -> Found:
    """Convergence of LLF-FCM and GDF-FCM, a plot for each set."""
    found = bench.found("paper0-table2")
    sets = here(bench, found)
    done = table_of_runs(bench, runs.random_start, sets, ("LLF-FCM", "GDF-FCM"))
    late, plateau, steadier = 0, 0, 0
    for short, name in sets.items():
        curves = {
            (method, share): np.array([own["shifts"] for own in some])
            for (method, at, share), some in done.items()
            if at == short
        }
        means = {key: curve.mean(axis=0) for key, curve in curves.items()}
        series = {
            f"{method}, {share}": [[t + 1, v] for t, v in enumerate(mean) if v > 0]
            for (method, share), mean in means.items()
            if share in {"0.25", "1.00"}
        }
        title = f"{name}: change of the centres between rounds, mean of runs"
        found.figure(f"settling-{name}", title, ("round", "norm of the change"), series, log=True)
        whole = [means[method, "1.00"] for method in ("LLF-FCM", "GDF-FCM")]
        late += sum(mean[9] > 0.1 * mean[0] for mean in whole)
        plateau += means["LLF-FCM", "0.25"][-5:].mean() > means["LLF-FCM", "0.75"][-5:].mean()
        spread = [curves[method, "1.00"].std(axis=0)[1:10].mean() for method in ("LLF-FCM", "GDF-FCM")]
        steadier += spread[1] < spread[0]
    count = 2 * len(sets)
    found.claim(
        "ten rounds",
        holds=late <= count // 4,
        measured=f"step 10 is below a tenth of step 1 in {count - late} of {count} curves; three quarters are enough",
    )
    found.claim(
        "higher plateau",
        holds=plateau == len(sets),
        measured=f"on {plateau} of {len(sets)} sets, the last steps of LLF-FCM are longer at .25 than at .75",
    )
    found.claim(
        "smaller spread",
        holds=steadier > len(sets) / 2,
        measured=f"rounds 2 to 10, all parties: the spread of GDF-FCM is smaller on {steadier} of {len(sets)} sets",
    )
    return found


@experiment("paper0-table3", full="15 min", quick="5 min")
def table_3(bench: Bench) -> Found:
    """Displacement, agreement and index of LLF-FCM and GDF-FCM by participation."""
    found = bench.found("paper0-table3")
    sets = here(bench, found)
    done = table_of_runs(bench, runs.random_start, sets, ("LLF-FCM", "GDF-FCM"))
    _fill(found, done)
    ours(bench, found, sets, lambda s, of: [place(f"{m}, {of}", s, "1.00") for m in ("LLF-FCM", "GDF-FCM")], SCORES)
    return found


@experiment("paper0-fig5", full="as paper0-table3", quick="as paper0-table3")
def figure_5(bench: Bench) -> Found:
    """Displacement by participation, a plot for each set."""
    found = bench.found("paper0-fig5")
    sets = here(bench, found)
    done = table_of_runs(bench, runs.random_start, sets, ("LLF-FCM", "GDF-FCM"))
    shrinks, zero = 0, True
    for short, name in sets.items():
        series = {
            m: [
                [SHARES[s], float(np.mean([own["displacement"] for own in done[m, short, s]]))]
                for s in SHARES
                if (m, short, s) in done
            ]
            for m in ("LLF-FCM", "GDF-FCM")
        }
        found.figure(f"displacement-{name}", name, ("participation", "displacement"), series)
        lossless = [y for _, y in series["LLF-FCM"]]
        shrinks += lossless[0] > lossless[2] > lossless[3]
        zero &= all(own["displacement"] == 0 for own in done["LLF-FCM", short, "1.00"])
    found.claim(
        "shrinks",
        holds=zero and shrinks >= len(sets) - 1,
        measured=f"shrinks from .25 to .75 and from .75 to 1 on {shrinks} of {len(sets)} sets; "
        f"{'exactly 0' if zero else 'not 0'} with all parties",
    )
    return found


@experiment("paper0-table4", full="5 min", quick="2 min")
def table_4(bench: Bench) -> Found:
    """Dirichlet splits: LLF-FCM as before, GDF-FCM worse."""
    found = bench.found("paper0-table4")
    sets = here(bench, found)
    same, lower, uneven = 0, [], dict[str, dict[str, float]]()
    for method in ("LLF-FCM", "GDF-FCM"):
        for short, name in sets.items():
            asked = [
                {"data": name, "method": method, "participation": 1.0, "seed": seed} for seed in seeds(bench, method)
            ]
            even = bench.all(runs.random_start, asked)
            skewed = bench.all(runs.random_start, [own | {"beta": 0.5} for own in asked])
            values = [own.get(TRUTH, np.nan) for own in skewed]
            if np.isfinite(values).all():
                found.cell(TRUTH, method, short, values)
            else:
                found.notes.append(f"{method} on {name}: {np.isnan(values).sum()} of {len(values)} runs diverged")
            uneven.setdefault(short, {})[method] = float(np.nanmean(values))
            if method == "LLF-FCM":
                same += skewed == even
            elif np.nanmean(values) < np.mean([own[TRUTH] for own in even]) - 0.005:
                lower.append(short)
    found.claim(
        "same as even", holds=same == len(sets), measured=f"all numbers are equal on {same} of {len(sets)} sets"
    )
    below = [short for short, own in uneven.items() if own["GDF-FCM"] < own["LLF-FCM"] - 0.005]
    found.claim(
        "lower but for two",
        holds=set(lower) & set(below) == set(sets) - {"XC", "WA"},
        measured=f"GDF-FCM is lower by over .005 than on even splits on {', '.join(lower)}; than LLF-FCM on "
        f"{', '.join(below)}",
    )
    ours(bench, found, sets, lambda s, of: [place(of, m, s) for m in ("LLF-FCM", "GDF-FCM")])
    return found


@experiment("paper0-table5", full="40 min", quick="8 min")
def table_5(bench: Bench) -> Found:
    """LLF-FCM and C2F-FCM with careful seeding."""
    found = bench.found("paper0-table5")
    sets = here(bench, found)
    done = table_of_runs(bench, runs.careful_start, sets, ("LLF-FCM", "C2F-FCM"))
    _fill(found, done)
    ours(bench, found, sets, lambda s, of: [place(f"{m}, {of}", s, "1.00") for m in ("LLF-FCM", "C2F-FCM")], SCORES)
    return found


def _fill(found: Found, done: dict[tuple[str, str, str], list[dict[str, Any]]]) -> None:
    """Put every metric of every run into its cell, and list the index that replaces SDB next to them."""
    beside: dict[tuple[str, str], list[str]] = {}
    for (method, short, share), some in done.items():
        for metric in METRICS:
            found.cell(f"{method}, {metric}", short, share, [own[metric] for own in some])
        index = np.mean([float(own["fuzzy Davies-Bouldin"]) for own in some])
        beside.setdefault((method, short), []).append(f"{index:.3f}")
    rows = [[f"{method}, {short}", *values] for (method, short), values in beside.items()]
    found.table("Fuzzy Davies-Bouldin index (paper 2), where the paper has SDB", ["", *SHARES], rows)


@experiment("paper0-fig6", full="8 min", quick="1 min")
def figure_6(bench: Bench) -> Found:
    """Five ways to split the columns of pendigits, one curve."""
    found = bench.found("paper0-fig6")
    if not bench.at_hand(["pendigits"], found):
        return found
    turns = bench.seeds(10, 1)
    done = {
        name: bench.all(runs.by_columns, [{"data": "pendigits", "sizes": sizes, "seed": seed} for seed in turns])
        for name, sizes in SPLITS.items()
    }
    rows = [
        bench.one(runs.random_start, data="pendigits", method="LLF-FCM", participation=1.0, seed=seed)[TRUTH]
        for seed in turns
    ]
    first = next(iter(done.values()))
    same = all(a["bits"] == b["bits"] for own in done.values() for a, b in zip(own, first, strict=True))
    for name, own in done.items():
        found.cell(TRUTH, "pendigits", name, [one["ARI"] for one in own])
    equal = all([one["ARI"] for one in own] == rows for own in done.values())
    series = {
        name: [[t + 1, v] for t, v in enumerate(np.mean([one["shifts"] for one in own], axis=0))]
        for name, own in done.items()
    }
    found.figure("columns", "pendigits by columns", ("round", "norm of the change of distances"), series, log=True)
    found.claim(
        "same curve", holds=same, measured=f"{len(done)} curves for {len(turns)} initial centres, compared bit by bit"
    )
    found.claim("same as rows", holds=equal, measured=f"ARI {np.mean(rows):.4f} by rows and by every split of columns")
    return found


@experiment("paper0-text", full="2 min", quick="1 min")
def in_words(bench: Bench) -> Found:
    """Steps that are too long, 50 rounds on pendigits, numbers sent in a round."""
    found = bench.found("paper0-text")
    sets = here(bench, found)
    for step in (0.05, 0.005):
        asked = [
            {"data": name, "method": "GDF-FCM", "participation": 1.0, "seed": 0}
            | ({"step": step} if step != 0.005 else {})
            for name in sets.values()
        ]
        done = dict(zip(sets, bench.all(runs.random_start, asked), strict=True))
        bad = [short for short, own in done.items() if not _settled(own)]
        if len(sets) == len(runs.SETS):
            found.cell("sets on which GDF-FCM does not converge", f"alpha {step:g}", "of 8", [len(bad)])
        found.notes.append(f"alpha {step:g}, sets without convergence: {', '.join(bad) or 'none'}")
    if "PE" not in sets:
        return found
    moved = [
        np.mean(
            [
                own["displacement"]
                for own in bench.all(
                    runs.random_start,
                    [
                        {"data": "pendigits", "method": "GDF-FCM", "participation": 1.0, "seed": seed}
                        | ({"rounds": rounds} if rounds != runs.ROUNDS else {})
                        for seed in bench.seeds(10, 1)
                    ],
                )
            ]
        )
        for rounds in (30, 50)
    ]
    found.claim(
        "fifty rounds",
        holds=bool(moved[1] > moved[0]),
        measured=f"displacement {moved[0]:.3f} after 30 rounds, {moved[1]:.3f} after 50",
    )
    for method in ("LLF-FCM", "GDF-FCM", "C2F-FCM"):
        sent = bench.one(runs.numbers_in_a_round, data="pendigits", method=method)
        for way in ("up", "down"):
            found.cell("numbers a party sends in a round, pendigits (C = 10, F = 16)", method, way, [sent[way]])
    told = [["LLF-FCM by columns, one round", *_sent(bench, "by columns")]]
    told += [[f"{name}, the whole run", *_sent(bench, method)] for method, name in ledger.ONE_SHOT.items()]
    found.table("Numbers a party sends, pendigits: other methods", ["", "numbers", "rows of the party"], told)
    found.notes.append(
        "Up: numbers that a site sends, counted in its ledger. Down: numbers in the questions that it receives."
    )
    return found


def _sent(bench: Bench, method: str) -> tuple[int, int]:
    own = bench.one(ledger.sent, data="pendigits", method=method)
    return own["numbers"], own["rows"]


def _settled(own: dict[str, Any]) -> bool:
    """Whether a run ended near where it was: no runaway, no swinging, no two centres in one place."""
    if "failed" in own:
        return False
    return bool(own["shifts"][-1] < runs.SWINGING and np.isfinite(float(own["Xie-Beni"])) and own["Xie-Beni"] < 1e3)


@experiment("paper0-noniid", full="20 min", quick="4 min")
def uneven_parties(bench: Bench) -> Found:
    """From even to very uneven parties: lossless runs do not change, the others do."""
    found = bench.found("paper0-noniid")
    names = bench.few(list(runs.SETS.values()), ["xclara", "rice"])
    sets = bench.at_hand(names, found)
    betas: list[float | None] = bench.few([None, 5.0, 1.0, 0.5, 0.3], [None, 1.0, 0.3])
    means: dict[tuple[str, str, int], float] = {}
    for function, methods in ((runs.random_start, ("LLF-FCM", "GDF-FCM")), (runs.careful_start, ("C2F-FCM",))):
        asked = [
            (
                (name, method, at),
                {"data": name, "method": method, "participation": 1.0, "seed": seed}
                | ({} if beta is None else {"beta": beta}),
            )
            for name in sets
            for method in methods
            for at, beta in enumerate(betas)
            for seed in bench.seeds(5, 1)
        ]
        for key, some in bench.grouped(function, asked).items():
            if values := [own[TRUTH] for own in some if TRUTH in own]:
                means[key] = float(np.mean(values))
    for name in sets:
        series: dict[str, list[list[float]]] = {}
        for (data, method, at), mean in means.items():
            if data == name:
                series.setdefault(method, []).append([float(at), mean])
        axis = "even, then Dirichlet " + ", ".join(f"{beta:g}" for beta in betas if beta is not None)
        found.figure(f"uneven-{name}", f"{name}: ARI as the parties become more unequal", (axis, TRUTH), series)
    same = bench.all(runs.same_bits, [{"data": name, "seed": seed} for name in sets for seed in bench.seeds(3, 1)])
    found.claim(
        "same bits",
        holds=all(same),
        measured=f"even, Dirichlet .5 and .1, by class, and pooled: equal in {sum(same)} of {len(same)} comparisons",
    )
    return found
