"""Attendance suspends parties that miss a deadline, asks them again later, and readmits them when they answer.

All times come from a monotonic clock, so a wrong date on a machine decides nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedclust.core.errors import StudyError
from fedclust.core.types import PartyId

EventListener = Callable[..., None]


def ignore_event(event: str, **facts: object) -> None:
    """The default listener. A listener that watches a run receives `notify(event, **facts)`."""


@dataclass
class Attendance:
    """How long the engine waits for parties, and which of them are suspended.

    `timeout` is the time limit of one request. A party that misses it is suspended. While enough others answer, the
    engine asks it again only after `retry_after` seconds. If too few others answer, the engine keeps asking it, until
    the step has taken `patience` seconds and the quorum is lost.
    """

    timeout: float = 60.0
    retry_after: float = 300.0
    patience: float = 900.0
    notify: EventListener = ignore_event
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    _suspended_since: dict[PartyId, float] = field(default_factory=dict)

    @property
    def suspended_parties(self) -> tuple[PartyId, ...]:
        return tuple(self._suspended_since)

    def parties_to_ask(self, parties: Iterable[PartyId], need: int) -> list[PartyId]:
        """The parties to ask now: all but the suspended ones, which are left out unless too few others remain."""
        asked = list(parties)
        ready = [
            p
            for p in asked
            if p not in self._suspended_since or self.clock() - self._suspended_since[p] >= self.retry_after
        ]
        return ready if len(ready) >= need else asked

    def mark_missed(self, party: PartyId, step: int) -> None:
        """Record that a party missed a deadline."""
        if party not in self._suspended_since:
            self.notify("suspended", site=party, step=step)
        self._suspended_since[party] = self.clock()

    def mark_answered(self, party: PartyId, step: int) -> None:
        """Record that a party answered, with a result or with a refusal."""
        if self._suspended_since.pop(party, None) is not None:
            self.notify("rejoined", site=party, step=step)


def parse_patience(setting: object) -> float:
    """The patience in seconds that a setting asks for."""
    try:
        seconds = float(str(setting))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise StudyError(f"patience is '{setting}'; set it to a number of seconds above 0")
    return seconds
