"""Each attack on a transcript small enough to compute by hand, and on one where it must find nothing."""

import numpy as np
import pytest

from fedclust.core.ring import Exact
from fedclust.privacy import attacks
from fedclust.privacy.attacks import Observation, RecoveredPoint
from fedclust.privacy.attacks.cell_differences import CellSums, opened_cells, rows_by_differences
from fedclust.privacy.attacks.fuzzy_sums import FuzzyEquations, equations, has_solvable_sums
from fedclust.privacy.attacks.transcript import subtract_field

ROWS = np.array([[0.0, 0.0, 1.0], [1.0, 0.5, 0.0], [4.0, 5.0, 4.5], [5.0, 4.0, 5.5], [2.25, 2.5, 3.125]])


def nearest(rows, centers):
    return np.argmin(((rows[:, None] - centers) ** 2).sum(axis=2), axis=1)


def cells(rows, centers):
    member = (nearest(rows, centers)[:, None] == np.arange(len(centers))).astype(float)
    return {"mass": member.sum(axis=0), "pull": member.T @ rows}


def hard(step, centers, rows=ROWS, parties=("a",), known=True, **asked):
    centers = np.asarray(centers, float)
    return Observation(
        step, "moments", parties, {"centers": centers, "m": 1.0, **asked} if known else {}, cells(rows, centers)
    )


FIRST = [[0.0, 0.0, 0.0], [6.0, 6.0, 6.0]]
THEN = [[0.0, 0.0, 0.0], [4.0, 4.0, 4.0]]  # the last row now lies nearer to the second centre


def points(found):
    return [tuple(one.point.tolist()) for one in found]


@pytest.mark.parametrize("known", [True, False])
def test_a_row_that_changes_its_cluster_alone_is_the_difference_of_two_rounds(known):
    found = attacks.attack_by_differencing([hard(1, FIRST, known=known), hard(2, THEN, known=known)])
    assert points(found) == [(2.25, 2.5, 3.125)]
    assert found[0].parties == ("a",)


def test_two_rows_that_move_together_do_not_show():
    twice = np.concatenate([ROWS, [[2.0, 2.5, 3.25]]])
    assert attacks.attack_by_differencing([hard(1, FIRST, twice), hard(2, THEN, twice)]) == ()


def test_a_cluster_of_one_row_shows_it():
    assert points(attacks.attack_by_differencing([hard(1, [*FIRST, [2.0, 2.5, 3.0]])])) == [(2.25, 2.5, 3.125)]


def test_points_come_in_the_units_of_the_rows():
    origin, spread = np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 8.0])
    seen = [hard(i, c, origin=origin, spread=spread) for i, c in enumerate((FIRST, THEN))]
    assert points(attacks.attack_by_differencing(seen)) == [(5.5, 12.0, 28.0)]


def test_differences_are_taken_in_the_ring_so_that_a_mask_used_twice_shows():
    mask = Exact(np.array([[11, 1 << 63]], np.uint64), np.zeros((), np.int32))
    one, other = (Observation(i, "x", ("a",), {}, {"n": Exact.from_counts([v]) + mask}) for i, v in enumerate((7, 4)))
    assert subtract_field(one, other, "n").tolist() == [3.0]
    assert abs(one.floats_of("n")[0]) > 2.0**120


def test_differences_of_numbers_in_different_units_are_exact_too():
    one, other = (
        Observation(1, "x", ("a",), {}, {"n": Exact.from_floats([v], unit=u)}) for v, u in ((2.5, -60), (1.25, -50))
    )
    assert subtract_field(one, other, "n").tolist() == [1.25]


def test_a_rule_that_hides_a_lone_row_shows_it():
    full = hard(1, [*FIRST, [50.0, 50.0, 50.0]])
    hidden = hard(2, [*FIRST, [2.0, 2.5, 3.0]])
    hidden.answer["mass"][2], hidden.answer["pull"][2] = 0.0, 0.0
    assert points(attacks.attack_singletons([full, hidden])) == [(2.25, 2.5, 3.125)]
    assert attacks.attack_singletons([full, hard(2, [*THEN, [50.0, 50.0, 50.0]])]) == ()


def fuzzy_rounds(rows, count, m=2.0, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(3, rows.shape[1]))
    seen = [Observation(0, "bounds.count_rows", ("a",), {}, {"rows": np.array(len(rows))})]
    for step in range(1, count + 1):
        near = (1 / ((rows[:, None] - centers) ** 2).sum(axis=2)) ** (1 / (m - 1))
        w = (near / near.sum(axis=1, keepdims=True)) ** m
        answer = {"mass": w.sum(axis=0), "pull": w.T @ rows}
        seen.append(Observation(step, "moments", ("a",), {"centers": centers, "m": m}, answer))
        centers = answer["pull"] / answer["mass"][:, None]
    return seen


@pytest.mark.parametrize("m", [2.0, 1.7])
def test_four_rounds_of_fuzzy_sums_give_ten_rows_of_four_columns(m):
    rows = np.random.default_rng(3).normal(size=(10, 4))
    found = attacks.attack_fuzzy_sums(fuzzy_rounds(rows, 4, m))
    assert attacks.score(found, {"a": rows}).exact == 10


def test_fewer_equations_than_unknowns_are_not_tried():
    rows = np.random.default_rng(3).normal(size=(10, 4))
    seen = fuzzy_rounds(rows, 2)
    assert attacks.attack_fuzzy_sums(seen) == ()
    assert not has_solvable_sums(seen)
    assert has_solvable_sums(fuzzy_rounds(rows, 4))


def test_derivatives_of_the_equations_are_those_of_differences():
    rng = np.random.default_rng(0)
    sums = FuzzyEquations(rng.normal(size=(2, 3, 2)), rng.random((2, 3, 3)), 1.8, 4)
    X = rng.normal(size=(1, 4, 2))
    value, slopes = equations(sums, X)
    for i in range(X.size):
        step = np.zeros(X.size)
        step[i] = 1e-6
        moved, _ = equations(sums, X + step.reshape(X.shape))
        np.testing.assert_allclose((moved - value)[0] / 1e-6, slopes[0, :, i], atol=1e-4)


def test_distances_unfold_into_rows_up_to_a_turn_and_known_rows_give_the_others():
    rng = np.random.default_rng(1)
    rows, centers = rng.normal(size=(30, 3)), rng.normal(size=(8, 3))
    d2 = ((rows[:, None] - centers) ** 2).sum(axis=2)
    seen = [
        Observation(i, "measure", ("a", "b"), {"start": 0}, {"d2": part.T})
        for i, part in enumerate((d2[:, :4], d2[:, 4:]))
    ]
    (found,) = attacks.attack_by_unfolding(seen)
    assert found.is_metric

    def apart(points):
        return ((points[:, None] - points) ** 2).sum(axis=2)

    np.testing.assert_allclose(apart(found.coordinates), apart(rows), atol=1e-10)
    at = np.arange(4)
    np.testing.assert_allclose(attacks.complete_rows(found, rows[at], at), rows, atol=1e-10)


def test_distances_that_fit_together_in_no_space_do_not_unfold():
    rng = np.random.default_rng(1)
    assert attacks.unfold(rng.random((30, 8))) is None


def test_chunks_of_a_matrix_are_put_together():
    rng = np.random.default_rng(1)
    rows, centers = rng.normal(size=(30, 2)), rng.normal(size=(2, 6, 2))
    seen = [
        Observation(
            i, "measure", ("a",), {"start": start}, {"d2": ((rows[start : start + 20, None] - v) ** 2).sum(axis=2).T}
        )
        for i, (v, start) in enumerate((v, start) for v in centers for start in (0, 20))
    ]
    (found,) = attacks.attack_by_unfolding(seen)
    np.testing.assert_allclose(attacks.complete_rows(found, rows[:3], np.arange(3)), rows, atol=1e-9)


def test_the_same_sum_with_and_without_a_site_is_that_sites_sum():
    a, b = ROWS[:3], ROWS[3:]
    both, one = hard(1, FIRST, ROWS, ("a", "b")), hard(2, FIRST, a, ("a",))
    one = Observation(2, one.question, ("a", "c"), one.asked, one.answer)
    both = Observation(1, both.question, ("a", "b", "c"), both.asked, both.answer)
    (own,) = attacks.isolate_site_sums([both, one])
    assert own.parties == ("b",)
    assert own.answer["mass"].tolist() == cells(b, np.asarray(FIRST))["mass"].tolist()
    assert points(attacks.attack_by_cohorts([both, one])) == [(2.25, 2.5, 3.125), (5.0, 4.0, 5.5)]


def test_sums_at_other_centres_are_not_taken_for_the_same():
    both, one = hard(1, FIRST, ROWS, ("a", "b", "c")), hard(2, THEN, ROWS[:3], ("a", "c"))
    assert attacks.isolate_site_sums([both, one]) == []


def test_a_point_shown_may_be_a_row():
    seen = [Observation(1, "seeds", ("a",), {}, {"points": np.array([ROWS[2], ROWS[:2].mean(axis=0)])})]
    assert attacks.score(attacks.attack_shown_points(seen), {"a": ROWS}) == attacks.Score(1, 0, 1, ("a",))


def test_a_mean_of_five_taken_from_a_sum_of_six_leaves_the_sixth():
    rng = np.random.default_rng(0)
    six = rng.normal(size=(6, 3))
    rows = np.concatenate([six, six + 20])
    shown = Observation(1, "seeds", ("a",), {}, {"points": six[:5].mean(axis=0)[None]})
    found = attacks.attack_remainders([shown, hard(2, [[0.0] * 3, [20.0] * 3], rows)])
    assert attacks.score(found, {"a": rows}).exact == 1
    np.testing.assert_allclose(found[0].point, six[5])


def test_centres_sent_to_all_give_the_row_of_another_site_that_moved_alone():
    rng = np.random.default_rng(1)
    own, others = rng.normal(size=(6, 4)), rng.normal(size=(25, 4))
    rows = {"own": own, "others": others}
    everything = np.concatenate([own, others])
    centers, seen = rng.normal(size=(3, 4)), []
    for step in range(12):
        seen.append(Observation(step, "moments", ("own",), {"centers": centers, "m": 1.0}))
        sums = cells(everything, centers)
        centers = sums["pull"] / sums["mass"][:, None]
    found = attacks.attack_sent_centers(seen, own)
    result = attacks.score(found, rows)
    assert result.exact >= 1
    assert result.owners == ("others",)
    assert result.wrong == 0


def test_exactly_and_nearly_are_told_apart():
    rows = {"a": np.array([[0.0, 0.0], [10.0, 10.0]]), "b": np.array([[5.0, 5.0]])}
    near = np.array([5.004, 5.0])
    found = [RecoveredPoint(p, 1, ("a",), "a row") for p in (rows["a"][1] * (1 + 1e-12), near, np.array([3.0, 3.0]))]
    assert attacks.score(found, rows) == attacks.Score(1, 1, 1, ("a",))


# --- Differences of cells --------------------------------------------------------------------------------------------


def test_cells_seen_along_different_axes_are_compared_in_what_they_have_in_common():
    """Four rows in three columns. One cell is seen in all columns, the other only along two combinations of them."""
    rows = np.array([[1.0, 2.0, 5.0], [2.0, 0.0, 1.0], [4.0, 4.0, 4.0], [8.0, 1.0, 0.5]])
    combinations = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, -1.0]])
    three = CellSums(np.array([3]), rows[:3].sum(axis=0)[None], np.eye(3))
    two = CellSums(np.array([2]), (rows[:2] @ combinations.T).sum(axis=0)[None], combinations)
    assert rows_by_differences([three, two], rows).tolist() == [False, False, True, False]
    assert rows_by_differences([three, CellSums.of_all_rows(rows)], rows).tolist() == [False, False, False, True]
    other = CellSums(two.counts, two.sums, np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))  # its sums do not fit these
    assert not rows_by_differences([three, other], rows).any()


def test_the_cells_of_a_tree_are_read_in_original_units_with_what_is_left_of_a_cut_cell():
    """The root is cut in halves, and then its lower half, of which only one part is asked for."""
    X = np.array([[0.0, 1.0], [1.0, 3.0], [2.0, 0.0], [7.0, 2.0], [9.0, 5.0]])
    origin, spread, mean = np.array([2.0, 1.0]), np.array([2.0, 0.5]), np.array([0.5, -0.25])
    axes = np.array([[0.6, -0.8], [0.8, 0.6]])
    z = ((X - origin) / spread - mean) @ axes
    first = {"cells": [0], "kinds": [0], "places": [[0.0, 0.0]], "directions": [[[1.0, 0.0]]], "widths": [0.0]}
    second = {name: value * 2 for name, value in first.items()} | {"cells": [0, 1]}
    shared = {"origin": origin, "spread": spread, "mean": mean, "axes": axes}
    counts, sums = np.array([3, 2]), np.array([z[:3].sum(axis=0), z[3:].sum(axis=0)])
    seen = [
        Observation(
            1, "parts", ("a", "b"), {**shared, **first, "children": [[1, 2, -1, -1]], "asked": [1, 2]},
            {"counts": counts, "sums": sums},
        ),
        Observation(
            2, "parts", ("a", "b"), {**shared, **second, "children": [[1, 2, -1, -1], [3, 4, -1, -1]], "asked": [3]},
            {"counts": np.array([1]), "sums": z[:1]},
        ),
    ]  # fmt: skip
    found = opened_cells(seen)
    back = [np.linalg.solve(one.combinations, own) for one in found for own in one.sums]
    expected = [X[:3].sum(axis=0), X[3:].sum(axis=0), X[0], X[1] + X[2]]
    assert np.array(back) == pytest.approx(np.array(expected))
    assert [n for one in found for n in one.counts.tolist()] == [3, 2, 1, 2]
    assert rows_by_differences(found, X).tolist() == [True, False, False, False, False]
