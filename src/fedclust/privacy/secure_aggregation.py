"""Secure aggregation: every sum that a protocol asks for is opened only as a sum, never as a party's own share.

`SecureAggregator.rewrite` turns each `total` of a protocol into masked rounds; algorithms do not notice. If all parties
must answer, they agree on keys once. Each pair then derives a fresh mask for each step, which one party adds and the
other subtracts. The masks cancel in the sum of all answers, and a sum of fewer answers is noise. If parties may drop
out, `dropout_recovery` is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fedclust.core.drive import check_opened_sum
from fedclust.core.effects import ALL_PARTIES, Ask, Opening, Protocol, Quorum, SealedMessages, each, rewrite
from fedclust.core.envelope import Call
from fedclust.core.errors import KeysRefused, QuorumLost
from fedclust.core.release import Release
from fedclust.core.site_interface import Vault
from fedclust.core.types import PartyId
from fedclust.privacy import keys, masks
from fedclust.privacy.dropout_recovery import bind_keys_to_call, pair_label, recoverable_total
from fedclust.privacy.roster import (
    KeyRequest,
    Roster,
    accept,
    is_lasting,
    offer,
    pair_secret,
    read_roster,
    read_secret,
    salt,
    threshold,
)
from fedclust.privacy.verified.group_key import share_group_key

T = TypeVar("T")
R = TypeVar("R", bound=Release)
MAX_KEY_ATTEMPTS = 3
RETRYABLE_REASONS = {"no-answer", "keys-refused", "odd-answer"}  # refusals that fresh keys may resolve


def mask_release(release: R, call: Call, vault: Vault, party: PartyId) -> R:
    """Mask a release, as the last step of the gate."""
    name = call.masks or ""
    roster = read_roster(vault, name)
    cohort = set(call.cohort)
    if len(cohort) != len(call.cohort) or party not in cohort or not cohort <= set(roster.offers):
        raise KeysRefused("the masked sum includes parties whose keys this site has not received")
    info = keys.frame_parts("mask", call.run, call.step, call.digest, "encrypted" if call.is_encrypted else "plain")
    if not is_lasting(name):
        if len(cohort) < threshold(len(vault.enrolled_parties)):
            raise KeysRefused("the masked sum includes too few of the parties that this site was enrolled with")
        info = keys.frame_parts("mask", name)
        bind_keys_to_call(vault, name, call)
    pairs = {
        other: keys.expand_key(
            pair_secret(vault, name, other, roster.offers[other].mask), info + pair_label(party, other)
        )
        for other in masks.neighbours(party, call.cohort, salt(roster))
    }
    mask = masks.pairwise(party, pairs, masks.count_cells(release))
    if not is_lasting(name):
        mask.add_streams(keys.derive_key(read_secret(vault, name, "own"), "own", name))
    return masks.add_mask(release, mask.limbs)


class SecureAggregator:
    """Rewrites the protocols of one federation; its counters depend only on the protocol, so a resumed run matches.

    `mask_sums=False` leaves sums as they are and seals only what goes from site to site. `verified` gives all sites a
    group key before the first question, with which they prove their answers to each other.
    """

    def __init__(self, parties: Sequence[PartyId], *, mask_sums: bool = True, verified: bool = False) -> None:
        self.parties = tuple(parties)
        self.mask_sums = mask_sums
        self.verified = verified
        self.key_sets_made = 0
        self.lasting_keys: str | None = None
        self.group_keys: str | None = None  # the keys for which all sites have the group key

    def rewrite(self, protocol: Protocol[T], *, quorum: Quorum = ALL_PARTIES) -> Protocol[T]:
        """Return the same protocol with masked sums and sealed messages."""

        def lower(ask: Ask) -> Protocol[Any]:
            wanted = quorum if ask.quorum is None else ask.quorum
            if self.verified:
                yield from self.agree_on_keys()
            if ask.asked_once:
                return (yield replace(ask, masks=(yield from self.agree_on_keys())))
            if ask.want == "relay" or isinstance(_any_message(ask), SealedMessages):
                return (yield from self._ask_with_keys(ask))
            if ask.want != "total" or not self.mask_sums:
                return (yield ask)
            if wanted == ALL_PARTIES:
                return check_total((yield from self._ask_with_keys(ask)), ask)
            asked = replace(ask, among=self.parties if ask.among is None else ask.among, quorum=wanted)
            opened = yield Opening(
                lambda step: _retry_recoverable_total(asked, step, len(self.parties)), ask.handler.release
            )
            return check_total(opened, ask)

        return rewrite(protocol, lower, self._rewrite_opening)

    def _rewrite_opening(self, opening: Opening) -> Protocol[Any]:
        """Run steps of which only the result is recorded, with messages sealed under keys agreed on before.

        A resumed run skips these steps, so it would not know keys that they made.
        """
        name = yield from self.agree_on_keys()

        def lower(ask: Ask) -> Protocol[Any]:
            sealed = ask.want == "relay" or isinstance(_any_message(ask), SealedMessages)
            return (yield replace(ask, masks=name) if sealed else ask)

        return (yield replace(opening, steps=lambda step: rewrite(opening.steps(step), lower)))

    def _ask_with_keys(self, ask: Ask) -> Protocol[Any]:
        """Ask under lasting keys; if a party was lost, everyone makes new keys and the step is repeated."""

        def ask_once() -> Protocol[Any]:
            name = yield from self.agree_on_keys()
            return (yield replace(ask, masks=name, quorum=ALL_PARTIES if ask.want == "total" else ask.quorum))

        return (yield from self.retry_with_fresh_keys(ask_once))

    def agree_on_keys(self) -> Protocol[str]:
        """Have everyone make keys and accept everyone's, unless that is done."""
        if self.lasting_keys is None:
            self.lasting_keys = yield from self.retry_with_fresh_keys(self._exchange_keys)
        return self.lasting_keys

    def _exchange_keys(self) -> Protocol[str]:
        self.key_sets_made += 1
        name = f"lasting-{self.key_sets_made}"
        offers = yield from each(offer, KeyRequest(name), quorum=ALL_PARTIES)
        yield from each(accept, Roster(name, dict(offers)), quorum=ALL_PARTIES)
        if self.verified:
            yield from share_group_key(name, self.parties)
            self.group_keys = name
        return name

    def retry_with_fresh_keys(self, steps: Callable[[], Protocol[T]]) -> Protocol[T]:
        """Repeat steps that need everyone with fresh keys if a party was missing, a few times."""
        for _ in range(MAX_KEY_ATTEMPTS - 1):
            try:
                return (yield from steps())
            except QuorumLost as lost:
                if not set(lost.missing.values()) & RETRYABLE_REASONS:
                    raise
                self.lasting_keys = None
        return (yield from steps())


def _retry_recoverable_total(ask: Ask, step: int, enrolled: int) -> Protocol[tuple[Any, tuple[PartyId, ...]]]:
    """Return a sum that parties may drop out of, started again with fresh keys if one left while it was opened."""
    for tries in range(MAX_KEY_ATTEMPTS - 1):
        try:
            return (yield from recoverable_total(ask, f"once-{step + tries}", enrolled=enrolled))
        except QuorumLost:
            continue
    return (yield from recoverable_total(ask, f"once-{step + MAX_KEY_ATTEMPTS - 1}", enrolled=enrolled))


def check_total(opened: tuple[R, tuple[PartyId, ...]], ask: Ask) -> tuple[R, tuple[PartyId, ...]]:
    """Return an opened sum and its parties if it can be true."""
    return check_opened_sum(opened[0], ask.message), opened[1]


def _any_message(ask: Ask) -> Any:
    return ask.message if ask.messages is None else next(iter(ask.messages.values()), None)
