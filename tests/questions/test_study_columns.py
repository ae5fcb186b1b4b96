"""A study's columns: listed or declared, with levels and values that mean missing, from the file to a site's labels."""

import csv

import numpy as np
import pytest

import fedclust as fc
from fedclust.app.study import open_study, parse_study, read_study
from fedclust.cli.main import main

STUDY = """
name = "heart"
scale = "standardise"
missing = "partial"
missing_values = { chol = [0] }

[columns.age]
unit = "years"

[columns.chol]
type = "number"
unit = "mg/dl"

[columns.risk]
type = "ordinal"
levels = ["low", "mid", "high"]
codes = [1, 2, 4]

[columns.sex]
type = "category"
levels = [0, 1]

[cluster]
method = "fuzzy-c-means"
k = 2

[sites.cleveland]
source = "cleveland.csv"

[sites.hungary]
source = "hungary.csv"
"""
SECRET = "hidden-diagnosis"


def rows(seed, count=30):
    rng = np.random.default_rng(seed)
    for i in range(count):
        chol = 0 if i % 4 == 0 else round(rng.normal(220, 30))
        yield [round(rng.normal(50, 9)), chol, rng.choice(["low", "mid", "high", "?"]), int(rng.integers(2))]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, site in enumerate(("cleveland", "hungary")):
        with (tmp_path / f"{site}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["age", "chol", "risk", "sex"], *rows(seed)])
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def test_a_declared_study_opens_and_encodes(folder):
    ready = open_study(read_study(folder / "study.toml"))
    assert ready.fed.columns == ("age", "chol", "risk", "sex=0", "sex=1")
    assert ready.study.schema["chol"] == fc.Column(unit="mg/dl", missing_values=[0])
    assert ready.estimator.missing == "partial"
    (block,) = ready.fed.site_data["cleveland"].source.blocks()
    assert np.isnan(block[1]).sum() == 8
    assert set(block[2][~np.isnan(block[2])]) == {1, 2, 4}


def test_a_plain_list_of_columns_may_have_values_that_mean_missing(folder):
    text = STUDY[: STUDY.index("[columns.age]")] + STUDY[STUDY.index("[cluster]") :]
    study = parse_study(text.replace("scale =", 'columns = ["chol", "age"]\nscale ='), folder=folder)
    assert study.columns == ("chol", "age")
    assert study.schema == {"chol": fc.Column(missing_values=[0]), "age": fc.Column()}


def test_bounds_of_levels_are_known(folder):
    bounds = "[bounds]\nage = [0, 120]\nchol = [0, 700]\n[cluster]"
    ready = open_study(parse_study(STUDY.replace("[cluster]", bounds).replace("standardise", "minmax"), folder=folder))
    assert ready.estimator.bounds == [(0, 120), (0, 700), (1, 4), (0, 1), (0, 1)]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('unit = "years"', "unit = 5", "unit in [columns.age] is 5; it must be a string"),
        ('unit = "years"', 'units = "years"', "[columns.age] has no key 'units'; did you mean 'unit'?"),
        ('type = "ordinal"', 'type = "ordinals"', "did you mean 'ordinal'?"),
        ("codes = [1, 2, 4]", "codes = [4, 2, 1]", "[columns.risk]: a column's codes must be increasing numbers"),
        ("levels = [0, 1]", "", "[columns.sex]: a column of type 'category' needs two or more levels"),
        ("{ chol = [0] }", "{ choll = [0] }", "names 'choll', which is not a column; did you mean 'chol'?"),
        ("{ chol = [0] }", "[0]", "a table with a list for each column"),
        ('"partial"', '"impute"', "one of 'refuse', 'drop', 'partial'"),
        ('unit = "mg/dl"', "missing_values = [0]", "missing_values of 'chol' is given twice"),
        ("[columns.age]", "[columns]\nweight = 3\n[columns.age]", "weight in [columns] must be a table"),
        ('method = "fuzzy-c-means"', 'method = "gaussian-mixture"', "needs rows without missing values"),
    ],
)
def test_a_declaration_that_does_not_fit_is_one_sentence(folder, old, new, words):
    with pytest.raises(fc.StudyError) as caught:
        open_study(parse_study(STUDY.replace(old, new, 1), folder=folder))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_counts_gaps_by_site_and_the_model_labels_raw_files(folder, capsys):
    assert main(["run", "study.toml"]) == 0
    out = capsys.readouterr().out
    model = fc.load(folder / "runs" / "heart" / "model.json")
    assert "60 rows took part with partial distances" in model.notes_[0]
    assert "at cleveland and" in model.notes_[0]
    assert "took part with partial distances" in out
    argv = ["site", "assign", "runs/heart/model.json", "--data", "hungary.csv", "--out", "labels.csv"]
    assert main(argv) == 0
    with (folder / "labels.csv").open() as file:
        written = [int(row["cluster"]) for row in csv.DictReader(file)]
    source = fc.Federation.local({"hungary": folder / "hungary.csv"}, columns=model.schema)
    assert written == model.predict(source).tolist()
    assert len(written) == 30


def test_rows_that_drop_leaves_out_are_labelled_minus_one_and_counted(folder, capsys):
    (folder / "study.toml").write_text(STUDY.replace('"partial"', '"drop"'))
    assert main(["run", "study.toml"]) == 0
    capsys.readouterr()
    assert main(["site", "assign", "runs/heart/model.json", "--data", "hungary.csv", "--out", "labels.csv"]) == 0
    with (folder / "labels.csv").open() as file:
        out = sum(row["cluster"] == "-1" for row in csv.DictReader(file))
    assert out >= 8
    assert f"30 rows labelled in labels.csv; {out} of them have label -1" in capsys.readouterr().out


def test_a_value_outside_the_levels_is_refused_without_being_shown(folder, capsys):
    with (folder / "hungary.csv").open("a") as file:
        file.write(f"50,200,{SECRET},1\n")
    assert main(["run", "study.toml"]) == 2
    said = capsys.readouterr()
    assert "column 'risk' of site 'hungary' holds 1 value that is not among its 3 declared levels" in said.err
    assert SECRET not in said.err + said.out
