"""A study over Flower: a SuperLink and three SuperNodes on loopback, under TLS, with registered keys."""

import datetime as dt
import ipaddress
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="an extra; make test-engines installs it in an environment of its own")

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from served_federation import NAMES, STUDY, free_port, rows

from fedclust.cli.main import main
from fedclust.flower import write_template

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

BIN = Path(sys.executable).parent
STEP = 240  # seconds that a step may take


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
    text = STUDY.format(mode="secure", rounds=2)
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
    processes = []

    def begin(name, *words):
        with (tmp_path / f"{name}.said").open("ab") as said:
            made = subprocess.Popen(
                [str(BIN / words[0]), *map(str, words[1:])], stdout=said, stderr=said, env=environment, cwd=tmp_path
            )
        processes.append(made)
        return made

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
        begin(
            name,
            *("flower-supernode", "--root-certificates", tmp_path / "ca.crt", "--superlink", f"127.0.0.1:{port}"),
            *("--auth-supernode-private-key", tmp_path / f"{name}.node", "--host", "127.0.0.1", "--port", free_port()),
            *("--node-config", f'site="{tmp_path / "kits" / name / "site.toml"}"'),
            *("--ssl-ca-certfile", tmp_path / "ca.crt", "--ssl-certfile", tmp_path / "server.crt"),
            *("--ssl-keyfile", tmp_path / "server.key"),
        )
    yield flwr
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def test_a_superlink_and_three_supernodes_find_the_bits_of_one_process(flower, tmp_path):
    config = " ".join(
        f'{name}="{tmp_path / path}"'
        for name, path in (("study", "study.toml"), ("own", "kits/coordinator/coordinator.toml"), ("out", "run"))
    )
    done = flower("run", "app", "here", "--run-config", config)
    assert done.returncode == 0, done.stdout + done.stderr
    seen, until = 0, time.monotonic() + STEP
    while not (tmp_path / "run" / "metrics.json").exists():
        said = (tmp_path / "superlink.said").read_text()
        assert "Traceback" not in said, said[-3000:]
        journal = tmp_path / "run" / "journal"
        if journal.exists() and journal.stat().st_size > seen:  # each message starts a process: a busy machine is slow
            seen, until = journal.stat().st_size, time.monotonic() + STEP
        assert time.monotonic() < until, said[-3000:]
        time.sleep(0.5)
    assert main(["run", str(tmp_path / "here.toml"), "--out", str(tmp_path / "here"), "--quiet"]) == 0
    assert (tmp_path / "run" / "model.json").read_bytes() == (tmp_path / "here" / "model.json").read_bytes()
