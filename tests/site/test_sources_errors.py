"""What is wrong with a site's data is said in one sentence that names site and column and never a value."""

import contextlib
import importlib
import os
import sqlite3
import traceback

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from fedclust.core.errors import DataError
from fedclust.site.sources import open_source, sort_by_id, survey

NUMBER = 987654321.125
SECRET = "hidden-diagnosis"


def sentence(act):
    """Run `act`, and return its error's text after looking for planted values in all that a traceback would show."""
    with pytest.raises(DataError) as caught:
        act()
    text = str(caught.value)
    shown = text + "".join(
        line for line in traceback.format_exception(caught.value) if not line.lstrip().startswith("File ")
    )
    for planted in (SECRET, "987654321", "s3cret"):
        assert planted not in shown
    assert "\n" not in text
    assert "'cleveland'" in text
    return text


def opening(spec, **options):
    return sentence(lambda: survey(open_source(spec, site="cleveland", **options)))


def write(path, content):
    path.write_text(content)
    return path


def sqlite_table(path, values):
    with contextlib.closing(sqlite3.connect(path)) as con:
        con.execute("CREATE TABLE t (a)")
        con.executemany("INSERT INTO t VALUES (?)", [(v,) for v in values])
        con.commit()
    return {"sql": "SELECT * FROM t", "database": path}


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolons"), ("\t", "tabs")])
def test_fields_that_are_not_separated_by_commas_are_told(tmp_path, mark, word):
    path = write(tmp_path / "a.csv", f"age{mark}bp\n1{mark}{NUMBER}\n")
    told = f"its fields are separated by {word}; separate them by commas"
    assert opening(path, columns=["age"]) == f"site 'cleveland' has no column 'age'; {told}"
    assert opening(path) == f"a.csv of site 'cleveland' cannot be read: {told}"
    write(path, f"age{mark}bp\n1{mark}{NUMBER}\n2,5{mark}1\n")
    assert opening(path) == f"a.csv of site 'cleveland' cannot be read: {told}"


def test_missing_and_infinite_values_are_counted():
    X = np.array([[1, np.nan], [2, np.inf], [NUMBER, np.nan], [3, np.nan]])
    assert opening(X, columns=["dose", "age"]) == (
        "column 'age' of site 'cleveland' holds 3 missing and 1 infinite values; "
        "fill them, drop those rows, or leave the column out"
    )


def test_one_missing_value_is_told_in_the_singular_and_other_columns_are_counted():
    X = np.array([[np.nan, -np.inf, np.nan], [1, 2, NUMBER]])
    assert opening(X).startswith("column 'x0' of site 'cleveland' holds 1 missing value (as do 2 more columns); ")
    assert "(as does 1 more column)" in opening(X[:, :2])


@pytest.mark.parametrize(
    "empty", [np.empty((0, 2)), pd.DataFrame({"a": []}, dtype=float), pa.table({"a": pa.array([], "f8")})]
)
def test_no_rows_are_refused(empty):
    assert opening(empty) == "site 'cleveland' has no rows; add rows, or leave the site out"


def test_a_csv_with_only_a_header_has_no_rows(tmp_path):
    assert "has no rows" in opening(write(tmp_path / "t.csv", "a,b\n"))


def test_a_misspelt_column_gets_the_nearest_name(tmp_path):
    path = write(tmp_path / "t.csv", f"Age,weight\n1,{NUMBER}\n")
    assert opening(path, columns=["age"]) == "site 'cleveland' has no column 'age'; did you mean 'Age'?"
    assert opening(path, columns=["wieght"]).endswith("did you mean 'weight'?")
    assert opening(path, columns=["pressure"]).endswith("against its header")


def test_a_misspelt_id_gets_the_nearest_name():
    assert opening(pa.table({"patient": [1], "a": [1.0]}), id="pateint").endswith("did you mean 'patient'?")


def test_a_column_asked_for_twice_is_refused():
    assert "listed 2 times" in opening(pa.table({"a": [1.0]}), columns=["a", "a"])


def test_two_columns_of_one_name_are_refused(tmp_path):
    assert "has 2 columns named 'a'" in opening(write(tmp_path / "t.csv", "a,a\n1,2\n"))


def test_a_table_with_only_ids_has_nothing_to_cluster():
    assert "no data column" in opening(pa.table({"p": [1, 2]}), id="p")


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"sex": [SECRET, "m"], "a": [1.0, 2.0]}),
        pd.DataFrame({"sex": pd.Categorical([SECRET, "m"]), "a": [1.0, 2.0]}),
        pl.DataFrame({"sex": [SECRET, "m"], "a": [1.0, 2.0]}),
        pa.table({"sex": [SECRET, "m"], "a": [1.0, 2.0]}),
        {"sql": f"SELECT '{SECRET}' AS sex, 1.0 AS a"},
    ],
    ids=["pandas", "category", "polars", "arrow", "sql"],
)
def test_a_text_column_is_named(frame):
    assert opening(frame) == (
        "column 'sex' of site 'cleveland' holds text; encode it as numbers or leave it out of `columns`"
    )


def test_a_column_of_dates_is_named():
    assert "column 'day' of site 'cleveland' holds values of type date32[day]" in opening(
        {"sql": "SELECT DATE '2020-01-01' AS day"}
    )


def test_a_column_that_mixes_numbers_and_text_is_named(tmp_path):
    assert "column 'a' of site 'cleveland' mixes" in opening(pd.DataFrame({"a": [1.5, SECRET]}))
    assert "column 'a' of site 'cleveland' holds text" in opening(sqlite_table(tmp_path / "t.db", [1.5, SECRET]))
    assert "column 'a' of site 'cleveland' mixes" in opening(sqlite_table(tmp_path / "u.db", [1.5, SECRET.encode()]))


def test_text_deep_in_a_csv_is_named_without_its_value(tmp_path):
    path = write(tmp_path / "t.csv", "note,a,b\n" + f"x,1,{NUMBER}\n" * 200_000 + f"x,1,{SECRET}\n")
    assert opening(path, columns=["b", "a"]).startswith("column 'b' of site 'cleveland' holds text in t.csv; ")


def test_text_in_an_sqlite_column_is_named(tmp_path):
    assert "column 'a' of site 'cleveland' holds text" in opening(sqlite_table(tmp_path / "t.db", [SECRET]))


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**62])
def test_integers_that_float64_cannot_hold_are_refused(value):
    for spec in (
        np.array([[0, value]]),
        pa.table({"x0": [0], "x1": [value]}),
        {"sql": f"SELECT 0 AS x0, {value}::HUGEINT * 4 AS x1"},
    ):
        text = opening(spec)
        assert text.startswith("column 'x1' of site 'cleveland' holds integers beyond 2^53")
        assert str(value) not in text


def test_an_array_of_the_wrong_shape_is_refused():
    assert "has shape (3,)" in opening(np.ones(3))
    assert "has shape (3, 0)" in opening(np.ones((3, 0)))
    assert "unequal lengths" in opening([[1.0, 2.0], [3.0]])
    assert "has 2 columns but 3 names" in opening(np.ones((3, 2)), columns=["a", "b", "c"])


def test_an_array_of_text_or_objects_is_refused():
    assert "dtype str" in opening(np.array([[SECRET]]))
    assert "dtype object" in opening(np.array([[object()]]))
    assert "dtype complex128" in opening(np.ones((2, 2), complex))


def test_an_unknown_kind_of_source_is_refused():
    assert "is a set" in opening({1, 2})
    assert "use a .csv or .parquet file" in opening("rows.xlsx")
    assert "is an address" in opening("postgresql://u:s3cret@h/db")


def test_a_missing_file_is_named():
    assert opening("/nowhere/t.csv").startswith("the source of site 'cleveland' does not exist: /nowhere/t.csv")
    assert "does not exist" in opening({"sql": "SELECT 1", "database": "/nowhere/t.duckdb"})


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "t.parquet").mkdir()
    assert "is a folder" in opening(tmp_path / "t.parquet")


def test_a_file_that_is_not_parquet_is_refused(tmp_path):
    assert "cannot be read as Parquet" in opening(write(tmp_path / "t.parquet", f"a\n{NUMBER}\n"))


def test_a_parquet_file_cut_short_is_refused(tmp_path):
    pa.parquet.write_table(pa.table({"a": np.full(1000, NUMBER)}), tmp_path / "t.parquet")
    os.truncate(tmp_path / "t.parquet", 200)
    assert "cannot be read as Parquet" in opening(tmp_path / "t.parquet")


def test_an_empty_csv_is_refused(tmp_path):
    assert "is empty" in opening(write(tmp_path / "t.csv", ""))


@pytest.mark.parametrize("first", [f"{NUMBER},2", f" {NUMBER} ,,NA", f'"{NUMBER}",1e-3', f"{NUMBER}"])
def test_a_csv_without_a_header_is_refused_before_its_first_row_passes_for_names(first, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(f"{first}\n{first}\n")
    assert "first line of data.csv of site 'cleveland' holds numbers" in sentence(
        lambda: open_source(path, site="cleveland")
    )


def test_a_header_may_hold_a_number_among_names(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("age,2019\n1,2\n")
    assert open_source(path, site="a").columns == ("age", "2019")


def test_a_csv_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes("größe\n1\n".encode("latin-1"))
    assert "save it as UTF-8" in opening(tmp_path / "t.csv")


def test_a_ragged_row_is_counted_but_not_quoted(tmp_path):
    path = write(tmp_path / "t.csv", f"a,b\n1,2\n3,{NUMBER},{SECRET}\n")
    assert opening(path, columns=["a"]) == (
        "a row of t.csv of site 'cleveland' has 3 fields where its header has 2; correct or quote that row"
    )


def test_a_source_table_without_sql_is_refused():
    assert "has no `sql`" in opening({"database": "t.duckdb"})
    assert "unknown key 'password'" in opening({"sql": "SELECT 1", "password": "s3cret"})


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELEC 1", "a syntax error"),
        ("SELECT 1; SELECT 2", "a syntax error"),
        ("CREATE TABLE t (a INT)", "a syntax error"),
        ("SELECT * FROM nowhere", "an unknown table or function"),
        ("SELECT nothing FROM range(3)", "an unknown column"),
        ("SELECT * FROM 'nowhere.parquet'", "a missing or unreadable file"),
        (f"SELECT CAST('{SECRET}' || range AS DOUBLE) AS a FROM range(3)", "cannot be converted"),
        ("SELECT * FROM 'https://example.org/t.parquet'", "fedclust downloads no extensions"),
    ],
)
def test_duckdb_says_why_it_refused(sql, reason):
    text = opening({"sql": sql})
    assert text.startswith("DuckDB refused the SQL of site 'cleveland' (")
    assert reason in text


def test_a_variable_of_the_process_is_no_table():
    patients = pd.DataFrame({"a": [NUMBER]})
    assert "an unknown table" in opening({"sql": "SELECT * FROM patients"})
    assert len(patients) == 1


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELEC 1", "a syntax error"),
        ("SELECT * FROM nowhere", "an unknown table"),
        ("SELECT absent FROM t", "an unknown column"),
        ("DELETE FROM t", "a syntax error"),
    ],
)
def test_sqlite_says_why_it_refused(sql, reason, tmp_path):
    spec = sqlite_table(tmp_path / "t.sqlite", [NUMBER])
    text = opening({**spec, "sql": sql})
    assert text.startswith("SQLite refused the SQL of site 'cleveland' (")
    assert reason in text


def test_a_file_that_is_no_database_is_refused(tmp_path):
    spec = {"sql": "SELECT 1", "database": str(write(tmp_path / "t.db", SECRET * 3))}
    assert "neither a DuckDB nor an SQLite database" in opening(spec)


def test_a_duckdb_file_open_for_writing_is_refused(tmp_path):
    with duckdb.connect(str(tmp_path / "t.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT 1.0 AS a")
        con.execute("CHECKPOINT")
        assert "close other programs that use the file" in opening(
            {"sql": "SELECT * FROM t", "database": tmp_path / "t.duckdb"}
        )


def test_repeated_ids_are_counted_and_not_named():
    frame = pa.table({"p": [SECRET, "b", SECRET, SECRET], "a": [1.0, 2.0, 3.0, 4.0]})
    assert opening(frame, id="p") == (
        "id column 'p' of site 'cleveland' repeats an earlier id in 2 of its 4 rows; give each row its own id"
    )


@pytest.mark.parametrize("ids", [[SECRET, None], [SECRET, ""], [987654321, None]])
def test_missing_ids_are_counted(ids):
    assert "has no id in 1 row;" in opening(pa.table({"p": ids, "a": [1.0, 2.0]}), id="p")


def test_ids_that_are_neither_integers_nor_text_are_refused():
    assert "not integers" in opening(np.array([[NUMBER, 1.0]]), columns=["p", "a"], id="p")
    assert "neither integers nor text" in opening(pa.table({"p": [NUMBER], "a": [1.0]}), id="p")


def test_sorting_by_id_needs_an_id():
    assert "has no id column" in sentence(lambda: sort_by_id(open_source(np.ones((2, 2)), site="cleveland")))


def test_a_missing_postgresql_driver_is_named_with_the_extra(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    text = opening({"sql": "SELECT 1", "database": "postgresql://u:s3cret@localhost/db"})
    assert text.endswith("run pip install 'fedclust[postgres]'")


def test_an_id_is_no_column_to_use(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("p,a\n1,2\n")
    assert "'p' of site 'cleveland' identifies rows" in opening(path, columns=["p", "a"], id="p")
