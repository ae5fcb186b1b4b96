"""Reads CSV and Parquet files from start to end without holding a whole file in memory."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fedclust.core.errors import DataError
from fedclust.site.sources.arrow import MISSING_MARKS, replace_error
from fedclust.site.sources.source_interface import BATCH_BYTES, rows_per_block, separator_hint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

PARQUET_BUFFER = 1 << 16  # without a buffer Arrow loads a whole column of a row group: 1.3 GB for 1e7 x 16 in one group
CSV_BUFFER = 1 << 20


def stamp_of(path: Path) -> tuple[int, int]:
    """Return the size and the modification time of a file."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


class ParquetFeed:
    """A Parquet file. One thread and no read-ahead keep memory at one batch, for any size of the row groups."""

    def __init__(self, path: Path, site: str) -> None:
        self._path = path
        self._sentence = (
            f"{path.name} of site '{site}' cannot be read as Parquet; check that it is complete, or write it again"
        )
        with replace_error(self._sentence):
            self._schema = pa.parquet.read_schema(path)
        self.names = tuple(self._schema.names)

    def stamp(self) -> object:
        return stamp_of(self._path)

    def types(self, columns: Sequence[str]) -> list[pa.DataType]:
        return [self._schema.field(name).type for name in columns]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with (
            replace_error(self._sentence),
            pa.parquet.ParquetFile(self._path, pre_buffer=False, buffer_size=PARQUET_BUFFER) as file,
        ):
            rows = rows_per_block(len(columns), BATCH_BYTES)
            for batch in file.iter_batches(rows, columns=list(columns), use_threads=False):
                yield batch.select(list(columns))  # Arrow returns columns in the file's order


class CsvFeed:
    """A CSV file with a header. Types are fixed in advance, so that no late row can change a column's type."""

    def __init__(self, path: Path, site: str, texts: Collection[str]) -> None:
        self._path, self._site, self._texts = path, site, texts
        self.names = self._header()

    def stamp(self) -> object:
        return stamp_of(self._path)

    def _header(self) -> tuple[str, ...]:
        with (
            replace_error(f"{self._path.name} of site '{self._site}' is not readable UTF-8 text; save it as UTF-8 CSV"),
            self._path.open(newline="", encoding="utf-8-sig") as file,
        ):
            names = next(csv.reader(file), [])
        if not names:
            raise DataError(
                f"{self._path.name} of site '{self._site}' is empty; provide a CSV file with a header and rows"
            )
        if _is_data_row(names):
            raise DataError(
                f"the first line of {self._path.name} of site '{self._site}' holds numbers instead of column "
                "names; add a line with the column names above it"
            )
        return tuple(names)

    def types(self, columns: Sequence[str]) -> list[pa.DataType]:
        return [pa.string() if name in self._texts else pa.float64() for name in columns]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        ragged: list[tuple[int, int]] = []
        try:
            with self._reader(columns, ragged) as reader:
                yield from reader
        except (pa.ArrowException, OSError, UnicodeError) as error:
            sentence = self._explain_error(str(error), ragged)
            raise DataError(sentence) from None

    def _reader(self, columns: Sequence[str], ragged: list[tuple[int, int]]) -> Any:
        def note(row: Any) -> str:
            ragged.append((row.expected_columns, row.actual_columns))
            return "error"

        parse = pa.csv.ParseOptions(
            invalid_row_handler=note,
            newlines_in_values=True,  # a text column that is not requested may hold some
            ignore_empty_lines=len(self.names) > 1,  # with one column an empty line is a missing value
        )
        convert = pa.csv.ConvertOptions(
            include_columns=list(columns),
            column_types=dict(zip(columns, self.types(columns), strict=True)),
            null_values=MISSING_MARKS,
        )
        read = pa.csv.ReadOptions(block_size=CSV_BUFFER, use_threads=False)
        return pa.csv.open_csv(self._path, read_options=read, parse_options=parse, convert_options=convert)

    def _explain_error(self, message: str, ragged: list[tuple[int, int]]) -> str:
        """Describe the error in our own words, because Arrow's message quotes the row."""
        file = f"{self._path.name} of site '{self._site}'"
        if other := separator_hint(self.names):
            return f"{file} cannot be read: {other}"
        if ragged:
            expected, found = ragged[0]
            return f"a row of {file} has {found} fields where its header has {expected}; correct or quote that row"
        at = re.match(r"In CSV column #(\d+): ", message)
        if at:
            name = self.names[int(at[1])]
            return (
                f"column '{name}' of site '{self._site}' holds text in {self._path.name}; "
                "encode it as numbers or leave it out of `columns`"
            )
        return f"{file} cannot be read as CSV; check that it is complete and comma-separated"


def _is_data_row(fields: Sequence[str]) -> bool:
    """Return whether the first line is a data row: as a header it would be lost, and its values shown as names."""
    filled = [text.strip() for text in fields if text.strip() not in MISSING_MARKS]
    return bool(filled) and all(map(_is_number_text, filled))


def _is_number_text(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
