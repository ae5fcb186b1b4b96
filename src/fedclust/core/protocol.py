"""An algorithm is a generator of effects; each effect states the least its author needs to learn.

`total` learns a sum over parties, `each` one answer per party, `each_to` the same with an own message per party;
`report` tells whoever watches. Effects compose by `yield from`.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from fedclust.core.release import Release
from fedclust.core.site import Site
from fedclust.core.types import Array, PartyId

T = TypeVar("T")
M = TypeVar("M")
R = TypeVar("R", bound=Release)

Want = Literal["total", "each"]
Quorum = Literal["all"] | int | float
ALL: Literal["all"] = "all"


@dataclass(frozen=True)
class Keep(Generic[R]):
    """An answer together with what the site shall remember, in place of what it remembered before."""

    release: R
    memory: Mapping[str, Array]


@dataclass(frozen=True)
class Handler(Generic[M, R]):
    """One question a site can answer."""

    name: str
    answer: Callable[[Site, M], R | Keep[R]]
    message: type[M]
    release: type[R]


HANDLERS: dict[str, Handler[Any, Any]] = {}


def handler(*, releases: type[R]) -> Callable[[Callable[[Site, M], R | Keep[R]]], Handler[M, R]]:
    """Register a pure function `(site, message) -> release` under its module's and its own name."""

    def register(answer: Callable[[Site, M], R | Keep[R]]) -> Handler[M, R]:
        hints = [hint for key, hint in typing.get_type_hints(answer).items() if key != "return"]
        name = f"{answer.__module__.rpartition('.')[2]}.{answer.__name__}"
        if name in HANDLERS:
            raise ValueError(f"two handlers are called {name}")
        HANDLERS[name] = Handler(name, answer, hints[1], releases)
        return HANDLERS[name]

    return register


@dataclass(frozen=True)
class Ask:
    """A question to parties: one `message` for all of `among` (None: everyone), or one each in `messages`."""

    who: Handler[Any, Any]
    want: Want
    message: Any = None
    messages: Mapping[PartyId, Any] | None = None
    among: tuple[PartyId, ...] | None = None
    quorum: Quorum | None = None  # None: as many as the run asks for


@dataclass(frozen=True)
class Report:
    """Facts for whoever watches: a progress bar, the metrics of a run."""

    facts: Mapping[str, Any] = field(default_factory=dict)


Protocol = Generator[Ask | Report, Any, T]


def heard(
    who: Handler[M, R], message: M, *, among: tuple[PartyId, ...] | None = None, quorum: Quorum | None = None
) -> Protocol[tuple[R, tuple[PartyId, ...]]]:
    """The sum of the parties' answers, and who is in it: a question that builds on it must go to the same ones."""
    answer = yield Ask(who, "total", message, among=among, quorum=quorum)
    return typing.cast("tuple[R, tuple[PartyId, ...]]", answer)


def total(
    who: Handler[M, R], message: M, *, among: tuple[PartyId, ...] | None = None, quorum: Quorum | None = None
) -> Protocol[R]:
    """The sum of the parties' answers; no single answer is needed."""
    return (yield from heard(who, message, among=among, quorum=quorum))[0]


def each(
    who: Handler[M, R], message: M, *, among: tuple[PartyId, ...] | None = None, quorum: Quorum | None = None
) -> Protocol[dict[PartyId, R]]:
    """Every party's own answer."""
    return typing.cast("dict[PartyId, R]", (yield Ask(who, "each", message, among=among, quorum=quorum)))


def each_to(
    who: Handler[M, R], messages: Mapping[PartyId, M], *, quorum: Quorum | None = None
) -> Protocol[dict[PartyId, R]]:
    """Every party's answer to a message of its own."""
    return typing.cast("dict[PartyId, R]", (yield Ask(who, "each", messages=messages, quorum=quorum)))


def report(**facts: Any) -> Protocol[None]:
    """Tell whoever watches."""
    yield Report(facts)


def alone(protocol: Protocol[T], site: Site) -> T:
    """Run a protocol of totals on one site's own rows; nothing leaves."""
    answer: Any = None
    while True:
        try:
            effect = protocol.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer = None
        if isinstance(effect, Ask):
            if effect.want != "total":
                raise TypeError("only totals can be asked of oneself")
            answer = effect.who.release.total([effect.who.answer(site, effect.message)]), (site.party,)
