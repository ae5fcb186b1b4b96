"""An algorithm is a generator of effects, and each effect states the least that the algorithm needs to learn.

`total` returns a sum over parties. `each` returns one answer per party, and `each_to` does so with a separate message
for each party. `relay` passes messages between parties and reveals nothing of them. `report` informs observers of the
run. Effects compose with `yield from`, and `rewrite` replaces them.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar

from fedclust.core.errors import QuorumLost
from fedclust.core.handler_checks import OWN_PACKAGE, check_handler, handler_name, handler_package
from fedclust.core.release import Disclosure, FieldClass, Release, declared_schema, make_plain_copy
from fedclust.core.site_interface import RowOrder, Site
from fedclust.core.study_terms import Contract
from fedclust.core.types import Array, Floats, PartyId

T = TypeVar("T")
M = TypeVar("M")
R = TypeVar("R", bound=Release)

Want = Literal["total", "each", "relay"]
Quorum = Literal["all"] | int | float
ALL_PARTIES: Literal["all"] = "all"


@dataclass(frozen=True)
class Keep(Generic[R]):
    """An answer together with the state that the site keeps, which replaces its earlier state.

    If `order` is given, the site reads those rows, in that order, for the rest of the run.
    """

    release: R
    memory: Mapping[str, Array]
    order: RowOrder | None = None


RowWeights = Callable[[Site, M], Floats]
"""Computes the sum, the sum of squares and the maximum of the row weights in each cell; fields come first, in order."""
Members = Callable[[Site, M], Iterable[Floats]]
"""Computes the weight of each row in each point of an answer: points by rows, in the blocks of the view."""
Reads = Literal["rows", "places", "nothing"]


@dataclass(frozen=True)
class Handler(Generic[M, R]):
    """One question that a site can answer, with everything that the site's rules know about it in advance."""

    name: str
    answer: Callable[[Site, M], R | Keep[R]]
    message: type[M]
    release: type[R]
    package: str = ""  # of the handler's code
    row_weights: RowWeights[M] | None = None  # None: every row in a cell weighs one, and there is nothing but cells
    members: Members[M] | None = None  # None: the site trusts this package on which rows are behind points
    methods: tuple[str, ...] = ()  # the methods that ask it; empty: any method
    split: Literal["rows", "columns"] | None = None  # None: any split of the table
    max_distinct: int = 0  # how many different answers a study needs at most; 0: no limit, which facts may not have
    withheld: bool = False  # answered only if the site allows it explicitly
    reads: Reads = "rows"  # "nothing": it gets no rows; "places": it refers to rows by their position
    before_alignment: bool = False  # may be asked before the sites have aligned their rows
    starts_alignment: bool = False  # limited in number: each alignment can be with other ids
    one_run: bool = False  # answered in another run of a study only if the question is the same
    plain_only: bool = False  # not answered by a site that masks its sums
    opens_distances: bool = False  # reveals or uses distances of single rows, which a study may forbid
    note: type | None = None  # of the note with sealed messages, as the handler reads it
    opens_all_clusters: bool = False  # reveals the sums of every cluster, which a study with a floor on sums forbids
    contract: Contract | None = None  # what a study may ask of it; other packages have none
    schema: Mapping[str, Disclosure] = field(init=False, repr=False, compare=False)  # as it was at registration
    received: type[Release] = field(init=False, repr=False, compare=False)  # what a site reads an answer as

    def __post_init__(self) -> None:
        if self.message is SealedMessages and self.note is None and self.split != "columns":
            raise TypeError(f"{self.name} reads sealed messages; use note= to declare the type of the note with them")
        schema = MappingProxyType({name: replace(d) for name, d in declared_schema(self.release).items()})
        received = make_plain_copy(self.release, schema) if self.is_foreign else self.release
        vars(self).update(schema=schema, received=received)

    @property
    def classes(self) -> frozenset[FieldClass]:
        """The disclosure classes of the answer's fields."""
        return frozenset(declared.kind for declared in self.schema.values())

    @property
    def is_foreign(self) -> bool:
        """Whether the handler's code belongs to another package than fedclust."""
        return self.package != OWN_PACKAGE


HANDLERS: dict[str, Handler[Any, Any]] = {}


def handler(
    *,
    releases: type[R],
    row_weights: RowWeights[M] | None = None,
    members: Members[M] | None = None,
    methods: tuple[str, ...] = (),
    split: Literal["rows", "columns"] | None = None,
    max_distinct: int = 0,
    withheld: bool = False,
    reads: Reads = "rows",
    before_alignment: bool = False,
    starts_alignment: bool = False,
    one_run: bool = False,
    plain_only: bool = False,
    opens_distances: bool = False,
    note: type | None = None,
    opens_all_clusters: bool = False,
    contract: Contract | None = None,
) -> Callable[[Callable[[Site, M], R | Keep[R]]], Handler[M, R]]:
    """Register a pure function `(site, message) -> release` as a question; the options are fields of `Handler`."""

    def register(answer: Callable[[Site, M], R | Keep[R]]) -> Handler[M, R]:
        hints = [hint for key, hint in typing.get_type_hints(answer).items() if key != "return"]
        made = Handler(
            handler_name(answer),
            answer,
            hints[1],
            releases,
            handler_package(answer),
            row_weights,
            members,
            methods,
            split,
            max_distinct,
            withheld,
            reads,
            before_alignment,
            starts_alignment,
            one_run,
            plain_only,
            opens_distances,
            note,
            opens_all_clusters,
            contract,
        )
        if made.name in HANDLERS:
            raise ValueError(f"two handlers are called {made.name}")
        check_handler(made)
        HANDLERS[made.name] = made
        return made

    return register


@dataclass(frozen=True)
class Ask:
    """A question to parties: one `message` for all of `among` (None: everyone), or one per party in `messages`."""

    handler: Handler[Any, Any]
    want: Want
    message: Any = None
    messages: Mapping[PartyId, Any] | None = None
    among: tuple[PartyId, ...] | None = None
    quorum: Quorum | None = None  # None: the run's own quorum
    masks: str | None = None  # the name of the keys that hide the answers; None: the answers are not hidden
    asked_once: bool = False  # sites continue from their answers, so it is not asked again with fresh keys


@dataclass(frozen=True)
class AtStep:
    """A message that is built once the number of its step is known."""

    make_message: Callable[[int], Any]


@dataclass(frozen=True)
class Opening:
    """Steps of which only the result, a (release, parties) pair, may be recorded, because they reveal keys on the way.

    `steps` builds them from the number of the first step. If they are interrupted, they are built again from a later
    step.
    """

    steps: Callable[[int], Generator[Any, Any, tuple[Any, tuple[PartyId, ...]]]]
    release: type[Release]


@dataclass(frozen=True)
class SealedMessages:
    """Messages from other parties to one party, as its handler reads them, with a note for that party."""

    messages: dict[str, bytes]  # by sender
    note: bytes


@dataclass(frozen=True)
class Report:
    """Facts for observers of a run, such as a progress bar or its metrics."""

    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HidesRounds:
    """Asks whether the number of rounds must be hidden from somebody who counts questions; answered by true or None."""


Protocol = Generator[Ask | Opening | Report | HidesRounds, Any, T]


def total_with_parties(
    handler: Handler[M, R], message: M, *, among: tuple[PartyId, ...] | None = None, quorum: Quorum | None = None
) -> Protocol[tuple[R, tuple[PartyId, ...]]]:
    """Return the sum of the parties' answers and the parties in it; a follow-up question must go to the same ones."""
    answer = yield Ask(handler, "total", message, among=among, quorum=quorum)
    return typing.cast("tuple[R, tuple[PartyId, ...]]", answer)


def total(
    handler: Handler[M, R], message: M, *, among: tuple[PartyId, ...] | None = None, quorum: Quorum | None = None
) -> Protocol[R]:
    """Return the sum of the parties' answers; no single answer is needed."""
    return (yield from total_with_parties(handler, message, among=among, quorum=quorum))[0]


def each(
    handler: Handler[M, R], message: M, *, among: tuple[PartyId, ...] | None = None, quorum: Quorum | None = None
) -> Protocol[dict[PartyId, R]]:
    """Return every party's own answer."""
    return typing.cast("dict[PartyId, R]", (yield Ask(handler, "each", message, among=among, quorum=quorum)))


def each_to(
    handler: Handler[M, R], messages: Mapping[PartyId, M], *, quorum: Quorum | None = None
) -> Protocol[dict[PartyId, R]]:
    """Return every party's answer to its own message."""
    return typing.cast("dict[PartyId, R]", (yield Ask(handler, "each", messages=messages, quorum=quorum)))


def relay(
    write: Handler[M, R],
    message: M,
    read: Handler[SealedMessages, Any],
    note: bytes,
    routes: Mapping[PartyId, Sequence[PartyId]],
    *,
    quorum: Quorum | None = None,
) -> Protocol[dict[PartyId, Any]]:
    """Pass messages from each party of `routes` to the parties it names, and return what the recipients answer.

    `write` releases messages by recipient. The gates seal each one for its recipient, and the coordinator passes the
    sealed messages on.
    """
    sent = typing.cast("dict[PartyId, Any]", (yield Ask(write, "relay", message, among=tuple(routes), quorum=quorum)))
    written = {sender: answer.messages_by_recipient() for sender, answer in sent.items()}
    received: dict[PartyId, dict[str, bytes]] = {}
    for sender, messages in written.items():
        for recipient in routes[sender]:
            if recipient in messages:
                received.setdefault(recipient, {})[sender] = messages[recipient]
    return (
        yield from each_to(
            read, {party: SealedMessages(messages, note) for party, messages in received.items()}, quorum=quorum
        )
    )


def forward_messages(
    handler: Handler[Any, R], messages: Mapping[PartyId, Mapping[PartyId, bytes]], note: bytes = b""
) -> Protocol[dict[PartyId, dict[PartyId, bytes]]]:
    """Send messages, by recipient and sender, to parties that reply with messages; return those in the same form."""
    received = {party: handler.message(dict(own), note) for party, own in messages.items()}
    return group_by_recipient((yield Ask(handler, "relay", messages=received, asked_once=True)))


def collect_messages(
    handler: Handler[M, R], message: M, *, among: tuple[PartyId, ...] | None = None
) -> Protocol[dict[PartyId, dict[PartyId, bytes]]]:
    """Collect the first messages of an exchange, by recipient and sender."""
    return group_by_recipient((yield Ask(handler, "relay", message, among=among, asked_once=True)))


def group_by_recipient(answers: Mapping[PartyId, Any]) -> dict[PartyId, dict[PartyId, bytes]]:
    """Regroup messages from sender order to recipient order."""
    received: dict[PartyId, dict[PartyId, bytes]] = {}
    for sender, answer in answers.items():
        for recipient, message in answer.messages_by_recipient().items():
            received.setdefault(recipient, {})[sender] = message
    return received


def rewrite(
    protocol: Protocol[T],
    lower: Callable[[Ask], Protocol[Any]],
    settle_opening: Callable[[Opening], Protocol[Any]] | None = None,
    *,
    hides_rounds: bool = False,
) -> Protocol[T]:
    """Run the same protocol with each question asked by `lower`; `settle_opening` handles openings (None: also
    `lower`).
    """

    def rewrite_inside(opening: Opening) -> Protocol[Any]:
        return (yield replace(opening, steps=lambda step: rewrite(opening.steps(step), lower)))

    opens = settle_opening or rewrite_inside
    answer: Any = None
    failure: QuorumLost | None = None
    while True:
        try:
            effect = protocol.throw(failure) if failure else protocol.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer, failure = None, None
        try:
            if isinstance(effect, Ask):
                answer = yield from lower(effect)
            elif isinstance(effect, HidesRounds) and hides_rounds:
                answer = True
            else:
                answer = (yield from opens(effect)) if isinstance(effect, Opening) else (yield effect)
        except QuorumLost as lost:
            failure = lost


def needed_answers(quorum: Quorum, asked: int) -> int:
    """Return how many of the parties must answer."""
    if quorum == "all":
        return asked
    # Round first: .07 * 100 is 7.000000000000001.
    return math.ceil(round(quorum * asked, 9)) if isinstance(quorum, float) else min(int(quorum), asked)


def report(**facts: Any) -> Protocol[None]:
    """Send facts to the observers of a run."""
    yield Report(facts)


def run_on_own_rows(protocol: Protocol[T], site: Site) -> T:
    """Run a protocol of totals on one site's own rows; nothing leaves the site."""
    answer: Any = None
    while True:
        try:
            effect = protocol.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer = None
        if isinstance(effect, Ask):
            if effect.want != "total":
                raise TypeError("a protocol that runs on one site's own rows may only ask for totals")
            answer = effect.handler.release.total([effect.handler.answer(site, effect.message)]), (site.party,)
