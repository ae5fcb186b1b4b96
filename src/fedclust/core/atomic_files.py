"""Write files, folders and lines so that they appear completely or not at all."""

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
    """Replace a file so that a reader finds either the complete new file or the complete old one.

    With `durable`, the file and its name are on disk before this returns. Only its owner can read the file unless
    `mode` says otherwise. A `shared` file is also open to the group with which its folder is shared.
    """
    with open_replacement(path, durable=durable, shared=shared, one_writer=one_writer, mode=mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def open_replacement(
    path: Path, *, durable: bool = True, shared: bool = False, one_writer: bool = True, mode: int = 0o600
) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces `path` if the block succeeds and disappears if it fails.

    With `one_writer`, the draft has a fixed name, and the next draft replaces one that a crash left. Processes that may
    write the same file at the same time need separate drafts.
    """
    draft = path.with_name(f"{path.name}{DRAFT_SUFFIX}") if one_writer else _hidden_name_next_to(path)
    draft.unlink(missing_ok=True)  # left by a crash, or a link that somebody put there: never follow it
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
    """Fill a folder, readable by its owner only, under a temporary name; it appears if the block succeeds."""
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
    """Append a complete line or nothing, and return where it begins. `durable` waits until it is on disk."""
    before, descriptor = file.seek(0, os.SEEK_END), file.fileno()
    left = memoryview(line.encode("utf-8"))
    try:
        while left:  # bypass the file's own buffer, which would retry what a full disk refused
            left = left[os.write(descriptor, left) :]
        if durable:
            os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, before)
        raise
    return before


def make_shared_folder(path: Path) -> None:
    """Make a folder that is shared with the same group as its parent folder, and with nobody else."""
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
    """Give a folder's group access to something made in it, if the folder is shared.

    A folder is shared if its group may write there, or if new files inherit its group. The new file or folder is given
    as a descriptor: where others may write, its name could meanwhile point to another's file.
    """
    about = folder.stat()
    if hasattr(os, "fchown") and about.st_mode & (stat.S_ISGID | stat.S_IWGRP):
        with suppress(OSError):  # a process outside that group keeps the file to itself
            os.fchown(descriptor, -1, about.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) | about.st_mode & rights)


def sync_folder(folder: Path) -> None:
    """Wait until the names of a folder's files are on disk."""
    if hasattr(os, "O_DIRECTORY"):  # other platforms cannot sync a folder
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def log_error(folder: Path, code: str, error: Exception) -> None:
    """Write an error in full to the site's own `trouble.log`, or to the terminal if that fails."""
    path, line = folder / "trouble.log", f"{code}: {type(error).__name__}: {error}\n"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
            file.write(line)
    except OSError:
        with suppress(OSError):
            sys.stderr.write(f"fedclust: cannot write {path}: {line}")


def _hidden_name_next_to(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{DRAFT_SUFFIX}")
