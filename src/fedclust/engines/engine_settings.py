"""An engine's settings come from the command that started the run, then from the coordinator's file."""

from __future__ import annotations

from typing import Any

from fedclust.engines.attendance import Attendance, parse_patience
from fedclust.engines.coordinator_file import read_coordinator_file
from fedclust.engines.registry import RunSpec


def merge_settings(engine: str, spec: RunSpec) -> dict[str, Any]:
    """All settings of an engine; those of the run override those of the coordinator's file."""
    own = read_coordinator_file(spec.coordinator_file, engine).engine if spec.coordinator_file else {}
    return {**own, **spec.settings}


def build_attendance(engine: str, spec: RunSpec, *, timeout: float = Attendance.timeout) -> Attendance:
    """The attendance rules of an engine; `timeout` is the engine's default."""
    made = Attendance(timeout=spec.timeout or timeout, notify=spec.notify)
    settings = merge_settings(engine, spec)
    if "patience" in settings:
        made.patience = parse_patience(settings["patience"])
    return made
