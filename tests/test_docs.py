"""What the documentation says is so: its examples run, its tables match the code, its links lead somewhere."""

import itertools
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from fedclust.app.study import parse_study, study_keys
from fedclust.datasets import loading
from fedclust.models.methods import study_methods
from fresh_process import start_command, start_script

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "papers/README.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
EXTERNAL = re.compile(r"""<(?:script|link|img)[^>]*(?:src|href)=["'](?:https?:)?//""")


def called(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page, kind):
    """The fenced blocks of one kind, in order."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def holding(kind):
    return [pytest.param(page, id=called(page)) for page in PAGES if blocks(page, kind)]


def command(*words, folder):
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=environment)


def needs(page):
    """Data sets that a page says it needs and this machine does not have."""
    named = re.findall(r"^<!-- needs data: (\w+) -->$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [name for name in named if not any((folder / f"{name}.npz").is_file() for folder in loading._folders())]


@pytest.mark.parametrize("page", holding("python"))
def test_the_python_of_a_page_runs_and_prints_what_the_page_says(page, tmp_path):
    if absent := needs(page):
        pytest.skip(f"{absent[0]}.npz is neither in $FEDCLUST_DATA nor in the cache")
    script = tmp_path / "example.py"
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    done = start_script(script)
    printed, error = done.communicate()
    assert done.returncode == 0, error
    assert printed == "".join(blocks(page, "text"))


def test_the_library_example_is_short():
    lines = [line for line in blocks(ROOT / "README.md", "python")[0].splitlines() if line]
    assert len(lines) <= 15


@pytest.mark.parametrize("page", holding("toml"))
def test_studies_are_read_as_they_stand(page, tmp_path):
    for text in blocks(page, "toml"):
        assert parse_study(text, folder=tmp_path).sites


def test_the_study_of_the_readme_runs(tmp_path):
    (text,) = blocks(ROOT / "README.md", "toml")
    study = tomllib.loads(text)
    rng = np.random.default_rng(0)
    for site in study["sites"].values():
        rows = rng.normal(size=(60, len(study["columns"]))) + np.repeat([[0], [6], [12]], 20, axis=0)
        np.savetxt(tmp_path / site["source"], rows, delimiter=",", header=",".join(study["columns"]), comments="")
    (tmp_path / "study.toml").write_text(text)
    (shell,) = [block for block in blocks(ROOT / "README.md", "sh") if "study.toml" in block]
    for line in shell.splitlines():
        program, *words = line.partition("#")[0].split()
        assert program == "fedclust"
        done = start_command(words, folder=tmp_path)
        _, error = done.communicate()
        assert done.returncode == 0, error
    assert (tmp_path / "runs" / study["name"]).is_dir()


def test_the_first_study_of_its_page_runs(tmp_path):
    text = blocks(ROOT / "docs" / "study.md", "toml")[0]
    columns = tomllib.loads(text)["columns"]
    rng = np.random.default_rng(0)
    tables = [pa.table(dict(zip(columns, rng.normal(size=(4, 60)), strict=True))) for _ in range(3)]  # many rounds
    pa.csv.write_csv(tables[0], tmp_path / "cleveland.csv")
    pa.parquet.write_table(tables[1], tmp_path / "hungary.parquet")
    with duckdb.connect(tmp_path / "zurich.duckdb") as database:
        database.register("rows", tables[2])
        database.sql("CREATE TABLE visits AS SELECT *, 1988 AS year FROM rows")
    (tmp_path / "study.toml").write_text(text)
    done = command(Path(sys.executable).with_name("fedclust"), "run", "study.toml", folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_everything_that_may_leave_is_in_the_table():
    tables = runpy.run_path(str(ROOT / "docs" / "tables.py"))
    page = (ROOT / "docs" / "what-leaves-a-site.md").read_text(encoding="utf-8")
    assert tables["answers"]() in page, (
        "what the code declares has changed: run make docs, and say what can be made of it"
    )


def test_the_map_of_packages_follows_the_import_contract():
    tables = runpy.run_path(str(ROOT / "docs" / "tables.py"))
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert tables["packages"]() in page, "layers or first sentences of packages have changed: run make docs"
    folders = {path.parent.name for path in (ROOT / "src" / "fedclust").glob("*/__init__.py")}
    assert set(re.findall(r"^\| \d+ \| `(\w+)` \|", page, flags=re.MULTILINE)) == folders


def test_every_key_of_a_study_is_documented():
    page = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    for table in (
        study_keys.STUDY_KEYS,
        study_keys.cluster_keys(),
        study_keys.PRIVACY_KEYS,
        study_keys.SITE_KEYS,
        study_keys.COLUMN_KEYS,
    ):
        assert [name for name in table if f"\n| `{name}` |" not in page] == []


def test_every_verb_is_documented():
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    helped = command(Path(sys.executable).with_name("fedclust"), "--help", folder=ROOT).stdout
    verbs = re.findall(r"^    (\w+)  ", helped, flags=re.MULTILINE)
    assert "demo" in verbs
    assert [verb for verb in verbs if f"\nfedclust {verb} " not in page] == []


@pytest.mark.parametrize("method", study_methods())
def test_every_parameter_and_attribute_of_a_method_is_documented(method):
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    estimator = study_methods()[method].estimator
    named = [*estimator().get_params(), *(set(estimator.saved_attributes) - {"origin_", "spread_"})]
    assert [name for name in named if f"`{name}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=called)
def test_links_lead_to_files_that_exist(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    local = [link.partition("#")[0] for link in links if "://" not in link and not link.startswith("#")]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=called)
def test_no_text_is_swallowed_by_a_table(page):
    lines = page.read_text(encoding="utf-8").split("\n")
    ends = [(a, b) for a, b in itertools.pairwise(lines) if a.startswith("|") and not b.startswith(("|", "<!--"))]
    assert not [text for _, text in ends if text]


def test_the_documentation_builds_and_needs_no_other_host(tmp_path):
    pytest.importorskip("mkdocs")
    done = command(sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", tmp_path, folder=ROOT)
    assert done.returncode == 0, done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))  # and the page for what is not found
    assert [page.name for page in pages if EXTERNAL.search(page.read_text(encoding="utf-8"))] == []
