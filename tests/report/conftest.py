"""Finished runs to report on, made once, and one browser for all pages."""

from dataclasses import replace

import chromium
import numpy as np
import pytest

from fedclust.app.execute import begin_run, resume_run
from fedclust.app.study import read_study
from fedclust.report import page, read_run
from fedclust.site.policy import Policy

HOSTILE = "<script>alert(1)</script>"
ROWS = """
name = "clinics"
scale = "standardise"
[columns.age]
unit = "years"
[columns."<script>alert(1)</script>"]
unit = "m&m"
[columns.a_very_long_name_of_a_column_without_any_place_to_break_it]
[cluster]
method = "fuzzy-c-means"
k = "2..4"
index = "fuzzy-davies-bouldin"
restarts = 1
[sites.north]
source = "north.csv"
[sites.south]
source = "south.csv"
[sites.west]
source = "west.csv"
"""
COLUMNS = """
name = "joint"
split = "columns"
[cluster]
method = "k-means"
k = 3
[sites.clinic]
source = "clinic.csv"
[sites.laboratory]
source = "laboratory.csv"
"""


def table(path, names, rows):
    lines = [",".join(names), *(",".join(map(repr, row)) for row in rows.tolist())]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A run over rows with names that try to break the page, and one over columns."""
    here = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(3)
    X = rng.normal(size=(240, 3)) + np.repeat([[0, 0, 0], [9, 0, 4], [0, 12, 4]], 80, axis=0)
    names = ["age", HOSTILE, "a_very_long_name_of_a_column_without_any_place_to_break_it"]
    for site, own in {"north": X[:90], "south": X[90:150], "west": X[150:]}.items():
        table(here / f"{site}.csv", names, own)
    table(here / "clinic.csv", ["age", "pulse"], X[:, :2])
    table(here / "laboratory.csv", ["crp"], X[:, 2:])
    made = {}
    for name, text in {"rows": ROWS, "columns": COLUMNS}.items():
        (here / f"{name}.toml").write_text(text)
        study = read_study(here / f"{name}.toml")
        # All of a profile's rules would keep tables this small out of a plain run.
        rules = {"north": Policy("nhs", min_rows=10)}
        study = replace(study, sites=tuple(replace(s, policy=rules.get(s.name, "none")) for s in study.sites))
        run = begin_run(study, here / name, origin=here)
        resume_run(run)
        (run.folder / "report.html").write_text(page(read_run(run.folder)), encoding="utf-8")
        made[name] = run.folder
    return made


@pytest.fixture(scope="session")
def browser():
    if chromium.found() is None:
        pytest.skip("Chromium is not installed; Debian has it as 'chromium'")
    one = chromium.Chromium()
    yield one
    one.close()
