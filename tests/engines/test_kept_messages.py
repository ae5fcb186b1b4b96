"""By messages: the command that a kit is for, a refusal that is said once, messages that stay as they were written."""

import os
import shlex
from types import SimpleNamespace

import pytest
from federation_by_files import NAMES, ByFiles, begun, waited

from fedclust.cli import site_answer
from fedclust.cli.main import main
from fedclust.engines.files.message_folder import MessageFolder


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def fed(tmp_path):
    return ByFiles.made(tmp_path / "f", k="2", more="max_iter = 1")


def test_enrolment_by_files_names_a_command_that_the_kit_can_be_used_with(fed, tmp_path, capsys):
    study = fed.folder / "coordinator" / "study.toml"
    assert main(["enrol", str(study), "--out", str(tmp_path / "kits"), "--engine", "files"]) == 0
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "for site 'south'" in line]
    command = said.partition("for site 'south':")[2].replace("KIT", str(tmp_path / "kits" / "south"))
    for word, path in {"INBOX": "in", "OUTBOX": "out", "FILE": fed.folder / "south" / "rows.csv"}.items():
        command = command.replace(word, str(tmp_path / path))
    (tmp_path / "in").mkdir()
    fedclust, *words = shlex.split(command)
    assert fedclust == "fedclust"
    assert main(words) == 0
    assert "nothing new to answer" in capsys.readouterr().out


def test_a_site_that_stays_says_once_what_it_refused(fed, capsys, monkeypatch):
    waited(begun(fed)[1])
    (fed.folder / "south" / "site.toml").write_text(
        (fed.folder / "south" / "site.toml").read_text().replace("rows.csv", "elsewhere.csv")
    )
    fed.carry(back=False)
    boxes = [str(fed.folder / "south" / box) for box in ("inbox", "outbox")]
    words = ["site", "answer", *boxes, "--site", str(fed.folder / "south" / "site.toml"), "--wait", "--poll", "0.01"]
    looks = iter(range(5))

    def sleep(_):
        if next(looks, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(site_answer, "time", SimpleNamespace(sleep=sleep))
    main(words)
    assert next(looks, None) is None
    assert list((fed.folder / "south" / "outbox").glob("*.message"))
    assert capsys.readouterr().err.count("This site refused") == 1


def answered(fed, name, study):
    boxes = [fed.folder / name / box for box in ("inbox", "outbox")]
    words = ["site", "answer", *boxes, "--site", fed.folder / name / "site.toml", "--study", study]
    return main([str(word) for word in words])


def test_a_site_that_refuses_by_its_rules_is_told_so(tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2", more='init = "careful"', mode="secure", policy="nhs")
    go_on = begun(fed)[1]
    for _ in range(20):
        waited(go_on)
        fed.carry(back=False)
        capsys.readouterr()
        for name in NAMES:
            assert answered(fed, name, fed.folder / "coordinator" / "study.toml") == 0
        fed.carry()
        told = capsys.readouterr().err
        if "refused" in told:
            break
    refusal = "its policy does not let points leave the site; set init to 'box', or give initial centres"
    assert told.count(f"This site refused: {refusal}\n") == 3


def test_a_site_that_was_told_of_another_study_is_told_so(fed, capsys):
    waited(begun(fed)[1])
    fed.carry(back=False)
    other = fed.folder / "other.toml"
    other.write_text((fed.folder / "coordinator" / "study.toml").read_text() + "# another\n")
    assert answered(fed, "south", other) == 0
    assert "This site refused: it expects a different study" in capsys.readouterr().err


def test_a_message_that_was_damaged_where_it_lies_is_written_again(tmp_path):
    box, text = MessageFolder(tmp_path / "box", lambda *_: None), {"a.message": b"whole", "b.message": b"another"}
    assert box.write_messages(text) == ["a.message", "b.message"]
    assert box.write_messages(text) == []
    for damage in (b"whoLe", b"who", b""):
        (tmp_path / "box" / "a.message").write_bytes(damage)
        assert box.write_messages(text) == ["a.message"]
        assert (tmp_path / "box" / "a.message").read_bytes() == b"whole"
    (tmp_path / "box" / "b.message").unlink()
    assert box.write_messages(text) == ["b.message"]


def test_a_question_that_was_damaged_on_its_way_out_is_there_again_when_the_run_is_resumed(fed):
    _, go_on = begun(fed)
    waited(go_on)
    (path,) = (fed.mail / "to" / "south").glob("*.message")
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"?" + whole[101:])
    waited(go_on)
    assert path.read_bytes() == whole
