"""A blind run between machines: the lead sends its questions to the coordinator together, and gets the sums back.

The coordinator passes on what it cannot read, adds the masked answers, and replies to the lead. It does not drive the
run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol as Structural

from fedclust.core import wire
from fedclust.core.drive import Engine, Reply
from fedclust.core.envelope import Answer, Call, SealedAnswer
from fedclust.core.errors import WireError
from fedclust.core.greeting import Greeting, Welcome
from fedclust.core.types import PartyId

COORDINATOR_ID: PartyId = ""


@dataclass(frozen=True)
class CallBatch:
    """The calls of one step, by party."""

    calls: dict[str, bytes]
    quorum: int


@dataclass(frozen=True)
class SummedReplies:
    """The replies to a batch, by party, after the coordinator has added them."""

    answers: dict[str, bytes]


class MessageLink(Structural):
    """Carries the lead's bytes to the coordinator, as every link of an engine does."""

    def carry(self, requests: Mapping[PartyId, bytes], *, timeout: float) -> Iterator[tuple[PartyId, bytes]]: ...


class LeadEngine:
    """A lead's connection to the sites, including its own, through the coordinator."""

    def __init__(self, link: MessageLink, parties: tuple[PartyId, ...], *, run: str, study: str, greeted: bool) -> None:
        self.link = link
        self.parties = parties
        self._greeting = Greeting.for_party(COORDINATOR_ID, run=run, study=study)
        self._greeted = greeted

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        wait = math.inf if timeout is None else timeout
        if not self._greeted:
            self._greeted = any(True for _ in self.link.carry({COORDINATOR_ID: self._greeting.encode()}, timeout=wait))
        request = wire.encode(CallBatch({party: call.wire_bytes for party, call in calls.items()}, quorum))
        for _, data in self.link.carry({COORDINATOR_ID: request}, timeout=wait):
            answers = wire.decode(SummedReplies, data).answers
            return {party: wire.decode(Answer, data).to_reply() for party, data in answers.items() if party in calls}
        return {}


class LeadRelay:
    """The coordinator's answers to a lead: `answer_message` carries a batch to the sites and gives back what came,
    added.
    """

    party = COORDINATOR_ID

    def __init__(self, engine: Engine, folder: Path, forget_replies: Callable[[list[PartyId]], None]) -> None:
        self.engine = engine
        self.folder = folder
        self._forget_replies = forget_replies

    def answer_message(self, data: bytes) -> bytes:
        if data[:1] == b"{":
            return Welcome.reply_to(Greeting.decode(data), COORDINATOR_ID).encode()
        batch = wire.decode(CallBatch, data)
        calls = {party: Call.decode(packed) for party, packed in batch.calls.items()}
        if not calls or not set(calls) <= set(self.engine.parties):
            raise WireError("the lead sent a question for sites that are not in this study")
        replies = self.engine.exchange(calls, timeout=None, quorum=batch.quorum)
        lacking = [party for party in calls if not isinstance(replies.get(party), SealedAnswer)]
        if len(calls) - len(lacking) < batch.quorum:
            self._forget_replies(lacking)  # the lead ends here; what it asks again, they are asked again
        return wire.encode(
            SummedReplies({p: wire.encode(Answer.from_reply(calls[p].digest, reply)) for p, reply in replies.items()})
        )
