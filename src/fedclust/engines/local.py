"""All parties in one process: the engine of simulations, tests, the demo and thousands of small parties."""

from __future__ import annotations

from collections.abc import Mapping

from fedclust.core.drive import Reply
from fedclust.core.envelope import Call, Refusal, Sealed
from fedclust.core.errors import WireError
from fedclust.core.types import PartyId
from fedclust.site.desk import Desk


class LocalEngine:
    """Calls desks one after the other. With `wire=True` every call and answer travels as bytes, as between machines."""

    def __init__(self, desks: Mapping[PartyId, Desk], *, wire: bool = False) -> None:
        self.desks = dict(desks)
        self.parties = tuple(desks)
        self.wire = wire

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:  # noqa: ARG002
        ask = self._by_wire if self.wire else self._directly
        return {party: ask(self.desks[party], call) for party, call in calls.items()}

    def _directly(self, desk: Desk, call: Call) -> Reply:
        return desk.answer(call)

    def _by_wire(self, desk: Desk, call: Call) -> Reply:
        reply = desk.answer_bytes(call.packed)
        try:
            return Sealed.decode(reply.packed) if isinstance(reply, Sealed) else reply
        except WireError:
            return Refusal(desk.party, "odd-answer")
