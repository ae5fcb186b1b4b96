"""Paper 1's table and figure show federated fuzzy c-means when not all parties take part."""

from __future__ import annotations

import numpy as np

from papers.reproduction import runs_fuzzy as runs
from papers.reproduction.catalogue import experiment
from papers.reproduction.paper0 import SHARES, TRUTH, here, ours, table_of_runs
from papers.reproduction.published import place
from papers.reproduction.workbench import Bench, Found

SETS = {"xclara": "xclara", "s-set1": "s_set1", "pendigits": "pendigits", "waveform": "waveform"}
TOLERANCE = 0.005


@experiment("paper1-table1", full="part of paper0-table3", quick="part of paper0-table3")
def table_1(bench: Bench) -> Found:
    """ARI and displacement by participation."""
    found = bench.found("paper1-table1")
    sets = here(bench, found, SETS)
    for (_, name, share), some in table_of_runs(bench, runs.random_start, sets, ("LLF-FCM",)).items():
        for metric in (TRUTH, "displacement"):
            found.cell(metric, name, share, [own[metric] for own in some])
    ours(bench, found, sets, lambda name, of: [place(of, name, share) for share in SHARES])
    return found


@experiment("paper1-fig1", full="part of paper0-table3", quick="part of paper0-table3")
def figure_1(bench: Bench) -> Found:
    """How the centres of xclara settle, and how far from the pooled ones."""
    found = bench.found("paper1-fig1")
    sets = here(bench, found, {"xclara": "xclara"})
    if not sets:
        return found
    done = table_of_runs(bench, runs.random_start, sets, ("LLF-FCM",))
    curves = {share: np.mean([own["shifts"] for own in done["LLF-FCM", "xclara", share]], axis=0) for share in SHARES}
    found.figure(
        "settling",
        "Change of the centres between rounds",
        ("round", "norm of the change"),
        {share: [[t + 1, v] for t, v in enumerate(curve) if v > 0] for share, curve in curves.items()},
        log=True,
    )
    apart = [float(np.mean([own["displacement"] for own in done["LLF-FCM", "xclara", share]])) for share in SHARES]
    found.figure(
        "distance",
        "Distance from the pooled centres",
        ("participation", "displacement"),
        {"LLF-FCM": [[x, y] for x, y in zip(SHARES.values(), apart, strict=True)]},
    )
    flat = [
        next(t + 1 for t in range(len(curve)) if curve[t] <= 2 * max(np.median(curve[10:]), TOLERANCE / 2))
        for curve in curves.values()
    ]
    found.claim("plateau", holds=max(flat) <= 9, measured=f"at most twice the later level from these rounds on: {flat}")
    reached = {
        share: np.mean([min(own["shifts"]) < TOLERANCE for own in done["LLF-FCM", "xclara", share]]) for share in SHARES
    }
    mean_reached = [share for share, curve in curves.items() if curve[10:].mean() < TOLERANCE]
    found.claim(
        "tolerance",
        holds=mean_reached == ["0.75", "1.00"],
        measured=f"the mean step of rounds 11 to 30 is below .005 for {', '.join(mean_reached)}; share of runs with "
        f"a step below .005: {', '.join(f'{share} {value:.0%}' for share, value in reached.items())}",
    )
    found.claim(
        "grows", holds=apart == sorted(apart, reverse=True), measured=", ".join(f"{value:.5f}" for value in apart)
    )
    return found
