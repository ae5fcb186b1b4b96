"""A Dask cluster that one organisation trusts computes for a simulation's parties, or for one large site's rows.

Sums are exact, so the bits do not depend on which worker has a party or some of its rows.
"""

from __future__ import annotations

import hashlib
import importlib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

from distributed import Client, LocalCluster

from fedclust.core import wire
from fedclust.core.drive import Reply
from fedclust.core.effects import HANDLERS, Handler
from fedclust.core.envelope import Answer, Call
from fedclust.core.errors import WireError
from fedclust.core.types import PartyId
from fedclust.privacy.keys import Identity
from fedclust.site.ledger import LedgerEntry
from fedclust.site.policy import Policy
from fedclust.site.server import SiteServer
from fedclust.site.site_data import HandlerContext, SiteData, missing_rule_of
from fedclust.site.vault import Vaults

ROW_SUMS = (
    "row_split.moments",
    "standardisation.column_sums",
    "cluster_indices.index_sums",
    "cluster_indices.label_scatter",
)  # each is a sum of one term per row
NO_TIMEOUT_SECONDS = 3600.0 * 24 * 365
Memory = dict[str, Any]  # arrays by name, as a site server keeps them


class WorkerSite:
    """A party's site server at one worker; a Dask actor, so that its ledger and memory stay there."""

    def __init__(
        self, site_data: SiteData, policy: Policy, seed: int, identity: bytes, roster: Mapping[PartyId, bytes]
    ) -> None:
        vaults = cache(partial(Vaults, Identity(identity), dict(roster)))
        self.site_server = SiteServer(site_data, policy, seed=seed, vaults=vaults)
        self._reported_memory: dict[str, Memory] = {}  # the memory of each run as it was last reported

    def answer(self, data: bytes, module: str, run: str, earlier_memory: Memory | None) -> tuple[bytes, Memory | None]:
        """The reply to a call, and the party's memory if it changed; `module` defines the question.

        `earlier_memory` is what the party remembers of the run from an earlier round. It travels with the question,
        because two calls may arrive in a different order.
        """
        importlib.import_module(module)
        if earlier_memory is not None and run not in self.site_server.memory:
            self.site_server.memory[run] = self._reported_memory[run] = earlier_memory
        reply = wire.encode(Answer.from_reply(hashlib.sha256(data).digest(), self.site_server.answer_bytes(data)))
        memory = self.site_server.memory.get(run)
        if memory is None or memory is self._reported_memory.get(run):
            return reply, None
        self._reported_memory[run] = memory
        return reply, memory

    def ledger_entries(self) -> list[LedgerEntry]:
        """The ledger of what has left this party."""
        return self.site_server.gate.ledger.entries


class DaskEngine:
    """Parties that run at the workers of a cluster.

    Their memory is copied to `site_servers`, where a model of many rounds looks for it, and from there to the workers
    of the next round.
    """

    def __init__(self, client: Client, site_servers: Mapping[PartyId, SiteServer], *, seed: int = 0) -> None:
        identities = {party: Identity.new() for party in site_servers}
        roster = {party: identity.public for party, identity in identities.items()}
        placed = {
            party: client.submit(
                WorkerSite,
                server.site_data,
                server.gate.policy,
                seed,
                identities[party].private,
                roster,
                actor=True,
                pure=False,
            )
            for party, server in site_servers.items()
        }
        self.parties = tuple(site_servers)
        self._site_servers = dict(site_servers)
        self._worker_sites: dict[PartyId, Any] = {party: future.result() for party, future in placed.items()}
        self._answered_runs: set[tuple[PartyId, str]] = set()  # runs that a party's worker has answered before

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:  # noqa: ARG002
        """Ask all parties at once; leave out a party whose worker is lost or too slow."""
        until = time.monotonic() + (NO_TIMEOUT_SECONDS if timeout is None else timeout)
        asked = {party: self._submit_call(party, call) for party, call in calls.items()}
        replies: dict[PartyId, Reply] = {}
        for party, future in asked.items():
            # Dask reports a lost worker by one of several errors; for all of them, the party counts as silent.
            with suppress(Exception):
                data, memory = future.result(max(0.0, until - time.monotonic()))
                self._answered_runs.add((party, calls[party].run))
                if memory is not None:
                    self._site_servers[party].memory[calls[party].run] = memory
                answer = wire.decode(Answer, data)
                if answer.call == calls[party].digest and answer.party == party:
                    replies[party] = answer.to_reply()
        return replies

    def ledgers(self) -> dict[PartyId, list[LedgerEntry]]:
        """The ledger of each party, read from its worker."""
        asked = {party: seat.ledger_entries() for party, seat in self._worker_sites.items()}
        return {party: future.result() for party, future in asked.items()}

    def _submit_call(self, party: PartyId, call: Call) -> Any:
        known = (party, call.run) in self._answered_runs
        before = None if known else self._site_servers[party].memory.get(call.run)
        return self._worker_sites[party].answer(
            call.wire_bytes, HANDLERS[call.handler].answer.__module__, call.run, before
        )


def start_local_cluster(*, workers: int) -> Client:
    """Start a cluster of processes on this machine's loopback address, without a dashboard."""
    made = LocalCluster(
        n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, processes=True
    )
    return Client(made)


class WorkerRows:
    """Some rows of a large site, held at one worker."""

    def __init__(self, site_data: SiteData) -> None:
        self.site_data = site_data

    def answer_for_rows(self, name: str, module: str, message: bytes, missing: str) -> bytes:
        """The answer to a question, computed from these rows only."""
        importlib.import_module(module)
        handler = HANDLERS[name]
        context = HandlerContext(self.site_data, (0, 0), {}, missing)
        return wire.encode(handler.answer(context, wire.decode(handler.message, message)))


class DistributedSiteServer(SiteServer):
    """A site server that computes sums over rows at a cluster; rules, ledger and keys stay in this process."""

    def __init__(
        self, client: Client, parts: Sequence[SiteData], site_data: SiteData, policy: Policy, **options: Any
    ) -> None:
        super().__init__(site_data, policy, **options)
        placed = [client.submit(WorkerRows, part, actor=True, pure=False) for part in parts]
        self._parts = [future.result() for future in placed]

    def compute_answer(self, handler: Handler[Any, Any], context: HandlerContext, message: Any) -> Any:
        """The total over the workers for a sum over rows; otherwise the answer from all rows in this process."""
        if handler.name not in ROW_SUMS:
            return super().compute_answer(handler, context, message)
        data, module = wire.encode(message), handler.answer.__module__
        missing = missing_rule_of(handler, message)
        working = [part.answer_for_rows(handler.name, module, data, missing) for part in self._parts]
        try:
            found = [wire.decode(handler.release, future.result()) for future in working]
        except WireError as odd:
            raise RuntimeError(
                "cannot read a worker's answer; install the same version of fedclust on all workers"
            ) from odd
        return handler.release.total(found)
