"""A study over Flower: a SuperLink and three SuperNodes on loopback, under TLS, with registered keys."""

import os
import signal
import sys

import pytest

pytest.importorskip("flwr", reason="an extra; make test-engines installs it in an environment of its own")

from flower_federation import Flower3
from flwr.app import ConfigRecord, Message, RecordDict
from served_federation import children, command_of
from test_rounds import alike, expected, grown

import fedclust as fc
from fedclust.app.flower_app import client_app

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def flower(tmp_path):
    made = Flower3.made(tmp_path)
    try:
        yield made.up()
    finally:
        made.stop()


def test_a_superlink_and_three_supernodes_find_the_bits_of_one_process(flower, tmp_path, capsys):
    flower.start()
    flower.until((tmp_path / "run" / "metrics.json").exists)
    told = flower.status
    with capsys.disabled():
        sys.stdout.write(f"flower: {told['steps']} steps, {1e3 * told['seconds'] / told['steps']:.0f} ms a step\n")
    found, expected = flower.bits()
    assert found == expected
    assert [path.read_bytes() for path in flower.models_at_sites()] == [
        (tmp_path / "run" / "model.json").read_bytes()
    ] * 3


def test_a_supernode_and_a_server_app_that_are_killed_and_started_again_lead_to_the_same_bits(flower, tmp_path):
    flower.start()
    flower.until(lambda: flower.status["steps"] >= 4)
    flower.processes["south"].kill()
    flower.processes["south"].wait()
    flower.again("south")
    flower.until(lambda: flower.status["steps"] >= 8)
    (server,) = [pid for pid in children(os.getpid()) if "flwr-serverapp" in command_of(pid)]
    os.kill(server, signal.SIGKILL)
    flower.start()
    flower.until((tmp_path / "run" / "metrics.json").exists)
    found, expected = flower.bits()
    assert found == expected


def test_one_more_round_over_supernodes_finds_what_one_process_does(tmp_path):
    flower = Flower3.made(
        tmp_path, study='name = "rounds"\ncolumns = ["age", "bp"]\n[cluster]\nmethod = "summary-clustering"\n'
    )
    flower.put(grown(0))
    try:
        flower.up().start()
        flower.until((tmp_path / "run" / "metrics.json").exists)
        flower.put(grown(1))
        flower.start("run-2", after="run")
        flower.until((tmp_path / "run-2" / "metrics.json").exists)
    finally:
        flower.stop()
    assert alike(fc.load(tmp_path / "run-2" / "model.json"), expected(2))


def test_a_site_that_cannot_serve_is_named_and_its_reason_stays_with_it(tmp_path):
    from fault_rig.loops_flower import InProcessGrid
    from fedclust.core.greeting import Greeting, Welcome

    own = 'name = "south"\nsource = "none.csv"\nstate = "state"\nidentity = "own.key"\n'
    (tmp_path / "site.toml").write_text(own + '[policy]\nprofile = "standard"\n')
    grid = InProcessGrid(client_app(), [str(tmp_path / "site.toml")])
    greeting = Greeting.for_party("south", run="r-0", study="name = 'x'")
    (key,) = grid.push_messages([query(next(iter(grid.nodes)), greeting.encode())])
    (reply,) = grid.pull_messages([key])
    assert Welcome.decode(bytes(reply.content["fedclust"]["bytes"])).code == "failed"
    assert "give the study that this site serves" in (tmp_path / "state" / "trouble.log").read_text()


def test_a_site_whose_file_is_wrong_is_silent_and_says_so_to_its_own_people(tmp_path, capsys):
    from fault_rig.loops_flower import InProcessGrid

    (tmp_path / "site.toml").write_text('name = "south"\n')
    grid = InProcessGrid(client_app(), [str(tmp_path / "site.toml")])
    (reply,) = grid.pull_messages(grid.push_messages([query(next(iter(grid.nodes)), b"{}")]))
    assert dict(reply.content["fedclust"]) == {"bytes": b"", "name": "", "proof": b""}
    assert "site.toml lacks source" in capsys.readouterr().err


def query(node, data):
    return Message(
        RecordDict({"fedclust": ConfigRecord({"bytes": data})}), dst_node_id=node, message_type="query.fedclust"
    )
