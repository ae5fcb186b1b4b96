"""The blind coordinator: it passes encrypted calls on, adds the masked answers, and records what it saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedclust.core import wire
from fedclust.core.drive import Engine, Reply, refuse_other_forms
from fedclust.core.envelope import Call, SealedAnswer
from fedclust.core.journal import ANSWER_RECORD, QUESTION_RECORD, Journal
from fedclust.core.types import PartyId


@dataclass(frozen=True)
class SeenMessages:
    """The bytes of one exchange by party."""

    messages: dict[str, bytes]


class AddingEngine:
    """Wraps another engine so that the lead gets sums instead of single answers."""

    def __init__(self, engine: Engine, journal: Journal | None = None) -> None:
        self.engine = engine
        self.journal = journal

    @property
    def parties(self) -> tuple[PartyId, ...]:
        return self.engine.parties

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        """Carry calls; if a sum is wanted and everyone answered, return it under the first party's name."""
        replies = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        if self.journal:
            step = next(iter(calls.values())).step
            self.journal.write(
                QUESTION_RECORD, step, wire.encode(SeenMessages({p: call.wire_bytes for p, call in calls.items()}))
            )
            answers = {p: r.wire_bytes for p, r in replies.items() if isinstance(r, SealedAnswer)}
            self.journal.write(ANSWER_RECORD, step, wire.encode(SeenMessages(answers)))
        if any(call.want != "total" for call in calls.values()):
            return replies
        sums = {p: r for p, r in refuse_other_forms(replies).items() if isinstance(r, SealedAnswer)}
        if len(sums) < len(calls):
            return replies
        total = next(iter(sums.values())).release.total([reply.release for reply in sums.values()])
        nothing = replace(total, numbers=replace(total.numbers, limbs=0 * total.numbers.limbs), shape=b"")
        first = next(iter(sums))
        return {p: replace(r, release=total if p == first else nothing) for p, r in sums.items()}
