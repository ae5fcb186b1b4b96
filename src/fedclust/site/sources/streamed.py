"""Rows that stay in their file or database and are read again on each pass, one block in memory at a time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import DataError
from fedclust.questions.encoding import unknown_level_error
from fedclust.questions.schema import Schema, encoded_names
from fedclust.site.sources.arrow import NUMBER_COLUMN, check_type, encode_column, ids_from_column
from fedclust.site.sources.source_interface import (
    STREAMED_BYTES,
    Block,
    Ids,
    choose_columns,
    join_distinct_ids,
    regroup,
    rows_per_block,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Feed(Protocol):
    """A place that rows are read from, in Arrow batches; file formats and databases differ only here."""

    @property
    def names(self) -> tuple[str, ...]: ...
    def types(self, columns: Sequence[str]) -> list[pa.DataType]:
        """Return the type of each column; null if only the values decide it."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns of every row, in the same order each time."""

    def stamp(self) -> object:
        """Return a value that changes with the rows, as far as that is known without reading them."""


class StreamedRows:
    """A feed as blocks."""

    resident = False

    def __init__(
        self,
        feed: Feed,
        *,
        columns: Sequence[str] | None,
        id: str | None,  # noqa: A002
        site: str,
        schema: Schema | None = None,
        budget: int = STREAMED_BYTES,
        repeats: bool = False,
    ) -> None:
        self.site = site
        chosen = choose_columns(feed.names, columns=columns, id=id, site=site)
        self._declared = {name: (schema or {}).get(name, NUMBER_COLUMN) for name in chosen}
        self.columns = encoded_names(self._declared)
        types = feed.types(chosen)
        for (name, column), kind in zip(self._declared.items(), types, strict=True):
            check_type(kind, name, site, column)
        self._feed, self._id, self._repeats = feed, id, repeats
        narrow = all(map(pa.types.is_float32, types)) and not any(c.levels for c in self._declared.values())
        self._dtype = np.float32 if narrow else np.float64
        self._rows_per_block = rows_per_block(len(self.columns), budget)
        self._rows: int | None = None
        self._stamp = feed.stamp()

    def __repr__(self) -> str:
        return f"Streamed(site={self.site!r}, columns={self.columns!r})"

    def blocks(self) -> Iterator[Block]:
        rows = 0
        for block in regroup(self._pieces(), width=len(self.columns), rows=self._rows_per_block, dtype=self._dtype):
            rows += block.shape[1]
            yield block
        self._check_unchanged(rows)

    def ids(self) -> Ids | None:
        if self._id is None:
            return None
        parts = [ids_from_column(batch.column(0), self._id, self.site) for batch in self._feed.batches((self._id,))]
        ids = join_distinct_ids(parts, id=self._id, site=self.site, repeats=self._repeats)
        self._check_unchanged(len(ids))
        return ids

    def _pieces(self) -> Iterator[list[Any]]:
        strangers: Counter[str] = Counter()
        for batch in self._feed.batches(tuple(self._declared)):
            piece: list[Any] = []
            for (name, declared), column in zip(self._declared.items(), batch.columns, strict=True):
                values, strange = encode_column(column, name, self.site, declared, self._dtype)
                strangers[name] += strange
                piece += values
            yield piece
        # Only a complete pass can count the rows; its reader gets this error instead of the last block.
        for name, count in strangers.items():
            if count:
                raise unknown_level_error(name, self.site, count, self._declared[name])

    def _check_unchanged(self, rows: int) -> None:
        # Rounds combine passes over the same rows; a table that changes in between would give centres of no data set.
        if self._feed.stamp() != self._stamp:
            raise DataError(f"the file of site '{self.site}' changed during the run; start the run again")
        if self._rows is not None and rows != self._rows:
            raise DataError(
                f"site '{self.site}' had {count_noun(self._rows, 'row')} in an earlier pass and {rows} now; "
                "keep its data unchanged during a run, or query a snapshot"
            )
        self._rows = rows
