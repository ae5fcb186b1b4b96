"""Writes the figures of docs/summary-clustering.md and the tables of papers/results/fcac-table.md from runs of fcac.py.

    python -m papers.experiments.fcac_page [--parts FOLDER ...]

With folders of runs, their means are first written to fcac-results.json; its other entries stay. Exits with 1 if
SummaryClustering does not rank first among the federated methods, over all sets or over those not used for tuning.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedclust.algorithms.summary_clustering import clearness
from fedclust.report import method_ranks
from papers.experiments.fcac import GROUPS, HOW, METHODS, SETS, TUNED

HERE = Path(__file__).parent
RESULTS = HERE / "fcac-results.json"
DOCS = HERE.parents[1] / "docs"
TABLES = HERE.parent / "results" / "fcac-table.md"
OURS = "SummaryClustering"
POOLED = ("pooled k-means, scaled", "pooled k-means, unscaled")
KEYS = ("ari", "ami", "nmi", "clusters", "nodes", "sent", "clearness")
OTHERS = [name for name in SETS if name not in TUNED]
Results = dict[str, dict[str, Any]]


def gathered(folders: list[Path]) -> Results:
    """Means over seeds of each set, split and method; points sent were not counted in all runs."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.json")):
        key = re.fullmatch(rf"({'|'.join(SETS)})-({'|'.join(HOW)})-(.+)-\d+", path.stem)
        found = json.loads(path.read_text())
        if key and "ari" in found:
            runs.setdefault("|".join([key[1], key[2], key[3].replace("_", " ")]), []).append(found)
    results = {}
    for name, own in sorted(runs.items()):
        means = {key: [run[key] for run in own if run.get(key) is not None] for key in KEYS}
        results[name] = {key: round(float(np.mean(values)), 5) for key, values in means.items() if values}
        off = [abs(np.log2(run["clusters"] / run["classes"])) for run in own]
        results[name] |= {
            "seeds": len(own),
            "sd": round(float(np.std([run["ari"] for run in own])), 5),
            "off": round(float(np.mean(off)), 4),
            "classes": own[0]["classes"],
        }
    return results


def means(results: Results) -> str:
    """One line for each method, one column for each group of sets."""
    lines = [
        "| | " + " | ".join(f"{title} ({len(sets)} sets)" for title, sets in GROUPS.items()) + " |",
        "|---" * (len(GROUPS) + 1) + "|",
    ]
    for method in METHODS:
        cells = []
        for sets in GROUPS.values():
            own = [results[key] for name in sets for how in HOW if (key := f"{name}|{how}|{method}") in results]
            if len(own) < 2 * len(sets):
                cells.append("-")
                continue
            told = [f"{np.mean([one[key] for one in own]):.3f}".lstrip("0") for key in ("ari", "ami", "nmi")]
            off = f"{np.mean([one['off'] for one in own]):.2f}" if method in {OURS, "FCAC"} else "-"
            cells.append(" / ".join([*told, off]))
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def mean(results: Results, name: str, key: str, method: str = OURS) -> float:
    """Of both splits, where it was counted."""
    values = [value for how in HOW if (value := results[f"{name}|{how}|{method}"].get(key)) is not None]
    return float(np.mean(values)) if values else np.nan


def ahead(results: Results, sets: Iterable[str], key: str, method: str) -> list[float]:
    """By how much the default's index is above that of another method, set by set."""
    return [mean(results, name, key) - mean(results, name, key, method) for name in sets]


def against(results: Results) -> str:
    """How far the default is from pooled k-means, by sets, by how clear it found clusters, and by how many it found."""
    lines = ["| | sets | scaled: ARI | AMI | unscaled: ARI | AMI |", "|---" * 6 + "|"]

    def line(told: str, some: list[str]) -> None:
        cells = []
        for method, key in product(POOLED, ("ari", "ami")):
            less = ahead(results, some, key, method)
            cells.append(f"{np.mean(less):+.4f} ({np.std(less, ddof=1) / np.sqrt(len(less)):.4f})")
        lines.append(f"| {told} | {len(some)} | {' | '.join(cells)} |")

    for title, sets in GROUPS.items():
        line(title, list(sets))
    line("all", list(SETS))
    line("not used for tuning", OTHERS)
    line("no influence on choices, or new", [name for sets in list(GROUPS.values())[2:] for name in sets])
    clear, hardly = {name: mean(results, name, "clearness") for name in OTHERS}, clearness.UNCLEAR_BELOW
    line("not used for tuning, clearness not computed", [name for name in OTHERS if np.isnan(clear[name])])
    line(f"not used for tuning, clearness below {hardly}", [name for name in OTHERS if clear[name] < hardly])
    line(f"not used for tuning, clearness {hardly} or more", [name for name in OTHERS if clear[name] >= hardly])
    found = {name: mean(results, name, "clusters") / mean(results, name, "classes") for name in OTHERS}
    for least, most, told in ((0, 0.8, "below .8"), (0.8, 1.25, ".8 to 1.25"), (1.25, np.inf, "above 1.25")):
        line(f"not used for tuning, K / classes {told}", [n for n in OTHERS if least <= found[n] < most])
    return "\n".join(lines) + "\n"


def ranks(results: Results, sets: Iterable[str]) -> tuple[str, method_ranks.Comparison]:
    """What the Friedman test and Nemenyi's distance say of the methods; and the comparison over all three indices."""
    told = []
    for keys in (("ari",), ("ami",), ("ari", "ami", "nmi")):
        blocks = [[results[f"{n}|{how}|{method}"][k] for method in METHODS] for n in sets for how in HOW for k in keys]
        found = method_ranks.compare(np.array(blocks), list(METHODS))
        order = "; ".join(f"{name} {rank:.2f}" for name, rank in zip(found.names, found.ranks, strict=True))
        told.append(
            f"- {' and '.join(key.upper() for key in keys)}, {found.blocks} blocks: {order}. Friedman chi-square "
            f"{found.chi_square:.1f} (p = {found.p_value:.1e}), critical distance {found.distance:.2f}\n"
        )
    return "".join(told), found


def tables(results: Results) -> str:
    """For each method a table of all sets."""
    head = (
        "# SummaryClustering, FCAC and other methods, set by set\n\n"
        "Each cell gives the value with rows split evenly / by Dirichlet(.5). Values are means of 20 seeds; for the "
        "ARI, the standard deviation is in parentheses. *Nodes* is the number of points that the coordinator had at "
        "the same time. *Sent* is the number of points that left the sites, as a share of the rows. For k-means of "
        "pooled rows, all rows left the sites. For k-FED and averaged fuzzy c-means, *sent* was counted for some of "
        "the seeds. `python -m papers.experiments.fcac_page` writes this page "
        "from `papers/experiments/fcac-results.json`; "
        "[what it means](../../docs/summary-clustering.md#how-well-it-works).\n"
    )
    out = [head]
    for method in METHODS:
        out.append(
            f"\n## {method}\n\n| set (classes) | ARI (sd) | AMI | NMI | clusters | nodes | sent |\n{'|---' * 7}|\n"
        )
        for name in SETS:
            both = [results.get(f"{name}|{how}|{method}") for how in HOW]
            own = [one for one in both if one]
            if not own:
                continue
            seeds = "" if all(one["seeds"] == 20 for one in own) else f", {min(one['seeds'] for one in own)} seeds"
            cells = [
                " / ".join(f"{one['ari']:.3f} ({one['sd']:.3f})" for one in own),
                *(" / ".join(f"{one[key]:.3f}" for one in own) for key in ("ami", "nmi")),
                *(" / ".join(f"{one[key]:.1f}" if key in one else "-" for one in own) for key in ("clusters", "nodes")),
                " / ".join(f"{one['sent']:.1%}" if "sent" in one else "-" for one in own),
            ]
            out.append(f"| {name} ({own[0]['classes']}{seeds}) | {' | '.join(cells)} |\n")
    return "".join(out)


def between(text: str, mark: str, new: str) -> str:
    found = re.sub(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- end of {mark} -->)", lambda _: new, text, flags=re.DOTALL)
    if new not in found:
        raise SystemExit(f"docs/summary-clustering.md has no markers for {mark}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=Path, nargs="*")
    chosen = parser.parse_args()
    if chosen.parts:
        found = dict(sorted((json.loads(RESULTS.read_text()) | gathered(chosen.parts)).items()))
        RESULTS.write_text(json.dumps(found, indent=0).replace(",\n", ", ").replace("}, ", "},\n") + "\n")
    results = json.loads(RESULTS.read_text())
    (told, compared), (told_of_others, of_others) = ranks(results, SETS), ranks(results, OTHERS)
    told += f"\nThe same for the sets that were not used for tuning:\n\n{told_of_others}"
    page = DOCS / "summary-clustering.md"
    text = between(page.read_text(), "means", means(results))
    page.write_text(between(between(text, "against", against(results)), "ranks", told))
    (DOCS / "summary-clustering-ranks.svg").write_text(method_ranks.diagram(compared))
    TABLES.write_text(tables(results))
    print(means(results), against(results), told, sep="\n")
    first = [next(name for name in found.names if name not in POOLED) for found in (compared, of_others)]
    return 0 if first == [OURS, OURS] else 1


if __name__ == "__main__":
    sys.exit(main())
