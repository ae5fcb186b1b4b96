"""The file in which a site stores what became of the steps of a verified run, and which a restart reads again.

Each outcome follows its length and its digest. What a crash or a damage left unreadable is dropped, with everything
after it, and the coordinator sends it again.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

_HEAD = struct.Struct("<I32s")  # length and digest


class TranscriptFile:
    """The outcomes that a site has accepted, in order; without a path they are in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._in_memory: list[bytes] = []
        self._sound_length = 0
        self.digests: list[bytes] = []
        for outcome in self.outcomes():
            self._count(outcome)

    def outcomes(self) -> Iterator[bytes]:
        """Yield all outcomes, from the first step on."""
        if self._path is None:
            yield from self._in_memory
            return
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                length, digest = _HEAD.unpack(head)
                outcome = file.read(length)
                if hashlib.sha256(outcome).digest() != digest:
                    return
                yield outcome

    def append(self, outcomes: Sequence[bytes]) -> None:
        """Store outcomes; if there is a disk, they are on it before this returns."""
        if self._path is None:
            self._in_memory += outcomes
        elif outcomes:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.truncate(self._sound_length)  # a half-written outcome of a crash
                file.seek(self._sound_length)
                for outcome in outcomes:
                    file.write(_HEAD.pack(len(outcome), hashlib.sha256(outcome).digest()) + outcome)
                file.flush()
                os.fsync(file.fileno())
        for outcome in outcomes:
            self._count(outcome)

    def _count(self, outcome: bytes) -> None:
        self.digests.append(hashlib.sha256(outcome).digest())
        self._sound_length += _HEAD.size + len(outcome)
