"""Writes tables of results block by block; a file appears only when it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedclust.core.atomic_files import open_replacement
from fedclust.core.errors import StudyError
from fedclust.core.types import Array

TABLE_SUFFIXES = (".csv", ".parquet")


class TableFile:
    """A file of named columns; it appears when the `with` block succeeds, and not at all otherwise.

    The file name's ending sets the format. Both formats keep every bit of a number. Only the owner can read the file,
    because rows may describe people.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix.lower() not in TABLE_SUFFIXES:
            raise StudyError(f"the format of '{path.name}' is unknown; end the name in {' or '.join(TABLE_SUFFIXES)}")
        self.path = path
        self._replacement = open_replacement(path, one_writer=False)
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        if not self.path.parent.is_dir():
            raise StudyError(f"the folder {self.path.parent} for {self.path.name} does not exist; create it first")
        self._file = self._replacement.__enter__()
        return self

    def write(self, columns: Mapping[str, Array]) -> None:
        """Append rows; every call has the same columns."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import
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
        except BaseException as failed:
            self._replacement.__exit__(type(failed), failed, failed.__traceback__)
            raise
        self._replacement.__exit__(kind, error, trace)
