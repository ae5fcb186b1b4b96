"""The local engine runs all parties in one process, for simulations, tests, the demo and thousands of small parties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedclust.core.drive import Reply
from fedclust.core.envelope import Answer, Call
from fedclust.core.types import PartyId
from fedclust.kernels import _threads
from fedclust.site.server import SiteServer

MIN_THREADED_VALUES = 1 << 16  # values at a party that make a thread worthwhile


class LocalEngine:
    """Calls site servers in turn. With `wire=True` calls and answers travel as bytes, as between machines."""

    def __init__(self, site_servers: Mapping[PartyId, SiteServer], *, wire: bool = False) -> None:
        self.site_servers = dict(site_servers)
        self.parties = tuple(site_servers)
        self.wire = wire

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:  # noqa: ARG002
        found: dict[PartyId, Reply] = {}
        if not self._should_use_threads(calls):
            for party, call in calls.items():
                found[party] = self._answer_by_wire(party, call) if self.wire else self.site_servers[party].answer(call)
            return found

        def work(some: Iterator[PartyId]) -> dict[PartyId, Reply]:
            ask = self._answer_by_wire if self.wire else self._answer
            with _threads.single_threaded():
                return {party: ask(party, calls[party]) for party in some}

        for call in calls.values():
            _ = call.digest  # computed once, before threads need it
        for part in _threads.run_in_threads(list(calls), work):
            found.update(part)
        return {party: found[party] for party in calls}

    def _should_use_threads(self, calls: Mapping[PartyId, Call]) -> bool:
        """Whether threads should take whole parties: if they are many, of similar size, and each has enough work."""
        threads = _threads.threads()
        if threads == 1 or len(calls) < 2 * threads:
            return False
        sizes = [self.site_servers[party].site_data.value_count for party in calls]
        return min(sizes) >= MIN_THREADED_VALUES and 2 * threads * max(sizes) <= sum(sizes)

    def _answer(self, party: PartyId, call: Call) -> Reply:
        return self.site_servers[party].answer(call)

    def _answer_by_wire(self, party: PartyId, call: Call) -> Reply:
        return Answer.from_reply(call.digest, self.site_servers[party].answer_bytes(call.wire_bytes)).to_reply()
