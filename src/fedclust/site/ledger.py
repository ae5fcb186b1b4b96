"""The site's own record of everything that left it, each line chained to the one before."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from fedclust.core.errors import DataError

START = "fedclust ledger 1"


@dataclass(frozen=True)
class Entry:
    """One answer that left: to which question, as a sum or on its own, how many bytes."""

    run: str
    step: int
    handler: str
    want: str
    parties: int
    call: str
    size: int


class Ledger:
    """Entries in memory, and in a file that survives the process where a folder is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self.entries: list[Entry] = []
        self._last: dict[str, Entry] = {}
        self._chain = START
        self._path = None if folder is None else folder / "ledger.jsonl"
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._load(self._path)

    def write(self, entry: Entry) -> None:
        """Write an entry down before what it speaks of leaves."""
        self._add(entry)
        if self._path is not None:
            self._chain = _link(self._chain, entry)
            # Opened for each line: a process may hold thousands of sites, but not thousands of files.
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
                file.write(json.dumps({**asdict(entry), "chain": self._chain}) + "\n")

    def last(self, run: str) -> Entry | None:
        """The latest entry of a run."""
        return self._last.get(run)

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._last[entry.run] = entry

    def _load(self, path: Path) -> None:
        """Check the chain; a last line cut short by a crash is dropped."""
        if not path.exists():
            return
        lines = path.read_text().split("\n")
        whole = lines[:-1]
        for number, line in enumerate(whole, 1):
            record = json.loads(line)
            chain = record.pop("chain")
            entry = Entry(**record)
            if _link(self._chain, entry) != chain:
                raise DataError(f"line {number} of {path} was altered; the ledger must be as the site wrote it")
            self._chain = chain
            self._add(entry)
        if lines[-1]:
            path.write_text("".join(line + "\n" for line in whole))


def _link(chain: str, entry: Entry) -> str:
    return hashlib.sha256((chain + json.dumps(asdict(entry), sort_keys=True)).encode()).hexdigest()
