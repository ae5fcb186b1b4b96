"""Each method and paper has a version, and its golden values show whether published figures are still valid.

`versions.toml` has a version for each method and each paper. A result is stored with the versions it was computed with.
So it stays valid while code is renamed, moved or made faster, and is computed again when a version is raised.

    python -m papers.versions                       which golden values differ from those recorded here
    python -m papers.versions --raise fcac          the figures change: record a new version
    python -m papers.versions --carry-over fcac     they do not: record new golden values for the same version
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

VERSIONS = Path(__file__).with_name("versions.toml")
GOLDEN_VALUES = Path(__file__).parents[1] / "tests" / "golden" / "values.json"


@dataclass(frozen=True)
class MethodVersion:
    """A method's version, the golden cases that show what the method computes, and their digest at this version."""

    version: int
    cases: tuple[str, ...]
    golden: str


@cache
def method_versions() -> dict[str, MethodVersion]:
    methods = tomllib.loads(VERSIONS.read_text("utf-8"))["methods"]
    return {name: MethodVersion(own["version"], tuple(own["cases"]), own["golden"]) for name, own in methods.items()}


@cache
def paper_versions() -> dict[str, int]:
    """The version of each paper's experiments: their splits, numbers of repeats and tables."""
    return dict(tomllib.loads(VERSIONS.read_text("utf-8"))["papers"])


def golden_digest(cases: Sequence[str], values: dict[str, Any]) -> str:
    """A digest of the golden values that the patterns select; it does not include the names of the cases.

    >>> golden_digest(["rows/*"], {"rows/a": "1", "rows/b": {"value": "2"}, "columns/a": "3"})
    '4fc82b26aecb'
    """
    found = []
    for pattern in cases:
        matching = fnmatch.filter(values, pattern)
        if not matching:
            raise LookupError(f"no golden case matches {pattern}; correct the pattern in {VERSIONS.name}")
        found += [own["value"] if isinstance(own, dict) else own for own in map(values.__getitem__, matching)]
    return hashlib.sha256("".join(sorted(found)).encode()).hexdigest()[:12]


def changed_methods() -> dict[str, str]:
    """The methods whose golden values differ from those recorded with their version, with their current digest."""
    values = json.loads(GOLDEN_VALUES.read_text("utf-8"))["values"]
    today = {name: golden_digest(own.cases, values) for name, own in method_versions().items()}
    return {name: digest for name, digest in today.items() if digest != method_versions()[name].golden}


def write_version(name: str, version: int, golden: str) -> None:
    """Record a method's version and its golden values."""
    table = re.compile(rf'(?<=^\[methods\.{re.escape(name)}\]\n)version = \d+\ngolden = "\w*"$', flags=re.MULTILINE)
    text, count = table.subn(f'version = {version}\ngolden = "{golden}"', VERSIONS.read_text("utf-8"))
    if count != 1:
        raise LookupError(f"{VERSIONS.name} has no method '{name}'")
    VERSIONS.write_text(text, "utf-8")


def main(arguments: list[str] | None = None) -> int:
    """List, raise or carry over versions."""
    parser = argparse.ArgumentParser(prog="python -m papers.versions", description=main.__doc__)
    parser.add_argument(
        "--raise", dest="raised", nargs="+", default=[], metavar="METHOD", help="methods whose figures change"
    )
    parser.add_argument(
        "--carry-over", nargs="+", default=[], metavar="METHOD", help="methods whose figures stay the same"
    )
    chosen = parser.parse_args(arguments)
    changed = changed_methods()
    for name in (*chosen.raised, *chosen.carry_over):
        if name not in method_versions():
            print(
                f"{VERSIONS.name} has no method '{name}'; its methods are {', '.join(method_versions())}",
                file=sys.stderr,
            )
            return 2
        own = method_versions()[name]
        write_version(name, own.version + (name in chosen.raised), changed.pop(name, own.golden))
    for name in changed:
        print(f"{name}: golden values differ from those of version {method_versions()[name].version}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
