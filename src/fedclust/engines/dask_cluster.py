"""Work spread over a Dask cluster that one organisation trusts: the parties of a simulation, or one large site's rows.

Sums are exact, so wherever a party or a part of its rows is worked on, the bits are the same.
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
from fedclust.site.ledger import Entry
from fedclust.site.policy import Policy
from fedclust.site.server import Desk
from fedclust.site.site_data import Holding, Turn, missing_in
from fedclust.site.vault import Vaults

ROW_SUMS = (
    "row_split.moments",
    "standardisation.spread",
    "cluster_indices.around",
    "cluster_indices.scatter",
)  # a sum of one term per row
FOREVER = 3600.0 * 24 * 365
Memory = dict[str, Any]  # arrays by name, as a desk keeps them


class Seat:
    """A party's desk at some worker; a Dask actor, so that its ledger and memory stay there."""

    def __init__(
        self, holding: Holding, policy: Policy, seed: int, identity: bytes, roster: Mapping[PartyId, bytes]
    ) -> None:
        vaults = cache(partial(Vaults, Identity(identity), dict(roster)))
        self.desk = Desk(holding, policy, seed=seed, vaults=vaults)
        self._known: dict[str, Memory] = {}  # as it was when it was told of last

    def answer(self, data: bytes, module: str, run: str, before: Memory | None) -> tuple[bytes, Memory | None]:
        """The reply to a call, and what the party remembers since, if that is new; `module` defines the question.

        `before` is what the party knows of the run from a round before. It comes along with the question: two calls
        may arrive in another order than they were made in.
        """
        importlib.import_module(module)
        if before is not None and run not in self.desk.memory:
            self.desk.memory[run] = self._known[run] = before
        reply = wire.encode(Answer.to(hashlib.sha256(data).digest(), self.desk.answer_bytes(data)))
        memory = self.desk.memory.get(run)
        if memory is None or memory is self._known.get(run):
            return reply, None
        self._known[run] = memory
        return reply, memory

    def entries(self) -> list[Entry]:
        """What has left this party."""
        return self.desk.gate.ledger.entries


class DaskEngine:
    """Parties that sit at the workers of a cluster.

    What they remember is brought to `desks`, where a model of many rounds looks for it, and from there to the seats of
    the next round.
    """

    def __init__(self, client: Client, desks: Mapping[PartyId, Desk], *, seed: int = 0) -> None:
        identities = {party: Identity.new() for party in desks}
        roster = {party: identity.public for party, identity in identities.items()}
        placed = {
            party: client.submit(
                Seat, desk.holding, desk.gate.policy, seed, identities[party].private, roster, actor=True, pure=False
            )
            for party, desk in desks.items()
        }
        self.parties = tuple(desks)
        self._desks = dict(desks)
        self._seats: dict[PartyId, Any] = {party: future.result() for party, future in placed.items()}
        self._runs: set[tuple[PartyId, str]] = set()  # of which a seat has answered

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:  # noqa: ARG002
        """Ask all at once; a party whose worker is gone, or too slow, is left out."""
        until = time.monotonic() + (FOREVER if timeout is None else timeout)
        asked = {party: self._asked(party, call) for party, call in calls.items()}
        replies: dict[PartyId, Reply] = {}
        for party, future in asked.items():
            # A lost worker shows as one of several errors of Dask's; whichever, the party is silent.
            with suppress(Exception):
                data, memory = future.result(max(0.0, until - time.monotonic()))
                self._runs.add((party, calls[party].run))
                if memory is not None:
                    self._desks[party].memory[calls[party].run] = memory
                answer = wire.decode(Answer, data)
                if answer.call == calls[party].digest and answer.party == party:
                    replies[party] = answer.reply()
        return replies

    def ledgers(self) -> dict[PartyId, list[Entry]]:
        """What has left each party, as it was written down at its worker."""
        asked = {party: seat.entries() for party, seat in self._seats.items()}
        return {party: future.result() for party, future in asked.items()}

    def _asked(self, party: PartyId, call: Call) -> Any:
        known = (party, call.run) in self._runs
        before = None if known else self._desks[party].memory.get(call.run)
        return self._seats[party].answer(call.packed, HANDLERS[call.handler].answer.__module__, call.run, before)


def local_client(*, workers: int) -> Client:
    """A cluster of processes on this machine's loopback, without a dashboard."""
    made = LocalCluster(
        n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, processes=True
    )
    return Client(made)


class Part:
    """Some rows of a large site at some worker."""

    def __init__(self, holding: Holding) -> None:
        self.holding = holding

    def work(self, name: str, module: str, message: bytes, missing: str) -> bytes:
        """A question's answer for these rows alone."""
        importlib.import_module(module)
        handler = HANDLERS[name]
        turn = Turn(self.holding, (0, 0), {}, missing)
        return wire.encode(handler.answer(turn, wire.decode(handler.message, message)))


class SpreadDesk(Desk):
    """A site's desk whose sums over rows are worked out at a cluster; rules, ledger and keys stay with the desk."""

    def __init__(self, client: Client, parts: Sequence[Holding], holding: Holding, policy: Policy, **own: Any) -> None:
        super().__init__(holding, policy, **own)
        placed = [client.submit(Part, part, actor=True, pure=False) for part in parts]
        self._parts = [future.result() for future in placed]

    def work(self, handler: Handler[Any, Any], turn: Turn, message: Any) -> Any:
        """The sum over the parts, where a sum it is; else the answer of all rows in one place."""
        if handler.name not in ROW_SUMS:
            return super().work(handler, turn, message)
        data, module = wire.encode(message), handler.answer.__module__
        missing = missing_in(message)
        working = [part.work(handler.name, module, data, missing) for part in self._parts]
        try:
            found = [wire.decode(handler.release, future.result()) for future in working]
        except WireError as odd:
            raise RuntimeError("a worker answered in another form; it must run this version of fedclust") from odd
        return handler.release.total(found)
