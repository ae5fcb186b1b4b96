"""The server of a site never raises, refuses by code, and answers a step once."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclust.algorithms.gaussian_mixture.densities import Gaussians
from fedclust.core.effects import HANDLERS, Keep, handler
from fedclust.core.envelope import Call, Refusal, SealedAnswer
from fedclust.core.release import Done, Release, additive_counts
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.questions import partition_changes
from fedclust.questions.bounds import ColumnsQuestion
from fedclust.questions.choice_of_k import contingency_tables
from fedclust.site.policy import PROFILES, Policy
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source
from fedclust.site.stored_state import memory_of_package

SECRET = 987654321.125


def desk(rows=20, policy=PROFILES["none"], **options):
    source = open_source(np.full((rows, 2), SECRET), site="clinic")
    return SiteServer(SiteData("clinic", source), policy, **options)


def call(name="bounds.count_rows", message=None, step=1, want="total", run="r", others=("east", "west")):
    return Call(run, step, name, ColumnsQuestion(2) if message is None else message, want, ("clinic", *others))


@dataclass(frozen=True)
class Poke:
    how: str


@dataclass(frozen=True)
class Count(Release):
    count: Exact = additive_counts("a count", axes=())


@handler(releases=Count)
def poke(site: Site, ask: Poke) -> Count:
    if ask.how == "raise":
        raise RuntimeError(f"the value is {SECRET}")
    if ask.how == "wrong":
        return Done()  # type: ignore[return-value]
    return Count(Exact.from_counts(site.rows))


@handler(releases=Done)
def tally(site: Site, ask: Poke) -> Keep[Done]:
    return Keep(Done(), {"count": np.asarray(site.memory.get("count", np.zeros(1))) + 1})


def test_an_answer_is_sealed_and_written_down():
    at = desk()
    reply = at.answer(call())
    assert isinstance(reply, SealedAnswer)
    assert reply.release.rows.to_integers() == [20]
    (entry,) = at.gate.ledger.entries
    assert (entry.handler, entry.want, entry.size) == ("bounds.count_rows", "total", reply.size)


@pytest.mark.parametrize(("how", "code"), [("raise", "failed"), ("wrong", "not-as-declared")])
def test_an_error_at_the_site_stays_there(how, code):
    at = desk()
    reply = at.answer(call("test_site_server.poke", Poke(how)))
    assert reply == Refusal("clinic", code)
    assert all(entry.abstained == code for entry in at.gate.ledger.entries)
    assert at.last_error is not None


@pytest.mark.parametrize(
    ("policy", "rows", "want", "code"),
    [
        (PROFILES["nhs"], 9, "total", "too-few-rows"),
        (PROFILES["nhs"], 10, "total", None),
        (Policy("mine", handlers=frozenset({"bounds.magnitudes"})), 20, "total", "handler-not-allowed"),
        (Policy("mine", handlers=frozenset({"bounds.count_rows"})), 20, "total", None),
        (PROFILES["none"], 20, "each", "not-a-sum"),
    ],
)
def test_the_policy_decides(policy, rows, want, code):
    reply = desk(rows, policy).answer(call(want=want))
    assert (reply.code if isinstance(reply, Refusal) else None) == code


def test_bad_rows_are_refused_by_code_alone():
    source = open_source(np.array([[1.0, np.nan]]), site="clinic")
    assert SiteServer(SiteData("clinic", source), PROFILES["none"]).answer(call()) == Refusal("clinic", "bad-data")


def test_the_same_question_again_gets_the_same_answer_and_another_gets_none():
    at = desk()
    first = at.answer(call())
    assert at.answer(call()) is first
    assert at.answer(call("bounds.magnitudes")) == Refusal("clinic", "step-reused")
    assert isinstance(at.answer(call(step=2)), SealedAnswer)
    assert at.answer(call(step=1)) == Refusal("clinic", "step-reused")
    assert isinstance(at.answer(call(run="another")), SealedAnswer)


def test_memory_and_answer_survive_a_restart_together(tmp_path):
    for step in (1, 2, 2, 3):  # the second step is asked twice, as after a crash
        at = desk(folder=tmp_path)
        assert isinstance(at.answer(call("test_site_server.tally", Poke("on"), step, "each")), SealedAnswer)
        assert memory_of_package(at.memory["r"], "test_site_server")["count"].tolist() == [step]


def test_a_crash_between_ledger_and_memory_repeats_the_step(tmp_path):
    at = desk(folder=tmp_path)
    at.answer(call("test_site_server.tally", Poke("on"), 1, "each"))
    state = (tmp_path / "state").read_bytes()
    at.answer(call("test_site_server.tally", Poke("on"), 2, "each"))
    (tmp_path / "state").write_bytes(state)
    again = desk(folder=tmp_path)
    assert isinstance(again.answer(call("test_site_server.tally", Poke("on"), 2, "each")), SealedAnswer)
    assert memory_of_package(again.memory["r"], "test_site_server")["count"].tolist() == [2]


@given(st.binary(max_size=200))
def test_noise_is_not_understood_and_does_not_raise(noise):
    assert desk().answer_bytes(noise) == Refusal("clinic", "not-understood")


def test_a_call_travels_as_bytes():
    reply = desk().answer_bytes(call().wire_bytes)
    assert isinstance(reply, SealedAnswer)
    assert SealedAnswer.decode(reply.wire_bytes).release == reply.release


def test_a_call_for_an_unknown_handler_is_not_understood():
    data = replace(call(), handler="nobody.knows").wire_bytes
    assert desk().answer_bytes(data) == Refusal("clinic", "not-understood")


@given(st.sampled_from(sorted(HANDLERS)), st.sampled_from(["total", "each"]))
def test_no_handler_gives_its_own_answer_for_a_field_declared_as_a_sum(name, want):
    at = desk()
    code = at.gate.admit(Call("r", 1, name, None, want, ("clinic",)), HANDLERS[name], 20)
    declared = {d.combine for d in HANDLERS[name].schema.values()}
    assert (code != "not-a-sum") == (declared <= {"sum" if want == "total" else "each"})


def test_streams_follow_seed_party_and_step():
    from fedclust.site.site_data import HandlerContext

    holding = desk().site_data
    draw = lambda seed, step: HandlerContext(holding, (seed, step), {}).rng.random()
    assert draw(0, 1) == draw(0, 1)
    assert len({draw(0, 1), draw(0, 2), draw(1, 1)}) == 3


def test_a_short_question_does_not_ask_for_more_memory_than_there_is():
    """Every pair of two models' centres is a number: a question of a megabyte could ask for tens of gigabytes."""
    many, view, at = np.zeros((50_000, 2)), View(np.array([4, 4], np.int32)), desk()
    models = partition_changes.ModelPair(view, view, many, many, "refuse")
    assert at.answer(call("partition_changes.count_shared_rows", models)) == Refusal("clinic", "not-understood")
    none = np.empty((0, 2))
    by = Gaussians("EII", np.zeros(len(many)), many, np.ones((1, 1)), none, np.empty(0), 0)
    pair = contingency_tables.PartitionPair(contingency_tables.Partition(by), contingency_tables.Partition(by))
    tables = call("contingency_tables.count_label_pairs", contingency_tables.PairsQuestion(view, (pair,)), step=2)
    assert at.answer(tables) == Refusal("clinic", "not-understood")
