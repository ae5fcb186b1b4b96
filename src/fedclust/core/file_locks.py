"""Locks on open files, for one process at a time; they end with the process that holds them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from fedclust.core.errors import RunFailed

try:
    import fcntl
except ImportError:  # Windows has no such lock, so nothing is locked there
    fcntl = None  # type: ignore[assignment]

LOCK_PATIENCE = 0.5  # seconds: a process that only checks a lock, or was just killed, releases it sooner


def try_lock(file: IO[Any], *, exclusive: bool = True, patience: float = LOCK_PATIENCE) -> bool:
    """Return whether a file could be locked, exclusively or shared; closing the file releases the lock.

    A disk without lock support raises its own `OSError`, which does not mean that another process holds the lock.
    """
    if fcntl is None:
        return True
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            if time.monotonic() >= until:
                return False
            time.sleep(LOCK_PATIENCE / 20)
        else:
            return True


def wait_for_lock(file: IO[Any]) -> None:
    """Wait until no other process holds the lock on a file, then take it."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other processes from serving the same site: two would write one ledger and answer a step twice."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _open_lock(folder / "lock") as file:
        if not try_lock(file):
            raise RunFailed(
                f"another process serves the site whose state is in {folder}; stop one of the two processes"
            )
        yield


@contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Hold a lock across all processes while the block runs; other processes wait."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _open_lock(path) as file:
        wait_for_lock(file)
        yield


def _open_lock(path: Path) -> IO[str]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
