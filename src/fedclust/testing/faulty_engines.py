"""Engines that misbehave by a plan, or need no sites at all."""

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
    """Another engine, with faults: `plan(step, party)` names what goes wrong, or None.

    silent   the question does not come, and no answer either
    lost     the question comes, the answer gets lost
    refuse   the site says no
    late     the answer to an earlier step comes instead
    foreign  the answer of another run comes instead
    """

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.engine = engine
        self.plan = plan
        self.parties = engine.parties

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        """Carry the calls, then spoil what the plan says."""
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
    """Another engine, with everything that passes written down."""

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
    """A recorded run without its sites: every step is answered as it was."""

    def __init__(self, journal: Path, parties: Sequence[PartyId]) -> None:
        self.journal = Journal(journal)
        self.parties = tuple(parties)

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:  # noqa: ARG002
        """The recorded answers to these very calls."""
        step = next(iter(calls.values())).step
        replies = recall_replies(self.journal, step, calls)
        if replies is None:
            raise JournalError(f"the journal ends before step {step}")
        return dict(replies)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.close()
