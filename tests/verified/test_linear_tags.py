"""Linear tags: a case by hand, plain Python integers as a twin, and sums that were changed."""

from dataclasses import replace

import numpy as np
import pytest

from fedclust.core.effects import Ask
from fedclust.core.envelope import Call, SealedAnswer
from fedclust.core.errors import KeysRefused, WireError
from fedclust.core.ring import Exact
from fedclust.privacy.verified.linear_tags import TAG_PRIME, SumCheck, add_tags, multiply_words
from fedclust.privacy.verified.outcomes import ExpectedStep, FieldForm, prove_answer, read_outcome, record_outcome
from fedclust.questions.bounds import ColumnsQuestion
from fedclust.questions.standardisation import column_sums

SECRET = bytes(range(32))


def test_a_product_by_hand():
    factors = np.array([2, TAG_PRIME - 1], np.uint64)
    assert multiply_words(factors, np.array([5, 3], np.uint64)) == 2 * 5 - 3


@pytest.mark.parametrize("count", [1, 7, 100_000])
def test_products_equal_those_of_plain_integers(count):
    rng = np.random.default_rng(count)
    factors = rng.integers(0, 1 << 61, count, dtype=np.uint64)
    words = rng.integers(0, 1 << 32, count, dtype=np.uint64)
    factors[0], words[0] = (1 << 61) - 1, (1 << 32) - 1
    by_hand = sum(r * w for r, w in zip(factors.tolist(), words.tolist(), strict=True)) % TAG_PRIME
    assert multiply_words(factors, words) == by_hand


def test_the_largest_products_do_not_wrap_around():
    count = 1 << 17
    factors, words = np.full(count, (1 << 61) - 1, np.uint64), np.full(count, (1 << 32) - 1, np.uint64)
    factors -= np.uint64(1)
    assert multiply_words(factors, words) == (((1 << 61) - 2) * ((1 << 32) - 1) * count) % TAG_PRIME


def test_tags_say_nothing_without_the_pads():
    check = SumCheck(SECRET, b"one question", 1)
    zero = np.zeros(1, np.uint64)
    assert check.make_tag(zero, "north") != check.make_tag(zero, "south")
    assert check.make_tag(zero, "north") != SumCheck(SECRET, b"another question", 1).make_tag(zero, "north")


def test_the_sum_of_the_largest_words_of_three_hundred_sites_is_accepted():
    parties = [f"p{i}" for i in range(300)]
    check, words = SumCheck(SECRET, b"q", 3), np.full(3, (1 << 32) - 1, np.uint64)
    tags = [check.make_tag(words, party) for party in parties]
    assert check.accepts(words * np.uint64(300), add_tags(tags), parties)
    assert not check.accepts(words * np.uint64(300), add_tags(tags), parties[:-1])
    assert not check.accepts(words * np.uint64(299), add_tags(tags[:-1]), parties)


def masked_answers(parties, rng, *, k=3, columns=4):
    """Answers that look like masked ones, with the tags of their sites, and the step that a replay expects."""
    handler = column_sums
    ask = Ask(handler, "total", ColumnsQuestion(columns))
    call = Call("run", 7, handler.name, ColumnsQuestion(columns), "total", parties, "lasting-1")
    replies = {}
    for party in parties:
        fields = []
        for place, _ in enumerate(handler.schema):
            limbs = rng.integers(0, 1 << 64, (k, columns, 2), dtype=np.uint64)
            unit = np.broadcast_to(np.arange(columns, dtype=np.int32) - place, (k, columns)).copy()
            fields.append(Exact(limbs, unit if place else np.zeros((), np.int32)))
        release = handler.release(*fields)
        proof = prove_answer(release, call, party, SECRET)
        replies[party] = SealedAnswer(party, "run", 7, handler.name, release, "lasting-1", proof)
    calls = dict.fromkeys(parties, call)
    return ExpectedStep(7, ask, calls, len(parties), "lasting-1"), replies


def test_an_honest_sum_is_accepted_to_the_bit():
    rng = np.random.default_rng(0)
    for count in (3, 20, 300):
        expected, replies = masked_answers(tuple(f"p{i}" for i in range(count)), rng)
        outcome = record_outcome(expected.ask, expected.calls, replies, count)
        found, parties = read_outcome(outcome, expected, SECRET)
        added = type(found).total([one.release for one in replies.values()])
        assert parties == tuple(replies)
        assert all(found.field_value(name) == added.field_value(name) for name in found.schema())


def test_a_thousand_sums_that_differ_by_one_unit_are_refused():
    rng = np.random.default_rng(1)
    expected, replies = masked_answers(("north", "south", "west"), rng)
    outcome = record_outcome(expected.ask, expected.calls, replies, 3)
    words = len(outcome.added.low) // 4
    accepted = 0
    for _ in range(1000):
        low, high = bytearray(outcome.added.low), bytearray(outcome.added.high)
        place = int(rng.integers(words))
        value = (
            int.from_bytes(low[4 * place : 4 * place + 4], "little") + (high[place] << 32) + int(rng.choice([-1, 1]))
        )
        low[4 * place : 4 * place + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")
        high[place] = value >> 32 & 0xFF
        false = replace(outcome, added=replace(outcome.added, low=bytes(low), high=bytes(high)))
        try:
            read_outcome(false, expected, SECRET)
            accepted += 1
        except KeysRefused:
            pass
    assert accepted == 0


def test_a_carry_that_is_moved_between_words_is_refused():
    """The number of the ring would be the same, but nobody may choose how it is written."""
    rng = np.random.default_rng(2)
    expected, replies = masked_answers(("north", "south", "west"), rng)
    outcome = record_outcome(expected.ask, expected.calls, replies, 3)
    high = bytearray(outcome.added.high)
    at = next(i for i, value in enumerate(high) if value and i % 4 == 0)
    low = bytearray(outcome.added.low)
    above = int.from_bytes(low[4 * at + 4 : 4 * at + 8], "little") + high[at]
    high[at] = 0
    low[4 * at + 4 : 4 * at + 8] = (above & 0xFFFFFFFF).to_bytes(4, "little")
    false = replace(outcome, added=replace(outcome.added, low=bytes(low), high=bytes(high)))
    with pytest.raises(KeysRefused):
        read_outcome(false, expected, SECRET)


def forms_with(outcome, form):
    return replace(outcome, added=replace(outcome.added, forms=(form, *outcome.added.forms[1:])))


def test_other_units_shapes_parties_tags_and_lengths_are_refused():
    expected, replies = masked_answers(("north", "south", "west"), np.random.default_rng(3))
    outcome = record_outcome(expected.ask, expected.calls, replies, 3)
    first, added = outcome.added.forms[0], outcome.added
    for false in (
        forms_with(outcome, FieldForm(first.shape, first.unit + np.int32(1))),
        forms_with(outcome, FieldForm(first.shape[::-1], first.unit)),
        forms_with(outcome, FieldForm((1 << 40, 1 << 40), first.unit)),
        forms_with(outcome, FieldForm((-1, 3), first.unit)),
        replace(outcome, parties=outcome.parties[:-1]),
        replace(outcome, parties=outcome.parties[::-1]),
        replace(outcome, added=replace(added, tag=add_tags([added.tag, (1).to_bytes(8, "little")]))),
        replace(outcome, added=replace(added, tag=b"")),
        replace(outcome, added=replace(added, low=added.low[:-4])),
        replace(outcome, added=replace(added, high=added.high + b"\0")),
        replace(outcome, added=None),
        replace(outcome, missing={"north": "no-answer", "nobody": "no-answer"}),
        replace(outcome, missing={"north": "what a lie"}),
    ):
        with pytest.raises((KeysRefused, WireError)):
            read_outcome(false, expected, SECRET)


def test_a_sum_belongs_to_its_step_and_its_question():
    expected, replies = masked_answers(("north", "south", "west"), np.random.default_rng(4))
    outcome = record_outcome(expected.ask, expected.calls, replies, 3)
    later = {party: replace(call, step=8) for party, call in expected.calls.items()}
    other = {party: replace(call, message=ColumnsQuestion(5)) for party, call in expected.calls.items()}
    for calls in (later, other):
        with pytest.raises(KeysRefused):
            read_outcome(outcome, replace(expected, calls=calls), SECRET)
    with pytest.raises(KeysRefused):
        read_outcome(outcome, expected, bytes(32))


def test_equal_units_travel_once():
    unit = np.broadcast_to(np.arange(3, dtype=np.int32), (5, 3)).copy()
    form = FieldForm.of_numbers(Exact(np.zeros((5, 3, 2), np.uint64), unit))
    assert form.unit.shape == (1, 3)
    assert (form.full_unit() == unit).all()
    assert FieldForm.of_numbers(Exact(np.zeros((0, 3, 2), np.uint64), np.zeros((0, 3), np.int32))).full_unit().size == 0
