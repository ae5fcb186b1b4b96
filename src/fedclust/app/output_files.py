"""Tables of results that grow block by block and appear when they are complete."""

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
    """A file of named columns; it appears when the `with` block ends well, and not at all otherwise.

    The ending says the format. Numbers keep every bit in both. Only the owner may read it: rows may be people.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix.lower() not in TABLE_SUFFIXES:
            raise StudyError(f"'{path.name}' says no format; end the name in {' or '.join(TABLE_SUFFIXES)}")
        self.path = path
        self._replacement = open_replacement(path, one_writer=False)
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        if not self.path.parent.is_dir():
            raise StudyError(f"there is no folder {self.path.parent} to write {self.path.name} to; make it first")
        self._file = self._replacement.__enter__()
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
        except BaseException as failed:
            self._replacement.__exit__(type(failed), failed, failed.__traceback__)
            raise
        self._replacement.__exit__(kind, error, trace)
