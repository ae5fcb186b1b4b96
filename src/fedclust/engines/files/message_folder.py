"""A folder of letters: what is in it that counts, what is refused by name, and what has not wholly arrived."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedclust.core.atomic_files import make_shared_folder, write_file
from fedclust.core.errors import RunFailed
from fedclust.engines.files.message_file import SUFFIX, Letter, Refused, Unfinished, read, seen

Check = Callable[[Letter, bytes], None]
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class Folder:
    """Reads each file once, unless it changed meanwhile. `bad` and `unfinished` name files with their reasons."""

    path: Path
    check: Check  # refuses a letter that is not from whom, or not for whom, it should be
    bad: dict[str, str] = field(default_factory=dict)
    unfinished: dict[str, str] = field(default_factory=dict)
    _read: dict[str, tuple[tuple[int, int], tuple[Letter, bytes] | None]] = field(default_factory=dict)
    _whole: dict[str, tuple[int, int, bytes]] = field(default_factory=dict)

    def letters(self) -> list[tuple[str, Letter, bytes]]:
        """All sound letters with the names of their files, in the order they were written."""
        found = []
        self.unfinished.clear()
        present = set()
        for path in self._files():
            present.add(path.name)
            taken = self._taken(path)
            if taken is not None:
                found.append((path.name, *taken))
        self._read = {name: known for name, known in self._read.items() if name in present}
        return sorted(found, key=lambda one: (one[1].run, one[1].number, one[0]))

    def refuse(self, name: str, why: str) -> None:
        """A sound letter that cannot be used."""
        self.bad[name] = why

    def remove(self, names: Iterable[str]) -> None:
        """Let go of letters that did their duty."""
        for name in names:
            self._whole.pop(name, None)
            with suppress(OSError):
                self._place(name).unlink()

    def put(self, letters: Mapping[str, bytes]) -> list[str]:
        """Make letters appear, each whole or not at all; those that lie there as they were written are left alone."""
        places = {name: self._place(name) for name in letters}
        try:
            make_shared_folder(self.path)
            new = [name for name, place in places.items() if not self._holds(place, letters[name])]
            for name in new:
                write_file(places[name], letters[name], shared=True)
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            what = "there is no room for a letter" if error.errno in FULL else "no letter can be written"
            raise RunFailed(f"{what} in {self.path} ({reason}); mend that, then go on") from None
        return new

    def _holds(self, place: Path, data: bytes) -> bool:
        """Whether a letter lies there as it was written; it is read again only where it changed."""
        try:
            about = place.stat()
            seal = (about.st_size, about.st_mtime_ns, data)
            if self._whole.get(place.name) == seal:
                return True
            if about.st_size != len(data) or place.read_bytes() != data:
                return False
        except OSError:
            return False
        self._whole[place.name] = seal
        return True

    def _place(self, name: str) -> Path:
        """Where a letter lies: in this folder, whatever it is called."""
        if name in ("", ".", "..") or "/" in name or "\\" in name:
            raise RunFailed(f"a letter cannot be called '{seen(name)}': that is no name of a file in {self.path}")
        return self.path / name

    def _files(self) -> list[Path]:
        try:
            return sorted(path for path in self.path.iterdir() if path.suffix == SUFFIX and path.is_file())
        except OSError:
            return []

    def _taken(self, path: Path) -> tuple[Letter, bytes] | None:
        try:
            about = path.stat()
        except OSError:
            return None
        mark = (about.st_size, about.st_mtime_ns)
        known = self._read.get(path.name)
        if known is not None and known[0] == mark:
            return known[1]
        self.bad.pop(path.name, None)
        taken = None
        try:
            letter, data = read(path)
            self.check(letter, data)
            taken = letter, data
        except Unfinished as error:
            self.unfinished[path.name] = str(error)
            return None  # looked at again, whatever its date says
        except Refused as error:
            self.bad[path.name] = str(error)
        self._read[path.name] = (mark, taken)
        return taken
