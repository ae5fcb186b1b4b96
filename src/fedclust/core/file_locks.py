"""One process at a time: locks on open files, which end with the process that has them."""

from __future__ import annotations

import time
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows has no such lock; nothing warns there
    fcntl = None  # type: ignore[assignment]

GLANCE = 0.5  # seconds: who only looks whether a file is locked, or was killed just now, lets go of it sooner


def locked(file: IO[Any], *, alone: bool = True, patience: float = GLANCE) -> bool:
    """Whether a file could be locked, for oneself alone or along with others; closing it lets go.

    A disk that knows no locks raises an `OSError` of its own: that is not another process.
    """
    if fcntl is None:
        return True
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            if time.monotonic() >= until:
                return False
            time.sleep(GLANCE / 20)
        else:
            return True


def wait_for(file: IO[Any]) -> None:
    """Lock a file as soon as nobody else has it."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
