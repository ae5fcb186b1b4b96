"""The loop that carries out an algorithm's effects through an engine and records each step.

A step is atomic: either enough parties answer and the algorithm continues, or it gets `QuorumLost`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from typing import Protocol as Structural

from fedclust.core import wire
from fedclust.core.effects import (
    ALL_PARTIES,
    Ask,
    AtStep,
    Handler,
    HidesRounds,
    Opening,
    Protocol,
    Quorum,
    Report,
    needed_answers,
)
from fedclust.core.envelope import (
    REMEDIES,
    STUDY_OR_SITE_REFUSALS,
    STUDY_REFUSALS,
    Answer,
    Call,
    Envelope,
    Refusal,
    SealedAnswer,
)
from fedclust.core.errors import JournalError, QuorumLost, RunFailed, WireError
from fedclust.core.journal import ANSWER_RECORD, OPENING_RECORD, QUESTION_RECORD, Journal
from fedclust.core.release import Release
from fedclust.core.types import PartyId

T = TypeVar("T")
R = TypeVar("R", bound=Release)
Reply = SealedAnswer | Refusal
PLAUSIBILITY_CHUNK_ANSWERS = 512  # how many answers are checked together
Watch = Callable[[Mapping[str, Any]], None]


class Engine(Structural):
    """Carries calls to parties and returns their answers; a party that does not answer is left out."""

    @property
    def parties(self) -> tuple[PartyId, ...]: ...
    def exchange(
        self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int
    ) -> dict[PartyId, Reply]: ...


class StepRecorder(Structural):
    """Notes what became of each step, so that others can follow the run."""

    def record_step(
        self, ask: Ask, calls: Mapping[PartyId, Call], replies: Mapping[PartyId, Reply], need: int
    ) -> None: ...


class StepSettler(Structural):
    """Settles steps without asking parties, as a replay of a run does."""

    def settle_step(self, ask: Ask, calls: Mapping[PartyId, Call], need: int) -> Any:
        """Return what `Coordinator.settle` would return, or raise what it would raise."""


@dataclass(frozen=True)
class Absence:
    """A party that was asked and did not contribute."""

    step: int
    handler: str
    party: PartyId
    code: str


@dataclass
class Coordinator:
    """The state of one run: its engine, its journal, the current step, and who was absent when."""

    engine: Engine
    run: str = "run"
    journal: Journal | None = None
    timeout: float | None = None
    quorum: Quorum = ALL_PARTIES
    step: int = 0
    absences: list[Absence] = field(default_factory=list)
    received_bytes: dict[PartyId, int] = field(default_factory=dict)
    recorder: StepRecorder | None = None
    settler: StepSettler | None = None  # settles all steps instead of the engine
    _skip_journal: bool = False

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
            if isinstance(effect, (Report, HidesRounds)):
                if watch and isinstance(effect, Report):
                    watch(effect.facts)
                continue
            try:
                answer = self.settle_opening(effect) if isinstance(effect, Opening) else self.settle(effect)
            except QuorumLost as missed:
                failure = missed

    def settle_opening(self, opening: Opening) -> tuple[Any, tuple[PartyId, ...]]:
        """Carry out steps of which only the final result is recorded; interrupted steps start again from the first."""
        place = self.step + 1
        known = self.journal.recall(OPENING_RECORD, place) if self.journal else None
        if known is not None:
            found = wire.decode(_OpeningRecord, known)
            self.step = found.last_step
            return wire.decode(opening.release, found.release), found.parties
        self.step = max(self.step, self.journal.last_step if self.journal else 0)
        unwritten, self._skip_journal = self._skip_journal, True
        try:
            total, parties = self.drive(opening.steps(self.step + 1))
        finally:
            self._skip_journal = unwritten
        if self.journal:
            self.journal.write(
                OPENING_RECORD, place, wire.encode(_OpeningRecord(wire.encode(total), parties, self.step))
            )
        return total, parties

    def settle(self, ask: Ask) -> Any:
        """Carry out one step: ask, check the quorum, combine the answers."""
        self.step += 1
        calls = self._make_calls(ask)
        need = needed_answers(self.quorum if ask.quorum is None else ask.quorum, len(calls))
        if self.settler is not None:
            return self.settler.settle_step(ask, calls, need)
        replies = self._exchange_step(ask, calls, need)
        if self.recorder is not None:
            self.recorder.record_step(ask, calls, replies, need)
        sealed = {party: r.release for party, r in replies.items() if isinstance(r, SealedAnswer)}
        missing = missing_parties(calls, replies)
        if len(sealed) < need:
            raise quorum_lost_error(ask.handler.name, len(sealed), len(calls), need, missing)
        self.absences += [Absence(self.step, ask.handler.name, party, code) for party, code in missing.items()]
        if ask.want == "total":
            return ask.handler.release.total(list(sealed.values())), tuple(sealed)
        return sealed

    def _make_calls(self, ask: Ask) -> dict[PartyId, Call]:
        def call(message: Any, cohort: tuple[PartyId, ...]) -> Call:
            if isinstance(message, AtStep):
                message = message.make_message(self.step)
            return Call(self.run, self.step, ask.handler.name, message, ask.want, cohort, ask.masks)

        if ask.messages is not None:
            cohort = tuple(ask.messages)
            return {party: call(message, cohort) for party, message in ask.messages.items()}
        cohort = self.engine.parties if ask.among is None else ask.among
        return dict.fromkeys(cohort, call(ask.message, cohort))

    def _exchange_step(self, ask: Ask, calls: Mapping[PartyId, Call], need: int) -> Mapping[PartyId, Reply]:
        """Return the usable replies of this step, from the journal if it has them, otherwise from the parties."""
        known = self._recall_or_note(ask, calls, need)
        if known is not None:
            return known
        replies = self.engine.exchange(calls, timeout=self.timeout, quorum=need)
        usable = refuse_unusable(ask, calls, self._drop_foreign_replies(calls, replies))
        if self.journal is not None and not self._skip_journal:
            # Record an unusable reply as a refusal, so that a resumed run asks that party again.
            self.journal.write(ANSWER_RECORD, self.step, _encode_replies(usable))
        return usable

    def _recall_or_note(self, ask: Ask, calls: Mapping[PartyId, Call], need: int) -> Mapping[PartyId, Reply] | None:
        """Return the recorded replies of this step; if there are none, record the question now and return None."""
        if self.journal is None:
            return None
        if self._skip_journal:
            self.journal.write(QUESTION_RECORD, self.step, b"")
            return None
        known = recall_replies(self.journal, self.step, calls)
        if known is not None:
            known = refuse_unusable(ask, calls, known)  # an earlier version recorded answers before it checked them
            answered = sum(isinstance(reply, SealedAnswer) for reply in known.values())
            if answered >= need or self.journal.last_step != self.step:
                return known  # the run ended here because answers were missing, so a resumed run asks again
        if self.journal.recall(QUESTION_RECORD, self.step) is None:
            self.journal.write(QUESTION_RECORD, self.step, _digest_calls(calls))
        return None

    def _drop_foreign_replies(
        self, calls: Mapping[PartyId, Call], replies: Mapping[PartyId, Reply]
    ) -> Mapping[PartyId, Reply]:
        """Keep replies to this step from parties that were asked; drop late and foreign ones."""
        kept: dict[PartyId, Reply] = {}
        for party in calls:
            reply = replies.get(party)
            if isinstance(reply, Refusal):
                kept[party] = reply
            elif isinstance(reply, SealedAnswer) and (
                reply.party,
                reply.run,
                reply.step,
                reply.handler,
                reply.masks,
            ) == (
                party,
                self.run,
                self.step,
                calls[party].handler,
                calls[party].masks,
            ):
                kept[party] = reply
                self.received_bytes[party] = self.received_bytes.get(party, 0) + reply.size
        return kept


def missing_parties(calls: Mapping[PartyId, Call], replies: Mapping[PartyId, Reply]) -> dict[PartyId, str]:
    """Return why each party that was asked did not contribute."""
    return {
        party: r.code if isinstance(r := replies.get(party), Refusal) else "no-answer"
        for party in calls
        if not isinstance(replies.get(party), SealedAnswer)
    }


def recall_replies(journal: Journal, step: int, calls: Mapping[PartyId, Call]) -> Mapping[PartyId, Reply] | None:
    """Return the recorded replies of a step, which must match the recorded question; None if it has no answers."""
    asked, answered = journal.recall(QUESTION_RECORD, step), journal.recall(ANSWER_RECORD, step)
    if asked is not None and asked != _digest_calls(calls):
        raise JournalError(
            f"step {step} differs from the step recorded in the journal; resume with the same study, data and "
            "version of fedclust"
        )
    return None if answered is None else decode_replies(answered)


def refuse_unusable(
    ask: Ask, calls: Mapping[PartyId, Call], replies: Mapping[PartyId, Reply]
) -> Mapping[PartyId, Reply]:
    """Turn every unusable reply into a refusal by its party. Masked replies cannot be checked for plausibility."""
    replies = refuse_other_types(ask.handler.release, read_as_declared(ask.handler, replies))
    if ask.want == "total":
        replies = refuse_other_forms(replies)
    return refuse_impossible(ask.handler.release, calls, replies) if ask.masks is None else replies


def refuse_other_forms(replies: Mapping[PartyId, Reply]) -> Mapping[PartyId, Reply]:
    """Turn every reply whose shapes or units differ from the majority's into a refusal by its party."""
    forms = {party: r.release.form() for party, r in replies.items() if isinstance(r, SealedAnswer)}
    if len(set(forms.values())) <= 1:
        return replies
    usual, _ = Counter(forms.values()).most_common(1)[0]
    return _refuse_parties({party for party, form in forms.items() if form != usual}, "odd-answer", replies)


def read_as_declared(handler: Handler[Any, Any], replies: Mapping[PartyId, Reply]) -> Mapping[PartyId, Reply]:
    """Give answers that a site in this process read as a plain copy of their type the declared type again."""
    if handler.received is handler.release:
        return replies
    return {
        party: replace(r, release=handler.release(*(r.release.field_value(name) for name in handler.schema)))
        if isinstance(r, SealedAnswer) and type(r.release) is handler.received
        else r
        for party, r in replies.items()
    }


def refuse_other_types(kind: type[Release], replies: Mapping[PartyId, Reply]) -> Mapping[PartyId, Reply]:
    """Turn every reply of another type than the question asks for into a refusal by its party."""
    odd = {party for party, r in replies.items() if isinstance(r, SealedAnswer) and type(r.release) is not kind}
    return _refuse_parties(odd, "odd-answer", replies)


def _refuse_parties(parties: set[PartyId], code: str, replies: Mapping[PartyId, Reply]) -> Mapping[PartyId, Reply]:
    if not parties:
        return replies
    return {party: Refusal(party, code) if party in parties else reply for party, reply in replies.items()}


def refuse_impossible(
    kind: type[Release], calls: Mapping[PartyId, Call], replies: Mapping[PartyId, Reply]
) -> Mapping[PartyId, Reply]:
    """Turn every reply that cannot be true into a refusal by its party."""
    sealed = {party: r.release for party, r in replies.items() if isinstance(r, SealedAnswer)}
    if not sealed:
        return replies
    first = calls[next(iter(sealed))]
    if first.want == "total":
        parts = list(sealed.values())
        some = (parts[at : at + PLAUSIBILITY_CHUNK_ANSWERS] for at in range(0, len(parts), PLAUSIBILITY_CHUNK_ANSWERS))
        sound = [good for lot in some for good in kind.plausible(lot, first.message)]
    else:
        sound = [kind.plausible([own], calls[party].message)[0] for party, own in sealed.items()]
    false = {party for party, good in zip(sealed, sound, strict=True) if not good}
    return _refuse_parties(false, "impossible-answer", replies)


def check_opened_sum(release: R, ask: Any) -> R:
    """Refuse an opened sum that cannot be true; masks hide which party sent the wrong numbers."""
    if not release.plausible([release], ask)[0]:
        raise RunFailed(
            f"a sum of {type(release).__qualname__} has an impossible value: a site sent wrong numbers, "
            "and the masks hide which site it was. Check trouble.log at each site. To find the "
            "site, run the study in plain mode on data that may be shared",
            must_restart=True,
        )
    return release


def _digest_calls(calls: Mapping[PartyId, Call]) -> bytes:
    first = next(iter(calls.values()), None)
    if first is not None and all(call is first for call in calls.values()):
        return first.digest
    return b"".join(call.digest for call in calls.values())


def quorum_lost_error(name: str, answered: int, asked: int, need: int, missing: dict[PartyId, str]) -> QuorumLost:
    """Make the error for a question that too few parties answered, with the reasons and the remedy."""
    reasons: Sequence[str] = [f"{party}: {REMEDIES.get(code, code)}" for party, code in missing.items()]
    shown = "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
    advice, must_restart = _advise_on_refusals(set(missing.values()))
    text = f"{name}: {answered} of {asked} parties answered, but {need} are required ({shown}). {advice}"
    return QuorumLost(text, missing, must_restart=must_restart)


def _advise_on_refusals(codes: set[str]) -> tuple[str, bool]:
    """Return what to do about refusals, and whether it needs a new run, because a run's study cannot change."""
    change = "change the study, or set quorum in it, and start a new run in another folder"
    if codes <= STUDY_REFUSALS:
        return change.capitalize(), True
    if codes & (STUDY_REFUSALS | STUDY_OR_SITE_REFUSALS):
        return f"Fix the problems that the sites can fix, and resume. For the other problems, {change}", False
    return "Fix the problem and resume, or set quorum and start a new run", False


@dataclass(frozen=True)
class _OpeningRecord:
    release: bytes
    parties: tuple[str, ...]
    last_step: int


@dataclass(frozen=True)
class _RecordedReplies:
    sealed: tuple[bytes, ...]
    refused: dict[str, str]


def _encode_replies(replies: Mapping[PartyId, Reply]) -> bytes:
    sealed = tuple(r.wire_bytes for r in replies.values() if isinstance(r, SealedAnswer))
    return wire.encode(_RecordedReplies(sealed, {p: r.code for p, r in replies.items() if isinstance(r, Refusal)}))


def decode_replies(data: bytes) -> dict[PartyId, Reply]:
    answers = wire.decode(_RecordedReplies, data)
    replies: dict[PartyId, Reply] = {party: Refusal(party, code) for party, code in answers.refused.items()}
    for packed in answers.sealed:
        reply = _decode_sealed(packed)
        replies[reply.party] = reply
    return replies


def _decode_sealed(packed: bytes) -> Reply:
    """Decode a recorded answer, or return a refusal if it cannot be read."""
    try:
        return SealedAnswer.decode(packed)
    except WireError:
        return Answer(wire.decode(Envelope, packed).cohort, b"", packed, "").to_reply()
