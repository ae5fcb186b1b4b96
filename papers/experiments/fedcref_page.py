"""Writes the tables of docs/fedcref.md from the runs in fedcref.jsonl: python -m papers.experiments.fedcref_page"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from papers.experiments.fedcref import DIRT, PUBLISHED, SHIPPED, summary

PAGE = Path(__file__).parents[2] / "docs" / "fedcref.md"
SETS = {"mnist": "MNIST", "kmnist_partial": "KMNIST part", "fashion_mnist": "Fashion", "union30": "union of 30"}
PRINTED = {"mnist": "EMNIST", "kmnist_partial": "KMNIST", "union30": "KMNIST-49"}  # whose rows the paper prints
HEAD = (
    "S | communities | wrong % | isolated | ACC at first | ACC at the end | paper's rule | perfect: ACC | published |"
)
Line = dict[str, Any]


class Lines:
    """The means of all runs, grouped by settings."""

    def __init__(self) -> None:
        runs = [one for line in SHIPPED.read_text().splitlines() if "rule" in (one := json.loads(line))]
        runs = [one for one in runs if not one["name"].startswith("central/")]
        keys = ("data", "sites", "dirt", "overlap", "start", "rule")
        self.found = {tuple(line[key] for key in keys): line for line in summary(runs)}

    def of(
        self,
        data: str,
        sites: int = 25,
        *,
        dirt: float = 0.0,
        overlap: float = 0.0,
        start: str = "oracle",
        rule: str = "win",
    ) -> Line:
        return self.found[data, sites, dirt, overlap, start, rule]


def row(lines: Lines, title: str, printed: tuple[float, ...] = (), **which: Any) -> str:
    """Our rule, then the paper's rule and perfect association in the same loop, then the paper's printed values."""
    own, paper, perfect = (lines.of(rule=rule, **which) for rule in ("win", "paper", "perfect"))
    cells = [
        title,
        str(own["rows per class"]),
        f"{own['communities'][0]:.1f} ±{own['communities'][1]:.1f} / {own['real'][0]:.1f}",
        *(f"{own[key][0]:.1f} ±{own[key][1]:.1f}" for key in ("wrong %", "isolated end")),
        _share(own["ACC start"][0]),
        _both(own["ACC end"]),
        f"{paper['communities'][0]:.1f}, {paper['isolated end'][0]:.1f}, {_both(paper['ACC end'])}",
        _both(perfect["ACC end"]),
        f"{printed[0]}, {printed[2]}, {_share(printed[3])}" if printed else "",
    ]
    return "| " + " | ".join(cells).rstrip() + " |\n"


def dirt(lines: Lines) -> str:
    found = _head("data, dirt")
    for data, title in SETS.items():
        for share, told in zip(DIRT, ("0", ".3", ".5"), strict=True):
            printed = PUBLISHED["3"].get(f"{PRINTED.get(data)} {told}", ())
            found += row(lines, f"{title}, {told}", printed, data=data, dirt=share)
    return found


def deep(lines: Lines) -> str:
    found = _head("data")
    for data in ("mnist", "kmnist_partial", "fashion_mnist"):
        printed = PUBLISHED["1"]["EMNIST, DEC"] if data == "mnist" else ()
        found += row(lines, SETS[data], printed, data=data, start="dec")
    return found


def others(lines: Lines) -> str:
    found = _head("")
    for share, told in zip(DIRT, ("0", ".3", ".5"), strict=True):
        printed = PUBLISHED["5"][f"EMNIST overlap {told}"]
        found += row(lines, f"overlap {told}", printed, data="mnist", dirt=0.3, overlap=share)
    for sites in (20, 30, 40, 50):
        found += row(lines, f"{sites} sites", PUBLISHED["7"][f"EMNIST {sites}"], data="mnist", dirt=0.3, sites=sites)
    return found


def wide(lines: Lines) -> str:
    found = "| data | sites | S | dirt 0 | dirt .3 | dirt .5 |\n|---|---|---|---|---|---|\n"
    for data in ("mnist", "kmnist_partial", "fashion_mnist"):
        for sites in (10, 20, 30, 40, 50):
            some = [lines.of(data, sites, dirt=share) for share in DIRT]
            cells = [
                f"{one['communities'][0]:.1f} / {one['real'][0]:.1f}, {one['wrong %'][0]:.1f}, "
                f"{_share(one['ACC end'][0])}"
                for one in some
            ]
            found += f"| {SETS[data]} | {sites} | {some[0]['rows per class']} | {' | '.join(cells)} |\n"
    return found


def _head(first: str) -> str:
    return f"| {first} | {HEAD}\n" + "|---" * 10 + "|\n"


def _share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _both(interval: tuple[float, float]) -> str:
    return f"{_share(interval[0])} ±{_share(interval[1])}"


def main() -> None:
    lines, page = Lines(), PAGE.read_text(encoding="utf-8")
    for table in (dirt, deep, others, wide):
        begin, end = f"<!-- {table.__name__} -->\n", f"<!-- end of {table.__name__} -->"
        before, rest = page.split(begin)
        page = before + begin + table(lines) + end + rest.split(end)[1]
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
