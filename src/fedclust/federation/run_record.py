"""Where a federation's run is recorded on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunRecord:
    """Where a run is written down; the folder need not be there before the run's first step.

    `name` None means the folder's own, or a new one. `durable`: sites of this process wait until the disk has each line
    of their ledgers.
    """

    folder: Path
    name: str | None = None
    durable: bool = True
