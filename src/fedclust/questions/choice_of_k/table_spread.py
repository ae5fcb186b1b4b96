"""The scatter within cells, as far as no products of a cell's rows are opened: from counts and from the whole table.

The scatter of all rows is the scatter between the cells, which their sums and counts show, and the scatter within
them. What is left for the cells is shared out: a flag varies in a cell as its count there says, a number as in all
cells together, and two columns go together in each cell as they do in all cells together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.shared.fixed_order import ordered_sum
from fedclust.core.types import Bools, Floats, Ints
from fedclust.questions.choice_of_k.choice_questions import GroupMoments
from fedclust.questions.choice_of_k.evidence import GroupSums

MAX_CORRELATION = 0.9  # within cells, of columns whose products are not opened
CORRELATION_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # tried until a cell's matrix is positive
MIN_PIVOT = 1e-3  # of a variance
MIN_WITHIN = 0.02  # of a number's variance in all rows, as the least within cells


@dataclass(frozen=True)
class OpenedGroups:
    """Groups of rows: their number (k,), the sums (k, q) of numbers, products (k, s, s) of some of them, and counts."""

    rows: Floats
    sums: Floats
    squares: Floats
    counts: Floats

    @property
    def parts(self) -> tuple[Floats, Floats, Floats, Floats]:
        return self.rows, self.sums, self.squares, self.counts

    @property
    def means(self) -> Floats:
        """The means of numbers and the shares of flags (k, q + c)."""
        return np.asarray(
            np.concatenate([self.sums, self.counts], axis=1) / np.maximum(self.rows, 1e-9)[:, None], np.float64
        )

    def split(self, cells: Ints, upper: OpenedGroups) -> OpenedGroups:
        """The groups after parts of some have become groups of their own."""
        parts = [part.copy() for part in self.parts]
        for own, part in zip(parts, upper.parts, strict=True):
            own[cells] -= part
        return OpenedGroups(*(np.concatenate([own, part]) for own, part in zip(parts, upper.parts, strict=True)))


def opened_groups(answer: GroupMoments, squared: Ints, weights: Floats | None = None) -> OpenedGroups:
    """The sums of an answer as numbers, without the weights that numbers have in a tree."""
    sums = answer.sums.to_floats()
    i, j = np.triu_indices(len(squared))
    squares = np.zeros((len(sums), len(squared), len(squared)))
    squares[:, i, j] = squares[:, j, i] = answer.products.to_floats()
    if weights is not None:
        sums = sums / weights
        squares = squares / (weights[squared][:, None] * weights[squared])
    return OpenedGroups(answer.rows.to_floats(), sums, squares, answer.flags.to_floats())


@dataclass(frozen=True)
class TableSpread:
    """The scatter (q + c, q + c) of numbers and flags over all rows, and the axes whose products cells may open."""

    squared: Ints
    scatter: Floats

    @property
    def is_estimated(self) -> bool:
        """Whether there are columns whose products cells do not open."""
        return len(self.squared) < len(self.scatter)

    def fill_products(self, cells: OpenedGroups) -> Floats:
        """The scatter (k, q + c, q + c) of numbers and flags within cells that hold all rows."""
        q, size = cells.sums.shape[1], len(self.scatter)
        within = self._within_cells(cells)
        sd = np.sqrt(np.maximum(self._own_variances(cells, within), 0.0))
        whole = np.sqrt(ordered_sum(sd * sd, axis=0))
        scale = np.where(whole > 0, whole, 1.0)
        links = np.clip(within / (scale[:, None] * scale), -MAX_CORRELATION, MAX_CORRELATION)
        links[np.arange(size), np.arange(size)] = 1.0
        out = links * sd[:, :, None] * sd[:, None, :]
        exact = self._exact_scatter(cells)
        out[:, :q, :q] = self.insert_exact(out[:, :q, :q], exact)
        return np.asarray(out, np.float64)

    def insert_exact(self, numbers: Floats, exact: Floats) -> Floats:
        """Matrices (k, q, q) with the exact part; the rest is shrunk towards no correlation until they are positive."""
        if len(self.squared) == numbers.shape[1]:
            return exact
        q = numbers.shape[1]
        variances = np.diagonal(numbers, axis1=1, axis2=2)
        plain = variances[:, :, None] * np.eye(q)
        kept = np.ix_(np.arange(len(numbers)), self.squared, self.squared)
        plain[kept] = exact
        mixed = numbers.copy()
        mixed[kept] = exact
        out, is_open = plain.copy(), np.ones(len(numbers), np.bool_)
        least = MIN_PIVOT * np.maximum(np.diagonal(plain, axis1=1, axis2=2), 1e-12)
        for share in CORRELATION_SHARES:
            tried = share * mixed + (1 - share) * plain
            is_positive = is_open & _is_positive(tried, least)
            out[is_positive] = tried[is_positive]
            is_open &= ~is_positive
        return out

    def _exact_scatter(self, groups: OpenedGroups) -> Floats:
        """The scatter of each group along the axes whose products were opened."""
        means = groups.sums[:, self.squared] / np.maximum(groups.rows, 1e-9)[:, None]
        products = groups.rows[:, None, None] * (means[:, :, None] * means[:, None, :])
        return np.asarray(groups.squares - products, np.float64)

    def _within_cells(self, cells: OpenedGroups) -> Floats:
        """The scatter of all rows less that between cells."""
        n = cells.rows
        means = cells.means
        middle = ordered_sum(n[:, None] * means, axis=0) / max(float(n.sum()), 1.0)
        out = self.scatter.copy()
        for rows, mean in zip(n, means - middle, strict=True):
            out -= rows * (mean[:, None] * mean)
        return out

    def _own_variances(self, cells: OpenedGroups, within: Floats) -> Floats:
        """The scatter of each column in each cell (k, q + c)."""
        n, q = cells.rows[:, None], cells.sums.shape[1]
        total = np.diagonal(self.scatter)[:q]
        numbers = n * np.maximum(np.diagonal(within)[:q], MIN_WITHIN * total) / max(float(n.sum()), 1.0)
        if len(self.squared):
            numbers[:, self.squared] = np.diagonal(self._exact_scatter(cells), axis1=1, axis2=2)
        shares = cells.means[:, q:]
        return np.concatenate([numbers, n * shares * (1 - shares)], axis=1)

    def numbers_of_cells(self, cells: OpenedGroups) -> GroupSums:
        """Cells as components see them."""
        q = cells.sums.shape[1]
        return _with_products(cells, self.fill_products(cells)[:, :q, :q])

    def numbers_of_components(self, opened: OpenedGroups, cells: GroupSums, shared: Ints) -> GroupSums:
        """Components as others see them, by how many rows each has in common with each cell (cells, components)."""
        if len(self.squared) == opened.sums.shape[1]:
            return _with_products(opened, self._exact_scatter(opened))
        scatter, means = cells.scatter / np.maximum(cells.rows, 1e-9)[:, None, None], cells.means
        mixed = np.zeros((len(opened.rows), *scatter.shape[1:]))
        own = opened.means[:, : opened.sums.shape[1]]
        for rows, within, mean in zip(shared, scatter, means, strict=True):
            away = mean - own
            mixed += rows[:, None, None] * (within + away[:, :, None] * away[:, None, :])
        return _with_products(opened, self.insert_exact(mixed, self._exact_scatter(opened)))

    def coordinates(self, cells: OpenedGroups, weights: Floats, embedding: Floats) -> GroupSums:
        """Cells in the coordinates of a tree."""
        q = len(weights)
        turn = np.zeros((q + len(embedding), q + embedding.shape[1]))
        turn[:q, :q] = np.diag(weights)
        turn[q:, q:] = embedding
        scatter = _turn(self.fill_products(cells), turn)
        means = _apply(cells.means, turn)
        n = cells.rows
        products = scatter + n[:, None, None] * (means[:, :, None] * means[:, None, :])
        return GroupSums(n, n[:, None] * means, products, cells.counts)


def _is_positive(matrices: Floats, least: Floats) -> Bools:
    """Whether all pivots (k, q) of symmetric matrices (k, q, q) are larger than these; smaller ones count as these.

    >>> _is_positive(np.array([[[4.0, 2.0], [2.0, 3.0]], [[4.0, 4.0], [4.0, 3.0]]]), np.full((2, 2), 0.1)).tolist()
    [True, False]
    """
    rest, out = matrices.copy(), np.ones(len(matrices), np.bool_)
    for j in range(matrices.shape[1]):
        pivot = rest[:, j, j]
        out &= pivot > least[:, j]
        row = rest[:, j, j + 1 :] / np.maximum(pivot, least[:, j])[:, None]
        rest[:, j + 1 :, j + 1 :] -= rest[:, j + 1 :, j, None] * row[:, None, :]
    return out


def _apply(vectors: Floats, turn: Floats) -> Floats:
    """Each vector (..., p) times a matrix (p, r)."""
    out = np.zeros((*vectors.shape[:-1], turn.shape[1]))
    for k, row in enumerate(turn):
        out += vectors[..., k, None] * row
    return out


def _turn(matrices: Floats, turn: Floats) -> Floats:
    return np.swapaxes(_apply(np.swapaxes(_apply(matrices, turn), 1, 2), turn), 1, 2)


def _with_products(groups: OpenedGroups, scatter: Floats) -> GroupSums:
    n = groups.rows
    means = groups.sums / np.maximum(n, 1e-9)[:, None]
    return GroupSums(
        n, groups.sums, scatter + n[:, None, None] * (means[:, :, None] * means[:, None, :]), groups.counts
    )
