"""How a federation's sums are opened: plainly, as sums of all sites only, or to the lead alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from fedclust.core.atomic_files import write_file
from fedclust.core.effects import ALL, Protocol, Quorum, even
from fedclust.core.errors import StudyError
from fedclust.core.types import PartyId
from fedclust.privacy.blind.blind_aggregation import Blind
from fedclust.privacy.keys import Identity
from fedclust.privacy.padding import Room
from fedclust.privacy.secure_aggregation import Secure
from fedclust.site.vault import Vaults

T = TypeVar("T")
MODES = ("plain", "secure", "blind")
FEWEST = 3  # of a sum of two, each knows the other's part


@dataclass(frozen=True)
class Aggregation:
    """`plain`, `secure`, or `blind` with a lead; only with `early_stopping` does a blind run show when it settled.

    `steady` asks as often as a blind run does, to rehearse one.
    """

    mode: str = "plain"
    lead: PartyId | None = None
    early_stopping: bool = False
    steady: bool = False

    def check(self, parties: Sequence[PartyId]) -> None:
        """Refuse what cannot be carried out."""
        if self.mode not in MODES:
            raise StudyError(f"aggregation is '{self.mode}'; choose one of {', '.join(MODES)}")
        if self.mode != "plain" and len(parties) < FEWEST:
            raise StudyError(
                f"aggregation '{self.mode}' needs at least three sites: of a sum of two, each knows the other's part"
            )
        if self.lead is not None and (self.lead not in parties or self.mode != "blind"):
            raise StudyError(f"'{self.lead}' cannot lead; name one of the sites, with aggregation 'blind'")

    @property
    def blind(self) -> bool:
        return self.mode == "blind"

    @property
    def fixed_rounds(self) -> bool:
        """Whether a run must go on to its last round."""
        return self.steady or (self.blind and not self.early_stopping)


class Rewriting:
    """One federation's way to ask, over all the protocols it runs."""

    def __init__(self, how: Aggregation, parties: Sequence[PartyId], run: str, vaults: Enrolled | None) -> None:
        self._run = run
        self._fixed = how.fixed_rounds
        self._secure = Secure(parties, sums=how.mode != "plain")
        self._blind: Blind | None = None
        if how.blind and vaults is None:
            raise StudyError(
                "aggregation 'blind' is driven by the site that leads; by files it is, other engines need 'secure'"
            )
        if how.blind and vaults is not None:
            lead = how.lead or parties[0]
            self._blind = Blind(self._secure, parties, lead, lambda: vaults.of(lead).of(run))

    def of(self, protocol: Protocol[T], quorum: Quorum) -> Protocol[T]:
        """The protocol as it is asked."""
        if self._blind is None:
            return self._secure.rewrite(protocol, quorum=quorum)
        if quorum != ALL:
            raise StudyError("a blind coordinator cannot tell who is missing; set quorum to 'all'")
        return self._blind.rewrite(protocol, run=self._run)

    def often(self, protocol: Protocol[T], asks: int) -> Protocol[T]:
        """The protocol, with a multiple of `asks` questions where nobody may see when it settled."""
        return even(protocol, asks) if self._fixed else protocol

    def make_room(self, room: Room) -> None:
        """Let no veiled message be shorter from now on, where lengths must not tell."""
        if self._blind is not None and self._fixed:
            self._blind.room = self._blind.room.wider(room)


class Enrolled:
    """Identities of sites in one process, which know each other's; made when first needed, kept in a run folder."""

    def __init__(self, parties: Sequence[PartyId], folder: Path | None) -> None:
        self._homes = {party: folder / "sites" / party if folder else None for party in parties}
        self._all = cache(self._made)  # ten thousand identities only where they are used
        self._making = threading.Lock()  # sites that are asked side by side must not make them twice

    def of(self, party: PartyId) -> Vaults:
        """A site's vaults."""
        with self._making:
            return self._all()[party]

    def at(self, party: PartyId) -> Callable[[], Vaults]:
        """The same, when it is asked for."""
        return lambda: self.of(party)

    def _made(self) -> Mapping[PartyId, Vaults]:
        identities = {party: _identity(home) for party, home in self._homes.items()}
        roster = {party: identity.public for party, identity in identities.items()}
        return {party: Vaults(identities[party], roster, home) for party, home in self._homes.items()}


def _identity(home: Path | None) -> Identity:
    if home is None:
        return Identity.new()
    path = home / "identity"
    if not path.exists():
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, Identity.new().private, durable=False)
    return Identity(path.read_bytes())
