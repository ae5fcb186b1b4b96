"""Faulty engines fail according to a plan, and the replay engine answers from a journal without sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

from fedclust.core.drive import Engine, Reply, recall_replies
from fedclust.core.envelope import Call, Refusal, SealedAnswer
from fedclust.core.errors import JournalError
from fedclust.core.journal import Journal
from fedclust.core.types import PartyId

Fault = Literal["silent", "lost", "refuse", "late", "foreign"]
Plan = Callable[[int, PartyId], Fault | None]


class Faulty:
    """Wraps an engine and adds faults: `plan(step, party)` returns a fault or None.

    silent   the question does not arrive, so there is no answer
    lost     the question arrives, but the answer is lost
    refuse   the site refuses
    late     the answer to an earlier step arrives instead
    foreign  the answer from another run arrives instead
    """

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.engine = engine
        self.plan = plan
        self.parties = engine.parties

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        """Carry the calls, then apply the faults of the plan."""
        faults = {party: self.plan(call.step, party) for party, call in calls.items()}
        asked = {party: call for party, call in calls.items() if faults[party] not in ("silent", "refuse")}
        replies = self.engine.exchange(asked, timeout=timeout, quorum=quorum)
        for party, fault in faults.items():
            reply = replies.get(party)
            if fault == "lost":
                replies.pop(party, None)
            elif fault == "refuse":
                replies[party] = Refusal(party, "failed")
            elif fault == "late" and isinstance(reply, SealedAnswer):
                replies[party] = replace(reply, step=reply.step - 1)
            elif fault == "foreign" and isinstance(reply, SealedAnswer):
                replies[party] = replace(reply, run="another")
        return replies


class Recorder:
    """Wraps an engine and records every exchange."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.parties = engine.parties
        self.exchanges: list[tuple[dict[PartyId, Call], dict[PartyId, Reply]]] = []

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        """Carry the calls."""
        replies = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        self.exchanges.append((dict(calls), dict(replies)))
        return replies


class Replay:
    """Replays a recorded run without its sites: every step gets its recorded answers."""

    def __init__(self, journal: Path, parties: Sequence[PartyId]) -> None:
        self.journal = Journal(journal)
        self.parties = tuple(parties)

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:  # noqa: ARG002
        """The recorded answers to exactly these calls."""
        step = next(iter(calls.values())).step
        replies = recall_replies(self.journal, step, calls)
        if replies is None:
            raise JournalError(f"the journal has no answers for step {step}, so the run cannot be replayed")
        return dict(replies)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.close()
