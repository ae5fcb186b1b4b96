"""Each rule of a policy lets pass and refuses, and abstaining outlives the process."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedclust as fc
from fedclust.algorithms import kfed
from fedclust.algorithms.cmeans import row_split
from fedclust.algorithms.shared import initial_centers
from fedclust.algorithms.summary_clustering import summaries
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import REMEDIES, Call, Refusal, SealedAnswer
from fedclust.core.ring import Exact
from fedclust.core.row_weights import tally_weights
from fedclust.core.run_series import next_run_name
from fedclust.core.site_interface import View
from fedclust.kernels import fuzzy_sweep
from fedclust.privacy.dropout_recovery import Respondents
from fedclust.questions import ranges
from fedclust.questions.bounds import ColumnsQuestion
from fedclust.questions.composition import CompositionQuestion
from fedclust.site import answer_guards, class_checks, displayed_counts, guards
from fedclust.site.gate import Gate
from fedclust.site.ledger import Ledger
from fedclust.site.policy import PROFILES, Policy
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source

NAMES = ("a", "b", "c", "d", "e", "f")
LINE = np.r_[np.zeros(8), np.full(8, 10.0)][:, None]  # eight rows at 0, eight at 10


def desk(policy, rows=LINE, **options):
    return SiteServer(SiteData("a", open_source(np.asarray(rows, float), site="a")), policy, **options)


def rows_asked(step=1, *, run="r", cohort=NAMES[:3], masks=None, columns=1):
    return Call(run, step, "bounds.count_rows", ColumnsQuestion(columns), "total", cohort, masks)


def centres(*points, m=1.0, step=1, cohort=NAMES[:3]):
    view = View(np.array([4], np.int32))
    ask = row_split.make_question(view, np.array(points, float)[:, None], m)
    return Call("r", step, "row_split.moments", ask, "total", cohort)


def code(reply):
    return reply.code if isinstance(reply, Refusal) else None


def admitted(policy, call, ledger=None, rows=100):
    gate = Gate("a", policy, Ledger() if ledger is None else ledger)
    return gate.admit(call, HANDLERS[call.handler], rows)


@pytest.mark.parametrize(
    ("policy", "call", "expected"),
    [
        (Policy("own", min_rows=17), rows_asked(), "too-few-rows"),
        (Policy("own", min_rows=16), rows_asked(), None),
        (Policy("own", min_parties=4), rows_asked(), "too-few-parties"),
        (Policy("own", min_parties=3), rows_asked(), None),
        (Policy("own", min_parties=3), rows_asked(cohort=("a", "b", "b")), "too-few-parties"),
        (Policy("own", aggregation="secure"), rows_asked(), "aggregation-too-weak"),
        (Policy("own", withheld=frozenset({"bounds.count_rows"})), rows_asked(), "handler-not-allowed"),
        (Policy("own", min_cell=8), centres(0, 10), None),
        (Policy("own", min_cell=9), centres(0, 10), "abstains"),
        (Policy("own", min_cell=9), centres(0, 99), None),  # one cluster has all sixteen, the other none
        (Policy("own", max_share=0.125), centres(0, 10), None),
        (Policy("own", max_share=0.12), centres(0, 10), "abstains"),
        (Policy("own", max_ratio=0.33), centres(0, 10), None),  # 2 + 2 + 1 numbers, 5.28 allowed
        (Policy("own", max_ratio=0.3), centres(0, 10), "too-many-numbers"),  # 4.8 allowed
    ],
)
def test_a_rule_lets_pass_and_refuses(policy, call, expected):
    assert code(desk(policy).answer(call)) == expected


@pytest.mark.parametrize("points", [True, False])
def test_points_leave_by_consent_only(points):
    view = View(np.array([4], np.int32))
    wish = initial_centers.StartQuestion(view, 2, 0)
    reply = desk(Policy("own", points=points, min_rows=1)).answer(
        Call("r", 1, "initial_centers.seed_candidates", wish, "each", NAMES[:3])
    )
    assert code(reply) == (None if points else "points-not-allowed")


def test_the_strictest_site_answers_encrypted_questions_only():
    rules = Policy("own", aggregation="blind")
    masked = rows_asked(masks="lasting-1")
    assert admitted(rules, masked) == "aggregation-too-weak"
    assert admitted(rules, replace(masked, is_encrypted=True)) is None
    assert admitted(Policy("own", aggregation="secure"), masked) is None
    keys = Call("r", 1, "roster.offer", None, "each", NAMES[:3])
    assert admitted(rules, keys) is None


def test_a_run_has_so_many_questions_and_no_more():
    at = desk(Policy("own", max_calls=2))
    assert [code(at.answer(rows_asked(step))) for step in (1, 2, 2, 3)] == [None, None, None, "too-many-calls"]
    assert code(at.answer(rows_asked(1, run="another"))) is None


def test_an_extreme_is_not_found_by_asking_from_ever_nearer():
    gate = Gate("a", Policy("own", min_rows=1), Ledger())
    handler = HANDLERS["ranges.mark_ranges"]
    release = handler.release(*(Exact.from_counts(np.zeros((1, 81), np.int64)) for _ in range(2)))

    def ask(step, origin, run="r"):
        view = View(np.array([9], np.int32), np.array([origin]), np.array([1e-9]))
        call = Call(run, step, handler.name, ranges.RangesQuestion(view), "total", NAMES[:3], "lasting-1")
        code = gate.admit(call, handler, 50)
        if code is None:
            gate.record_as_sent(call, release, 0)
        return code

    assert [ask(step, origin) for step, origin in enumerate([0.0, 8.0, 8.0, 12.0, 14.0, 8.0])] == [
        *[None] * 4,
        "too-many-facts",
        None,  # as before
    ]
    assert ask(7, 13.0, run="another") is None


def test_a_site_clusters_alone_once_in_a_study():
    """Of two ways to part the same rows that differ by one row, the means show that row."""
    at = desk(Policy("own", min_rows=1), np.random.default_rng(0).normal(size=(60, 2)))

    def ask(step, spread, run="r"):
        view = View(np.array([9, 9], np.int32), np.zeros(2), np.array([1.0, spread]))
        return code(
            at.answer(Call(run, step, "kfed.device_centers", kfed.DeviceQuestion(view, 2, 5, 0), "each", NAMES[:3]))
        )

    assert [ask(1, 1.0), ask(2, 2.0), ask(3, 1.0)] == [None, "too-many-facts", None]  # the last is the first again
    assert ask(1, 2.0, run="another") is None


def test_points_of_one_method_are_not_asked_for_in_a_study_by_another():
    view = View(np.array([9, 9], np.int32))
    alone = Call("r", 1, "kfed.device_centers", kfed.DeviceQuestion(view, 2, 5, 0), "each", NAMES[:3])
    summed = Call("r", 2, "summaries.summarise_rows", summaries.Batch(view, 5, True, True), "each", NAMES[:3])
    rows = rows_asked(3, columns=2)

    def said(method):
        at = desk(Policy("own", min_rows=1), np.random.default_rng(0).normal(size=(60, 2)), method=method)
        return [code(at.answer(call)) for call in (alone, summed, rows)]

    no = "handler-not-allowed"
    assert said("fuzzy-c-means") == [no, no, None]
    assert said("k-fed") == [None, no, None]
    assert said("summary-clustering") == [no, None, None]
    assert said("fcac") == [no, no, None]
    assert said(None) == [None, None, None]  # a study in one process may fit what it likes


def test_a_row_is_not_found_by_the_sides_of_many_planes():
    def ask(at, step, place):
        centers = np.array([[place], [place + 1.0]])
        call = Call(
            "r",
            step,
            "composition.composition",
            CompositionQuestion(View(np.array([4], np.int32)), centers),
            "each",
            NAMES,
        )
        return code(at.answer(call))

    plain = desk(Policy("own", min_rows=1))
    assert [ask(plain, step, float(step)) for step in range(1, 5)] == [None, None, None, "too-many-facts"]
    masked = desk(Policy("own", min_rows=1, aggregation="secure"))
    assert ask(masked, 1, 1.0) == "aggregation-too-weak"
    plain = desk(Policy("own", min_rows=1))
    plain.gate.record_as_sent(rows_asked(masks="lasting-1"), ColumnsQuestion(1), 0)
    assert ask(plain, 2, 1.0) == "aggregation-too-weak"  # sums of this study are masked


def test_rows_that_were_summed_up_are_not_parted_otherwise_in_another_run():
    at = desk(Policy("own", min_rows=1), np.random.default_rng(0).normal(size=(60, 2)))

    def ask(step, spread, run="a1b2c3d4-study", *, fresh=True):
        view = View(np.array([9, 9], np.int32), np.zeros(2), np.array([1.0, spread]))
        batch = summaries.Batch(view, 5, fresh, damped=True)
        return code(at.answer(Call(run, step, "summaries.summarise_rows", batch, "each", NAMES[:3])))

    assert [ask(1, 1.0), ask(2, 2.0)] == [None, None]  # told once, seen through another view
    assert ask(1, 3.0, next_run_name("a1b2c3d4-study"), fresh=False) is None  # a later round: new rows only
    assert ask(1, 1.0, "another-study") is None  # the first question again
    assert ask(2, 4.0, "another-study") == ask(1, 4.0, "third-study") == "too-many-facts"
    assert ask(1, 4.0, "a1b2c3d4-text") is None


def test_points_are_asked_for_in_reasonable_numbers():
    view = View(np.array([4], np.int32))
    call = Call(
        "r", 1, "initial_centers.draw_candidates", initial_centers.StartQuestion(view, 10**9, 0), "each", NAMES[:3]
    )
    assert code(desk(Policy("own", min_rows=1)).answer(call)) == "too-many-numbers"


def test_honest_runs_need_one_fact_of_a_kind_however_many_they_are():
    rows = {party: np.random.default_rng(i).normal(size=(60, 2)) for i, party in enumerate("abc")}
    fed = fc.Federation.local(rows, policy=Policy("own", min_rows=5))
    for seed in range(4):
        fc.SummaryClustering(scale="range", random_state=seed).fit(fed)
        fc.GaussianMixture(2, random_state=seed).fit(fed)
    fc.select_k(fc.GaussianMixture(2), fed, range(1, 4))
    ledger = fed.local_sites["a"].gate.ledger
    tally = ledger.tally(ledger.entries[0].run)
    assert (tally.distinct_questions["ranges.mark_ranges"], tally.distinct_questions["densities.mark_deviations"]) == (
        1,
        1,
    )
    assert tally.by_handler["densities.mark_deviations"] > 4


def test_effective_size_of_a_fuzzy_cell_by_hand():
    # Two rows of weight 1 and 1/2: (3/2)^2 / (5/4) = 1.8 rows, of which the larger is two thirds.
    w = tally_weights([np.array([[1.0, 0.5]])])
    assert w[0] ** 2 / w[1] == pytest.approx([1.8])
    assert w[2] / w[0] == pytest.approx([2 / 3])


def test_many_rows_of_little_weight_are_many_and_one_of_much_is_one():
    far = np.tile([-0.1, 0.1], 8)[:, None]
    ask = centres(0, 12, m=2.0)
    assert row_split.membership_weights(_turn(far), ask.message)[0, 1] < 1  # their weights add up to less than one row
    assert code(desk(Policy("own", min_cell=15), far).answer(ask)) is None
    assert code(desk(Policy("own", min_cell=3), np.r_[far, [[12.0]]]).answer(ask)) == "abstains"


def _turn(rows):
    from fedclust.site.site_data import HandlerContext

    return HandlerContext(SiteData("a", open_source(rows, site="a")), (0, 1), {})


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_the_sum_of_weights_is_at_most_the_effective_size(weights):
    total, squares, largest = tally_weights([np.array([weights])])[:, 0]
    assert total * squares <= total**2 * (1 + 1e-9)
    assert largest <= 1


@given(st.integers(1, 12), st.lists(st.integers(0, 20), min_size=2, max_size=5), st.sampled_from([1.0, 2.0]))
def test_no_sum_over_fewer_rows_than_the_floor_ever_leaves(floor, counts, m):
    places = np.arange(len(counts)) * 3.0
    rows = np.repeat(places, counts)[:, None]
    if not len(rows):
        return
    ask = centres(*places, m=m)
    reply = desk(Policy("own", min_cell=floor), rows).answer(ask)
    d2 = (rows - places) ** 2
    w = (
        fuzzy_sweep.weights_from_distances(np.ascontiguousarray(d2.T), m)
        if m > 1
        else (d2.min(axis=1) == d2.T).astype(float)
    )
    sizes = np.array([own.sum() ** 2 / (own**2).sum() for own in w if own.sum() > 0])
    assert code(reply) == ("abstains" if (sizes < floor * (1 - 1e-9)).any() else None)


def test_a_site_that_abstains_stays_out_of_the_run_after_a_restart_too(tmp_path):
    rules = Policy("own", min_cell=9)
    assert code(desk(rules, folder=tmp_path).answer(rows_asked(1))) is None
    assert code(desk(rules, folder=tmp_path).answer(centres(0, 10, step=2))) == "abstains"
    again = desk(rules, folder=tmp_path)
    assert [code(again.answer(call)) for call in (centres(0, 99, step=3), rows_asked(4))] == ["abstains"] * 2
    assert code(again.answer(rows_asked(1, run="another"))) is None
    assert [entry.handler for entry in again.gate.ledger.entries] == [
        "bounds.count_rows",
        "bounds.count_rows",
    ]  # no sum left


def test_numbers_are_counted_over_the_rounds_of_a_run_and_a_question_once(tmp_path):
    rules = Policy("own", max_ratio=0.7)  # of 16 values: 11.2 numbers, two answers of five
    at = desk(rules, folder=tmp_path)
    assert code(at.answer(centres(0, 10, step=1))) is None
    assert code(at.answer(centres(0, 10, step=2))) is None  # the same again tells nothing new
    assert code(desk(rules, folder=tmp_path).answer(centres(1, 10, step=3))) is None
    assert code(desk(rules, folder=tmp_path).answer(centres(2, 10, step=4))) == "too-many-numbers"


RATIO = Policy("ratio", max_ratio=PROFILES["standard"].max_ratio)


@pytest.mark.parametrize(
    "rules", [RATIO, *(PROFILES[name] for name in PROFILES if name != "none")], ids=lambda p: p.name
)
def test_the_setting_in_which_fuzzy_sums_give_all_rows_is_refused_and_an_ordinary_one_is_not(rules):
    def run(rows):
        sites = {party: np.random.default_rng(i).normal(size=(rows, 4)) for i, party in enumerate("abc")}
        fed = fc.Federation.local(sites, policy=rules)
        return fc.FuzzyCMeans(3, init=np.eye(3, 4), max_iter=4, tol=None).fit(fed)

    with pytest.raises(fc.QuorumLost) as lost:
        run(max(10, rules.min_rows))
    assert set(lost.value.missing.values()) <= {"too-many-numbers"} | ({"abstains"} if rules.min_cell else set())
    assert run(300).n_iter_ == 4


def test_one_question_one_cohort_in_every_run(tmp_path):
    rules = Policy("own", one_cohort=True)

    def ask(call):
        ledger = Ledger(tmp_path)
        found = admitted(rules, call, ledger)
        if found is None:
            release = desk(PROFILES["none"]).answer(rows_asked()).release
            Gate("a", rules, ledger).record_as_sent(call, release, 0)
        return found

    assert ask(rows_asked(1, masks="lasting-1")) is None
    assert ask(rows_asked(2, masks="lasting-2")) is None  # a step repeated
    assert ask(rows_asked(3, masks="lasting-2", cohort=NAMES[:2])) == "another-cohort"
    assert ask(rows_asked(1, run="later", masks="lasting-1", cohort=NAMES)) == "another-cohort"
    assert ask(rows_asked(4, masks="lasting-2", cohort=NAMES, columns=2)) is None


@given(st.lists(st.sets(st.sampled_from(NAMES), min_size=3), min_size=2, max_size=6))
def test_masked_cohorts_of_a_run_are_equal_or_far_apart(cohorts):
    gate = Gate("a", Policy("own", cohort_gap=3), Ledger())
    release = desk(PROFILES["none"]).answer(rows_asked()).release
    passed = []
    for step, cohort in enumerate(cohorts, 1):
        call = rows_asked(step, masks="lasting-1", cohort=tuple(sorted(cohort)), columns=step)
        if gate.admit(call, HANDLERS["bounds.count_rows"], 50) is None:
            gate.record_as_sent(call, release, 0)
            passed.append(cohort)
    assert all(one == other or len(one ^ other) >= 3 for one in passed for other in passed)
    assert passed


def test_who_answered_counts_as_a_cohort_where_sites_may_leave_on_the_way():
    gate = Gate("a", Policy("own", cohort_gap=3), Ledger())
    consent = HANDLERS["dropout_recovery.consent"]
    one = Call("r", 1, consent.name, Respondents("once-1", NAMES), "each", NAMES)
    gate.record_as_sent(one, consent.release(b""), 0)
    assert gate.admit(replace(one, step=2, message=Respondents("once-2", NAMES[:5])), consent, 50) == "cohort-too-close"
    assert gate.admit(replace(one, step=2, message=Respondents("once-2", NAMES[:3])), consent, 50) is None


def test_in_plain_mode_cohorts_may_differ():
    rules = Policy("own", one_cohort=True, cohort_gap=3)
    at = desk(rules)
    assert [code(at.answer(rows_asked(step, cohort=NAMES[:step]))) for step in (3, 4)] == [None, None]


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ([20, 7, 5], [20, 7, 5]),
        ([20, 3, 9], [20, -1, -1]),  # 3 is 32 - 29, so 9 goes with it
        ([20, 0, 9], [20, -1, -1]),  # no row looks as three do
        ([30, 4, 3, 7], [30, -1, -1, 7]),  # 44 - 37 are 7 rows in two cells, 0 and 7 up to 4 and 3
        ([30, 3, 0, 7], [30, -1, -1, -1]),  # two cells of 3 rows together are too few
        ([30, 0, 0, 0], [-1, -1, -1, -1]),
        ([400, 0], [-1, -1]),
        ([399, 1], [-1, -1]),
        ([0, 0], [-1, -1]),
        ([3], [-1]),
    ],
)
def test_of_displayed_counts_none_below_the_floor_can_be_told(counts, shown):
    assert displayed_counts.hide_small_counts(np.array(counts), 5).tolist() == shown
    assert displayed_counts.hide_small_counts(np.array(counts), 1).tolist() == counts


@given(st.lists(st.integers(0, 20), min_size=2, max_size=6), st.integers(2, 8))
def test_what_is_hidden_of_displayed_counts_is_never_a_few_rows(counts, floor):
    shown = displayed_counts.hide_small_counts(np.array(counts), floor)
    hidden = [count for count, seen in zip(counts, shown, strict=True) if seen == -1]
    assert all(seen == -1 or seen >= floor for seen in shown)
    assert not hidden or len(hidden) == len(counts) or (len(hidden) > 1 and sum(hidden) >= floor)


def test_displayed_counts_are_hidden_and_rounded():
    rows = np.repeat([0.0, 5.0, 10.0], [4, 13, 22])[:, None]
    ask = CompositionQuestion(View(np.array([4], np.int32)), np.array([[0.0], [5.0], [10.0]]))
    call = Call("r", 1, "composition.composition", ask, "each", NAMES[:3])
    assert desk(Policy("own", min_cell=7, rounding=5), rows).answer(call).release.rows.tolist() == [-1, -1, 20]
    assert desk(Policy("own", rounding=5), rows).answer(call).release.rows.tolist() == [5, 15, 20]


def test_profiles_have_the_floors_they_are_named_for():
    floors = {"none": 0, "datashield": 3, "standard": 5, "tre": 7, "nhs": 10, "cms": 11}
    assert {name: rules.min_cell for name, rules in PROFILES.items()} == floors
    assert {name for name, rules in PROFILES.items() if rules.rounding} == {"tre"}
    assert PROFILES["none"].has_no_rules
    assert not any(rules.has_no_rules for name, rules in PROFILES.items() if name != "none")


def test_every_code_has_its_sentence():
    guarded = "".join(Path(one.__file__).read_text() for one in (guards, answer_guards, class_checks))
    import re

    codes = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', guarded)) | {"abstains", "not-approved"}
    assert codes <= set(REMEDIES)


def test_every_rule_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "site-policy.md").read_text()
    assert [f.name for f in fields(Policy) if f.name != "name" and f"\n### `{f.name}`" not in page] == []
    assert [name for name in PROFILES if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", ["none", "standard", "cms", "own"])
@pytest.mark.parametrize("method", [fc.AveragedFuzzyCMeans, fc.GradientFuzzyCMeans])
def test_methods_to_compare_with_run_only_where_a_site_allows_what_they_give_away(name, method):
    rules = PROFILES.get(name, Policy("own", min_rows=5))
    sites = {party: np.random.default_rng(i).normal(size=(300, 2)) for i, party in enumerate("abc")}

    def run(policy):
        return method(2, init=np.array([[-1.0, 0.0], [1.0, 0.0]]), max_iter=1).fit(
            fc.Federation.local(sites, policy=policy)
        )

    if name == "none":
        assert run(rules).n_iter_ == 1
        return
    with pytest.raises(fc.QuorumLost, match="`packages`, `handlers` and `withheld`") as lost:
        run(rules)
    assert set(lost.value.missing.values()) == {"handler-not-allowed"}
    if rules.points:
        assert run(replace(rules, withheld=frozenset())).n_iter_ == 1


def test_one_letter_changes_the_digest():
    assert PROFILES["nhs"].digest != replace(PROFILES["nhs"], min_cell=9).digest
    assert PROFILES["nhs"].digest == replace(PROFILES["nhs"]).digest


def test_a_sealed_answer_passes_under_every_profile_with_rows_enough():
    rows = np.random.default_rng(0).normal(size=(500, 1))
    for rules in PROFILES.values():
        assert isinstance(desk(rules, rows).answer(rows_asked()), SealedAnswer)
