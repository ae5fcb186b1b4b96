"""Messages from whoever may put files into a folder, the coordinator included: they write and move nothing else."""

import errno
import os
import threading

import pytest
from federation_by_files import ByFiles, begun, waited

from fedclust.cli.main import main
from fedclust.core.errors import QuorumLost, RunFailed
from fedclust.core.greeting import Greeting
from fedclust.engines.files import message_folder
from fedclust.engines.files.message_file import COORDINATOR_ID, Chain
from fedclust.engines.files.message_folder import MessageFolder
from fedclust.privacy.keys import Identity
from fedclust.site.approval import digest_study
from fedclust.site.site_file import read_private_key

BELL = "\x1b]0;planted\x07"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def fed(tmp_path):
    return ByFiles.made(tmp_path / "f", k="2", more="max_iter = 1")


def greeting(fed, run, *, by=None, way=(COORDINATOR_ID, "south")):
    """A first letter of a run of that name, signed by the coordinator's own key, or by another."""
    study = (fed.folder / "coordinator" / "study.toml").read_text()
    chain = Chain.new(run)
    text = chain.encode_hello(Greeting.for_party("south", run=run, study=study).encode())
    identity = by or read_private_key(fed.folder / "coordinator" / "own.key")
    (data,) = chain.append_message("greeting", text, identity, way, in_clear=True).undelivered.values()
    return data


def everything(folder):
    return {path for path in folder.rglob("*") if path.is_file()}


def answered(fed, name="south"):
    boxes = [str(fed.folder / name / box) for box in ("inbox", "outbox")]
    return main(["site", "answer", *boxes, "--site", str(fed.folder / name / "site.toml")])


@pytest.mark.parametrize("run", ["../x", "../../planted", "{here}/q", "..\\x", "", ".", "a\nb", "a/+lead"])
def test_a_run_named_like_a_path_is_refused_and_nothing_is_written(run, fed):
    study = (fed.folder / "coordinator" / "study.toml").read_text()
    run = run.format(here=fed.folder)
    bad = f"{run}-{digest_study(study)}" if run else ""
    inbox, outbox = fed.folder / "south" / "inbox", fed.folder / "south" / "outbox"
    waited(begun(fed)[1])
    fed.carry(back=False)
    (inbox / "a.message").write_bytes(greeting(fed, bad))
    before = everything(fed.folder)
    turn = fed.answer("south")
    assert turn.refused == {"a.message": "it belongs to a run with an invalid name"}
    assert len(turn.answered) == 1
    state = fed.folder / "south" / "state"
    assert {path.parent for path in everything(fed.folder) - before if state not in path.parents} == {outbox}


@pytest.mark.parametrize("name", ["../x.message", "{here}/q.message", "a/b.message", "a\\b.message", "..", ""])
def test_a_folder_puts_messages_nowhere_else(name, tmp_path):
    with pytest.raises(RunFailed, match="a message file cannot have the name"):
        MessageFolder(tmp_path / "box", lambda *_: None).write_messages({name.format(here=tmp_path): b"x"})
    assert not everything(tmp_path)


def test_one_run_that_cannot_be_answered_does_not_keep_others_from_it(fed, monkeypatch):
    study = (fed.folder / "coordinator" / "study.toml").read_text()
    runs = [f"{token * 8}-{digest_study(study)}" for token in "abc"]
    for run in runs:
        (fed.folder / "south" / "inbox" / f"{run[:8]}.message").write_bytes(greeting(fed, run))
    real = message_folder.write_file

    def keep(path, data, **how):
        if path.name.startswith("a"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        real(path, data, **how)

    monkeypatch.setattr(message_folder, "write_file", keep)
    with pytest.raises(RunFailed, match=r"cannot write a message to .* \(permission denied\); correct the cause"):
        fed.answer("south")
    assert sorted(path.name[:8] for path in (fed.folder / "south" / "outbox").iterdir()) == ["b" * 8, "c" * 8]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_is_said_where_there_is_none(code, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(message_folder, "write_file", full)
    with pytest.raises(RunFailed, match=r"cannot write a message to .*; free some space"):
        MessageFolder(tmp_path, lambda *_: None).write_messages({"a.message": b"x"})


def test_what_a_site_prints_of_strangers_files_moves_no_cursor(fed, capsys):
    inbox = fed.folder / "south" / "inbox"
    (inbox / f"{BELL}.message").write_bytes(greeting(fed, "a-b", by=Identity.new(), way=(BELL, "south")))
    (inbox / os.fsdecode(b"\xff.message")).write_bytes(b"no letter")
    (inbox / "own.message").write_bytes(greeting(fed, "a-c", way=(BELL, "south")))
    assert answered(fed) == 0
    told = capsys.readouterr().err
    assert "\\x1b]0;planted\\x07.message: it was altered, or signed with a key other than" in told
    assert "\\udcff.message: it is not a message file of this version" in told
    assert "own.message: it is from \\x1b]0;planted\\x07, not from the coordinator" in told
    assert told.replace("\n", "").isprintable()


def test_what_a_coordinator_prints_of_strangers_files_moves_no_cursor(fed, capsys):
    run, go_on = begun(fed)
    waited(go_on)
    box = fed.mail / "from" / "south"
    (box / f"{BELL}.message").write_bytes(greeting(fed, "a-b", by=Identity.new(), way=(BELL, COORDINATOR_ID)))
    north = read_private_key(fed.folder / "north" / "own.key")
    (box / "north.message").write_bytes(greeting(fed, "a-b", by=north, way=("north", COORDINATOR_ID)))
    (box / "posing.message").write_bytes(greeting(fed, "a-b", by=Identity.new(), way=("north", COORDINATOR_ID)))
    told = str(waited(go_on))
    assert f"{box}/\\x1b]0;planted\\x07.message: it was altered, or signed with a key other than" in told
    assert f"{box}/north.message: it is from north, not from south" in told
    assert f"{box}/posing.message: it was altered, or signed with a key other than" in told
    assert told.replace("\n", "").isprintable()
    assert main(["status", str(run.folder)]) == 0
    shown = capsys.readouterr().out
    assert "planted" in shown
    assert shown.replace("\n", "").isprintable()


def test_a_coordinator_that_stays_does_not_wait_for_a_site_that_it_is_to_do_without(fed):
    _, go_on = begun(fed)
    waited(go_on)
    fed.around()
    waited(go_on)
    fed.carry(("north", "west"), back=False)
    for name in ("north", "west"):
        fed.answer(name)
    fed.carry(("north", "west"))
    lost = []

    def stay():
        with pytest.raises(
            QuorumLost, match=r"2 of 3 parties answered, but 3 are required \(south: no answer"
        ) as error:
            go_on(wait=True, without=frozenset({"south"}))
        lost.append(error.value.missing)

    staying = threading.Thread(target=stay, daemon=True)
    staying.start()
    staying.join(20)
    assert [set(missing) for missing in lost] == [{"south"}]
