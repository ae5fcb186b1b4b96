"""Linked sites are site servers in this process that a link reaches, so that conformance checks can test any link."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from fedclust.core import wire
from fedclust.core.drive import Reply
from fedclust.core.envelope import Answer, Call
from fedclust.core.types import PartyId
from fedclust.engines.attendance import Attendance
from fedclust.engines.networked_engine import Link, NetworkedEngine
from fedclust.federation.federation import Federation
from fedclust.site.server import SiteServer


class LinkedEngine:
    """An engine that sends its messages over a link; the far end of the link passes them to `answer_message`."""

    def __init__(self, link: Link, *, timeout: float = 60.0) -> None:
        self.link = link
        self.attendance = Attendance(timeout=timeout, patience=timeout)
        self.site_servers: dict[PartyId, SiteServer] = {}
        self.parties: tuple[PartyId, ...] = ()

    def answer_message(self, party: PartyId, data: bytes) -> bytes:
        """A party's reply to a message."""
        return wire.encode(
            Answer.from_reply(hashlib.sha256(data).digest(), self.site_servers[party].answer_bytes(data))
        )

    def attach_to(self, fed: Federation) -> Federation:
        """Make a federation of this process use the link."""
        self.site_servers = dict(fed.local_sites)
        self.parties = tuple(self.site_servers)
        fed.engine = self
        fed.use_engine(self)
        return fed

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        """Carry the calls as between machines; all parties count as greeted."""
        engine = NetworkedEngine(
            self.link, self.parties, run="", study="", attendance=self.attendance, greeted=frozenset(self.parties)
        )
        return engine.exchange(calls, timeout=timeout, quorum=quorum)
