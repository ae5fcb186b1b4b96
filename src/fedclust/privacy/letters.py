"""Letters from site to site, passed on by a coordinator that can read none of them."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TypeVar

from fedclust.core.envelope import Call
from fedclust.core.errors import KeysRefused
from fedclust.core.protocol import Mail
from fedclust.core.release import Release
from fedclust.core.site import Vault
from fedclust.core.types import PartyId
from fedclust.privacy import keys
from fedclust.privacy.roster import roster_of, secret

R = TypeVar("R", bound=Release)
SALT = 16  # a letter's key is derived from it, so no key serves two letters


def sealed(release: R, call: Call, vault: Vault, party: PartyId) -> R:
    """A release whose letters only their recipients can open."""
    changed = {}
    for field, disclosure in release.schema().items():
        if disclosure.combine == "letters":
            letters: dict[PartyId, bytes] = getattr(release, field)
            changed[field] = {to: _sealed(text, call.masks or "", vault, party, to) for to, text in letters.items()}
    return replace(release, **changed)


def opened(mail: Mail, call: Call, vault: Vault, party: PartyId) -> Mail:
    """A recipient's mail in clear; a letter that was altered or was for someone else is refused."""
    name = call.masks or ""
    letters = {}
    for sender, text in mail.letters.items():
        key, about = _key(vault, name, sender, text[:SALT], way=(sender, party))
        letters[sender] = keys.opened(key, text[SALT:], about)
    return replace(mail, letters=letters)


def _sealed(text: bytes, name: str, vault: Vault, party: PartyId, to: PartyId) -> bytes:
    salt = secrets.token_bytes(SALT)
    key, about = _key(vault, name, to, salt, way=(party, to))
    return salt + keys.locked(key, text, about)


def _key(vault: Vault, name: str, other: PartyId, salt: bytes, *, way: tuple[PartyId, PartyId]) -> tuple[bytes, bytes]:
    """The key of one letter, and what it is bound to: the run, the keys' name, and which way it goes."""
    offered = roster_of(vault, name).offers.get(other)
    if offered is None:
        raise KeysRefused("a letter to or from someone whose keys are not known")
    about = keys.framed("letter", vault.run, name, *way)
    return keys.derived(keys.agreed(secret(vault, name, "letter"), offered.letter), about, salt), about
