"""A coordinator that invents runs, or says more than a greeting, does not fill a site's disk."""

import json

import numpy as np
import pytest

from fedclust.core import wire
from fedclust.core.envelope import Answer, Call
from fedclust.core.greeting import Greeting, Welcome
from fedclust.questions.bounds import ColumnsQuestion, count_rows
from fedclust.site import session
from fedclust.site.approval import digest_study
from fedclust.site.policy import PROFILES
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source

STUDY = 'name = "heart"\n'


def named(number):
    return f"{number:016x}-{digest_study(STUDY)}"


@pytest.fixture
def door(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "MAX_UNANSWERED_RUNS", 3)
    return opened(tmp_path)


def opened(folder):
    source = open_source(np.ones((5, 2)), columns=None, id=None, site="north", schema=None)
    return session.SiteSession(
        "north", folder, lambda _: SiteServer(SiteData("north", source), PROFILES["none"], folder=folder, durable=False)
    )


def greeted(door, number):
    return Welcome.decode(
        door.answer_message(Greeting.for_party("north", run=named(number), study=STUDY).encode())
    ).code


def asked(door, number):
    call = Call(named(number), 1, count_rows.name, ColumnsQuestion(2), "total", ("north",))
    return wire.decode(Answer, door.answer_message(call.wire_bytes)).code


def test_what_a_greeting_says_besides_is_not_kept(door, tmp_path):
    greeting = Greeting.for_party("north", run=named(1), study=STUDY)
    more = {**json.loads(greeting.encode()), "more": "x" * 500_000}
    assert Welcome.decode(door.answer_message(json.dumps(more).encode())).code == ""
    (kept,) = (tmp_path / "runs").iterdir()
    assert kept.read_bytes() == greeting.encode()


def test_a_site_remembers_so_many_runs_that_asked_nothing_and_no_more(door, tmp_path):
    assert [greeted(door, number) for number in range(5)] == ["", "", "", "too-many-runs", "too-many-runs"]
    assert len(list((tmp_path / "runs").iterdir())) == 3
    assert "delete the files of old runs" in (tmp_path / "trouble.log").read_text()
    assert asked(door, 4) == "not-greeted"
    assert greeted(door, 2) == ""  # one that it knows


def test_a_run_that_was_answered_counts_no_more_also_after_a_restart(door, tmp_path):
    for number in range(6):
        assert greeted(door, number) == ""
        assert asked(door, number) == ""
    assert [greeted(opened(tmp_path), number) for number in range(6, 10)] == ["", "", "", "too-many-runs"]
    for path in (tmp_path / "runs").iterdir():
        path.unlink()  # as its people are told
    assert greeted(door, 10) == ""
