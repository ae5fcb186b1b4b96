"""A total that is asked again from the same parties while each answer allows a finer question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from fedclust.core.effects import Handler, Protocol, total_with_parties
from fedclust.core.release import Release
from fedclust.core.types import PartyId

T = TypeVar("T")
M = TypeVar("M")
R = TypeVar("R", bound=Release)


@dataclass(frozen=True)
class RepeatedTotal(Generic[T, R]):
    """The value from the finest answer, the first answer as received, and the parties in the last one."""

    found: T
    first: R
    parties: tuple[PartyId, ...]


def total_at_finest_unit(
    who: Handler[M, R],
    ask: M,
    *,
    read: Callable[[R], T],
    finer: Callable[[M, T], M | None],
    max_repeats: int,
    read_last: bool = True,
    among: tuple[PartyId, ...] | None = None,
) -> Protocol[RepeatedTotal[T, R]]:
    """Return the sum of the parties' answers, asked again until `finer` has no better question.

    `read` decodes an answer. `finer` makes the next question from it, at most `max_repeats` times. Without `read_last`,
    the answer to the last possible repeat is not used, and the one before it counts.
    """
    first, parties = yield from total_with_parties(who, ask, among=among)
    found = read(first)
    for repeats_left in reversed(range(max_repeats)):
        again = finer(ask, found)
        if again is None:
            break
        ask = again
        answer, parties = yield from total_with_parties(who, ask, among=parties)
        if repeats_left or read_last:
            found = read(answer)
    return RepeatedTotal(found, first, parties)
