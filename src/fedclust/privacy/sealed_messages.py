"""Messages from site to site, passed on by a coordinator that cannot read them."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TypeVar

from fedclust.core.effects import SealedMessages
from fedclust.core.envelope import Call
from fedclust.core.errors import KeysRefused
from fedclust.core.release import Release
from fedclust.core.site_interface import Vault
from fedclust.core.types import PartyId
from fedclust.privacy import keys
from fedclust.privacy.roster import read_roster, read_secret

R = TypeVar("R", bound=Release)
MESSAGE_SALT_BYTES = 16  # each message derives its key from it, so no key serves two messages
STEP_BYTES = 8  # bytes of the number of the step it was written in, before it


def seal_messages(release: R, call: Call, vault: Vault, party: PartyId) -> R:
    """Seal a release's messages so that only their recipients can open them."""
    changed = {}
    for field, disclosure in release.schema().items():
        if disclosure.combine == "messages":
            messages: dict[PartyId, bytes] = release.field_value(field)
            changed[field] = {to: _seal_message(text, call, vault, party, to) for to, text in messages.items()}
    return replace(release, **changed)


def open_messages(sealed: SealedMessages, call: Call, vault: Vault, party: PartyId) -> SealedMessages:
    """Open a recipient's messages; refuse one that was altered or is for somebody else."""
    name = call.masks or ""
    opened, written = {}, {}
    for sender, text in sealed.messages.items():
        head, rest = text[: STEP_BYTES + MESSAGE_SALT_BYTES], text[STEP_BYTES + MESSAGE_SALT_BYTES :]
        key, about = _message_key(vault, name, sender, head, direction=(sender, party))
        opened[sender] = keys.decrypt(key, rest, about)
        step, before = head[:STEP_BYTES], vault.get(f"received.{sender}") or bytes(STEP_BYTES)
        if int.from_bytes(step, "big") < int.from_bytes(before, "big"):
            raise KeysRefused("a sealed message is older than one that has already arrived")
        if step != before:
            written[f"received.{sender}"] = step
    if written:
        vault.put(written)
    return replace(sealed, messages=opened)


def _seal_message(text: bytes, call: Call, vault: Vault, party: PartyId, to: PartyId) -> bytes:
    head = call.step.to_bytes(STEP_BYTES, "big") + secrets.token_bytes(MESSAGE_SALT_BYTES)
    key, about = _message_key(vault, call.masks or "", to, head, direction=(party, to))
    return head + keys.encrypt(key, text, about)


def _message_key(
    vault: Vault, name: str, other: PartyId, head: bytes, *, direction: tuple[PartyId, PartyId]
) -> tuple[bytes, bytes]:
    """Return the key of a message, and what it is bound to: the run, the keys' name, its direction and its step."""
    offered = read_roster(vault, name).offers.get(other)
    if offered is None:
        raise KeysRefused("a sealed message has a sender or recipient whose keys this site has not received")
    about = keys.frame_parts("sealed message", vault.run, name, *direction)
    return keys.derive_key(
        keys.derive_shared_secret(read_secret(vault, name, "message"), offered.message), about, head
    ), about
