"""A site's secrets: its identity, the identities it was enrolled with, and the keys of each run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedclust.core import wire
from fedclust.core.atomic_files import write_file
from fedclust.core.types import PartyId
from fedclust.privacy.keys import Identity, is_signed_by


@dataclass(frozen=True)
class StoredKeys:
    """The keys of one run as stored on disk."""

    run: str
    values: dict[str, bytes]


class RunVault:
    """The keys of one run, as `core.site_interface.Vault` defines them."""

    def __init__(self, run: str, identity: Identity, roster: Mapping[PartyId, bytes], path: Path | None) -> None:
        self.run = run
        self.cache: dict[Any, Any] = {}
        self._identity = identity
        self._roster = roster
        self._path = path
        self._values: dict[str, bytes] = {}
        if path and path.exists():
            self._values = wire.decode(StoredKeys, path.read_bytes()).values

    @property
    def enrolled_parties(self) -> tuple[PartyId, ...]:
        return tuple(self._roster)

    def get(self, name: str) -> bytes | None:
        return self._values.get(name)

    def put(self, values: Mapping[str, bytes]) -> None:
        """Store values; they are on disk before this returns."""
        self._save_keys({**self._values, **values})

    def drop(self, which: Callable[[str], bool]) -> None:
        """Delete the values of some names."""
        self.cache.clear()
        self._save_keys({name: value for name, value in self._values.items() if not which(name)})

    def sign(self, message: bytes) -> bytes:
        return self._identity.sign(message)

    def has_signed(self, party: PartyId, signature: bytes, message: bytes) -> bool:
        """Return whether the identity enrolled under a party's name signed a message."""
        return party in self._roster and is_signed_by(self._roster[party], signature, message)

    def _save_keys(self, values: dict[str, bytes]) -> None:
        if self._path:
            write_file(self._path, wire.encode(StoredKeys(self.run, values)))
        self._values = values


class Vaults:
    """A site's vaults, one for each run, in its folder if it has one."""

    def __init__(self, identity: Identity, roster: Mapping[PartyId, bytes], folder: Path | None = None) -> None:
        self.identity = identity
        self.roster = dict(roster)
        self._folder = folder
        self._vaults_by_run: dict[str, RunVault] = {}

    def vault_for(self, run: str) -> RunVault:
        """Return the vault of a run."""
        if run not in self._vaults_by_run:
            path = None
            if self._folder:
                (self._folder / "keys").mkdir(mode=0o700, parents=True, exist_ok=True)
                path = self._folder / "keys" / hashlib.sha256(run.encode()).hexdigest()[:32]
            self._vaults_by_run[run] = RunVault(run, self.identity, self.roster, path)
        return self._vaults_by_run[run]
