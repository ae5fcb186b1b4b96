"""A study over NVIDIA FLARE, in processes as operators start them: its bits, what it listens on, whom it lets in."""

import inspect
import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="an extra; make test-engines installs it")

from served_federation import NAMES, Federation3, children, command_of, listening, wait_until

from fedclust.cli.main import main
from fedclust.engines.nvflare import startup_kit

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]  # FLARE warns of much


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    own = Federation3.made(tmp_path_factory.mktemp("three"))
    own.serve()
    yield own
    own.stop()


def test_the_parts_of_flare_we_lean_on_are_as_they_were():
    """When this fails, FLARE's internals have changed: read its release notes before widening the range."""
    from nvflare.apis.impl.controller import Controller
    from nvflare.apis.job_def import SERVER_SITE_NAME
    from nvflare.fuel.f3.comm_config import VarName
    from nvflare.fuel.flare_api.flare_api import Session
    from nvflare.private.fed import authenticator
    from nvflare.private.fed.client.client_run_manager import ClientRunManager
    from nvflare.private.fed.server import fed_server
    from nvflare.private.fed.server.server_engine import ServerEngine
    from nvflare.security.security import COMMAND_CATEGORIES

    for owner, name, wanted in (
        (ServerEngine, "send_aux_request", ["targets", "topic", "request", "timeout", "fl_ctx"]),
        (ClientRunManager, "send_aux_request", ["targets", "topic", "request", "timeout", "fl_ctx"]),
        (ClientRunManager, "register_aux_message_handler", ["topic", "message_handle_func"]),
        (Controller, "control_flow", ["abort_signal", "fl_ctx"]),
        (Session, "submit_job", ["job_definition_path"]),
        (Session, "get_connected_client_list", []),
    ):
        found = list(inspect.signature(getattr(owner, name)).parameters)[1:]
        assert found[: len(wanted)] == wanted, f"FLARE changed {owner.__name__}.{name}: {found}"
    known = {value for name, value in vars(VarName).items() if name.isupper()}
    assert set(startup_kit.COMMUNICATION_CONFIG) <= known, "FLARE calls its settings otherwise"
    assert SERVER_SITE_NAME == "server"
    assert "local_ip = _get_client_ip()" in inspect.getsource(authenticator), "FLARE finds addresses in another way"
    assert fed_server._is_loopback_host("localhost"), "FLARE no longer binds a loopback target to loopback"
    rights = set(COMMAND_CATEGORIES.values())
    assert rights <= set(startup_kit.SITE_RIGHTS), f"FLARE has new rights to decide on: {rights}"


def test_three_sites_and_a_coordinator_find_the_bits_of_one_process(three):
    done = three.coordinate("same")
    assert done.wait(400) == 0, three.said("same")
    assert three.model("same") == three.reference()
    assert all(three.model_at(name, "same") == three.reference() for name in NAMES)


def test_everything_listens_on_loopback_only(three):
    run = three.coordinate("listens")
    wait_until(lambda: three.step("listens") > 4000)
    everyone = [run.pid, *children(run.pid)]
    for site in three.sites.values():
        everyone += [site.pid, *children(site.pid)]
    assert any("runner_process" in command_of(pid) for pid in everyone)
    assert any("worker_process" in command_of(pid) for pid in everyone)
    assert {address.rpartition(":")[2] for address, _ in listening(everyone)} == {"127.0.0.1"}
    assert run.wait(400) == 0


def test_sites_come_in_by_the_address_that_the_coordinator_names_and_by_no_other(tmp_path):
    """Here by a second address of loopback, as sites elsewhere would by one of the network."""
    own = Federation3.made(tmp_path, host="127.0.0.2")
    own.serve()
    try:
        run = own.coordinate("run", "--set", "bind=127.0.0.2")
        wait_until(lambda: own.step() > 4000)
        everyone = [run.pid, *children(run.pid)]
        assert ("127.0.0.2", own.port) in listening(everyone)
        assert {address.rpartition(":")[2] for address, _ in listening(everyone)} == {"127.0.0.1", "127.0.0.2"}
        assert run.wait(400) == 0, own.said("run")
        assert own.model() == own.reference()
    finally:
        own.stop()


def test_a_site_whose_job_is_killed_rejoins_and_the_bits_are_the_same(three):
    run = three.coordinate("killed-job")
    wait_until(lambda: three.step("killed-job") > 4000)
    (job,) = [pid for pid in children(three.sites["south"].pid) if "worker_process" in command_of(pid)]
    os.kill(job, signal.SIGKILL)
    assert run.wait(400) == 0, three.said("killed-job")
    assert three.model("killed-job") == three.reference()


def test_a_coordinator_killed_mid_run_resumes_to_the_same_bits(three):
    run = three.coordinate("killed")
    wait_until(lambda: three.step("killed") > 4000)
    run.kill()
    run.wait()
    again = three.resume("killed")
    assert again.wait(400) == 0, three.said("killed")
    assert three.model("killed") == three.reference()


def test_a_site_killed_and_started_again_rejoins_under_its_name(three):
    run = three.coordinate("restarted", "--timeout", "20")
    wait_until(lambda: three.step("restarted") > 4000)
    three.sites["west"].kill()
    three.sites["west"].wait()
    three.serve("west")
    assert run.wait(400) == 0, three.said("restarted")
    assert three.model("restarted") == three.reference()


def test_nothing_that_was_started_is_left_over(three):
    """The servers of the runs above are gone; what is left belongs to the sites that still serve."""
    mine = [pid for site in three.sites.values() for pid in (site.pid, *children(site.pid))]

    def stray():
        every = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
        return [pid for pid in every if pid not in mine and str(three.folder) in command_of(pid)]

    wait_until(lambda: not stray(), 40)


def test_a_kit_says_no_to_all_that_flare_could_do_beyond_answering(three):
    for name in ("north", "south", "west"):
        local = three.folder / "kits" / name / "local"
        resources = json.loads((local / "resources.json").read_text())
        assert resources["allow_log_streaming"] is False
        assert resources["class_allow_list"] == ["fedclust.engines.nvflare.site_bridge.SiteExecutor"]
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert "SiteLogStreamer" not in json.dumps(resources)
        rights = json.loads((local / "authorization.json").read_text())["permissions"]
        assert list(rights) == ["project_admin"]
        allowed = {right for right, who in rights["project_admin"].items() if who != "none"}
        assert allowed == {"submit_job", "manage_job"}


def test_keys_of_a_kit_are_for_its_owner_alone(three):
    for path in (three.folder / "kits").rglob("*"):
        if path.suffix == ".key" or path.name == "identity":
            assert path.stat().st_mode & 0o077 == 0
    assert not list((three.folder / "kits").rglob("*state*cert*"))  # the root's key is nowhere


def test_kits_are_not_made_twice_nor_for_a_study_that_says_where_rows_are(three, capsys):
    words = ["enrol", str(three.folder / "study.toml"), "--out", str(three.folder / "kits")]
    assert main(words) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["enrol", str(three.folder / "here.toml"), "--out", str(three.folder / "others")]) == 2
    assert "sets this in its own file" in capsys.readouterr().err
    assert not (three.folder / "others").exists()


def test_no_run_folder_holds_a_copy_of_a_key(three):
    keys = [path for path in (three.folder / "same").rglob("*.key") if not path.is_symlink()]
    assert (three.folder / "same" / "nvflare").is_dir()
    assert keys == []
