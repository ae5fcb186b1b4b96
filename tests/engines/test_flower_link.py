"""Questions through a Flower grid: whoever is there is asked, whatever has become of the others."""

import time

import pytest

pytest.importorskip("flwr", reason="an extra; make test-engines installs it in an environment of its own")

from fedclust.engines.flower import FlowerLink, client_app
from fedclust.privacy.keys import Identity
from fedclust.testing.loops_flower import Nodes

NAMES = ("north", "south", "west")
KEYS = {name: Identity.new() for name in NAMES}
ROSTER = {name: own.public for name, own in KEYS.items()}
ASKED = {name: f"to {name}".encode() for name in NAMES}


def grid(parties=NAMES):
    return Nodes(client_app(lambda site: (site, KEYS[site]), lambda _, data: data + b" heard", print), parties)


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
    push = nodes._pushed
    nodes.nodes |= {99: "stranger"}
    nodes._pushed = lambda message: "none" if message.metadata.dst_node_id == 99 else push(message)
    begin = time.monotonic()
    assert len(dict(FlowerLink(nodes, ROSTER).carry(ASKED, timeout=20))) == 3
    assert time.monotonic() - begin < 5


def test_a_node_under_anothers_name_is_not_believed():
    app = client_app(lambda _: ("west", KEYS["north"]), lambda _, data: data, print)
    link = FlowerLink(Nodes(app, ("thief",)), ROSTER)
    assert not list(link.carry({"west": b"for west only"}, timeout=0.5))
