"""What became of each step of a verified run, kept for the sites that have not been given it yet.

It travels with the next call to a site, so it needs no trip of its own. A site that answers a step has stored all
steps before it. A resumed run passes its recorded steps again, so the log is the same as before.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from fedclust.core import wire
from fedclust.core.atomic_files import write_file
from fedclust.core.drive import Reply
from fedclust.core.effects import Ask
from fedclust.core.envelope import Call, EarlierOutcomes, OpenedCall, SealedAnswer
from fedclust.core.types import PartyId
from fedclust.privacy.verified.outcomes import record_outcome


class OutcomeLog:
    """The outcomes of a run's steps, and for each site the first step that it may lack.

    `path` is a file that remembers, over restarts, which sites get everything again, and in which step. The outcomes
    themselves are in a temporary file, because they follow from the journal.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 open as long as the log
        self._ends = [0]  # where the outcome of each step ends in the file
        self._first_lacking: dict[PartyId, int] = {}
        known = path is not None and path.exists()
        self._sent_again: dict[PartyId, int] = json.loads(path.read_text()) if path is not None and known else {}

    def record_step(self, ask: Ask, calls: Mapping[PartyId, Call], replies: Mapping[PartyId, Reply], need: int) -> None:
        """Add what became of a step."""
        step = next(iter(calls.values())).step
        if step != len(self._ends):
            raise ValueError(f"step {step} follows step {len(self._ends) - 1} of a verified run")
        outcome = wire.encode(record_outcome(ask, calls, replies, need))
        self._file.seek(self._ends[-1])
        self._file.write(outcome)
        self._ends.append(self._ends[-1] + len(outcome))
        for party, reply in replies.items():
            if isinstance(reply, SealedAnswer):
                self._first_lacking[party] = step

    def request_for(self, party: PartyId, call: Call) -> bytes:
        """Return the bytes of a call, with the outcomes that the site may lack."""
        first = 1 if self._sent_again.get(party) == call.step else self._first_lacking.get(party, 1)
        outcomes = tuple(self._read_outcome(step) for step in range(first, call.step))
        return wire.encode(OpenedCall(EarlierOutcomes(first, outcomes), call.wire_bytes))

    def send_all_again(self, party: PartyId, step: int) -> None:
        """Send a site all outcomes since the first step with its call in a step."""
        self._sent_again[party] = step
        if self._path is not None:
            write_file(self._path, json.dumps(self._sent_again) + "\n")

    def close(self) -> None:
        self._file.close()

    def _read_outcome(self, step: int) -> bytes:
        start, end = self._ends[step - 1 : step + 1]
        self._file.seek(start)
        return self._file.read(end - start)
