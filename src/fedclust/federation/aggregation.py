"""How a federation's sums are revealed: each site's sums, only sums over all sites, or only to the leading site."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from fedclust.core.atomic_files import write_file
from fedclust.core.effects import ALL_PARTIES, Protocol, Quorum
from fedclust.core.errors import StudyError
from fedclust.core.round_padding import pad_to_multiple
from fedclust.core.types import PartyId
from fedclust.privacy.blind.blind_aggregation import BlindAggregator
from fedclust.privacy.keys import Identity
from fedclust.privacy.padding import Padding
from fedclust.privacy.secure_aggregation import SecureAggregator
from fedclust.site.vault import Vaults

T = TypeVar("T")
AGGREGATION_MODES = ("plain", "secure", "blind")
MIN_SECURE_SITES = 3  # with two sites, each could compute the other's contribution from the sum


@dataclass(frozen=True)
class Aggregation:
    """`plain`, `secure`, or `blind` with a lead; a blind run reveals when it converged only with `early_stopping`.

    `rehearses_blind` asks as many questions as a blind run, to rehearse one.
    """

    mode: str = "plain"
    lead: PartyId | None = None
    early_stopping: bool = False
    rehearses_blind: bool = False

    def check_parties(self, parties: Sequence[PartyId]) -> None:
        """Refuse an aggregation that these sites cannot run."""
        if self.mode not in AGGREGATION_MODES:
            raise StudyError(f"aggregation is '{self.mode}'; choose one of {', '.join(AGGREGATION_MODES)}")
        if self.mode != "plain" and len(parties) < MIN_SECURE_SITES:
            raise StudyError(
                f"aggregation '{self.mode}' needs at least three sites, because with two each could compute the "
                "other's "
                "data from the sum; add a site, or set aggregation to 'plain'"
            )
        if self.lead is not None and (self.lead not in parties or self.mode != "blind"):
            raise StudyError(
                f"the parameter 'lead' is '{self.lead}'; it must name one of the sites, and aggregation must be 'blind'"
            )

    @property
    def is_blind(self) -> bool:
        return self.mode == "blind"

    @property
    def has_fixed_rounds(self) -> bool:
        """Whether a run must use all of its rounds."""
        return self.rehearses_blind or (self.is_blind and not self.early_stopping)


class Aggregator:
    """How one federation asks its questions, in all protocols that it runs."""

    def __init__(
        self,
        aggregation: Aggregation,
        parties: Sequence[PartyId],
        run: str,
        vaults: EnrolledSites | None,
        *,
        verified: bool = False,
    ) -> None:
        self._run = run
        self._has_fixed_rounds = aggregation.has_fixed_rounds
        self._secure = SecureAggregator(parties, mask_sums=aggregation.mode != "plain", verified=verified)
        self._blind: BlindAggregator | None = None
        if aggregation.is_blind and vaults is None:
            raise StudyError(
                "this engine does not support aggregation 'blind'; use engine 'files', or set aggregation to 'secure'"
            )
        if aggregation.is_blind and vaults is not None:
            lead = aggregation.lead or parties[0]
            self._blind = BlindAggregator(self._secure, parties, lead, lambda: vaults.vaults_for(lead).vault_for(run))

    @property
    def group_keys(self) -> str | None:
        """The keys under which sites prove their answers now, if they do."""
        return self._secure.group_keys

    def wrap(self, protocol: Protocol[T], quorum: Quorum) -> Protocol[T]:
        """Return the protocol with its totals rewritten for this aggregation."""
        if self._blind is None:
            return self._secure.rewrite(protocol, quorum=quorum)
        if quorum != ALL_PARTIES:
            raise StudyError(
                "under blind aggregation the coordinator cannot see which site is missing; set quorum to 'all'"
            )
        return self._blind.rewrite(protocol, run=self._run)

    def pad(self, protocol: Protocol[T], multiple: int) -> Protocol[T]:
        """Pad the protocol to a multiple of `multiple` questions if nobody may see when it converged."""
        return pad_to_multiple(protocol, multiple) if self._has_fixed_rounds else protocol

    def widen_padding(self, padding: Padding) -> None:
        """From now on, pad messages to at least this length if lengths must reveal nothing."""
        if self._blind is not None and self._has_fixed_rounds:
            self._blind.padding = self._blind.padding.cover_both(padding)


class EnrolledSites:
    """Identities of sites in one process, which know each other; created when first needed, kept in a run folder."""

    def __init__(self, parties: Sequence[PartyId], folder: Path | None) -> None:
        self._site_folders = {party: folder / "sites" / party if folder else None for party in parties}
        self._all_vaults = cache(self._make_vaults)  # ten thousand identities are created only if they are used
        self._lock = threading.Lock()  # sites that answer in parallel must not create them twice

    def vaults_for(self, party: PartyId) -> Vaults:
        """Return a site's vaults."""
        with self._lock:
            return self._all_vaults()[party]

    def vaults_opener(self, party: PartyId) -> Callable[[], Vaults]:
        """Return a function that returns a site's vaults when it is called."""
        return lambda: self.vaults_for(party)

    def _make_vaults(self) -> Mapping[PartyId, Vaults]:
        identities = {party: _load_identity(home) for party, home in self._site_folders.items()}
        roster = {party: identity.public for party, identity in identities.items()}
        return {party: Vaults(identities[party], roster, home) for party, home in self._site_folders.items()}


def _load_identity(home: Path | None) -> Identity:
    if home is None:
        return Identity.new()
    path = home / "identity"
    if not path.exists():
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, Identity.new().private, durable=False)
    return Identity(path.read_bytes())
