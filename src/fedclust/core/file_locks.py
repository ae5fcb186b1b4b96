"""One process at a time: locks on open files, which end with the process that has them."""

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
except ImportError:  # Windows has no such lock; nothing warns there
    fcntl = None  # type: ignore[assignment]

LOCK_PATIENCE = 0.5  # seconds: who only looks whether a file is locked, or was killed just now, lets go of it sooner


def try_lock(file: IO[Any], *, exclusive: bool = True, patience: float = LOCK_PATIENCE) -> bool:
    """Whether a file could be locked, for oneself alone or along with others; closing it lets go.

    A disk that knows no locks raises an `OSError` of its own: that is not another process.
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
    """Lock a file as soon as nobody else has it."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other processes from serving the same site: two would write one ledger, and answer one step twice."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _open_lock(folder / "lock") as file:
        if not try_lock(file):
            raise RunFailed(f"another process serves the site whose state is in {folder}; stop one of them")
        yield


@contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Have what is read and written meanwhile to oneself, over all processes; others wait."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _open_lock(path) as file:
        wait_for_lock(file)
        yield


def _open_lock(path: Path) -> IO[str]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
