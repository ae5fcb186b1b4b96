"""Columns as declared: what may be declared, what becomes of the values, and who disagrees."""

import contextlib
import json
import sqlite3
import traceback

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import fedclust as fc
from fedclust.questions import schema
from fedclust.questions.schema import Column, encoded_names, schema_from_dict, schema_to_dict
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source, survey

NAN = np.nan
SECRET = "hidden-diagnosis"
SCHEMA = {
    "age": Column(unit="years"),
    "risk": Column("ordinal", levels=["low", "mid", "high"]),
    "pain": Column("category", levels=["none", "typical"]),
    "grade": Column("ordinal", levels=[1, 2, 4], codes=[0.5, 1, 3]),
    "chol": Column(unit="mg/dl", missing_values=[0]),
}
NAMES = ("age", "risk", "pain=none", "pain=typical", "grade", "chol")
TABLE = pa.table(
    {
        "age": [50.0, 61.0, 47.0],
        "risk": ["high", None, "low"],
        "pain": ["typical", "none", "?"],
        "grade": [4, 1, 2],
        "chol": [0.0, 233.5, 180.0],
    }
)
ENCODED = [[50, 2, 0, 1, 3, NAN], [61, NAN, 1, 0, 0.5, 233.5], [47, 0, NAN, NAN, 1, 180]]


def in_sqlite(folder):
    with contextlib.closing(sqlite3.connect(folder / "t.db")) as con:
        con.execute("CREATE TABLE t (age, risk, pain, grade, chol)")
        con.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [tuple(row.values()) for row in TABLE.to_pylist()])
        con.commit()
    return {"sql": "SELECT * FROM t", "database": folder / "t.db"}


def in_duckdb(folder):
    pa.parquet.write_table(TABLE, folder / "u.parquet")
    with duckdb.connect(str(folder / "t.duckdb")) as con:
        con.execute(f"CREATE TABLE t AS SELECT * FROM '{folder / 'u.parquet'}'")
    return {"sql": "SELECT * FROM t", "database": folder / "t.duckdb"}


def in_csv(folder):
    (folder / "t.csv").write_text("grade,age,risk,pain,chol\n4,50,high,typical,0\n1,61,,none,233.5\n2,47,low,?,180\n")
    return folder / "t.csv"


def in_parquet(folder):
    pa.parquet.write_table(TABLE, folder / "t.parquet")
    return folder / "t.parquet"


def categorical(_):
    return TABLE.to_pandas().astype({"risk": "category", "pain": "category"})


KINDS = {
    "pandas": lambda _: TABLE.to_pandas(),
    "pandas categories": categorical,
    "polars": lambda _: pl.from_arrow(TABLE),
    "arrow": lambda _: TABLE,
    "csv": in_csv,
    "parquet": in_parquet,
    "duckdb": in_duckdb,
    "sqlite": in_sqlite,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_reads_the_same_by_its_declaration(kind, tmp_path):
    source = open_source(KINDS[kind](tmp_path), columns=tuple(SCHEMA), schema=SCHEMA)
    assert source.columns == NAMES
    found = np.concatenate(list(source.blocks()), axis=1).T
    assert np.array_equal(found, np.array(ENCODED), equal_nan=True)


def test_an_array_reads_by_numbers_that_are_levels():
    declared = {"a": Column("category", levels=[0, 1]), "b": Column(missing_values=[-9]), "c": Column()}
    source = open_source(np.array([[1, -9, 7], [0, 5, 8]]), columns=tuple(declared), schema=declared)
    assert source.columns == ("a=0", "a=1", "b", "c")
    (block,) = source.blocks()
    assert np.array_equal(block.T, [[0, 1, NAN, 7], [1, 0, 5, 8]], equal_nan=True)


def test_a_float32_value_is_the_level_it_was_declared_as():
    X = np.array([[0.1, 0.3], [0.2, -1.1]], np.float32)
    declared = {"x0": Column("ordinal", levels=[0.1, 0.2]), "x1": Column(missing_values=[-1.1])}
    (block,) = open_source(X, schema=declared).blocks()
    assert np.array_equal(block[0], [0, 1])
    assert np.isnan(block[1]).tolist() == [False, True]


def sentence(act):
    with pytest.raises(fc.DataError) as caught:
        act()
    shown = "".join(line for line in traceback.format_exception(caught.value) if not line.lstrip().startswith("File "))
    for planted in (SECRET, "987654"):
        assert planted not in shown
    return str(caught.value)


def with_strangers(kind, folder, rows=3):
    texts = [SECRET if i % 3 else "low" for i in range(rows)]
    table = pa.table({"risk": texts, "age": np.arange(rows, dtype=float)})
    if kind == "csv":
        pa.csv.write_csv(table, folder / "t.csv")
        return folder / "t.csv"
    if kind == "parquet":
        pa.parquet.write_table(table, folder / "t.parquet")
        return folder / "t.parquet"
    if kind == "sql":
        return {"sql": f"SELECT '{SECRET}' AS risk, 1.0 AS age UNION ALL SELECT '{SECRET}', 2.0"}
    return table.to_pandas() if kind == "pandas" else table


@pytest.mark.parametrize("kind", ["pandas", "arrow", "csv", "parquet", "sql"])
def test_a_value_outside_the_levels_is_told_by_site_column_and_count(kind, tmp_path):
    spec = with_strangers(kind, tmp_path)
    told = sentence(lambda: survey(open_source(spec, site="cleveland", schema=SCHEMA)))
    assert told == (
        "column 'risk' of site 'cleveland' holds 2 values that are not among its 3 declared levels; "
        "declare every level that occurs, or correct the data"
    )


def test_strangers_are_counted_over_the_whole_file(tmp_path):
    spec = with_strangers("parquet", tmp_path, rows=150_000)
    assert "100,000 values" in sentence(lambda: survey(open_source(spec, site="cleveland", schema=SCHEMA), "drop"))


def test_a_number_outside_the_levels_is_not_repeated():
    declared = {"x0": Column("ordinal", levels=[1, 2])}
    told = sentence(lambda: open_source(np.array([[1.0], [987654.0]]), site="va", schema=declared))
    assert told.startswith("column 'x0' of site 'va' holds 1 value that is not among its 2 declared levels")


@pytest.mark.parametrize(
    ("table", "declared", "words"),
    [
        ({"a": [1, 2]}, Column("ordinal", levels=["x", "y"]), "does not hold text, but its declared levels are text"),
        ({"a": [SECRET, "x"]}, Column("ordinal", levels=[1, 2]), "holds text, but its declared levels are numbers"),
        ({"a": [SECRET, "x"]}, Column(unit="kg"), "holds text; encode it"),
    ],
)
def test_a_column_that_is_not_what_it_is_declared_to_be(table, declared, words):
    spec = pa.table(table)
    assert f"column 'a' of site 'va' {words}" in sentence(lambda: open_source(spec, site="va", schema={"a": declared}))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"type": "nominal"}, "type is 'nominal'; choose one of number, ordinal, category"),
        ({"type": "ordinal"}, "needs two or more levels"),
        ({"type": "category", "levels": ["only"]}, "two or more"),
        ({"levels": ["a", "b"]}, "'number' cannot have levels"),
        ({"type": "category", "levels": ["a", 1]}, "mix strings and numbers"),
        ({"type": "category", "levels": ["a", "a"]}, "lists a level twice"),
        ({"type": "category", "levels": "ab"}, "must be a list"),
        ({"type": "category", "levels": [1.0, NAN]}, "finite numbers"),
        ({"type": "category", "levels": ["a", "b"], "codes": [1, 2]}, "only an ordinal"),
        ({"type": "ordinal", "levels": ["a", "b"], "codes": [2, 1]}, "increasing numbers"),
        ({"type": "ordinal", "levels": ["a", "b"], "codes": [1]}, "one for each level"),
        ({"type": "ordinal", "levels": ["a", "b"], "codes": [1, "2"]}, "codes must be increasing numbers"),
        ({"missing_values": ["unknown"]}, "missing_values must have the type"),
        ({"type": "ordinal", "levels": ["a", "b"], "missing_values": ["b"]}, "both a level and a missing value"),
        ({"unit": 5}, "unit must be a string"),
        ({"missing_values": [None]}, "strings or finite numbers"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(given, words):
    with pytest.raises(fc.StudyError, match=words):
        Column(**given)


def test_two_columns_that_would_share_a_name_are_refused():
    with pytest.raises(fc.StudyError, match="two columns would have the name 'a=1'"):
        encoded_names({"a": Column("category", levels=[1, 2]), "a=1": Column()})


def test_a_schema_survives_being_written_as_text():
    assert schema_from_dict(json.loads(json.dumps(schema_to_dict(SCHEMA)))) == SCHEMA


def sites(**declared):
    table = TABLE.select(["age", "chol"]).to_pandas()
    return fc.Federation.local(dict.fromkeys(declared, table), columns=declared)


@pytest.mark.parametrize(
    ("other", "aspect"),
    [
        (Column(unit="mmol/l", missing_values=[0]), "unit"),
        (Column(unit="mg/dl"), "missing values"),
        (Column("ordinal", unit="mg/dl", levels=[0, 180, 233.5]), "type, levels, missing values"),
    ],
)
def test_sites_that_declare_a_column_differently_are_named_with_the_column(other, aspect):
    mine = {"age": SCHEMA["age"], "chol": SCHEMA["chol"]}
    told = sentence(lambda: sites(cleveland=mine, hungary={**mine, "chol": other}))
    assert told == (
        f"sites 'cleveland' and 'hungary' declare column 'chol' differently ({aspect}); agree on one declaration"
    )


def agreeing(wanted, held):
    """A study that declares `wanted`, met by a site that declares `held`, as between machines."""
    table = TABLE.select(["age", "chol"]).to_pandas()
    fed = fc.Federation.local({"cleveland": table, "hungary": table}, columns=wanted, wire=True)
    desk = fed.local_sites["hungary"]
    desk.site_data = SiteData("hungary", desk.site_data.source, held)
    fc.KMeans(2, init="box", missing="partial").fit(fed)


def test_a_site_that_reads_a_column_otherwise_than_the_study_is_named_before_anything_is_summed():
    wanted = {"age": SCHEMA["age"], "chol": SCHEMA["chol"]}
    other = Column("ordinal", levels=[180, 233.5], unit=SECRET)
    told = sentence(lambda: agreeing(wanted, {**wanted, "chol": other}))
    assert told == (
        "site 'hungary' declares column 'chol' differently from the study (type, unit, levels, missing values); "
        "make the two declarations the same"
    )
    assert "'chol' differently from the study (not declared)" in sentence(
        lambda: agreeing(wanted, {"age": SCHEMA["age"]})
    )


def test_sites_that_agree_go_on():
    wanted = {"age": SCHEMA["age"], "chol": SCHEMA["chol"]}
    agreeing(wanted, wanted)


def test_what_a_site_declares_leaves_as_digests_only():
    table = TABLE.to_pandas()
    fed = fc.Federation.local({"a": table}, columns=SCHEMA)
    turn = fed.local_sites["a"]
    from fedclust.site.site_data import HandlerContext

    found = schema.declare.answer(
        HandlerContext(turn.site_data, (0, 1), {}, "partial"),
        schema.DeclarationsQuestion(("pain", "nobody"), "partial"),
    )
    assert found.fingerprints == (SCHEMA["pain"].fingerprint(), b"")
    assert b"typical" not in found.fingerprints[0]


@pytest.fixture
def fitted():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(50, 9, 80),
            "risk": rng.choice(["low", "mid", "high"], 80),
            "pain": rng.choice(["none", "typical"], 80),
        }
    )
    declared = {name: SCHEMA[name] for name in frame}
    fed = fc.Federation.local({"a": frame[:30], "b": frame[30:]}, columns=declared)
    return fc.FuzzyCMeans(2, scale="standardise").fit(fed), frame


def test_a_model_takes_raw_rows_by_name_before_and_after_saving(fitted, tmp_path):
    model, frame = fitted
    assert model.columns_ == ("age", "risk", "pain=none", "pain=typical")
    assert model.n_features_in_ == 3
    assert model.cluster_centers_.shape == (2, 4)
    shuffled = frame[["pain", "age", "risk"]].assign(other=SECRET)
    assert np.array_equal(model.predict(shuffled), model.labels_)
    again = fc.load(model.save(tmp_path / "model.json"))
    assert np.array_equal(again.predict(pl.from_pandas(shuffled)), model.labels_)
    assert np.array_equal(again.memberships(frame), model.memberships(frame))
    assert again.schema == {name: SCHEMA[name] for name in frame}


def test_a_model_refuses_a_level_it_never_heard_of(fitted):
    model, frame = fitted
    told = sentence(lambda: model.predict(frame.assign(risk=SECRET)))
    assert "column 'risk' of site 'here' holds 80 values" in told
    assert "has no column 'pain'" in sentence(lambda: model.predict(frame[["age", "risk"]]))


def test_columns_at_several_sites_may_be_declared():
    rng = np.random.default_rng(0)
    clinic = pd.DataFrame({"age": rng.normal(50, 9, 40), "risk": rng.choice(["low", "mid", "high"], 40)})
    lab = pd.DataFrame({"pain": rng.choice(["none", "typical"], 40)})
    together = fc.Federation.local({"all": clinic.join(lab)}, columns={k: SCHEMA[k] for k in ("age", "risk", "pain")})
    apart = fc.Federation.local(
        {"clinic": clinic, "lab": lab}, columns={k: SCHEMA[k] for k in ("age", "risk", "pain")}, split="columns"
    )
    assert apart.columns == together.columns
    one, many = (fc.KMeans(2, init=[[40, 0, 1, 0], [60, 2, 0, 1]]).fit(fed) for fed in (together, apart))
    assert many.cluster_centers_ == pytest.approx(one.cluster_centers_)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"age": Column(), "a": ["x0"]}, "`columns` has the key 'age', which is not a site"),
        ({"a": {"x0": "number"}}, "a list of names, or a mapping from names to fc.Column"),
    ],
)
def test_columns_that_are_neither_names_nor_declarations(columns, words):
    with pytest.raises(fc.StudyError, match=words):
        fc.Federation.local({"a": np.ones((5, 1))}, columns=columns)
