"""The published numbers have their printed digits, their place, and a mark if they cannot be reproduced.

A table has blocks of rows and columns, claims in words, marks for numbers that are lost, misprinted or from other data,
and reasons for numbers that we do not find. Places of cells are written "block | row | column" and may contain
asterisks.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

LOST, NONE = "?", "-"


@dataclass(frozen=True)
class Printed:
    """One number as it is printed, None where the text has lost it; `mark` says why it is not held
    reproducible.
    """

    place: str
    text: str | None
    better: str  # "high", "low", or nothing to win
    mark: str = ""
    reason: str = ""
    explained: str = ""  # why we find another number, where we do
    units: int = 2  # of its last digit by which ours may differ: none where things are counted

    @property
    def value(self) -> float:
        return float((self.text or "nan").replace(",", ""))

    @property
    def unit(self) -> float:
        """One in the last digit.

        >>> [Printed("", text, "").unit for text in ("0.48", "10.1", "6")]
        [0.01, 0.1, 1.0]
        """
        whole, _, digits = (self.text or "").partition(".")
        return float(f"1e-{len(digits)}") if whole or digits else 1.0

    @property
    def digits(self) -> int:
        return len((self.text or "").partition(".")[2])

    @property
    def held(self) -> bool:
        """Whether the number should come out again."""
        return self.text is not None and not self.mark


@dataclass(frozen=True)
class Table:
    """A table, a figure, or what a paper tells in words."""

    name: str
    title: str
    place: str
    repeats: int
    held: str
    cells: Mapping[str, Printed]
    claims: Mapping[str, str] = field(default_factory=dict)
    claims_explained: Mapping[str, str] = field(default_factory=dict)  # why one does not hold, where it does not
    blocks: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)  # rows and columns


@dataclass(frozen=True)
class Paper:
    name: str
    title: str
    by: str
    tables: Mapping[str, Table]


@cache
def papers() -> dict[str, Paper]:
    """All of them, as the files in `numbers/` have them."""
    folder = files("papers.reproduction") / "numbers"
    there = sorted((path for path in folder.iterdir() if path.name.endswith(".toml")), key=lambda path: path.name)
    return {path.name[:-5]: _paper(path.name[:-5], path.read_text("utf-8")) for path in there}


def table(name: str) -> Table:
    return papers()[name.partition("-")[0]].tables[name]


def printed(paper: str) -> str:
    """A digest of all numbers of a paper: some experiments compute with them."""
    cells = [(cell.place, cell.text) for own in papers()[paper].tables.values() for cell in own.cells.values()]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def place(block: str, row: str, column: str) -> str:
    return f"{block} | {row} | {column}"


def _paper(name: str, text: str) -> Paper:
    whole = tomllib.loads(text)
    tables = {key: _table(key, own) for key, own in whole.items() if isinstance(own, dict)}
    return Paper(name, whole["title"], whole["by"], tables)


def _table(name: str, own: Mapping[str, Any]) -> Table:
    blocks = own.get("blocks", [])
    cells = [cell for block in blocks for cell in _cells(block, own.get("marks", []), own.get("reasons", []))]
    return Table(
        name,
        own["title"],
        own["place"],
        own["repeats"],
        own["held"],
        {cell.place: cell for cell in cells},
        {claim["key"]: claim["text"] for claim in own.get("claims", [])},
        {claim["key"]: claim["reason"] for claim in own.get("claims", []) if "reason" in claim},
        {block["name"]: (tuple(block["rows"]), tuple(block["columns"])) for block in blocks},
    )


def _cells(block: Mapping[str, Any], marks: Sequence[Any], reasons: Sequence[Any]) -> list[Printed]:
    found = []
    for row, line in block["rows"].items():
        for column, text in zip(block["columns"], line.split(), strict=True):
            if text == NONE:
                continue
            at = place(block["name"], row, column)
            mark = next((m for m in marks if _meant(at, m["cells"])), {"kind": "", "reason": ""})
            why = next((r["text"] for r in reasons if _meant(at, r["cells"])), "")
            printed = None if text == LOST else text
            units = block.get("units", Printed.units)
            found.append(Printed(at, printed, block["better"], mark["kind"], mark["reason"], why, units))
    return found


def _meant(at: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(at, pattern) for pattern in patterns)
