"""Handlers that return rows, one for each class of field: under every profile for organisations none leaves."""

import dataclasses
import importlib.util
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import row_thieves
from fedclust.algorithms.shared import initial_centers
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import REMEDIES, Call, Refusal, SealedAnswer
from fedclust.core.handler_checks import handler_name
from fedclust.core.release import FIELD_CLASSES, UNCHECKABLE_CLASSES
from fedclust.core.ring import Exact
from fedclust.core.site_interface import View
from fedclust.site.policy import PROFILES
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source

ROWS = np.random.default_rng(11).normal(size=(60, 3)) * 7
TAKE = row_thieves.Take(View(np.full(3, 6, np.int32)))
THIEVES = {name: one for name, one in HANDLERS.items() if one.package == "row_thieves"}
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
    "row_thieves.rows_with_the_opposite_sign",
    "row_thieves.rows_as_units_of_sums",
    "row_thieves.rows_as_negative_totals",
    "row_thieves.rows_as_negative_marks",
}


def asked(name, policy, want=None):
    combine = next(iter(THIEVES[name].release.schema().values())).combine
    want = want or {"sum": "total", "each": "each", "messages": "relay"}[combine]
    desk = SiteServer(SiteData("a", open_source(ROWS, site="a")), policy)
    masks = "lasting-1" if want == "relay" else None
    return desk.answer(Call("r", 1, name, TAKE, want, ("a", "b", "c"), masks))


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
    codes = {"reads_nothing": "failed", "an_error": "failed", "later_rows": "keys-refused"}
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
        "fact_with_the_bits_of_a_value": "not-as-declared",
        "fact_that_is_an_array": "not-as-declared",
        "fact_that_is_a_text": "not-as-declared",
        "rows_as_names": "not-as-declared",
        "rows_as_counts": "not-as-declared",
        "rows_as_totals": "not-as-declared",
        "rows_as_marks": "not-as-declared",
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
        "rows_as_negative_marks": "not-as-declared",
        "rows_as_another_answer": "not-as-declared",
        "rows_as_an_error": "failed",
        "rows_as_the_order_of_later_rows": "keys-refused",
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
    """What a mistake in this package could do; one that lies about the rows behind its sums is not found."""
    one = THIEVES[name]
    if name == "row_thieves.cells_of_one_row_called_cells_of_many":
        return
    monkeypatch.setitem(HANDLERS, name, replace(one, package="fedclust", members=None))
    reply = asked(name, PROFILES[profile])
    assert isinstance(reply, Refusal) or rows_found(reply) == 0
    assert isinstance(reply, Refusal) or name in {*ELSEWHERE, "row_thieves.rows_as_the_order_of_later_rows"}


@pytest.mark.parametrize("profile", SHIPPED)
def test_honest_points_and_sums_of_another_package_leave_where_it_is_named(monkeypatch, profile):
    def halves(site, ask):
        yield np.repeat(np.eye(2), site.rows // 2, axis=1)

    def answer(site, ask):
        return row_thieves.Points(np.stack([ROWS[:30].mean(axis=0), ROWS[30:].mean(axis=0)]))

    def summed(site, ask):
        return row_thieves.Sums(
            Exact.from_counts(np.array([30, 30])),
            row_thieves.exact(np.stack([ROWS[:30].sum(axis=0), ROWS[30:].sum(axis=0)])),
        )

    means, sums = "row_thieves.points_that_are_rows", "row_thieves.cells_of_one_row"
    monkeypatch.setitem(HANDLERS, means, replace(THIEVES[means], answer=answer, members=halves))
    monkeypatch.setitem(HANDLERS, sums, replace(THIEVES[sums], answer=summed))
    policy = replace(PROFILES[profile], packages=frozenset({"row_thieves"}))
    assert isinstance(asked(sums, policy), SealedAnswer)
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


HEAD = """
from dataclasses import dataclass
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
    "no reason": ("rows: bool = facts('')", "releases=Loot, max_distinct=1", "give the reason"),
}


def module_with(field, how):
    return f"{HEAD}\n@dataclass(frozen=True)\nclass Loot(Release):\n    {field}\n\n@handler({how}){TAIL}"


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
    with pytest.raises(TypeError, match="is not where its module's name says"):
        spec.loader.exec_module(module)


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
        with pytest.raises(TypeError, match=f"put {module} in a package"):
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
    with pytest.raises(TypeError, match="no name of a function"):
        handler_name(steal)
