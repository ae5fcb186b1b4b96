"""The coordinator's record of a run: each question before it is asked, each answer before it is used, in a hash chain.

A run that was killed at any point resumes from here with the same bits, and a finished run can be replayed without its
sites. A record that was being written when the machine stopped is dropped. Any other damage is an error.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

from fedclust.core.atomic_files import write_file
from fedclust.core.errors import JournalError
from fedclust.core.file_locks import try_lock

JOURNAL_HEADER = b"fedclust journal 1\n"
QUESTION_RECORD, ANSWER_RECORD, OPENING_RECORD, ROWS_RECORD = b"?", b"!", b"+", b"="
_FRAME = struct.Struct("<cQII")  # kind, step, length of the payload, checksum of these three


class Journal:
    """An append-only file of (kind, step, payload) that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._payload_places: dict[tuple[bytes, int], tuple[int, int]] = {}
        self._chain = hashlib.sha256(JOURNAL_HEADER).digest()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        try:
            self._lock()
            self._sound_length = self._load()
        except (JournalError, OSError):
            self._file.close()
            raise

    @property
    def last_answered_step(self) -> int:
        """The last step whose answers are recorded."""
        return max((step for kind, step in self._payload_places if kind == ANSWER_RECORD), default=0)

    @property
    def last_step(self) -> int:
        """The last step that was asked."""
        return max((step for _, step in self._payload_places), default=0)

    def recall(self, kind: bytes, step: int) -> bytes | None:
        """Return the payload recorded for a step, or None."""
        if (kind, step) not in self._payload_places:
            return None
        start, length = self._payload_places[kind, step]
        return os.pread(self._file.fileno(), length, start)

    def write(self, kind: bytes, step: int, payload: bytes) -> None:
        """Append a record and wait until it is on disk."""
        start = self._sound_length or len(JOURNAL_HEADER)
        frame = _FRAME.pack(kind, step, len(payload), _frame_checksum(kind, step, len(payload)))
        chain = hashlib.sha256(self._chain + frame + payload).digest()
        # Remove a half-written record of a crash only now that a complete one replaces it.
        self._file.seek(self._sound_length)
        self._file.truncate()
        self._file.write((b"" if self._sound_length else JOURNAL_HEADER) + frame + payload + chain)
        self._flush()
        self._chain = chain
        self._payload_places[kind, step] = (start + len(frame), len(payload))
        self._sound_length = start + len(frame) + len(payload) + len(chain)

    def close(self) -> None:
        self._file.close()

    def _flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def _lock(self) -> None:
        if not try_lock(self._file):
            raise JournalError(f"another process uses {self.path}; wait until it ends, or choose another folder")

    def _load(self) -> int:
        """Index the records in the file and return the length of its undamaged beginning."""
        head = self._file.read(len(JOURNAL_HEADER))
        if head != JOURNAL_HEADER:
            if JOURNAL_HEADER.startswith(head):
                return 0
            raise JournalError(
                f"{self.path} was not written by this version of fedclust; start a new run in another folder"
            )
        sound = len(JOURNAL_HEADER)
        while len(frame := self._file.read(_FRAME.size)) == _FRAME.size:
            kind, step, length, check = _FRAME.unpack(frame)
            if check != _frame_checksum(kind, step, length):
                raise JournalError(
                    f"{self.path} was altered or damaged at byte {sound}, so the run cannot be resumed; start a new run"
                )
            payload, chain = self._file.read(length), self._file.read(len(self._chain))
            if len(chain) < len(self._chain):
                break
            if hashlib.sha256(self._chain + frame + payload).digest() != chain:
                raise JournalError(
                    f"{self.path} was altered or damaged at byte {sound}, so the run cannot be resumed; start a new run"
                )
            self._payload_places[kind, step] = (sound + _FRAME.size, length)
            self._chain = chain
            sound = self._file.tell()
        return sound


def _frame_checksum(kind: bytes, step: int, length: int) -> int:
    """Checksum a record's header, so that a damaged length does not look like an incomplete record."""
    return zlib.crc32(struct.pack("<cQI", kind, step, length))


def run_id(folder: Path | None) -> str:
    """Return a unique name for a new run; a run folder keeps its name."""
    if folder is None:
        return secrets.token_hex(8)
    path = folder / "run"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, secrets.token_hex(8) + "\n", durable=False)
    return path.read_text().strip()
