"""Desks of this process reached through a link, so that the battery runs over every way of travelling."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from fedclust.core import wire
from fedclust.core.drive import Reply
from fedclust.core.envelope import Answer, Call
from fedclust.core.types import PartyId
from fedclust.engines.attendance import Attendance
from fedclust.engines.networked_engine import Link, Networked
from fedclust.federation.federation import Federation
from fedclust.site.server import Desk


class Carried:
    """An engine whose messages take a link; `hear` is what the far end of the link gives them to."""

    def __init__(self, link: Link, *, timeout: float = 60.0) -> None:
        self.link = link
        self.attendance = Attendance(timeout=timeout, patience=timeout)
        self.desks: dict[PartyId, Desk] = {}
        self.parties: tuple[PartyId, ...] = ()

    def hear(self, party: PartyId, data: bytes) -> bytes:
        """A party's reply to what arrived."""
        return wire.encode(Answer.to(hashlib.sha256(data).digest(), self.desks[party].answer_bytes(data)))

    def takes(self, fed: Federation) -> Federation:
        """Let a federation of this process use the link from now on."""
        self.desks = dict(fed.local_sites)
        self.parties = tuple(self.desks)
        fed.engine = self
        fed.use(self)
        return fed

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        """Carry the calls as between machines; everyone has met already."""
        engine = Networked(
            self.link, self.parties, run="", study="", attendance=self.attendance, met=frozenset(self.parties)
        )
        return engine.exchange(calls, timeout=timeout, quorum=quorum)
