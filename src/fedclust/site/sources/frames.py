"""Reads DataFrames of any library that supports Arrow, always through Arrow and never through the library itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fedclust.core.errors import DataError
from fedclust.questions.schema import Schema
from fedclust.site.sources.source_interface import RESIDENT_BYTES, PackedRows
from fedclust.site.sources.streamed import Feed, StreamedRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def is_frame(thing: object) -> bool:
    return hasattr(thing, "__arrow_c_stream__") or _has_index(thing)


def _has_index(thing: object) -> bool:
    return hasattr(thing, "iloc") and hasattr(thing, "columns")


def from_frame(
    frame: Any,
    *,
    columns: Sequence[str] | None,
    id: str | None,  # noqa: A002
    site: str,
    schema: Schema,
    repeats: bool = False,
) -> PackedRows:
    """Copy a pandas, polars or pyarrow table into blocks."""
    pass_ = StreamedRows(
        frame_feed(frame, site),
        columns=columns,
        id=id,
        site=site,
        schema=schema,
        budget=RESIDENT_BYTES,
        repeats=repeats,
    )
    return PackedRows(site, pass_.columns, tuple(pass_.blocks()), pass_.ids())


def frame_feed(frame: Any, site: str) -> Feed:
    """Return a frame as batches."""
    return IndexedFrame(frame, site) if _has_index(frame) else ArrowFrame(frame)


class ArrowFrame:
    """A table that exports itself as an Arrow stream."""

    def __init__(self, frame: Any) -> None:
        self._table = pa.table(frame)
        self.names = tuple(self._table.column_names)

    def stamp(self) -> object:
        return None  # rows of this process

    def types(self, columns: Sequence[str]) -> list[pa.DataType]:
        return [self._table.schema.field(name).type for name in columns]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return iter(self._table.select(list(columns)).to_batches())


class IndexedFrame:
    """A pandas frame, read one column at a time, so that its index and unused object columns are not touched."""

    def __init__(self, frame: Any, site: str) -> None:
        self._frame, self._site = frame, site
        self.names = tuple(str(label) for label in frame.columns)

    def stamp(self) -> object:
        return None  # rows of this process

    def types(self, columns: Sequence[str]) -> list[pa.DataType]:
        return [self._column(name).type for name in columns]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return iter(pa.table([self._column(name) for name in columns], names=list(columns)).to_batches())

    def _column(self, name: str) -> Any:
        series = self._frame.iloc[:, self.names.index(name)]
        try:
            return pa.array(series, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError):
            raise DataError(
                f"column '{name}' of site '{self._site}' mixes numbers with other values; make all its values numbers"
            ) from None
