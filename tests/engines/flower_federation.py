"""One study over Flower: a SuperLink and three SuperNodes on loopback, under TLS, with registered keys.

The SuperLink has a home and a database of its own, so that what it holds can be told from what sites hold.
"""

import contextlib
import datetime as dt
import ipaddress
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from served_federation import NAMES, STUDY, free_port, rows

from fedclust.app.flower_app import write_template
from fedclust.cli.main import main

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


@dataclass
class Flower3:
    """A study's kits, and Flower's processes around them."""

    folder: Path
    telemetry: str = "0"
    port: int = field(default_factory=free_port)
    processes: dict = field(default_factory=dict)

    @classmethod
    def made(cls, folder, *, mode="secure", study=None, **own):
        folder.mkdir(exist_ok=True)
        # Few steps, as each takes seconds.
        text = study or STUDY.format(mode=mode, rounds=2)
        text = text.replace("tol =", 'index = "fuzzy-davies-bouldin"\nrestarts = 1\ntol =') if study is None else text
        (folder / "study.toml").write_text(text + "".join(f"[sites.{name}]\n" for name in NAMES))
        (folder / "here.toml").write_text(text + "".join(f'[sites.{n}]\nsource = "{n}.csv"\n' for n in NAMES))
        words = ["enrol", folder / "study.toml", "--out", folder / "kits", "--engine", "files", "--policy", "none"]
        assert main([str(word) for word in words]) == 0
        certificates(folder)
        made = cls(folder, **own)
        made.put({name: rows(number) for number, name in enumerate(NAMES)})
        for name in NAMES:
            node_key(folder, name)
        write_template(folder / "app")
        made.home("link").joinpath("config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{made.port}"\n'
            f'root-certificates = "{folder / "ca.crt"}"\n'
        )
        return made

    def put(self, tables):
        """The rows of each site, there and for the run in one process."""
        for name, X in tables.items():
            for place in (self.folder / f"{name}.csv", self.folder / "kits" / name / "rows.csv"):
                np.savetxt(place, X, delimiter=",", header="age,bp", comments="", fmt="%.17g")

    def models_at_sites(self):
        """The models that the sites of a verified run have found themselves."""
        return sorted((self.folder / "kits").rglob("models/*/model.json"))

    def home(self, name):
        there = self.folder / "homes" / name
        there.mkdir(parents=True, exist_ok=True)
        return there

    def environment(self, name="link"):
        return {
            **os.environ,
            "FLWR_HOME": str(self.home(name)),
            "FLWR_TELEMETRY_ENABLED": self.telemetry,
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }

    def begin(self, name, *words):
        with (self.folder / f"{name}.said").open("ab") as said:
            self.processes[name] = subprocess.Popen(
                [str(BIN / words[0]), *map(str, words[1:])],
                stdout=said,
                stderr=said,
                env=self.environment("link" if name == "superlink" else name),
                cwd=self.folder,
            )

    @property
    def tls(self):
        names = ("ssl-ca-certfile", "ca.crt"), ("ssl-certfile", "server.crt"), ("ssl-keyfile", "server.key")
        return [word for option, name in names for word in (f"--{option}", self.folder / name)]

    def supernode(self, name, *more):
        self.begin(
            name,
            *("flower-supernode", "--root-certificates", self.folder / "ca.crt"),
            *("--superlink", f"127.0.0.1:{self.port}"),
            *("--auth-supernode-private-key", self.folder / f"{name}.node"),
            *("--port", free_port(), *(() if name == "west" else self.tls)),  # a node's own processes, on loopback
            *("--node-config", f'site="{self.folder / "kits" / name / "site.toml"}"', *more),
        )

    def superlink(self):
        self.begin(
            "superlink",
            *("flower-superlink", *self.tls, "--host", "127.0.0.1", "--port", self.port, "--enable-supernode-auth"),
            *("--disable-runtime-dependency-installation", "--database", self.home("link") / "superlink.db"),
        )
        until = time.monotonic() + 120
        while self.flwr("supernode", "list", "here").returncode and time.monotonic() < until:
            time.sleep(1)

    def join(self, name, *more):
        done = self.flwr("supernode", "register", self.folder / f"{name}.node.pub", "here")
        assert done.returncode == 0, done.stdout + done.stderr
        self.supernode(name, *more)

    def flwr(self, *words, **options):
        return subprocess.run(
            [str(BIN / "flwr"), *map(str, words)],
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            **options,
        )

    def up(self):
        self.superlink()
        for name in NAMES:
            self.join(name)
        return self

    def start(self, out="run", after=None, **times):
        places = {"study": "study.toml", "own": "kits/coordinator/coordinator.toml", "out": out}
        places |= {"after": after} if after else {}
        config = " ".join(f'{name}="{self.folder / path}"' for name, path in places.items())
        config += "".join(f" {name}={seconds}" for name, seconds in times.items())
        done = self.flwr("run", "app", "here", "--run-config", config)
        assert done.returncode == 0, done.stdout + done.stderr

    def said(self, name="superlink"):
        return (self.folder / f"{name}.said").read_text()

    def holds(self, text):
        """Whether the SuperLink has a text among what it keeps; logs of a ServerApp come there after a while."""
        files = [path for path in self.home("link").glob("superlink.db*") if path.is_file()]
        return any(text.encode() in path.read_bytes() for path in files)

    def until(self, true, *, ends=False):
        """Wait for something while the run moves on: each message starts a process, and a busy machine is slow."""
        seen, end = 0, time.monotonic() + STEP
        journal = self.folder / "run" / "journal"
        while not true():
            assert ends or "Traceback" not in self.said(), self.said()[-3000:]
            if journal.exists() and journal.stat().st_size > seen:
                seen, end = journal.stat().st_size, time.monotonic() + STEP
            assert time.monotonic() < end, self.said()[-3000:]
            time.sleep(0.5)

    def again(self, name):
        """As a service manager does it: Flower turns a node away until it has noticed that the old one is gone."""
        end = time.monotonic() + STEP
        while time.monotonic() < end:
            self.supernode(name)
            try:
                self.processes[name].wait(30)
            except subprocess.TimeoutExpired:
                return
            time.sleep(5)
        raise AssertionError(f"{name} is not let in again")

    @property
    def status(self):
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.folder / "run" / "status.json").read_text())
        return {"steps": 0, "state": "", "seconds": 0.0}

    def bits(self):
        """The model's bytes, and those that one process finds."""
        here = self.folder / "here"
        assert main(["run", str(self.folder / "here.toml"), "--out", str(here), "--quiet"]) == 0
        return (self.folder / "run" / "model.json").read_bytes(), (here / "model.json").read_bytes()

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
