"""The memories of the sites of a run folder between rounds, if one process holds all sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedclust.core import wire
from fedclust.core.atomic_files import write_file
from fedclust.core.errors import DataError
from fedclust.core.types import Array, PartyId
from fedclust.federation.federation import Federation
from fedclust.site.stored_state import SavedState

ABSENT_MEMORY_FILE = "carried"  # in a site's folder: the memory of a site that took no part in the round

Memories = Mapping[PartyId, dict[str, Array]]


@dataclass(frozen=True)
class AbsentSiteMemory:
    """The memory of a site that took no part in a round."""

    memory: dict[str, Array]


def read_memories(folder: Path) -> dict[PartyId, dict[str, Array]]:
    """Read the memories of the sites of a run folder, including sites that took no part in its round."""
    found = {}
    for path in sorted((folder / "sites").glob(f"*/{ABSENT_MEMORY_FILE}")):
        found[path.parent.name] = wire.decode(AbsentSiteMemory, path.read_bytes()).memory
    for path in sorted((folder / "sites").glob("*/state")):
        found[path.parent.name] = SavedState.read(path).memory
    if not found:
        raise DataError(f"{folder} contains no memory of any site; give the run folder of the previous round")
    return found


def write_absent_memories(folder: Path, memories: Memories) -> None:
    """Write the memories of sites that took no part to a run folder, so that the next round finds them."""
    for party, memory in memories.items():
        own = folder / "sites" / party
        if not (own / "state").exists():
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(own / ABSENT_MEMORY_FILE, wire.encode(AbsentSiteMemory(memory)))


def restore_memories(fed: Federation, memories: Memories) -> None:
    """Give the sites of this process their memories of the previous round."""
    for party, server in fed.local_sites.items():
        # A round that was interrupted continues with what its own folder holds.
        if party in memories and fed.run_id not in server.memory:
            server.memory[fed.run_id] = memories[party]


def local_memories(fed: Federation) -> dict[PartyId, dict[str, Array]]:
    """Return the memories of the sites of this process after a round."""
    servers = fed.local_sites.items()
    return {party: server.memory[fed.run_id] for party, server in servers if fed.run_id in server.memory}
