"""An algorithm is a generator of effects; each effect states the least its author needs to learn.

`total` learns a sum over parties, `each` one answer per party, `each_to` the same with an own message per party;
`relay` learns nothing of what goes from party to party; `report` tells whoever watches. Effects compose by `yield
from`, and `rewrite` replaces them.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from fedclust.core.errors import DataError, QuorumLost, StudyError
from fedclust.core.handler_checks import check_handler, handler_name, handler_package
from fedclust.core.release import FieldClass, Release
from fedclust.core.site_interface import RowOrder, Site
from fedclust.core.types import Array, Floats, PartyId

T = TypeVar("T")
M = TypeVar("M")
R = TypeVar("R", bound=Release)

Want = Literal["total", "each", "relay"]
Quorum = Literal["all"] | int | float
ALL_PARTIES: Literal["all"] = "all"


@dataclass(frozen=True)
class Keep(Generic[R]):
    """An answer together with what the site shall remember, in place of what it remembered before.

    With an `order`, the site reads those of its rows from now on, as long as the run lasts.
    """

    release: R
    memory: Mapping[str, Array]
    order: RowOrder | None = None


RowWeights = Callable[[Site, M], Floats]
"""What is behind the numbers of an answer, cell by cell: sum, sum of squares and largest of the weights of its rows.

Fields that are cells come first, in their order.
"""
Members = Callable[[Site, M], Iterable[Floats]]
"""How much each row weighs in each point of an answer: points by rows, block by block of the view."""
Reads = Literal["rows", "places", "nothing"]


@dataclass(frozen=True)
class Handler(Generic[M, R]):
    """One question a site can answer, and all that its rules know of it beforehand."""

    name: str
    answer: Callable[[Site, M], R | Keep[R]]
    message: type[M]
    release: type[R]
    package: str = ""  # that its code is from
    row_weights: RowWeights[M] | None = None  # None: every row in a cell weighs one, and cells are all there is
    members: Members[M] | None = None  # None: what stands behind points is this package's word
    methods: tuple[str, ...] = ()  # of studies that ask it; empty: any
    split: Literal["rows", "columns"] | None = None  # None: however the table lies
    max_distinct: int = 0  # how many different ones of these a study needs at most; 0: as many as it likes
    withheld: bool = False  # answered only where a site says so
    reads: Reads = "rows"
    before_alignment: bool = False  # may be asked before the sites agreed on rows
    one_run: bool = False  # answered in another run of a study by the same question only
    plain_only: bool = False  # stays at a site that masks its sums
    opens_distances: bool = False  # shows or uses distances of single rows, which a study may keep closed

    @property
    def classes(self) -> frozenset[FieldClass]:
        """The classes of what its answer holds."""
        return frozenset(declared.kind for declared in self.release.schema().values())


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
    one_run: bool = False,
    plain_only: bool = False,
    opens_distances: bool = False,
) -> Callable[[Callable[[Site, M], R | Keep[R]]], Handler[M, R]]:
    """Register a pure function `(site, message) -> release` as a question, with what a site must know of it.

    releases
        The answer's type. Every field declares its class.
    row_weights
        Finds what rows weigh in the cells of an answer where they do not all weigh one, or where the answer does not
        tell how many there are; only sites ask it.
    members
        Finds what rows weigh in each point of an answer, so that a site can compute the points itself and count what
        is behind them. Packages other than fedclust must give it with points.

    Methods
    -------
        The methods whose studies ask it; a study by another method is refused.
    split
        How the table must lie at the sites.
    max_distinct
        For a fact that many questions would make exact: how many different ones a study gets answered.
    withheld
        Answered only by a site whose policy says so.
    reads
        "nothing" of a question that gets no rows to look at; "places" of one that speaks of rows by their place.
    before_alignment
        Asked before the sites agreed on the rows they have in common.
    one_run
        Answered in another run of a study by the same question only.
    plain_only
        Not answered where sums are masked.
    opens_distances
        Not answered where a study opens labels only.
    """

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
            one_run,
            plain_only,
            opens_distances,
        )
        if made.name in HANDLERS:
            raise ValueError(f"two handlers are called {made.name}")
        check_handler(made)
        HANDLERS[made.name] = made
        return made

    return register


@dataclass(frozen=True)
class Ask:
    """A question to parties: one `message` for all of `among` (None: everyone), or one each in `messages`."""

    handler: Handler[Any, Any]
    want: Want
    message: Any = None
    messages: Mapping[PartyId, Any] | None = None
    among: tuple[PartyId, ...] | None = None
    quorum: Quorum | None = None  # None: as many as the run asks for
    masks: str | None = None  # the name of the keys that hide the answers; None: nothing does
    asked_once: bool = False  # sites go on from their answers, so that it is not asked again with fresh keys


@dataclass(frozen=True)
class AtStep:
    """A message that is made when the number of its step is known."""

    make_message: Callable[[int], Any]


@dataclass(frozen=True)
class Opening:
    """Steps of which only the result, a (release, parties) pair, may be written down: on the way keys are shown.

    `steps` makes them from the number of the first; cut short, they are made anew and begin at a later one.
    """

    steps: Callable[[int], Generator[Any, Any, tuple[Any, tuple[PartyId, ...]]]]
    release: type[Release]


@dataclass(frozen=True)
class SealedMessages:
    """Letters from other parties to one, as a reading handler finds them, and a note that goes with them."""

    letters: dict[str, bytes]
    note: bytes


@dataclass(frozen=True)
class Report:
    """Facts for whoever watches: a progress bar, the metrics of a run."""

    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HidesRounds:
    """Does somebody count the questions who must not see how many were needed? Answered by true, or nothing."""


Protocol = Generator[Ask | Opening | Report | HidesRounds, Any, T]


def total_with_parties(
    handler: Handler[M, R], message: M, *, among: tuple[PartyId, ...] | None = None, quorum: Quorum | None = None
) -> Protocol[tuple[R, tuple[PartyId, ...]]]:
    """The sum of the parties' answers, and who is in it: a question that builds on it must go to the same ones."""
    answer = yield Ask(handler, "total", message, among=among, quorum=quorum)
    return typing.cast("tuple[R, tuple[PartyId, ...]]", answer)


def total(
    handler: Handler[M, R], message: M, *, among: tuple[PartyId, ...] | None = None, quorum: Quorum | None = None
) -> Protocol[R]:
    """The sum of the parties' answers; no single answer is needed."""
    return (yield from total_with_parties(handler, message, among=among, quorum=quorum))[0]


def each(
    handler: Handler[M, R], message: M, *, among: tuple[PartyId, ...] | None = None, quorum: Quorum | None = None
) -> Protocol[dict[PartyId, R]]:
    """Every party's own answer."""
    return typing.cast("dict[PartyId, R]", (yield Ask(handler, "each", message, among=among, quorum=quorum)))


def each_to(
    handler: Handler[M, R], messages: Mapping[PartyId, M], *, quorum: Quorum | None = None
) -> Protocol[dict[PartyId, R]]:
    """Every party's answer to a message of its own."""
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
    """Letters from each party of `routes` to those it names, and what the recipients answer on reading them.

    `write` releases a field `letters` by recipient. The gates seal each to its recipient; the coordinator passes them
    on.
    """
    sent = typing.cast("dict[PartyId, Any]", (yield Ask(write, "relay", message, among=tuple(routes), quorum=quorum)))
    mail: dict[PartyId, dict[str, bytes]] = {}
    for sender, answer in sent.items():
        for recipient in routes[sender]:
            if recipient in answer.letters:
                mail.setdefault(recipient, {})[sender] = answer.letters[recipient]
    return (
        yield from each_to(
            read, {party: SealedMessages(letters, note) for party, letters in mail.items()}, quorum=quorum
        )
    )


def forward_messages(
    handler: Handler[Any, R], letters: Mapping[PartyId, Mapping[PartyId, bytes]], note: bytes = b""
) -> Protocol[dict[PartyId, dict[PartyId, bytes]]]:
    """Hand letters, by recipient and sender, to parties that answer with letters; returns those in the same way."""
    mail = {party: handler.message(dict(own), note) for party, own in letters.items()}
    return group_by_recipient((yield Ask(handler, "relay", messages=mail, asked_once=True)))


def collect_messages(
    handler: Handler[M, R], message: M, *, among: tuple[PartyId, ...] | None = None
) -> Protocol[dict[PartyId, dict[PartyId, bytes]]]:
    """The first letters of an exchange, by recipient and sender."""
    return group_by_recipient((yield Ask(handler, "relay", message, among=among, asked_once=True)))


def group_by_recipient(answers: Mapping[PartyId, Any]) -> dict[PartyId, dict[PartyId, bytes]]:
    """Letters as they were written, by sender, put into the hands of those they are for."""
    mail: dict[PartyId, dict[PartyId, bytes]] = {}
    for sender, answer in answers.items():
        for recipient, letter in answer.letters.items():
            mail.setdefault(recipient, {})[sender] = letter
    return mail


def rewrite(
    protocol: Protocol[T],
    lower: Callable[[Ask], Protocol[Any]],
    settle_opening: Callable[[Opening], Protocol[Any]] | None = None,
    *,
    hides_rounds: bool = False,
) -> Protocol[T]:
    """The same protocol with each question asked as `lower` asks it; `settle_opening` settles openings (None:
    likewise).
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


def pad_to_multiple(protocol: Protocol[T], multiple: int) -> Protocol[T]:
    """The same protocol, its last sum asked for again until the questions are a multiple of `multiple`.

    Whoever counts them does not see when the protocol had what it needed.

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
    except (DataError, StudyError):  # said in the end, not when it was found
        yield from ask_padding()
        raise
    yield from ask_padding()
    return result


def pad_rounds(protocol: Protocol[T], multiple: int) -> Protocol[T]:
    """The same, at this place of a longer protocol, where somebody counts the questions; else as it is."""
    return (yield from pad_to_multiple(protocol, multiple) if (yield HidesRounds()) else protocol)


def needed_answers(quorum: Quorum, asked: int) -> int:
    """How many of so many parties must answer."""
    if quorum == "all":
        return asked
    # Rounded first: .07 * 100 is 7.000000000000001.
    return math.ceil(round(quorum * asked, 9)) if isinstance(quorum, float) else min(int(quorum), asked)


def report(**facts: Any) -> Protocol[None]:
    """Tell whoever watches."""
    yield Report(facts)


def run_on_own_rows(protocol: Protocol[T], site: Site) -> T:
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
            answer = effect.handler.release.total([effect.handler.answer(site, effect.message)]), (site.party,)
