"""Files that are there whole or not at all: texts, and tables that grow block by block."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedclust.core.errors import StudyError
from fedclust.core.types import Array

SUFFIXES = (".csv", ".parquet")


def write_whole(path: Path, text: str) -> None:
    """Write a file for its owner's eyes; whoever looks finds all of it or the one before."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", newline=""
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


class Table:
    """A file of named columns; it appears when the `with` block ends well, and not at all otherwise.

    The ending says the format. Numbers keep every bit in both. Only the owner may read it: rows may be people.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix.lower() not in SUFFIXES:
            raise StudyError(f"'{path.name}' says no format; end the name in {' or '.join(SUFFIXES)}")
        self.path = path
        self._draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        if not self.path.parent.is_dir():
            raise StudyError(f"there is no folder {self.path.parent} to write {self.path.name} to; make it first")
        self._file = os.fdopen(os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        return self

    def write(self, columns: Mapping[str, Array]) -> None:
        """Append rows; every call brings the same columns."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and texts need none of it
        import pyarrow.csv  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415

        block = pa.table({name: pa.array(values) for name, values in columns.items()})
        if self._writer is None:
            kind = pa.csv.CSVWriter if self.path.suffix.lower() == ".csv" else pa.parquet.ParquetWriter
            self._writer = kind(self._file, block.schema)
        self._writer.write_table(block)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
            self._file.close()
            if kind is None:
                self._draft.replace(self.path)
        finally:
            self._draft.unlink(missing_ok=True)
