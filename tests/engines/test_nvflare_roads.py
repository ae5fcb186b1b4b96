"""Jobs of FLARE as roads that break: whoever breaks them keeps nobody waiting for ever, and each new one is told of.

The line and both its ends are the real ones; FLARE's server, its console and its sites are played here.
"""

import queue
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="an extra; make test-engines installs it")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from fedclust.core.drive import Coordinator
from fedclust.core.effects import total
from fedclust.core.errors import RunFailed
from fedclust.engines.attendance import Attendance
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.engines.nvflare import nvflare_link
from fedclust.engines.nvflare.child_processes import (
    ARRIVAL_TOPIC,
    LINE_ADDRESS_VARIABLE,
    LINE_KEY_VARIABLE,
    PAYLOAD_FIELD,
)
from fedclust.engines.nvflare.server_bridge import ServerBridge
from fedclust.engines.nvflare.startup_kit import Kit
from fedclust.questions.bounds import ColumnsQuestion, count_rows
from fedclust.site.approval import digest_study
from fedclust.site.policy import PROFILES
from fedclust.site.server import SiteServer
from fedclust.site.session import SiteSession
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

NAMES = ("north", "south", "west")
STUDY = 'name = "roads"\n'
RUN = f"1f-{digest_study(STUDY)}"
ASKED = {name: f"to {name}".encode() for name in NAMES}
HEARD = {name: f"to {name} heard".encode() for name in NAMES}
DIES, UNREACHED = object(), object()


class Road(ServerBridge):
    """A job's server half that does not end its process when the coordinator hangs up: it is ours."""

    _exit_after_timeout = staticmethod(lambda: None)


class Flare:
    """FLARE's server, a console to it and its jobs; `says(site, data, nth)` is what comes of a site's nth question."""

    def __init__(self, says):
        self.says, self.asked, self.over, self.jobs = says, dict.fromkeys(NAMES, 0), False, []

    def console(self, *_):
        """As Console is made."""
        return self

    def try_open(self):
        return True

    def last_contacts(self):
        return dict.fromkeys(NAMES, time.monotonic())  # each is heard of all the time

    def submit_job(self, sites):
        if self.over:
            raise RunFailed("the test is over")
        abort = SimpleNamespace(triggered=False)
        engine = Engine(self, sites, abort)
        bridge = Road()
        bridge.start_controller(SimpleNamespace(get_engine=lambda: engine))
        self.jobs.append(threading.Thread(target=bridge.control_flow, args=(abort, None), daemon=True))
        self.jobs[-1].start()
        return str(len(self.jobs))

    def has_job_ended(self, job):
        return not self.jobs[int(job) - 1].is_alive()

    def abort_job(self, job):
        pass

    def close(self):
        self.over = True


class Engine:
    """What a job's server half finds of FLARE."""

    def __init__(self, flare, sites, abort):
        self.flare, self.sites, self.abort = flare, sites, abort

    def register_aux_message_handler(self, topic, handler):
        assert topic == ARRIVAL_TOPIC
        for name in self.sites:
            about = SimpleNamespace(get_identity_name=lambda name=name: name)
            handler(topic, None, SimpleNamespace(get_peer_context=lambda about=about: about))

    def get_clients(self):
        return [SimpleNamespace(name=name) for name in self.sites]

    def new_context(self):
        return nullcontext()

    def send_aux_request(self, targets, _topic, request, *_):
        (name,) = targets
        self.flare.asked[name] += 1
        said = self.flare.says(name, request[PAYLOAD_FIELD], self.flare.asked[name])
        if said is DIES:
            time.sleep(0.2)  # FLARE takes a moment to see it
            self.abort.triggered = True  # and ends the job for everybody
        if said in (DIES, UNREACHED):
            return {name: make_reply(ReturnCode.COMMUNICATION_ERROR)}
        reply = Shareable()
        reply[PAYLOAD_FIELD] = said
        return {name: reply}


@pytest.fixture
def laid(tmp_path, monkeypatch):
    """A link over such a FLARE, and what it told."""
    made = []

    def make(says):
        flare, told = Flare(says), []
        kit = Kit("coordinator", "coordinator", "roads", "", "localhost", 1, {name: name for name in NAMES})
        monkeypatch.setattr(nvflare_link, "AdminConsole", flare.console)
        monkeypatch.setattr(nvflare_link, "make_server_workspace", lambda *_: None)
        monkeypatch.setattr(nvflare_link, "start_program", lambda *_, **__: SimpleNamespace(poll=lambda: None))
        monkeypatch.setattr(nvflare_link, "stop_program", lambda *_: None)
        monkeypatch.setattr(nvflare_link, "JOB_START_SECONDS", 2.0)
        link = nvflare_link.NvflareLink(
            tmp_path, kit, tmp_path, notify=lambda event, **facts: told.append((event, facts))
        )
        for name in (LINE_ADDRESS_VARIABLE, LINE_KEY_VARIABLE):
            monkeypatch.setenv(name, link._listener.environment[name])
        made.append((link, flare))
        return link, flare, told

    yield make
    for link, flare in made:
        link.close(done=True)
        for job in flare.jobs:
            job.join(10)


def carried(link, requests, timeout, within):
    """What a link brings, in order, and the seconds it took; nothing, where it is not done within some seconds."""
    got = queue.SimpleQueue()

    def carry():
        began = time.monotonic()
        got.put((list(link.carry(requests, timeout=timeout)), time.monotonic() - began))

    threading.Thread(target=carry, daemon=True).start()
    return got.get(timeout=within)


def heard(name, data, nth):
    return data + b" heard"


def test_a_site_that_breaks_every_road_keeps_nobody_waiting_for_ever_and_each_road_is_told_of(laid):
    link, _, told = laid(lambda name, data, nth: DIES if name == "south" else heard(name, data, nth))
    found, seconds = carried(link, ASKED, 1.0, within=8)
    assert dict(found) == {name: HEARD[name] for name in ("north", "west")}
    assert seconds < 3.6  # one second, and two that a road may take
    assert link.jobs_started > 1
    assert told == [("job", {"number": number, "sites": list(NAMES)}) for number in range(1, link.jobs_started + 1)]
    again, _ = carried(link, {name: ASKED[name] for name in ("north", "west")}, 5.0, within=8)
    assert len(again) == 2


def test_where_the_others_are_enough_a_site_that_breaks_every_road_is_suspended_and_the_run_goes_on(laid, tmp_path):
    doors = {name: SiteSession(name, tmp_path / name, desk_of(name)) for name in NAMES}
    for name in NAMES:
        (tmp_path / name).mkdir()

    def says(name, data, _):
        return doors[name].answer_message(data) if name != "south" or data[:1] == b"{" else DIES

    link, flare, told = laid(says)
    attendance = Attendance(timeout=1.0, patience=60.0, notify=link.notify)
    engine = NetworkedEngine(link, NAMES, run=RUN, study=STUDY, attendance=attendance)
    coordinator = Coordinator(engine, RUN)
    for _ in range(2):
        found = coordinator.drive(total(count_rows, ColumnsQuestion(2), quorum=2))
        assert found.rows.to_integers()[0] == 10
    assert [event for event, facts in told if facts.get("site") == "south"] == ["met", "suspended"]
    assert flare.asked["north"] >= 3  # greeted, and asked twice: the second time without the one that breaks roads


def desk_of(name):
    source = open_source(np.ones((5, 2)), columns=None, id=None, site=name, schema=None)
    return lambda _: SiteServer(SiteData(name, source), PROFILES["none"])


def test_a_site_whose_job_dies_once_is_asked_again(laid):
    link, flare, _ = laid(lambda *asked: DIES if asked[::2] == ("south", 1) else heard(*asked))
    found, _ = carried(link, ASKED, 10.0, within=15)
    assert dict(found) == HEARD
    assert (link.jobs_started, flare.asked["south"]) == (2, 2)


def test_a_site_that_is_there_and_says_nothing_is_silent_and_breaks_no_road(laid):
    link, _, _ = laid(lambda name, data, nth: b"" if name == "south" else heard(name, data, nth))
    found, seconds = carried(link, ASKED, 1.5, within=8)
    assert dict(found) == {name: HEARD[name] for name in ("north", "west")}
    assert seconds < 3.0
    assert link.jobs_started == 1


def test_a_site_that_no_job_reaches_is_given_up_in_time_though_flare_hears_of_it(laid):
    link, _, _ = laid(lambda name, data, nth: UNREACHED if name == "south" else heard(name, data, nth))
    found, seconds = carried(link, ASKED, 1.0, within=8)
    assert dict(found) == {name: HEARD[name] for name in ("north", "west")}
    assert seconds < 3.6


def test_an_answer_to_the_step_before_is_brought_and_does_not_end_the_wait(laid):
    late = threading.Event()

    def says(name, data, nth):
        if name == "south":
            late.wait(5)
            time.sleep(0.5 * (nth - 1))
        return heard(name, data, nth)

    link, _, _ = laid(says)
    assert [name for name, _ in carried(link, ASKED, 1.0, within=8)[0]] != []
    late.set()
    found, _ = carried(link, {"south": b"the next"}, 5.0, within=8)
    assert found == [("south", HEARD["south"]), ("south", b"the next heard")]
