"""What changed between the first recording and today's values, and which of it CHANGES.md lists."""

import fnmatch
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LINE = re.compile(r"- `?(?P<case>[^:`]+?)`?(?: -> `?(?P<new>[^:`]+?)`?)?(?P<removed> removed)?: (?P<why>.+)")


@dataclass(frozen=True)
class Listed:
    """The lines of CHANGES.md: patterns of cases that changed and that are gone, and new names by old ones."""

    changed: list[str]
    removed: list[str]
    renamed: dict[str, str]


@dataclass(frozen=True)
class Changes:
    """Cases by what became of them since the first recording; changed cases by today's names, gone ones by old ones."""

    unchanged: list[str]
    changed: list[str]
    gone: list[str]
    new: list[str]


def read_values(name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((HERE / name).read_text())["values"]
    return values


def read_list(text: str) -> Listed:
    lines = [found for line in text.partition("## List")[2].splitlines() if (found := LINE.fullmatch(line.strip()))]
    return Listed(
        [line["case"] for line in lines if not line["new"] and not line["removed"]],
        [line["case"] for line in lines if line["removed"]],
        {line["case"]: line["new"] for line in lines if line["new"]},
    )


def find_changes(recorded: dict[str, Any], values: dict[str, Any], renamed: dict[str, str]) -> Changes:
    found = Changes([], [], [], [])
    for old, value in recorded.items():
        name = renamed.get(old, old)
        if name not in values:
            found.gone.append(old)
        elif _without_mark(values[name]) == _without_mark(value):
            found.unchanged.append(name)
        else:
            found.changed.append(name)
    found.new.extend(sorted(set(values) - set(found.unchanged) - set(found.changed)))
    return found


def _without_mark(value: Any) -> Any:
    """A value without the mark that it depends on the processor: that a mark goes is no change of bits."""
    return value["value"] if isinstance(value, dict) else value


def find_faults(listed: Listed, changes: Changes) -> list[str]:
    """Changes without a line, and lines that allow more than what changed."""
    faults = [f"{name} changed: list it" for name in unmatched(changes.changed, listed.changed)]
    faults += [f"{name} is gone: list it" for name in unmatched(changes.gone, listed.removed)]
    for pattern in listed.changed:
        faults += [f"{pattern}: {name} did not change" for name in fnmatch.filter(changes.unchanged, pattern)]
        faults += [] if fnmatch.filter(changes.changed, pattern) else [f"{pattern}: no case changed"]
    for pattern in listed.removed:
        kept = changes.unchanged + changes.changed
        faults += [f"{pattern}: {name} is still there" for name in fnmatch.filter(kept, pattern)]
        faults += [] if fnmatch.filter(changes.gone, pattern) else [f"{pattern}: no case is gone"]
    return faults


def unmatched(names: list[str], patterns: list[str]) -> list[str]:
    return [name for name in names if not any(fnmatch.fnmatchcase(name, one) for one in patterns)]
