"""Everyone's public keys: each party makes its own, signs them with its enrolled identity, and all accept the same
list.

Keys named "lasting-N" serve a whole run and are never shared. Keys named "once-N" serve one sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedclust.core import wire
from fedclust.core.effects import handler
from fedclust.core.errors import KeysRefused
from fedclust.core.release import Done, Release, public_keys
from fedclust.core.site_interface import Site, Vault
from fedclust.core.study_terms import in_any_study
from fedclust.core.types import PartyId
from fedclust.privacy import keys


@dataclass(frozen=True)
class KeyRequest:
    """Fresh keys under a name of their own, such as "lasting-1", or "once-17" for one sum."""

    name: str


@dataclass(frozen=True)
class KeyOffer(Release):
    mask: bytes = public_keys("a public key, from which two sites derive the masks they share")
    message: bytes = public_keys(
        "a public key, from which two sites derive the key that encrypts their messages to each other"
    )
    signature: bytes = public_keys("the site's signature on both keys")


@dataclass(frozen=True)
class Roster:
    """Everyone's public keys of one name."""

    name: str
    offers: dict[str, KeyOffer]


@handler(releases=KeyOffer, reads="nothing", before_alignment=True, contract=in_any_study)
def offer(site: Site, ask: KeyRequest) -> KeyOffer:
    """Make keys and return their public halves; return the same ones if asked again."""
    vault, (kind, number) = site.vault, _parse_key_name(ask.name)
    if vault.get(f"{ask.name}.mask") is None:
        if number <= int(vault.get(kind) or b"-1"):
            raise KeysRefused("the keys with this name have been replaced by newer keys")
        vault.drop(lambda key: key.startswith(f"{kind}-"))
        (mask, _), (message, _) = keys.new_pair(), keys.new_pair()
        vault.put({kind: b"%d" % number, f"{ask.name}.mask": mask, f"{ask.name}.message": message})
    mask, message = (keys.public_from_private(read_secret(vault, ask.name, which)) for which in ("mask", "message"))
    return KeyOffer(mask, message, vault.sign(_key_statement(vault.run, ask.name, site.party, mask, message)))


@handler(releases=Done, reads="nothing", before_alignment=True, contract=in_any_study)
def accept(site: Site, ask: Roster) -> Done:
    """Accept everyone's keys, once."""
    if not is_lasting(ask.name):
        raise KeysRefused("keys for a single sum must be sent with the question 'share', not with 'accept'")
    check_roster(site, ask)
    return Done()


def check_roster(site: Site, ask: Roster) -> None:
    """Check everyone's keys, signed by the enrolled identities and including this site's own; once per name.

    Lasting keys must come from everyone enrolled. No key may appear twice: a party that copies another's key would
    cancel its masks.
    """
    vault = site.vault
    if is_lasting(ask.name) and set(ask.offers) != set(vault.enrolled_parties):
        raise KeysRefused("the parties in the list of keys are not the parties that this site was enrolled with")
    if len(ask.offers) < threshold(len(vault.enrolled_parties)):
        raise KeysRefused("the list of keys lacks too many of the parties that this site was enrolled with")
    shown_keys = [_canonical(key) for offered in ask.offers.values() for key in (offered.mask, offered.message)]
    if len(set(shown_keys)) != len(shown_keys):
        raise KeysRefused("the same key appears twice in the list of keys")
    for party, offered in ask.offers.items():
        about = _key_statement(vault.run, ask.name, party, offered.mask, offered.message)
        if not vault.has_signed(party, offered.signature, about):
            raise KeysRefused(f"the keys of {party} are not signed by its enrolled identity")
    own = ask.offers.get(site.party)
    if own is None or own.mask != keys.public_from_private(read_secret(vault, ask.name, "mask")):
        raise KeysRefused("the list of keys does not include this site's own keys")
    text = wire.encode(ask)
    if vault.get(f"{ask.name}.roster") is None:
        vault.put({f"{ask.name}.roster": text})
    if vault.get(f"{ask.name}.roster") != text:
        raise KeysRefused("this site has already accepted a different list of keys under this name")


def _canonical(public: bytes) -> bytes:
    """A public key without the last bit, which X25519 ignores."""
    return public[:-1] + bytes([public[-1] & 0x7F]) if public else public


def read_roster(vault: Vault, name: str) -> Roster:
    if (known := vault.cache.get(("roster", name))) is None:
        text = vault.get(f"{name}.roster")
        if text is None:
            raise KeysRefused("this site has not accepted a list of keys under this name")
        known = vault.cache["roster", name] = wire.decode(Roster, text)
    return known


def pair_secret(vault: Vault, name: str, other: PartyId, public: bytes) -> bytes:
    if (known := vault.cache.get(("pair", name, other))) is None:
        known = vault.cache["pair", name, other] = keys.derive_shared_secret(read_secret(vault, name, "mask"), public)
    return known


def read_secret(vault: Vault, name: str, which: str) -> bytes:
    found = vault.get(f"{name}.{which}")
    if found is None:
        raise KeysRefused("this site has no private keys under this name")
    return found


def _key_statement(run: str, name: str, party: PartyId, mask: bytes, message: bytes) -> bytes:
    return keys.frame_parts("fedclust keys", run, name, party, mask, message)


def _parse_key_name(name: str) -> tuple[str, int]:
    """Return whether keys are lasting or for one sum, and their number."""
    kind, _, number = name.partition("-")
    if kind not in ("lasting", "once") or not number.isdecimal():
        raise KeysRefused("the name of these keys is not valid")
    return kind, int(number)


def is_lasting(name: str) -> bool:
    return _parse_key_name(name)[0] == "lasting"


def threshold(parties: int) -> int:
    """Return how many parties are needed to open a sum: more than two thirds."""
    return 2 * parties // 3 + 1


def salt(roster: Roster) -> bytes:
    """Return the salt that shuffles the ring of a large group; it follows from all keys, so no party can choose it."""
    return keys.digest_parts("neighbours", roster.name, *sorted(offered.mask for offered in roster.offers.values()))
