"""Loops run whole federations over an engine between machines, on one machine, for tests and measurements.

Conformance checks and measurements cover every engine in `LOOPS`. A loop takes site servers, a folder and the name of a
run, and returns an engine that the caller closes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedclust.core.drive import Reply
from fedclust.core.envelope import Call
from fedclust.core.types import PartyId
from fedclust.engines.attendance import Attendance
from fedclust.engines.files.files_link import FilesLink, message_folders
from fedclust.engines.files.files_site import FileTransport
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.engines.registry import RunSpec
from fedclust.federation.federation import Federation
from fedclust.privacy.keys import Identity
from fedclust.site.approval import digest_study
from fedclust.site.server import SiteServer
from fedclust.site.session import SiteSession

LOOP_STUDY = "a federation in a loop"
LOOP_RUN = f"loop-{digest_study(LOOP_STUDY)}"


class FilesLoop:
    """Site servers of this process that are reached by files: each message is written, read and answered in turn."""

    def __init__(self, desks: Mapping[PartyId, SiteServer], folder: Path, run: str) -> None:
        self.site_servers = dict(desks)
        self.parties = tuple(desks)
        coordinator = Identity.new()
        owns = {party: Identity.new() for party in desks}
        self._transports = [self._make_transport(party, folder, owns[party], coordinator.public) for party in desks]
        link = FilesLink(
            RunSpec(run=run, study=LOOP_STUDY, parties=self.parties, folder=folder / "coordinator"),
            message_folders(folder / "mail", self.parties),
            coordinator,
            {party: own.public for party, own in owns.items()},
            idle=self._answer_inboxes,
        )
        patience = Attendance(timeout=60, retry_after=0, patience=60)
        self._engine = NetworkedEngine(link, self.parties, run=run, study=LOOP_STUDY, attendance=patience)

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        return self._engine.exchange(calls, timeout=timeout, quorum=quorum)

    def close(self) -> None:
        self._engine.close(done=True)
        self._answer_inboxes()

    def _make_transport(self, party: PartyId, folder: Path, own: Identity, coordinator: bytes) -> FileTransport:
        state = folder / "states" / party
        state.mkdir(parents=True)
        door = SiteSession(party, state, lambda _: self.site_servers[party])
        return FileTransport(door, own, coordinator, folder / "mail" / "to" / party, folder / "mail" / "from" / party)

    def _answer_inboxes(self) -> None:
        for room in self._transports:
            room.answer_inbox()


Loop = Callable[[Mapping[PartyId, SiteServer], Path, str], Any]
LOOPS: dict[str, Loop] = {"files": FilesLoop}
if find_spec("nvflare") is not None:
    LOOPS["nvflare"] = lambda *given: import_module("fault_rig.loops_nvflare").NvflareLoop(*given)
if find_spec("distributed") is not None:
    LOOPS["dask"] = lambda *given: import_module("fault_rig.loops_dask").DaskLoop(*given)
if find_spec("flwr") is not None:
    LOOPS["flower"] = lambda *given: import_module("fault_rig.loops_flower").FlowerLoop(*given)


def carry_by_engine(name: str, fed: Federation, folder: Path) -> Federation:
    """Make a federation of this process send its messages over an engine between machines."""
    engine = LOOPS[name](fed.local_sites, folder, LOOP_RUN)
    fed.engine = engine
    fed.use_engine(engine, run=LOOP_RUN)
    return fed
