"""All parties in one process: the engine of simulations, tests, the demo and thousands of small parties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedclust.core.drive import Reply
from fedclust.core.envelope import Answer, Call
from fedclust.core.types import PartyId
from fedclust.kernels import _threads
from fedclust.site.server import Desk

ENOUGH = 1 << 16  # values at a party for which a thread is worth waking


class LocalEngine:
    """Calls desks one after the other. With `wire=True` every call and answer travels as bytes, as between machines."""

    def __init__(self, desks: Mapping[PartyId, Desk], *, wire: bool = False) -> None:
        self.desks = dict(desks)
        self.parties = tuple(desks)
        self.wire = wire

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:  # noqa: ARG002
        found: dict[PartyId, Reply] = {}
        if not self._worth_sharing(calls):
            for party, call in calls.items():
                found[party] = self._answer_by_wire(party, call) if self.wire else self.desks[party].answer(call)
            return found

        def work(some: Iterator[PartyId]) -> dict[PartyId, Reply]:
            ask = self._answer_by_wire if self.wire else self._answer
            with _threads.alone():
                return {party: ask(party, calls[party]) for party in some}

        for call in calls.values():
            _ = call.digest  # made once, before threads ask for it
        for part in _threads.spread(list(calls), work):
            found.update(part)
        return {party: found[party] for party in calls}

    def _worth_sharing(self, calls: Mapping[PartyId, Call]) -> bool:
        """Whether threads should take whole parties: many, none much larger than the others, all with work enough."""
        threads = _threads.threads()
        if threads == 1 or len(calls) < 2 * threads:
            return False
        sizes = [self.desks[party].holding.size for party in calls]
        return min(sizes) >= ENOUGH and 2 * threads * max(sizes) <= sum(sizes)

    def _answer(self, party: PartyId, call: Call) -> Reply:
        return self.desks[party].answer(call)

    def _answer_by_wire(self, party: PartyId, call: Call) -> Reply:
        return Answer.to(call.digest, self.desks[party].answer_bytes(call.packed)).reply()
