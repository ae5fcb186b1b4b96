"""A site's privacy budget: written before noise is drawn, enforced over studies, crashes and processes."""

import json
import multiprocessing
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust.algorithms.private_kmeans import private_questions
from fedclust.app.serve import import_questions
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import Call, Refusal, SealedAnswer
from fedclust.core.errors import DataError, OverBudget, StudyError
from fedclust.core.noise_price import NOISE_UNITS_PER_ONE, Noisy, Price
from fedclust.privacy.accountant import epsilon_from_rho, rho_from_epsilon
from fedclust.site import noise_budget
from fedclust.site.policy import PROFILES, Policy
from fedclust.site.privacy_spending import PrivacySpending, Purchase
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData, missing_rule_of
from fedclust.site.site_file import read_site_file
from fedclust.site.sources import open_source

pytest.importorskip("opendp")
ROWS = np.random.default_rng(0).normal(size=(40, 2))
BOX = private_questions.Box(np.full(2, -4.0), np.full(2, 4.0), np.ones(2))
ALL = rho_from_epsilon(1.0, 1e-6)
POLICY = Policy("budget", epsilon=1.0)


def purchase(rho, step=1, run="a"):
    return Purchase(run, step, "private_fit.count_cells", "00", rho)


def desk(folder, policy=POLICY, rows=ROWS):
    return SiteServer(SiteData("here", open_source(rows, site="here")), policy, folder=folder)


def call(rho, *, run="run-a", step=1, honest=1, masks=None, cohort=("here",)):
    return Call(
        run,
        step,
        "private_fit.lengths",
        private_questions.LengthsQuestion(Price(rho, honest), BOX),
        "total",
        cohort,
        masks,
    )


def numbers(reply):
    return reply.release.sums.to_floats().ravel()


def test_what_adds_up_to_the_budget_is_paid_and_no_more(tmp_path):
    budget = PrivacySpending(tmp_path, 1.0, 1e-6)
    for step in range(4):
        budget.spend(purchase(ALL * 0.2499, step))
    with pytest.raises(OverBudget, match="spent"):
        budget.spend(purchase(ALL * 0.01, 5))
    assert budget.spent_epsilon(1e-6) <= 1.0
    assert len(budget.purchases) == 4


def test_a_price_that_was_refused_leaves_room_for_a_smaller_one(tmp_path):
    budget = PrivacySpending(tmp_path, 1.0, 1e-6)
    with pytest.raises(OverBudget):
        budget.spend(purchase(ALL * 2))
    budget.spend(purchase(ALL * 0.9))


def test_after_a_restart_what_was_spent_is_spent(tmp_path):
    PrivacySpending(tmp_path, 1.0, 1e-6).spend(purchase(ALL * 0.7))
    again = PrivacySpending(tmp_path, 1.0, 1e-6)
    assert again.spent_rho == ALL * 0.7
    with pytest.raises(OverBudget):
        again.spend(purchase(ALL * 0.4))


def test_two_desks_of_a_site_share_one_budget(tmp_path):
    first, second = PrivacySpending(tmp_path, 1.0, 1e-6), PrivacySpending(tmp_path, 1.0, 1e-6)
    first.spend(purchase(ALL * 0.6))
    with pytest.raises(OverBudget):
        second.spend(purchase(ALL * 0.6, run="b"))
    second.spend(purchase(ALL * 0.3, run="b"))
    with pytest.raises(OverBudget):
        first.spend(purchase(ALL * 0.2, 2))


def spend_often(folder):
    budget, paid = PrivacySpending(folder, 1.0, 1e-6), 0
    for step in range(8):
        try:
            budget.spend(purchase(ALL / 10, step, run=str(os.getpid())))
            paid += 1
        except OverBudget:
            pass
    return paid


def test_processes_that_spend_at_once_never_spend_more_than_there_is(tmp_path):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        paid = pool.map(spend_often, [tmp_path, tmp_path])
    assert sum(paid) in (9, 10)  # the last of ten parts may be lost to rounding
    assert PrivacySpending(tmp_path, 1.0, 1e-6).spent_rho <= ALL


def test_a_line_that_a_crash_cut_short_was_not_paid(tmp_path):
    PrivacySpending(tmp_path, 1.0, 1e-6).spend(purchase(ALL * 0.5))
    path = tmp_path / "budget.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    again = PrivacySpending(tmp_path, 1.0, 1e-6)
    assert again.spent_rho == ALL * 0.5
    again.spend(purchase(ALL * 0.4, 2))
    assert len(PrivacySpending(tmp_path, 1.0, 1e-6).purchases) == 2


def test_a_budget_that_was_altered_is_refused(tmp_path):
    PrivacySpending(tmp_path, 1.0, 1e-6).spend(purchase(ALL * 0.5))
    path = tmp_path / "budget.jsonl"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "rho": record["rho"] / 2}) + "\n")
    with pytest.raises(DataError, match="altered"):
        PrivacySpending(tmp_path, 1.0, 1e-6)


def test_the_price_is_on_disk_before_noise_is_drawn(tmp_path, monkeypatch):
    seen = []

    def watched(count, scale):
        seen.append((tmp_path / "budget.jsonl").read_text().count("\n"))
        assert scale == NOISE_UNITS_PER_ONE * Price(ALL / 2).sigma
        return np.zeros(count, np.int64)

    monkeypatch.setattr(noise_budget, "draw_gaussian_noise", watched)
    assert isinstance(desk(tmp_path).answer(call(ALL / 2)), SealedAnswer)
    assert seen == [1]


def test_a_question_over_budget_is_refused_and_nothing_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(noise_budget, "draw_gaussian_noise", lambda *_: pytest.fail("drawn"))
    assert desk(tmp_path).answer(call(ALL * 1.01)) == Refusal("here", "over-budget")


def test_two_studies_share_a_sites_budget_also_after_a_restart(tmp_path):
    first, second = desk(tmp_path), desk(tmp_path)
    assert isinstance(first.answer(call(ALL * 0.6, run="1-heart")), SealedAnswer)
    assert second.answer(call(ALL * 0.6, run="2-lungs")) == Refusal("here", "over-budget")
    assert desk(tmp_path).answer(call(ALL * 0.6, run="3-liver")) == Refusal("here", "over-budget")
    assert isinstance(desk(tmp_path).answer(call(ALL * 0.3, run="3-liver", step=2)), SealedAnswer)


def test_the_same_question_gets_the_same_noise_and_costs_once(tmp_path):
    first = desk(tmp_path).answer(call(ALL * 0.6))
    again = desk(tmp_path).answer(call(ALL * 0.6))  # after a restart
    later = desk(tmp_path).answer(call(ALL * 0.6, step=2))  # and as another step
    assert first.wire_bytes == again.wire_bytes
    assert np.array_equal(numbers(first), numbers(later))
    assert len(PrivacySpending(tmp_path, 1.0, 1e-6).purchases) == 1


def test_rows_that_changed_meanwhile_do_not_show_behind_the_same_noise(tmp_path):
    first = desk(tmp_path).answer(call(ALL * 0.6))
    other = desk(tmp_path, rows=ROWS[:5]).answer(call(ALL * 0.6))
    assert first.wire_bytes == other.wire_bytes


def test_another_run_or_another_question_gets_other_noise(tmp_path):
    ours = desk(tmp_path, Policy("free"))
    replies = [ours.answer(call(0.1, run=run, step=step)) for run in ("a-x", "b-x") for step in (1,)]
    replies.append(ours.answer(call(0.2, run="a-x", step=2)))
    assert len({numbers(reply).tobytes() for reply in replies}) == 3
    assert [p.rho for p in ours.gate.noise_budget.spending.purchases] == [0.1, 0.1, 0.2]


def test_a_site_with_a_budget_answers_nothing_without_noise(tmp_path):
    from fedclust.questions import bounds

    asked = Call("run-a", 1, "bounds.count_rows", bounds.ColumnsQuestion(2), "total", ("here",))
    assert desk(tmp_path).answer(asked) == Refusal("here", "not-private")


@pytest.mark.parametrize("rho", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_price_that_is_none_is_refused(rho, tmp_path):
    assert desk(tmp_path, PROFILES["none"]).answer(call(rho)) == Refusal("here", "too-little-noise")


def test_where_its_sums_are_seen_a_site_relies_on_no_other_for_noise(tmp_path):
    assert desk(tmp_path).answer(call(0.001, honest=2)) == Refusal("here", "too-little-noise")


def test_no_row_however_odd_makes_a_site_refuse(tmp_path):
    odd = np.array([[np.nan, 1.0], [1e308, 0.0], [np.inf, -np.inf], [0.5, 0.5]])
    reply = desk(tmp_path, replace(POLICY, min_rows=30), rows=odd).answer(call(ALL * 0.9))
    assert isinstance(reply, SealedAnswer)


def test_a_price_decides_how_gaps_are_met_whatever_a_question_says():
    asked = private_questions.LengthsQuestion(Price(0.1), BOX)
    assert missing_rule_of(HANDLERS["private_fit.lengths"], asked) == "finite"


def test_odd_questions_are_refused_alike_with_rows_and_without(tmp_path):
    nowhere = np.full((2, 1), np.nan)
    asked = private_questions.OffsetsQuestion(Price(0.01), BOX, nowhere, nowhere[:1], nowhere[:1], 1, 0.0)
    huge = private_questions.GridQuestion(Price(0.01), BOX, np.ones((2, 1)), np.ones(1), np.array([1 << 40]))
    for number, message in enumerate((asked, huge)):
        name = "private_fit.cluster_offsets" if number == 0 else "private_fit.count_cells"
        codes = {
            getattr(
                desk(tmp_path / f"{number}{len(rows)}", rows=rows).answer(
                    Call("run-a", 1, name, message, "total", ("here",))
                ),
                "code",
                "sealed",
            )
            for rows in (ROWS, np.full((1, 2), np.nan))
        }
        assert len(codes) == 1


def test_the_odometer_and_the_ledger_agree(tmp_path):
    ours = desk(tmp_path)
    for step in (1, 2, 3):
        ours.answer(call(ALL * 0.1 * step, step=step))
    spent = ours.gate.noise_budget.spending.spent_rho
    assert spent == pytest.approx(ALL * 0.6)
    assert ours.gate.noise_budget.spending.spent_epsilon(1e-6) == epsilon_from_rho(spent, 1e-6) < 1.0


def test_a_site_file_with_a_budget_needs_a_place_to_keep_it(tmp_path):
    text = 'name = "north"\nsource = "rows.csv"\n{}[policy]\nprofile = "nhs"\nepsilon = 2.0\n'
    (tmp_path / "site.toml").write_text(text.format(""))
    with pytest.raises(StudyError, match="no `state`"):
        read_site_file(tmp_path / "site.toml")
    (tmp_path / "site.toml").write_text(text.format('state = "state"\n'))
    assert read_site_file(tmp_path / "site.toml").policy.epsilon == 2.0


def test_a_question_that_does_not_fit_is_refused_alike_whatever_the_rows_and_costs_nothing(tmp_path):
    few = replace(POLICY, min_rows=1)
    tables = [ROWS, ROWS[:1], np.full((1, 2), np.nan), ROWS * 1e6]

    @given(asked=questions())
    @settings(max_examples=60, deadline=None)
    def alike(asked):
        name, message = asked
        fits = message.fits(2)
        codes = set()
        for rows in tables:
            ours = desk(tmp_path / os.urandom(8).hex(), few, rows=rows)
            reply = ours.answer(Call("run-a", 1, name, message, "total", ("here",)))
            codes.add(getattr(reply, "code", "sealed"))
            assert bool(ours.gate.noise_budget.spending.purchases) == fits
        assert codes == {"sealed"} if fits else len(codes) == 1 and codes != {"sealed"}

    alike()


@st.composite
def questions(draw):
    """Questions of the right kind and any shape."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = lambda most: draw(st.integers(0, most))
    width = draw(st.sampled_from([2, 2, 2, 1, 3]))
    box = private_questions.Box(
        np.full(width, -4.0), np.full(draw(st.sampled_from([width, width, width + 1])), 4.0), np.ones(width)
    )
    price, axes = Price(1e-6), draw(st.sampled_from([1, 2, 2, 3]))
    turn = rng.normal(size=(draw(st.sampled_from([width, width, 1])), axes))
    if draw(st.booleans()):
        bins = np.array([draw(st.sampled_from([2, 3, 0, -1, 1 << 20])) for _ in range(size(3))], np.int64)
        return "private_fit.count_cells", private_questions.GridQuestion(
            price, box, turn, np.ones(draw(st.sampled_from([len(bins), 1]))), bins
        )
    centers = rng.normal(size=(size(3), draw(st.sampled_from([axes, axes, 1]))))
    pivots = centers[: draw(st.sampled_from([len(centers), len(centers), 1]))]
    return "private_fit.cluster_offsets", private_questions.OffsetsQuestion(
        price, box, turn, centers, pivots, draw(st.integers(-1, 3)), 1.0
    )


def test_no_question_without_noise_tells_a_budgets_neighbouring_tables_apart(tmp_path):
    import_questions()
    tables = [ROWS, ROWS[:4], ROWS[:-1], np.vstack([ROWS[:3], [[np.nan, 1.0]]]), ROWS * 1e200]
    for name, handler in HANDLERS.items():
        if issubclass(handler.release, Noisy) or not handler.answer.__module__.startswith("fedclust."):
            continue
        for want in ("total", "each", "relay"):
            codes = set()
            for number, rows in enumerate(tables):
                ours = desk(tmp_path / f"{name}-{want}-{number}", rows=rows)
                codes.add(getattr(ours.answer(Call("run-a", 1, name, None, want, ("here",))), "code", "sealed"))
            assert len(codes) == 1, name


def test_rows_and_gaps_do_not_show_in_how_a_question_without_noise_is_refused(tmp_path):
    from fedclust.questions import bounds

    asked = Call("run-a", 1, "bounds.count_rows", bounds.ColumnsQuestion(2), "total", ("here",))
    gap = np.vstack([ROWS, [[np.nan, 1.0]]])
    codes = {desk(tmp_path / str(len(rows)), rows=rows).answer(asked).code for rows in (ROWS, ROWS[:2], gap)}
    assert codes == {"not-private"}


@pytest.mark.parametrize("left", [0, 1])
def test_a_budget_that_was_cut_short_or_taken_away_is_found_out_by_the_answers_it_paid_for(left, tmp_path):
    ours = desk(tmp_path)
    for step in (1, 2, 3):
        assert isinstance(ours.answer(call(ALL * 0.1 * step, step=step)), SealedAnswer)
    lines = (tmp_path / "budget.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "budget.jsonl").write_text("".join(lines[:left]))
    again = desk(tmp_path)
    assert again.answer(call(ALL * 0.15, step=4)).code == "bad-data"
    assert "payment for only" in str(again.last_error)


def answer_and_die(folder, place):
    """A process of the site that the power is cut off, once it has paid or once it has drawn noise."""
    plain = {"paid": noise_budget.draw_gaussian_noise, "drawn": noise_budget.write_file}[place]
    setattr(noise_budget, plain.__name__, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    desk(folder).answer(call(ALL * 0.7))


@pytest.mark.parametrize("place", ["paid", "drawn"])
def test_a_site_that_was_killed_after_paying_has_paid_and_refuses_what_is_over_its_budget(place, tmp_path):
    child = multiprocessing.get_context("fork").Process(target=answer_and_die, args=(tmp_path, place))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert desk(tmp_path).answer(call(ALL * 0.7)) == Refusal("here", "over-budget")
    assert isinstance(desk(tmp_path).answer(call(ALL * 0.2, step=2)), SealedAnswer)
    assert desk(tmp_path).answer(call(ALL * 0.3, step=3, run="another-study")) == Refusal("here", "over-budget")
