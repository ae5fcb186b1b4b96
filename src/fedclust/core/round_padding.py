"""Repeats questions until their number is a multiple of a fixed one, so that whoever counts them learns less."""

from __future__ import annotations

import typing
from typing import Any, TypeVar

from fedclust.core.effects import Ask, HidesRounds, Protocol, rewrite
from fedclust.core.errors import DataError, StudyError

T = TypeVar("T")


def pad_to_multiple(protocol: Protocol[T], multiple: int) -> Protocol[T]:
    """Run the same protocol and repeat its last sum until the number of questions is a multiple of `multiple`.

    Somebody who counts the questions cannot see when the protocol had what it needed.

    >>> from fedclust.core.effects import Handler
    >>> from fedclust.core.release import Done
    >>> who = Handler("h", lambda site, ask: Done(), str, Done)
    >>> [effect.message for effect in pad_to_multiple((Ask(who, "total", text) for text in "ab"), 5)]
    ['a', 'b', 'b', 'b', 'b']
    """
    count, last = 0, None

    def count_ask(ask: Ask) -> Protocol[Any]:
        nonlocal count, last
        count += 1
        if ask.want == "total" and not ask.asked_once:
            last = ask
        return (yield ask)

    def ask_padding() -> Protocol[None]:
        for _ in range(-count % multiple if last else 0):
            yield typing.cast("Ask", last)

    try:
        result = yield from rewrite(protocol, count_ask, hides_rounds=True)
    except (DataError, StudyError):  # reported at the end, so that its time does not show when it was found
        yield from ask_padding()
        raise
    yield from ask_padding()
    return result


def pad_rounds(protocol: Protocol[T], multiple: int) -> Protocol[T]:
    """Pad the rounds of this section of a protocol if somebody counts the questions; otherwise run it unchanged."""
    return (yield from pad_to_multiple(protocol, multiple) if (yield HidesRounds()) else protocol)
