"""The coordinator's file holds its signing key, its sites' public keys, and the settings of its engine."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedclust.core.errors import StudyError
from fedclust.core.types import PartyId
from fedclust.engines.registry import ENGINES
from fedclust.privacy.keys import Identity
from fedclust.site.site_file import parse_roster, read_private_key

COORDINATOR_FILE_KEYS = ("identity", "roster", "engine")


@dataclass(frozen=True)
class CoordinatorFile:
    """A validated coordinator's file; its relative paths start at `folder`."""

    folder: Path
    identity: Path | None = None
    roster: Mapping[PartyId, bytes] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)

    def signing_identity(self) -> Identity:
        """The coordinator's identity."""
        if self.identity is None:
            raise StudyError(
                "the coordinator's file has no identity; create a key with fedclust site key, and set identity "
                "to its path"
            )
        return read_private_key(self.identity)

    def public_keys(self, parties: tuple[PartyId, ...]) -> dict[PartyId, bytes]:
        """The sites' public keys; refuses a file that lacks one."""
        for party in parties:
            if party not in self.roster:
                raise StudyError(f"[roster] of the coordinator's file lacks site '{party}'; add the site's public key")
        return {party: self.roster[party] for party in parties}


def read_coordinator_file(path: Path, engine_name: str | None = None) -> CoordinatorFile:
    """Read a coordinator's file; its relative paths start at its folder. `engine_name` is the engine that needs it."""
    try:
        top = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise StudyError(f"there is no coordinator's file at {path}; give its path with --own") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StudyError(f"{path} is not valid TOML ({error}); correct the file") from None
    for name in top:
        if name not in COORDINATOR_FILE_KEYS:
            raise StudyError(f"{path} has an unknown key '{name}'; the keys are {', '.join(COORDINATOR_FILE_KEYS)}")
    identity, roster, engine = top.get("identity"), top.get("roster", {}), top.get("engine", {})
    if not isinstance(identity, (str, type(None))) or not isinstance(roster, dict) or not isinstance(engine, dict):
        raise StudyError(
            f"{path} has a value of the wrong type; identity must be a path, and [roster] and [engine] must be tables"
        )
    may = (
        ENGINES[engine_name].settings
        if engine_name
        else sorted({key for entry in ENGINES.values() for key in entry.settings})
    )
    for name in engine:
        if name not in may:
            has = f"the keys of engine '{engine_name}' are" if engine_name else "the keys are"
            raise StudyError(f"[engine] of {path} has an unknown key '{name}'; {has} {', '.join(may)}")
    return CoordinatorFile(
        path.parent,
        None if identity is None else path.parent / Path(identity).expanduser(),
        parse_roster(roster, path),
        engine,
    )
