"""What a choice of K with a floor asks instead of products: repeated values, halves of the rows, counts."""

import numpy as np
import pytest

import fedclust as fc
from fedclust.core.effects import rewrite
from fedclust.questions import bounds
from fedclust.questions.choice_of_k.choice import choose_groups
from fedclust.questions.choice_of_k.table_spread import OpenedGroups, TableSpread
from fedclust.questions.choice_of_k.whole_table_questions import mean_repeats


def questions_and_sums(X, floor=10, sites=2):
    """All questions of a choice, by name, with the answers."""
    fed = fc.Federation.local({f"s{i}": X[i::sites] for i in range(sites)})
    seen = []

    def script():
        view = yield from bounds.agree_on_bounds(X.shape[1])
        return (yield from choose_groups(view, seed=0, floor=floor, everyone=True))

    def look(ask):
        answer = yield ask
        seen.append((ask.handler.name.split(".")[1], ask.message, answer[0]))
        return answer

    return fed.run(rewrite(script(), look))[0], seen


def mixed_table(seed=0, rows=300):
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=rows)
    numbers = rng.normal(size=(rows, 2)) + 5 * group[:, None]
    return np.column_stack([numbers, rng.integers(0, 11, rows), np.eye(3)[group], rng.random(rows) < 0.4])


def test_products_in_cells_are_only_among_numbers_that_hardly_repeat():
    _, seen = questions_and_sums(mixed_table())
    asked = [message for name, message, _ in seen if name in {"cell_sums", "component_sums"}]
    assert asked
    assert all(message.squared.tolist() == [0, 1] for message in asked)  # not the scores from 0 to 10
    assert not [name for name, *_ in seen if name in {"cell_moments", "component_moments", "product_sums"}]


def test_a_flag_that_few_rows_have_enters_no_product():
    X = np.column_stack([mixed_table(), np.arange(300) < 9, np.arange(300) < 10])
    _, seen = questions_and_sums(X)
    ((_, message, answer),) = [one for one in seen if one[0] == "half_products"]
    assert message.columns.tolist() == [0, 1, 2, 3, 4, 5, 6, 8]
    assert answer.products.shape == (28,)


def test_the_halves_of_each_two_columns_are_other_rows_and_the_same_at_any_site():
    X = mixed_table()
    first, other = ({name: one for name, *one in questions_and_sums(X, sites=n)[1]} for n in (1, 3))
    assert first["half_products"][1] == other["half_products"][1]
    halves = first["half_products"][0].halves(X.T)
    pairs = [halves[i] == halves[j] for i in range(4) for j in range(i)]
    assert all(0.35 < pair.mean() < 0.65 for pair in pairs)
    assert all(0.3 < (one ^ two).mean() < 0.7 for one in pairs for two in pairs if one is not two)


def test_values_that_repeat_are_found_from_hash_bits():
    rng = np.random.default_rng(1)
    X = np.column_stack(
        [rng.normal(size=400), rng.integers(0, 80, 400), np.where(rng.random(400) < 0.3, 0.37, rng.random(400))]
    )
    _, seen = questions_and_sums(X)
    ((_, _, answer),) = [one for one in seen if one[0] == "count_hash_bits"]
    repeats = mean_repeats(400.0, answer.bits.to_floats().astype(int))
    assert repeats[0] < 1.75 < 4 < repeats[1] < 9 < 25 < repeats[2] < 60  # about 1, 6 and 37


@pytest.mark.parametrize("floor", [2, 10])
def test_no_cell_of_a_choice_with_a_floor_has_fewer_rows(floor):
    _, seen = questions_and_sums(mixed_table(), floor)
    sums = [answer.rows.to_floats() for name, _, answer in seen if name in {"cell_sums", "component_sums"}]
    assert min(own.min() for own in sums) >= floor


def test_the_scatter_within_cells_is_what_is_left_of_that_of_the_table():
    # Two numbers whose products are not opened, in two cells: within them, the second number goes with the first
    rng = np.random.default_rng(2)
    y = rng.normal(size=(200, 1)) * [1.0, 0.5] + rng.normal(size=(200, 2)) * 0.1
    y[100:] += 4.0
    away = y - y.mean(axis=0)
    spread = TableSpread(np.zeros(0, np.int64), away.T @ away)
    sums = np.stack([y[:100].sum(axis=0), y[100:].sum(axis=0)])
    cells = OpenedGroups(np.full(2, 100.0), sums, np.zeros((2, 0, 0)), np.zeros((2, 0)))
    found = spread.numbers_of_cells(cells).scatter
    within = [(own - own.mean(axis=0)).T @ (own - own.mean(axis=0)) for own in (y[:100], y[100:])]
    assert found.sum(axis=0).diagonal() == pytest.approx(sum(within).diagonal())
    assert found[0, 0, 1] / np.sqrt(found[0, 0, 0] * found[0, 1, 1]) == pytest.approx(0.9, abs=0.01)  # at most .9


def test_groups_of_numbers_and_categories_are_found_with_a_floor():
    found, _ = questions_and_sums(mixed_table(3, 600))
    assert (found.k, found.verdict) == (3, "groups")
