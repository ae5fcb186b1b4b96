"""Who is there: parties that miss a deadline are suspended, asked again later, and welcomed back when they answer.

Times are of a clock that only goes forward; no machine's idea of the date decides anything.
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
    """Whoever watches a run gets `tell(event, **facts)`; by default nobody does."""


@dataclass
class Attendance:
    """How long parties are waited for, and who of them is suspended.

    `timeout` is what one asking takes at most. A party that misses it is suspended: while enough others answer it is
    asked again only `retry_after` seconds later. Where too few answer without it, it is asked on and on, until
    `patience`
    seconds of a step are over and the quorum is lost.
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
        """Whom to ask at once: everyone but the suspended, who wait for their time unless too few are left."""
        asked = list(parties)
        ready = [
            p
            for p in asked
            if p not in self._suspended_since or self.clock() - self._suspended_since[p] >= self.retry_after
        ]
        return ready if len(ready) >= need else asked

    def mark_missed(self, party: PartyId, step: int) -> None:
        """A party let a deadline pass."""
        if party not in self._suspended_since:
            self.notify("suspended", site=party, step=step)
        self._suspended_since[party] = self.clock()

    def mark_answered(self, party: PartyId, step: int) -> None:
        """A party answered, whatever it answered."""
        if self._suspended_since.pop(party, None) is not None:
            self.notify("rejoined", site=party, step=step)


def parse_patience(setting: object) -> float:
    """The patience that a setting asks for."""
    try:
        seconds = float(str(setting))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise StudyError(f"patience is '{setting}'; give a number of seconds above 0")
    return seconds
