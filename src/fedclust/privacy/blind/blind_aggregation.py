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
from fedclust.core.types import PartyId
from fedclust.privacy import keys, masks
from fedclust.privacy.padding import Padding, Shapes, empty_release, pad_text, unpad_text
from fedclust.privacy.roster import accept, offer, read_roster, read_secret
from fedclust.privacy.secure_aggregation import SecureAggregator

T = TypeVar("T")
SALT = 16
CODE = 40  # a refusal's code is padded to this length


@dataclass(frozen=True)
class Group:
    """The group key, encrypted from the lead to one party under keys of some name."""

    lead: str
    name: str
    text: bytes


@handler(releases=Done, reads="nothing", before_alignment=True)
def group(site: Site, ask: Group) -> Done:
    """Store the group key, and the key that encrypts answers to the lead."""
    vault = site.vault
    if vault.get("group.lead") not in (None, ask.lead.encode()):
        raise KeysRefused("another site leads this run")
    key, about = _between(vault, ask.name, ask.lead, way=(ask.lead, site.party))
    common = keys.decrypt(key, ask.text, about)
    if vault.get("group.name") == ask.name.encode() and vault.get("group") != common:
        raise KeysRefused("this site has already received another group key under this name")
    vault.put(
        {
            "group": common,
            "group.name": ask.name.encode(),
            "group.lead": ask.lead.encode(),
            "group.answers": _answers(vault, ask.name, ask.lead),
        }
    )
    return Done()


@dataclass(frozen=True)
class Veiled:
    """A question that only the sites can read, or only one of them if it is its `own`; the lead signed it."""

    own: bool
    salt: bytes
    text: bytes
    signature: bytes


@dataclass(frozen=True)
class Inner:
    """The content of an encrypted question: the question itself, and how to answer it."""

    handler: str
    want: str
    masks: str | None
    room: Padding
    body: bytes


@dataclass(frozen=True)
class Hidden(Release):
    numbers: Exact = additive("numbers under the masks of the sites and of the group")
    shape: bytes = shares("the shapes and units of the numbers, from one site, encrypted for the sites")

    def form(self) -> tuple[object, ...]:
        """All answers to a question have as many numbers."""
        return (self.numbers.form,)

    @classmethod
    def total(cls, parts: list[Any]) -> Any:
        """The sum, with the one shape that came."""
        return cls(ring.total([part.numbers for part in parts]), b"".join(part.shape for part in parts))


@dataclass(frozen=True)
class Told(Release):
    text: bytes = shares("an answer, encrypted for the lead site")


@handler(releases=Hidden, reads="nothing", before_alignment=True)
def add(site: Site, ask: Veiled) -> Hidden:  # noqa: ARG001
    """An encrypted question for a sum; the server answers the question inside."""
    raise WireError("the question is still encrypted")


@handler(releases=Told, reads="nothing", before_alignment=True)
def tell(site: Site, ask: Veiled) -> Told:  # noqa: ARG001
    """An encrypted question for a party's own answer; the server answers the question inside."""
    raise WireError("the question is still encrypted")


CARRIERS = (add.name, tell.name)
IN_CLEAR = (offer.name, accept.name, group.name)


@dataclass(frozen=True)
class Veil:
    """How an answer is hidden: by which carrier, and from which sealed answer."""

    carrier: str
    over: Callable[[Release], Release]


def lifted(call: Call, vault: Vault, party: PartyId) -> tuple[Call, Veil]:
    """Return the decrypted question, and how to encrypt its answer."""
    veiled: Veiled = call.message
    common = _kept(vault, "group")
    key = keys.derive_key(common, "question", call.run, call.step, veiled.salt)
    place = _asked(call.run, call.step, call.handler, call.cohort, party if veiled.own else "")
    if not vault.has_signed(_kept(vault, "group.lead").decode(), veiled.signature, place + veiled.text):
        raise KeysRefused("the lead did not sign the encrypted question")  # every site has the key that veils
    inner = wire.decode(Inner, unpad_text(keys.decrypt(key, veiled.text, place)))
    if inner.handler not in HANDLERS or (inner.want == "total") != (call.handler == add.name):
        raise WireError(
            "the encrypted question asks for a handler that this version does not know; all sites "
            "must run the same version of fedclust"
        )
    message = wire.decode(HANDLERS[inner.handler].message, inner.body)
    want: Want = "total" if inner.want == "total" else "relay" if inner.want == "relay" else "each"
    bare = Call(call.run, call.step, inner.handler, message, want, call.cohort, inner.masks, veiled=True)
    if want == "total" and inner.masks is None:
        raise WireError("the encrypted question asks for a sum without masks")
    answers, room = _kept(vault, "group.answers"), inner.room
    if not room.is_within_limit:
        raise WireError("the encrypted question asks for too much padding")

    def alone(release: Release) -> Told:
        return Told(_locked(answers, pad_text(wire.encode(release), room.own_answer), call.run, call.step))

    def in_sum(release: Release) -> Hidden:
        chief = _chief(_kept(vault, "group.lead").decode(), call.cohort)
        return _flat(release, bare, common if party == chief else None, answers, room)

    return bare, Veil(add.name, in_sum) if want == "total" else Veil(tell.name, alone)


def hidden_code(code: str, call: Call, vault: Vault) -> str:
    """Encrypt a refusal's code so that only the lead can read it."""
    return _locked(_kept(vault, "group.answers"), code.ljust(CODE).encode(), call.run, call.step).hex()


@dataclass(frozen=True)
class Led:
    """What a lead keeps of one group key: the key, its messages to everyone, and the keys of everyone's answers."""

    common: bytes
    group_messages: dict[str, bytes]
    answers: dict[str, bytes]


class Blind:
    """Rewrites the protocols of one federation so that whatever carries its messages learns nothing from them."""

    def __init__(
        self, secure: SecureAggregator, parties: Sequence[PartyId], lead: PartyId, vault: Callable[[], Vault]
    ) -> None:
        self.secure = secure
        self.parties = tuple(parties)
        self.lead = lead
        self._vault = vault
        self.room = Padding()
        self._given: str | None = None  # the name of the keys under which the group key was given
        self._keys = Led(b"", {}, {})

    def rewrite(self, protocol: Protocol[T], *, run: str) -> Protocol[T]:
        """Return the same protocol with masked sums and everything encrypted."""

        def lower(ask: Ask) -> Protocol[Any]:
            if ask.handler.name in IN_CLEAR:
                return (yield ask)
            if ask.masks is not None:
                return (yield from self._led(ask, run))  # whoever masks it repeats it
            return (yield from self.secure.retry_with_fresh_keys(lambda: self._led(ask, run)))

        return rewrite(self.secure.rewrite(protocol, quorum=ALL_PARTIES), lower)

    def _led(self, ask: Ask, run: str) -> Protocol[Any]:
        """An encrypted question, once everyone has the group key; it names the keys that are in force now."""
        name = yield from self.secure.agree_on_keys()
        if self._given != name:
            yield from self._give()
        return (yield from self._veiled(ask if ask.masks is None else replace(ask, masks=name), run))

    def _give(self) -> Protocol[None]:
        """Make a group key, store it, and send it to everyone, so that a resumed run finds it again."""
        vault, name = self._vault(), self.secure.lasting_keys or ""
        if vault.get(f"led.{name}") is None:
            if vault.get(f"led.group.{name}") is None:  # on disk before it is written to anyone, so that there is one
                vault.put({f"led.group.{name}": secrets.token_bytes(32)})
            common, messages, answers = _kept(vault, f"led.group.{name}"), dict[str, bytes](), dict[str, bytes]()
            for party in self.parties:
                key, about = _between(vault, name, party, way=(self.lead, party))
                messages[party] = keys.encrypt(key, common, about)
                answers[party] = _answers(vault, name, party)
            vault.put({f"led.{name}": wire.encode(Led(common, messages, answers))})
        self._keys = wire.decode(Led, _kept(vault, f"led.{name}"))
        given = {party: Group(self.lead, name, text) for party, text in self._keys.group_messages.items()}
        yield from each_to(group, given, quorum=ALL_PARTIES)
        self._given = name

    def _veiled(self, ask: Ask, run: str) -> Protocol[Any]:
        cohort = tuple(ask.messages) if ask.messages is not None else ask.among or self.parties
        room = self.room
        at: list[int] = []

        carrier = add if ask.want == "total" else tell

        def veil(message: Any, to: PartyId = "") -> AtStep:
            body = Inner(ask.handler.name, ask.want, ask.masks, room, wire.encode(message))
            inner = pad_text(wire.encode(body), room.question)

            def made(step: int) -> Veiled:
                at[:] = [step]
                salt, key = self._salted(inner, run, step, to)
                place = _asked(run, step, carrier.name, cohort, to)
                text = keys.encrypt(key, inner, place)
                return Veiled(bool(to), salt, text, self._vault().sign(place + text))

            return AtStep(made)

        outer = replace(
            ask,
            handler=carrier,
            want="total" if ask.want == "total" else "each",
            message=None if ask.messages is not None else veil(ask.message),
            messages=None if ask.messages is None else {to: veil(m, to) for to, m in ask.messages.items()},
            masks=None,
        )
        try:
            answer = yield outer
        except QuorumLost as failure:
            raise self._explained(failure, ask.handler.name, len(cohort), run, at[0]) from None
        if ask.want == "total":
            total, who = answer
            bare = Call(run, at[0], ask.handler.name, ask.message, "total", cohort, ask.masks)
            return self._bare(ask.handler.release, total, bare, room), who
        return {party: self._read(ask.handler.release, party, told.text, run, at[0]) for party, told in answer.items()}

    def _salted(self, text: bytes, run: str, step: int, to: PartyId) -> tuple[bytes, bytes]:
        """A salt that follows from the text and whom it is for, and the key it gives.

        Asked again, a question has the same bytes; another question, or the same for another party, has another key.
        """
        salt = hmac.digest(self._keys.common, keys.frame_parts("salt", run, step, to, text), "sha256")[:SALT]
        return salt, keys.derive_key(self._keys.common, "question", run, step, salt)

    def _bare(self, kind: type[Release], total: Hidden, call: Call, room: Padding) -> Any:
        """A sum without the group's mask, in the shapes it has."""
        common = self._keys.common
        key = keys.derive_key(common, "shape", call.run, call.step, call.digest, wire.encode(room))
        shapes = wire.decode(Shapes, unpad_text(keys.decrypt(key, total.shape, b"")))
        empty = empty_release(kind, shapes, max_numbers=len(total.numbers.limbs))
        mask = masks.Mask(masks.count_cells(empty))
        mask.subtract_streams(keys.derive_key(common, "sum", call.run, call.step, call.digest))
        numbers = total.numbers.limbs[: len(mask.limbs)]  # what fills the room is dropped
        return masks.add_mask(empty, masks.add_limbs(numbers, mask.limbs))

    def _read(self, kind: type[Release], party: PartyId, text: bytes, run: str, step: int) -> Release:
        return wire.decode(kind, unpad_text(self._opened(party, text, run, step)))

    def _opened(self, party: PartyId, text: bytes, run: str, step: int) -> bytes:
        return _unlocked(self._keys.answers[party], text, run, step)

    def _explained(self, failure: QuorumLost, name: str, asked: int, run: str, step: int) -> QuorumLost:
        """Return a lost quorum with the reasons decrypted for the lead."""
        missing = {}
        for party, code in failure.missing.items():
            try:
                missing[party] = self._opened(party, bytes.fromhex(code), run, step).decode().strip()
            except (ValueError, KeysRefused):
                missing[party] = code
        return quorum_lost_error(name, asked - len(missing), asked, asked, missing)


def _flat(release: Release, call: Call, common: bytes | None, own: bytes, room: Padding) -> Hidden:
    """Masked sums as one list of numbers; one party adds the group's mask and the shapes.

    What fills the room looks as random as the rest, and the lead drops it.
    """
    limbs = np.concatenate([release.field_value(name).limbs.reshape(-1, 2) for name in release.schema()])
    filling = masks.Mask(-len(limbs) % max(room.numbers, 1))
    filling.add_streams(keys.derive_key(own, "filling", call.run, call.step, call.digest, wire.encode(room)))
    if common is None:
        return Hidden(Exact(np.concatenate([limbs, filling.limbs]), ring.UNIT_ONE), b"")
    mask = masks.Mask(len(limbs))
    mask.add_streams(keys.derive_key(common, "sum", call.run, call.step, call.digest))
    fields: dict[str, Exact] = {name: release.field_value(name) for name in release.schema()}
    sizes = {name: np.array(value.shape, np.int64) for name, value in fields.items()}
    shape = pad_text(wire.encode(Shapes(sizes, {name: value.unit for name, value in fields.items()})), room.shape_bytes)
    key = keys.derive_key(common, "shape", call.run, call.step, call.digest, wire.encode(room))
    numbers = np.concatenate([masks.add_limbs(limbs, mask.limbs), filling.limbs])
    return Hidden(Exact(numbers, ring.UNIT_ONE), keys.encrypt(key, shape, b""))


def _chief(lead: PartyId, cohort: Sequence[PartyId]) -> PartyId:
    """The one party of a cohort that adds the group's mask."""
    return lead if lead in cohort else min(cohort)


def _locked(key: bytes, text: bytes, run: str, step: int) -> bytes:
    salt = hmac.digest(key, keys.frame_parts("salt", run, step, text), "sha256")[:SALT]
    return salt + keys.encrypt(keys.derive_key(key, "answer", run, step, salt), text, _about(run, step))


def _unlocked(key: bytes, text: bytes, run: str, step: int) -> bytes:
    return keys.decrypt(keys.derive_key(key, "answer", run, step, text[:SALT]), text[SALT:], _about(run, step))


def _about(run: str, step: int) -> bytes:
    return keys.frame_parts("fedclust veil", run, step)


def _asked(run: str, step: int, carrier: str, cohort: Sequence[PartyId], to: PartyId) -> bytes:
    """What an encrypted question is bound to: its step, how it is answered, who is asked, and its recipient."""
    return keys.frame_parts("fedclust question", run, step, carrier, to, *cohort)


def _between(vault: Vault, name: str, other: PartyId, *, way: tuple[PartyId, PartyId]) -> tuple[bytes, bytes]:
    """The key under which a group key goes one way between two parties, and what it is bound to."""
    about = keys.frame_parts("group key", vault.run, name, *way)
    return keys.derive_key(_shared(vault, name, other), about), about


def _answers(vault: Vault, name: str, other: PartyId) -> bytes:
    """The key that a party and the lead share for answers."""
    return keys.derive_key(_shared(vault, name, other), "answers", vault.run, name)


def _shared(vault: Vault, name: str, other: PartyId) -> bytes:
    offered = read_roster(vault, name).offers.get(other)
    if offered is None:
        raise KeysRefused("the keys of a party are not known")
    return keys.derive_shared_secret(read_secret(vault, name, "message"), offered.message)


def _kept(vault: Vault, name: str) -> bytes:
    found = vault.get(name)
    if found is None:
        raise KeysRefused("this site has received no group key")
    return found
