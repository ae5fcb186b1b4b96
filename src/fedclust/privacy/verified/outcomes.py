"""What became of a step, as a coordinator passes it on and as each site checks it before its replay goes on.

A sum is proved by linear tags, and a site's own answer by a code that only sites can make. Of messages from site to
site only the recipients are passed on, because the messages open only at their recipients and only for the step in
which they were written. That a step was lost is the coordinator's word.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedclust.core import wire
from fedclust.core.drive import Reply, missing_parties, quorum_lost_error
from fedclust.core.effects import Ask, Handler, SealedMessages, Want
from fedclust.core.envelope import ENCRYPTED_CODE_PATTERN, REMEDIES, Call, SealedAnswer
from fedclust.core.errors import KeysRefused, QuorumLost, WireError
from fedclust.core.release import Release
from fedclust.core.ring import Exact
from fedclust.core.types import Array, PartyId, Units
from fedclust.privacy import keys
from fedclust.privacy.sealed_messages import STEP_BYTES
from fedclust.privacy.verified.group_key import SELF_PROVEN
from fedclust.privacy.verified.linear_tags import SumCheck, Words, add_tags

PROOF_BYTES = 16
WORDS_IN_NUMBER = 4  # of 32 bits, in a number of the ring
_LOW_32, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


@dataclass(frozen=True)
class FieldForm:
    """The shape and the units of one field of a sum; along an axis where all units are equal there is only one."""

    shape: tuple[int, ...]
    unit: Units

    @classmethod
    def of_numbers(cls, numbers: Exact) -> FieldForm:
        unit = numbers.unit
        for axis in range(unit.ndim):
            first = unit.take([0], axis) if unit.shape[axis] else unit
            if unit.shape[axis] > 1 and (unit == first).all():
                unit = first
        return cls(numbers.shape, np.ascontiguousarray(unit) if unit.ndim else unit)

    def full_unit(self) -> Units:
        if self.unit.ndim == 0:
            return self.unit
        return np.ascontiguousarray(np.broadcast_to(self.unit, self.shape))


@dataclass(frozen=True)
class AddedAnswers:
    """Sums of masked answers as words of 32 bits without carries: the low halves and what is above them."""

    forms: tuple[FieldForm, ...]
    low: bytes
    high: bytes
    tag: bytes


@dataclass(frozen=True)
class OwnAnswer:
    """A site's own answer, or the recipients of its messages, and the proof that the site made it."""

    body: bytes
    proof: bytes


@dataclass(frozen=True)
class StepOutcome:
    """What became of a step: a sum and the parties in it, answers by party, or the parties that were missing."""

    parties: tuple[str, ...]
    added: AddedAnswers | None
    answers: dict[str, OwnAnswer]
    missing: dict[str, str]


@dataclass(frozen=True)
class ExpectedStep:
    """The step that a replay has come to: what is asked, and the keys under which answers are proved.

    A sealed message stands in `calls` for the step in which it was written.
    """

    step: int
    ask: Ask
    calls: Mapping[PartyId, Call]
    need: int
    keys: str | None  # None: the answers prove themselves

    @property
    def handler(self) -> Handler[Any, Any]:
        return self.ask.handler


def bound_digest(call: Call) -> bytes:
    """Return a digest of a call in which each sealed message counts only by the step in which it was written."""
    message = call.message
    if isinstance(message, SealedMessages):
        message = replace(message, messages={sender: text[:STEP_BYTES] for sender, text in message.messages.items()})
        return replace(call, message=message).digest
    return call.digest


def stand_in_message(step: int) -> bytes:
    """Return what stands for a sealed message that was written in a step."""
    return step.to_bytes(STEP_BYTES, "big")


def prove_answer(release: Release, call: Call, party: PartyId, secret: bytes) -> bytes:
    """Return the proof of an answer as it leaves a site."""
    if call.want == "total":
        words = _split_words(release)
        return SumCheck(secret, _sum_context(call, _forms_of(release)), len(words)).make_tag(words, party)
    return _prove_own_answer(_answer_body(release, call.want), call, party, secret)


def record_outcome(ask: Ask, calls: Mapping[PartyId, Call], replies: Mapping[PartyId, Reply], need: int) -> StepOutcome:
    """Return what the coordinator passes on about a step."""
    sealed = {party: reply for party, reply in replies.items() if isinstance(reply, SealedAnswer)}
    if len(sealed) < need:
        return StepOutcome((), None, {}, missing_parties(calls, replies))
    if ask.want == "total":
        return StepOutcome(tuple(sealed), _add_answers(list(sealed.values())), {}, {})
    answers = {p: OwnAnswer(_answer_body(one.release, ask.want), one.proof) for p, one in sealed.items()}
    return StepOutcome((), None, answers, {})


def read_outcome(outcome: StepOutcome, expected: ExpectedStep, secret: bytes | None) -> Any:
    """Return what the script gets from a step, or the `QuorumLost` that it is to be given.

    Raise KeysRefused or WireError if the sites did not make it.
    """
    if outcome.missing:
        return _read_loss(outcome.missing, expected)
    if (secret is None) != (expected.handler.name in SELF_PROVEN):
        raise KeysRefused("the answers to this question cannot be proved, because there is no group key yet")
    if expected.ask.want == "total":
        if outcome.added is None or outcome.answers or secret is None:
            raise WireError("the outcome of a sum holds no sum")
        return _read_sum(outcome.added, outcome.parties, expected, secret), outcome.parties
    if outcome.added is not None or set(outcome.answers) - set(expected.calls):
        raise WireError("the outcome holds answers of parties that were not asked")
    if len(outcome.answers) < expected.need:
        raise WireError("the outcome holds fewer answers than the step needs")
    answered = [party for party in expected.calls if party in outcome.answers]  # in the order of the coordinator
    return {party: _read_answer(outcome.answers[party], party, expected, secret) for party in answered}


def _read_loss(missing: Mapping[PartyId, str], expected: ExpectedStep) -> QuorumLost:
    asked = len(expected.calls)
    known = all(code in REMEDIES or ENCRYPTED_CODE_PATTERN.fullmatch(code) for code in missing.values())
    if not known or set(missing) - set(expected.calls) or asked - len(missing) >= expected.need:
        raise WireError("the step is said to be lost, but not for reasons that would lose it")
    return quorum_lost_error(expected.handler.name, asked - len(missing), asked, expected.need, dict(missing))


def _read_sum(added: AddedAnswers, parties: Sequence[PartyId], expected: ExpectedStep, secret: bytes) -> Release:
    """Return a sum that exactly the parties asked have made."""
    if tuple(parties) != tuple(expected.calls):
        raise KeysRefused("the sum is not over the sites that were asked")
    names = list(expected.handler.schema)
    count = sum(math.prod(form.shape) for form in added.forms)
    if len(added.forms) != len(names) or any(size < 0 for form in added.forms for size in form.shape):
        raise WireError("the sum has other fields than the answers to this question")
    words = _join_words(added, WORDS_IN_NUMBER * count)
    call = next(iter(expected.calls.values()))
    check = SumCheck(secret, _sum_context(call, added.forms), len(words))
    if not check.accepts(words, added.tag, parties):
        raise KeysRefused("the sum is not what the sites have added")
    limbs, at, fields = _carry(words.reshape(-1, WORDS_IN_NUMBER)), 0, []
    for form in added.forms:
        size = math.prod(form.shape)
        fields.append(Exact(limbs[at : at + size].reshape(*form.shape, 2), form.full_unit()))
        at += size
    found: Release = expected.handler.release(*fields)
    return found


def _read_answer(own: OwnAnswer, party: PartyId, expected: ExpectedStep, secret: bytes | None) -> Any:
    """Return a site's own answer, or its messages with a stand-in for each; the site must have proved it."""
    call, want = expected.calls[party], expected.ask.want
    if secret is not None and not hmac.compare_digest(own.proof, _prove_own_answer(own.body, call, party, secret)):
        raise KeysRefused("an answer is not what the site has sent")
    if want == "each":
        return wire.decode(expected.handler.release, own.body)
    recipients = own.body.decode().split("\n") if own.body else []
    return expected.handler.release(dict.fromkeys(recipients, stand_in_message(expected.step)))


def _answer_body(release: Release, want: Want) -> bytes:
    return "\n".join(release.messages_by_recipient()).encode() if want == "relay" else wire.encode(release)


def _prove_own_answer(body: bytes, call: Call, party: PartyId, secret: bytes) -> bytes:
    key = keys.derive_key(secret, "proof of an answer", call.run, call.step, bound_digest(call), party)
    return hmac.digest(key, body, "sha256")[:PROOF_BYTES]


def _sum_context(call: Call, forms: Sequence[FieldForm]) -> bytes:
    """What the factors of a sum belong to: its run, its step, its question, and the form of its numbers."""
    form = hashlib.sha256(b"".join(map(wire.encode, forms))).digest()
    return keys.frame_parts("fedclust sum", call.run, call.step, bound_digest(call), form)


def _forms_of(release: Release) -> tuple[FieldForm, ...]:
    return tuple(FieldForm.of_numbers(release.field_value(name)) for name in release.schema())


def _split_words(release: Release) -> Words:
    """Return the numbers of a release as words of 32 bits, the lowest first."""
    limbs = [np.ascontiguousarray(release.field_value(name).limbs, "<u8").reshape(-1) for name in release.schema()]
    return np.concatenate(limbs).view("<u4").astype(np.uint64)


def _add_answers(answers: Sequence[SealedAnswer]) -> AddedAnswers:
    words = _split_words(answers[0].release)
    for other in answers[1:]:
        words += _split_words(other.release)
    high = words >> _32
    kind = "u1" if len(answers) <= 1 << 8 else "<u2"
    return AddedAnswers(
        _forms_of(answers[0].release),
        (words & _LOW_32).astype("<u4").tobytes(),
        high.astype(kind).tobytes(),
        add_tags(one.proof for one in answers),
    )


def _join_words(added: AddedAnswers, count: int) -> Words:
    """Return the words of a sum; refuse one whose lengths do not fit together."""
    kind = "<u2" if len(added.high) == 2 * count else "u1"
    high: Array = np.frombuffer(added.high, kind)
    if len(added.low) != 4 * count or len(high) != count:
        raise WireError("the sum has another length than its form says")
    low = np.frombuffer(added.low, "<u4").astype(np.uint64)
    return np.asarray(low + (high.astype(np.uint64) << _32), np.uint64)


def _carry(words: Words) -> Array:
    """Return sums of words as numbers of the ring, modulo 2^128, as limbs."""
    carried, over = np.empty_like(words), np.zeros(len(words), np.uint64)
    for place in range(WORDS_IN_NUMBER):
        whole = words[:, place] + over
        carried[:, place], over = whole & _LOW_32, whole >> _32
    return np.stack([carried[:, 0] | carried[:, 1] << _32, carried[:, 2] | carried[:, 3] << _32], axis=-1)
