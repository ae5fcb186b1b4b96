"""What cannot be true is refused: by name in plain mode, unnamed under masks, and first of all at the site itself."""

from dataclasses import replace

import numpy as np
import pytest

import fedclust as fc
from fedclust.algorithms.cmeans import row_split
from fedclust.algorithms.shared import initial_centers
from fedclust.app.coordinate import UnreachedSites
from fedclust.core import wire
from fedclust.core.drive import _encode_replies, refuse_impossible
from fedclust.core.envelope import Answer, Call, Refusal, SealedAnswer
from fedclust.core.errors import OutOfBounds
from fedclust.core.journal import ANSWER_RECORD, Journal
from fedclust.core.ring import Exact
from fedclust.core.site_interface import View
from fedclust.site.gate import Gate

ROWS = np.random.default_rng(3).normal(size=(60, 2))
SITES = {"a": ROWS[:20], "b": ROWS[20:40], "c": ROWS[40:]}


class Lying:
    """An engine of which site b answers a question falsely; where it `travels`, as bytes between machines."""

    def __init__(self, engine, question, lie, *, travels=False):
        self.engine, self.question, self.lie, self.travels = engine, question, lie, travels
        self.parties = engine.parties

    def exchange(self, calls, *, timeout, quorum):
        replies = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        reply = replies.get("b")
        if isinstance(reply, SealedAnswer) and reply.handler == self.question:
            false = self.lie(reply)
            replies["b"] = (
                wire.decode(Answer, wire.encode(Answer.from_reply(b"", false))).to_reply() if self.travels else false
            )
        self.last = replies
        return replies


def told(**changed):
    return lambda reply: replace(reply, release=replace(reply.release, **{n: f(reply) for n, f in changed.items()}))


def value(field, number):
    """The same answer with one field all the same number."""

    def false(reply):
        honest = getattr(reply.release, field)
        return Exact.from_floats(np.full(honest.shape, number), unit=honest.unit)

    return told(**{field: false})


LIES = {
    "a mass of 1e12": ("row_split.moments", value("mass", 1e12), "impossible-answer"),
    "a negative mass": ("row_split.moments", value("mass", -1.0), "impossible-answer"),
    "a pull of 1e12": ("row_split.moments", value("pull", 1e9), "impossible-answer"),
    "a negative objective": ("row_split.moments", value("objective", -1.0), "impossible-answer"),
    "rows of 1e12": ("bounds.count_rows", value("rows", 1e12), "impossible-answer"),
    "fewer than no rows": ("bounds.count_rows", value("rows", -3.0), "impossible-answer"),
    "a sum beyond its bound": ("standardisation.column_sums", value("sums", 1e9), "impossible-answer"),
    "another shape": (
        "row_split.moments",
        told(mass=lambda r: Exact(r.release.mass.limbs[:-1], r.release.mass.unit[:-1])),
        "odd-answer",
    ),
    "another unit": (
        "row_split.moments",
        told(mass=lambda r: Exact(r.release.mass.limbs, r.release.mass.unit + 1)),
        "odd-answer",
    ),
    "another question's answer": (
        "row_split.moments",
        lambda r: replace(r, release=initial_centers.Candidates(np.zeros((2, 2)))),
        "odd-answer",
    ),
    "another step's": ("row_split.moments", lambda r: replace(r, step=r.step - 1), "no-answer"),
    "another run's": ("row_split.moments", lambda r: replace(r, run="another"), "no-answer"),
    "not a number": (
        "initial_centers.seed_candidates",
        told(points=lambda _: np.full((2, 2), np.nan)),
        "impossible-answer",
    ),
    "no end": ("initial_centers.seed_candidates", told(points=lambda _: np.full((2, 2), np.inf)), "impossible-answer"),
    "points of 1e12": (
        "initial_centers.seed_candidates",
        told(points=lambda _: np.full((2, 2), 1e12)),
        "impossible-answer",
    ),
    "too many points": (
        "initial_centers.seed_candidates",
        told(points=lambda _: np.zeros((9, 2))),
        "impossible-answer",
    ),
    "points without columns": (
        "initial_centers.seed_candidates",
        told(points=lambda _: np.zeros(2)),
        "impossible-answer",
    ),
}


@pytest.mark.parametrize("travels", [False, True], ids=["here", "between machines"])
@pytest.mark.parametrize("lie", LIES)
def test_a_false_answer_is_refused_by_name(lie, travels):
    question, false, code = LIES[lie]
    fed = fc.Federation.local(SITES)
    fed.use_engine(Lying(fed.engine, question, false, travels=travels))
    scale = "standardise" if question == "standardisation.column_sums" else "none"
    with pytest.raises(fc.QuorumLost) as lost:
        fc.FuzzyCMeans(2, init="careful", scale=scale, max_iter=3).fit(fed)
    assert lost.value.missing == {"b": code}


@pytest.mark.parametrize("written", ["as a refusal", "as it came"])
@pytest.mark.parametrize("lie", [lie for lie, (_, _, code) in LIES.items() if code != "no-answer"])
def test_a_site_that_answered_falsely_is_asked_anew_once_it_is_mended(lie, written, tmp_path):
    question, false, _ = LIES[lie]
    scale = "standardise" if question == "standardisation.column_sums" else "none"
    model = fc.FuzzyCMeans(2, init="careful", scale=scale, max_iter=3)
    with fc.Federation.local(SITES, run=tmp_path / "run") as fed:
        liar = Lying(fed.engine, question, false)
        fed.use_engine(liar)
        with pytest.raises(fc.QuorumLost):
            model.fit(fed)
    if written == "as it came":  # as versions did that wrote answers down before they looked at them
        journal = Journal(tmp_path / "run" / "journal")
        journal.write(ANSWER_RECORD, journal.last_step, _encode_replies(liar.last))
        journal.close()
    with fc.Federation.local(SITES, run=tmp_path / "run") as fed:
        mended = model.fit(fed).cluster_centers_
    with fc.Federation.local(SITES, run=tmp_path / "run") as fed:
        fed.use_engine(UnreachedSites(fed.parties))  # a finished run asks nobody
        assert np.array_equal(model.fit(fed).cluster_centers_, mended)
    assert np.array_equal(model.fit(fc.Federation.local(SITES)).cluster_centers_, mended)


def test_a_run_that_may_do_without_goes_on_without_the_false_answer():
    fed = fc.Federation.local(SITES)
    fed.use_engine(Lying(fed.engine, "row_split.moments", value("pull", 1e9)))
    begin = ROWS[:2]
    model = fc.FuzzyCMeans(2, init=begin, quorum=2, bounds=(-9, 9)).fit(fed)
    honest = fc.FuzzyCMeans(2, init=begin, bounds=(-9, 9)).fit(fc.Federation.local({"a": SITES["a"], "c": SITES["c"]}))
    assert np.array_equal(model.cluster_centers_, honest.cluster_centers_)
    assert any("b did not contribute" in note for note in model.notes_)


@pytest.mark.parametrize("aggregation", ["secure", "blind"])
def test_an_impossible_sum_under_masks_ends_the_run_unnamed(aggregation, monkeypatch):
    honest = Gate.judge

    def judge(self, call, handler, release, site):
        return None if self.party == "b" else honest(self, call, handler, release, site)

    plain = row_split.moments.answer
    fed = fc.Federation.local(SITES, aggregation=aggregation)
    monkeypatch.setattr(Gate, "judge", judge)  # a site that does not check itself

    def false(site, ask):
        found = plain(site, ask)
        return (
            replace(found, mass=Exact.from_floats(np.full(2, -1e6), unit=found.mass.unit))
            if site.party == "b"
            else found
        )

    object.__setattr__(row_split.moments, "answer", false)
    try:
        with pytest.raises(fc.RunFailed, match="a sum of Moments has an impossible value") as failed:
            fc.FuzzyCMeans(2, init=ROWS[:2], bounds=(-9, 9)).fit(fed)
    finally:
        object.__setattr__(row_split.moments, "answer", plain)
    assert "b" not in str(failed.value).split()


def test_a_site_checks_itself_before_masks_hide_its_answer():
    plain = row_split.moments.answer
    fed = fc.Federation.local(SITES, aggregation="secure")

    def false(site, ask):
        found = plain(site, ask)
        return (
            replace(found, mass=Exact.from_floats(np.full(2, -1e6), unit=found.mass.unit))
            if site.party == "b"
            else found
        )

    object.__setattr__(row_split.moments, "answer", false)
    try:
        with pytest.raises(OutOfBounds, match="is invalid"):
            fc.FuzzyCMeans(2, init=ROWS[:2], bounds=(-9, 9)).fit(fed)
    finally:
        object.__setattr__(row_split.moments, "answer", plain)


def test_points_at_the_bound_pass_and_beyond_it_do_not():
    view = View(np.array([1, 1], np.int32))
    call = Call("r", 1, "initial_centers.seed_candidates", initial_centers.StartQuestion(view, 2, 0), "each", ("a",))
    edge = SealedAnswer(
        "a", "r", 1, "initial_centers.seed_candidates", initial_centers.Candidates(np.array([[6.0, -6.0]]))
    )
    beyond = replace(edge, release=initial_centers.Candidates(np.array([[6.01, 0.0]])))
    assert refuse_impossible(initial_centers.Candidates, {"a": call}, {"a": edge}) == {"a": edge}
    assert refuse_impossible(initial_centers.Candidates, {"a": call}, {"a": beyond}) == {
        "a": Refusal("a", "impossible-answer")
    }
