"""NVIDIA FLARE as a way of travelling: one job for a study, its sites behind mutual TLS, begun anew when it breaks.

FLARE ends a job for everybody when one site's process dies, and lets nobody join a job that runs. So a job here is only
a road: whenever it is gone, or a site that is asked is not on it but back, another is laid, and the questions that were
not answered go out again. What was asked and answered is remembered by the journal and the sites, not by FLARE.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fedclust.core import wire
from fedclust.core.errors import RunFailed, StudyError, WireError
from fedclust.core.types import PartyId
from fedclust.engines.attendance import Tell, nobody
from fedclust.engines.coordinator_file import read_own
from fedclust.engines.engine_settings import attendance_of, settings_of
from fedclust.engines.networked_engine import Networked
from fedclust.engines.nvflare.admin_console import Console
from fedclust.engines.nvflare.child_processes import Home, Joined, Parcel, hang_up, named_plainly, start, stop
from fedclust.engines.nvflare.startup_kit import LOOPBACK, ORG, Kit, server_workspace
from fedclust.engines.port_forwarding import Forwarder
from fedclust.engines.registry import RunSpec

NAME = "nvflare"
OPENING = 60.0  # seconds that FLARE's server may take to come up
LOOK = 0.25  # seconds between looks at what FLARE is doing
JOB = 60.0  # seconds that a job may take to begin, and that all jobs of one asking may


def check(spec: RunSpec) -> None:
    """Refuse what speaks against a run before FLARE is started: of its kit, its address, its times."""
    _kit_of(spec)
    bind_of(settings_of(NAME, spec))
    attendance_of(NAME, spec)


def connect(spec: RunSpec) -> Networked:
    """The engine of a run; the coordinator's kit is where its own file or the command names it."""
    folder, kit = _kit_of(spec)
    attendance = attendance_of(NAME, spec)
    bind = bind_of(settings_of(NAME, spec))
    work = spec.folder / "nvflare"
    link = NvflareLink(folder, kit, work, bind=bind, without=spec.without, tell=spec.tell)
    return Networked(
        link,
        spec.parties,
        run=spec.run,
        study=spec.study,
        attendance=attendance,
        without=spec.without,
    )


def bind_of(settings: Mapping[str, Any]) -> str | None:
    """The address that sites of other machines reach, where the settings name one, as the machine understands it.

    There are many ways to write every address: what counts is what the name would be bound to.
    """
    if "bind" not in settings:
        return None
    said = str(settings["bind"])
    try:
        with socket.socket() as probe:  # it is bound and never listens
            probe.bind((said, 0))
            address = str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise StudyError(
            f"bind is '{said}', which cannot be bound to ({why}); name an address of this machine"
        ) from None
    if ipaddress.ip_address(address).is_unspecified:
        raise StudyError(f"bind is '{said}', which is every address; name the one by which sites reach this machine")
    return None if address in LOOPBACK else address


def _kit_of(spec: RunSpec) -> tuple[Path, Kit]:
    """The coordinator's kit, which must be one for this study, and where it lies."""
    folder = _folder_of(spec)
    kit = Kit.read(folder, "coordinator")
    kit.check_study(spec.study)
    absent = [party for party in spec.parties if party not in kit.names]
    if absent:
        raise StudyError(f"{folder} was not made for site '{absent[0]}'; enrol the study's sites anew")
    return folder, kit


def _folder_of(spec: RunSpec) -> Path:
    """Where the coordinator's kit lies: beside its own file, unless a setting says otherwise."""
    if "kit" in spec.settings:
        return Path(spec.settings["kit"])
    own = read_own(spec.own, NAME) if spec.own else None
    if own is None or "kit" not in own.engine:
        raise StudyError(
            "engine 'nvflare' needs the coordinator's kit; fedclust enrol makes it, with a coordinator.toml for --own"
        )
    return own.folder / str(own.engine["kit"])


class NvflareLink:
    """FLARE's server as a child process, a console to it, and the job whose server half is our bridge.

    Parties of `without` are in no job: FLARE ends a job for everybody when one of its sites dies.
    """

    def __init__(
        self,
        folder: Path,
        kit: Kit,
        work: Path,
        *,
        bind: str | None = None,
        without: Iterable[PartyId] = (),
        tell: Tell = nobody,
    ) -> None:
        self.kit = kit
        self.tell = tell
        self.work = work = work.resolve()
        self.names = dict(kit.names)
        self.parties = {name: party for party, name in self.names.items()}
        self._without = {self.names[party] for party in without}
        self.roads = 0  # how many jobs were begun
        self._asking = 0  # the number of the last asking, which its parcels bear
        self._folder = folder
        self._inbox: queue.SimpleQueue[tuple[Connection, Parcel | None]] = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[tuple[Connection, Joined]] = queue.SimpleQueue()
        self._line: Connection | None = None
        self._joined: tuple[str, ...] = ()
        self._doubted: dict[str, float] = {}  # sites that a job lost, and when FLARE had heard of them last
        self._console: Console | None = None
        # FLARE itself binds to loopback or to all interfaces; a named one gets a door of our own.
        self._door = None if bind is None else Forwarder((bind, kit.port), kit.port)
        self._home = Home()
        self._scratch = tempfile.TemporaryDirectory(prefix="fedclust-")
        workspace = named_plainly(work, Path(self._scratch.name))
        server_workspace(folder, work)
        settings = ["secure_train=true", f"org={ORG}", "config_folder=config"]
        self._server = start(
            "server",
            ["-m", str(workspace), "-s", "fed_server.json", "--set", *settings],
            log=work / "console.log",
            environment=self._home.environment,
        )
        threading.Thread(target=self._hear, name="fedclust-line", daemon=True).start()

    def carry(self, requests: Mapping[PartyId, bytes], *, timeout: float) -> Iterator[tuple[PartyId, bytes]]:
        """Send and yield what comes; whenever the road breaks, lay it anew and send again what was not answered.

        The time that roads take is not the sites', but it is not without end: one site may break them all.
        """
        left, self._asking = dict(requests), self._asking + 1
        until = time.monotonic() + timeout
        last = until + JOB
        while left and (began := time.monotonic()) < until and self._laid(left, until, last):
            until = min(last, until + time.monotonic() - began)
            self._send(left, max(LOOK, until - time.monotonic()))
            while left and (rest := until - time.monotonic()) > 0:
                try:
                    found = self._inbox.get(timeout=min(rest, LOOK))
                except queue.Empty:
                    if self._returned():
                        break
                    continue
                line, parcel = found
                if parcel is None:
                    if line is self._line:
                        self._hang_up()
                        break
                elif not parcel.data:
                    if line is self._line:
                        self._doubted.setdefault(parcel.to, self._connected().get(parcel.to, 0.0))
                else:
                    party = self.parties.get(parcel.to, parcel.to)
                    if parcel.asking == self._asking:  # what belongs to an earlier one is late
                        left.pop(party, None)
                    yield party, parcel.data
            else:
                return

    def close(self, *, done: bool) -> None:  # noqa: ARG002 sites wait for the next run either way
        """Hang up, which ends the job at every site, and stop the server."""
        self._hang_up()
        if self._console is not None:
            self._console.close()
        if self._door is not None:
            self._door.close()
        stop(self._server)
        self._home.close()
        self._scratch.cleanup()

    def _laid(self, wanted: Mapping[PartyId, bytes], until: float, last: float) -> bool:
        """Whether a job runs, at last, with the wanted sites, or with those of them that came until then."""
        names = {self.names[party] for party in wanted}
        if self._line is not None and not self._returned(names):
            return True
        self._hang_up()
        while not names <= (here := self._connected().keys()) and time.monotonic() < until:
            time.sleep(LOOK)
        return bool(names & here) and self._begun(sorted(here & self.parties.keys()), last)

    def _returned(self, names: set[str] | None = None) -> bool:
        """Whether a site is back that the job has not, or has lost: only another job will take it in."""
        off = (names or set()) - set(self._joined)
        if not off and not self._doubted:
            return False
        here = self._connected()
        return bool(off & here.keys()) or any(here.get(name, then) != then for name, then in self._doubted.items())

    def _begun(self, sites: list[str], last: float) -> bool:
        """Whether a job with these sites is running now."""
        console, until = self._ready(), min(last, time.monotonic() + JOB)
        while not self._calls.empty():  # of a job that was given up meanwhile
            hang_up(self._calls.get_nowait()[0])
        job = console.begin(sites)
        self.roads += 1
        self.tell("road", number=self.roads, sites=[self.parties[name] for name in sites])
        while time.monotonic() < until:
            try:
                self._line, joined = self._calls.get(timeout=LOOK)
            except queue.Empty:
                if console.ended(job):
                    break
                continue
            self._joined = joined.sites
            self._doubted.clear()
            return True
        console.end(job)
        return False

    def _ready(self) -> Console:
        if self._console is None:
            self._console = Console(self._folder, self.work)
            until = time.monotonic() + OPENING
            while self._alive() and not self._console.opened():
                if time.monotonic() > until:
                    raise RunFailed(f"NVIDIA FLARE's server did not come up in {OPENING:.0f} s; {self._told}")
        self._alive()
        return self._console

    def _alive(self) -> bool:
        if self._server.poll() is not None:
            raise RunFailed(f"NVIDIA FLARE's server ended; {self._told}")
        return True

    @property
    def _told(self) -> str:
        return f"{self.work / 'console.log'} and log.txt beside it say why. Is port {self.kit.port} free?"

    def _connected(self) -> dict[str, float]:
        """When each site was last heard of that is there and not left out."""
        here = self._ready().connected()
        return {name: when for name, when in here.items() if name not in self._without}

    def _send(self, requests: Mapping[PartyId, bytes], timeout: float) -> None:
        if self._line is None:
            return
        for party, data in requests.items():
            with suppress(OSError):  # then the road broke, and its end is in the inbox
                self._line.send_bytes(wire.encode(Parcel(self.names[party], data, timeout, self._asking)))

    def _hang_up(self) -> None:
        if self._line is not None:
            hang_up(self._line)
        self._line, self._joined = None, ()

    def _hear(self) -> None:
        """Take calls of bridges, each heard on a thread of its own: one that hangs keeps no other waiting."""
        for line in self._home.calls():
            threading.Thread(target=self._listen, args=(line,), name="fedclust-bridge", daemon=True).start()

    def _listen(self, line: Connection) -> None:
        """What a bridge brings goes to the inbox, None when it ends."""
        with suppress(OSError, EOFError, WireError, TypeError):  # the last where a line is closed while it is read
            self._calls.put((line, wire.decode(Joined, line.recv_bytes())))
            while True:
                self._inbox.put((line, wire.decode(Parcel, line.recv_bytes())))
        line.close()
        self._inbox.put((line, None))
