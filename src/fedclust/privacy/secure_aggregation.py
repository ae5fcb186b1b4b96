"""Secure aggregation: every sum a protocol asks for is opened as a sum, and no party's part of it ever is.

`Secure.rewrite` turns each `total` of a protocol into masked rounds; algorithms do not know. Where all must answer,
keys are agreed on once: each pair of parties derives a fresh mask for each step, which one adds and the other takes
away, so that the sum of all answers is the sum, and a sum of fewer is noise. Where some may be missing, `recovery`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fedclust.core.drive import checked
from fedclust.core.effects import ALL, Ask, Mail, Opening, Protocol, Quorum, each, rewrite
from fedclust.core.envelope import Call
from fedclust.core.errors import KeysRefused, QuorumLost
from fedclust.core.release import Release
from fedclust.core.site_interface import Vault
from fedclust.core.types import PartyId
from fedclust.privacy import keys, masks
from fedclust.privacy.dropout_recovery import between, only_once, recoverable
from fedclust.privacy.roster import Offers, Wanted, accept, lasting, offer, pair, roster_of, salt, secret, threshold

T = TypeVar("T")
R = TypeVar("R", bound=Release)
TRIES = 3
PASSING = {"no-answer", "keys-refused", "odd-answer"}  # reasons that fresh keys may cure


def masked(release: R, call: Call, vault: Vault, party: PartyId) -> R:
    """A release under masks; what a gate does last."""
    name = call.masks or ""
    roster = roster_of(vault, name)
    cohort = set(call.cohort)
    if len(cohort) != len(call.cohort) or party not in cohort or not cohort <= set(roster.offers):
        raise KeysRefused("a sum over parties whose keys are not known")
    info = keys.framed("mask", call.run, call.step, call.digest, "veiled" if call.veiled else "bare")
    if not lasting(name):
        if len(cohort) < threshold(len(vault.enrolled)):
            raise KeysRefused("a sum over too few of the parties whose keys are known")
        info = keys.framed("mask", name)
        only_once(vault, name, call)
    pairs = {
        other: keys.expanded(pair(vault, name, other, roster.offers[other].mask), info + between(party, other))
        for other in masks.neighbours(party, call.cohort, salt(roster))
    }
    mask = masks.pairwise(party, pairs, masks.cells_of(release))
    if not lasting(name):
        mask.add(keys.derived(secret(vault, name, "own"), "own", name))
    return masks.shifted(release, mask.limbs)


class Secure:
    """Rewrites the protocols of one federation; its counters follow from the script alone, so a resumed run agrees.

    `sums=False` leaves sums as they are and seals only what goes from site to site.
    """

    def __init__(self, parties: Sequence[PartyId], *, sums: bool = True) -> None:
        self.parties = tuple(parties)
        self.sums = sums
        self.made = 0
        self.lasting: str | None = None

    def rewrite(self, protocol: Protocol[T], *, quorum: Quorum = ALL) -> Protocol[T]:
        """The same protocol, with sums masked and letters sealed."""

        def lower(ask: Ask) -> Protocol[Any]:
            wanted = quorum if ask.quorum is None else ask.quorum
            if ask.once:
                return (yield replace(ask, masks=(yield from self.agree())))
            if ask.want == "relay" or isinstance(_any_message(ask), Mail):
                return (yield from self._keyed(ask))
            if ask.want != "total" or not self.sums:
                return (yield ask)
            if wanted == ALL:
                return possible((yield from self._keyed(ask)), ask)
            asked = replace(ask, among=self.parties if ask.among is None else ask.among, quorum=wanted)
            opened = yield Opening(lambda step: _patiently(asked, step, len(self.parties)), ask.who.release)
            return possible(opened, ask)

        return rewrite(protocol, lower, self._opening)

    def _opening(self, opening: Opening) -> Protocol[Any]:
        """Steps of which only the result is kept, their letters sealed under keys that were agreed on before.

        Keys of their own would not be known to a resumed run, which skips them.
        """
        name = yield from self.agree()

        def lower(ask: Ask) -> Protocol[Any]:
            sealed = ask.want == "relay" or isinstance(_any_message(ask), Mail)
            return (yield replace(ask, masks=name) if sealed else ask)

        return (yield replace(opening, steps=lambda step: rewrite(opening.steps(step), lower)))

    def _keyed(self, ask: Ask) -> Protocol[Any]:
        """An ask under lasting keys; where a party was lost, everyone makes new ones and the step is repeated."""

        def once() -> Protocol[Any]:
            name = yield from self.agree()
            return (yield replace(ask, masks=name, quorum=ALL if ask.want == "total" else ask.quorum))

        return (yield from self.repeated(once))

    def agree(self) -> Protocol[str]:
        """Have everyone make keys and know everyone's, unless that is done."""
        if self.lasting is None:
            self.lasting = yield from self.repeated(self._offered)
        return self.lasting

    def _offered(self) -> Protocol[str]:
        self.made += 1
        name = f"lasting-{self.made}"
        offers = yield from each(offer, Wanted(name), quorum=ALL)
        yield from each(accept, Offers(name, dict(offers)), quorum=ALL)
        return name

    def repeated(self, steps: Callable[[], Protocol[T]]) -> Protocol[T]:
        """Steps that need everyone, taken again with fresh keys where someone was missing, a few times."""
        for _ in range(TRIES - 1):
            try:
                return (yield from steps())
            except QuorumLost as lost:
                if not set(lost.missing.values()) & PASSING:
                    raise
                self.lasting = None
        return (yield from steps())


def _patiently(ask: Ask, step: int, enrolled: int) -> Protocol[tuple[Any, tuple[PartyId, ...]]]:
    """A sum that parties may leave, begun anew with fresh keys where one left when it was being opened."""
    for tries in range(TRIES - 1):
        try:
            return (yield from recoverable(ask, f"once-{step + tries}", enrolled=enrolled))
        except QuorumLost:
            continue
    return (yield from recoverable(ask, f"once-{step + TRIES - 1}", enrolled=enrolled))


def possible(opened: tuple[R, tuple[PartyId, ...]], ask: Ask) -> tuple[R, tuple[PartyId, ...]]:
    """A sum that was opened, and who is in it, if it can be true."""
    return checked(opened[0], ask.message), opened[1]


def _any_message(ask: Ask) -> Any:
    return ask.message if ask.messages is None else next(iter(ask.messages.values()), None)
