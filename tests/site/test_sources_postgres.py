"""PostgreSQL as a source, against a real server that lives as long as these tests."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import traceback
from pathlib import Path

import numpy as np
import pytest

from fedclust.core.errors import DataError
from fedclust.site.sources import open_source, sort_by_id, survey

adbc = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra `postgres` is not installed")

ROWS = np.random.default_rng(0).normal(size=(3000, 2))


def programs():
    # Debian keeps them out of the path.
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    found = debian[-1] if debian else shutil.which("initdb")
    return Path(found).parent if found else None


def unprivileged():
    """PostgreSQL refuses to run as root: return the words that make a command run as its own user."""
    if os.geteuid() != 0:
        return []
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("running as root, and there is no user postgres to run the server as")
    if not shutil.which("setpriv"):
        pytest.skip("running as root, and setpriv is not installed")
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


@pytest.fixture(scope="module")
def address():
    folder = programs()
    if folder is None:
        pytest.skip("no PostgreSQL server here: initdb not found (Debian: apt install postgresql)")
    prefix = unprivileged()
    # A socket's path must be short, which pytest's folders are not.
    home = Path(tempfile.mkdtemp(prefix="fedclust-pg-"))
    if prefix:
        shutil.chown(home, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def command(*words):
        subprocess.run([*prefix, *words], check=True, cwd=home, stdout=subprocess.DEVNULL, timeout=60)

    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={home} -F"
    try:
        command(str(folder / "initdb"), "-D", str(home / "data"), "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8")
        control = (str(folder / "pg_ctl"), "-D", str(home / "data"), "-w", "-l", str(home / "log"))
        command(*control, "-o", options, "start")
        try:
            yield fill(f"postgresql://postgres:s3cret@127.0.0.1:{port}/postgres")
        finally:
            command(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def fill(address):
    with adbc.connect(address) as con, con.cursor() as cur:
        cur.execute("CREATE SEQUENCE counter")
        cur.execute(
            "CREATE TABLE t (patient text, age smallint, dose double precision, price numeric(8, 3), "
            "well boolean, small real, note text)"
        )
        cur.executemany(
            "INSERT INTO t VALUES ($1, $2, $3, $4::text::numeric, $5, $6, $7)",
            [
                (f"p{i:05d}", i % 90, float(a), f"{i / 1000:.3f}", i % 2 == 0, float(i), "hidden-diagnosis")
                for i, (a, _) in reversed(list(enumerate(ROWS)))
            ],
        )
        con.commit()
    return address


def pooled(source):
    return np.concatenate(list(source.blocks()), axis=1).T


def sentence(address, sql, **options):
    with pytest.raises(DataError) as caught:
        survey(open_source({"sql": sql, "database": address}, site="cleveland", **options))
    shown = "".join(traceback.format_exception(caught.value))
    assert "hidden-diagnosis" not in shown
    assert "s3cret" not in shown
    return str(caught.value)


def test_values_of_every_numeric_type_come_out_exact(address):
    source = open_source({"sql": "SELECT age, dose, price, well FROM t ORDER BY patient", "database": address})
    i = np.arange(3000)
    expected = np.column_stack([i % 90, ROWS[:, 0], [float(f"{k / 1000:.3f}") for k in i], i % 2 == 0])
    assert pooled(source).tobytes() == expected.tobytes()


def test_rows_come_in_the_order_of_the_id(address):
    source = open_source({"sql": "SELECT * FROM t;", "database": address}, columns=["dose"], id="patient")
    assert source.ids().tolist() == [f"p{i:05d}" for i in range(3000)]
    assert np.array_equal(pooled(source)[:, 0], ROWS[:, 0])
    assert np.array_equal(pooled(sort_by_id(source))[:, 0], ROWS[:, 0])


def test_a_real_column_alone_stays_float32(address):
    assert pooled(open_source({"sql": "SELECT small FROM t", "database": address})).dtype == np.float32


def test_null_becomes_nan_and_is_counted(address):
    sql = "SELECT CASE WHEN age = 3 THEN NULL ELSE age END AS age FROM t"
    assert sentence(address, sql).startswith("column 'age' of site 'cleveland' holds 34 missing values")


def test_text_is_named_without_its_value(address):
    assert sentence(address, "SELECT dose, note FROM t").startswith("column 'note' of site 'cleveland' holds text")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELEC 1", "a syntax error"),
        ("SELECT * FROM nowhere", "an unknown table"),
        ("SELECT nothing FROM t", "an unknown column"),
        ("SELECT note::float8 FROM t", "an error during the query"),
        ("DELETE FROM t", "a syntax error"),
        ("SELECT 1; DELETE FROM t", "a syntax error"),
        ("SELECT nextval('counter') AS a", "an error during the query"),
    ],
)
def test_the_reason_of_a_refusal_is_told(address, sql, reason):
    text = sentence(address, sql)
    assert text.startswith("PostgreSQL refused the SQL of site 'cleveland' (")
    assert reason in text


def test_a_server_that_does_not_answer_is_told_without_the_address(address):
    away = address.rsplit(":", 1)[0] + ":1/postgres"
    assert "cannot connect to its PostgreSQL database" in sentence(away, "SELECT 1")


def test_the_printed_form_shows_no_password(address):
    source = open_source({"sql": "SELECT dose FROM t", "database": address})
    assert "s3cret" not in repr(source) + repr(vars(source))
