"""A blind run by files: the bits of one process at the lead, nothing at the coordinator, whoever starts anew."""

import errno
import json
import os

import pytest
from federation_by_files import ByFiles, begun, in_process, outcome, waited

from fedclust.app.coordinate import RunOptions
from fedclust.app.execute import resume_run
from fedclust.core.errors import RunFailed, StudyError
from fedclust.engines.files import message_folder
from fedclust.engines.files.message_file import MESSAGE_SUFFIX


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def blind(folder, rounds=1):
    """A blind run that south leads, and how the coordinator goes on with it."""
    fed = ByFiles.made(folder, k="2", more=f"max_iter = {rounds}", mode="blind", policy="standard")
    path = fed.folder / "coordinator" / "study.toml"
    path.write_text(path.read_text().replace('"blind"', '"blind"\nlead = "south"'))
    run, _ = begun(fed)
    return fed, run, lambda: resume_run(run)


def state_of(run):
    return json.loads(run.status_path.read_text())["state"]


@pytest.mark.engines
def test_a_blind_run_gives_the_bits_of_one_process_at_the_lead_and_nothing_at_the_coordinator(tmp_path):
    fed, run, go_on = blind(tmp_path / "f", rounds=2)
    fed.until_done(go_on)
    assert outcome(fed.folder / "south" / "led") == in_process(fed)
    assert not (run.folder / "model.json").exists()
    assert state_of(run) == "finished"
    assert all(own["answers"] > 5 for own in json.loads(run.status_path.read_text())["sites"].values())


@pytest.mark.engines
def test_a_lead_that_finds_no_room_for_its_last_message_says_the_end_when_it_is_started_again(tmp_path, monkeypatch):
    fed, run, go_on = blind(tmp_path / "f")
    fed.share()
    full, real = [], message_folder.write_file

    def keep(path, data, **how):
        if (
            not full
            and path.name.endswith(f"-lead{MESSAGE_SUFFIX}")
            and (fed.folder / "south" / "led" / "metrics.json").exists()
        ):
            full.append(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, data, **how)

    monkeypatch.setattr(message_folder, "write_file", keep)
    with pytest.raises(RunFailed, match=r"cannot write a message to .*; free some space"):
        fed.until_done(go_on)
    fed.until_done(go_on, most=3)
    assert state_of(run) == "finished"


@pytest.mark.engines
def test_a_lead_that_is_started_anew_finds_its_run_where_only_the_coordinators_reply_to_it_lies(tmp_path):
    fed, run, go_on = blind(tmp_path / "f")
    fed.share()
    fed.until_done(go_on)
    assert state_of(run) == "finished"


def test_a_blind_coordinator_that_waits_for_the_first_messages_says_so(tmp_path):
    _, run, go_on = blind(tmp_path / "f")
    waited(go_on)
    assert state_of(run) == "waiting"


def test_a_blind_run_does_not_go_on_without_its_lead(tmp_path):
    _, run, _ = blind(tmp_path / "f")
    with pytest.raises(StudyError, match="a blind run needs its leading site"):
        resume_run(run, RunOptions(wait=True, without=frozenset({"south"})))


def test_a_blind_coordinator_that_fails_says_so(tmp_path):
    fed, run, go_on = blind(tmp_path / "f")
    waited(go_on)
    path = fed.folder / "coordinator" / "study.toml"
    path.write_text(path.read_text() + "# what the sites looked at\n")
    fed.around()
    with pytest.raises(RunFailed, match="'north' does not take part"):
        go_on()
    assert state_of(run) == "failed"
