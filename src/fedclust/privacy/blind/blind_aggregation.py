"""A coordinator that adds and passes on messages without reading them: questions, answers and sums are hidden from it.

One site leads. It drives the protocol and keeps the journal. It gives the others a group key, encrypted under keys that
their identities signed. Questions are encrypted under that key and bound to run and step. Sums are masked as in secure
aggregation, and a further mask from the group key stays in the sum until it is back at the lead. A party's own answer
is encrypted for the lead. The coordinator sees who leads, who is asked, lengths and times. Messages are padded as
`Padding` says, so that their lengths do not reveal their content.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedclust.core import ring, wire
from fedclust.core.drive import quorum_lost_error
from fedclust.core.effects import ALL_PARTIES, HANDLERS, Ask, AtStep, Protocol, Want, each_to, handler, rewrite
from fedclust.core.envelope import Call
from fedclust.core.errors import KeysRefused, QuorumLost, WireError
from fedclust.core.release import Done, Release, additive, shares
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, Vault
from fedclust.core.study_terms import in_any_study
from fedclust.core.types import PartyId
from fedclust.privacy import keys, masks
from fedclust.privacy.padding import Padding, Shapes, empty_release, pad_text, unpad_text
from fedclust.privacy.roster import accept, offer, read_roster, read_secret
from fedclust.privacy.secure_aggregation import SecureAggregator

T = TypeVar("T")
SALT = 16
CODE = 40  # a refusal's code is padded to this length


@dataclass(frozen=True)
class GroupKeyMessage:
    """The group key, encrypted from the lead to one party under keys of some name."""

    lead: str
    name: str
    text: bytes


@handler(releases=Done, reads="nothing", before_alignment=True, contract=in_any_study)
def group(site: Site, ask: GroupKeyMessage) -> Done:
    """Store the group key, and the key that encrypts answers to the lead."""
    vault = site.vault
    if vault.get("group.lead") not in (None, ask.lead.encode()):
        raise KeysRefused("another site is already the lead of this run (the site that receives the sums)")
    key, about = _derive_group_message_key(vault, ask.name, ask.lead, way=(ask.lead, site.party))
    common = keys.decrypt(key, ask.text, about)
    if vault.get("group.name") == ask.name.encode() and vault.get("group") != common:
        raise KeysRefused("this site has already received a different group key under this name")
    vault.put(
        {
            "group": common,
            "group.name": ask.name.encode(),
            "group.lead": ask.lead.encode(),
            "group.answer_key": _derive_answer_key(vault, ask.name, ask.lead),
        }
    )
    return Done()


@dataclass(frozen=True)
class EncryptedQuestion:
    """A question that only the sites can read, or only one of them if it is its `own`; the lead signed it."""

    own: bool
    salt: bytes
    text: bytes
    signature: bytes


@dataclass(frozen=True)
class QuestionContent:
    """The content of an encrypted question: the question itself, and how to answer it."""

    handler: str
    want: str
    masks: str | None
    padding: Padding
    body: bytes


@dataclass(frozen=True)
class MaskedNumbers(Release):
    numbers: Exact = additive(
        "the numbers of the answer, hidden by the masks between sites and by a mask that all sites share"
    )
    shape: bytes = shares("the shapes and units of the numbers, sent by one site and encrypted for the other sites")

    def form(self) -> tuple[object, ...]:
        """All answers to a question have as many numbers."""
        return (self.numbers.form,)

    @classmethod
    def total(cls, parts: list[Any]) -> Any:
        """The sum, with the one shape that came."""
        return cls(ring.total([part.numbers for part in parts]), b"".join(part.shape for part in parts))


@dataclass(frozen=True)
class EncryptedAnswer(Release):
    text: bytes = shares("an answer, encrypted for the lead site")


@handler(releases=MaskedNumbers, reads="nothing", before_alignment=True, contract=in_any_study)
def add(site: Site, ask: EncryptedQuestion) -> MaskedNumbers:  # noqa: ARG001
    """An encrypted question for a sum; the server answers the question inside."""
    raise WireError("this question must be decrypted before it reaches its handler")


@handler(releases=EncryptedAnswer, reads="nothing", before_alignment=True, contract=in_any_study)
def reply(site: Site, ask: EncryptedQuestion) -> EncryptedAnswer:  # noqa: ARG001
    """An encrypted question for a party's own answer; the server answers the question inside."""
    raise WireError("this question must be decrypted before it reaches its handler")


CARRIERS = (add.name, reply.name)
IN_CLEAR = (offer.name, accept.name, group.name)


@dataclass(frozen=True)
class AnswerEncryption:
    """How an answer is hidden: by which carrier, and from which sealed answer."""

    carrier: str
    encrypt: Callable[[Release], Release]


def decrypt_question(call: Call, vault: Vault, party: PartyId) -> tuple[Call, AnswerEncryption]:
    """Return the decrypted question, and how to encrypt its answer."""
    question: EncryptedQuestion = call.message
    common = _read_vault(vault, "group")
    key = keys.derive_key(common, "question", call.run, call.step, question.salt)
    place = _question_context(call.run, call.step, call.handler, call.cohort, party if question.own else "")
    if not vault.has_signed(_read_vault(vault, "group.lead").decode(), question.signature, place + question.text):
        raise KeysRefused(
            "the encrypted question does not carry a valid signature of the lead"
        )  # every site has the key that encrypts it
    inner = wire.decode(QuestionContent, unpad_text(keys.decrypt(key, question.text, place)))
    if inner.handler not in HANDLERS or (inner.want == "total") != (call.handler == add.name):
        raise WireError(
            "the encrypted question asks for a handler that this version does not know; all sites "
            "must run the same version of fedclust"
        )
    message = wire.decode(HANDLERS[inner.handler].message, inner.body)
    want: Want = "total" if inner.want == "total" else "relay" if inner.want == "relay" else "each"
    bare = Call(call.run, call.step, inner.handler, message, want, call.cohort, inner.masks, is_encrypted=True)
    if want == "total" and inner.masks is None:
        raise WireError("the encrypted question asks for a sum without masks")
    answers, padding = _read_vault(vault, "group.answer_key"), inner.padding
    if not padding.is_within_limit:
        raise WireError("the encrypted question asks for too much padding")

    def alone(release: Release) -> EncryptedAnswer:
        return EncryptedAnswer(
            _encrypt_answer(answers, pad_text(wire.encode(release), padding.own_answer), call.run, call.step)
        )

    def in_sum(release: Release) -> MaskedNumbers:
        adder = _find_mask_adder(_read_vault(vault, "group.lead").decode(), call.cohort)
        return _mask_with_group_key(release, bare, common if party == adder else None, answers, padding)

    return bare, AnswerEncryption(add.name, in_sum) if want == "total" else AnswerEncryption(reply.name, alone)


def encrypt_code(code: str, call: Call, vault: Vault) -> str:
    """Encrypt a refusal's code so that only the lead can read it."""
    return _encrypt_answer(_read_vault(vault, "group.answer_key"), code.ljust(CODE).encode(), call.run, call.step).hex()


def decrypt_own_code(text: str, call: Call, vault: Vault) -> str:
    """Return the code of a refusal that this site encrypted for the lead."""
    return _decrypt_answer(_read_vault(vault, "group.answer_key"), bytes.fromhex(text), call.run, call.step).decode()


@dataclass(frozen=True)
class GroupKeys:
    """What a lead keeps of one group key: the key, its messages to everyone, and the keys of everyone's answers."""

    common: bytes
    group_messages: dict[str, bytes]
    answers: dict[str, bytes]


class BlindAggregator:
    """Rewrites the protocols of one federation so that whatever carries its messages learns nothing from them."""

    def __init__(
        self, secure: SecureAggregator, parties: Sequence[PartyId], lead: PartyId, vault: Callable[[], Vault]
    ) -> None:
        self.secure = secure
        self.parties = tuple(parties)
        self.lead = lead
        self._vault = vault
        self.padding = Padding()
        self._sent_keys: str | None = None  # the name of the keys under which the group key was sent
        self._keys = GroupKeys(b"", {}, {})

    def rewrite(self, protocol: Protocol[T], *, run: str) -> Protocol[T]:
        """Return the same protocol with masked sums and everything encrypted."""

        def lower(ask: Ask) -> Protocol[Any]:
            if ask.handler.name in IN_CLEAR:
                return (yield ask)
            if ask.masks is not None:
                return (yield from self._ask_group(ask, run))  # whoever masks it repeats it
            return (yield from self.secure.retry_with_fresh_keys(lambda: self._ask_group(ask, run)))

        return rewrite(self.secure.rewrite(protocol, quorum=ALL_PARTIES), lower)

    def _ask_group(self, ask: Ask, run: str) -> Protocol[Any]:
        """An encrypted question, once everyone has the group key; it names the keys that are in force now."""
        name = yield from self.secure.agree_on_keys()
        if self._sent_keys != name:
            yield from self._send_group_key()
        return (yield from self._ask_encrypted(ask if ask.masks is None else replace(ask, masks=name), run))

    def _send_group_key(self) -> Protocol[None]:
        """Make a group key, store it, and send it to everyone, so that a resumed run finds it again."""
        vault, name = self._vault(), self.secure.lasting_keys or ""
        if vault.get(f"led.{name}") is None:
            if vault.get(f"led.group.{name}") is None:  # on disk before it is written to anyone, so that there is one
                vault.put({f"led.group.{name}": secrets.token_bytes(32)})
            common, messages, answers = _read_vault(vault, f"led.group.{name}"), dict[str, bytes](), dict[str, bytes]()
            for party in self.parties:
                key, about = _derive_group_message_key(vault, name, party, way=(self.lead, party))
                messages[party] = keys.encrypt(key, common, about)
                answers[party] = _derive_answer_key(vault, name, party)
            vault.put({f"led.{name}": wire.encode(GroupKeys(common, messages, answers))})
        self._keys = wire.decode(GroupKeys, _read_vault(vault, f"led.{name}"))
        group_messages = {
            party: GroupKeyMessage(self.lead, name, text) for party, text in self._keys.group_messages.items()
        }
        yield from each_to(group, group_messages, quorum=ALL_PARTIES)
        self._sent_keys = name

    def _ask_encrypted(self, ask: Ask, run: str) -> Protocol[Any]:
        cohort = tuple(ask.messages) if ask.messages is not None else ask.among or self.parties
        padding = self.padding
        at: list[int] = []

        carrier = add if ask.want == "total" else reply

        def encrypt_message(message: Any, to: PartyId = "") -> AtStep:
            body = QuestionContent(ask.handler.name, ask.want, ask.masks, padding, wire.encode(message))
            inner = pad_text(wire.encode(body), padding.question)

            def encrypt_at(step: int) -> EncryptedQuestion:
                at[:] = [step]
                salt, key = self._derive_question_key(inner, run, step, to)
                place = _question_context(run, step, carrier.name, cohort, to)
                text = keys.encrypt(key, inner, place)
                return EncryptedQuestion(bool(to), salt, text, self._vault().sign(place + text))

            return AtStep(encrypt_at)

        outer = replace(
            ask,
            handler=carrier,
            want="total" if ask.want == "total" else "each",
            message=None if ask.messages is not None else encrypt_message(ask.message),
            messages=None if ask.messages is None else {to: encrypt_message(m, to) for to, m in ask.messages.items()},
            masks=None,
        )
        try:
            answer = yield outer
        except QuorumLost as failure:
            raise self._explain_failure(failure, ask.handler.name, len(cohort), run, at[0]) from None
        if ask.want == "total":
            total, who = answer
            bare = Call(run, at[0], ask.handler.name, ask.message, "total", cohort, ask.masks)
            return self._open_sum(ask.handler.release, total, bare, padding), who
        return {
            party: self._open_answer(ask.handler.release, party, own.text, run, at[0]) for party, own in answer.items()
        }

    def _derive_question_key(self, text: bytes, run: str, step: int, to: PartyId) -> tuple[bytes, bytes]:
        """A salt that follows from the text and whom it is for, and the key it gives.

        Asked again, a question has the same bytes; another question, or the same for another party, has another key.
        """
        salt = hmac.digest(self._keys.common, keys.frame_parts("salt", run, step, to, text), "sha256")[:SALT]
        return salt, keys.derive_key(self._keys.common, "question", run, step, salt)

    def _open_sum(self, kind: type[Release], total: MaskedNumbers, call: Call, padding: Padding) -> Any:
        """A sum without the group's mask, in the shapes it has."""
        common = self._keys.common
        key = keys.derive_key(common, "shape", call.run, call.step, call.digest, wire.encode(padding))
        shapes = wire.decode(Shapes, unpad_text(keys.decrypt(key, total.shape, b"")))
        empty = empty_release(kind, shapes, max_numbers=len(total.numbers.limbs))
        mask = masks.Mask(masks.count_cells(empty))
        mask.subtract_streams(keys.derive_key(common, "sum", call.run, call.step, call.digest))
        numbers = total.numbers.limbs[: len(mask.limbs)]  # the filling is dropped
        return masks.add_mask(empty, masks.add_limbs(numbers, mask.limbs))

    def _open_answer(self, kind: type[Release], party: PartyId, text: bytes, run: str, step: int) -> Release:
        return wire.decode(kind, unpad_text(self._decrypt_from(party, text, run, step)))

    def _decrypt_from(self, party: PartyId, text: bytes, run: str, step: int) -> bytes:
        return _decrypt_answer(self._keys.answers[party], text, run, step)

    def _explain_failure(self, failure: QuorumLost, name: str, asked: int, run: str, step: int) -> QuorumLost:
        """Return a lost quorum with the reasons decrypted for the lead."""
        missing = {}
        for party, code in failure.missing.items():
            try:
                missing[party] = self._decrypt_from(party, bytes.fromhex(code), run, step).decode().strip()
            except (ValueError, KeysRefused):
                missing[party] = code
        return quorum_lost_error(name, asked - len(missing), asked, asked, missing)


def _mask_with_group_key(
    release: Release, call: Call, common: bytes | None, own: bytes, padding: Padding
) -> MaskedNumbers:
    """Masked sums as one list of numbers; one party adds the group's mask and the shapes.

    The filling looks as random as the rest, and the lead drops it.
    """
    limbs = np.concatenate([release.field_value(name).limbs.reshape(-1, 2) for name in release.schema()])
    filling = masks.Mask(-len(limbs) % max(padding.numbers, 1))
    filling.add_streams(keys.derive_key(own, "filling", call.run, call.step, call.digest, wire.encode(padding)))
    if common is None:
        return MaskedNumbers(Exact(np.concatenate([limbs, filling.limbs]), ring.UNIT_ONE), b"")
    mask = masks.Mask(len(limbs))
    mask.add_streams(keys.derive_key(common, "sum", call.run, call.step, call.digest))
    fields: dict[str, Exact] = {name: release.field_value(name) for name in release.schema()}
    sizes = {name: np.array(value.shape, np.int64) for name, value in fields.items()}
    shape = pad_text(
        wire.encode(Shapes(sizes, {name: value.unit for name, value in fields.items()})), padding.shape_bytes
    )
    key = keys.derive_key(common, "shape", call.run, call.step, call.digest, wire.encode(padding))
    numbers = np.concatenate([masks.add_limbs(limbs, mask.limbs), filling.limbs])
    return MaskedNumbers(Exact(numbers, ring.UNIT_ONE), keys.encrypt(key, shape, b""))


def _find_mask_adder(lead: PartyId, cohort: Sequence[PartyId]) -> PartyId:
    """The one party of a cohort that adds the group's mask."""
    return lead if lead in cohort else min(cohort)


def _encrypt_answer(key: bytes, text: bytes, run: str, step: int) -> bytes:
    salt = hmac.digest(key, keys.frame_parts("salt", run, step, text), "sha256")[:SALT]
    return salt + keys.encrypt(keys.derive_key(key, "answer", run, step, salt), text, _answer_context(run, step))


def _decrypt_answer(key: bytes, text: bytes, run: str, step: int) -> bytes:
    return keys.decrypt(keys.derive_key(key, "answer", run, step, text[:SALT]), text[SALT:], _answer_context(run, step))


def _answer_context(run: str, step: int) -> bytes:
    return keys.frame_parts("fedclust encrypted answer", run, step)


def _question_context(run: str, step: int, carrier: str, cohort: Sequence[PartyId], to: PartyId) -> bytes:
    """What an encrypted question is bound to: its step, how it is answered, who is asked, and its recipient."""
    return keys.frame_parts("fedclust question", run, step, carrier, to, *cohort)


def _derive_group_message_key(
    vault: Vault, name: str, other: PartyId, *, way: tuple[PartyId, PartyId]
) -> tuple[bytes, bytes]:
    """The key under which a group key goes one way between two parties, and what it is bound to."""
    about = keys.frame_parts("group key", vault.run, name, *way)
    return keys.derive_key(_shared_secret(vault, name, other), about), about


def _derive_answer_key(vault: Vault, name: str, other: PartyId) -> bytes:
    """The key that a party and the lead share for answers."""
    return keys.derive_key(_shared_secret(vault, name, other), "answers", vault.run, name)


def _shared_secret(vault: Vault, name: str, other: PartyId) -> bytes:
    offered = read_roster(vault, name).offers.get(other)
    if offered is None:
        raise KeysRefused("this site has not received the keys of a party that takes part")
    return keys.derive_shared_secret(read_secret(vault, name, "message"), offered.message)


def _read_vault(vault: Vault, name: str) -> bytes:
    found = vault.get(name)
    if found is None:
        raise KeysRefused("this site has received no group key")
    return found
