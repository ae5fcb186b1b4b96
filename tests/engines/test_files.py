"""The file engine: the same bits as in one process, and every file that is not in order refused by its name."""

import json
import os
import shutil

import pytest
from federation_by_files import NAMES, ByFiles, begun, in_process, outcome, waited

from fedclust.cli.main import main
from fedclust.core.errors import QuorumLost, RunFailed, StudyError, Waiting
from fedclust.engines.files.files_link import FilesLink

FEW = "max_iter = 2"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize(
    ("mode", "policy", "k", "more"),
    [
        ("plain", "none", "3", FEW),
        ("secure", "standard", "3", FEW),
        pytest.param("plain", "none", '"2..4"', "max_iter = 6", marks=pytest.mark.engines),
        pytest.param("secure", "standard", '"2..4"', "max_iter = 6", marks=pytest.mark.engines),
    ],
)
def test_files_give_the_bits_of_one_process(mode, policy, k, more, tmp_path):
    fed = ByFiles.made(tmp_path / "f", k=k, more=more, mode=mode, policy=policy)
    run, go_on = begun(fed)
    fed.until_done(go_on)
    assert outcome(run.folder) == in_process(fed)
    sites = json.loads((run.folder / "metrics.json").read_text())["sites"]
    assert all(own["messages"] > 8 and own["bytes"] > 1000 for own in sites.values())


def test_the_end_of_a_run_is_told_and_nothing_is_left_to_answer(tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="2", more="max_iter = 1")
    _, go_on = begun(fed)
    fed.until_done(go_on)
    fed.carry(back=False)
    assert all(fed.answer(name).all_ended for name in NAMES)
    assert not list((fed.mail / "from").rglob("*.message"))
    assert not list((fed.folder / "north" / "outbox").iterdir())


@pytest.mark.parametrize("died", ["before the ends were written", "before the ends were put there"])
def test_a_coordinator_that_died_last_of_all_says_the_end_when_it_is_resumed(died, tmp_path, monkeypatch):
    fed = ByFiles.made(tmp_path / "f", k="2", more=FEW)
    run, go_on = begun(fed)
    if died.endswith("written"):
        with monkeypatch.context() as patch:
            patch.setattr(FilesLink, "close", lambda *_, **__: None)
            fed.until_done(go_on)
    else:
        fed.until_done(go_on)
        for name in NAMES:
            newest(fed.folder / "coordinator" / "mail" / "to" / name).unlink()
    assert run.is_finished
    assert main(["resume", str(run.folder)]) == 0
    fed.carry(back=False)
    assert all(fed.answer(name).all_ended for name in NAMES)


def test_a_coordinator_that_stays_and_sites_that_stay_need_no_hands(tmp_path):
    import threading

    fed = ByFiles.made(tmp_path / "f", k="2", more="max_iter = 1")
    _, go_on = begun(fed)
    fed.share()
    words = [
        ["site", "answer", f"{fed.folder / n / 'inbox'}", f"{fed.folder / n / 'outbox'}", "--wait", "--poll", "0.02"]
        for n in NAMES
    ]
    sites = [
        threading.Thread(target=main, args=([*own, "--site", f"{fed.folder / name / 'site.toml'}"],), daemon=True)
        for name, own in zip(NAMES, words, strict=True)
    ]
    for site in sites:
        site.start()
    assert go_on(wait=True).n_iter_ == 1
    for site in sites:
        site.join(20)
    assert not any(site.is_alive() for site in sites)


def first_question(folder, **options):
    """A run whose sites have met the coordinator and were asked their first question."""
    fed = ByFiles.made(folder, k="2", more="max_iter = 1", **options)
    run, go_on = begun(fed)
    waited(go_on)
    fed.around()
    waited(go_on)
    return fed, run, go_on


def letters(folder):
    return sorted(folder.glob("*.message"))


def newest(folder):
    return letters(folder)[-1]


def altered(data):
    return data[:100] + bytes([data[100] ^ 1]) + data[101:]


BAD = {
    "altered": (altered, "was altered"),
    "signature": (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "was altered, or signed with a key other than"),
    "longer": (lambda data: data + b"x", "longer than the file that was signed"),
    "another": (lambda _: b"PK\x03\x04 a zip file", "not a message file of this version"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_message_to_a_site_is_refused_by_name_and_a_good_copy_is_taken(fault, tmp_path):
    spoil, why = BAD[fault]
    fed, _, go_on = first_question(tmp_path / "f")
    fed.carry(back=False)
    path = newest(fed.folder / "south" / "inbox")
    path.write_bytes(spoil(path.read_bytes()))
    (fed.folder / "south" / "inbox" / "notes.txt").write_text("left alone")
    turn = fed.answer("south")
    assert list(turn.refused) == [path.name]
    assert why in turn.refused[path.name]
    assert turn.answered == []
    fed.around()
    assert waited(go_on).parties == NAMES  # the next step


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_reply_is_refused_by_name_and_good_ones_are_used(fault, tmp_path):
    spoil, why = BAD[fault]
    fed, run, go_on = first_question(tmp_path / "f")
    fed.around()
    path = newest(fed.mail / "from" / "west")
    path.write_bytes(spoil(path.read_bytes()))
    waiting = waited(go_on)
    assert waiting.parties == ("west",)
    assert path.name in str(waiting)
    assert why in str(waiting)
    assert why in json.loads(run.status_path.read_text())["files"][str(path)]
    fed.around()
    assert waited(go_on).parties == NAMES  # the next step


def test_half_a_file_is_no_error_and_the_rest_of_it_makes_it_whole(tmp_path):
    fed, _, go_on = first_question(tmp_path / "f")
    fed.carry(back=False)
    path = newest(fed.folder / "south" / "inbox")
    whole = path.read_bytes()
    for cut in (0, 5, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        turn = fed.answer("south")
        assert turn.incomplete == {path.name: "it is not complete yet"}
        assert turn.refused == {}
    path.write_bytes(whole)
    assert fed.answer("south").answered == [path.name]
    fed.around()
    reply = newest(fed.mail / "from" / "south")
    whole = reply.read_bytes()
    reply.write_bytes(whole[:-10])
    assert "not complete yet" in str(waited(go_on))
    reply.write_bytes(whole)
    assert waited(go_on).parties == NAMES  # the next step


def test_messages_of_others_and_for_others_are_refused_by_name(tmp_path):
    fed, _, go_on = first_question(tmp_path / "f")
    fed.carry(back=False)
    mine = newest(fed.folder / "south" / "inbox")
    strange = fed.folder / "south" / "inbox" / "from-north.message"
    shutil.copy(newest(fed.folder / "north" / "inbox"), strange)
    other = ByFiles.made(tmp_path / "g", k="2")
    waited(begun(other)[1])
    forged = fed.folder / "south" / "inbox" / "forged.message"
    shutil.copy(newest(other.mail / "to" / "south"), forged)
    turn = fed.answer("south")
    assert turn.refused == {
        "from-north.message": "it is for north, not for south",
        "forged.message": "it was altered, or signed with a key other than the one enrolled here",
    }
    assert turn.answered == [mine.name]
    fed.around()
    shutil.copy(newest(fed.folder / "north" / "outbox"), fed.mail / "from" / "south" / "x.message")
    assert "x.message: it is from north, not from south" in str(waited(go_on))


def test_replayed_and_reordered_messages_change_nothing(tmp_path):
    fed, run, go_on = first_question(tmp_path / "f")
    old = {name: newest(fed.folder / name / "outbox").read_bytes() for name in NAMES}  # the welcomes
    fed.around()
    waited(go_on)
    (fed.mail / "from" / "west" / "again.message").write_bytes(old["west"])
    fed.carry(back=False)
    box = fed.folder / "west" / "inbox"
    first, last = letters(box)[0], letters(box)[-1]
    shutil.copy(first, box / "zz.message")
    turn = fed.answer("west")
    assert turn.answered == [last.name]
    assert "zz.message" in turn.answered_before
    fed.around()
    waited(go_on)
    status = json.loads(run.status_path.read_text())
    assert status["sites"]["west"]["dropped"] == {"duplicate": 1}
    assert status["files"] == {str(fed.mail / "from" / "west" / "again.message"): "it was already accepted"}


def test_a_message_that_comes_before_its_turn_waits_for_the_one_before(tmp_path):
    fed, _, go_on = first_question(tmp_path / "f")
    fed.around()
    waited(go_on, without=frozenset())
    skipped = {name: newest(fed.mail / "to" / name).read_bytes() for name in NAMES}
    box = fed.folder / "west" / "inbox"
    for path in letters(box):
        path.unlink()
    state = fed.folder / "west" / "state"
    shutil.rmtree(state / "messages")  # as if the site had been set back to its beginning
    (box / "early.message").write_bytes(skipped["west"])
    turn = fed.answer("west")
    assert turn.answered == []
    assert "never contacted this site" in turn.refused["early.message"]


def test_two_processes_do_not_answer_for_one_site(tmp_path):
    from fedclust.app.serve import open_session
    from fedclust.site.site_file import read_site_file

    fed = ByFiles.made(tmp_path / "f", k="2")
    with (
        open_session(
            read_site_file(fed.folder / "north" / "site.toml"), study=fed.folder / "coordinator" / "study.toml"
        ),
        pytest.raises(RunFailed, match="another process serves the site"),
    ):
        fed.answer("north")


def test_a_site_that_is_not_waited_for_is_named(tmp_path):
    _, _, go_on = first_question(tmp_path / "f")
    with pytest.raises(QuorumLost, match="north: no answer") as lost:
        go_on(without=frozenset(NAMES))
    assert set(lost.value.missing) == set(NAMES)
    with pytest.raises(StudyError, match="'paris', which is not a site"):
        go_on(without=frozenset({"paris"}))


def test_what_travels_is_encrypted_and_signed(tmp_path):
    fed, _, _ = first_question(tmp_path / "f")
    fed.around()
    question = newest(fed.folder / "north" / "inbox").read_bytes()
    assert b"bounds." not in question  # the name of what is asked
    assert b"heart" in letters(fed.folder / "north" / "inbox")[0].read_bytes()  # the study is no secret


def test_nothing_of_a_sites_error_reaches_the_coordinator(tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2")
    path = fed.folder / "south" / "rows.csv"
    path.write_text(path.read_text() + "7.0,planted-marker\n")
    _, go_on = begun(fed)
    waited(go_on)
    fed.around()
    with pytest.raises((RunFailed, Waiting)):
        go_on()
    fed.around()
    with pytest.raises(RunFailed, match=r"south.*its data cannot be used") as refused:
        go_on()
    assert "marker" not in str(refused.value)
    held = [p for folder in ("run", "coordinator") for p in (fed.folder / folder).rglob("*") if p.is_file()]
    assert len(held) > 10
    assert [p.name for p in held if b"planted-marker" in p.read_bytes()] == []
    assert "rows.csv" in (fed.folder / "south" / "state" / "trouble.log").read_text()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[sites.north]", '[sites.north]\nsource = "x.csv"', "sets this in its own file"),
        ('columns = ["age", "bp"]\n', "", "must list its columns"),
        (
            'aggregation = "plain"',
            'aggregation = "secure"\nlead = "north"',
            "'lead' is 'north'; it must name one of the sites",
        ),
    ],
)
def test_a_study_that_cannot_be_served_is_refused_before_anything_is_written(old, new, told, tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="2")
    path = fed.folder / "coordinator" / "study.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(StudyError, match=told):
        begun(fed)
    assert not (fed.folder / "run").exists()


def test_a_sum_that_sites_may_leave_needs_a_coordinator_that_stays(tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="2", more="quorum = 0.7", mode="secure", policy="standard")
    with pytest.raises(StudyError, match="--wait"):
        begun(fed)[1]()
