"""What every engine between machines does alike: greeting, suspension, stray replies, a lost quorum in one sentence."""

from dataclasses import replace

import numpy as np
import pytest

from fedclust.core import greeting as meeting
from fedclust.core import wire
from fedclust.core.drive import Coordinator
from fedclust.core.effects import total
from fedclust.core.envelope import Answer
from fedclust.core.errors import QuorumLost, RunFailed, StudyError, WireError
from fedclust.engines import registry
from fedclust.engines.attendance import Attendance
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.engines.run_status import RunStatus
from fedclust.questions.bounds import ColumnsQuestion, count_rows, total_rows
from fedclust.site.approval import digest_study
from fedclust.site.policy import PROFILES
from fedclust.site.server import SiteServer
from fedclust.site.session import SiteSession
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source

STUDY = 'name = "heart"\n'
RUN = f"1f-{digest_study(STUDY)}"


def reception(folder, party, size, **options):
    def opening(text):
        if "bad" in text:
            raise StudyError("not for me")
        source = open_source(np.ones((size, 2)), columns=None, id=None, site=party, schema=None)
        return SiteServer(SiteData(party, source), PROFILES["none"], folder=folder / party)

    return SiteSession(party, folder / party, opening, **options)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now

    def pause(self, seconds):
        self.now += seconds


def well(*_):
    return None


class Doors:
    """A link to receptions of this process; `faults(party, n)` says what goes wrong with a party's nth request."""

    def __init__(self, doors, clock, faults=well):
        self.doors, self.clock, self.faults = doors, clock, faults
        self.asked = dict.fromkeys(doors, 0)
        self.kept = {}

    def carry(self, requests, *, timeout):
        late = False
        for party, data in requests.items():
            self.asked[party] += 1
            fault = self.faults(party, self.asked[party])
            if fault == "silent":
                late = True
                continue
            reply = self.doors[party].answer_message(data)
            if fault == "lost":
                self.kept[party], late = reply, True
                continue
            if party in self.kept:
                yield party, self.kept.pop(party)
            if fault == "foreign":
                yield party, b"whatever"
                yield party, wire.encode(Answer("someone", b"", None, "failed"))
            yield party, reply
            if fault == "double":
                yield party, reply
        self.clock.now += timeout if late else 0

    def close(self, *, done):
        pass


@pytest.fixture
def federation(tmp_path):
    def make(faults=well, **manner):
        clock = Clock()
        doors = {f"p{i}": reception(tmp_path, f"p{i}", 5 + i) for i in range(4)}
        status = RunStatus(None, doors)
        attendance = Attendance(timeout=10, retry_after=100, patience=35, notify=status, clock=clock, pause=clock.pause)
        for name, value in manner.items():
            setattr(attendance, name, value)
        engine = NetworkedEngine(Doors(doors, clock, faults), tuple(doors), run=RUN, study=STUDY, attendance=attendance)
        return engine, Coordinator(engine, RUN), status.document

    return make


def three():
    first = yield from total(count_rows, ColumnsQuestion(2), quorum=3)
    second = yield from total(count_rows, ColumnsQuestion(2), quorum=3)
    third = yield from total(count_rows, ColumnsQuestion(2), quorum=3)
    return [found.rows.to_integers()[0] for found in (first, second, third)]


def test_all_answer(federation):
    _, coordinator, status = federation()
    assert coordinator.drive(total_rows(2)) == 5 + 6 + 7 + 8
    assert all(own["answers"] == 1 and own["bytes"] > 0 for own in status["sites"].values())


def test_a_party_that_misses_one_deadline_is_asked_again_while_it_is_needed(federation):
    engine, coordinator, status = federation(lambda party, n: "silent" if party == "p1" and n == 2 else None)
    assert coordinator.drive(total_rows(2)) == 26
    assert engine.link.asked == {"p0": 2, "p1": 3, "p2": 2, "p3": 2}
    assert status["sites"]["p1"]["suspended"] is False


def test_a_lost_quorum_names_the_party_once_patience_is_over(federation):
    engine, coordinator, _ = federation(lambda party, n: "silent" if party == "p1" and n > 1 else None)
    with pytest.raises(QuorumLost, match=r"3 of 4 parties answered, but 4 are required \(p1: no answer came in time\)"):
        coordinator.drive(total_rows(2))
    assert 40 < engine.attendance.clock.now < 43  # four askings of ten seconds: 35 were over after the fourth
    assert engine.attendance.suspended_parties == ("p1",)


def test_a_party_that_is_to_be_left_out_is_not_asked_and_named_at_once_where_it_is_needed(federation):
    engine, coordinator, _ = federation()
    engine._without = frozenset({"p1"})
    with pytest.raises(QuorumLost, match=r"3 of 4 parties answered, but 4 are required \(p1: no answer came in time\)"):
        coordinator.drive(total_rows(2))
    assert engine.link.asked == {"p0": 2, "p1": 0, "p2": 2, "p3": 2}
    assert engine.attendance.clock.now == 0


def test_a_suspended_party_is_left_alone_while_enough_others_answer_and_asked_again_later(federation):
    engine, coordinator, _ = federation(lambda party, n: "silent" if party == "p3" and n == 2 else None)
    assert coordinator.drive(three()) == [18, 18, 18]
    assert engine.link.asked["p3"] == 2
    engine.attendance.clock.now += 100
    coordinator.step = 10
    assert coordinator.drive(three()) == [26, 26, 26]
    assert engine.attendance.suspended_parties == ()


def test_late_double_and_foreign_replies_are_dropped_and_counted(federation):
    plan = {("p0", 3): "foreign", ("p1", 2): "double", ("p2", 2): "lost"}
    _, coordinator, status = federation(lambda party, n: plan.get((party, n)))
    assert coordinator.drive(three()) == [19, 26 - 7, 26 - 7]  # p2 stays suspended
    dropped = {party: own["dropped"] for party, own in status["sites"].items()}
    assert dropped == {"p0": {"foreign": 2}, "p1": {"duplicate": 1}, "p2": {}, "p3": {}}


def test_a_reply_that_comes_a_step_late_is_not_used(federation):
    plan = {("p2", 2): "lost"}
    _, coordinator, status = federation(lambda party, n: plan.get((party, n)), retry_after=0)
    assert coordinator.drive(three()) == [19, 26, 26]
    assert status["sites"]["p2"]["dropped"] == {"late": 1}


def test_a_site_that_restarts_rejoins_under_its_name_and_is_not_greeted_twice(federation, tmp_path):
    engine, coordinator, _ = federation()
    assert coordinator.drive(total_rows(2)) == 26
    engine.link.doors["p2"] = reception(tmp_path, "p2", 7)
    coordinator.step = 5
    assert coordinator.drive(total_rows(2)) == 26
    assert engine.link.asked["p2"] == 3


def test_a_site_that_forgot_the_run_is_told_of_it_anew(federation, tmp_path):
    engine, coordinator, _ = federation()
    assert coordinator.drive(total_rows(2)) == 26
    engine.link.doors["p2"] = reception(tmp_path / "elsewhere", "p2", 7)
    coordinator.step = 5
    assert coordinator.drive(total_rows(2)) == 26
    assert engine.link.asked["p2"] == 5


def test_another_version_is_refused_at_the_start_with_both_named(federation, monkeypatch):
    engine, coordinator, _ = federation()
    plain = engine.link.doors["p1"].answer_message

    def older(data):
        with monkeypatch.context() as patch:
            patch.setattr(meeting, "version", lambda _: "0.0.9")
            return plain(data)

    engine.link.doors["p1"].answer_message = older
    with pytest.raises(RunFailed, match=r"site 'p1' runs fedclust '0.0.9' .* and this coordinator"):
        coordinator.drive(total_rows(2))


@pytest.mark.parametrize("code", ["\x1b[2Jall is well", "anything else", "a" * 10_000])
def test_what_a_site_says_in_the_place_of_a_code_is_not_shown(federation, code):
    engine, coordinator, _ = federation()
    plain = engine.link.doors["p1"].answer_message

    def odd(data):
        try:
            welcome = meeting.Welcome.decode(plain(data))
        except WireError:
            told = wire.decode(Answer, plain(data))
            return wire.encode(replace(told, sealed=None, code=code))
        return welcome.encode()

    engine.link.doors["p1"].answer_message = odd
    with pytest.raises(QuorumLost, match="p1: its answer differs in shape or unit") as lost:
        coordinator.drive(total_rows(2))
    assert code not in str(lost.value)


def test_what_a_site_says_in_the_place_of_a_version_or_a_reason_is_not_shown_as_it_is(federation):
    for change in ({"fedclust": "\x1b[2J" + 99 * "9"}, {"code": "\x1b[2Jall is well"}):
        engine, coordinator, _ = federation()
        plain = engine.link.doors["p1"].answer_message

        def odd(data, plain=plain, change=change):
            return replace(meeting.Welcome.decode(plain(data)), **change).encode()

        engine.link.doors["p1"].answer_message = odd
        with pytest.raises(RunFailed, match="site 'p1'") as refused:
            coordinator.drive(total_rows(2))
        assert "\x1b" not in str(refused.value)
        assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"study": STUDY + "x"}, "a different study"),
        ({"study": "bad", "run": f"1f-{digest_study('bad')}"}, "a different study"),
    ],
)
def test_another_study_is_refused_at_the_start(federation, change, told):
    engine, coordinator, _ = federation()
    for name, value in change.items():
        setattr(engine, name, value)
    with pytest.raises(RunFailed, match=f"site 'p0' does not take part: .*{told}"):
        coordinator.drive(total_rows(2))


def test_a_site_under_another_name_is_refused(federation, tmp_path):
    engine, coordinator, _ = federation()
    door = reception(tmp_path, "p9", 7)
    engine.link.doors["p1"] = door
    with pytest.raises(RunFailed, match="site 'p1' does not take part: it has a different name"):
        coordinator.drive(total_rows(2))
    greeting = meeting.Greeting.for_party("p1", run=RUN, study=STUDY)
    assert meeting.Welcome.decode(door.answer_message(greeting.encode())).code == "another-name"


def test_two_processes_do_not_serve_one_site(tmp_path):
    with reception(tmp_path, "p0", 5), pytest.raises(RunFailed, match="another process serves the site"):
        reception(tmp_path, "p0", 5).__enter__()
    with reception(tmp_path, "p0", 5):
        pass


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"\x00" * 40, b'{"kind": "greeting"}', b"[" * 100_000])
def test_whatever_arrives_is_answered_and_nothing_is_raised(tmp_path, data):
    assert reception(tmp_path, "p0", 5).answer_message(data)


def test_a_greeting_of_a_newer_version_can_still_be_read():
    text = meeting.Greeting("r", "p", "s", "9.9", 7).encode().replace(b"{", b'{"more": 1, ', 1)
    assert meeting.Greeting.decode(text).fedclust == "9.9"


def test_an_unknown_engine_is_met_by_the_nearest_name():
    with pytest.raises(StudyError, match="did you mean 'files'"):
        registry.find_engine("file")
