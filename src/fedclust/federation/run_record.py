"""Where a federation's run is recorded on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunRecord:
    """Where a run is recorded; the folder is created with the run's first step.

    If `name` is None, the run gets the name in the folder, or a new one. If `durable`, sites of this process wait until
    each line of their ledgers is on disk.
    """

    folder: Path
    name: str | None = None
    durable: bool = True
