"""A run folder survives whatever stops the run: every message and every record is a place to be killed at."""

import errno
import fcntl
import functools
import itertools
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from fedclust.app import execute, run_folder
from fedclust.app.execute import begin_run, resume_run
from fedclust.app.study import read_study
from fedclust.cli.main import main
from fedclust.core.errors import DataError, FedclustError, QuorumLost, RunFailed, StudyError, Waiting
from fedclust.federation.federation import Federation
from fedclust.models import FederatedEstimator
from reaping import Killed, nothing_hidden_twice, reaped

ROWS = """
name = "kill"
[cluster]
method = "fuzzy-c-means"
k = 2
max_iter = 3
[sites.a]
source = "a.csv"
[sites.b]
source = "b.csv"
"""
DRAWN = ROWS.replace("max_iter = 3", 'max_iter = 3\ninit = "box"')  # few enough messages to be killed at each
COLUMNS = ROWS.replace("[cluster]", 'split = "columns"\nid = "who"\nscale = "standardise"\n[cluster]').replace(
    "max_iter = 3", "max_iter = 2"
)
CHOOSING = ROWS.replace("k = 2", 'k = "1..3"')
MORE = ROWS.replace("max_iter = 3", "max_iter = 2") + "".join(f'[sites.{s}]\nsource = "{s}.csv"\n' for s in "cd")
SECURE = MORE + '[privacy]\naggregation = "secure"\n'
RECOVERABLE = SECURE.replace("max_iter = 2", "max_iter = 1\nquorum = 0.75")
BLIND = MORE + '[privacy]\naggregation = "blind"\nlead = "b"\n'
SHORT = BLIND + "early_stopping = true\n"  # few enough messages to be killed at each


@pytest.fixture
def study(tmp_path, request):
    rng, count = np.random.default_rng(5), 60 if request.param == CHOOSING else 14
    for site, names in (("a", "uv"), ("b", "wx" if request.param == COLUMNS else "uv"), ("c", "uv"), ("d", "uv")):
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
    return begin_run(study, folder, origin=folder.parent)


def resumed(folder):
    run = run_folder.Run.find(folder)
    resume_run(run)
    return found(run)


def found(run):
    """What a run found, and how it describes that; steps that were begun anew left more messages behind."""
    described = json.loads((run.folder / "analysis.json").read_text())
    if run.study().cluster.options.get("quorum", "all") != "all":
        del described["left"]
    return run.model_path.read_text(), described


@pytest.mark.parametrize(
    ("study", "every"),
    [
        pytest.param(DRAWN, 5, id="rows"),
        pytest.param(DRAWN, 1, id="rows, all", marks=pytest.mark.long),
        pytest.param(ROWS, 1, id="rows, default start", marks=pytest.mark.long),
        pytest.param(COLUMNS, 7, id="columns"),
        pytest.param(COLUMNS, 1, id="columns, all", marks=pytest.mark.long),
        pytest.param(SECURE, 61, id="secure"),
        pytest.param(RECOVERABLE, 881, id="recoverable"),
        pytest.param(BLIND, 719, id="blind"),
        pytest.param(RECOVERABLE, 61, id="recoverable, evenly", marks=pytest.mark.long),
        pytest.param(SECURE, 1, id="secure, all", marks=pytest.mark.long),
        pytest.param(SHORT, 1, id="blind, all", marks=pytest.mark.long),
        pytest.param(BLIND, 41, id="blind, evenly", marks=pytest.mark.long),
    ],
    indirect=["study"],
)
def test_killed_anywhere_a_run_resumes_to_the_same_bits(study, every, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the machine lives on; only the process dies
    nothing_hidden_twice(monkeypatch)
    run = begun(study, tmp_path / "whole")
    with monkeypatch.context() as patch:
        reaper = reaped(patch, None)
        resume_run(run)
    expected, places = found(run), reaper.passed
    assert places > 80
    for at in range(1, places + 1, every):
        run = begun(study, tmp_path / f"run-{at}")
        with monkeypatch.context() as patch:
            reaped(patch, at)
            with pytest.raises(Killed):
                resume_run(run)
        assert not run.is_finished
        assert resumed(run.folder) == expected, f"killed at place {at} of {places}"


@pytest.mark.parametrize("study", [ROWS, COLUMNS, CHOOSING], indirect=True, ids=["rows", "columns", "choosing"])
def test_a_run_killed_again_and_again_ends_with_the_same_bits(study, tmp_path, monkeypatch):
    run = begun(study, tmp_path / "whole")
    resume_run(run)
    folder = tmp_path / "often"
    patient = begun(study, folder)
    for at in itertools.count(17, 5 if study.cluster.k else 211):
        with monkeypatch.context() as patch:
            reaped(patch, at)
            try:
                resume_run(patient)
            except Killed:
                patient = run_folder.Run.find(folder)
                continue
        break
    assert found(patient) == found(run)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_the_folder_holds_what_the_interface_names(study, tmp_path):
    run = begun(study, tmp_path / "deep" / "run")
    resume_run(run)
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
        "status.json",
    }
    assert (run.folder / "study.toml").read_text() == ROWS
    metrics = run.metrics
    assert metrics["rounds"] == len(metrics["shifts"]) == len(metrics["objectives"]) == 3
    assert metrics["sites"].keys() == {"a", "b"}
    assert all(own["bytes"] > 0 and own["messages"] > 3 for own in metrics["sites"].values())
    assert run.folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("study", [CHOOSING], indirect=True)
def test_k_is_chosen_inside_the_run(study, tmp_path):
    run = begun(study, tmp_path / "run")
    model = resume_run(run)
    chosen = run.analysis["selection"]
    assert model.n_clusters == run.metrics["k"] == chosen["k"] == 2
    assert [point["k"] for point in chosen["curve"]] == [1, 2, 3]
    assert chosen["why"].startswith("K = 2 was chosen: the rows form groups")


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_a_folder_that_is_there_is_never_written_to(study, tmp_path):
    run = begun(study, tmp_path / "run")
    with pytest.raises(StudyError, match="stopped run; continue it with 'fedclust resume"):
        begun(study, run.folder)
    resume_run(run)
    with pytest.raises(StudyError, match="finished run; choose another"):
        begun(study, run.folder)
    with pytest.raises(StudyError, match="already exists and is not a run"):
        begun(study, tmp_path)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_rows_that_changed_meanwhile_are_refused(study, tmp_path):
    run = begun(study, tmp_path / "run")
    text = (tmp_path / "b.csv").read_text()
    (tmp_path / "b.csv").write_text(text.replace(text.split("\n")[3], "2,0.25,0.5"))
    with pytest.raises(DataError, match="rows of site 'b' have changed"):
        resumed(run.folder)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_another_version_does_not_go_on_with_a_run(study, tmp_path, monkeypatch):
    run = begun(study, tmp_path / "run")
    monkeypatch.setattr("fedclust.__version__", "9.9")
    with pytest.raises(StudyError, match=r"was started with fedclust .*, but this is 9\.9"):
        resumed(run.folder)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_one_process_at_a_time(study, tmp_path):
    run = begun(study, tmp_path / "run")
    with run.lock(), pytest.raises(RunFailed, match="another process is working"):
        resume_run(run)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_a_process_that_is_kept_out_leaves_the_ledgers_as_they_are(study, tmp_path):
    run = begun(study, tmp_path / "run")
    resume_run(run)
    (run.folder / "metrics.json").unlink()
    ledger = next((run.folder / "sites").rglob("ledger*"))
    ledger.write_bytes(before := ledger.read_bytes() + b'{"a line that the other process is still')
    with run.lock():
        assert main(["resume", str(run.folder)]) == 1
    assert ledger.read_bytes() == before


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_whoever_looks_whether_a_run_is_at_work_keeps_nobody_from_it(study, tmp_path):
    run = begun(study, tmp_path / "run")
    with run.lock():
        assert run.is_at_work
    with (run.folder / "run").open() as glance:
        fcntl.flock(glance, fcntl.LOCK_SH)
        assert not run.is_at_work
        threading.Timer(0.1, glance.close).start()
        resume_run(run)
    assert run.is_finished


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_a_run_on_a_disk_that_locks_only_what_can_be_written_is_taken(study, tmp_path, monkeypatch):
    """As over NFS, where a file that was opened to be read cannot be had to oneself."""
    run = begun(study, tmp_path / "run")
    plain = fcntl.flock

    def over_nfs(file, how):
        if how & fcntl.LOCK_EX and fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        plain(file, how)

    monkeypatch.setattr(fcntl, "flock", over_nfs)
    resume_run(run)
    assert run.is_finished


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_a_disk_that_cannot_lock_at_all_is_not_taken_for_another_process(study, tmp_path, monkeypatch):
    run = begun(study, tmp_path / "run")

    def without_locks(file, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with pytest.raises(OSError, match="No locks available"):
        resume_run(run)
    with pytest.raises(OSError, match="No locks available"):
        assert run.is_at_work


@pytest.mark.parametrize("study", [ROWS], indirect=True)
@pytest.mark.parametrize("name", ["origin.json", "journal"])
def test_a_damaged_folder_is_told_in_words(study, tmp_path, name):
    run = begun(study, tmp_path / "run")
    resume_run(run)
    (run.folder / "metrics.json").unlink()
    (run.folder / name).write_text("damaged")
    with pytest.raises(FedclustError, match=r"damaged|not a journal"):
        resumed(run.folder)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_sources_are_found_from_anywhere(study, tmp_path, monkeypatch):
    run = begun(study, tmp_path / "run")
    monkeypatch.chdir(Path("/"))
    assert resumed(run.folder)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_a_run_goes_on_although_its_study_was_edited(study, tmp_path):
    run = begun(study, tmp_path / "run")
    resume_run(run)
    other = begun(study, tmp_path / "other")
    (tmp_path / "study.toml").write_text(ROWS.replace("k = 2", "k = 5"))
    assert resumed(other.folder) == found(run)


@pytest.fixture
def failed(study, tmp_path):
    """A run whose site 'b' lost its file in round 2, and has it back now."""
    run = begun(study, tmp_path / "run")
    away = tmp_path / "away.csv"

    def lose(facts):
        if facts["round"] == 2:
            (tmp_path / "b.csv").rename(away)

    with pytest.raises(DataError, match="site 'b'"):
        resume_run(run, watch=lose)
    away.rename(tmp_path / "b.csv")
    return run


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_data_lost_on_the_way_leave_the_rounds_that_were_done(failed):
    assert (failed.folder / "journal").stat().st_size > 1000


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_a_site_that_was_mended_is_asked_again(failed, study, tmp_path):
    run = begun(study, tmp_path / "whole")
    resume_run(run)
    assert resumed(failed.folder) == found(run)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
@pytest.mark.parametrize(
    "error",
    [KeyError("x"), ZeroDivisionError(), StudyError("no"), DataError("bad"), QuorumLost("lost", {"a": "failed"})],
)
def test_a_description_that_fails_leaves_a_finished_run_with_its_model_and_a_note(study, error, tmp_path, monkeypatch):
    whole = begun(study, tmp_path / "whole")
    resume_run(whole)

    def broken(*_):
        raise error

    monkeypatch.setattr(execute, "describe", broken)
    run = begun(study, tmp_path / "run")
    resume_run(run)
    assert run.is_finished
    assert run.model_path.read_text() == whole.model_path.read_text()
    assert run.analysis is None
    (note,) = set(run.metrics["notes"]) - set(whole.metrics["notes"])
    assert type(error).__name__ in note
    differs = {"notes", "started", "finished", "seconds", "sites"}
    assert {name: run.metrics[name] for name in run.metrics.keys() - differs} == {
        name: whole.metrics[name] for name in whole.metrics.keys() - differs
    }


@pytest.mark.parametrize("study", [ROWS, COLUMNS, CHOOSING], indirect=True, ids=["rows", "columns", "choosing"])
def test_no_part_of_a_description_that_asks_the_sites_ends_a_finished_run(study, tmp_path, monkeypatch):
    saved, asked = [], []
    save, ask = FederatedEstimator.save, Federation.run

    def counted(fed, *given, fail=None, **options):
        asked.append(bool(saved))
        if saved and sum(asked) == fail:
            raise ZeroDivisionError
        return ask(fed, *given, **options)

    monkeypatch.setattr(FederatedEstimator, "save", lambda model, path: saved.append(path) or save(model, path))
    monkeypatch.setattr(Federation, "run", counted)
    whole = begun(study, tmp_path / "whole")
    resume_run(whole)
    parts = sum(asked)
    assert parts
    for part in range(1, parts + 1):
        saved.clear()
        asked.clear()
        monkeypatch.setattr(Federation, "run", functools.partialmethod(counted, fail=part))
        run = begun(study, tmp_path / f"run-{part}")
        resume_run(run)
        assert sum(asked) >= part
        assert run.is_finished
        assert run.model_path.read_text() == whole.model_path.read_text()
        described = run.metrics["notes"] if run.analysis is None else run.analysis
        assert "ZeroDivisionError" in json.dumps(described)


@pytest.mark.parametrize("study", [ROWS], indirect=True)
def test_a_description_that_waits_for_sites_leaves_the_run_waiting(study, tmp_path, monkeypatch):
    def waiting(*_):
        raise Waiting("carry the letters", ("a",))

    run = begun(study, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(execute, "describe", waiting)
        with pytest.raises(Waiting):
            resume_run(run)
    assert not run.is_finished
    assert json.loads(run.status_path.read_text())["state"] == "waiting"
    assert resumed(run.folder)[1]


@pytest.mark.parametrize("study", [ROWS, SECURE, BLIND], indirect=True, ids=["rows", "secure", "blind"])
def test_a_federation_is_built_once_for_a_run(study, tmp_path, monkeypatch):
    built, plain = [], Federation.__init__

    def counted(fed, *given, **options):
        built.append(fed)
        plain(fed, *given, **options)

    monkeypatch.setattr(Federation, "__init__", counted)
    run = begun(study, tmp_path / "run")
    resume_run(run)
    assert len(built) == 1
    assert built[0].folder == run.folder


@pytest.mark.parametrize("study", [ROWS.replace("k = 2", "k = 99")], indirect=True)
def test_a_study_that_is_refused_leaves_nothing_behind(study, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match="fewer than k"):
        begun(study, tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == before
