"""Reads from a run folder what the report needs to know about a finished run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedclust.core.errors import StudyError

KNOWN_FORMATS = {"analysis.json": ("fedclust-analysis", 1), "metrics.json": ("fedclust-metrics", 1)}
SECRET_PATTERNS = (  # what a study may hold and a page must not: passwords in addresses and in lists of settings
    (re.compile(r"(\w://[^/\s:@\"']*:)[^@\s\"']*@"), r"\1***@"),
    (
        re.compile(r"(?i)\b((?:password|passwd|pwd|secret|token|key)\s*=\s*)(\"[^\"]*\"|'[^']*'|[^\s\"'&;,}]+)"),
        r"\1***",
    ),
)


@dataclass(frozen=True)
class FinishedRun:
    """The contents of a run folder that the report uses."""

    folder: str
    analysis: dict[str, Any]
    metrics: dict[str, Any]
    study: str

    @property
    def name(self) -> str:
        return str(self.metrics["name"])


def read_run(folder: Path) -> FinishedRun:
    """Read a finished run; refuse anything else."""
    if not (folder / "origin.json").is_file():
        why = "is not a run folder" if folder.exists() else "does not exist"
        raise StudyError(f"{folder} {why}; give a folder that 'fedclust run' made, such as runs/NAME")
    if not (folder / "metrics.json").is_file():
        raise StudyError(f"{folder} is not finished; continue with: fedclust resume {folder}")
    if not (folder / "analysis.json").is_file():
        raise StudyError(
            f"{folder} has no analysis.json, because its model could not be described; use {folder / 'model.json'}, or "
            "run the study again in another folder"
        )
    study = (folder / "study.toml").read_text(encoding="utf-8-sig")
    return FinishedRun(
        str(folder), _document(folder, "analysis.json"), _document(folder, "metrics.json"), without_secrets(study)
    )


def without_secrets(text: str) -> str:
    """Replace the passwords in a study's text with ***.

    >>> without_secrets('database = "postgresql://me:pass@host/db"')
    'database = "postgresql://me:***@host/db"'
    """
    for pattern, blotted in SECRET_PATTERNS:
        text = pattern.sub(blotted, text)
    return text


def _document(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise StudyError(f"{path} is damaged; run the study again in another folder")
    if (document.get("format"), document.get("version")) != KNOWN_FORMATS[name]:
        raise StudyError(f"{path} was made by another version of fedclust; use that version to make the report")
    return document
