"""Parses TOML and explains syntax errors in terms of the study."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedclust.core.errors import StudyError


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Return the file's tables, or raise one sentence about the faulty line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(_explain_toml_error(str(error), text.splitlines(), path)) from None


def _explain_toml_error(message: str, lines: Sequence[str], path: Path) -> str:
    fault, _, place = message.rpartition(" (at ")
    number = int(found[1]) if (found := re.match(r"line (\d+)", place)) else len(lines)
    if "twice" in fault or "overwrite" in fault:
        name = _declared_name(lines[:number])
        if name[:1] == ["sites"] and len(name) == 2:
            return f"two sites are called '{name[1]}' (line {number} of {path}); give each its own name"
        return f"'{'.'.join(name)}' is given twice (line {number} of {path}); keep one"
    hint = "close it" if "nclosed" in fault or "nterminated" in fault else "correct the line, and put strings in quotes"
    return f"line {number} of {path} is not TOML ({fault[0].lower()}{fault[1:]}); {hint}"


def _declared_name(lines: Sequence[str]) -> list[str]:
    """Return the full name of what the last line declares: its table and its key."""
    own = re.match(r"\s*\[([^\]]+)\]|\s*([^=\[]+?)\s*=", lines[-1])
    if own is None:
        return [lines[-1].strip()]
    if own[1]:
        return _split_dotted_name(own[1])
    headers = (found[1] for line in reversed(lines) if (found := re.match(r"\s*\[([^\]]+)\]", line)))
    return [*_split_dotted_name(next(headers, "")), *_split_dotted_name(own[2])]


def _split_dotted_name(dotted: str) -> list[str]:
    return [quoted or bare for quoted, bare in re.findall(r"""["']([^"']*)["']|([\w-]+)""", dotted)]
