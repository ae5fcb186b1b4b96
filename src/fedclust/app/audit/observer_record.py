"""What each participant of a run got to see, written down while it happens or while it is replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedclust.core import wire
from fedclust.core.drive import Engine, Reply
from fedclust.core.effects import Ask, Protocol, rewrite
from fedclust.core.envelope import Call, Sealed
from fedclust.core.journal import ANSWERED, ASKED, Journal
from fedclust.core.release import Release
from fedclust.core.ring import Exact
from fedclust.core.types import PartyId
from fedclust.federation.federation import Federation
from fedclust.privacy.attacks.transcript import Seen, plain_fields
from fedclust.privacy.blind.blind_adder import Seen as Passed

ADDED = "blind_aggregation.add"


@dataclass(frozen=True)
class OpenedSum:
    """A question of the script and the sum it got, with the number of the exchange that brought it."""

    ask: Ask
    total: Release
    parties: tuple[PartyId, ...]
    step: int


@dataclass
class Recording:
    """Every exchange as the coordinator carried it, and every sum as the script got it."""

    blind: bool
    exchanges: list[tuple[dict[PartyId, Call], dict[PartyId, Reply]]] = field(default_factory=list)
    opened: list[OpenedSum] = field(default_factory=list)
    asked: list[tuple[int, Ask]] = field(default_factory=list)

    @property
    def step(self) -> int:
        """The number of the last exchange."""
        return next(iter(self.exchanges[-1][0].values())).step if self.exchanges else 0

    def coordinator(self) -> list[Seen]:
        """Each party's answer as it travelled, masked where it was, and the sums that came out.

        A blind coordinator knows no question and no shape; the attacks are given the shapes and units all the same.
        """
        seen: list[Seen] = []
        opened = {one.step: one for one in self.opened}
        for calls, replies in self.exchanges:
            answers = {party: r.release for party, r in replies.items() if isinstance(r, Sealed)}
            for party, release in answers.items():
                call = calls[party]
                if call.handler == ADDED:
                    if call.step in opened:
                        seen.append(_under_the_veil(opened[call.step], (party,), release.numbers))
                    continue
                seen.append(Seen(call.step, call.handler, (party,), plain_fields(call.message), _fields(release)))
            step = next(iter(calls.values())).step
            if self.blind and step in opened and answers and all(c.handler == ADDED for c in calls.values()):
                numbers = next(iter(answers.values())).total(list(answers.values())).numbers
                seen.append(_under_the_veil(opened[step], tuple(answers), numbers))
        return seen if self.blind else seen + self.lead()

    def lead(self) -> list[Seen]:
        """The sums, with their questions, as whoever drives the script sees them."""
        return [_sum(one) for one in self.opened]

    def site(self, party: PartyId) -> list[Seen]:
        """The questions that one site was asked."""
        found = []
        for step, ask in self.asked:
            message = ask.message if ask.messages is None else ask.messages.get(party)
            if message is not None and (ask.among is None or party in ask.among):
                found.append(Seen(step, ask.who.name, (party,), plain_fields(message)))
        return found


class Tap:
    """Another engine, with everything that passes written down."""

    def __init__(self, engine: Engine, recording: Recording) -> None:
        self.engine, self.recording, self.parties = engine, recording, engine.parties

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        """Carry the calls and keep both sides."""
        replies = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        self.recording.exchanges.append((dict(calls), dict(replies)))
        return replies


def record(fed: Federation, engine: Engine | None = None) -> Recording:
    """Write down what happens in a federation from now on; `engine` carries messages instead of its own."""
    recording = Recording(blind=fed.aggregation.blind)
    fed.use(Tap(fed.engine if engine is None else engine, recording))
    plainly = fed.run

    def run(protocol: Protocol[Any], **options: Any) -> Any:
        return plainly(_listened(protocol, recording), **options)

    fed.run = run  # type: ignore[method-assign]  # the script itself, before it is masked or veiled
    return recording


def record_replay(fed: Federation) -> Recording:
    """Write down what a run that goes through its own journal meets there; no engine sees that."""
    recording = record(fed)
    coordinator = fed._coordinator  # noqa: SLF001 answers from the journal pass nowhere else
    exchange = coordinator._exchange  # noqa: SLF001

    def listen(ask: Ask, calls: Mapping[PartyId, Call], need: int) -> Mapping[PartyId, Reply]:
        replies = exchange(ask, calls, need)
        recording.exchanges.append((dict(calls), dict(replies)))
        return replies

    coordinator._exchange = listen  # type: ignore[method-assign]  # noqa: SLF001
    return recording


def seen_by_adder(path: Path) -> list[tuple[dict[PartyId, Call], dict[PartyId, Reply]]]:
    """What a blind coordinator wrote down: who was asked and who answered, in bytes that it cannot read."""
    journal, found = Journal(path), list[tuple[dict[PartyId, Call], dict[PartyId, Reply]]]()
    try:
        for step in range(1, journal.last + 1):
            asked, answered = (journal.recall(kind, step) for kind in (ASKED, ANSWERED))
            if asked is not None and answered is not None:
                calls = {p: Call.decode(b) for p, b in wire.decode(Passed, asked).messages.items()}
                replies = {p: Sealed.decode(b) for p, b in wire.decode(Passed, answered).messages.items()}
                found.append((calls, dict(replies)))
    finally:
        journal.close()
    return found


def _listened(protocol: Protocol[Any], recording: Recording) -> Protocol[Any]:
    def lower(ask: Ask) -> Protocol[Any]:
        answer = yield ask
        recording.asked.append((recording.step, ask))
        if ask.want == "total":
            # A sum that a journal holds in one piece comes without an exchange of its own.
            step = max(recording.step, recording.opened[-1].step + 1 if recording.opened else 0)
            recording.opened.append(OpenedSum(ask, answer[0], answer[1], step))
        return answer

    return rewrite(protocol, lower)


def _sum(one: OpenedSum) -> Seen:
    return Seen(one.step, one.ask.who.name, one.parties, plain_fields(one.ask.message), _fields(one.total))


def _fields(release: Release) -> dict[str, Any]:
    return {name: release.field_value(name) for name in release.schema()}


def _under_the_veil(one: OpenedSum, parties: tuple[PartyId, ...], numbers: Exact) -> Seen:
    """Numbers as a blind coordinator has them, put into the shapes and units of the answer they hide.

    It is told as well which of them are filling.
    """
    at, fields = 0, {}
    for name in one.total.schema():
        form: Exact = one.total.field_value(name)
        count = form.limbs.size // 2
        fields[name] = replace(form, limbs=numbers.limbs[at : at + count].reshape(form.limbs.shape))
        at += count
    return Seen(one.step, one.ask.who.name, parties, {}, fields)
