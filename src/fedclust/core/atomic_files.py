"""Files that a site must find again after a power cut: whole, or as they were before."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from fedclust.core.errors import RunFailed
from fedclust.core.file_locks import locked, wait_for


def keep(path: Path, data: bytes, *, shared: bool = False) -> None:
    """Put a file in the place of another; the disk has it, and its name, before this returns.

    It is for its owner alone; a `shared` one also for those with whom its folder is shared.
    """
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)  # what a crash left, or a link that somebody put there: it is not followed
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        if shared:
            lend(file.fileno(), path.parent, 0o060)
    draft.replace(path)
    settle(path.parent)


def shared_folder(path: Path) -> None:
    """Make a folder, shared with those with whom the one that it lies in is, and with nobody else."""
    if path.is_dir():
        return
    shared_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "O_DIRECTORY"):
        made = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            lend(made, path.parent, stat.S_ISGID | 0o070)
        finally:
            os.close(made)


def lend(made: int, folder: Path, may: int) -> None:
    """Give a folder's group what it may do there with what was made in it, if the folder is shared.

    That is, if its group may write there, or is passed on to what is made there. `made` is a descriptor: where others
    may write, a name could be another's file by now.
    """
    about = folder.stat()
    if hasattr(os, "fchown") and about.st_mode & (stat.S_ISGID | stat.S_IWGRP):
        with suppress(OSError):  # whoever is not of that group keeps it to itself
            os.fchown(made, -1, about.st_gid)
            os.fchmod(made, stat.S_IMODE(os.fstat(made).st_mode) | about.st_mode & may)


def settle(folder: Path) -> None:
    """Wait until the disk has the names of a folder's files."""
    if hasattr(os, "O_DIRECTORY"):  # elsewhere a folder cannot be waited for
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(place)
        finally:
            os.close(place)


def add_line(file: TextIO, line: str, *, durable: bool) -> int:
    """Add a line at the end, wholly or not at all, and tell where it begins; `durable` waits until the disk has it."""
    before, place = file.seek(0, os.SEEK_END), file.fileno()
    left = memoryview(line.encode("utf-8"))
    try:
        while left:  # not by way of the file's own buffer, which would try again what a full disk refused
            left = left[os.write(place, left) :]
        if durable:
            os.fsync(place)
    except OSError:
        os.ftruncate(place, before)
        raise
    return before


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Keep other processes from serving the same site: two would write one ledger, and answer one step twice."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        if not locked(file):
            raise RunFailed(f"another process serves the site whose state is in {folder}; stop one of them")
        yield


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Have what is read and written meanwhile to oneself, over all processes; others wait."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        wait_for(file)
        yield


def noted(folder: Path, code: str, error: Exception) -> None:
    """An error in full, for the site's own people: in `trouble.log`, or if that cannot be, on their terminal."""
    path, line = folder / "trouble.log", f"{code}: {type(error).__name__}: {error}\n"
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
            file.write(line)
    except OSError:
        with suppress(OSError):
            sys.stderr.write(f"fedclust: {path} cannot be written: {line}")
