"""The NVIDIA FLARE loop puts site servers behind real FLARE processes: a server, and a client and a job per site.

They use mutual TLS. Such a federation takes a quarter of a minute to start, so one is kept until the process ends.
"""

from __future__ import annotations

import hashlib
import socket
import tempfile
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fedclust.core import wire
from fedclust.core.drive import Reply
from fedclust.core.envelope import Answer, Call
from fedclust.core.types import PartyId
from fedclust.engines.attendance import Attendance
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.engines.nvflare.nvflare_link import NvflareLink
from fedclust.engines.nvflare.nvflare_serve import SiteClient
from fedclust.engines.nvflare.startup_kit import Kit, provision_kits, site_names
from fedclust.site.server import SiteServer

COORDINATOR_NAME = "coordinator"
NVFLARE_WAIT_SECONDS = 120.0  # seconds; a busy machine is slow to start so many processes


class SharedFederation:
    """A running federation whose sites answer from the current site servers."""

    def __init__(self, parties: tuple[PartyId, ...]) -> None:
        self.site_servers: dict[PartyId, SiteServer] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="fedclust-flare-")
        folder, names, port = Path(self._folder.name), site_names(parties), free_port()
        kits = {p: Kit("site", p, "loop", "", "localhost", port, names) for p in parties}
        kits[COORDINATOR_NAME] = Kit(COORDINATOR_NAME, COORDINATOR_NAME, "loop", "", "localhost", port, names)
        for name in kits:
            (folder / name).mkdir()
        provision_kits(folder, kits, days=2)
        for name, kit in kits.items():
            kit.write(folder / name)
        self._end = threading.Event()
        self.link = NvflareLink(folder / COORDINATOR_NAME, kits[COORDINATOR_NAME], folder / "work")
        self._sites = [SiteClient(folder / party, partial(self._hear, party)) for party in parties]
        for site in self._sites:
            threading.Thread(target=site.run_until, args=(self._end,), daemon=True).start()

    def close(self) -> None:
        self._end.set()
        self.link.close(done=True)
        for site in self._sites:
            site.close()
        self._folder.cleanup()

    def _hear(self, party: PartyId, data: bytes) -> bytes:
        return wire.encode(
            Answer.from_reply(hashlib.sha256(data).digest(), self.site_servers[party].answer_bytes(data))
        )


_shared_federations: dict[frozenset[PartyId], SharedFederation] = {}


class NvflareLoop:
    """Site servers of this process that are reached over FLARE."""

    def __init__(self, desks: Mapping[PartyId, SiteServer], folder: Path, run: str) -> None:  # noqa: ARG002 all loops have this signature
        self.site_servers = dict(desks)
        self.parties = tuple(desks)
        everyone = frozenset(desks)
        kept = next((one for names, one in _shared_federations.items() if everyone <= names), None)
        if kept is None:
            kept = _shared_federations[everyone] = SharedFederation(self.parties)
            # At exit a process waits for the workers of FLARE's console before atexit runs, so close it earlier.
            threading._register_atexit(kept.close)  # type: ignore[attr-defined]
        kept.site_servers = dict(desks)
        self._engine = NetworkedEngine(
            kept.link,
            self.parties,
            run=run,
            study="",
            attendance=Attendance(NVFLARE_WAIT_SECONDS, patience=NVFLARE_WAIT_SECONDS),
            greeted=self.parties,
        )

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        return self._engine.exchange(calls, timeout=timeout, quorum=quorum)

    def close(self) -> None:
        """Keep the federation for the next loop."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
