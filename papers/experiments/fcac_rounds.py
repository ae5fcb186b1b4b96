"""Paper 3's continual run of Figs. 4-9 shows how much of round 1 is known at the end, with two sites and three rounds.

    python -m papers.experiments.fcac_rounds [--seeds 3] [--out FOLDER]

There are eight subsets. A row is known if a node of the coordinator is within REACH of it: one standard deviation of
the groups that rows are drawn from, which is fixed before any row is drawn. Exits with 1 if, in SummaryClustering, less
than 99 per cent of the rows of round 1 are known after round 3, or if a node of an earlier round is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.metrics import adjusted_rand_score

import fedclust as fc
from fedclust.core.types import Array
from fedclust.kernels import resonance
from papers.reproduction.runs_art import GROUPS, ROUNDS, SUBSETS

METHODS: dict[str, type[fc.FCAC | fc.SummaryClustering]] = {
    "summary-clustering": fc.SummaryClustering,
    "fcac": fc.FCAC,
}
SPREAD = 0.045  # of every group, in both columns
REACH = SPREAD
NEEDED = 0.99
SIDE, DOTS = 300, 1500


def rounds(method: str, seed: int) -> tuple[list[dict[str, Any]], list[str]]:
    """What each round left, and a drawing of it."""
    rng, names = np.random.default_rng(seed), list(GROUPS)
    drawn = {s: rng.normal(GROUPS[g], SPREAD, (count, 2)).clip(0, 1) for s, (g, count) in SUBSETS.items()}
    first = np.concatenate([drawn[s] for own in ROUNDS[0].values() for s in own])
    model: fc.FCAC | fc.SummaryClustering = METHODS[method](random_state=seed)
    seen, truth, before = np.empty((0, 2)), np.empty(0, int), set[bytes]()
    found, drawings, vigilance = [], [], None
    for number, shares in enumerate(ROUNDS, start=1):
        parts = {site: np.concatenate([drawn[s] for s in own]) for site, own in shares.items()}
        model.partial_fit(fc.Federation.local(parts))
        seen = np.concatenate([seen, *parts.values()])
        of = [np.full(len(drawn[s]), names.index(SUBSETS[s][0])) for own in shares.values() for s in own]
        truth, labels = np.concatenate([truth, *of]), model.predict(seen)
        nodes = {node.tobytes() for node in model.nodes_}
        told = {
            "method": method,
            "seed": seed,
            "round": number,
            "rows": len(seen),
            "nodes": len(model.nodes_),
            "clusters": model.n_clusters_,
            "ari": adjusted_rand_score(truth, labels),
            "ari of round 1": adjusted_rand_score(truth[: len(first)], labels[: len(first)]),
            "known of round 1": float((cKDTree(model.nodes_).query(first)[0] <= REACH).mean()),
            "nodes gone": len(before - nodes),
        }
        if isinstance(model, fc.FCAC):  # its net has a threshold of its own, in its own metric
            net = resonance.Net(*model.net_)
            vigilance = net.vigilance if vigilance is None else vigilance
            told["within round 1's vigilance"] = float((net.nearest_nodes(first)[1] <= vigilance).mean())
        found.append(told)
        drawings.append(picture(seen, labels, model))
        before = nodes
    return found, drawings


def picture(rows: Array, labels: Array, model: fc.FCAC | fc.SummaryClustering) -> str:
    """Rows by cluster as dots, nodes as rings."""
    some = np.random.default_rng(0).permutation(len(rows))[:DOTS]
    marks = []
    for c in np.unique(labels):
        dots = " ".join(f"M{x * SIDE:.0f} {SIDE - y * SIDE:.0f}h0" for x, y in rows[some[labels[some] == c]])
        marks.append(f'<path d="{dots}" stroke="hsl({c * 137.5 % 360:.0f} 65% 55%)" stroke-width="2.4"/>')
    marks += [f'<circle cx="{x * SIDE:.0f}" cy="{SIDE - y * SIDE:.0f}" r="2.2"/>' for x, y in model.nodes_]
    told = f"{len(rows):,} rows, {len(model.nodes_)} nodes, {model.n_clusters_} clusters"
    return (
        f'<rect width="{SIDE}" height="{SIDE}" fill="#fff" stroke="#999"/><g fill="none" stroke="#222" '
        f'stroke-width=".7" stroke-linecap="round">{"".join(marks)}</g><text y="{SIDE + 16}">{told}</text>'
    )


def side_by_side(drawings: list[str]) -> str:
    step = SIDE + 15
    panels = (f'<g transform="translate({at * step} 0)">{drawing}</g>' for at, drawing in enumerate(drawings))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-2 -2 {len(drawings) * step} {SIDE + 26}" '
        f'font-family="sans-serif" font-size="12">{"".join(panels)}</svg>\n'
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/fcac-rounds"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    everything = []
    for method in METHODS:
        for seed in range(chosen.seeds):
            found, drawings = rounds(method, seed)
            everything += found
            for told in found:
                print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in told.items()}), flush=True)
            if not seed:
                (chosen.out / f"{method}-rounds.svg").write_text(side_by_side(drawings))
    (chosen.out / "rounds.json").write_text(json.dumps(everything, indent=1) + "\n")
    ours = [told for told in everything if told["method"] == "summary-clustering"]
    kept = all(told["known of round 1"] >= NEEDED and not told["nodes gone"] for told in ours)
    print(f"SummaryClustering: at least {NEEDED:.0%} of round 1 known, no node gone: {'yes' if kept else 'NO'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
