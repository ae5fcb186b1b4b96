"""Linear algebra in one order: as by hand, as LAPACK's, and unmoved by scales and equal eigenvalues."""

import numpy as np
import pytest
from scipy import stats

from fedclust.algorithms.gaussian_mixture import mixture
from fedclust.algorithms.shared.eigenvectors import eigen
from fedclust.algorithms.shared.fixed_order import gram_matrix, matrix_product, smallest_places, triangular_root
from fedclust.kernels.normal_draws import draw_normals


def test_a_matrix_of_two_by_hand():
    values, vectors = eigen(np.array([[3.0, 4.0], [4.0, 9.0]]))
    np.testing.assert_allclose(values, [11.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(vectors, np.array([[1, 2], [2, -1]]) / 5**0.5, atol=1e-12)


@pytest.mark.parametrize("size", [1, 3, 20, 64])
def test_eigenvalues_are_those_of_lapack(size):
    half = np.random.default_rng(size).normal(size=(size, size))
    matrix = half @ half.T
    values, vectors = eigen(matrix)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[::-1], atol=1e-12 * values[0])
    np.testing.assert_allclose(vectors @ matrix, values[:, None] * vectors, atol=1e-12 * values[0])
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(size), atol=1e-13)


@pytest.mark.parametrize(
    "matrix",
    [
        *(np.zeros((0, 0)), np.zeros((3, 3)), np.eye(4), np.ones((5, 5)), np.diag([1.0, 5.0, 3.0]), -np.eye(2)),
        *(np.diag([1.0, 1.0, 1e-12]), np.kron(np.eye(3), [[2.0, 1.0], [1.0, 2.0]]), np.diag([1.0] * 3, 1) * 0.0),
        *(1e-200 * np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]]), 1e200 * np.ones((3, 3))),
        np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
    ],
)
def test_equal_missing_tiny_and_huge_eigenvalues_are_found(matrix):
    values, vectors = eigen(matrix)
    size = np.abs(matrix).max(initial=0.0) or 1.0
    np.testing.assert_allclose(vectors.T @ (values[:, None] / size * vectors), matrix / size, atol=1e-14)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(len(matrix)), atol=1e-14)
    assert (np.diff(values) <= 0).all()


def test_products_are_those_of_blas():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(7, 30)), rng.normal(size=(30, 4))
    np.testing.assert_allclose(matrix_product(a, b), a @ b, rtol=1e-13)
    np.testing.assert_allclose(gram_matrix(a), a @ a.T, rtol=1e-13)
    np.testing.assert_allclose(triangular_root(a @ a.T), np.linalg.cholesky(a @ a.T), rtol=1e-11, atol=1e-14)


def test_a_matrix_without_a_triangular_root_is_refused():
    with pytest.raises(ArithmeticError, match="positive definite"):
        triangular_root(np.ones((2, 2)))


def test_of_equal_numbers_the_first_are_the_smallest():
    values = np.random.default_rng(2).integers(0, 6, (50, 40)).astype(float)
    for count in (1, 7, 40):
        by_sorting = np.sort(np.argsort(values, axis=1, kind="stable")[:, :count], axis=1)
        assert (smallest_places(values, count) == by_sorting).all()


def test_normal_numbers_are_normal():
    drawn = draw_normals(np.random.default_rng(3), (20_000,))
    assert stats.kstest(drawn, "norm").pvalue > 0.01
    assert draw_normals(np.random.default_rng(3), (0, 3)).shape == (0, 3)


@pytest.mark.parametrize("copies", [1, 3])
def test_collinear_columns_are_held_apart(copies):
    rng = np.random.default_rng(4)
    rows = np.repeat(rng.normal(size=(200, 2)), copies, axis=1)
    covariance = rows.T @ rows / 200
    frame = mixture.Frame(None, np.zeros(2 * copies, np.int32), 200, np.diag(covariance).copy())
    root = mixture._root(covariance, frame)
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-7, atol=1e-9)
    assert np.linalg.eigvalsh(root @ root.T)[0] > 0.5 * mixture.MIN_EIGENVALUE * np.diag(covariance).min()
