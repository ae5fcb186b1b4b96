"""A message folder separates valid message files from refused ones and from those not completely copied."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedclust.core.atomic_files import make_shared_folder, write_file
from fedclust.core.errors import RunFailed
from fedclust.engines.files.message_file import (
    MESSAGE_SUFFIX,
    IncompleteMessage,
    MessageRefused,
    SignedMessage,
    escape_unprintable,
    read_message,
)

MessageCheck = Callable[[SignedMessage, bytes], None]
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class MessageFolder:
    """Reads each file once, and again if it changed. `refused` and `incomplete` map file names to reasons."""

    path: Path
    check: MessageCheck  # refuses a message with the wrong sender or recipient
    refused: dict[str, str] = field(default_factory=dict)
    incomplete: dict[str, str] = field(default_factory=dict)
    _read_files: dict[str, tuple[tuple[int, int], tuple[SignedMessage, bytes] | None]] = field(default_factory=dict)
    _intact_files: dict[str, tuple[int, int, bytes]] = field(default_factory=dict)

    def read_messages(self) -> list[tuple[str, SignedMessage, bytes]]:
        """All valid messages with their file names, in the order in which they were written."""
        found = []
        self.incomplete.clear()
        present = set()
        for path in self._message_files():
            present.add(path.name)
            taken = self._read_if_changed(path)
            if taken is not None:
                found.append((path.name, *taken))
        self._read_files = {name: known for name, known in self._read_files.items() if name in present}
        return sorted(found, key=lambda one: (one[1].run, one[1].number, one[0]))

    def refuse(self, name: str, why: str) -> None:
        """Mark a valid message that cannot be used."""
        self.refused[name] = why

    def remove(self, names: Iterable[str]) -> None:
        """Delete messages that are no longer needed."""
        for name in names:
            self._intact_files.pop(name, None)
            with suppress(OSError):
                self._file_path(name).unlink()

    def write_messages(self, messages: Mapping[str, bytes]) -> list[str]:
        """Write each message completely or not at all; leave alone those that are already there, unchanged."""
        places = {name: self._file_path(name) for name in messages}
        try:
            make_shared_folder(self.path)
            new = [name for name, place in places.items() if not self._is_intact(place, messages[name])]
            for name in new:
                write_file(places[name], messages[name], shared=True)
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            remedy = "free some space" if error.errno in DISK_FULL_ERRORS else "correct the cause"
            raise RunFailed(f"cannot write a message to {self.path} ({reason}); {remedy}, then try again") from None
        return new

    def _is_intact(self, place: Path, data: bytes) -> bool:
        """Whether a message is there as it was written; it is read again only if it changed."""
        try:
            about = place.stat()
            seal = (about.st_size, about.st_mtime_ns, data)
            if self._intact_files.get(place.name) == seal:
                return True
            if about.st_size != len(data) or place.read_bytes() != data:
                return False
        except OSError:
            return False
        self._intact_files[place.name] = seal
        return True

    def _file_path(self, name: str) -> Path:
        """The path of a message; refuses a name that leads outside this folder."""
        if name in ("", ".", "..") or "/" in name or "\\" in name:
            raise RunFailed(
                f"a message file cannot have the name '{escape_unprintable(name)}': it is not a plain file name"
            )
        return self.path / name

    def _message_files(self) -> list[Path]:
        try:
            return sorted(path for path in self.path.iterdir() if path.suffix == MESSAGE_SUFFIX and path.is_file())
        except OSError:
            return []

    def _read_if_changed(self, path: Path) -> tuple[SignedMessage, bytes] | None:
        try:
            about = path.stat()
        except OSError:
            return None
        mark = (about.st_size, about.st_mtime_ns)
        known = self._read_files.get(path.name)
        if known is not None and known[0] == mark:
            return known[1]
        self.refused.pop(path.name, None)
        taken = None
        try:
            message, data = read_message(path)
            self.check(message, data)
            taken = message, data
        except IncompleteMessage as error:
            self.incomplete[path.name] = str(error)
            return None  # checked again, even if its date does not change
        except MessageRefused as error:
            self.refused[path.name] = str(error)
        self._read_files[path.name] = (mark, taken)
        return taken
