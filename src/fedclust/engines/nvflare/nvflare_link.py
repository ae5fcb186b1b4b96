"""The NVIDIA FLARE link reaches a study's sites over mutual TLS through one job, and starts another if the job ends.

FLARE ends a job for all sites when one site's process dies, and no site can join a running job. So a job only carries
messages. If it ends, or if a site that it does not include is back and needed, the link starts another job and sends
the unanswered questions again. The journal and the sites store what was asked and answered; FLARE does not.
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
from fedclust.engines.attendance import EventListener, ignore_event
from fedclust.engines.coordinator_file import read_coordinator_file
from fedclust.engines.engine_settings import build_attendance, merge_settings
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.engines.nvflare.admin_console import AdminConsole
from fedclust.engines.nvflare.child_processes import (
    JobListener,
    JoinedSites,
    Packet,
    plain_path,
    shut_down_line,
    start_program,
    stop_program,
)
from fedclust.engines.nvflare.startup_kit import LOOPBACK_HOSTS, ORG_NAME, Kit, make_server_workspace
from fedclust.engines.port_forwarding import PortForwarder
from fedclust.engines.registry import RunSpec

ENGINE_NAME = "nvflare"
SERVER_START_SECONDS = 60.0  # time limit for the start of FLARE's server, in seconds
JOB_POLL_SECONDS = 0.25  # seconds between two checks of FLARE's state
JOB_START_SECONDS = 60.0  # time limit for the start of one job, and of all jobs of one request


def check_spec(spec: RunSpec) -> None:
    """Refuse a run whose kit, address or times are wrong, before FLARE starts."""
    _read_kit(spec)
    resolve_bind_address(merge_settings(ENGINE_NAME, spec))
    build_attendance(ENGINE_NAME, spec)


def connect(spec: RunSpec) -> NetworkedEngine:
    """The engine of a run; the command or the coordinator's file gives the path of the coordinator's kit."""
    folder, kit = _read_kit(spec)
    attendance = build_attendance(ENGINE_NAME, spec)
    bind = resolve_bind_address(merge_settings(ENGINE_NAME, spec))
    work = spec.folder / "nvflare"
    link = NvflareLink(folder, kit, work, bind=bind, without=spec.without, notify=spec.notify)
    return NetworkedEngine(
        link,
        spec.parties,
        run=spec.run,
        study=spec.study,
        attendance=attendance,
        without=spec.without,
    )


def resolve_bind_address(settings: Mapping[str, Any]) -> str | None:
    """The address that sites on other machines connect to, if the settings name one, in the machine's own notation.

    An address can be written in many ways, so this returns the address that the socket is bound to.
    """
    if "bind" not in settings:
        return None
    said = str(settings["bind"])
    try:
        with socket.socket() as probe:  # bound only; it never listens
            probe.bind((said, 0))
            address = str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise StudyError(
            f"cannot listen on '{said}', the value of bind ({why}); set bind to an address of this machine"
        ) from None
    if ipaddress.ip_address(address).is_unspecified:
        raise StudyError(f"bind is '{said}', which means all addresses; set bind to the address that sites connect to")
    return None if address in LOOPBACK_HOSTS else address


def _read_kit(spec: RunSpec) -> tuple[Path, Kit]:
    """The coordinator's kit and its folder; refuses a kit that was made for another study."""
    folder = _kit_folder(spec)
    kit = Kit.read(folder, "coordinator")
    kit.check_study(spec.study)
    absent = [party for party in spec.parties if party not in kit.names]
    if absent:
        raise StudyError(f"{folder} was not made for site '{absent[0]}'; enrol the study's sites again")
    return folder, kit


def _kit_folder(spec: RunSpec) -> Path:
    """The folder of the coordinator's kit, from the run's settings or from the coordinator's file."""
    if "kit" in spec.settings:
        return Path(spec.settings["kit"])
    own = read_coordinator_file(spec.coordinator_file, ENGINE_NAME) if spec.coordinator_file else None
    if own is None or "kit" not in own.engine:
        raise StudyError(
            "engine 'nvflare' needs the coordinator's kit; run fedclust enrol, then give the path of its "
            "coordinator.toml with --own"
        )
    return own.folder / str(own.engine["kit"])


class NvflareLink:
    """FLARE's server as a child process, its admin console, and the job whose server side is our bridge.

    Parties in `without` are in no job, because FLARE ends a job for all sites when one of them dies.
    """

    def __init__(
        self,
        folder: Path,
        kit: Kit,
        work: Path,
        *,
        bind: str | None = None,
        without: Iterable[PartyId] = (),
        notify: EventListener = ignore_event,
    ) -> None:
        self.kit = kit
        self.notify = notify
        self.work = work = work.resolve()
        self.names = dict(kit.names)
        self.parties = {name: party for party, name in self.names.items()}
        self._without = {self.names[party] for party in without}
        self.jobs_started = 0  # number of jobs started so far
        self._request_number = 0  # number of the latest request, which its packets carry
        self._folder = folder
        self._inbox: queue.SimpleQueue[tuple[Connection, Packet | None]] = queue.SimpleQueue()
        self._joined_lines: queue.SimpleQueue[tuple[Connection, JoinedSites]] = queue.SimpleQueue()
        self._line: Connection | None = None
        self._joined: tuple[str, ...] = ()
        self._lost_sites: dict[str, float] = {}  # sites that a job lost, and when FLARE last heard from them
        self._console: AdminConsole | None = None
        # FLARE itself binds to loopback or to all interfaces; for a named address we forward the port.
        self._forwarder = None if bind is None else PortForwarder((bind, kit.port), kit.port)
        self._listener = JobListener()
        self._scratch = tempfile.TemporaryDirectory(prefix="fedclust-")
        workspace = plain_path(work, Path(self._scratch.name))
        make_server_workspace(folder, work)
        settings = ["secure_train=true", f"org={ORG_NAME}", "config_folder=config"]
        self._server = start_program(
            "server",
            ["-m", str(workspace), "-s", "fed_server.json", "--set", *settings],
            log=work / "console.log",
            environment=self._listener.environment,
        )
        threading.Thread(target=self._accept_bridges, name="fedclust-line", daemon=True).start()

    def carry(self, requests: Mapping[PartyId, bytes], *, timeout: float) -> Iterator[tuple[PartyId, bytes]]:
        """Send requests and yield replies; when the job ends, start another and send unanswered requests again.

        The time to start jobs is not taken from the sites' timeout. It is limited, because one site may end every job.
        """
        left, self._request_number = dict(requests), self._request_number + 1
        until = time.monotonic() + timeout
        last = until + JOB_START_SECONDS
        while left and (began := time.monotonic()) < until and self._ensure_job(left, until, last):
            until = min(last, until + time.monotonic() - began)
            self._send_packets(left, max(JOB_POLL_SECONDS, until - time.monotonic()))
            while left and (rest := until - time.monotonic()) > 0:
                try:
                    found = self._inbox.get(timeout=min(rest, JOB_POLL_SECONDS))
                except queue.Empty:
                    if self._has_returned_site():
                        break
                    continue
                line, packet = found
                if packet is None:
                    if line is self._line:
                        self._close_line()
                        break
                elif not packet.data:
                    if line is self._line:
                        self._lost_sites.setdefault(packet.site, self._connected_sites().get(packet.site, 0.0))
                else:
                    party = self.parties.get(packet.site, packet.site)
                    if packet.request_number == self._request_number:  # a reply to an earlier request is late
                        left.pop(party, None)
                    yield party, packet.data
            else:
                return

    def close(self, *, done: bool) -> None:  # noqa: ARG002 sites wait for the next run in both cases
        """Close the line, which ends the job at every site, and stop the server."""
        self._close_line()
        if self._console is not None:
            self._console.close()
        if self._forwarder is not None:
            self._forwarder.close()
        stop_program(self._server)
        self._listener.close()
        self._scratch.cleanup()

    def _ensure_job(self, wanted: Mapping[PartyId, bytes], until: float, last: float) -> bool:
        """Whether a job runs with the wanted sites, or with those of them that connected in time."""
        names = {self.names[party] for party in wanted}
        if self._line is not None and not self._has_returned_site(names):
            return True
        self._close_line()
        while not names <= (here := self._connected_sites().keys()) and time.monotonic() < until:
            time.sleep(JOB_POLL_SECONDS)
        return bool(names & here) and self._start_job(sorted(here & self.parties.keys()), last)

    def _has_returned_site(self, names: set[str] | None = None) -> bool:
        """Whether a site is back that the job lacks or has lost; only another job can include it."""
        off = (names or set()) - set(self._joined)
        if not off and not self._lost_sites:
            return False
        here = self._connected_sites()
        return bool(off & here.keys()) or any(here.get(name, then) != then for name, then in self._lost_sites.items())

    def _start_job(self, sites: list[str], last: float) -> bool:
        """Whether a job with these sites is running now."""
        console, until = self._open_console(), min(last, time.monotonic() + JOB_START_SECONDS)
        while not self._joined_lines.empty():  # from a job that was given up in the meantime
            shut_down_line(self._joined_lines.get_nowait()[0])
        job = console.submit_job(sites)
        self.jobs_started += 1
        self.notify("job", number=self.jobs_started, sites=[self.parties[name] for name in sites])
        while time.monotonic() < until:
            try:
                self._line, joined = self._joined_lines.get(timeout=JOB_POLL_SECONDS)
            except queue.Empty:
                if console.has_job_ended(job):
                    break
                continue
            self._joined = joined.sites
            self._lost_sites.clear()
            return True
        console.abort_job(job)
        return False

    def _open_console(self) -> AdminConsole:
        if self._console is None:
            self._console = AdminConsole(self._folder, self.work)
            until = time.monotonic() + SERVER_START_SECONDS
            while self._check_server() and not self._console.try_open():
                if time.monotonic() > until:
                    raise RunFailed(
                        f"NVIDIA FLARE's server did not start within {SERVER_START_SECONDS:.0f} s; {self._log_hint}"
                    )
        self._check_server()
        return self._console

    def _check_server(self) -> bool:
        if self._server.poll() is not None:
            raise RunFailed(f"NVIDIA FLARE's server stopped; {self._log_hint}")
        return True

    @property
    def _log_hint(self) -> str:
        return f"see {self.work / 'console.log'} and log.txt next to it. Check that port {self.kit.port} is free"

    def _connected_sites(self) -> dict[str, float]:
        """When FLARE last heard from each connected site, without the sites that are left out."""
        here = self._open_console().last_contacts()
        return {name: when for name, when in here.items() if name not in self._without}

    def _send_packets(self, requests: Mapping[PartyId, bytes], timeout: float) -> None:
        if self._line is None:
            return
        for party, data in requests.items():
            with suppress(OSError):  # the job ended, and the inbox has a notice of it
                self._line.send_bytes(wire.encode(Packet(self.names[party], data, timeout, self._request_number)))

    def _close_line(self) -> None:
        if self._line is not None:
            shut_down_line(self._line)
        self._line, self._joined = None, ()

    def _accept_bridges(self) -> None:
        """Accept bridges, each on its own thread, so that one that hangs does not block others."""
        for line in self._listener.accept_lines():
            threading.Thread(target=self._receive_packets, args=(line,), name="fedclust-bridge", daemon=True).start()

    def _receive_packets(self, line: Connection) -> None:
        """Put packets from a bridge into the inbox, and None when the bridge ends."""
        with suppress(OSError, EOFError, WireError, TypeError):  # TypeError if a line is closed while it is read
            self._joined_lines.put((line, wire.decode(JoinedSites, line.recv_bytes())))
            while True:
                self._inbox.put((line, wire.decode(Packet, line.recv_bytes())))
        line.close()
        self._inbox.put((line, None))
