"""The coordinator: quorum, absences, recovery, and refusal of answers that are not to this step."""

from dataclasses import replace

import numpy as np
import pytest

import fedclust as fc
from fedclust import Federation
from fedclust.algorithms import kfed
from fedclust.algorithms.summary_clustering import summaries as site_summaries
from fedclust.core.drive import Coordinator, quorum_lost_error
from fedclust.core.effects import Keep, each, report, total
from fedclust.core.envelope import REMEDIES, STUDY_OR_SITE_REFUSALS, STUDY_REFUSALS
from fedclust.core.errors import JournalError, QuorumLost
from fedclust.core.journal import Journal
from fedclust.core.site_interface import View
from fedclust.questions.bounds import ColumnsQuestion, count_rows, magnitudes, total_rows
from fedclust.questions.composition import Composition, CompositionQuestion
from fedclust.testing import Faulty


def engine(parties=4):
    return Federation.local({f"p{i}": np.ones((i + 5, 2)) for i in range(parties)}).engine


def silent(*parties):
    return lambda _, party: "silent" if party in parties else None


def test_a_total_adds_all_parties():
    assert Coordinator(engine()).drive(total_rows(2)) == 5 + 6 + 7 + 8


def test_a_subset_is_asked_alone():
    def script():
        return (yield from total(count_rows, ColumnsQuestion(2), among=("p0", "p3")))

    assert Coordinator(engine()).drive(script()).rows.to_integers() == [5 + 8]


def test_one_silent_party_loses_a_full_quorum_and_is_named():
    with pytest.raises(
        QuorumLost, match=r"3 of 4 parties answered, but 4 are required \(p1: no answer came in time\)"
    ) as missed:
        Coordinator(Faulty(engine(), silent("p1"))).drive(total_rows(2))
    assert missed.value.missing == {"p1": "no-answer"}


@pytest.mark.parametrize(("quorum", "gone", "holds"), [(3, 1, True), (3, 2, False), (0.5, 2, True), (0.51, 2, False)])
def test_a_smaller_quorum_goes_on_and_remembers_who_was_absent(quorum, gone, holds):
    def script():
        return (yield from total(count_rows, ColumnsQuestion(2), quorum=quorum))

    absent = [f"p{i}" for i in range(gone)]
    coordinator = Coordinator(Faulty(engine(), silent(*absent)))
    if holds:
        assert coordinator.drive(script()).rows.to_integers()[0] == sum(range(5 + gone, 9))
        assert [a.party for a in coordinator.absences] == absent
    else:
        with pytest.raises(QuorumLost):
            coordinator.drive(script())


SITES_OWN, STUDYS = ("bad-data", "no-answer"), ("points-not-allowed", "out-of-bounds")
EITHERS = ("handler-not-allowed",)


@pytest.mark.parametrize(
    ("codes", "resume", "restart"),
    [
        (SITES_OWN, True, False),
        (STUDYS, False, True),
        (EITHERS, True, True),
        ((SITES_OWN[0], STUDYS[0]), True, True),
        ((EITHERS[0], STUDYS[0]), True, True),
    ],
)
def test_a_lost_quorum_says_whether_to_resume_or_to_run_the_study_anew(codes, resume, restart):
    error = quorum_lost_error(
        "initial_centers.seed_candidates", 1, 3, 3, {f"p{i}": code for i, code in enumerate(codes)}
    )
    assert ("resume" in str(error), "start a new run in another folder" in str(error)) == (resume, restart)
    assert error.must_restart is not resume


def test_every_code_that_a_study_mends_has_words():
    assert set(REMEDIES) >= STUDY_REFUSALS | STUDY_OR_SITE_REFUSALS


def test_an_algorithm_may_recover_from_a_lost_quorum():
    def script():
        try:
            return (yield from total(count_rows, ColumnsQuestion(2)))
        except QuorumLost as missed:
            others = tuple(p for p in ("p0", "p1", "p2", "p3") if p not in missed.missing)
            return (yield from total(count_rows, ColumnsQuestion(2), among=others))

    assert Coordinator(Faulty(engine(), silent("p3"))).drive(script()).rows.to_integers() == [18]


def test_the_site_refuses_its_own_answer_where_a_sum_was_declared():
    def script():
        return (yield from each(magnitudes, ColumnsQuestion(2)))

    with pytest.raises(QuorumLost) as missed:
        Coordinator(engine()).drive(script())
    assert set(missed.value.missing.values()) == {"not-a-sum"}


def test_reports_reach_whoever_watches():
    seen = []

    def script():
        yield from report(round=1)
        yield from report(round=2)

    Coordinator(engine()).drive(script(), seen.append)
    assert seen == [{"round": 1}, {"round": 2}]


def test_another_script_cannot_go_on_from_a_journal(tmp_path):
    journal = Journal(tmp_path / "journal")
    Coordinator(engine(), "r", journal).drive(total_rows(2))
    with pytest.raises(JournalError, match="step 1 differs"):
        Coordinator(engine(), "r", journal).drive(total_rows(3))
    journal.close()


SQUARE = View(np.full(2, 4, np.int32))
ALONE = kfed.DeviceQuestion(SQUARE, 2, 5, 0)
AROUND = CompositionQuestion(SQUARE, np.zeros((2, 2)))
BATCH = site_summaries.Batch(SQUARE, 5, fresh=True, damped=True)


def summaries(places, counts):
    return site_summaries.Summaries(np.array(places, float), np.array(counts), waiting=False, has_no_memory=True)


@pytest.mark.parametrize(
    ("answer", "ask", "sound"),
    [
        (kfed.DeviceCenters(np.zeros((2, 2))), ALONE, True),
        (kfed.DeviceCenters(np.empty((0, 2))), ALONE, True),
        (kfed.DeviceCenters(np.full((2, 2), 48.0)), ALONE, True),  # thrice the bound of a column
        (kfed.DeviceCenters(np.full((2, 2), 1e300)), ALONE, False),
        (kfed.DeviceCenters(np.zeros((2, 3))), ALONE, False),
        (kfed.DeviceCenters(np.zeros(2)), ALONE, False),
        (kfed.DeviceCenters(np.zeros((3, 2))), ALONE, False),
        (Composition(np.array([5, 9])), AROUND, True),
        (Composition(np.array([5])), AROUND, False),
        (Composition(np.array(5)), AROUND, False),
        (summaries([[1, 1], [2, 2]], [5, 9]), BATCH, True),
        (summaries([[1, 1], [2, 2]], [5, -1]), BATCH, True),  # hidden
        (summaries([[1, 1], [2, 2]], [5, 0]), BATCH, False),
        (summaries([[1, 1], [2, 2]], [5, -2]), BATCH, False),
        (summaries([[1, 1], [2, 2]], [5, 1 << 62]), BATCH, False),
        (summaries([[1, 1], [2, 2]], [5]), BATCH, False),
        (summaries([[1, 1], [2, 2]], [[5, 5]]), BATCH, False),
        (summaries([[1, 1], [2, 2]], [[5], [5]]), BATCH, False),
        (summaries([[1, 1], [2, 2]], 5), BATCH, False),
        (summaries([[1, 1, 1]], [5]), BATCH, False),
        (summaries([[1, 99]], [5]), BATCH, False),
    ],
)
def test_a_partys_own_points_and_counts_can_be_told_from_nonsense(answer, ask, sound):
    assert type(answer).plausible([answer], ask).tolist() == [sound]


@pytest.mark.parametrize(
    ("model", "field", "lie"),
    [
        (fc.KFed(2), "centers", lambda own: np.full_like(own, 1e300)),
        (fc.KFed(2), "centers", lambda own: np.c_[own, own]),
        (fc.SummaryClustering(), "places", lambda own: own[:, :1]),
        (fc.SummaryClustering(), "rows", lambda own: own[1:]),
        (fc.SummaryClustering(), "rows", lambda own: -2 * own),
    ],
)
def test_a_site_that_sends_nonsense_of_its_own_is_named(model, field, lie):
    rng = np.random.default_rng(0)
    fed = Federation.local({name: rng.normal(size=(60, 2)) for name in "abc"})
    desk = fed.local_sites["b"]
    honest = desk.compute_answer

    def work(handler, turn, message):
        answer = honest(handler, turn, message)
        release = answer.release if isinstance(answer, Keep) else answer
        if field not in release.schema() or not isinstance(release, kfed.DeviceCenters | site_summaries.Summaries):
            return answer
        wrong = replace(release, **{field: lie(getattr(release, field))})
        return replace(answer, release=wrong) if isinstance(answer, Keep) else wrong

    desk.compute_answer = work
    with pytest.raises(QuorumLost, match="b: its answer is invalid"):
        model.fit(fed)
