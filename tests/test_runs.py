"""A run folder survives whatever stops the run: every message and every record is a place to be killed at."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from fedclust import runs
from fedclust.core import journal as journals
from fedclust.core.errors import DataError, FedclustError, RunFailed, StudyError
from fedclust.core.journal import Journal
from fedclust.engines.local import LocalEngine
from fedclust.site.desk import Desk
from fedclust.site.ledger import Ledger
from fedclust.study import read_study

ROWS = """
name = "kill"
[cluster]
method = "fuzzy-c-means"
k = 2
max_rounds = 3
[sites.a]
source = "a.csv"
[sites.b]
source = "b.csv"
"""
COLUMNS = ROWS.replace("[cluster]", 'split = "columns"\nid = "who"\nscale = "standardise"\n[cluster]').replace(
    "max_rounds = 3", "max_rounds = 2"
)
CHOOSING = ROWS.replace("k = 2", 'k = "1..3"\nrestarts = 2')


class Killed(BaseException):
    """The process dies here."""


class Reaper:
    """Counts the places where a process may die, and kills at one of them."""

    def __init__(self, at=None):
        self.at, self.passed = at, 0

    def here(self):
        self.passed += 1
        return self.passed == self.at

    def check(self):
        if self.here():
            raise Killed


def around(monkeypatch, owner, name, reaper, torn=None):
    """Places before, after and, with `torn`, in the middle of a call."""
    plain = getattr(owner, name)

    def call(self, *args, **kwargs):
        reaper.check()
        if torn is not None and reaper.here():
            torn(self, *args)
            raise Killed
        answer = plain(self, *args, **kwargs)
        reaper.check()
        return answer

    monkeypatch.setattr(owner, name, call)


def torn_record(journal, kind, step, payload):
    frame = journals._FRAME.pack(kind, step, len(payload), journals._check(kind, step, len(payload)))
    begun = (b"" if journal._sound else journals.HEAD) + frame + payload[: len(payload) // 2]
    os.pwrite(journal._file.fileno(), begun, journal._sound)


def torn_line(ledger, entry):
    with ledger._path.open("a") as file:
        file.write('{"run": "half a li')


def torn_state(desk, *_):
    desk._path.with_suffix(".new").write_bytes(b"half")


def reaped(monkeypatch, at):
    reaper = Reaper(at)
    around(monkeypatch, LocalEngine, "exchange", reaper)
    around(monkeypatch, Journal, "write", reaper, torn_record)
    around(monkeypatch, Ledger, "write", reaper, torn_line)
    around(monkeypatch, Desk, "_remember", reaper, torn_state)
    return reaper


@pytest.fixture
def study(tmp_path, request):
    rng, count = np.random.default_rng(5), 60 if request.param == CHOOSING else 14
    for site, names in (("a", "uv"), ("b", "wx" if request.param == COLUMNS else "uv")):
        lines = [
            ",".join(["who", *names]),
            *(
                f"{i},{x!r},{y!r}"
                for i, (x, y) in enumerate(rng.normal(i % 2 * 5, 1, 2).tolist() for i in range(count))
            ),
        ]
        (tmp_path / f"{site}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "study.toml").write_text(request.param)
    return read_study(tmp_path / "study.toml")


def begun(study, folder):
    return runs.begin(study, folder, origin=folder.parent)


def resumed(folder):
    run = runs.Run.find(folder)
    runs.see_through(run, runs.again(run))
    return found(run)


def found(run):
    """What a run found, and how it describes that."""
    return run.model.read_text(), (run.folder / "analysis.json").read_text()


@pytest.mark.parametrize(
    ("study", "every"),
    [
        pytest.param(ROWS, 1, id="rows"),
        pytest.param(COLUMNS, 4, id="columns"),
        pytest.param(COLUMNS, 1, id="columns, all", marks=pytest.mark.long),
    ],
    indirect=["study"],
)
def test_killed_anywhere_a_run_resumes_to_the_same_bits(study, every, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the machine lives on; only the process dies
    run, ready = begun(study, tmp_path / "whole")
    with monkeypatch.context() as patch:
        reaper = reaped(patch, None)
        runs.see_through(run, ready)
    expected, places = found(run), reaper.passed
    assert places > 80
    for at in range(1, places + 1, every):
        run = runs.Run.make(tmp_path / f"run-{at}", study.text, origin=tmp_path, digests=ready.digests())
        with monkeypatch.context() as patch:
            reaped(patch, at)
            with pytest.raises(Killed):
                runs.see_through(run, ready, fresh=True)
        assert not run.finished
        assert resumed(run.folder) == expected, f"killed at place {at} of {places}"


@pytest.mark.parametrize("study", [ROWS, COLUMNS, CHOOSING], indirect=True, ids=["rows", "columns", "choosing"])
def test_a_run_killed_again_and_again_ends_with_the_same_bits(study, tmp_path, monkeypatch):
    run, ready = begun(study, tmp_path / "whole")
    runs.see_through(run, ready)
    folder = tmp_path / "often"
    patient, ready = begun(study, folder)
    for at in itertools.count(17, 5 if study.cluster.k else 211):
        with monkeypatch.context() as patch:
            reaped(patch, at)
            try:
                runs.see_through(patient, ready)
            except Killed:
                ready = runs.again(patient)
                continue
        break
    assert found(patient) == found(run)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_the_folder_holds_what_the_interface_names(study, tmp_path):
    run, ready = begun(study, tmp_path / "deep" / "run")
    runs.see_through(run, ready)
    names = {path.name for path in run.folder.iterdir()}
    assert names == {
        "study.toml",
        "origin.json",
        "run",
        "journal",
        "sites",
        "model.json",
        "metrics.json",
        "analysis.json",
    }
    assert (run.folder / "study.toml").read_text() == ROWS
    metrics = run.metrics
    assert metrics["rounds"] == len(metrics["shifts"]) == len(metrics["objectives"]) == 3
    assert metrics["sites"].keys() == {"a", "b"}
    assert all(own["bytes"] > 0 and own["messages"] > 3 for own in metrics["sites"].values())
    assert run.folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("study", [CHOOSING], indirect=True)
def test_k_is_chosen_inside_the_run(study, tmp_path):
    run, ready = begun(study, tmp_path / "run")
    model = runs.see_through(run, ready)
    chosen = run.analysis["selection"]
    assert model.n_clusters == run.metrics["k"] == chosen["k"] == 2
    assert [point["k"] for point in chosen["curve"]] == [1, 2, 3]
    assert chosen["why"].startswith("K = 2 has the lowest")


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_a_folder_that_is_there_is_never_written_to(study, tmp_path):
    run, ready = begun(study, tmp_path / "run")
    with pytest.raises(StudyError, match="stopped run; go on with 'fedclust resume"):
        begun(study, run.folder)
    runs.see_through(run, ready)
    with pytest.raises(StudyError, match="finished run; choose another"):
        begun(study, run.folder)
    with pytest.raises(StudyError, match="already exists and is not a run"):
        begun(study, tmp_path)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_rows_that_changed_meanwhile_are_refused(study, tmp_path):
    run, _ = begun(study, tmp_path / "run")
    text = (tmp_path / "b.csv").read_text()
    (tmp_path / "b.csv").write_text(text.replace(text.split("\n")[3], "2,0.25,0.5"))
    with pytest.raises(DataError, match="rows of site 'b' have changed"):
        runs.again(run)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_one_process_at_a_time(study, tmp_path):
    run, ready = begun(study, tmp_path / "run")
    with run.held(), pytest.raises(RunFailed, match="another process is at work"):
        runs.see_through(run, ready)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
@pytest.mark.parametrize("name", ["origin.json", "journal"])
def test_a_damaged_folder_is_told_in_words(study, tmp_path, name):
    run, ready = begun(study, tmp_path / "run")
    runs.see_through(run, ready)
    (run.folder / "metrics.json").unlink()
    (run.folder / name).write_text("damaged")
    with pytest.raises(FedclustError, match=r"damaged|not a journal"):
        resumed(run.folder)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_sources_are_found_from_anywhere(study, tmp_path, monkeypatch):
    run, _ = begun(study, tmp_path / "run")
    monkeypatch.chdir(Path("/"))
    assert resumed(run.folder)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_a_run_goes_on_although_its_study_was_edited(study, tmp_path):
    run, ready = begun(study, tmp_path / "run")
    runs.see_through(run, ready)
    other, _ = begun(study, tmp_path / "other")
    (tmp_path / "study.toml").write_text(ROWS.replace("k = 2", "k = 5"))
    assert resumed(other.folder) == found(run)


@pytest.fixture
def failed(study, tmp_path):
    """A run whose site 'b' lost its file in round 2, and has it back now."""
    run, ready = begun(study, tmp_path / "run")
    away = tmp_path / "away.csv"

    def lose(facts):
        if facts["round"] == 2:
            (tmp_path / "b.csv").rename(away)

    with pytest.raises(DataError, match="site 'b'"):
        runs.see_through(run, ready, lose, fresh=True)
    away.rename(tmp_path / "b.csv")
    return run


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_data_lost_on_the_way_leave_the_rounds_that_were_done(failed):
    assert (failed.folder / "journal").stat().st_size > 1000


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_a_site_that_was_mended_is_asked_again(failed, study, tmp_path):
    run, ready = begun(study, tmp_path / "whole")
    runs.see_through(run, ready)
    assert resumed(failed.folder) == found(run)
