"""The sites of a federation in this process, with access to their rows, policies and ledgers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedclust.core.effects import Handler
from fedclust.core.errors import DataError, OutOfBounds, QuorumLost
from fedclust.core.types import PartyId
from fedclust.site.ledger import LedgerEntry
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData


@dataclass(frozen=True)
class LocalSites(Mapping[PartyId, SiteServer]):
    """Sites of this process by name, in the order of the federation; empty if all are elsewhere."""

    site_servers: Mapping[PartyId, SiteServer] = field(default_factory=dict)

    def __getitem__(self, party: PartyId) -> SiteServer:
        return self.site_servers[party]

    def __iter__(self) -> Iterator[PartyId]:
        return iter(self.site_servers)

    def __len__(self) -> int:
        return len(self.site_servers)

    def data_for_run(self, run: str) -> dict[PartyId, SiteData]:
        """Return the rows that a run reads: all rows, or those that the sites aligned in it."""
        return {party: server.data_for_run(run) for party, server in self.items()}

    def all_allow(self, handler: Handler[Any, Any]) -> bool:
        """Whether there are sites here, and all of them allow the question."""
        return bool(self) and all(server.gate.policy.allows(handler) for server in self.values())

    def ledgers(self) -> dict[PartyId, list[LedgerEntry]]:
        """Return what has left each site."""
        return {party: server.gate.ledger.entries for party, server in self.items()}

    def digest_rows(self) -> bytes:
        """Return a digest of all rows by site, which changes if a row changes."""
        return b"".join(hashlib.sha256(p.encode() + server.site_data.digest).digest() for p, server in self.items())

    def explain_lost_quorum(self, lost: QuorumLost) -> Exception:
        """Return an error with the sites' own reasons for a lost quorum; between machines they stay at the site."""
        errors = {party: self[party].last_error for party in lost.missing if party in self}
        for error in errors.values():
            if isinstance(error, (DataError, OutOfBounds)):
                return error
        reasons = "; ".join(f"{party}: {type(e).__name__}: {e}" for party, e in errors.items() if e is not None)
        return QuorumLost(f"{lost} ({reasons})", lost.missing, must_restart=lost.must_restart) if reasons else lost
