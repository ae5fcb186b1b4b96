"""The choice of K from totals: each step by hand, and verdicts on drawn sets."""

import math
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
from scipy import stats

import fedclust as fc
from benchmarks.drawn_groups import draw
from fedclust.core.effects import rewrite
from fedclust.core.errors import DataError
from fedclust.privacy.attacks.cell_differences import rows_by_differences
from fedclust.questions import bounds, standardisation
from fedclust.questions.choice_of_k import basins, cell_growth, choice, matrices, valleys
from fedclust.questions.choice_of_k.choice import KChoice
from fedclust.questions.choice_of_k.choice_questions import GroupMoments
from fedclust.questions.choice_of_k.column_kinds import column_moments, find_geometry
from fedclust.questions.choice_of_k.evidence import (
    GroupSums,
    Likelihood,
    partition_evidence,
)
from fedclust.questions.choice_of_k.floored_components import find_openable
from fedclust.questions.choice_of_k.joins import join_by_evidence
from fedclust.questions.choice_of_k.rows_by_cells import cells_of_choice


def dealt(X, parties, seed=0):
    rows = np.random.default_rng(seed).permutation(X)
    return fc.Federation.local({f"p{i}": part for i, part in enumerate(np.array_split(rows, parties))})


def choose(rows, floor=1) -> KChoice:
    fed = rows if isinstance(rows, fc.Federation) else fc.Federation.local({"a": rows})

    def script():
        view = yield from bounds.agree_on_bounds(len(fed.columns))
        return (yield from choice.choose_groups(view, seed=0, floor=floor, everyone=True))

    return fed.run(script())[0]


def grown(fed, floor=1):
    def script():
        view = yield from bounds.agree_on_bounds(len(fed.columns))
        found = yield from standardisation.column_statistics(view)
        used = np.flatnonzero(found.sd > 0)
        frame = yield from choice._make_frame(view, found, used, seed=0, floor=floor, everyone=True)
        return (yield from cell_growth.grow_cells(frame))

    return fed.run(script())[0]


def sums_of(rows, flags=0):
    """One group of rows, the last columns of which are flags."""
    y = np.asarray(rows, float)
    width = y.shape[1] - flags
    numbers = y[:, :width]
    return GroupSums(
        np.array([float(len(y))]), numbers.sum(0)[None], (numbers.T @ numbers)[None], y[:, width:].sum(0)[None]
    )


# Matrices


def test_factors_agree_with_linear_algebra_of_numpy():
    roots = np.random.default_rng(0).normal(size=(6, 4, 4))
    some = roots @ np.swapaxes(roots, 1, 2) + np.eye(4)
    assert matrices.log_determinants(some) == pytest.approx(np.linalg.slogdet(some)[1], abs=1e-12)
    inverse = matrices.inverse_roots(some)
    assert np.swapaxes(inverse, 1, 2) @ inverse == pytest.approx(np.linalg.inv(some), abs=1e-12)
    assert np.array_equal(inverse, np.tril(inverse))


# The likelihood of one component


@pytest.mark.parametrize("shape", ["round", "axes"])
def test_one_row_has_the_density_of_students_t(shape):
    # mean ~ N(0, s^2 / .01) and s^2 ~ inverse gamma(1.5, .15 / 2): a row is t with 3 degrees of freedom and the
    # squared scale (.15 / 2) / 1.5 (1 + 1 / .01) = 5.05
    own = Likelihood(shape, 0.15, 1, ())
    expected = stats.t.logpdf(0.7, df=3, scale=math.sqrt(5.05))
    assert own.log_evidence(sums_of([[0.7]])) == pytest.approx(expected, abs=1e-6)


def test_one_row_in_two_axes_has_the_density_of_a_multivariate_t():
    # normal-inverse-Wishart with 4 degrees of freedom and scale .15: t with 3 and the shape .15 (1 + 1 / .01) / 3
    own = Likelihood("full", 0.15, 2, ())
    expected = stats.multivariate_t([0, 0], 0.15 * 101 / 3 * np.eye(2), df=3).logpdf([0.7, -0.2])
    assert own.log_evidence(sums_of([[0.7, -0.2]])) == pytest.approx(expected, abs=1e-6)


def test_two_rows_have_the_density_of_the_first_times_that_of_the_second_given_the_first():
    # After a row 1: weight 1.01, mean 1 / 1.01, a = 2, b = .075 + .01 / 1.01 / 2
    first = stats.t.logpdf(1.0, df=3, scale=math.sqrt(5.05))
    b = 0.075 + 0.01 / 1.01 / 2
    second = stats.t.logpdf(0.8, df=4, loc=1 / 1.01, scale=math.sqrt(b / 2 * (1 + 1 / 1.01)))
    own = Likelihood("round", 0.15, 1, ())
    assert own.log_evidence(sums_of([[1.0], [0.8]])) == pytest.approx(first + second, abs=1e-6)


def test_categories_by_hand():
    # A coin with a Beta(1/2, 1/2) prior: 1/2 for 1, then 1/4 for 0, then (1.5) / 3 for 1
    coin = Likelihood("round", 1.0, 0, ((0,),))
    assert coin.log_evidence(sums_of([[1.0], [0.0], [1.0]], flags=1)) == pytest.approx(math.log(1 / 2 * 1 / 4 * 1 / 2))
    # Three levels: 1/3, then 1.5 / 2.5 for the same level again, then .5 / 3.5 for another
    levels = Likelihood("round", 1.0, 0, ((0, 1, 2),))
    rows = [[1.0, 0, 0], [1, 0, 0], [0, 1, 0]]
    assert levels.log_evidence(sums_of(rows, flags=3)) == pytest.approx(math.log(1 / 3 * 1.5 / 2.5 * 0.5 / 3.5))


def test_sizes_of_groups_count():
    # Two groups of 2 and 1 rows: 1! 2! 1! / 4!, with nothing else to compare
    nothing = GroupSums(np.array([2.0, 1.0]), np.zeros((2, 0)), np.zeros((2, 0, 0)), np.zeros((2, 0)))
    assert partition_evidence(Likelihood("round", 1.0, 0, ()), nothing, 3.0) == pytest.approx(math.log(2 / 24))


def test_pieces_of_two_groups_are_joined_into_two():
    pieces = [sums_of(np.array([[x], [x + 0.1], [x + 0.2]])) for x in (0.0, 0.1, 5.0, 5.1)]
    whole = pieces[0]
    for piece in pieces[1:]:
        whole = GroupSums(*(np.concatenate(both) for both in zip(whole.parts, piece.parts, strict=True)))
    path = join_by_evidence(Likelihood("round", 0.15, 1, ()), whole, 12.0)
    assert path.best == 2
    assert path.labels[2].tolist() == [0, 0, 1, 1]


# Valleys


def test_a_valley_by_hand():
    # One peak: 6, 2, 2 is the best falling curve for 6, 0, 4, and 3, 3, 4 the best rising one; two peaks: the counts
    two = 6 * math.log(6) + 4 * math.log(4)
    one = max(6 * math.log(6) + 4 * math.log(2), 6 * math.log(3) + 4 * math.log(4))
    assert valleys.valley_evidence([6, 0, 4], 1, 2) == pytest.approx(two - one)


def test_one_peak_has_no_valley():
    assert valleys.valley_evidence([0, 1, 4, 9, 9, 3, 1], 1, 6) == 0.0
    assert valleys.valley_evidence([0] * 12, 1, 11) == 0.0
    assert valleys.valley_evidence([9, 0, 0, 0, 0, 9], 7, 9) == 0.0  # looked for where there is none


# Columns


def moments_of(X):
    z = (X - X.mean(0)) / X.std(0)
    return (
        column_moments(float(len(X)), np.stack([(z**p).sum(0) for p in (1, 2, 3, 4)])),
        z.T @ z / len(X),
        np.abs(z).max(0),
        np.zeros(X.shape[1]),
    )


def test_columns_of_two_values_and_levels_of_a_category_are_found_by_their_moments():
    rng = np.random.default_rng(0)
    level = rng.integers(3, size=200)
    X = np.column_stack([rng.normal(size=200), np.eye(3)[level], np.where(rng.random(200) < 0.3, 7.5, -2.0)])
    geometry = find_geometry(*moments_of(X))
    assert geometry.row_map.flagged.tolist() == [1, 2, 3, 4]
    assert sorted(geometry.categories) == [(0, 1, 2), (3,)]
    assert geometry.axes == 1


def test_of_many_columns_those_that_look_like_noise_are_left_out():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 30))
    X[:, 3] += 8 * (np.arange(400) % 2)
    X[:, 7] += 8 * (np.arange(400) % 2)
    axes = find_geometry(*moments_of(X)).row_map.axes
    assert np.flatnonzero(axes.any(axis=1)).tolist() == [3, 7]


# Cells


def test_cells_of_a_column_by_hand():
    # Cut at the mean 13.5, then at 2 and at 25; a row on a cut goes to the side that rounding says. Cells of three rows
    # are not cut
    X = np.array([[0.0], [1], [2], [3], [4], [23], [24], [25], [26], [27]])
    cells = grown(fc.Federation.local({"a": X[:4], "b": X[4:]}))
    sd = X.std()
    means = sorted((cells.groups.means[:, 0] * sd + X.mean()).round(9).tolist())
    assert means == [0.5, 3.0, 24.0, 26.5]
    assert sorted(cells.groups.rows.tolist()) == [2, 2, 3, 3]
    assert cells.groups.sums.sum() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("floor", [1, 10])
def test_cells_hold_all_rows_and_no_fewer_than_the_floor(floor):
    X = draw("unequal", 3).rows
    cells = grown(dealt(X, 3), floor)
    z = (X - X.mean(0)) / X.std(0)
    assert cells.groups.rows.sum() == len(X)
    assert cells.groups.rows.min() >= floor
    assert cells.groups.products.sum(axis=0) == pytest.approx(z.T @ z, rel=1e-9, abs=1e-6)


def test_with_a_floor_no_sum_of_fewer_rows_is_opened():
    fed = dealt(draw("t", 5).rows, 3)
    opened = []

    def script():
        view = yield from bounds.agree_on_bounds(len(fed.columns))
        return (yield from choice.choose_groups(view, seed=0, floor=10, everyone=True))

    def look(ask):
        answer = yield ask
        opened.append((ask.handler.name.split(".")[1], answer[0]))
        return answer

    fed.run(rewrite(script(), look))
    sums = [release.rows.to_floats() for name, release in opened if name in {"cell_sums", "component_sums"}]
    assert min(own.min() for own in sums) >= 10


@pytest.mark.parametrize("seed", range(6))
def test_with_a_floor_no_component_differs_by_fewer_rows_from_any_union_of_cells(seed):
    rng, floor = np.random.default_rng(seed), 4
    cell = np.repeat(np.arange(6), rng.integers(floor, 12, 6))
    wanted = cell // 2 if seed % 2 else rng.integers(3, size=len(cell))
    component = np.where(rng.random(len(cell)) < 0.1, rng.integers(3, size=len(cell)), wanted)
    shared = np.zeros((6, 3), np.int64)
    np.add.at(shared, (cell, component), 1)
    opened = [component == k for k in np.flatnonzero(find_openable(shared, floor))]
    unions = [np.isin(cell, some) for size in range(7) for some in combinations(range(6), size)]
    for one, other in combinations_with_replacement(opened, 2):
        for union in unions:
            assert ((one | other) != union).sum() not in range(1, floor)


def test_components_of_many_rows_in_every_cell_are_opened():
    shared = np.array([[30, 20, 0], [20, 30, 12], [0, 20, 40]])
    assert find_openable(shared, 10).tolist() == [True, True, True]
    # The last component has 12 of 62 rows of the second cell and all but 20 of the last one: 32 differ. So many differ
    # between the first two together and the first two cells
    assert find_openable(shared, 33).tolist() == [True, False, False]


def test_a_component_of_whole_cells_and_one_more_row_stays_closed():
    # Three cells of ten rows and one row of the fourth: the difference from the union of the three is that row
    shared = np.array([[10, 0], [10, 0], [10, 0], [1, 29]])
    assert find_openable(shared, 10).tolist() == [False, False]


# Basins


def test_a_chain_without_valleys_is_one_group_and_a_valley_divides():
    densities = np.array([3.0, 0.7, 2.0, 5.0])
    edges = {(0, 1): 0.2, (1, 2): 0.3}
    everything = basins._watershed([3, 0, 2, 1], densities, edges, edges, {})
    # 1 is too thin to join 0 and 2: it belongs to the one with less of a valley
    assert everything.tolist() == [0, 0, 2, 3]
    densities[1] = 1.9
    assert basins._watershed([3, 0, 2, 1], densities, edges, edges, {}).tolist() == [0, 0, 0, 3]
    # ... unless the rows of all three show a valley between the outer two
    assert basins._watershed([3, 0, 2, 1], densities, edges, edges, {(1, 0, 2): False}).tolist() == [0, 0, 2, 3]


# Verdicts


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("kind", ["none", "lognormal"])
def test_one_distribution_has_no_structure(kind, seed):
    found = choose(draw(kind, seed).rows)
    assert (found.k, found.verdict) == (1, "none")


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("kind", ["moons", "rings"])
def test_moons_and_rings_are_not_round(kind, seed):
    assert choose(draw(kind, seed).rows).verdict == "not round"


@pytest.mark.parametrize("kind", ["unequal", "t", "sparse", "binary", "mixed"])
def test_groups_of_each_kind_are_counted(kind):
    drawn = draw(kind, 2)
    found = choose(drawn.rows)
    assert (found.k, found.verdict) == (drawn.k, "groups" if drawn.k > 1 else "none")


def test_constant_columns_do_not_count():
    X = fc.datasets.mixture(3, 2, 150, 0, separation=8.0).X
    assert choose(np.column_stack([X, np.full(150, 7.0)])).curve == choose(X).curve
    assert choose(np.full((30, 2), 3.5)) == KChoice(1, "none", 1, 1, 1, {}, 30, is_sample=False)


def test_equal_rows_are_few_groups():
    X = np.repeat([[0.0, 0.0], [9.0, 1.0], [4.0, 8.0]], 20, axis=0)
    assert choose(X).k in {1, 3}
    assert choose(np.repeat(X, 3, axis=0)).k in {1, 3}


@pytest.mark.parametrize("seed", range(3))
def test_answers_on_a_scale_are_no_groups_by_their_steps(seed):
    rng = np.random.default_rng(seed)
    assert choose(np.rint(3 + rng.normal(size=(400, 5)))).verdict == "none"
    opinions = np.where(rng.random((200, 1)) < 0.5, 1, 4) + rng.integers(0, 2, (200, 6))
    assert (choose(opinions.astype(float)).k, choose(opinions / 10.0).k) == (2, 2)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 12, 19])
def test_few_rows_are_one_group_or_a_few(rows):
    found = choose(np.random.default_rng(rows).normal(size=(rows, 3)))
    assert found.k <= max(1, rows // 4)


def test_a_large_table_is_sampled_and_the_sample_does_not_depend_on_the_sites():
    X = fc.datasets.mixture(3, 2, 70_000, 0, separation=8.0).X
    found = choose(X)
    assert found.is_sample
    assert 32_000 < found.rows < 38_000  # half of the table
    assert found.k == 3
    assert choose(dealt(X, 4)) == found


def test_columns_beyond_the_limit_are_left_out():
    X = np.random.default_rng(0).normal(size=(200, 140))
    X[:, 130:] += 9 * (np.arange(200) % 2)[:, None]
    found = choose(X)
    assert (found.k, found.unused_columns) == (2, 12)


# The same bits


@pytest.mark.parametrize("kind", ["unequal", "mixed", "moons"])
def test_random_partitions_give_the_same_choice_to_the_bit(kind):
    X = draw(kind, 4).rows[:400]
    pooled = choose(X)
    rng = np.random.default_rng(0)
    for _ in range(4):
        owner = rng.integers(int(rng.integers(2, 12)), size=len(X))
        parts = {f"p{j}": X[owner == j] for j in np.unique(owner)}
        assert choose(fc.Federation.local(parts)) == pooled


@pytest.mark.parametrize("aggregation", ["secure", "blind"])
def test_masked_sums_give_the_same_choice(aggregation):
    X = draw("unequal", 6).rows[:300]
    parts = {f"p{j}": X[j::4] for j in range(4)}
    assert choose(fc.Federation.local(parts, aggregation=aggregation)) == choose(X)


def test_a_missing_value_counts_as_the_mean():
    X = draw("unequal", 1).rows.copy()
    X[::7, 0] = np.nan
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    found = fc.select_k(fc.KMeans(missing="partial", random_state=0), X)
    assert found.k == choose(filled).k


def test_all_rows_missing_is_refused():
    with pytest.raises(DataError):
        fc.select_k(fc.KMeans(missing="partial"), np.full((20, 2), np.nan))


# What a choice shows


def opened_groups(X, floor):
    """The sums that a choice opens."""
    fed, opened = dealt(X, 3), []

    def script():
        view = yield from bounds.agree_on_bounds(X.shape[1])
        return (yield from choice.choose_groups(view, seed=0, floor=floor, everyone=True))

    def keep(ask):
        answer = yield ask
        if isinstance(answer[0], GroupMoments):
            opened.append((ask.message, answer[0]))
        return answer

    fed.run(rewrite(script(), keep))
    return opened


def test_rows_that_differences_of_cells_show_are_counted():
    # Rows far apart get cells of their own, or of a few rows
    X = np.concatenate([draw("unequal", 3).rows[:200], 1000 * np.eye(10)[:3, : draw("unequal", 3).rows.shape[1]]])
    shown = rows_by_differences(cells_of_choice(opened_groups(X, 1), X), X)
    assert shown[-3:].all()
    assert not cells_of_choice([], X)


@pytest.mark.parametrize("kind", ["unequal", "t", "mixed", "moons"])
def test_with_a_floor_no_difference_of_three_sums_is_a_row(kind):
    X = draw(kind, 3).rows
    assert not rows_by_differences(cells_of_choice(opened_groups(X, 10), X), X).any()
