"""Handlers that return rows, one for each class of field: under every profile for organisations none leaves."""

import dataclasses
import importlib.util
import subprocess
import sys
import textwrap
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedclust.core.release
import row_thieves
from fedclust.algorithms.shared import initial_centers
from fedclust.app.serve import import_questions
from fedclust.core.effects import HANDLERS, Keep, handler
from fedclust.core.envelope import REMEDIES, Call, Refusal, SealedAnswer
from fedclust.core.errors import KeysRefused
from fedclust.core.handler_checks import handler_name
from fedclust.core.release import FIELD_CLASSES, UNCHECKABLE_CLASSES
from fedclust.core.ring import Exact
from fedclust.core.site_interface import View
from fedclust.privacy.keys import Identity
from fedclust.site.class_checks import MAX_FACT_BITS
from fedclust.site.displayed_counts import hide_small_counts
from fedclust.site.listed_questions import LISTED_QUESTIONS
from fedclust.site.policy import PROFILES
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source
from fedclust.site.stored_state import memory_of_package, replace_memory_of_package
from fedclust.site.vault import Vaults

ROWS = np.random.default_rng(11).normal(size=(60, 3)) * 7
TAKE = row_thieves.Take(View(np.full(3, 6, np.int32)), cells=10)  # a coordinator that helps with the shapes
SEVERAL = {  # what needs several questions
    "row_thieves.next_bit_of_a_row",
    "row_thieves.next_bit_of_many",
    "row_thieves.bit_of_two",
    "row_thieves.one_of_two_rows_doubled",
    "row_thieves.refusals_by_the_rule_for_gaps",
    "row_thieves.refusals_by_the_number_of_points",
    "row_thieves.next_row_doubled",
    "row_thieves.next_row_as_total",
    "row_thieves.bits_as_kinds_of_error",
    "row_thieves.rows_stored_for_fedclust_to_send",
    "row_thieves.bits_as_orders_that_are_refused",
    "row_thieves.bits_as_state_that_cannot_be_stored",
    "row_thieves.rows_with_and_without_gaps",
    "row_thieves.rows_behind_a_context_without_rows",
}
THIEVES = {name: one for name, one in HANDLERS.items() if one.package == "row_thieves" and name not in SEVERAL}
SHIPPED = [name for name in PROFILES if name != "none"]
NEVER = {  # what is refused even where there are no rules
    "row_thieves.fact_with_the_bits_of_a_value",
    "row_thieves.fact_that_is_an_array",
    "row_thieves.fact_that_is_a_text",
    "row_thieves.rows_of_a_question_that_reads_nothing",
    "row_thieves.rows_as_another_answer",
    "row_thieves.rows_as_an_error",
    "row_thieves.rows_as_the_order_of_later_rows",
}
ELSEWHERE = {  # what a site without keys cannot send, or what only its own checks would find
    "row_thieves.rows_as_messages",
    "row_thieves.means_of_two_rows",
    "row_thieves.means_of_two_rows_called_means_of_all",
    "row_thieves.means_of_all_with_rows_as_counts",
    "row_thieves.rows_as_counts_of_no_points",
    "row_thieves.rows_with_the_opposite_sign",
    "row_thieves.rows_as_units_of_sums",
    "row_thieves.rows_as_negative_totals",
    "row_thieves.rows_as_the_shape_of_an_empty_array",
    "row_thieves.row_as_many_facts",
    "row_thieves.row_as_many_totals",
    "row_thieves.one_long_count",
    "row_thieves.rows_in_a_type_that_forgets_its_schema",
    "row_thieves.rows_in_a_type_that_shows_the_rules_means",
    "row_thieves.means_that_can_be_solved_for_rows",
    "row_thieves.rows_with_an_array_that_lies_about_weights",
    "row_thieves.row_that_is_the_mean_in_a_changed_question",
    "row_thieves.row_that_is_the_mean_of_changed_rows",
    "row_thieves.row_that_is_the_mean_at_another_site",
    "row_thieves.rows_with_weights_that_are_no_numbers",
    "row_thieves.rows_with_no_weights",
    "row_thieves.rows_with_impossible_weights",
    "row_thieves.rows_with_weights_of_other_cells",
    "row_thieves.cells_of_no_row_with_sums",
    "row_thieves.sums_that_belong_to_no_cell",
    "row_thieves.rows_along_the_other_axis",
    "row_thieves.rows_as_a_choice_of_units",
}


TAMPERS = {
    "row_thieves.rows_in_a_type_that_forgets_its_schema",
    "row_thieves.rows_in_a_type_that_shows_the_rules_means",
    "row_thieves.row_that_is_the_mean_in_a_changed_question",
    "row_thieves.row_that_is_the_mean_at_another_site",
    "row_thieves.rows_with_an_array_that_lies_about_weights",
}


def asked(name, policy, want=None, take=TAKE):
    combine = next(iter(HANDLERS[name].schema.values())).combine
    want = want or {"sum": "total", "each": "each", "messages": "relay"}[combine]
    desk = SiteServer(SiteData("a", open_source(ROWS, site="a")), policy)
    masks = "lasting-1" if want == "relay" else None
    return desk.answer(Call("r", 1, name, take, want, ("a", "b", "c"), masks))


def numbers_in(release):
    """Every number of an answer, field by field, also those that whole numbers or texts stand for."""
    for field in dataclasses.fields(release):
        value = getattr(release, field.name)
        if isinstance(value, Exact):
            value = value.to_floats()
        if isinstance(value, tuple):
            value = np.array([float(word) for text in value for word in text.split()])
        if isinstance(value, dict):
            value = np.concatenate([np.frombuffer(text, np.float64) for text in value.values()])
        flat = np.ravel(np.asarray(value))
        yield flat.astype(float)
        yield flat.astype(float) / row_thieves.SCALE - 64.0


def rows_found(reply):
    """How many rows of the site are in an answer: as bytes, or as numbers that follow one another."""
    in_bytes = sum(
        row.tobytes() in reply.wire_bytes or row.astype(np.float32).tobytes() in reply.wire_bytes for row in ROWS
    )
    windows = [
        np.lib.stride_tricks.sliding_window_view(flat, ROWS.shape[1])
        for flat in numbers_in(reply.release)
        if flat.size >= ROWS.shape[1]
    ]
    in_numbers = sum(any((np.abs(w - row).max(axis=1) < 1e-5).any() for w in windows) for row in ROWS)
    return max(in_bytes, in_numbers)


def pairs_found(reply):
    """How many means of two rows that follow one another are in an answer."""
    pairs = (ROWS + np.roll(ROWS, -1, axis=0)) / 2
    return sum((np.abs(reply.release.places - pair).max(axis=1) < 1e-9).any() for pair in pairs)


def test_there_is_a_thief_for_every_class_that_another_package_may_release():
    assert set().union(*(one.classes for one in THIEVES.values())) == set(FIELD_CLASSES) - UNCHECKABLE_CLASSES


@pytest.mark.parametrize("name", sorted(set(THIEVES) - NEVER - ELSEWHERE))
def test_without_rules_the_rows_leave_and_are_found(name):
    reply = asked(name, PROFILES["none"])
    assert isinstance(reply, SealedAnswer)
    assert rows_found(reply) >= len(ROWS) - 1


def test_without_rules_means_of_two_rows_leave_and_are_found():
    for name in ("row_thieves.means_of_two_rows", "row_thieves.means_of_two_rows_called_means_of_all"):
        assert pairs_found(asked(name, PROFILES["none"])) == len(ROWS)


@pytest.mark.parametrize("name", sorted(NEVER))
def test_a_fact_is_a_whole_number_and_who_reads_nothing_gets_no_rows_even_without_rules(name):
    reply = asked(name, PROFILES["none"])
    assert isinstance(reply, Refusal)
    codes = {"reads_nothing": "failed", "an_error": "failed"}
    assert reply.code == next((code for part, code in codes.items() if part in name), "not-as-declared")


@pytest.mark.parametrize("profile", SHIPPED)
@pytest.mark.parametrize("name", sorted(THIEVES))
def test_no_profile_answers_a_package_that_it_does_not_name(name, profile):
    assert asked(name, PROFILES[profile]) == Refusal("a", "handler-not-allowed")


@pytest.mark.parametrize("how", ["packages", "handlers"])
@pytest.mark.parametrize("profile", SHIPPED)
@pytest.mark.parametrize("name", sorted(THIEVES))
def test_no_row_leaves_even_where_a_site_names_the_package(name, profile, how):
    named = {"packages": frozenset({"fedclust", "row_thieves"}), "handlers": frozenset({name})}
    reply = asked(name, replace(PROFILES[profile], **{how: named[how]}))
    assert isinstance(reply, Refusal), f"{rows_found(reply)} rows left"
    assert reply.code in REMEDIES
    assert reply.code != "handler-not-allowed"


@pytest.mark.parametrize("profile", ["standard", "datashield"])
def test_each_theft_is_refused_for_what_it_is(profile):
    policy = replace(PROFILES[profile], packages=frozenset({"row_thieves"}))
    codes = {name.partition(".")[2]: asked(name, policy).code for name in THIEVES}
    assert codes == {
        "points_that_are_rows": "points-of-few-rows",
        "points_that_are_openly_rows": "points-of-few-rows",
        "points_that_are_nearly_rows": "points-of-few-rows",
        "points_in_one_line": "points-of-few-rows",
        "means_of_two_rows": "points-of-few-rows",
        "means_of_two_rows_called_means_of_all": "points-of-few-rows",
        "means_of_all_with_rows_as_counts": "not-as-declared",
        "rows_as_counts_of_no_points": "not-as-declared",
        "fact_with_the_bits_of_a_value": "not-as-declared",
        "fact_that_is_an_array": "not-as-declared",
        "fact_that_is_a_text": "not-as-declared",
        "rows_as_names": "not-as-declared",
        "rows_as_counts": "not-as-declared",
        "rows_as_totals": "not-as-declared",
        "rows_as_weights": "weights-not-allowed",
        "rows_as_summed_weights": "weights-not-allowed",
        "rows_as_messages": "weights-not-allowed",
        "cells_of_one_row": "not-as-declared",
        "cells_of_one_row_called_cells_of_many": "not-as-declared",
        "rows_of_a_question_that_reads_nothing": "failed",
        "rows_with_the_opposite_sign": "not-as-declared",
        "rows_as_units_of_sums": "not-as-declared",
        "rows_as_cells": "not-as-declared",
        "rows_as_negative_totals": "not-as-declared",
        "rows_as_another_answer": "not-as-declared",
        "rows_as_an_error": "failed",
        "rows_as_the_order_of_later_rows": "not-as-declared",
        "rows_as_the_shape_of_an_empty_array": "not-as-declared",
        "row_as_many_facts": "too-many-facts",
        "row_as_many_totals": "not-as-declared",
        "one_long_count": "not-as-declared",
        "rows_in_a_type_that_forgets_its_schema": "points-of-few-rows",
        "rows_in_a_type_that_shows_the_rules_means": "points-of-few-rows",
        "means_that_can_be_solved_for_rows": "points-of-few-rows",
        "rows_with_an_array_that_lies_about_weights": "points-of-few-rows",
        "row_that_is_the_mean_in_a_changed_question": "points-of-few-rows",
        "row_that_is_the_mean_of_changed_rows": "failed",
        "row_that_is_the_mean_at_another_site": "points-of-few-rows",
        "rows_with_weights_that_are_no_numbers": "not-as-declared",
        "rows_with_no_weights": "not-as-declared",
        "rows_with_impossible_weights": "not-as-declared",
        "rows_with_weights_of_other_cells": "not-as-declared",
        "cells_of_no_row_with_sums": "abstains",
        "sums_that_belong_to_no_cell": "not-as-declared",
        "rows_along_the_other_axis": "not-as-declared",
        "rows_as_a_choice_of_units": "not-as-declared",
    }


@pytest.mark.parametrize("profile", SHIPPED)
@pytest.mark.parametrize("name", [name for name, one in THIEVES.items() if "sums" in one.classes])
def test_a_sum_is_never_shown_as_a_sites_own(name, profile):
    policy = replace(PROFILES[profile], packages=frozenset({"row_thieves"}))
    assert asked(name, policy, want="each") == Refusal("a", "not-a-sum")
    assert asked(name, PROFILES["none"], want="each") == Refusal("a", "not-a-sum")


@pytest.mark.parametrize("profile", SHIPPED)
@pytest.mark.parametrize("name", sorted(THIEVES))
def test_the_same_code_inside_fedclust_gets_no_row_out_by_facts_points_or_cells(monkeypatch, name, profile):
    """What a mistake in this package could do; one that lies about the rows behind its sums is not found.

    Nor is one that changes types or questions while they are read, which no mistake does.
    """
    one = THIEVES[name]
    if name in {"row_thieves.cells_of_one_row_called_cells_of_many", *TAMPERS}:
        return
    monkeypatch.setitem(HANDLERS, name, replace(one, package="fedclust", members=None))
    reply = asked(name, replace(PROFILES[profile], handlers=frozenset({name})))
    assert isinstance(reply, Refusal) or rows_found(reply) == 0
    assert isinstance(reply, Refusal) or name in {*ELSEWHERE, "row_thieves.rows_as_the_order_of_later_rows"}


@pytest.mark.parametrize("profile", SHIPPED)
def test_a_question_of_fedclust_that_nobody_listed_is_refused(monkeypatch, profile):
    name = "row_thieves.cells_of_one_row_called_cells_of_many"
    monkeypatch.setitem(HANDLERS, name, replace(THIEVES[name], package="fedclust"))
    assert asked(name, PROFILES[profile]) == Refusal("a", "handler-not-allowed")


def test_the_list_of_questions_that_profiles_answer_names_every_question_of_fedclust_and_no_other():
    import_questions()
    assert {name for name, one in HANDLERS.items() if not one.is_foreign} == LISTED_QUESTIONS


@pytest.mark.parametrize("profile", SHIPPED)
def test_honest_points_and_sums_of_another_package_leave_where_it_is_named(monkeypatch, profile):
    def halves(site, ask):
        yield np.repeat(np.eye(2), site.rows // 2, axis=1)

    def answer(site, ask):
        return row_thieves.Points(np.stack([ROWS[:30].mean(axis=0), ROWS[30:].mean(axis=0)]))

    def summed(site, ask):
        return row_thieves.SumsByCell(
            Exact.from_counts(np.array([30, 30])),
            row_thieves.exact(np.stack([ROWS[:30].sum(axis=0), ROWS[30:].sum(axis=0)])),
        )

    means, sums = "row_thieves.points_that_are_rows", "row_thieves.cells_of_no_row_with_sums"
    monkeypatch.setitem(HANDLERS, means, replace(THIEVES[means], answer=answer, members=halves))
    monkeypatch.setitem(HANDLERS, sums, replace(THIEVES[sums], answer=summed))
    policy = replace(PROFILES[profile], packages=frozenset({"row_thieves"}))
    assert isinstance(asked(sums, policy, take=replace(TAKE, cells=2)), SealedAnswer)
    reply = asked(means, policy)
    assert isinstance(reply, SealedAnswer) if policy.points else reply.code == "points-not-allowed"


@pytest.mark.parametrize("share", [1, 4, 5, 9])
def test_a_point_that_is_a_row_leaves_if_a_floor_of_rows_are_equal_to_it(share):
    rows = np.r_[np.random.default_rng(2).normal(size=(40, 3)), np.zeros((share, 3)) + 2.5]
    desk = SiteServer(SiteData("a", open_source(rows, site="a")), PROFILES["standard"])
    place = initial_centers.Candidates(np.full((1, 3), 2.5))
    one = replace(HANDLERS["initial_centers.seed_candidates"], answer=lambda *_: place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HANDLERS, one.name, one)
        reply = desk.answer(
            Call("r", 1, one.name, initial_centers.StartQuestion(TAKE.view, 3, 0), "each", ("a", "b", "c"))
        )
    assert isinstance(reply, SealedAnswer) == (share >= 5)
    assert isinstance(reply, SealedAnswer) or reply.code == "points-of-few-rows"


def test_careful_starts_on_whole_numbers_pass_their_own_gate():
    rng = np.random.default_rng(0)
    for seed in range(40):
        rows = rng.integers(0, 30, size=(60, 1 + seed % 3)).astype(float)
        desk = SiteServer(SiteData("a", open_source(rows, site="a")), replace(PROFILES["standard"], max_ratio=0.0))
        ask = initial_centers.StartQuestion(View(np.full(rows.shape[1], 6, np.int32)), 6, seed)
        assert isinstance(
            desk.answer(Call("r", 1, "initial_centers.seed_candidates", ask, "each", ("a", "b", "c"))), SealedAnswer
        )


def answers(*names, run="r", rows=ROWS, takes=None, **rules):
    """The replies of one site that names the package to questions that follow one another."""
    policy = replace(PROFILES["standard"], packages=frozenset({"fedclust", "row_thieves"}), **rules)
    vaults = Vaults(Identity.new(), dict.fromkeys("abc", b""))
    desk = SiteServer(SiteData("a", open_source(rows, site="a")), policy, vaults=lambda: vaults)
    for step, name in enumerate(names, 1):
        take = TAKE if takes is None else takes[step - 1]
        want = {"sum": "total", "each": "each"}[next(iter(HANDLERS[name].schema.values())).combine]
        yield desk.answer(Call(run, step, name, take, want, ("a", "b", "c")))


def codes_of(replies):
    return [reply.code if isinstance(reply, Refusal) else "left" for reply in replies]


def test_the_same_question_gets_no_second_bit_although_the_handler_has_one():
    codes = codes_of(answers(*["row_thieves.next_bit_of_a_row"] * 40))
    assert codes.count("left") <= 2
    assert codes[-1] == "too-many-facts"


def test_facts_of_other_packages_end_after_a_few_bits_in_a_study():
    takes = [replace(TAKE, cells=number) for number in range(1, 60)]
    codes = codes_of(answers(*["row_thieves.next_bit_of_many"] * len(takes), takes=takes))
    assert codes == ["left"] * MAX_FACT_BITS + ["too-many-facts"] * (len(takes) - MAX_FACT_BITS)


def test_numbers_of_the_same_question_count_each_time_if_they_differ():
    for name, numbers in (("next_row_doubled", 4), ("next_row_as_total", 3)):
        codes = codes_of(answers(*[f"row_thieves.{name}"] * 58))
        assert codes.index("too-many-numbers") <= 0.33 * len(ROWS) * 3 / numbers


def test_two_answers_that_alternate_spell_no_row():
    codes = codes_of(answers(*["row_thieves.bit_of_two"] * 60))
    assert codes.count("left") <= MAX_FACT_BITS
    assert codes[-1] == "too-many-facts"


def test_two_sums_that_alternate_count_each_time():
    row_thieves.asked_before[0] = 0
    codes = codes_of(answers(*["row_thieves.one_of_two_rows_doubled"] * 40))
    assert codes.index("too-many-numbers") <= 0.33 * len(ROWS) * 3 / 4


def test_a_step_that_is_asked_again_gets_the_same_answer_or_none():
    policy = replace(PROFILES["standard"], packages=frozenset({"row_thieves"}))
    desk = SiteServer(SiteData("a", open_source(ROWS, site="a")), policy)
    name = "row_thieves.next_row_doubled"
    runs = ["one-study", "two-study"] * 4
    replies = [desk.answer(Call(run, 1, name, TAKE, "total", ("a", "b", "c"))) for run in runs]
    assert codes_of(replies)[2] == "answer-changed"
    assert len({reply.wire_bytes for reply in replies if isinstance(reply, SealedAnswer)}) <= 2


@pytest.mark.parametrize("name", ["by_the_rule_for_gaps", "by_the_number_of_points"])
def test_code_of_a_message_that_makes_a_site_refuse_does_so_once(name):
    policy = replace(PROFILES["standard"], packages=frozenset({"row_thieves"}))
    desk = SiteServer(SiteData("a", open_source(ROWS, site="a")), policy)
    one = HANDLERS[f"row_thieves.refusals_{name}"]
    row_thieves.refuses[0] = False
    replies = []
    for step in range(1, 9):
        replies.append(desk.answer(Call("r", step, one.name, one.message(), "each", ("a", "b", "c"))))
        row_thieves.refuses[0] = step % 2 == 1
    assert codes_of(replies)[0] == "left"
    assert len(set(codes_of(replies)[1:])) == 1
    assert "left" not in codes_of(replies)[1:]


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_weights_whose_squares_vanish_or_overflow_do_not_pass_a_floor(size):
    def pair(site, ask):
        yield np.where(np.arange(site.rows) < 2, size, 0.0)[None]

    name = "row_thieves.points_that_are_rows"
    with pytest.MonkeyPatch.context() as patch:
        mean = replace(HANDLERS[name], answer=lambda *_: row_thieves.Points(ROWS[:2].mean(axis=0)[None]), members=pair)
        patch.setitem(HANDLERS, name, mean)
        assert codes_of(answers(name)) == ["points-of-few-rows"]


def test_a_handler_cannot_end_the_process_of_a_site():
    name = "row_thieves.next_bit_of_a_row"

    def leave(site, ask):
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HANDLERS, name, replace(HANDLERS[name], answer=leave))
        assert codes_of(answers(name, name)) == ["failed", "failed"]


def test_what_a_package_stores_replaces_only_what_it_stored():
    ours = {"sent": np.ones(1)}
    both = replace_memory_of_package(ours, "theirs", {"sent": np.zeros(1), "more": np.zeros(1)})
    assert memory_of_package(both, "fedclust") == ours
    assert sorted(memory_of_package(both, "theirs")) == ["more", "sent"]
    assert not memory_of_package(both, "others")
    later = replace_memory_of_package(replace_memory_of_package(both, "theirs", {"new": np.ones(2)}), "fedclust", {})
    assert sorted(memory_of_package(later, "theirs")) == ["new"]
    assert not memory_of_package(later, "fedclust")


def test_a_count_that_is_one_number_is_hidden_or_shown():
    assert [hide_small_counts(number, 5) for number in (0, 4, 5)] == [-1, -1, 5]


def test_every_error_in_the_code_of_another_package_is_the_same_and_the_last():
    assert set(codes_of(answers(*["row_thieves.bits_as_kinds_of_error"] * 6))) == {"failed"}


@pytest.mark.parametrize("how", ["orders_that_are_refused", "state_that_cannot_be_stored"])
def test_what_a_handler_stores_cannot_make_the_site_refuse_more_than_once(how):
    codes = codes_of(answers(*[f"row_thieves.bits_as_{how}"] * 40))
    assert "left" not in codes[next(at for at, code in enumerate(codes) if code != "left") :]


def test_another_package_reads_rows_with_missing_values_as_the_question_says():
    assert codes_of(answers("row_thieves.rows_with_and_without_gaps")) == ["failed"]


def test_a_question_that_reads_nothing_has_no_way_to_the_rows():
    assert codes_of(answers("row_thieves.rows_behind_a_context_without_rows")) == ["failed"]


def test_what_another_package_stores_is_not_read_by_fedclust_and_the_reverse():
    seen = {}

    def read(site, ask):
        seen[len(seen)] = dict(site.memory)
        return Keep(row_thieves.Yes(True), {"kept": np.zeros(1)})

    theirs = HANDLERS["row_thieves.rows_stored_for_fedclust_to_send"]
    ours = replace(theirs, name="ours.read", answer=read, package="fedclust")
    reader = replace(theirs, name="row_thieves.read", answer=read)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HANDLERS, ours.name, ours)
        patch.setitem(HANDLERS, reader.name, reader)
        patch.setattr("fedclust.site.policy.LISTED_QUESTIONS", {ours.name})
        list(answers(theirs.name, reader.name, ours.name, reader.name))
    assert [sorted(one) for one in seen.values()] == [["means"], [], ["kept"]]


def test_the_floor_of_rows_and_the_keys_hold_for_every_question_of_another_package():
    seen = []

    def peek(site, ask):
        try:
            seen.append(site.vault)
        except KeysRefused:
            return row_thieves.Yes(False)
        return row_thieves.Yes(True)

    name = "row_thieves.next_bit_of_a_row"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HANDLERS, name, replace(HANDLERS[name], answer=peek))
        assert codes_of(answers(name)) == ["left"]
        assert codes_of(answers(name, rows=ROWS[:2])) == ["too-few-rows"]
    assert not seen


def test_rows_called_weights_are_found_even_where_weights_may_leave():
    assert codes_of(answers("row_thieves.rows_as_weights", weights=True)) == ["not-as-declared"]
    assert codes_of(answers("row_thieves.rows_as_summed_weights", weights=True)) == ["not-as-declared"]


def test_names_of_parties_say_nothing_by_their_order():
    name = "row_thieves.rows_as_names"
    for order, left in ((("a", "b", "c"), "left"), (("c", "a", "b"), "not-as-declared")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(HANDLERS, name, replace(HANDLERS[name], answer=lambda *_, o=order: row_thieves.Names(o)))
            assert codes_of(answers(name)) == [left]


@pytest.mark.parametrize("spread", [1e-12, 1e-300, -1.0, np.nan])
@pytest.mark.parametrize("package", ["row_thieves", "fedclust"])
def test_a_view_with_a_spread_but_no_origin_shows_nothing(spread, package):
    """The rows stay as they are then; a spread alone must not set how near a point may be to a row."""
    name = "row_thieves.rows_in_a_type_that_shows_the_rules_means"
    view = View(TAKE.view.exponents, None, np.full(3, spread))
    assert not view.admits(np.ones(3))
    assert View(TAKE.view.exponents, np.zeros(3), None).admits(np.ones(3)) is False
    with pytest.MonkeyPatch.context() as patch:
        rows = replace(HANDLERS[name], answer=lambda *_: row_thieves.TwoFacedPoints(ROWS[:10]), package=package)
        patch.setitem(HANDLERS, name, rows)
        assert codes_of(answers(name, takes=[replace(TAKE, view=view)])) != ["left"]


def test_a_block_of_rows_cannot_be_changed_by_mistake():
    view = View(TAKE.view.exponents, np.ones(3), np.ones(3))
    site_data = SiteData("a", open_source(ROWS.copy(), site="a"))
    for block in [*site_data.blocks(TAKE.view), *site_data.blocks(view)]:
        with pytest.raises(ValueError, match="read-only"):
            block[:] = 0


HEAD = """
from dataclasses import dataclass, field
import numpy as np
from fedclust.core.effects import handler
from fedclust.core.noise_price import Noisy, Price, PricedQuestion, noisy
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import *
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Floats, Ints

@dataclass(frozen=True)
class Take(ViewedQuestion):
    view: View
"""
TAIL = """
def steal(site: Site, ask: Take) -> Loot:
    raise NotImplementedError
"""
CANNOT_BE_IMPORTED = {
    "an undeclared field": ("rows: Floats", "releases=Loot", "does not declare its class"),
    "an undeclared field with a default": ("rows: int = 3", "releases=Loot", "does not declare its class"),
    "floats as facts": ("rows: Floats = facts('x')", "releases=Loot, max_distinct=1", "class facts"),
    "any array as facts": ("rows: Array = facts('x')", "releases=Loot, max_distinct=1", "class facts"),
    "whole numbers as facts": ("rows: Ints = facts('x')", "releases=Loot, max_distinct=1", "class facts"),
    "a float as a fact": ("rows: float = facts('x')", "releases=Loot, max_distinct=1", "class facts"),
    "bytes as facts": ("rows: bytes = facts('x')", "releases=Loot, max_distinct=1", "class facts"),
    "a text as a fact": ("rows: str = facts('x')", "releases=Loot, max_distinct=1", "class facts"),
    "many facts": ("rows: bool = facts('x')", "releases=Loot", "max_distinct="),
    "floats as counts": ("rows: Floats = counts('x')", "releases=Loot", "class counts"),
    "floats as sums": ("rows: Floats = additive('x', cells=True)", "releases=Loot", "class sums"),
    "sums of unknown rows": ("rows: Exact = additive('x')", "releases=Loot", "row_weights="),
    "points nobody can check": ("rows: Floats = points('x', floor=5)", "releases=Loot", "members="),
    "points in a sum": ("rows: Exact = additive_points('x', floor=5)", "releases=Loot", "points in a sum"),
    "a floor nobody names": (
        "rows: Floats = points('x', floor=FLOOR_FROM_QUESTION)",
        "releases=Loot",
        "FlooredQuestion",
    ),
    "marks": ("rows: Exact = marks('x')", "releases=Loot, max_distinct=1", "only fedclust's own"),
    "counts of single rows": ("rows: Ints = counts('x', hide_small=False)", "releases=Loot", "hide_small=True"),
    "messages of a class that needs no consent": (
        "rows: dict[str, bytes] = field(metadata={'disclosure': Disclosure('messages', 'counts', 'x')})",
        "releases=Loot",
        "that fedclust did not make",
    ),
    "facts without a least": (
        "rows: int = field(metadata={'disclosure': Disclosure('each', 'facts', 'x', least=-2.0**63, most=1)})",
        "releases=Loot, max_distinct=1",
        "that fedclust did not make",
    ),
    "no floor of rows": (
        "rows: bool = facts('x')",
        "releases=Loot, max_distinct=1, reads='places'",
        "switch off rules",
    ),
    "other rows than agreed": (
        "rows: bool = facts('x')",
        "releases=Loot, max_distinct=1, before_alignment=True",
        "switch off rules",
    ),
    "keys": ("rows: bytes = public_keys('x')", "releases=Loot", "only fedclust's own"),
    "shares": ("rows: bytes = shares('x')", "releases=Loot", "only fedclust's own"),
    "sealed shares": ("rows: dict[str, bytes] = sealed_shares('x')", "releases=Loot", "only fedclust's own"),
    "noise without a price": ("rows: Exact = noisy('x')", "releases=Loot", "with noise"),
    "facts without a bound": (
        "rows: int = facts('x', most=2.0**60)",
        "releases=Loot, max_distinct=1",
        "needs a bound",
    ),
    "an answer that reads its fields itself": (
        "rows: bool = facts('x')\n    def field_value(self, name): return True",
        "releases=Loot, max_distinct=1",
        "may only declare fields",
    ),
    "an answer that changes when it is read": (
        "rows: bool = facts('x')\n    def __getattribute__(self, name): return object.__getattribute__(self, name)",
        "releases=Loot, max_distinct=1",
        "may only declare fields",
    ),
    "a schema that differs from the fields": (
        "_schema = {'rows': Disclosure('each', 'sums', 'x')}\n    rows: Floats = weights('x')",
        "releases=Loot",
        "differs from its fields",
    ),
    "a class that compares as it likes": (
        "rows: Floats = field(metadata={'disclosure': Disclosure('each', type('S', (str,), {})('weights'), 'x')})",
        "releases=Loot",
        "that fedclust did not make",
    ),
    "points in two fields": (
        "rows: Floats = points('x', floor=5)\n    more: Floats = points('x', floor=5)",
        "releases=Loot, members=lambda *_: ()",
        "points in two fields",
    ),
    "sums of any shape": ("rows: Exact = additive('x', cells=True)", "releases=Loot", "how long its axes are"),
    "totals of any shape": ("rows: Exact = additive_counts('x')", "releases=Loot", "how long its axes are"),
    "counts of any shape": ("rows: Ints = counts('x')", "releases=Loot", "how long its axes are"),
    "an axis that the question does not have": (
        "rows: Exact = additive('x', cells=True, axes=('cells',))",
        "releases=Loot",
        "has the axis 'cells'",
    ),
    "an empty axis": ("rows: Exact = additive('x', cells=True, axes=(0,))", "releases=Loot", "has the axis 0"),
    "units that the question does not have": (
        "rows: Exact = additive('x', cells=True, axes=(), units='unit')",
        "releases=Loot",
        "takes its units from 'unit'",
    ),
    "an axis that compares as it likes": (
        "rows: Exact = additive('x', cells=True, axes=(type('A', (int,), {})(3),))",
        "releases=Loot",
        "that fedclust did not make",
    ),
    "no reason": ("rows: bool = facts('')", "releases=Loot, max_distinct=1", "write a description"),
}


def module_with(field, how):
    return f"{HEAD}\n@dataclass(frozen=True)\nclass Loot(Release):\n    {field}\n\n@handler({how}){TAIL}"


@pytest.mark.parametrize("profile", SHIPPED)
@pytest.mark.parametrize(
    ("shape", "unit"), [((), 0), ((2,), 0), ((3,), 0), ((1, 2), 0), ((2, 3), 0), ((2,), -40), ((2,), -50)]
)
def test_another_package_has_no_choice_of_shapes_and_units(monkeypatch, profile, shape, unit):
    """The question states 2 cells, 3 columns and two units; neither shapes nor units are masked."""

    def answer(site, ask):
        rows = np.zeros((*shape, 2), np.uint64)
        return row_thieves.OneOfTwo(Exact(rows, np.full(shape, unit, np.int32)))

    name = "row_thieves.cells_of_one_row"
    honest = replace(THIEVES[name], answer=answer, message=row_thieves.TakeUnits, release=row_thieves.OneOfTwo)
    monkeypatch.setitem(HANDLERS, name, honest)
    policy = replace(PROFILES[profile], packages=frozenset({"row_thieves"}), aggregation="plain", min_cell=0)
    ask = row_thieves.TakeUnits(TAKE.view, 2, np.full(2, -40, np.int32), np.full(2, -50, np.int32))
    reply = asked(name, policy, take=ask)
    assert isinstance(reply, SealedAnswer) == (shape == (2,) and unit == -40), reply


@pytest.mark.parametrize("what", CANNOT_BE_IMPORTED)
def test_what_says_less_than_a_site_must_know_cannot_be_imported(what, tmp_path):
    field, how, said = CANNOT_BE_IMPORTED[what]
    path = tmp_path / "loot.py"
    path.write_text(module_with(field, how))
    before = dict(HANDLERS)
    spec = importlib.util.spec_from_file_location("loot", path)
    sys.modules["loot"] = module = importlib.util.module_from_spec(spec)
    try:
        with pytest.raises(TypeError, match=said):
            spec.loader.exec_module(module)
    finally:
        del sys.modules["loot"]
    assert before == HANDLERS


def test_a_question_says_once_how_missing_values_are_handled(tmp_path, monkeypatch):
    """Rules and rows would follow different words: the same sum with and without some rows."""
    text = module_with("rows: bool = facts('x')", "releases=Loot, max_distinct=1")
    text = text.replace("import ViewedQuestion", "import GapsQuestion, ViewedQuestion")
    path = tmp_path / "loot.py"
    path.write_text(text.replace("(ViewedQuestion)", "(ViewedQuestion, GapsQuestion)"))
    spec = importlib.util.spec_from_file_location("loot", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "loot", module)
    with pytest.raises(TypeError, match="already says how missing values are handled"):
        spec.loader.exec_module(module)


def test_a_module_with_an_undeclared_field_ends_the_process_that_imports_it(tmp_path):
    (tmp_path / "loot.py").write_text(module_with(*CANNOT_BE_IMPORTED["an undeclared field"][:2]))
    code = textwrap.dedent(f"""
        import sys
        sys.path[:0] = [{str(tmp_path)!r}, *{sys.path!r}]
        import loot
    """)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "loot.Loot.rows does not declare its class" in run.stderr


def test_a_handler_elsewhere_cannot_take_the_name_of_ours():
    assert "row_thieves.rows_as_weights" in HANDLERS
    assert all(name.startswith(f"{one.answer.__module__}.") for name, one in THIEVES.items())


def test_a_handler_cannot_pass_for_fedclusts_own_by_its_modules_name(tmp_path, monkeypatch):
    """A module's name can be assigned; the file that the code comes from decides."""
    rename = "\ndef rename(f):\n    f.__module__ = 'fedclust.evil'\n    return f\n"
    text = module_with(*CANNOT_BE_IMPORTED["shares"][:2]).replace("\ndef steal", "\n@rename\ndef steal")
    path = tmp_path / "passing.py"
    path.write_text(
        text.replace("\n@dataclass(frozen=True)\nclass Loot", f"{rename}\n@dataclass(frozen=True)\nclass Loot")
    )
    spec = importlib.util.spec_from_file_location("passing", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "passing", module)
    with pytest.raises(TypeError, match="does not come from the file of the module that it names"):
        spec.loader.exec_module(module)


@pytest.mark.parametrize("trick", ["f.__module__ = 'row_thieves'", "f.__module__ = 'not_installed.part'"])
def test_a_handler_cannot_pass_for_one_of_another_package(trick, tmp_path, monkeypatch):
    """A site's policy names packages; the files that the code comes from decide what a package is."""
    text = module_with("rows: bool = facts('x')", "releases=Loot, max_distinct=1")
    path = tmp_path / "passing.py"
    rename = f"\ndef rename(f):\n    {trick}\n    return f\n"
    path.write_text(text.replace("\n@handler", f"\n{rename}\n@handler").replace("\ndef steal", "\n@rename\ndef steal"))
    spec = importlib.util.spec_from_file_location("passing", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "passing", module)
    before = dict(HANDLERS)
    with pytest.raises(TypeError, match="is not defined in the module that it names"):
        spec.loader.exec_module(module)
    assert before == HANDLERS


def test_a_handler_cannot_pass_for_fedclusts_own_by_the_file_that_its_code_names(monkeypatch):
    text = module_with(*CANNOT_BE_IMPORTED["shares"][:2])
    module = types.ModuleType("fedclust.core.passing")
    monkeypatch.setitem(sys.modules, "fedclust.core.passing", module)
    copied = dict(vars(module))
    with pytest.raises(TypeError, match="is not defined in the module that it names"):
        exec(compile(text, fedclust.core.release.__file__, "exec"), copied)


@pytest.mark.parametrize("far", [1e6, 1e9, 1e12])
def test_a_far_origin_hides_no_row_among_the_points(far):
    """Distances between rows are small next to a far origin; the check must not take all rows for equal."""
    policy = replace(PROFILES["standard"], packages=frozenset({"row_thieves"}))
    view = View(np.full(3, 70, np.int32), np.full(3, far), np.ones(3))
    desk = SiteServer(SiteData("a", open_source(ROWS, site="a")), policy)
    call = Call("r", 1, "row_thieves.points_that_are_rows", row_thieves.Take(view), "each", ("a", "b", "c"))
    assert desk.answer(call).code == "points-of-few-rows"


@pytest.mark.parametrize("spread", [0.0, -1.0, np.inf, np.nan])
def test_a_view_with_a_spread_that_is_no_length_is_refused(spread):
    view = View(np.full(3, 70, np.int32), np.zeros(3), np.full(3, spread))
    assert not view.admits(np.ones(3))


def test_a_handler_that_failed_once_is_not_asked_again_in_that_run():
    """An error in one round and none in the next would be a message."""
    policy = replace(PROFILES["standard"], packages=frozenset({"row_thieves"}))
    desk = SiteServer(SiteData("a", open_source(ROWS, site="a")), policy)
    names = ["row_thieves.rows_as_counts", "row_thieves.rows_as_an_error", "row_thieves.rows_as_counts"]
    steps = enumerate(zip(["first", "second", "second"], names, strict=True), 1)
    calls = [Call(run, step, name, TAKE, "each", ("a", "b", "c")) for step, (run, name) in steps]
    assert [desk.answer(call).code for call in calls] == ["not-as-declared", "failed", "failed"]


def test_a_handler_cannot_pass_for_fedclusts_own_in_a_module_that_only_says_where_it_is(monkeypatch):
    text = module_with(*CANNOT_BE_IMPORTED["shares"][:2])
    for name in ("fedclust.core.passing", "fedclust.core.row_weights"):
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        with pytest.raises(TypeError, match="not a function that a module of fedclust defines"):
            exec(compile(text, fedclust.core.release.__file__, "exec"), vars(module))


def test_a_function_of_fedclust_cannot_be_registered_again_with_other_declarations():
    one = HANDLERS["initial_centers.seed_candidates"]
    copied = types.FunctionType(one.answer.__code__, one.answer.__globals__, "seed_candidates_again")
    copied.__annotations__ = one.answer.__annotations__
    with pytest.raises(TypeError, match="not a function that a module of fedclust defines"):
        handler(releases=one.release)(copied)


def test_a_message_that_runs_code_when_a_site_reads_it_cannot_be_imported(tmp_path, monkeypatch):
    text = module_with("rows: bool = facts('x')", "releases=Loot, max_distinct=1")
    path = tmp_path / "loot.py"
    path.write_text(text.replace("    view: View\n", "    view: View\n    def __post_init__(self): raise ValueError\n"))
    spec = importlib.util.spec_from_file_location("loot", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "loot", module)
    with pytest.raises(TypeError, match="runs code when a site reads it"):
        spec.loader.exec_module(module)


@pytest.mark.parametrize("module", ["bounds", "row_split", "gaussian_mixture"])
def test_a_module_elsewhere_cannot_take_the_name_that_ours_gets_when_it_is_imported(module, tmp_path, monkeypatch):
    path = tmp_path / f"{module}.py"
    text = Path(row_thieves.__file__).read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(module, path)
    taken = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, module, taken)
    before = dict(HANDLERS)
    try:
        with pytest.raises(TypeError, match=f"move module {module} into a package"):
            spec.loader.exec_module(taken)
        assert before == HANDLERS
    finally:
        for name in set(HANDLERS) - set(before):
            del HANDLERS[name]


def test_a_handler_whose_name_is_a_subclass_of_str_or_has_a_dot_is_refused():
    class Name(str):
        __slots__ = ()

    def steal(site, ask):
        return None

    steal.__module__ = Name("elsewhere.thief")
    with pytest.raises(TypeError, match="plain strings, not Name"):
        handler_name(steal)
    steal.__module__, steal.__name__ = "elsewhere", "a.b"
    with pytest.raises(TypeError, match="not a valid function name"):
        handler_name(steal)
