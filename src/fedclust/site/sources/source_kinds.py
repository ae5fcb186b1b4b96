"""Turns what a user writes into a source, and lists all kinds of data that a site may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedclust.core.errors import DataError
from fedclust.questions.schema import Schema
from fedclust.site.sources.array_rows import Words, from_array, whole_array
from fedclust.site.sources.noised_rows import NoisedSource

if TYPE_CHECKING:
    from fedclust.site.sources.source_interface import Source
    from fedclust.site.sources.streamed import Feed


def open_source(
    spec: Any,
    *,
    columns: Sequence[str] | None = None,
    id: str | None = None,  # noqa: A002 - the study's own word
    site: str = "here",
    schema: Schema | None = None,
    repeats: bool = False,
) -> Source:
    """Open an array, a frame, a .csv or .parquet path, or {"sql": ..., "database": ...} as rows of `site`.

    `columns` selects and orders the columns. An array's columns are x0, x1, ... unless `columns` names all of them.
    `id` names the column that identifies rows; it is not a data column. Ids must differ, unless they may have
    `repeats`. `schema` declares the columns; columns that it does not name are numbers.

    The database is a DuckDB or SQLite file, a postgresql:// address, or None for SQL over local files. The result of
    SQL without ORDER BY has no fixed order. Row splits need none, since their sums are exact in any order. Column
    splits need `id`, and the result is then ordered by it.

    >>> source = open_source(np.array([[1.0, 2.0], [3.0, 4.0]]), columns=["age", "weight"])
    >>> next(source.blocks())
    array([[1., 3.],
           [2., 4.]])
    """
    if isinstance(columns, str):
        columns = [columns]
    schema = schema or {}
    if isinstance(spec, NoisedSource):
        plain = partial(open_source, columns=columns, id=id, site=site, schema=schema, repeats=repeats)
        return spec.open_rows(plain, partial(_read_row_words, id=id, site=site))
    if isinstance(spec, (np.ndarray, list, tuple)):
        return from_array(spec, columns=columns, id=id, site=site, schema=schema, repeats=repeats)
    if id is not None and id in (columns or ()):
        raise DataError(
            f"'{id}' of site '{site}' identifies rows and cannot be a data column; remove it from `columns`"
        )
    # Arrow takes longer to import than all of fedclust, and arrays do not need it.
    from fedclust.site.sources.frames import from_frame, is_frame  # noqa: PLC0415
    from fedclust.site.sources.streamed import StreamedRows  # noqa: PLC0415

    if is_frame(spec):
        return from_frame(spec, columns=columns, id=id, site=site, schema=schema, repeats=repeats)
    texts = {name for name, column in schema.items() if column.is_text} | ({id} if id is not None else set())
    feed = _open_feed(spec, id, site, texts)
    return StreamedRows(feed, columns=columns, id=id, site=site, schema=schema, repeats=repeats)


def _read_row_words(spec: Any, *, id: str | None, site: str) -> Words:  # noqa: A002
    """Return everything that a source holds, row by row in the order of `open_source`, independent of any study."""
    if isinstance(spec, (np.ndarray, list, tuple)):
        return whole_array(spec, site)
    from fedclust.site.sources.frames import frame_feed, is_frame  # noqa: PLC0415
    from fedclust.site.sources.full_rows import whole_rows  # noqa: PLC0415

    if is_frame(spec):
        return whole_rows(frame_feed(spec, site))
    names = _open_feed(spec, id, site, set()).names
    return whole_rows(_open_feed(spec, id, site, set(names)))


def _open_feed(spec: Any, id: str | None, site: str, texts: set[str]) -> Feed:  # noqa: A002
    if isinstance(spec, Mapping):
        from fedclust.site.sources.databases import query_feed  # noqa: PLC0415

        return query_feed(spec, id=id, site=site)
    if isinstance(spec, (str, Path)):
        return _open_file_feed(str(spec), site, texts)
    raise DataError(
        f"the source of site '{site}' is a {type(spec).__name__}; use an array, a data frame, a path, or a "
        "table with `sql`"
    )


def _open_file_feed(name: str, site: str, texts: set[str]) -> Feed:
    from fedclust.site.sources.data_files import CsvFeed, ParquetFeed  # noqa: PLC0415

    if "://" in name:
        # Do not repeat an address, because it may hold a password.
        raise DataError(
            f"the source of site '{site}' is an address; set `database` to it, and set `sql` to the query to run there"
        )
    path = Path(name).expanduser()
    kind = path.suffix.lower()
    if kind not in {".csv", ".parquet"}:
        raise DataError(f"the source of site '{site}' is '{path.name}'; use a .csv or .parquet file, or `sql`")
    if path.is_dir():
        raise DataError(
            f"the source of site '{site}' is a folder; to read its files, set `sql` to a query FROM 'folder/*{kind}'"
        )
    if not path.is_file():
        raise DataError(f"the source of site '{site}' does not exist: {path}; check the path")
    return CsvFeed(path, site, texts) if kind == ".csv" else ParquetFeed(path, site)
