"""What an engine is set to: what the run was begun with, and besides it what the coordinator's own file says."""

from __future__ import annotations

from typing import Any

from fedclust.engines.attendance import Attendance, parse_patience
from fedclust.engines.coordinator_file import read_coordinator_file
from fedclust.engines.registry import RunSpec


def merge_settings(engine: str, spec: RunSpec) -> dict[str, Any]:
    """All that is set; the run's own word counts first."""
    own = read_coordinator_file(spec.coordinator_file, engine).engine if spec.coordinator_file else {}
    return {**own, **spec.settings}


def build_attendance(engine: str, spec: RunSpec, *, timeout: float = Attendance.timeout) -> Attendance:
    """How long an engine waits for sites; `timeout` is its default."""
    made = Attendance(timeout=spec.timeout or timeout, notify=spec.notify)
    settings = merge_settings(engine, spec)
    if "patience" in settings:
        made.patience = parse_patience(settings["patience"])
    return made
