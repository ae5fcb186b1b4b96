"""When a total is asked for again, of whom, and which answer counts."""

from dataclasses import dataclass

import pytest

from fedclust.core.effects import Ask, Handler
from fedclust.core.release import Release, additive
from fedclust.core.repeated_totals import total_at_finest_unit
from fedclust.core.ring import Exact


@dataclass(frozen=True)
class Size(Release):
    size: Exact = additive("a size")


ASKED = Handler("test.size", lambda _, ask: Size(Exact.from_counts(ask)), int, Size)


def run(limit, *, max_repeats, read_last=True, leave=None):
    """Ask for 1, then for one more each time until `limit`; answers equal questions."""
    protocol = total_at_finest_unit(
        ASKED,
        1,
        read=lambda answer: answer.size.to_integers()[0],
        finer=lambda ask, found: ask + 1 if found < limit else None,
        max_repeats=max_repeats,
        read_last=read_last,
        among=("a", "b", "c"),
    )
    asks, effect = [], next(protocol)
    while True:
        assert isinstance(effect, Ask)
        assert effect.want == "total"
        asks.append((effect.message, effect.among))
        who = tuple(party for party in effect.among if party != leave or effect.message < 2)
        try:
            effect = protocol.send((Size(Exact.from_counts(effect.message)), who))
        except StopIteration as stop:
            return stop.value, asks


def test_an_answer_with_enough_digits_is_asked_for_once():
    answer, asks = run(1, max_repeats=5)
    assert (answer.found, len(asks)) == (1, 1)


def test_it_is_asked_for_again_until_there_is_no_better_question():
    answer, asks = run(3, max_repeats=5)
    assert answer.found == 3
    assert answer.first.size.to_integers() == [1]
    assert [message for message, _ in asks] == [1, 2, 3]


def test_a_repeat_goes_to_those_who_answered_before():
    answer, asks = run(3, max_repeats=5, leave="b")
    assert [who for _, who in asks] == [("a", "b", "c"), ("a", "b", "c"), ("a", "c")]
    assert answer.parties == ("a", "c")


@pytest.mark.parametrize(("read_last", "found"), [(True, 3), (False, 2)])
def test_repeats_end(read_last, found):
    answer, asks = run(100, max_repeats=2, read_last=read_last)
    assert [message for message, _ in asks] == [1, 2, 3]
    assert answer.found == found
