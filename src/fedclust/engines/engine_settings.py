"""What an engine is set to: what the run was begun with, and besides it what the coordinator's own file says."""

from __future__ import annotations

from typing import Any

from fedclust.engines.attendance import Attendance, patience_of
from fedclust.engines.coordinator_file import read_own
from fedclust.engines.registry import RunSpec


def settings_of(engine: str, spec: RunSpec) -> dict[str, Any]:
    """All that is set; the run's own word counts first."""
    own = read_own(spec.own, engine).engine if spec.own else {}
    return {**own, **spec.settings}


def attendance_of(engine: str, spec: RunSpec, *, timeout: float = Attendance.timeout) -> Attendance:
    """How long an engine waits for sites; `timeout` is its default."""
    made = Attendance(timeout=spec.timeout or timeout, tell=spec.tell)
    settings = settings_of(engine, spec)
    if "patience" in settings:
        made.patience = patience_of(settings["patience"])
    return made
