"""The key that all sites of a verified run share and the coordinator does not have.

The first site makes it once everyone has accepted everyone's keys, and sends it to each other site, sealed. It belongs
to the name of those keys: after fresh keys there is a fresh group key.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from fedclust.core import wire
from fedclust.core.effects import ALL_PARTIES, Ask, Protocol, SealedMessages, group_by_recipient, handler
from fedclust.core.errors import KeysRefused
from fedclust.core.release import Done, Release, sealed_shares
from fedclust.core.site_interface import Site, Vault
from fedclust.core.study_terms import proves_sums
from fedclust.core.types import PartyId
from fedclust.privacy.roster import accept, is_lasting, offer, read_roster

GROUP_KEY_BYTES = 32
_SLOT = "verified."  # earlier keys stay in the vault, because a transcript may be sent again from the beginning


@dataclass(frozen=True)
class GroupKeyRequest:
    """Which keys the group key belongs to, and the site that makes it."""

    name: str
    maker: str


@dataclass(frozen=True)
class GroupKeyMessages(Release):
    messages: dict[str, bytes] = sealed_shares("for another site: a random key, with which sites prove sums to others")


@handler(releases=GroupKeyMessages, reads="nothing", before_alignment=True, contract=proves_sums)
def send_group_key(site: Site, ask: GroupKeyRequest) -> GroupKeyMessages:
    """Make the group key; return the same one if asked again."""
    others = _check_request(site, ask)
    if site.party != ask.maker:
        raise KeysRefused("another site makes the group key")
    key = site.vault.get(_SLOT + ask.name)
    if key is None:
        key = secrets.token_bytes(GROUP_KEY_BYTES)
        site.vault.put({_SLOT + ask.name: key})
    return GroupKeyMessages(dict.fromkeys(others, key))


@handler(releases=Done, reads="nothing", before_alignment=True, note=GroupKeyRequest, contract=proves_sums)
def receive_group_key(site: Site, incoming: SealedMessages) -> Done:
    """Store the group key, once for each name."""
    ask = wire.decode(GroupKeyRequest, incoming.note)
    _check_request(site, ask)
    if site.party != ask.maker:
        key = incoming.messages.get(ask.maker, b"")
        if len(key) != GROUP_KEY_BYTES or len(incoming.messages) != 1:
            raise KeysRefused("the group key does not come from the site that makes it")
        if site.vault.get(_SLOT + ask.name) not in (None, key):
            raise KeysRefused("this site has already received a different group key under this name")
        site.vault.put({_SLOT + ask.name: key})
    return Done()


SELF_PROVEN = frozenset({offer.name, accept.name, send_group_key.name, receive_group_key.name})
"""Questions whose answers prove themselves, by a signature or by authenticated encryption; they make the group key."""


def read_group_key(vault: Vault, name: str) -> bytes:
    """Return the group key of some keys."""
    key = vault.get(_SLOT + name)
    if key is None:
        raise KeysRefused("this site has received no group key")
    return key


def share_group_key(name: str, parties: Sequence[PartyId]) -> Protocol[None]:
    """Have the first site make a group key, and all others store it."""
    ask = GroupKeyRequest(name, min(parties))
    sent = yield Ask(send_group_key, "relay", ask, among=(ask.maker,), quorum=ALL_PARTIES, masks=name)
    messages, note = group_by_recipient(sent), wire.encode(ask)
    received = {party: SealedMessages(messages.get(party, {}), note) for party in parties if party != ask.maker}
    yield Ask(receive_group_key, "each", messages=received, quorum=ALL_PARTIES, masks=name)


def _check_request(site: Site, ask: GroupKeyRequest) -> tuple[PartyId, ...]:
    """Refuse another maker than the first of all enrolled sites; return the sites that the key is for."""
    parties = site.vault.enrolled_parties
    if not is_lasting(ask.name) or ask.maker != min(parties):
        raise KeysRefused("the site that makes the group key is not the first of this run")
    read_roster(site.vault, ask.name)
    return tuple(party for party in parties if party != ask.maker)
