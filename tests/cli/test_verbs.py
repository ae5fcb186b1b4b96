"""What each verb does when all is well."""

import json
import resource
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from cli_user import csv, rows

import fedclust as fc
from fedclust.algorithms.shared.spread_free_centers import STUDY_CELL_FLOOR
from fedclust.app import run_folder
from fedclust.app.study import open_study, read_study
from fedclust.cli import demo
from fedclust.cli.main import main


@pytest.fixture
def ran(user):
    assert user("run", "study.toml", "--quiet") == (0, "", "")
    return user


def test_help_is_quick_and_loads_nothing_heavy():
    code = "import sys; from fedclust.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert not {"numpy", "sklearn", "pyarrow", "duckdb"} & set(done.stderr.split())
    # Processor time: on an idle machine that is how long it takes, and a busy one cannot spoil it.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5
    assert "resume" in done.stdout


def test_version(user):
    assert user("--version") == (0, f"fedclust {fc.__version__}\n", "")


def test_no_verb_shows_the_help(user):
    code, out, err = user()
    assert (code, err) == (0, "")
    assert out.startswith("usage: fedclust")


def test_only_finished_verbs_are_offered(user):
    _, out, _ = user("--help")
    assert not {"dashboard"} & set(out.split())


def test_run_tells_what_was_found(user):
    code, out, err = user("run", "study.toml")
    assert code == 0
    assert out.startswith("heart: 3 clusters by fuzzy-c-means in ")
    assert "cluster" in out
    assert "Lossless" in out
    assert "cleveland" in out
    assert "fedclust export runs/heart --to csv" in out
    assert err.splitlines()[-1].startswith("round ")


def test_run_gives_what_the_library_gives(ran):
    model = fc.load("runs/heart/model.json")
    sites = {name: pa.csv.read_csv(f"{name}.csv").select(["age", "bp"]) for name in ("cleveland", "hungary")}
    arrays = {name: np.column_stack([table[c].to_numpy() for c in ("age", "bp")]) for name, table in sites.items()}
    fed = fc.Federation.local(arrays)
    fed.cell_floor = STUDY_CELL_FLOOR
    same = fc.FuzzyCMeans(3).fit(fed)
    assert model.cluster_centers_.tobytes() == same.cluster_centers_.tobytes()
    assert tuple(model.columns_) == ("age", "bp")


def test_json_is_one_document_and_nothing_else(user):
    code, out, err = user("run", "study.toml", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["k"], len(found["centers"]), found["columns"]) == (3, 3, ["age", "bp"])
    assert found["sites"]["hungary"]["bytes"] > 0
    assert found["centers"] == fc.load(found["model"]).cluster_centers_.tolist()


def test_resume_of_a_finished_run_tells_it_again(ran):
    code, out, err = ran("resume", "runs/heart", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["run"] == "runs/heart"


def test_a_runs_copy_of_the_study_can_be_run_again(ran):
    code, out, _ = ran("run", "runs/heart/study.toml", "--out", "again", "--json")
    assert code == 0
    assert json.loads(out)["centers"] == fc.load("runs/heart/model.json").cluster_centers_.tolist()


def test_a_taken_folder_is_refused_with_the_way_out(ran):
    code, out, err = ran("run", "study.toml")
    assert (code, out) == (2, "")
    assert "runs/heart already holds a finished run; choose another folder with --out" in err


def test_columns_split_runs(user):
    X = rows(5)
    user.write("cleveland.csv", csv(["who", "age"], np.c_[np.arange(40), X[:, 0]]))
    user.write("hungary.csv", csv(["who", "bp"], np.c_[np.arange(40), X[:, 1]][::-1]))
    user.study(('columns = ["age", "bp"]', 'split = "columns"\nid = "who"'))
    code, out, _ = user("run", "study.toml", "--json")
    assert code == 0
    centers = fc.load("runs/heart/model.json").cluster_centers_
    assert json.loads(out)["centers"] == centers.tolist()
    assert sorted(centers[:, 0].round()) == pytest.approx([0, 6, 12], abs=1)


def test_export_to_csv_keeps_every_bit(ran):
    code, out, _ = ran("export", "runs/heart", "--to", "csv")
    assert code == 0
    assert out.split() == ["runs/heart/export/centers.csv", "runs/heart/export/rounds.csv"]
    model = fc.load("runs/heart/model.json")
    centers = pa.csv.read_csv("runs/heart/export/centers.csv")
    assert centers.column_names == ["cluster", "weight", "age", "bp"]
    assert centers["age"].to_pylist() == model.cluster_centers_[:, 0].tolist()
    curve = pa.csv.read_csv("runs/heart/export/rounds.csv")
    assert curve["shift"].to_pylist() == [entry["shift"] for entry in model.history_]


def test_export_to_json(ran):
    code, out, _ = ran("export", "runs/heart", "--to", "json", "--out", "elsewhere")
    assert code == 0
    assert json.loads((ran.folder / out.strip()).read_text())["rounds"] > 1


def test_export_of_an_unfinished_run_says_how_to_finish_it(ran):
    (ran.folder / "runs/heart/metrics.json").unlink()
    code, _, err = ran("export", "runs/heart", "--to", "csv")
    assert code == 2
    assert "continue with: fedclust resume runs/heart" in err


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_assign_writes_labels_and_memberships_at_the_site(ran, kind):
    table = pa.csv.read_csv("hungary.csv")
    code, out, _ = ran("site", "assign", "runs/heart/model.json", "--data", "hungary.csv", "--out", f"labels.{kind}")
    assert (code, out) == (0, f"Wrote the labels of 40 rows to labels.{kind}\n")
    labels = pa.csv.read_csv("labels.csv") if kind == "csv" else pa.parquet.read_table("labels.parquet")
    model = fc.load("runs/heart/model.json")
    X = np.column_stack([table[c].to_numpy() for c in ("age", "bp")])
    assert labels.column_names == ["row", "cluster", "membership_0", "membership_1", "membership_2"]
    assert labels["cluster"].to_pylist() == model.predict(X).tolist()
    assert labels["membership_1"].to_pylist() == model.memberships(X)[:, 1].tolist()
    assert stat.S_IMODE((ran.folder / f"labels.{kind}").stat().st_mode) == 0o600


def test_assign_takes_columns_by_name_and_copies_ids(ran):
    X = rows(6, 20_000)  # more than one block
    table = {"who": [f"p{i}" for i in range(len(X))], "bp": X[:, 1], "age": X[:, 0]}
    pa.parquet.write_table(pa.table(table), "new.parquet")
    arguments = ["--data", "new.parquet", "--out", "labels.parquet", "--id", "who"]
    assert ran("site", "assign", "runs/heart/model.json", *arguments)[0] == 0
    labels = pa.parquet.read_table("labels.parquet")
    assert labels["who"].to_pylist() == table["who"]
    assert labels["cluster"].to_pylist() == fc.load("runs/heart/model.json").predict(X).tolist()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("age,bp\n1,2\n,3\n", "column 'age' of new.csv holds 1 missing value; fill them in, or remove those rows"),
        ("age,bp\n1,2\ninf,3\n", "column 'age' of new.csv holds 1 infinite value; fill them in, or remove those rows"),
        ("age,bp\n1,2\nx,3\n", "column 'age' of new.csv holds text in new.csv; the model was fitted to numbers"),
        (
            "years,pressure\n1,2\n",
            "new.csv has no column 'age'; use a table with the model's columns, under the same names",
        ),
        ("Age,bp\n1,2\n", "new.csv has no column 'age'; did you mean 'Age'?"),
        ("age,bp\n", "new.csv has no rows; add rows\n"),
    ],
)
def test_assign_gives_advice_that_can_be_followed(ran, text, told):
    ran.write("new.csv", text)
    code, _, err = ran("site", "assign", "runs/heart/model.json", "--data", "new.csv", "--out", "labels.csv")
    assert code == 2
    assert told in err
    assert "'here'" not in err


def test_assign_leaves_nothing_when_the_rows_are_bad(ran):
    ran.write("new.csv", "age,bp\n1,2\n,3\n")
    ran.write("labels.csv", "as it was")
    code, out, err = ran("site", "assign", "runs/heart/model.json", "--data", "new.csv", "--out", "labels.csv")
    assert (code, out) == (2, "")
    assert "column 'age'" in err
    assert (ran.folder / "labels.csv").read_text() == "as it was"
    assert not [path for path in ran.folder.iterdir() if path.name.startswith(".labels")]


def test_assign_refuses_values_of_which_no_distance_can_be_taken(ran):
    data = np.c_[rows(4), np.arange(40.0)]
    data[[3, 7], 1] = 1e200, -1e308
    ran.write("new.csv", csv(["age", "bp", "chol"], data))
    code, out, err = ran("site", "assign", "runs/heart/model.json", "--data", "new.csv", "--out", "labels.csv")
    assert (code, out) == (2, "")
    assert "column 'bp' holds 2 values beyond 2^127" in err
    assert not (ran.folder / "labels.csv").exists()


def test_hard_models_have_labels_only(user):
    user.study(("fuzzy-c-means", "k-means"))
    user("run", "study.toml", "--quiet")
    user("site", "assign", "runs/heart/model.json", "--data", "hungary.csv", "--out", "labels.csv")
    assert pa.csv.read_csv("labels.csv").column_names == ["row", "cluster"]
    user("export", "runs/heart", "--to", "csv")
    assert sum(pa.csv.read_csv("runs/heart/export/centers.csv")["size"].to_pylist()) == 80


def test_demo_finds_the_five_and_equals_the_pooled_run(user):
    code, out, _ = user("demo")
    assert code == 0
    assert "5 of the 5 groups" in out
    assert "120 of the 120 customers" in out
    assert "of the 5 groups: north 2, central 2, south 2. 0 of 3 companies find the small group." in out
    assert "K = 5 was chosen" in out
    assert "Its result has the same bits: yes" in out
    assert "The report: runs/demo/report.html" in out
    assert (user.folder / "runs/demo/report.html").read_text().startswith("<!DOCTYPE html>")
    again = Path("runs/demo/study.toml")
    assert open_study(read_study(again, folder=run_folder.study_origin(again))).fed.parties == demo.COMPANIES


def test_demo_never_overwrites_an_edited_study(user):
    rows = {company: np.zeros((1, 2)) for company in demo.COMPANIES}
    study = demo._make_run_folder(Path("runs/demo"), rows).folder / "study.toml"
    assert demo._make_run_folder(Path("runs/demo"), rows).folder == study.parent, "one that nobody edited makes way"
    study.write_text(study.read_text().replace('k = "auto"', "k = 4"))
    code, _, err = user("demo")
    assert code == 2
    assert "study.toml was edited" in err


def test_demo_never_overwrites_another_run(ran):
    code, _, err = ran("demo", "--out", "runs/heart")
    assert code == 2
    assert "contains another run" in err


def test_the_demos_claim_is_computed(monkeypatch):
    parties, _ = fc.datasets.motivational(0)
    model = fc.FuzzyCMeans(5, max_iter=3).fit(fc.Federation.local(parties))
    assert demo._compare_with_pooled(model, parties).endswith("has the same bits: yes")
    model.cluster_centers_ = np.nextafter(model.cluster_centers_, 9)
    assert demo._compare_with_pooled(model, parties).endswith("has the same bits: NO")


def test_an_unexpected_error_is_a_sentence_without_its_text(user, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("patient 4711")

    monkeypatch.setattr("fedclust.app.execute.begin_run", broken)
    code, out, err = user("run", "study.toml")
    assert (code, out) == (1, "")
    assert err.startswith("fedclust: this is a bug in fedclust: ZeroDivisionError at cli/run_verb.py:")
    assert err.count("\n") == 1
    assert "4711" not in err
    monkeypatch.setenv("FEDCLUST_DEBUG", "1")
    assert "Traceback" in user("run", "study.toml")[2]


def test_what_the_system_refuses_is_a_sentence(user):
    user.write("runs", "a file where a folder should be")
    code, out, err = user("run", "study.toml")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "runs" in err


def test_a_reader_that_leaves_is_no_error(user):
    process = subprocess.Popen(
        [sys.executable, "-m", "fedclust.cli.main", "run", "study.toml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert "Traceback" not in err
    assert "Exception" not in err


def test_main_returns_rather_than_exits():
    assert main(["--version"]) == 0
