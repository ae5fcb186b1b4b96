"""Runs SQL at a site: one interface to three databases, all read-only."""

from __future__ import annotations

import importlib
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import duckdb
import pyarrow as pa

from fedclust.core.errors import DataError
from fedclust.site.sources.source_interface import BATCH_BYTES, rows_per_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from fedclust.site.sources.streamed import Feed

QueryResult: TypeAlias = "tuple[pa.Schema, Iterator[pa.RecordBatch]]"


class Database(Protocol):
    """Runs one SELECT; every failure becomes a DataError that quotes no value."""

    def run_select(self, select: str) -> AbstractContextManager[QueryResult]: ...


def query_feed(spec: Mapping[str, Any], *, id: str | None, site: str) -> Feed:  # noqa: A002
    """Turn {"sql": ..., "database": ...} into a feed; `folder` contains the local files that the SQL names."""
    unknown = sorted(set(spec) - {"sql", "database", "folder"})
    if unknown or not isinstance(spec.get("sql"), str):
        wrong = f"has the unknown key '{unknown[0]}'" if unknown else "has no `sql`"
        raise DataError(
            f"the source of site '{site}' {wrong}; write sql = 'SELECT ...' and, if needed, database = '...'"
        )
    return QueryFeed(_database(spec.get("database"), site, spec.get("folder")), spec["sql"], id)


def _database(name: Any, site: str, folder: Any) -> Database:
    if name is None or str(name) == ":memory:":
        return DuckDB(":memory:", site, folder)
    if str(name).startswith(("postgresql://", "postgres://")):
        return PostgreSQL(str(name), site)
    path = Path(name).expanduser()
    if "://" in str(name) or not path.is_file():
        raise DataError(
            f"the database of site '{site}' does not exist; set `database` to a DuckDB or SQLite file, or to an address postgresql://..."
        )
    with path.open("rb") as file:
        head = file.read(16)
    # File endings are unreliable (any database may be a .db); the first bytes are reliable.
    if head == b"SQLite format 3\0":
        return SQLite(path, site)
    if head[8:12] == b"DUCK":
        return DuckDB(str(path), site)
    raise DataError(f"{path.name} of site '{site}' is neither a DuckDB nor an SQLite database; check `database`")


class QueryFeed:
    """The result of a query as a table; only the requested columns are fetched.

    With an id, rows are ordered by it, so that two passes agree. Without one, the query's own order is used.
    """

    def __init__(self, database: Database, sql: str, id: str | None) -> None:  # noqa: A002
        self._database, self._id = database, id
        # The line break ends a comment at the end of the query.
        self._table = f"({sql.strip().rstrip(';')}\n) AS q"
        with database.run_select(f"SELECT * FROM {self._table} LIMIT 0") as (schema, _):  # noqa: S608 - the site's own SQL
            self._schema = schema
        self.names = tuple(self._schema.names)

    def types(self, columns: Sequence[str]) -> list[pa.DataType]:
        return [self._schema.field(name).type for name in columns]

    def stamp(self) -> object:
        return None  # a database has its own transactions; the number of rows is compared instead

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        order = "" if self._id is None else f" ORDER BY {_quote_name(self._id)}"
        select = f"SELECT {', '.join(map(_quote_name, columns))} FROM {self._table}{order}"  # noqa: S608
        with self._database.run_select(select) as (_, batches):
            yield from batches


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sql_error(site: str, engine: str, reason: str) -> DataError:
    return DataError(
        f"{engine} refused the SQL of site '{site}' ({reason}); run the query directly in the database and correct it"
    )


class DuckDB:
    """A DuckDB file, or DuckDB in memory for SQL over local files."""

    SETTINGS = {  # noqa: RUF012 - the same dict for each connection, or DuckDB refuses the second
        # A site downloads no code, even if a query mentions an address.
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",  # a misspelt table name must not match a variable of this process
        # Measured on a scan of 1e7 x 16: one thread is faster than two, takes half the memory and keeps the order.
        "threads": "1",
    }
    REASONS: tuple[tuple[type[duckdb.Error], str], ...] = (
        (duckdb.ParserException, "a syntax error"),
        (duckdb.CatalogException, "an unknown table or function"),
        (duckdb.BinderException, "an unknown column, or types that do not match"),
        (duckdb.ConversionException, "a value that cannot be converted to the requested type"),
        (duckdb.IOException, "a missing or unreadable file"),
    )

    def __init__(self, path: str, site: str, folder: Any = None) -> None:
        self._path, self._site, self._folder = path, site, folder

    @contextmanager
    def run_select(self, select: str) -> Iterator[QueryResult]:
        with closing(self._connect()) as connection:
            try:
                if self._folder is not None:
                    connection.execute("SET file_search_path = $1", [str(self._folder)])
                answer = connection.sql(select)
                reader = answer.to_arrow_reader(rows_per_block(len(answer.columns), BATCH_BYTES))
                yield reader.schema, iter(reader)
            except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
                raise _sql_error(self._site, "DuckDB", self._reason(error)) from None

    def _connect(self) -> duckdb.DuckDBPyConnection:
        try:
            return duckdb.connect(self._path, read_only=self._path != ":memory:", config=dict(self.SETTINGS))
        except (duckdb.Error, OSError):
            raise DataError(
                f"the DuckDB file of site '{self._site}' cannot be opened for reading; close other programs "
                "that use the file"
            ) from None

    def _reason(self, error: Exception) -> str:
        for kind, reason in self.REASONS:
            if isinstance(error, kind):
                return reason
        return (
            "an extension that is not built in, and fedclust downloads no extensions"
            if "extension" in str(error)
            else "an error"
        )


class SQLite:
    """An SQLite file. A column may mix types from row to row, so types are decided by the values."""

    def __init__(self, path: Path, site: str) -> None:
        self._address, self._site = f"{path.resolve().as_uri()}?mode=ro", site

    @contextmanager
    def run_select(self, select: str) -> Iterator[QueryResult]:
        try:
            with closing(sqlite3.connect(self._address, uri=True)) as connection:
                connection.execute("PRAGMA query_only = ON")  # also for attached files
                cursor = connection.execute(select)
                names = [entry[0] for entry in cursor.description]
                yield pa.schema([(name, pa.null()) for name in names]), self._batches(cursor, names)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise _sql_error(self._site, "SQLite", self._reason(str(error))) from None

    def _batches(self, cursor: sqlite3.Cursor, names: list[str]) -> Iterator[pa.RecordBatch]:
        at_once = rows_per_block(len(names), BATCH_BYTES)
        while rows := cursor.fetchmany(at_once):
            columns = [self._column(name, values) for name, values in zip(names, zip(*rows, strict=True), strict=True)]
            yield pa.record_batch(columns, names=names)

    def _column(self, name: str, values: tuple[Any, ...]) -> pa.Array:
        if str in set(map(type, values)):
            # One text value makes a column text, which is refused as data and accepted as ids.
            return pa.array([None if value is None else str(value) for value in values], pa.string())
        try:
            return pa.array(values)
        except pa.ArrowException:
            raise DataError(
                f"column '{name}' of site '{self._site}' mixes types; make all its values numbers"
            ) from None

    def _reason(self, message: str) -> str:
        known = {"syntax": "a syntax error", "no such table": "an unknown table", "no such column": "an unknown column"}
        return next((reason for words, reason in known.items() if words in message), "an error")


class PostgreSQL:
    """A PostgreSQL server, used in read-only transactions. The address may hold a password and is never shown."""

    REASONS = {  # noqa: RUF012 - SQLSTATE codes, PostgreSQL's documentation, appendix A
        "42601": "a syntax error",
        "42P01": "an unknown table",
        "42703": "an unknown column",
        "42883": "an unknown function, or types that do not match",
        "42501": "no permission",
        "25006": "an attempt to write",
    }

    def __init__(self, address: str, site: str) -> None:
        self._address, self._site = address, site
        try:
            self._driver = importlib.import_module("adbc_driver_postgresql.dbapi")
        except ImportError:
            raise DataError(
                f"site '{site}' reads PostgreSQL, but its driver is not installed; run pip install 'fedclust[postgres]'"
            ) from None

    @contextmanager
    def run_select(self, select: str) -> Iterator[QueryResult]:
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            try:
                cursor.execute("SET TRANSACTION READ ONLY")
                cursor.execute(select)
                reader = cursor.fetch_record_batch()
                yield reader.schema, iter(reader)
            except (self._driver.Error, pa.ArrowException, OSError) as error:
                reason = self.REASONS.get(getattr(error, "sqlstate", None) or "", "an error during the query")
                raise _sql_error(self._site, "PostgreSQL", reason) from None

    def _connect(self) -> Any:
        try:
            return self._driver.connect(self._address)
        except (self._driver.Error, OSError):
            raise DataError(
                f"site '{self._site}' cannot connect to its PostgreSQL database; check that the server runs and "
                "that address, user and password are correct"
            ) from None
