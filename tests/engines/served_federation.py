"""One study, three sites that serve it and a coordinator, each a process of its own as its operator would start it."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedclust.cli.main import main

NAMES = ("north", "south", "west")
STUDY = """\
name = "three"
columns = ["age", "bp"]
scale = "standardise"
[cluster]
method = "fuzzy-c-means"
k = "2..3"
max_iter = {rounds}
tol = "none"
[privacy]
aggregation = "{mode}"
"""
RUN = [sys.executable, "-m", "fedclust.cli.main"]


def rows(seed, count=40):
    rng = np.random.default_rng(seed)
    return rng.normal(rng.choice([0.0, 6.0, 12.0], (count, 1)), 1.0, (count, 2))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(true, seconds=150.0, every=0.05):
    until = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < until, "it did not come to pass in time"
        time.sleep(every)
    return found


@dataclass
class Federation3:
    """Kits, rows and processes under one folder."""

    folder: Path
    port: int = field(default_factory=free_port)
    sites: dict = field(default_factory=dict)
    host: str = "localhost"

    @classmethod
    def made(cls, folder, *, mode="secure", rounds=4, policy="none", names=NAMES, host="localhost", study=None):
        folder.mkdir(parents=True, exist_ok=True)
        own = cls(folder, host=host)
        text = study or STUDY.format(mode=mode, rounds=rounds)
        (folder / "study.toml").write_text(text + "".join(f"[sites.{name}]\n" for name in names))
        here = "".join(f'[sites.{name}]\nsource = "{name}.csv"\npolicy = "{policy}"\n' for name in names)
        (folder / "here.toml").write_text(text + here)
        for number, name in enumerate(names):
            np.savetxt(folder / f"{name}.csv", rows(number), delimiter=",", header="age,bp", comments="", fmt="%.17g")
        own.enrol("kits", policy=policy)
        return own

    def enrol(self, kits, *, policy="none", study="study.toml"):
        words = ["enrol", self.folder / study, "--out", self.folder / kits, "--address", f"{self.host}:{self.port}"]
        assert main([str(word) for word in (*words, "--policy", policy)]) == 0

    def reference(self):
        """The model's bytes, as one process finds it."""
        if not (self.folder / "here").exists():
            assert main(["run", str(self.folder / "here.toml"), "--out", str(self.folder / "here"), "--quiet"]) == 0
        return (self.folder / "here" / "model.json").read_bytes()

    def model(self, run="run"):
        return (self.folder / run / "model.json").read_bytes()

    def model_at(self, name, run="run"):
        """The bytes of the model that a site of a verified run has found itself."""
        token = (self.folder / run / "run").read_text().strip()
        (path,) = (self.folder / "kits" / name).rglob(f"models/{token}/model.json")
        return path.read_bytes()

    def serve(self, *names, command=RUN, kits="kits"):
        for name in names or NAMES:
            data = self.folder / f"{name}.csv"
            words = [*command, "site", "serve", self.folder / kits / name, "--data", data]
            self.sites[name] = self.begin(words, name)

    def coordinate(self, run="run", *words):
        own = self.folder / "kits" / "coordinator" / "coordinator.toml"
        road = ["--engine", "nvflare", "--own", own, "--out", self.folder / run]
        return self.begin([*RUN, "coordinate", self.folder / "study.toml", *road, "--quiet", *words], run)

    def resume(self, run="run", *words):
        return self.begin([*RUN, "resume", self.folder / run, "--quiet", *words], run)

    def update(self, run, after, *words):
        return self.begin([*RUN, "update", self.folder / run, "--out", self.folder / after, "--quiet", *words], after)

    def begin(self, words, name):
        with (self.folder / f"{name}.said").open("ab") as said:
            return subprocess.Popen(
                [str(word) for word in words],
                stdout=said,
                stderr=said,
                cwd=self.folder,
                env={**os.environ, "PYTHONHASHSEED": "0"},
            )

    def said(self, name):
        return (self.folder / f"{name}.said").read_text()

    def step(self, run="run"):
        """How far the journal of a run has come."""
        path = self.folder / run / "journal"
        return path.stat().st_size if path.exists() else 0

    def stop(self):
        for process in self.sites.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.sites.values():
            process.wait(120)
        self.sites = {}


def children(pid):
    """All processes below one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            about = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(about[1]) == pid:
            below = int(path.parent.name)
            found += [below, *children(below)]
    return found


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def listening(pids):
    """The addresses and ports on which processes listen."""
    inodes = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = str(fd.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        path = Path(f"/proc/net/{table}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            parts = line.split()
            if parts[3] == "0A" and parts[9] in inodes:
                address, _, port = parts[1].partition(":")
                found.add((_address(address), int(port, 16)))
    return found


def _address(text):
    raw = bytes.fromhex(text)
    if len(raw) == 4:
        return socket.inet_ntop(socket.AF_INET, raw[::-1])
    return socket.inet_ntop(socket.AF_INET6, b"".join(raw[i : i + 4][::-1] for i in range(0, 16, 4)))
