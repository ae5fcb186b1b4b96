"""The loop that settles an algorithm's effects through an engine, and remembers each step.

A step is atomic: either enough parties answered and the algorithm goes on, or it learns `QuorumLost`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from typing import Protocol as Structural

from fedclust.core import wire
from fedclust.core.effects import ALL, Ask, AtStep, Counted, Opening, Protocol, Quorum, Report, needed
from fedclust.core.envelope import OF_EITHER, OF_STUDY, REMEDIES, Answer, Call, Envelope, Refusal, Sealed
from fedclust.core.errors import JournalError, QuorumLost, RunFailed, WireError
from fedclust.core.journal import ANSWERED, ASKED, OPENED, Journal
from fedclust.core.release import Release
from fedclust.core.types import PartyId

T = TypeVar("T")
R = TypeVar("R", bound=Release)
Reply = Sealed | Refusal
AT_ONCE = 512  # answers that are looked at side by side
Watch = Callable[[Mapping[str, Any]], None]


class Engine(Structural):
    """What carries calls to parties and brings their answers; a party that does not answer is left out."""

    @property
    def parties(self) -> tuple[PartyId, ...]: ...
    def exchange(
        self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int
    ) -> dict[PartyId, Reply]: ...


@dataclass(frozen=True)
class Absence:
    """A party that was asked and did not contribute."""

    step: int
    handler: str
    party: PartyId
    code: str


@dataclass
class Coordinator:
    """One run's place in its script: the engine, the journal, the step it is at, and who was absent when."""

    engine: Engine
    run: str = "run"
    journal: Journal | None = None
    timeout: float | None = None
    quorum: Quorum = ALL
    step: int = 0
    absences: list[Absence] = field(default_factory=list)
    received: dict[PartyId, int] = field(default_factory=dict)
    _unwritten: bool = False

    def drive(self, protocol: Protocol[T], watch: Watch | None = None) -> T:
        """Run a protocol to its result."""
        answer: Any = None
        failure: QuorumLost | None = None
        while True:
            try:
                effect = protocol.throw(failure) if failure else protocol.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            answer, failure = None, None
            if isinstance(effect, (Report, Counted)):
                if watch and isinstance(effect, Report):
                    watch(effect.facts)
                continue
            try:
                answer = self.open(effect) if isinstance(effect, Opening) else self.settle(effect)
            except QuorumLost as missed:
                failure = missed

    def open(self, opening: Opening) -> tuple[Any, tuple[PartyId, ...]]:
        """Steps whose answers are not written down, but for what they open; begun again where they were cut short."""
        place = self.step + 1
        known = self.journal.recall(OPENED, place) if self.journal else None
        if known is not None:
            found = wire.decode(_Opened, known)
            self.step = found.last
            return wire.decode(opening.release, found.release), found.parties
        self.step = max(self.step, self.journal.last if self.journal else 0)
        unwritten, self._unwritten = self._unwritten, True
        try:
            total, parties = self.drive(opening.steps(self.step + 1))
        finally:
            self._unwritten = unwritten
        if self.journal:
            self.journal.write(OPENED, place, wire.encode(_Opened(wire.encode(total), parties, self.step)))
        return total, parties

    def settle(self, ask: Ask) -> Any:
        """One step: ask, check the quorum, combine."""
        self.step += 1
        calls = self._calls(ask)
        need = needed(self.quorum if ask.quorum is None else ask.quorum, len(calls))
        replies = self._exchange(ask, calls, need)
        sealed = {party: r.release for party, r in replies.items() if isinstance(r, Sealed)}
        missing = {
            party: r.code if isinstance(r := replies.get(party), Refusal) else "no-answer"
            for party in calls
            if party not in sealed
        }
        if len(sealed) < need:
            raise lost(ask.who.name, len(sealed), len(calls), need, missing)
        self.absences += [Absence(self.step, ask.who.name, party, code) for party, code in missing.items()]
        if ask.want == "total":
            return ask.who.release.total(list(sealed.values())), tuple(sealed)
        return sealed

    def _calls(self, ask: Ask) -> dict[PartyId, Call]:
        def call(message: Any, cohort: tuple[PartyId, ...]) -> Call:
            if isinstance(message, AtStep):
                message = message.made(self.step)
            return Call(self.run, self.step, ask.who.name, message, ask.want, cohort, ask.masks)

        if ask.messages is not None:
            cohort = tuple(ask.messages)
            return {party: call(message, cohort) for party, message in ask.messages.items()}
        cohort = self.engine.parties if ask.among is None else ask.among
        return dict.fromkeys(cohort, call(ask.message, cohort))

    def _exchange(self, ask: Ask, calls: Mapping[PartyId, Call], need: int) -> Mapping[PartyId, Reply]:
        """The replies of this step that can be used, from the journal if they are there, else from the parties."""
        known = self._recall_or_note(ask, calls, need)
        if known is not None:
            return known
        replies = self.engine.exchange(calls, timeout=self.timeout, quorum=need)
        usable = sound(ask, calls, self._valid(calls, replies))
        if self.journal is not None and not self._unwritten:
            # What cannot be used is written down as a refusal: a resumed run asks that party again.
            self.journal.write(ANSWERED, self.step, _pack(usable))
        return usable

    def _recall_or_note(self, ask: Ask, calls: Mapping[PartyId, Call], need: int) -> Mapping[PartyId, Reply] | None:
        """The replies of this step as they were recorded; None where it must be asked, which is recorded now."""
        if self.journal is None:
            return None
        if self._unwritten:
            self.journal.write(ASKED, self.step, b"")
            return None
        known = recorded(self.journal, self.step, calls)
        if known is not None:
            known = sound(ask, calls, known)  # an earlier version wrote answers down before it looked at them
            answered = sum(isinstance(reply, Sealed) for reply in known.values())
            if answered >= need or self.journal.last != self.step:
                return known  # else the run ended here for want of answers, and a resumed run asks again
        if self.journal.recall(ASKED, self.step) is None:
            self.journal.write(ASKED, self.step, _digest(calls))
        return None

    def _valid(self, calls: Mapping[PartyId, Call], replies: Mapping[PartyId, Reply]) -> Mapping[PartyId, Reply]:
        """Replies to this very step from parties that were asked; late and foreign ones are dropped."""
        kept: dict[PartyId, Reply] = {}
        for party in calls:
            reply = replies.get(party)
            if isinstance(reply, Refusal):
                kept[party] = reply
            elif isinstance(reply, Sealed) and (reply.party, reply.run, reply.step, reply.handler, reply.masks) == (
                party,
                self.run,
                self.step,
                calls[party].handler,
                calls[party].masks,
            ):
                kept[party] = reply
                self.received[party] = self.received.get(party, 0) + reply.size
        return kept


def recorded(journal: Journal, step: int, calls: Mapping[PartyId, Call]) -> Mapping[PartyId, Reply] | None:
    """What a journal holds of a step, which must be the step it was; None if it was not answered."""
    asked, answered = journal.recall(ASKED, step), journal.recall(ANSWERED, step)
    if asked is not None and asked != _digest(calls):
        raise JournalError(f"step {step} differs from the one recorded; resume with the same study, data and version")
    return None if answered is None else _unpack(answered)


def sound(ask: Ask, calls: Mapping[PartyId, Call], replies: Mapping[PartyId, Reply]) -> Mapping[PartyId, Reply]:
    """Replies that can be used; another becomes a refusal under its party's name. Masks hide what cannot be true."""
    replies = of_kind(ask.who.release, replies)
    if ask.want == "total":
        replies = alike(replies)
    return possible(ask.who.release, calls, replies) if ask.masks is None else replies


def alike(replies: Mapping[PartyId, Reply]) -> Mapping[PartyId, Reply]:
    """Replies that can be added: one in other shapes or units than most becomes a refusal under its party's name."""
    forms = {party: r.release.form() for party, r in replies.items() if isinstance(r, Sealed)}
    if len(set(forms.values())) <= 1:
        return replies
    usual, _ = Counter(forms.values()).most_common(1)[0]
    return _but({party for party, form in forms.items() if form != usual}, "odd-answer", replies)


def of_kind(kind: type[Release], replies: Mapping[PartyId, Reply]) -> Mapping[PartyId, Reply]:
    """Replies to the question that was asked; an answer to another becomes a refusal under its party's name."""
    odd = {party for party, r in replies.items() if isinstance(r, Sealed) and type(r.release) is not kind}
    return _but(odd, "odd-answer", replies)


def _but(bad: set[PartyId], code: str, replies: Mapping[PartyId, Reply]) -> Mapping[PartyId, Reply]:
    if not bad:
        return replies
    return {party: Refusal(party, code) if party in bad else reply for party, reply in replies.items()}


def possible(
    kind: type[Release], calls: Mapping[PartyId, Call], replies: Mapping[PartyId, Reply]
) -> Mapping[PartyId, Reply]:
    """Replies that can be true; another becomes a refusal under its party's name."""
    sealed = {party: r.release for party, r in replies.items() if isinstance(r, Sealed)}
    if not sealed:
        return replies
    first = calls[next(iter(sealed))]
    if first.want == "total":
        parts = list(sealed.values())
        some = (parts[at : at + AT_ONCE] for at in range(0, len(parts), AT_ONCE))
        sound = [good for lot in some for good in kind.plausible(lot, first.message)]
    else:
        sound = [kind.plausible([own], calls[party].message)[0] for party, own in sealed.items()]
    false = {party for party, good in zip(sealed, sound, strict=True) if not good}
    return _but(false, "impossible-answer", replies)


def checked(release: R, ask: Any) -> R:
    """A sum that was opened, if it can be true: of which party a masked one is false nobody can say."""
    if not release.plausible([release], ask)[0]:
        raise RunFailed(
            f"a sum of {type(release).__qualname__} is impossible: a site sent what cannot be, and masks hide which. "
            "Look at each site's trouble.log; run the study in plain mode on data that may be shared to find it",
            anew=True,
        )
    return release


def _digest(calls: Mapping[PartyId, Call]) -> bytes:
    first = next(iter(calls.values()), None)
    if first is not None and all(call is first for call in calls.values()):
        return first.digest
    return b"".join(call.digest for call in calls.values())


def lost(name: str, answered: int, asked: int, need: int, missing: dict[PartyId, str]) -> QuorumLost:
    """What to say of a question that too few answered, and what to do."""
    reasons: Sequence[str] = [f"{party}: {REMEDIES.get(code, code)}" for party, code in missing.items()]
    shown = "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
    advice, anew = _advice(set(missing.values()))
    text = f"{name}: {answered} of {asked} parties answered, need {need} ({shown}). {advice}"
    return QuorumLost(text, missing, anew=anew)


def _advice(codes: set[str]) -> tuple[str, bool]:
    """What to do about refusals, and whether only a new run can do it: a run's own study cannot be changed."""
    change = "change the study, or set quorum in it, and run it anew in another folder"
    if codes <= OF_STUDY:
        return change.capitalize(), True
    if codes & (OF_STUDY | OF_EITHER):
        return f"Mend what is a site's own and resume; for the rest {change}", False
    return "Mend that and resume, or set quorum", False


@dataclass(frozen=True)
class _Opened:
    release: bytes
    parties: tuple[str, ...]
    last: int


@dataclass(frozen=True)
class _Answers:
    sealed: tuple[bytes, ...]
    refused: dict[str, str]


def _pack(replies: Mapping[PartyId, Reply]) -> bytes:
    sealed = tuple(r.packed for r in replies.values() if isinstance(r, Sealed))
    return wire.encode(_Answers(sealed, {p: r.code for p, r in replies.items() if isinstance(r, Refusal)}))


def _unpack(data: bytes) -> dict[PartyId, Reply]:
    answers = wire.decode(_Answers, data)
    replies: dict[PartyId, Reply] = {party: Refusal(party, code) for party, code in answers.refused.items()}
    for packed in answers.sealed:
        reply = _read(packed)
        replies[reply.party] = reply
    return replies


def _read(packed: bytes) -> Reply:
    """An answer as it was written down, or a refusal of one that cannot be read."""
    try:
        return Sealed.decode(packed)
    except WireError:
        return Answer(wire.decode(Envelope, packed).cohort, b"", packed, "").reply()
