"""Rounds over sites that are elsewhere: what they remember is theirs, on their disks, whoever is killed."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from federation_by_files import NAMES, ByFiles

import fedclust as fc
from fedclust.app.execute import begin_next_round, begin_run, next_round_folder, resume_run
from fedclust.app.run_folder import EngineChoice, Run
from fedclust.app.study import read_study
from fedclust.cli.main import main

ROWS = 300  # few numbers leave for so many values: a site with rules takes part to the end
CENTRES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [30.0, 30.0]])
FOUND = ("nodes_", "node_rows_", "node_labels_", "scaled_nodes_")


def grown(seed):
    """All rows of each site so far; a fourth group comes with the second round."""
    parts = {name: [] for name in NAMES}
    for number in range(seed + 1):
        rng, groups = np.random.default_rng(number), CENTRES[: 3 + (number > 0)]
        for own in parts.values():
            own.append(groups[rng.integers(len(groups), size=ROWS)] + rng.normal(size=(ROWS, 2)))
    return {name: np.concatenate(own) for name, own in parts.items()}


def put(folder, seed):
    for name, X in grown(seed).items():
        path = folder / name / "rows.csv"
        np.savetxt(path, X, delimiter=",", header="age,bp", comments="", fmt="%.17g")


def made(folder, policy="standard"):
    found = ByFiles.made(folder, policy=policy)
    path = folder / "coordinator" / "study.toml"
    text = path.read_text()
    path.write_text(
        text.replace('method = "fuzzy-c-means"\nk = "2..4"', 'method = "summary-clustering"').replace(
            "scale", "# scale"
        )
    )
    put(folder, 0)
    return found


def expected(rounds):
    model = fc.SummaryClustering()
    for number in range(rounds):
        model.partial_fit(fc.Federation.local(grown(number), columns=["age", "bp"], policy="standard"))
    return model


def alike(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in FOUND)


def first_round(by_files):
    study = read_study(by_files.folder / "coordinator" / "study.toml", served=True)
    run = begin_run(study, by_files.folder / "runs" / "r", engine_choice=EngineChoice("files", by_files.own))
    by_files.until_done(lambda: resume_run(run))
    return run


def next_round(by_files, run):
    run = begin_next_round(run)
    assert run.open_study is None  # the rows are elsewhere
    return run, by_files.until_done(lambda: resume_run(run))[0]


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def test_served_sites_tell_each_row_once_though_every_message_finds_a_new_process(tmp_path):
    by_files = made(tmp_path)
    run = first_round(by_files)
    for number in (1, 2):
        put(tmp_path, number)
        run, model = next_round(by_files, run)
    assert run.folder.name == "r-3"
    assert alike(model, expected(3))
    assert model.node_rows_.sum() == 3 * 3 * ROWS
    assert not any("started from the beginning" in note for note in model.notes_)


def test_a_round_whose_folder_is_gone_is_not_begun_a_second_time(tmp_path, capsys):
    by_files = made(tmp_path)
    run = first_round(by_files)
    put(tmp_path, 1)
    assert main(["update", str(run.folder), "--quiet"]) == 4
    by_files.around()
    there = next_round_folder(run)
    there.rename(tmp_path / "away")
    capsys.readouterr()
    for out in ([], ["--out", str(tmp_path / "elsewhere")]):
        assert main(["update", str(run.folder), *out]) == 2
        assert f"{there}, but that folder is missing" in capsys.readouterr().err
    assert not there.exists()
    (tmp_path / "away").rename(there)
    model, _ = by_files.until_done(lambda: resume_run(Run.find(there)))
    assert alike(model, expected(2))


def test_a_round_that_found_no_room_can_be_begun_again(tmp_path, monkeypatch):
    by_files = made(tmp_path)
    run = first_round(by_files)
    put(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "create", full_disk)
        with pytest.raises(OSError, match="No space"):
            begin_next_round(run)
    assert alike(next_round(by_files, run)[1], expected(2))


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_served_site_that_lost_its_memory_is_named(tmp_path):
    by_files = made(tmp_path)
    run = first_round(by_files)
    put(tmp_path, 1)
    shutil.rmtree(tmp_path / "south" / "state")
    for path in (*(tmp_path / "south" / "inbox").iterdir(), *(tmp_path / "south" / "outbox").iterdir()):
        path.unlink()
    _, model = next_round(by_files, run)
    assert any("started from the beginning" in note and "not available: south." in note for note in model.notes_)


def test_lossless_models_take_batches_from_served_sites(tmp_path):
    by_files = ByFiles.made(tmp_path, k="3", more='init = "box"\nmax_iter = 2')
    run = first_round(by_files)
    here = fc.load(run.model_path)
    batch = {name: X[:60] for name, X in grown(0).items()}
    for name, X in batch.items():
        np.savetxt(tmp_path / name / "rows.csv", X, delimiter=",", header="age,bp", comments="", fmt="%.17g")
    _, model = next_round(by_files, run)
    here.partial_fit(fc.Federation.local(batch, columns=["age", "bp"]))
    assert np.array_equal(model.cluster_centers_, here.cluster_centers_)
    assert np.array_equal(model.cluster_sizes_, here.cluster_sizes_)


def test_a_blind_run_is_not_gone_on_from(tmp_path):
    by_files = ByFiles.made(tmp_path, k="3", mode="blind")
    study = read_study(by_files.folder / "coordinator" / "study.toml", served=True)
    run = begin_run(study, tmp_path / "r", engine_choice=EngineChoice("files", by_files.own))
    (run.folder / "metrics.json").write_text("{}")
    with pytest.raises(fc.StudyError, match="blind"):
        begin_next_round(run, tmp_path / "r-2")


DEADLY = """\
import os, signal, sys
from fedclust.cli.main import main
from fedclust.site import server
keep = server.write_file
def dying(path, data):
    keep(path, data)
    os.kill(os.getpid(), signal.SIGKILL)  # the memory is on the disk, the answer is nowhere
server.write_file = dying
sys.exit(main(sys.argv[1:]))
"""


class Processes:
    """The same federation, each of the four a process that stays until the run ends."""

    def __init__(self, folder):
        self.folder = folder

    def site(self, name, *, deadly=False):
        mail, own = self.folder / "coordinator" / "mail", self.folder / name
        for box in ("to", "from"):
            (mail / box / name).mkdir(parents=True, exist_ok=True)
        boxes = mail / "to" / name, mail / "from" / name
        rules = "--site", own / "site.toml", "--study", self.folder / "coordinator" / "study.toml"
        program = ("-c", DEADLY) if deadly else ("-m", "fedclust.cli.main")
        return process(*program, "site", "answer", *boxes, *rules, "--wait", "--poll", "0.05")

    def round(self, *command, kill_site=False, kill_coordinator=False):
        sites = {name: self.site(name, deadly=kill_site and name == "south") for name in NAMES}
        coordinator = process("-m", "fedclust.cli.main", *command, "--wait", "--quiet")
        try:
            if kill_coordinator:
                until(Path(command[-1], "journal"))
                coordinator.kill()
                assert coordinator.wait() == -signal.SIGKILL
                coordinator = process("-m", "fedclust.cli.main", "resume", command[-1], "--wait", "--quiet")
            if kill_site:
                assert sites["south"].wait(300) == -signal.SIGKILL
                sites["south"] = self.site("south")
            assert coordinator.wait(300) == 0
            assert [site.wait(300) for site in sites.values()] == [0, 0, 0]
        finally:
            for own in (coordinator, *sites.values()):
                own.kill()
                own.wait()


def process(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *map(str, arguments)], env=environment, stdout=-3, stderr=-3)


def until(journal, seconds=300):
    """Until a question has been answered."""
    end = time.monotonic() + seconds
    while not (journal.is_file() and journal.stat().st_size > 400):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.slow
def test_rounds_of_processes_that_are_killed_end_with_the_same_bits(tmp_path):
    made(tmp_path)
    processes, r = Processes(tmp_path), tmp_path / "r"
    own = tmp_path / "coordinator" / "own.toml"
    processes.round("coordinate", own.with_name("study.toml"), "--engine", "files", "--own", own, "--out", r)
    put(tmp_path, 1)
    processes.round("update", r, "--out", tmp_path / "r-2", kill_site=True)
    put(tmp_path, 2)
    processes.round("update", tmp_path / "r-2", "--out", tmp_path / "r-3", kill_coordinator=True)
    found = fc.load(tmp_path / "r-3" / "model.json")
    assert alike(found, expected(3))
    assert not any("started from the beginning" in note for note in found.notes_)
    assert main(["report", str(tmp_path / "r-3")]) == 0
    assert Run.find(tmp_path / "r-3").metrics["rounds"] == 3
