"""The registry lists the engines by name; a new engine is a module with `check` and `connect`, and one entry here."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedclust.core.errors import StudyError
from fedclust.core.types import PartyId
from fedclust.engines.attendance import EventListener, ignore_event
from fedclust.engines.networked_engine import NetworkedEngine


@dataclass(frozen=True)
class RunSpec:
    """What an engine needs to know about a run to reach its sites.

    `coordinator_file` is the coordinator's file, if it has one; `settings` are those given when the run started. With
    `wait` the process stays until answers arrive. Without it, an engine whose answers take days may raise `Waiting`.
    `without` names sites that are not asked. If `timeout` is None, the engine uses its default.
    """

    run: str
    study: str
    parties: tuple[PartyId, ...]
    folder: Path
    coordinator_file: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    wait: bool = True
    timeout: float | None = None
    without: frozenset[PartyId] = frozenset()
    notify: EventListener = ignore_event


@dataclass(frozen=True)
class EngineEntry:
    """An engine's module: `module.connect(spec)` makes the engine. `extra` is the optional dependency it needs.

    `module.check_spec(spec)` refuses, before a run is created, what `connect` would refuse later.
    """

    module: str
    description: str
    extra: str | None = None
    can_lead: bool = False  # a site can lead a blind run over this engine
    may_take_days: bool = False  # an answer may take days, and the coordinator need not keep running
    settings: tuple[str, ...] = ()  # keys of --set and of [engine] in the coordinator's file
    path_settings: tuple[str, ...] = ()  # settings that --set gives as paths relative to the current folder


ENGINES = {
    "nvflare": EngineEntry(
        "fedclust.engines.nvflare.nvflare_link",
        "NVIDIA FLARE over mutual TLS, for sites in different organisations",
        "nvflare",
        settings=("bind", "kit", "patience"),
        path_settings=("kit",),
    ),
    "flower": EngineEntry(
        "fedclust.engines.flower_link",
        "Flower; the coordinator runs in a ServerApp that flwr run starts",
        "flower",
        settings=("patience",),
    ),
    "files": EngineEntry(
        "fedclust.engines.files.files_link",
        "signed message files in folders, without any network",
        may_take_days=True,
        can_lead=True,
        settings=("folder", "poll"),
    ),
}


def find_engine(name: str) -> EngineEntry:
    """The registry entry of an engine."""
    if name not in ENGINES:
        close = difflib.get_close_matches(name, ENGINES, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"choose from {', '.join(ENGINES)}"
        raise StudyError(f"there is no engine '{name}'; {hint}")
    return ENGINES[name]


def resolve_settings(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as a run stores them, with absolute paths to resume from any folder; refuses unknown settings."""
    entry = find_engine(name)
    for key in settings:
        if key not in entry.settings:
            raise StudyError(f"engine '{name}' has no setting '{key}'; its settings are {', '.join(entry.settings)}")
    return {key: str(Path(said).resolve()) if key in entry.path_settings else said for key, said in settings.items()}


def check_run_spec(name: str, spec: RunSpec) -> None:
    """Refuse a run that the named engine could not connect for."""
    _import_engine(name).check_spec(spec)


def connect(name: str, spec: RunSpec) -> NetworkedEngine:
    """The named engine, ready to reach the sites of a run."""
    made: NetworkedEngine = _import_engine(name).connect(spec)
    return made


def _import_engine(name: str) -> Any:
    entry = find_engine(name)
    try:
        return importlib.import_module(entry.module)
    except ModuleNotFoundError as absent:
        if entry.extra is None:
            raise
        raise StudyError(
            f"engine '{name}' needs {absent.name}; install it with: pip install 'fedclust[{entry.extra}]'"
        ) from None
