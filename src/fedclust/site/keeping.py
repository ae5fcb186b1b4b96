"""Files that a site must find again after a power cut: whole, or as they were before."""

from __future__ import annotations

import os
from pathlib import Path


def keep(path: Path, data: bytes) -> None:
    """Put a file in the place of another; the disk has it, and its name, before this returns."""
    draft = path.with_suffix(".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    if hasattr(os, "O_DIRECTORY"):  # elsewhere a folder cannot be waited for
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
