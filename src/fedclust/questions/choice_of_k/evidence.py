"""How likely rows are as one component, from their number, sums, products and counts alone.

The parameters of a component are integrated out: a normal distribution with conjugate priors for numbers, and Beta and
Dirichlet priors for categories. Such a likelihood needs no penalty for parameters, and for a set of components

    log p(rows, labels) = sum_k log p(rows of k) + log (K - 1)! prod_k n_k! / (N + K - 1)!

is the integrated classification likelihood ("evidence"), exact. Numbers are in standard deviations of the table.

Paper: Bertoletti, Friel and Rastelli, "Choosing the number of clusters in a finite mixture model using an exact
integrated completed likelihood criterion", Metron 73, 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fedclust.algorithms.shared.fixed_order import ordered_sum
from fedclust.core.types import Bools, Floats, Ints
from fedclust.kernels import elementary
from fedclust.questions.choice_of_k.component_questions import Components
from fedclust.questions.choice_of_k.matrices import inverse_roots, log_determinants

Shape = Literal["round", "axes", "full"]
SHAPES: tuple[Shape, ...] = ("round", "axes", "full")
PRIOR_SPREADS = (0.02, 0.15, 0.6)  # variances that a component is expected to have
MEAN_WEIGHT = 0.01  # rows that the prior mean counts for
VARIANCE_WEIGHT = 1.5
CATEGORY_WEIGHT = 0.5  # rows that each level of a category counts for in advance
MIN_WEIGHT = 0.5  # of a component without rows, so that its logarithm exists


@dataclass(frozen=True)
class GroupSums:
    """Groups of rows: their number (k,), the sums (k, q) and products (k, q, q) of numbers, and the counts (k, c) of
    the upper values of two-valued columns.
    """

    rows: Floats
    sums: Floats
    products: Floats
    counts: Floats

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def parts(self) -> tuple[Floats, Floats, Floats, Floats]:
        return self.rows, self.sums, self.products, self.counts

    @property
    def means(self) -> Floats:
        return np.asarray(self.sums / np.maximum(self.rows, 1e-9)[:, None], np.float64)

    @property
    def scatter(self) -> Floats:
        """The products of the deviations from the groups' own means."""
        means = self.means
        return np.asarray(
            self.products - self.rows[:, None, None] * (means[:, :, None] * means[:, None, :]), np.float64
        )

    def take(self, which: Ints | Bools | slice | Sequence[int]) -> GroupSums:
        """Some of the groups."""
        return GroupSums(*(part[which] for part in self.parts))

    def add(self, other: GroupSums) -> GroupSums:
        """The unions of each group with another one."""
        return GroupSums(*(a + b for a, b in zip(self.parts, other.parts, strict=True)))

    def split(self, groups: Ints, upper: GroupSums) -> GroupSums:
        """The groups after parts of some have become groups of their own."""
        parts = [part.copy() for part in self.parts]
        for own, part in zip(parts, upper.parts, strict=True):
            own[groups] -= part
        return GroupSums(*(np.concatenate([own, part]) for own, part in zip(parts, upper.parts, strict=True)))

    def join(self, labels: Ints, count: int | None = None) -> GroupSums:
        """The unions of the groups that have the same label."""
        size = int(labels.max(initial=-1)) + 1 if count is None else count
        out = []
        for part in self.parts:
            joined = np.zeros((size, *part.shape[1:]))
            np.add.at(joined, labels, part)
            out.append(joined)
        return GroupSums(*out)

    def blur(self, covariance: Floats) -> GroupSums:
        """The groups if each row also varies by this much."""
        return replace(self, products=self.products + self.rows[:, None, None] * covariance)

    def copy(self) -> GroupSums:
        return GroupSums(*(part.copy() for part in self.parts))


def log_gamma(values: Any) -> Floats:
    """The logarithm of the gamma function for values of at least 1/2: Stirling's formula after a shift by 6.

    >>> log_gamma([1.0, 5.0]).round(6).tolist()  # 0, log 24
    [-0.0, 3.178054]
    """
    x = np.atleast_1d(np.asarray(values, np.float64))
    y = x + 6.0
    shifted = x * (x + 1) * (x + 2) * (x + 3) * (x + 4) * (x + 5)
    stirling = (y - 0.5) * elementary.log(y) - y + 0.5 * elementary.LOG_2PI + 1 / (12 * y) - 1 / (360 * y * y * y)
    return np.asarray(stirling - elementary.log(shifted), np.float64).reshape(np.shape(values))


@dataclass(frozen=True)
class Likelihood:
    """One kind of component: how its numbers vary, with which variance in advance, and which columns are categories.

    `categories` are the levels of each category, as numbers of two-valued columns; a column that stands alone is a
    category of two levels.
    """

    shape: Shape
    spread: float
    axes: int
    categories: tuple[tuple[int, ...], ...]

    def log_evidence(self, groups: GroupSums) -> Floats:
        """The logarithm of the integrated likelihood of each group, as one component."""
        numbers = self._numbers_evidence(groups) if self.axes else np.zeros(len(groups))
        return numbers + self.category_evidence(groups)

    def _numbers_evidence(self, groups: GroupSums) -> Floats:
        q, n = self.axes, groups.rows
        shrunk = MEAN_WEIGHT * n / (MEAN_WEIGHT + n)
        out = q / 2 * elementary.log(MEAN_WEIGHT / (MEAN_WEIGHT + n)) - n * q / 2 * (
            elementary.LOG_PI if self.shape == "full" else elementary.LOG_2PI
        )
        means, scatter = groups.means, groups.scatter
        if self.shape == "full":
            freedom = q + 2.0
            posterior = scatter + shrunk[:, None, None] * (means[:, :, None] * means[:, None, :])
            posterior += self.spread * np.eye(q)
            halves = np.arange(q) / 2
            gammas = log_gamma((freedom + n[:, None]) / 2 - halves) - log_gamma(freedom / 2 - halves)
            prior = freedom / 2 * q * _log(self.spread)
            out += ordered_sum(gammas) + prior - (freedom + n) / 2 * log_determinants(posterior)
            return np.asarray(out, np.float64)
        squares = np.maximum(np.diagonal(scatter, axis1=1, axis2=2) + shrunk[:, None] * means * means, 0.0)
        half = self.spread / 2
        if self.shape == "axes":
            weight = VARIANCE_WEIGHT + n / 2
            out += (log_gamma(weight) - log_gamma(VARIANCE_WEIGHT)) * q + q * VARIANCE_WEIGHT * _log(half)
            out -= weight * ordered_sum(elementary.log(squares / 2 + half))
        else:
            weight = VARIANCE_WEIGHT + n * q / 2
            out += log_gamma(weight) - log_gamma(VARIANCE_WEIGHT) + VARIANCE_WEIGHT * _log(half)
            out -= weight * elementary.log(ordered_sum(squares) / 2 + half)
        return np.asarray(out, np.float64)

    def category_evidence(self, groups: GroupSums) -> Floats:
        """The same for the categories alone."""
        out, n = np.zeros(len(groups)), groups.rows
        for levels in self.categories:
            counts = groups.counts[:, list(levels)]
            if len(levels) == 1:
                counts = np.concatenate([counts, n[:, None] - counts], axis=1)
            size = counts.shape[1] * CATEGORY_WEIGHT
            gammas = log_gamma(counts + CATEGORY_WEIGHT) - log_gamma(CATEGORY_WEIGHT)
            out += ordered_sum(gammas) + log_gamma(size) - log_gamma(n + size)
        return out

    def covariances(self, groups: GroupSums) -> Floats:
        """The covariance of each group with its prior, of the likelihood's shape."""
        n, q, one = groups.rows, self.axes, np.eye(self.axes)
        scatter = groups.scatter
        if self.shape == "full":
            return np.asarray((scatter + self.spread * one) / (n + 2.0)[:, None, None], np.float64)
        squares = np.diagonal(scatter, axis1=1, axis2=2)
        if self.shape == "axes":
            return np.asarray(((squares + self.spread) / (n + 3.0)[:, None])[:, :, None] * one, np.float64)
        variance = (ordered_sum(squares) + self.spread) / (n * q + 3.0)
        return np.asarray(variance[:, None, None] * one, np.float64)

    def components(self, groups: GroupSums) -> Components:
        """The groups as components that rows can be assigned to."""
        n = groups.rows
        offsets = elementary.log(np.maximum(n, MIN_WEIGHT))
        factors = np.zeros((len(n), 0))
        if self.axes:
            covariances = self.covariances(groups)
            offsets = offsets - 0.5 * log_determinants(covariances)
            variances = np.diagonal(covariances, axis1=1, axis2=2)
            if self.shape == "full":
                factors = inverse_roots(covariances)
            else:
                factors = 1 / np.sqrt(variances[:, :1] if self.shape == "round" else variances)
        flags = np.zeros((len(n), groups.counts.shape[1]))
        for levels in self.categories:
            at = list(levels)
            size = max(len(at), 2) * CATEGORY_WEIGHT
            shares = (groups.counts[:, at] + CATEGORY_WEIGHT) / (n + size)[:, None]
            flags[:, at] = elementary.log(shares)
            if len(at) == 1:
                lower = elementary.log(1 - shares[:, 0])
                flags[:, at[0]] -= lower
                offsets = offsets + lower
        return Components(self.shape, offsets, groups.means, np.ascontiguousarray(factors), flags)


def partition_evidence(likelihood: Likelihood, groups: GroupSums, rows: float) -> float:
    """The logarithm of the likelihood of a partition of so many rows, with the sizes of its groups."""
    own = likelihood.log_evidence(groups) + log_gamma(groups.rows + 1.0)
    return float(ordered_sum(own)) + sizes_evidence(len(groups), rows)


def sizes_evidence(count: int, rows: float) -> float:
    """What the number of groups adds: log (K - 1)! / (N + K - 1)!."""
    return float(log_gamma(float(count)) - log_gamma(rows + count))


def assign_groups(likelihood: Likelihood, cells: GroupSums, groups: GroupSums) -> Ints:
    """The component of each cell with the highest mean log density of the cell's rows."""
    components = likelihood.components(groups)
    n = np.maximum(cells.rows, 1e-9)
    scores = components.scores(np.ascontiguousarray(cells.means.T), (cells.counts / n[:, None]).T)
    if likelihood.axes:
        within = cells.scatter / n[:, None, None]
        for k, factor in enumerate(components.inverses()):
            for i in range(likelihood.axes):
                for j in range(likelihood.axes):
                    if factor[i, j]:
                        scores[k] -= 0.5 * factor[i, j] * within[:, i, j]
    return np.asarray(scores.argmax(axis=0), np.int64)


def _log(value: float) -> float:
    return float(elementary.log(np.array([value]))[0])
