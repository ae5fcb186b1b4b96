"""Files and folders that appear whole or not at all, and lines that are added wholly or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

DRAFT_SUFFIX = ".new"


def write_file(
    path: Path,
    data: bytes | str,
    *,
    durable: bool = True,
    shared: bool = False,
    one_writer: bool = True,
    mode: int = 0o600,
) -> None:
    """Put a file in the place of another; whoever reads it finds all of it, or the one before.

    With `durable` the disk has the file, and its name, before this returns. The file is for its owner alone unless
    `mode` says otherwise; a `shared` one is also for the group with which its folder is shared.
    """
    with open_replacement(path, durable=durable, shared=shared, one_writer=one_writer, mode=mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def open_replacement(
    path: Path, *, durable: bool = True, shared: bool = False, one_writer: bool = True, mode: int = 0o600
) -> Iterator[BinaryIO]:
    """A file to write to, which takes its place at `path` when the block ends well and disappears otherwise.

    With `one_writer` the draft has a fixed name, and the next one replaces a draft that a crash left. Processes that
    may write the same file at the same time need drafts of their own.
    """
    draft = path.with_name(f"{path.name}{DRAFT_SUFFIX}") if one_writer else _hidden_name_next_to(path)
    draft.unlink(missing_ok=True)  # what a crash left, or a link that somebody put there: it is not followed
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            if shared:
                share_with_group(file.fileno(), path.parent, 0o060)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder for its owner alone, to be filled under another name; it appears when the block ends well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = _hidden_name_next_to(folder)
    draft.mkdir(mode=0o700)
    try:
        yield draft
        draft.replace(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def append_line(file: TextIO, line: str, *, durable: bool) -> int:
    """Add a line at the end, wholly or not at all; returns where it begins. `durable` waits until the disk has it."""
    before, descriptor = file.seek(0, os.SEEK_END), file.fileno()
    left = memoryview(line.encode("utf-8"))
    try:
        while left:  # not by way of the file's own buffer, which would try again what a full disk refused
            left = left[os.write(descriptor, left) :]
        if durable:
            os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, before)
        raise
    return before


def make_shared_folder(path: Path) -> None:
    """Make a folder, shared with those with whom the one that it lies in is, and with nobody else."""
    if path.is_dir():
        return
    make_shared_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "O_DIRECTORY"):
        made = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            share_with_group(made, path.parent, stat.S_ISGID | 0o070)
        finally:
            os.close(made)


def share_with_group(descriptor: int, folder: Path, rights: int) -> None:
    """Give a folder's group what it may do there with what was made in it, if the folder is shared.

    That is, if its group may write there, or is passed on to what is made there. A descriptor says what was made: where
    others may write, a name could be another's file by now.
    """
    about = folder.stat()
    if hasattr(os, "fchown") and about.st_mode & (stat.S_ISGID | stat.S_IWGRP):
        with suppress(OSError):  # whoever is not of that group keeps it to itself
            os.fchown(descriptor, -1, about.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) | about.st_mode & rights)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names of a folder's files."""
    if hasattr(os, "O_DIRECTORY"):  # elsewhere a folder cannot be waited for
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def log_error(folder: Path, code: str, error: Exception) -> None:
    """An error in full, for the site's own people: in `trouble.log`, or if that cannot be, on their terminal."""
    path, line = folder / "trouble.log", f"{code}: {type(error).__name__}: {error}\n"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
            file.write(line)
    except OSError:
        with suppress(OSError):
            sys.stderr.write(f"fedclust: {path} cannot be written: {line}")


def _hidden_name_next_to(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{DRAFT_SUFFIX}")
