"""Rows from products: flags and rare values that one row of a cell has, in the whole table and in a choice of K."""

import numpy as np
import pytest

import fedclust as fc
from fedclust.app.audit.recovered_rows import opened_products
from fedclust.app.audit.shown_rows import listen_to_sums
from fedclust.privacy.attacks.products import CellProducts, rows_by_products


def whole_table(X):
    return CellProducts(float(len(X)), X.sum(axis=0), X.T @ X, np.eye(X.shape[1] + 1)[1:])


def table_with_flags(seed, rows=400):
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=(rows, 1))
    flags = (rng.random((rows, 4)) < [0.3, 0.1, 0.05, 0.02]).astype(float)
    return np.concatenate([rng.normal(size=(rows, 3)) + 3 * group, flags], axis=1)


def choose_and_attack(X, opening):
    """Which rows follow from the products of a whole study with a chosen K, and from those of its cells alone."""
    fed = fc.Federation.local({f"s{i}": own for i, own in enumerate(np.array_split(X, 3))}, aggregation="secure")
    fed.cell_floor = 10
    listened = listen_to_sums(fed)
    fc.select_k(fc.KMeans(2, opening=opening, scale="standardise", random_state=0), fed)
    return rows_by_products(opened_products([], listened.opened.groups, X), X)


def test_the_only_row_with_a_flag_follows_from_the_products_of_the_whole_table():
    X = np.random.default_rng(0).normal(size=(50, 4))
    X[:, 3] = 0.0
    X[7, 3] = 1.0
    assert np.flatnonzero(rows_by_products([whole_table(X)], X)).tolist() == [7]


def test_a_row_with_a_rare_count_follows_from_products_as_well():
    X = np.random.default_rng(1).normal(size=(50, 3))
    X[:, 2] = 5.0
    X[11, 2] = 7.0
    assert np.flatnonzero(rows_by_products([whole_table(X)], X)).tolist() == [11]


def test_numbers_without_an_odd_row_show_none():
    X = np.random.default_rng(2).normal(size=(200, 4))
    assert not rows_by_products([whole_table(X)], X).any()


def test_counts_of_levels_close_equations_that_products_leave_open():
    # Two axes of three levels: the third level has no row in the cell, so the flags of the others follow
    rng = np.random.default_rng(3)
    level = np.array([1, *[0] * 9])
    X = np.column_stack([rng.normal(size=10), rng.normal(size=10), np.eye(3)[level]])
    everyone = np.concatenate([X, [[0.0, 0.0, 0.0, 0.0, 1.0]]])
    maps = np.zeros((3, 6))
    maps[0, 1] = maps[1, 2] = 1.0
    maps[2, 3:] = [0.5, -0.7, 0.2]
    t = np.column_stack([np.ones(10), X]) @ maps.T
    counted = np.array([2, 3, 4])
    cell = CellProducts(10.0, t.sum(axis=0), t.T @ t, maps, counted, X[:, counted].sum(axis=0))
    assert np.flatnonzero(rows_by_products([cell], everyone)).tolist() == [0]


def test_another_column_in_another_order_shows_that_matches_are_not_by_chance():
    X = table_with_flags(0)
    cells = [whole_table(X)]
    X[:, 0] = np.random.default_rng(4).permutation(X[:, 0])
    assert not rows_by_products(cells, X).any()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_choice_of_k_shows_rows_by_products_without_a_floor_and_none_with_one(seed):
    X = table_with_flags(seed)
    assert choose_and_attack(X, "exact").sum() >= 5
    assert not choose_and_attack(X, "floored").any()


def test_a_choice_with_a_floor_shows_no_row_of_rare_counts():
    rng = np.random.default_rng(5)
    X = np.concatenate([table_with_flags(5)[:, :3], rng.poisson([0.08, 0.04], (400, 2))], axis=1)
    assert not choose_and_attack(X, "floored").any()
