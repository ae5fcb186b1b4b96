"""Every kind of source gives the same blocks of the same rows."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from decimal import Decimal
from itertools import pairwise

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclust.core.errors import DataError
from fedclust.site.sources import PackedRows, open_source, sort_by_id, survey
from fedclust.site.sources.source_interface import regroup, rows_per_block

NAMES = ("age", "dose", "weight")


def rows(n=1000, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3)) * [1e-9, 1.0, 1e7]


def pooled(source):
    return np.concatenate(list(source.blocks()), axis=1).T


def write_sqlite(path, table):
    with contextlib.closing(sqlite3.connect(path)) as con:
        con.execute("CREATE TABLE t (age REAL, dose REAL, weight REAL)")
        con.executemany("INSERT INTO t VALUES (?, ?, ?)", zip(*(c.to_pylist() for c in table.columns), strict=True))
        con.commit()
    return {"sql": "SELECT * FROM t", "database": str(path)}


def write_duckdb(path, table):
    pa.parquet.write_table(table, path.with_suffix(".parquet"))
    with duckdb.connect(str(path)) as con:
        con.execute(f"CREATE TABLE t AS SELECT * FROM '{path.with_suffix('.parquet')}'")
    return {"sql": "SELECT * FROM t;", "database": path}


def write_parquet(path, table, **options):
    pa.parquet.write_table(table, path, **options)
    return path


def write_csv(path, table):
    pa.csv.write_csv(table, path)
    return str(path)


IN_MEMORY = {
    "row-major array": lambda table: np.column_stack(table.columns),
    "column-major array": lambda table: np.asfortranarray(np.column_stack(table.columns)),
    "list": lambda table: np.column_stack(table.columns).tolist(),
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
    "arrow": lambda table: table,
}
ON_DISK = {
    "csv": lambda folder, table: write_csv(folder / "t.csv", table),
    "parquet": lambda folder, table: write_parquet(folder / "t.parquet", table),
    "duckdb": lambda folder, table: write_duckdb(folder / "t.duckdb", table),
    "sqlite": lambda folder, table: write_sqlite(folder / "t.db", table),
    "sql over a csv": lambda folder, table: {"sql": f"SELECT * FROM '{write_csv(folder / 'u.csv', table)}' -- all"},
    "sql over a parquet": lambda folder, table: {
        "sql": f"SELECT * FROM '{write_parquet(folder / 'u.parquet', table)}'",
        "database": ":memory:",
    },
}
KINDS = [*IN_MEMORY, *ON_DISK]


def spec(kind, folder, table):
    return IN_MEMORY[kind](table) if kind in IN_MEMORY else ON_DISK[kind](folder, table)


@pytest.fixture(params=KINDS)
def spec_of(request, tmp_path):
    return lambda X: spec(request.param, tmp_path, pa.table(dict(zip(NAMES, X.T, strict=True))))


def test_every_kind_of_source_gives_the_same_values(spec_of):
    X = rows()
    source = open_source(spec_of(X), columns=NAMES)
    assert source.columns == NAMES
    assert pooled(source).dtype == np.float64
    assert pooled(source).tobytes() == X.tobytes()


def test_a_second_pass_gives_the_same_rows_again(spec_of):
    source = open_source(spec_of(rows()), columns=NAMES)
    assert pooled(source).tobytes() == pooled(source).tobytes()


def test_data_columns_are_contiguous(spec_of):
    for block in open_source(spec_of(rows()), columns=NAMES).blocks():
        assert block.flags.c_contiguous


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in {"row-major array", "column-major array", "list"}]
)
def test_columns_select_and_order(kind, tmp_path):
    X = rows()
    table = pa.table(dict(zip(NAMES, X.T, strict=True)))
    source = open_source(spec(kind, tmp_path, table), columns=["weight", "age"])
    assert source.columns == ("weight", "age")
    assert np.array_equal(pooled(source), X[:, [2, 0]])


def test_an_array_is_named_by_position_and_selects_by_such_names():
    X = rows()
    assert open_source(X).columns == ("x0", "x1", "x2")
    assert np.array_equal(pooled(open_source(X, columns=["x2", "x0"])), X[:, [2, 0]])


def test_later_changes_to_an_array_are_not_seen():
    X = np.asfortranarray(rows())
    before = X.copy()
    source = open_source(X)
    X[:] = 0
    assert np.array_equal(pooled(source), before)


def test_blocks_in_memory_cannot_be_written_to():
    X = rows()
    with pytest.raises(ValueError, match="read-only"):
        next(open_source(X).blocks())[0, 0] = 1
    X[0, 0] = 1  # the caller's own array still can


def test_blocks_in_memory_are_the_same_arrays_on_each_pass():
    source = open_source(rows())
    assert source.resident
    assert all(a is b for a, b in zip(source.blocks(), source.blocks(), strict=True))


def test_files_are_not_resident(tmp_path):
    assert not open_source(spec("parquet", tmp_path, pa.table({"a": [1.0]}))).resident


def test_the_printed_form_of_a_source_shows_no_value():
    assert "987654321" not in repr(open_source(np.full((3, 2), 987654321.125)))


def test_float32_stays_float32_only_when_all_columns_are():
    narrow = pa.table({"a": np.ones(3, np.float32), "b": np.ones(3, np.float32), "c": np.ones(3)})
    assert next(open_source(narrow, columns=["a", "b"]).blocks()).dtype == np.float32
    assert next(open_source(narrow).blocks()).dtype == np.float64
    assert next(open_source(np.ones((3, 2), np.float32)).blocks()).dtype == np.float32


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.longdouble])
def test_number_arrays_of_other_types_become_float64(dtype):
    X = np.array([[0, 1], [1, 0], [1, 1]], dtype)
    assert pooled(open_source(X)).dtype == np.float64
    assert np.array_equal(pooled(open_source(X)), X.astype(float))


@pytest.mark.parametrize("kind", ["parquet", "duckdb", "pandas", "polars", "arrow"])
def test_booleans_integers_and_decimals_become_float64(kind, tmp_path):
    table = pa.table(
        {
            "age": [True, False, None],
            "dose": pa.array([-(2**53), 2**53, None]),
            "weight": [Decimal("0.3"), Decimal("-2.7"), None],
        }
    )
    expected = [[1, -(2.0**53), 0.3], [0, 2.0**53, -2.7], [np.nan] * 3]
    assert np.array_equal(pooled(open_source(spec(kind, tmp_path, table))), expected, equal_nan=True)


def test_decimals_are_rounded_once():
    digits = [Decimal(n).scaleb(-3) for n in range(-2000, 2000)]
    got = pooled(open_source(pa.table({"a": pa.array(digits, pa.decimal128(20, 3))})))
    assert got[:, 0].tolist() == [float(d) for d in digits]


def test_an_integer_column_of_duckdb_sums_is_read(tmp_path):
    source = open_source({"sql": "SELECT sum(x) AS total, 1.5 AS half FROM range(4) t(x)"})
    assert pooled(source).tolist() == [[6.0, 1.5]]


def test_categories_that_are_numbers_are_read():
    assert pooled(open_source(pa.table({"a": pa.array([1.5, 2.5, 1.5]).dictionary_encode()})))[:, 0].tolist() == [
        1.5,
        2.5,
        1.5,
    ]


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb", "sqlite", "pandas", "polars", "arrow"])
def test_a_missing_value_becomes_nan(kind, tmp_path):
    table = pa.table({"age": [1.0, None], "dose": pa.array([None, None], pa.float64()), "weight": [2.0, 3.0]})
    expected = [[1.0, np.nan, 2.0], [np.nan, np.nan, 3.0]]
    assert np.array_equal(pooled(open_source(spec(kind, tmp_path, table))), expected, equal_nan=True)


def test_a_masked_value_becomes_nan():
    X = np.ma.array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    assert np.array_equal(pooled(open_source(X)), [[1, np.nan], [3, 4]], equal_nan=True)


def test_a_pandas_index_is_no_column():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], 7: [4.0, 5.0, 6.0], "note": [object(), 1, "x"]}).iloc[[2, 0]]
    source = open_source(frame, columns=["7", "a"])
    assert pooled(source).tolist() == [[6.0, 3.0], [4.0, 1.0]]


def test_a_csv_marks_missing_values_in_the_usual_ways(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n?,1\nNA,2\n,3\n4,5\n")
    assert np.array_equal(
        pooled(open_source(tmp_path / "t.csv")), [[np.nan, 1], [np.nan, 2], [np.nan, 3], [4, 5]], equal_nan=True
    )


def test_an_empty_line_of_a_one_column_csv_is_a_missing_value(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n\n2\n")
    assert np.array_equal(pooled(open_source(tmp_path / "t.csv")), [[1], [np.nan], [2]], equal_nan=True)


def test_a_csv_column_that_is_not_asked_for_may_hold_anything(tmp_path):
    (tmp_path / "t.csv").write_bytes(b'\xef\xbb\xbfa,note,b\r\n1,"two\nlines, quoted",2\r\n3,,4\r\n')
    assert pooled(open_source(tmp_path / "t.csv", columns=["a", "b"])).tolist() == [[1, 2], [3, 4]]


def test_sql_keeps_the_order_it_asks_for(tmp_path):
    table = pa.table(dict(zip(NAMES, rows(5000).T, strict=True)))
    for kind in ("duckdb", "sqlite"):
        ordered = {**spec(kind, tmp_path, table), "sql": "SELECT * FROM t ORDER BY dose DESC"}
        dose = pooled(open_source(ordered, columns=["dose"]))[:, 0]
        assert np.array_equal(dose, np.sort(dose)[::-1])


def test_a_column_name_with_quotes_and_dots_is_found(tmp_path):
    table = pa.table({'a "b".c': [1.0, 2.0], "d": [3.0, 4.0]})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    for place in (tmp_path / "t.parquet", {"sql": f"SELECT * FROM '{tmp_path / 't.parquet'}'"}):
        assert pooled(open_source(place, columns=['a "b".c'])).tolist() == [[1.0], [2.0]]


def test_tiny_row_groups_do_not_make_tiny_blocks(tmp_path):
    X = rows(50_000)
    path = write_parquet(tmp_path / "t.parquet", pa.table(dict(zip(NAMES, X.T, strict=True))), row_group_size=100)
    blocks = list(open_source(path).blocks())
    assert len(blocks) == 1
    assert np.array_equal(blocks[0].T, X)


@pytest.mark.parametrize(("width", "expected"), [(1, 65536), (2, 65536), (16, 8192), (784, 256), (100_000, 256)])
def test_block_length_follows_the_number_of_columns(width, expected):
    assert rows_per_block(width, 1 << 20) == expected


@given(
    X=st.integers(0, 700).map(lambda n: rows(n, seed=1)),
    cuts=st.lists(st.integers(0, 700), max_size=8),
    size=st.integers(1, 300),
)
def test_any_chunking_of_the_same_rows_gives_the_same_blocks(X, cuts, size):
    edges = sorted({0, len(X), *(c for c in cuts if c < len(X))})
    pieces = [list(X[a:b].T) for a, b in pairwise(edges)]
    blocks = list(regroup(pieces, width=3, rows=size, dtype=np.float64))
    assert [b.shape[1] for b in blocks[:-1]] == [size] * (len(blocks) - 1)
    assert np.array_equal(np.concatenate([np.empty((3, 0)), *blocks], axis=1), X.T)


def test_a_survey_tells_rows_extremes_and_constant_columns():
    found = survey(open_source(np.array([[1.0, -7, 3], [2, 5, 3]]), columns=["a", "b", "c"]))
    assert found.rows == 2
    assert found.lo.tolist() == [1, -7, 3]
    assert found.hi.tolist() == [2, 5, 3]
    assert found.largest.tolist() == [2, 7, 3]
    assert found.constant == ("c",)


def test_a_survey_looks_at_every_block():
    X = np.zeros((200_000, 2))
    X[-1] = [5, -6]
    assert survey(open_source(X)).largest.tolist() == [5, 6]


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb", "pandas", "polars", "arrow"])
@pytest.mark.parametrize(
    ("ids", "expected"), [([30, 4, 100], "i"), (["b", "007", "é"], "U"), (["30", "4", "100"], "i")]
)
def test_ids_are_kept_apart_from_the_data(kind, ids, expected, tmp_path):
    source = open_source(spec(kind, tmp_path, pa.table({"patient": ids, "a": [1.0, 2.0, 3.0]})), id="patient")
    assert source.columns == ("a",)
    got = source.ids()
    assert got.dtype.kind == expected
    assert dict(zip(got.tolist(), pooled(source)[:, 0], strict=True)) == dict(
        zip(map(int, ids) if expected == "i" else ids, [1.0, 2.0, 3.0], strict=True)
    )


def test_ids_of_sqlite_may_mix_integers_and_text(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "t.db")) as con:
        con.execute("CREATE TABLE t (p, a)")
        con.executemany("INSERT INTO t VALUES (?, ?)", [("b", 1)] + [(n, 2.5) for n in range(40_000)])
        con.commit()
    source = open_source({"sql": "SELECT * FROM t", "database": tmp_path / "t.db"}, id="p")
    assert source.ids()[-1] == "b"
    assert pooled(source)[-1, 0] == 1


def test_a_source_without_an_id_column_has_no_ids():
    assert open_source(rows()).ids() is None


@pytest.mark.parametrize(("ids", "order"), [([30, 4, 100], [1, 0, 2]), (["b", "a", "C"], [2, 1, 0])])
def test_rows_are_sorted_by_id(ids, order):
    source = sort_by_id(open_source(pl.DataFrame({"p": ids, "a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]}), id="p"))
    assert isinstance(source, PackedRows)
    assert source.ids().tolist() == [ids[i] for i in order]
    assert pooled(source).tolist() == [[[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]][i] for i in order]


def test_sites_with_the_same_ids_in_different_files_come_into_the_same_order(tmp_path):
    ids = np.random.default_rng(0).permutation(500)
    (tmp_path / "t.csv").write_text("id,a\n" + "".join(f"{i},{i}\n" for i in ids))
    pa.parquet.write_table(pa.table({"id": [str(i) for i in ids[::-1]], "b": ids[::-1] * 1.0}), tmp_path / "t.parquet")
    one, other = (sort_by_id(open_source(tmp_path / f"t.{end}", id="id")) for end in ("csv", "parquet"))
    assert np.array_equal(pooled(one), pooled(other))


def test_an_id_column_of_an_array_is_named_among_its_columns():
    source = open_source(np.array([[3, 1.5], [1, 2.5]]), columns=["p", "a"], id="p")
    assert source.ids().tolist() == [3, 1]
    assert pooled(source).tolist() == [[1.5], [2.5]]


@pytest.mark.parametrize("after", ["a\n1\n2\n3\n", "a\n1\n9\n"])
def test_a_file_that_changes_between_passes_is_noticed(after, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n2\n")
    source = open_source(path, site="cleveland")
    survey(source)
    path.write_text(after)
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match="the file of site 'cleveland' changed during the run"):
        survey(source)


def test_a_query_whose_rows_grow_between_passes_is_noticed(tmp_path):
    path = tmp_path / "t.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE t (a REAL)")
        base.execute("INSERT INTO t VALUES (1), (2)")
    source = open_source({"sql": "SELECT a FROM t", "database": str(path)}, site="cleveland")
    survey(source)
    with sqlite3.connect(path) as base:
        base.execute("INSERT INTO t VALUES (3)")
    base.close()
    with pytest.raises(DataError, match="'cleveland' had 2 rows in an earlier pass and 3 now"):
        survey(source)


PEAK = """
import json, resource, sys
import pyarrow.parquet
from fedclust.site.sources import open_source, survey
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
found = survey(open_source(sys.argv[1]))
print(json.dumps([found.rows, peak() - before]))
"""


def peak_of_reading(folder, n, F=16):
    """Survey a file that is one row group in a process of its own, and return its rows and peak MB over import."""
    columns = np.random.default_rng(0).normal(size=(F, n))
    table = pa.table({f"x{i}": column for i, column in enumerate(columns)})
    pa.parquet.write_table(table, folder / "t.parquet", row_group_size=n, use_dictionary=False)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(folder / "t.parquet")], capture_output=True, check=True, text=True
    )
    return json.loads(done.stdout)


def test_reading_parquet_takes_less_memory_than_the_file(tmp_path):
    n, mb = peak_of_reading(tmp_path, 1_500_000)
    assert n == 1_500_000  # 192 MB of doubles
    assert mb < 150


@pytest.mark.slow
def test_ten_million_rows_of_parquet_are_read_in_under_150_mb(tmp_path):
    n, mb = peak_of_reading(tmp_path, 10_000_000)
    assert n == 10_000_000
    assert mb < 150


def test_an_array_is_opened_without_importing_arrow():
    code = (
        "import sys, numpy as np; from fedclust.site.sources import open_source, survey; "
        "survey(open_source(np.ones((3, 2)))); print('pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "False\n"
