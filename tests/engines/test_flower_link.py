"""Questions through a Flower grid: whoever is there is asked, whatever has become of the others."""

import time

import pytest

pytest.importorskip("flwr", reason="an extra; make test-engines installs it in an environment of its own")

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fault_rig.loops_flower import InProcessGrid
from fedclust.engines.attendance import Attendance
from fedclust.engines.flower_link import FlowerLink, client_app
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.privacy.keys import Identity

NAMES = ("north", "south", "west")
KEYS = {name: Identity.new() for name in NAMES}
ROSTER = {name: own.public for name, own in KEYS.items()}
ASKED = {name: f"to {name}".encode() for name in NAMES}


def grid(parties=NAMES):
    return InProcessGrid(client_app(lambda site: (site, KEYS[site]), lambda _, data: data + b" heard", print), parties)


def test_who_is_there_answers_though_another_is_lost():
    link = FlowerLink(grid(("north", "south")), ROSTER)
    begin = time.monotonic()
    found = link.carry(ASKED, timeout=1.5)
    first = dict([next(found), next(found)])
    assert first == {name: f"to {name} heard".encode() for name in ("north", "south")}
    assert time.monotonic() - begin < 1.0
    assert not list(found)
    assert 1.4 < time.monotonic() - begin < 4.0


def test_a_site_that_comes_late_is_asked_when_it_is_there():
    nodes = grid(("north", "south"))
    link = FlowerLink(nodes, ROSTER)
    found = link.carry(ASKED, timeout=10)
    assert {next(found)[0], next(found)[0]} == {"north", "south"}
    nodes.nodes |= {77: "west"}
    assert next(found) == ("west", b"to west heard")
    assert not list(found)


def test_a_silent_stranger_does_not_keep_the_others_waiting():
    nodes = grid()
    push = nodes._answer_pushed
    nodes.nodes |= {99: "stranger"}
    nodes._answer_pushed = lambda message: "none" if message.metadata.dst_node_id == 99 else push(message)
    begin = time.monotonic()
    assert len(dict(FlowerLink(nodes, ROSTER).carry(ASKED, timeout=20))) == 3
    assert time.monotonic() - begin < 5


def test_a_node_under_anothers_name_is_not_believed():
    app = client_app(lambda _: ("west", KEYS["north"]), lambda _, data: data, print)
    link = FlowerLink(InProcessGrid(app, ("thief",)), ROSTER)
    assert not list(link.carry({"west": b"for west only"}, timeout=0.5))


ODD = {
    "no record": RecordDict({}),
    "another record": RecordDict({"fedclust": MetricRecord({"bytes": 3})}),
    "no bytes": RecordDict({"fedclust": ConfigRecord({"name": "west"})}),
    "a number": RecordDict({"fedclust": ConfigRecord({"bytes": 10**9, "name": 7, "proof": 10**9})}),
    "a text": RecordDict({"fedclust": ConfigRecord({"bytes": "text", "name": b"west", "proof": "text"})}),
    "a list": RecordDict({"fedclust": ConfigRecord({"bytes": [1, 2], "name": [1], "proof": [1]})}),
}


class Odd(InProcessGrid):
    """Nodes of which one says who it is, as long as it is let, and answers all else with an odd record."""

    def __init__(self, record, *, says_who):
        app = ClientApp()
        plain = grid().app

        @app.query("fedclust")
        def answer(message, context):
            who = says_who and message.content["fedclust"]["bytes"][:1] == b"?"
            if context.node_config["site"] == "west" and not who:
                return Message(record, reply_to=message)
            return plain(message=message, context=context)

        super().__init__(app, NAMES)


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_record_is_an_empty_answer_of_the_site_that_sent_it(odd):
    answers = dict(FlowerLink(Odd(ODD[odd], says_who=True), ROSTER).carry(ASKED, timeout=5))
    assert answers == {"north": b"to north heard", "south": b"to south heard", "west": b""}


@pytest.mark.parametrize("odd", ODD)
def test_a_node_that_names_itself_oddly_is_nobody(odd):
    answers = dict(FlowerLink(Odd(ODD[odd], says_who=False), ROSTER).carry(ASKED, timeout=1))
    assert answers == {"north": b"to north heard", "south": b"to south heard"}


def test_an_odd_record_is_dropped_and_counted_under_its_sites_name():
    told = []
    here = Attendance(timeout=1, patience=1, notify=lambda event, **facts: told.append((event, facts)))
    link = FlowerLink(Odd(ODD["a number"], says_who=True), ROSTER)
    NetworkedEngine(link, NAMES, run="r", study="", attendance=here).greet_all()
    assert ("dropped", {"site": "west", "kind": "foreign"}) in told
