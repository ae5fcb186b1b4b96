"""A total that is asked for again, of the same parties, while its answer leads to a finer question."""

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
    """What was read from the finest answer, the first answer as it came, and who is in the last one."""

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
    """The sum of the parties' answers, asked for again until `finer` has no better question.

    `read` decodes an answer; `finer` makes the next question from it, `max_repeats` times at most. Without `read_last`
    the answer to the last possible repeat is not used, and the one before stands.
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
