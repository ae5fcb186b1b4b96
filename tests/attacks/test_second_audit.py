"""The programs of the second audit fail: what is not the study's question gets no answer, whoever asks."""

import numpy as np
import pytest

import second_audit_programs as programs

SEEDS = pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.long) for s in range(1, 20))])


@SEEDS
def test_a_view_that_bounds_no_row_gets_no_answer(tmp_path, seed):
    assert programs.a1_views_without_a_bound(tmp_path, seed)[0] == 0


@SEEDS
def test_a_question_with_more_centres_than_the_study_has_clusters_is_refused(tmp_path, seed):
    rows, codes = programs.a2_too_many_centres(tmp_path, seed)
    assert (rows, codes) == (0, ["not-in-study"])


@SEEDS
def test_a_private_study_is_asked_nothing_exact_and_nothing_at_another_price(tmp_path, seed):
    cells, exact, paid, codes = programs.a3_unpriced(tmp_path, seed, approved=seed > 0)
    assert (cells, exact, paid) == (0, 0, 0.0)
    assert codes == ["not-in-study", "not-private"]


@SEEDS
@pytest.mark.parametrize("mode", ["plain", "secure"])
def test_the_unit_of_rounding_is_no_threshold(tmp_path, seed, mode):
    assert programs.a4_largest_values(tmp_path, seed, mode)[0] == 0


@SEEDS
@pytest.mark.parametrize("mode", ["plain", "secure"])
def test_a_large_power_shows_no_farthest_row(tmp_path, seed, mode):
    found = programs.a5_farthest_row(tmp_path, seed, mode=mode)
    assert found == (0, 0, ["not-in-study"])


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.long) for s in range(1, 5))])
def test_a_huge_value_does_not_make_a_private_site_refuse(tmp_path, seed):
    assert programs.c4_huge_value(tmp_path, seed) == ["answered"] * 3


@SEEDS
def test_a_short_question_asks_for_no_more_memory_than_the_study_needs(tmp_path, seed):
    assert programs.c5_short_questions(tmp_path, seed) == ["not-in-study", "not-in-study"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.long) for s in range(1, 20))])
def test_an_honest_run_opens_no_product_of_a_level_that_one_row_has(tmp_path, seed):
    assert programs.d4_rare_level(tmp_path, seed)[0] == 0


@SEEDS
def test_counts_of_missing_values_pass_the_floor(tmp_path, seed):
    counts, _ = programs.d5_left_out(tmp_path, seed)
    assert set(counts.values()) == {(-1, -1)}


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.long) for s in range(1, 3))])
def test_sites_that_bring_every_possible_id_learn_none(tmp_path, seed):
    learned, reason = programs.d6_enumerated_ids(tmp_path, seed, space=1_500, held=40)
    assert learned == 0
    assert "more ids to compare" in reason


@SEEDS
def test_moved_centres_recover_few_rows_before_a_rule_stops_them(tmp_path, seed):
    """Questions that the study does ask, lied about: exact methods cannot prevent it in plain mode, only end it."""
    rows, asked, of, codes = programs.g1_moved_centres(tmp_path, seed)
    assert codes == ["too-many-numbers"]
    assert rows <= 0.02 * of
    assert asked < 60


@pytest.mark.long
def test_least_squares_finds_the_rows_of_a_tiny_table_in_fuzzy_totals(tmp_path):
    """Exact fuzzy sums over all sites are equations for the rows: a dozen rows are found, and no rule prevents it."""
    rows, of = programs.e4_fuzzy_totals(tmp_path, 0)
    assert rows == of == 12


def test_the_programs_would_find_rows_in_sites_without_contracts(tmp_path, monkeypatch):
    """The same program against the same sites, with the rule switched off: it is the rule that stops it."""
    from fedclust.site import guards

    others = tuple(rule for rule in guards.QUESTION_GUARDS if rule is not guards.check_contract)
    monkeypatch.setattr(guards, "QUESTION_GUARDS", others)
    rows, _ = programs.a2_too_many_centres(tmp_path, 0, approved=False)
    assert rows > 40


def test_count_exact_counts_rows():
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert programs.count_exact([[3.0, 4.0], [9.0, 9.0]], rows) == 1
