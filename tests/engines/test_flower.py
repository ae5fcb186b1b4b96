"""A study over Flower: a SuperLink and three SuperNodes on loopback, under TLS, with registered keys."""

import datetime as dt
import ipaddress
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="an extra; make test-engines installs it in an environment of its own")

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from flwr.app import ConfigRecord, Message, RecordDict
from served_federation import NAMES, STUDY, children, command_of, free_port, rows

from fedclust.cli.main import main
from fedclust.flower import client_app, write_template

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

BIN = Path(sys.executable).parent
STEP = 420  # seconds that a step may take, with a node that comes back in it


def pem(key):
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def certificates(folder):
    """A root and a certificate for loopback."""
    now = dt.datetime.now(dt.UTC)

    def made(name, key, issuer, signing, *, ca):
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(signing, hashes.SHA256())
        )

    root, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    called = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("root", "localhost")]
    top = made(called[0], root, called[0], root, ca=True)
    own = made(called[1], server, called[0], root, ca=False)
    (folder / "ca.crt").write_bytes(top.public_bytes(serialization.Encoding.PEM))
    (folder / "server.crt").write_bytes(own.public_bytes(serialization.Encoding.PEM))
    (folder / "server.key").write_bytes(pem(server))


def node_key(folder, name):
    key = ec.generate_private_key(ec.SECP384R1())
    form = serialization.PrivateFormat.OpenSSH
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{name}.node").write_bytes(private)
    (folder / f"{name}.node.pub").write_bytes(public)
    (folder / f"{name}.node").chmod(0o600)


@pytest.fixture
def flower(tmp_path):
    """A study's kits, and Flower's processes around them."""
    # Few steps, as each takes seconds.
    text = STUDY.format(mode="secure", rounds=2).replace("tol =", 'index = "fuzzy-davies-bouldin"\nrestarts = 1\ntol =')
    (tmp_path / "study.toml").write_text(text + "".join(f"[sites.{name}]\n" for name in NAMES))
    (tmp_path / "here.toml").write_text(text + "".join(f'[sites.{n}]\nsource = "{n}.csv"\n' for n in NAMES))
    words = ["enrol", tmp_path / "study.toml", "--out", tmp_path / "kits", "--engine", "files", "--policy", "none"]
    assert main([str(word) for word in words]) == 0
    certificates(tmp_path)
    for number, name in enumerate(NAMES):
        for place in (tmp_path / f"{name}.csv", tmp_path / "kits" / name / "rows.csv"):
            np.savetxt(place, rows(number), delimiter=",", header="age,bp", comments="", fmt="%.17g")
        node_key(tmp_path, name)
    write_template(tmp_path / "app")
    home = tmp_path / "home"
    home.mkdir()
    port = free_port()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\n'
        f'root-certificates = "{tmp_path / "ca.crt"}"\n'
    )
    environment = {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    processes = {}

    def begin(name, *words):
        with (tmp_path / f"{name}.said").open("ab") as said:
            processes[name] = subprocess.Popen(
                [str(BIN / words[0]), *map(str, words[1:])], stdout=said, stderr=said, env=environment, cwd=tmp_path
            )

    def supernode(name):
        begin(
            name,
            *("flower-supernode", "--root-certificates", tmp_path / "ca.crt", "--superlink", f"127.0.0.1:{port}"),
            *("--auth-supernode-private-key", tmp_path / f"{name}.node", "--host", "127.0.0.1", "--port", free_port()),
            *("--node-config", f'site="{tmp_path / "kits" / name / "site.toml"}"'),
            *("--ssl-ca-certfile", tmp_path / "ca.crt", "--ssl-certfile", tmp_path / "server.crt"),
            *("--ssl-keyfile", tmp_path / "server.key"),
        )

    tls = ["--ssl-ca-certfile", tmp_path / "ca.crt", "--ssl-certfile", tmp_path / "server.crt"]
    tls += ["--ssl-keyfile", tmp_path / "server.key"]
    begin(
        "superlink",
        *("flower-superlink", *tls, "--host", "127.0.0.1", "--port", port, "--enable-supernode-auth"),
        "--disable-runtime-dependency-installation",
    )

    def flwr(*words, **options):
        return subprocess.run(
            [str(BIN / "flwr"), *map(str, words)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            **options,
        )

    until = time.monotonic() + 120
    while flwr("supernode", "list", "here").returncode and time.monotonic() < until:
        time.sleep(1)
    for name in NAMES:
        done = flwr("supernode", "register", tmp_path / f"{name}.node.pub", "here")
        assert done.returncode == 0, done.stdout + done.stderr
        supernode(name)
    yield SimpleNamespace(flwr=flwr, processes=processes, supernode=supernode)
    for process in processes.values():
        process.terminate()
    for process in processes.values():
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def start(flower, folder):
    config = " ".join(
        f'{name}="{folder / path}"'
        for name, path in (("study", "study.toml"), ("own", "kits/coordinator/coordinator.toml"), ("out", "run"))
    )
    done = flower.flwr("run", "app", "here", "--run-config", config)
    assert done.returncode == 0, done.stdout + done.stderr


def until(folder, true):
    """Wait for something, as long as the run moves on: each message starts a process, and a busy machine is slow."""
    seen, end = 0, time.monotonic() + STEP
    journal = folder / "run" / "journal"
    while not true():
        said = (folder / "superlink.said").read_text()
        assert "Traceback" not in said, said[-3000:]
        if journal.exists() and journal.stat().st_size > seen:
            seen, end = journal.stat().st_size, time.monotonic() + STEP
        assert time.monotonic() < end, said[-3000:]
        time.sleep(0.5)


def started_again(flower, name):
    """As a service manager does it: Flower turns a node away until it has noticed that the old one is gone."""
    end = time.monotonic() + STEP
    while time.monotonic() < end:
        flower.supernode(name)
        try:
            flower.processes[name].wait(30)
        except subprocess.TimeoutExpired:
            return
        time.sleep(5)
    raise AssertionError(f"{name} is not let in again")


def status(folder):
    path = folder / "run" / "status.json"
    return json.loads(path.read_text()) if path.exists() else {"steps": 0}


def assert_bits_of_one_process(folder):
    assert main(["run", str(folder / "here.toml"), "--out", str(folder / "here"), "--quiet"]) == 0
    assert (folder / "run" / "model.json").read_bytes() == (folder / "here" / "model.json").read_bytes()


def test_a_superlink_and_three_supernodes_find_the_bits_of_one_process(flower, tmp_path, capsys):
    start(flower, tmp_path)
    until(tmp_path, (tmp_path / "run" / "metrics.json").exists)
    told = status(tmp_path)
    with capsys.disabled():
        sys.stdout.write(f"flower: {told['steps']} steps, {1e3 * told['seconds'] / told['steps']:.0f} ms a step\n")
    assert_bits_of_one_process(tmp_path)


def test_a_supernode_and_a_server_app_that_are_killed_and_started_again_lead_to_the_same_bits(flower, tmp_path):
    start(flower, tmp_path)
    until(tmp_path, lambda: status(tmp_path)["steps"] >= 4)
    flower.processes["south"].kill()
    flower.processes["south"].wait()
    started_again(flower, "south")
    until(tmp_path, lambda: status(tmp_path)["steps"] >= 8)
    (server,) = [pid for pid in children(os.getpid()) if "flwr-serverapp" in command_of(pid)]
    os.kill(server, signal.SIGKILL)
    start(flower, tmp_path)
    until(tmp_path, (tmp_path / "run" / "metrics.json").exists)
    assert_bits_of_one_process(tmp_path)


def test_a_site_that_cannot_serve_is_named_and_its_reason_stays_with_it(tmp_path):
    from fedclust.core.meeting import Greeting, Welcome
    from fedclust.testing.loops_flower import Nodes

    own = 'name = "south"\nsource = "none.csv"\nstate = "state"\nidentity = "own.key"\n'
    (tmp_path / "site.toml").write_text(own + '[policy]\nprofile = "standard"\n')
    grid = Nodes(client_app(), [str(tmp_path / "site.toml")])
    greeting = Greeting.to("south", run="r-0", study="name = 'x'")
    (key,) = grid.push_messages([query(next(iter(grid.nodes)), greeting.encode())])
    (reply,) = grid.pull_messages([key])
    assert Welcome.decode(bytes(reply.content["fedclust"]["bytes"])).code == "failed"
    assert "name the study that this site serves" in (tmp_path / "state" / "trouble.log").read_text()


def test_a_site_whose_file_is_wrong_is_silent_and_says_so_to_its_own_people(tmp_path, capsys):
    from fedclust.testing.loops_flower import Nodes

    (tmp_path / "site.toml").write_text('name = "south"\n')
    grid = Nodes(client_app(), [str(tmp_path / "site.toml")])
    (reply,) = grid.pull_messages(grid.push_messages([query(next(iter(grid.nodes)), b"{}")]))
    assert dict(reply.content["fedclust"]) == {"bytes": b"", "name": "", "proof": b""}
    assert "site.toml lacks source" in capsys.readouterr().err


def query(node, data):
    return Message(
        RecordDict({"fedclust": ConfigRecord({"bytes": data})}), dst_node_id=node, message_type="query.fedclust"
    )
