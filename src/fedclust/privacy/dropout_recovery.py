"""Masked sums that parties may drop out of, without opening any party's own share (Bonawitz et al. 2017).

Every sum has fresh keys. Each party adds a personal mask to the pairwise ones, and splits both into Shamir shares among
the others. Parties sign who answered. If enough signatures cover the same list, they release shares of the personal
masks of those who answered and of the mask keys of those who did not, but never both for one party.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedclust.core import wire
from fedclust.core.effects import ALL_PARTIES, Ask, Protocol, each, each_to, handler, needed_answers
from fedclust.core.envelope import Call
from fedclust.core.errors import KeysRefused, RunFailed
from fedclust.core.question_types import ConsentQuestion
from fedclust.core.release import Release, public_keys
from fedclust.core.site_interface import Site, Vault
from fedclust.core.study_terms import in_any_study, recovers_dropouts
from fedclust.core.types import PartyId
from fedclust.privacy import keys, masks, shamir
from fedclust.privacy.roster import (
    KeyRequest,
    Roster,
    check_roster,
    is_lasting,
    offer,
    read_roster,
    read_secret,
    salt,
    threshold,
)


@dataclass(frozen=True)
class SealedShares(Release):
    shares: dict[str, bytes] = public_keys(
        "secret shares of this site's personal mask and mask key, each encrypted for the site that keeps it"
    )


@handler(releases=SealedShares, reads="nothing", before_alignment=True, contract=in_any_study)
def share(site: Site, ask: Roster) -> SealedShares:
    """Draw a personal mask and distribute it in shares, together with the key of the pairwise masks."""
    if is_lasting(ask.name):
        raise KeysRefused("the key of a whole run must not be split into shares")
    check_roster(site, ask)
    vault, name = site.vault, ask.name
    if (before := vault.get(f"{name}.shares")) is not None:
        return wire.decode(SealedShares, before)
    own = secrets.token_bytes(32)
    holders = sorted(ask.offers)
    needs = threshold(len(vault.enrolled_parties))
    parts = zip(
        shamir.split(own, len(holders), needed=needs),
        shamir.split(read_secret(vault, ask.name, "mask"), len(holders), needed=needs),
        strict=True,
    )
    sealed = {}
    for holder, (a, b) in zip(holders, parts, strict=True):
        key, about = _share_key(site, ask.name, holder, ask.offers[holder].message)
        sealed[holder] = keys.encrypt(key, a + b, about)
    vault.put({f"{name}.own": own, f"{name}.shares": wire.encode(SealedShares(sealed))})
    return SealedShares(sealed)


@dataclass(frozen=True)
class Respondents(ConsentQuestion):
    """Who answered."""

    name: str
    parties: tuple[str, ...]

    def parties_in_sum(self) -> frozenset[str]:
        return frozenset(self.parties)


@dataclass(frozen=True)
class Consent(Release):
    signature: bytes = public_keys("the site's signature of the list of sites that answered")


@handler(releases=Consent, reads="nothing", before_alignment=True, contract=in_any_study)
def consent(site: Site, ask: Respondents) -> Consent:
    """Sign who answered, for one list only."""
    vault, name = site.vault, ask.name
    cohort, live = _bound_call(vault, ask.name)[0], ask.parties
    if len(set(live)) != len(live) or not set(live) <= set(cohort) or site.party not in live:
        raise KeysRefused(
            "the list of parties that answered has a duplicate, lacks this site, or names a party that was not asked"
        )
    if len(live) < threshold(
        len(vault.enrolled_parties)
    ):  # of all: of those alone who offered keys, it would count twice
        raise KeysRefused("too few parties answered to unmask the sum")
    text = keys.frame_parts(*sorted(live))
    if vault.get(f"{name}.live") is None:
        vault.put({f"{name}.live": text})  # on disk before the signature leaves
    if vault.get(f"{name}.live") != text:
        raise KeysRefused("this site has already signed a different list of the parties that answered")
    return Consent(vault.sign(_respondents_statement(vault, ask.name, text)))


@dataclass(frozen=True)
class UnmaskRequest:
    """Signatures of who answered, and the sealed messages that this party must open."""

    name: str
    signatures: dict[str, bytes]
    shares: dict[str, bytes]


@dataclass(frozen=True)
class RecoveryShares(Release):
    own: dict[str, bytes] = public_keys("secret shares of the personal masks of the sites that answered")
    gone: dict[str, bytes] = public_keys("secret shares of the mask keys of the sites that did not answer")


@handler(releases=RecoveryShares, reads="nothing", before_alignment=True, contract=recovers_dropouts)
def unmask(site: Site, ask: UnmaskRequest) -> RecoveryShares:
    """Release the shares that open the sum of those who answered, if enough parties signed the list."""
    vault, name = site.vault, ask.name
    cohort, _ = _bound_call(vault, ask.name)
    answered = vault.get(f"{name}.live")
    if answered is None:
        raise KeysRefused("this site has not signed a list of the parties that answered")
    live, statement = _party_names(answered), _respondents_statement(vault, name, answered)
    roster = read_roster(vault, name)
    # All of them: what one signs names the question and the parties it was told, so all were told the same.
    if not all(p in ask.signatures and vault.has_signed(p, ask.signatures[p], statement) for p in live):
        raise KeysRefused("some of the parties that answered did not sign the list of those that answered")
    own: dict[str, bytes] = {}
    gone: dict[str, bytes] = {}
    for sender in cohort:
        if sender not in ask.shares:
            continue
        key, about = _share_key(site, ask.name, sender, roster.offers[sender].message, reading=True)
        text = keys.decrypt(key, ask.shares[sender], about)
        if sender in live:
            own[sender] = text[: shamir.SHARE_BYTES]
        else:
            gone[sender] = text[shamir.SHARE_BYTES :]
    return RecoveryShares(own, gone)


def recoverable_total(ask: Ask, name: str, *, enrolled: int) -> Protocol[tuple[Any, tuple[PartyId, ...]]]:
    """Return a masked sum that parties may drop out of, and the parties in it."""
    asked = ask.among or ()
    least = threshold(enrolled)
    need = max(needed_answers(ask.quorum or ALL_PARTIES, len(asked)), least)
    offers = yield from each(offer, KeyRequest(name), among=asked, quorum=need)
    known = Roster(name, dict(offers))
    sealed = yield from each(share, known, among=tuple(offers), quorum=need)
    cohort = tuple(sealed)
    total, live = yield Ask(ask.handler, "total", ask.message, among=cohort, quorum=need, masks=name)
    signed = yield from each(consent, Respondents(name, live), among=live, quorum=ALL_PARTIES)
    proof = {party: answer.signature for party, answer in signed.items()}
    requests = {
        party: UnmaskRequest(name, proof, {s: sealed[s].shares[party] for s in cohort if party in sealed[s].shares})
        for party in live
    }
    shares = yield from each_to(unmask, requests, quorum=least)
    mask = _remaining_mask(known, cohort, live, shares, least, cells=masks.count_cells(total))
    return masks.add_mask(total, masks.negate_limbs(mask.limbs)), live


def _remaining_mask(
    known: Roster,
    cohort: Sequence[PartyId],
    live: Sequence[PartyId],
    shares: Mapping[PartyId, RecoveryShares],
    least: int,
    *,
    cells: int,
) -> masks.Mask:
    """Return the masks left in the sum: the personal ones, and those shared with parties that did not answer."""
    name, holders = known.name, sorted(known.offers)
    mask = masks.Mask(cells)
    for party in cohort:
        given = {
            holders.index(holder) + 1: part
            for holder, answer in shares.items()
            if (part := (answer.own if party in live else answer.gone).get(party)) is not None
        }
        if len(given) < least:
            raise RunFailed(f"too few secret shares to unmask the sum: {len(given)} of {least} required shares")
        secret = shamir.join_shares(dict(list(given.items())[:least]), length=32)
        if party in live:
            mask.add_streams(keys.derive_key(secret, "own", name))
            continue
        if keys.public_from_private(secret) != known.offers[party].mask:
            raise RunFailed("the secret shares do not combine to the expected key; a party sent wrong shares")
        for other in set(masks.neighbours(party, cohort, salt(known))) & set(live):
            info = keys.frame_parts("mask", name) + pair_label(party, other)
            key = keys.expand_key(keys.derive_shared_secret(secret, known.offers[other].mask), info)
            (mask.add_streams if other < party else mask.subtract_streams)(key)
    return mask


def pair_label(party: PartyId, other: PartyId) -> bytes:
    """Label whose mask it is, so that a key copied by a third party gives other masks."""
    return keys.frame_parts(*sorted((party, other)))


def bind_keys_to_call(vault: Vault, name: str, call: Call) -> None:
    """Bind the mask of one sum to this call, so that it hides one answer only."""
    text = keys.frame_parts(call.digest, *call.cohort)
    if vault.get(f"{name}.used") is None:
        vault.put({f"{name}.used": text})
    if vault.get(f"{name}.used") != text:
        raise KeysRefused("the keys of one sum were already used for another sum")


def _bound_call(vault: Vault, name: str) -> tuple[tuple[PartyId, ...], bytes]:
    """Return the cohort and the digest of the call that the masks of a name hid."""
    text = vault.get(f"{name}.used")
    if text is None:
        raise KeysRefused("this site did not answer a question with these keys")
    call, *cohort = _split_frame(text)
    return tuple(name.decode() for name in cohort), call


def _share_key(site: Site, name: str, other: PartyId, public: bytes, *, reading: bool = False) -> tuple[bytes, bytes]:
    """Return the key of a message between this site and another, and what the message is bound to."""
    way = (other, site.party) if reading else (site.party, other)
    about = keys.frame_parts("shares", site.vault.run, name, *way)
    shared = keys.derive_shared_secret(read_secret(site.vault, name, "message"), public)
    return keys.derive_key(shared, about), about


def _respondents_statement(vault: Vault, name: str, live: bytes) -> bytes:
    """Return the signed statement of who answered, under which keys, and to which call."""
    return keys.frame_parts("fedclust live", vault.run, name, _bound_call(vault, name)[1], live)


def _split_frame(text: bytes) -> list[bytes]:
    """Split what `keys.frame_parts` joined."""
    parts, at = [], 0
    while at < len(text):
        size = int.from_bytes(text[at : at + 4], "little")
        parts.append(text[at + 4 : at + 4 + size])
        at += 4 + size
    return parts


def _party_names(text: bytes) -> list[PartyId]:
    return [part.decode() for part in _split_frame(text)]
