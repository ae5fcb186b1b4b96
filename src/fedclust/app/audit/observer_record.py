"""Records what each participant of a run sees, during the run or during a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedclust.core import wire
from fedclust.core.drive import Engine, Reply
from fedclust.core.effects import HANDLERS, Ask, Protocol, rewrite
from fedclust.core.envelope import Call, SealedAnswer
from fedclust.core.journal import ANSWER_RECORD, QUESTION_RECORD, Journal
from fedclust.core.release import Release
from fedclust.core.ring import Exact
from fedclust.core.types import PartyId
from fedclust.federation.federation import Federation
from fedclust.privacy.attacks.transcript import Observation, declared_roles, observe
from fedclust.privacy.blind.blind_adder import SeenMessages as Passed

ADD_HANDLER = "blind_aggregation.add"


@dataclass(frozen=True)
class OpenedSum:
    """A question of the script, the sum it received, and the number of that exchange."""

    ask: Ask
    total: Release
    parties: tuple[PartyId, ...]
    step: int


@dataclass
class Recording:
    """Every exchange as the coordinator carried it, and every sum as the script received it."""

    blind: bool
    exchanges: list[tuple[dict[PartyId, Call], dict[PartyId, Reply]]] = field(default_factory=list)
    opened_sums: list[OpenedSum] = field(default_factory=list)
    asked_questions: list[tuple[int, Ask]] = field(default_factory=list)

    @property
    def last_step(self) -> int:
        """The number of the last exchange."""
        return next(iter(self.exchanges[-1][0].values())).step if self.exchanges else 0

    def coordinator_view(self) -> list[Observation]:
        """Return each party's answer as it travelled, masked if it was, and the resulting sums.

        A blind coordinator knows neither questions nor shapes; the attacks get the shapes and units anyway.
        """
        seen: list[Observation] = []
        opened = {one.step: one for one in self.opened_sums}
        for calls, replies in self.exchanges:
            answers = {party: r.release for party, r in replies.items() if isinstance(r, SealedAnswer)}
            for party, release in answers.items():
                call = calls[party]
                if call.handler == ADD_HANDLER:
                    if call.step in opened:
                        seen.append(_observe_encrypted(opened[call.step], (party,), release.numbers))
                    continue
                seen.append(observe(call.step, HANDLERS[call.handler], (party,), call.message, release))
            step = next(iter(calls.values())).step
            if self.blind and step in opened and answers and all(c.handler == ADD_HANDLER for c in calls.values()):
                numbers = next(iter(answers.values())).total(list(answers.values())).numbers
                seen.append(_observe_encrypted(opened[step], tuple(answers), numbers))
        return seen if self.blind else seen + self.lead_view()

    def lead_view(self) -> list[Observation]:
        """Return the sums and their questions, as the party that runs the script sees them."""
        return [_observe_sum(one) for one in self.opened_sums]

    def site_view(self, party: PartyId) -> list[Observation]:
        """Return the questions that one site was asked."""
        found = []
        for step, ask in self.asked_questions:
            message = ask.message if ask.messages is None else ask.messages.get(party)
            if message is not None and (ask.among is None or party in ask.among):
                found.append(observe(step, ask.handler, (party,), message, None))
        return found


class RecordingEngine:
    """Wraps an engine and records every exchange."""

    def __init__(self, engine: Engine, recording: Recording) -> None:
        self.engine, self.recording, self.parties = engine, recording, engine.parties

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        """Carry the calls and keep both sides."""
        replies = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        self.recording.exchanges.append((dict(calls), dict(replies)))
        return replies


def record_federation(fed: Federation, engine: Engine | None = None) -> Recording:
    """Record what happens in a federation from now on; `engine` replaces the federation's own engine."""
    recording = Recording(blind=fed.aggregation.is_blind)
    fed.use_engine(RecordingEngine(fed.engine if engine is None else engine, recording))
    plainly = fed.run

    def run(protocol: Protocol[Any], **options: Any) -> Any:
        return plainly(_record_asks(protocol, recording), **options)

    fed.run = run  # type: ignore[method-assign]  # the script itself, before masks or encryption
    return recording


def record_replay(fed: Federation) -> Recording:
    """Record what a replayed run reads from its own journal, which no engine sees."""
    recording = record_federation(fed)
    coordinator = fed._coordinator  # noqa: SLF001 answers from the journal pass nowhere else
    exchange = coordinator._exchange_step  # noqa: SLF001

    def listen(ask: Ask, calls: Mapping[PartyId, Call], need: int) -> Mapping[PartyId, Reply]:
        replies = exchange(ask, calls, need)
        recording.exchanges.append((dict(calls), dict(replies)))
        return replies

    coordinator._exchange_step = listen  # type: ignore[method-assign]  # noqa: SLF001
    return recording


def read_adder_journal(path: Path) -> list[tuple[dict[PartyId, Call], dict[PartyId, Reply]]]:
    """Read the journal of a blind coordinator: who was asked and who answered, in bytes that it cannot read."""
    journal, found = Journal(path), list[tuple[dict[PartyId, Call], dict[PartyId, Reply]]]()
    try:
        for step in range(1, journal.last_step + 1):
            asked, answered = (journal.recall(kind, step) for kind in (QUESTION_RECORD, ANSWER_RECORD))
            if asked is not None and answered is not None:
                calls = {p: Call.decode(b) for p, b in wire.decode(Passed, asked).messages.items()}
                replies = {p: SealedAnswer.decode(b) for p, b in wire.decode(Passed, answered).messages.items()}
                found.append((calls, dict(replies)))
    finally:
        journal.close()
    return found


def _record_asks(protocol: Protocol[Any], recording: Recording) -> Protocol[Any]:
    def lower(ask: Ask) -> Protocol[Any]:
        answer = yield ask
        recording.asked_questions.append((recording.last_step, ask))
        if ask.want == "total":
            # A sum that the journal stores as one record has no exchange of its own.
            step = max(recording.last_step, recording.opened_sums[-1].step + 1 if recording.opened_sums else 0)
            recording.opened_sums.append(OpenedSum(ask, answer[0], answer[1], step))
        return answer

    return rewrite(protocol, lower)


def _observe_sum(one: OpenedSum) -> Observation:
    return observe(one.step, one.ask.handler, one.parties, one.ask.message, one.total)


def _observe_encrypted(one: OpenedSum, parties: tuple[PartyId, ...], numbers: Exact) -> Observation:
    """Return numbers as a blind coordinator has them, in the shapes and units of the answer they hide.

    The attacker is also given which of them are padding.
    """
    at, fields = 0, {}
    for name in one.total.schema():
        form: Exact = one.total.field_value(name)
        count = form.limbs.size // 2
        fields[name] = replace(form, limbs=numbers.limbs[at : at + count].reshape(form.limbs.shape))
        at += count
    return Observation(one.step, one.ask.handler.name, parties, {}, fields, declared_roles(one.ask.handler))
