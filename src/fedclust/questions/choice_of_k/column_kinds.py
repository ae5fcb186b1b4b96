"""Which columns hold numbers and which categories, and along which axes numbers are compared.

A column has two values if and only if its kurtosis is its squared skewness plus one, so nobody need list values. Two
such columns are levels of one category if no row has the upper value of both: their covariance is then -p_i p_j.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.shared.fixed_order import principal_axes
from fedclust.core.types import Bools, Floats, Ints
from fedclust.questions.choice_of_k.choice_questions import STEPS, RowMap
from fedclust.questions.choice_of_k.matrices import multiply

MAX_COLUMNS = 128  # whose products are 8,256 numbers; of a wider table the columns that are least normal are used
NARROW_COLUMNS = 10  # of numbers, which are all used
MAX_COMPARED_AXES = 16  # along which the numbers of a wider table are compared
TREE_AXES = 10  # of numbers and categories together, as a rule
MIN_CATEGORY_AXES = 3  # of the tree, whatever the number of numeric axes
TWO_VALUES_TOLERANCE = 1e-6
NOT_NORMAL, CORRELATED = 16.0, 16.0  # Jarque-Bera and N r^2: columns of a wide table beyond either say something
PLAIN_LIMIT = 9.0  # below both, a column of a narrow table looks like noise
PLAIN_WEIGHT = 0.3  # of such a column in the tree
CATEGORY_TREE_WEIGHT = 0.35  # of categories next to numbers in the tree


@dataclass(frozen=True)
class ColumnMoments:
    """Of the rows that are read: their number, and mean, variance, skewness and kurtosis of each column."""

    rows: float
    mean: Floats
    variance: Floats
    skewness: Floats
    kurtosis: Floats

    @property
    def normality(self) -> Floats:
        """The statistic of Jarque and Bera: large if a column is not normal."""
        return np.asarray(self.rows / 6 * self.skewness**2 + self.rows / 24 * (self.kurtosis - 3) ** 2, np.float64)

    @property
    def two_valued(self) -> Bools:
        away = np.abs(self.kurtosis - self.skewness**2 - 1)
        return np.asarray(away < TWO_VALUES_TOLERANCE * self.kurtosis, np.bool_)

    def take(self, which: Ints) -> ColumnMoments:
        own = (part[which] for part in (self.mean, self.variance, self.skewness, self.kurtosis))
        return ColumnMoments(self.rows, *own)


def column_moments(rows: float, powers: Floats) -> ColumnMoments:
    """Moments from the sums (4, F) of the first four powers.

    >>> found = column_moments(4.0, np.array([[0.0], [4.0], [0.0], [4.0]]))  # -1, -1, 1, 1
    >>> found.skewness.tolist(), found.kurtosis.tolist(), found.two_valued.tolist()
    ([0.0], [1.0], [True])
    """
    m1, m2, m3, m4 = powers / max(rows, 1.0)
    variance = np.maximum(m2 - m1 * m1, 0.0)
    third = m3 - 3 * m1 * m2 + 2 * m1 * m1 * m1
    fourth = m4 - 4 * m1 * m3 + 6 * m1 * m1 * m2 - 3 * m1 * m1 * m1 * m1
    safe = np.where(variance > 0, variance, 1.0)
    return ColumnMoments(rows, m1, variance, third / (safe * np.sqrt(safe)), fourth / (safe * safe))


@dataclass(frozen=True)
class Geometry:
    """How rows are seen: as numbers and flags for components, and as coordinates for the tree of cells.

    `categories` are the levels of each category, as numbers of flags. A number that was rounded to a step stands for
    any value within half a step; `rounding` is the covariance (q, q) that this adds to a row.
    """

    row_map: RowMap
    categories: tuple[tuple[int, ...], ...]
    weights: Floats
    embedding: Floats
    rounding: Floats

    @property
    def axes(self) -> int:
        return int(self.weights.size)

    @property
    def coordinates(self) -> int:
        return self.axes + int(self.embedding.shape[1])


def rounding_variances(rows: float, rounded: Floats) -> Floats:
    """The variance within a step, of columns of which all values are multiples of one: a twelfth of its square.

    >>> rounding_variances(8.0, np.array([[0.0, 1], [0, 8], [8, 8], [8, 8], [8, 8]])).round(4).tolist()
    [0.0833, 8.3333]
    """
    steps = np.zeros(rounded.shape[1])
    for step, counts in zip(STEPS[::-1], rounded[::-1], strict=True):
        steps[counts >= rows] = step
    return steps * steps / 12


def find_geometry(
    moments: ColumnMoments, covariance: Floats, reach: Floats, rounding: Floats, known: Bools | None = None
) -> Geometry:
    """How to see rows of columns with these moments and covariance (F, F); |z| is at most `reach`.

    `rounding` is the variance within the step that each column is rounded to. Covariances that are not `known` are 0;
    flags of which it is not known may be levels of one category.
    """
    some = moments.variance > 0
    flagged = np.flatnonzero(moments.two_valued & some)
    numeric = np.flatnonzero(~moments.two_valued & some)
    axes, weights = _numeric_axes(
        moments.take(numeric), covariance[np.ix_(numeric, numeric)], 1.0 if known is None else 0.5
    )
    whole = np.zeros((len(reach), axes.shape[1]))
    whole[numeric] = axes
    shares, widths = upper_shares(moments.take(flagged))
    own = covariance[np.ix_(flagged, flagged)] / (widths[:, None] * widths)
    may_exclude = np.abs(own + shares[:, None] * shares) < TWO_VALUES_TOLERANCE
    if known is not None:
        may_exclude |= ~known[np.ix_(flagged, flagged)]
    categories = _find_categories(may_exclude, shares)
    embedding = _category_axes(own, axes.shape[1])
    limit = np.zeros(axes.shape[1])
    for bound, row in zip(reach, np.abs(whole), strict=True):
        limit += bound * row
    blur = multiply(np.ascontiguousarray(whole.T) * rounding, whole)
    return Geometry(RowMap(whole, flagged.astype(np.int64), limit), categories, weights, embedding, blur)


def _numeric_axes(moments: ColumnMoments, covariance: Floats, share: float) -> tuple[Floats, Floats]:
    """Axes (F, q) in which numbers have variance 1 at most, and the weight of each in the tree.

    `share` is the share of the rows that each covariance is of.
    """
    count = len(moments.mean)
    scale = 1 / np.sqrt(moments.variance)
    correlation = covariance * scale[:, None] * scale
    linked = share * moments.rows * (correlation * correlation - np.eye(count)).max(axis=1, initial=0.0)
    if count <= NARROW_COLUMNS:
        plain = (moments.normality <= PLAIN_LIMIT) & (linked <= PLAIN_LIMIT)
        return np.diag(scale), np.where(plain & (not plain.all()), PLAIN_WEIGHT, 1.0)
    picked = np.flatnonzero((moments.normality > NOT_NORMAL) | (linked > CORRELATED))
    if not len(picked):
        picked = np.argsort(-(moments.normality + linked), kind="stable")[:2]
    if len(picked) <= MAX_COMPARED_AXES:
        axes = np.zeros((count, len(picked)))
        axes[picked, np.arange(len(picked))] = scale[picked]
        return axes, np.ones(len(picked))
    variances, directions = principal_axes(correlation[np.ix_(picked, picked)][None], MAX_COMPARED_AXES)
    noise = (1 + np.sqrt(count / (share * moments.rows))) ** 2  # no variance of uncorrelated columns exceeds it by much
    kept = max(2, int((variances[0] > noise).sum()))
    axes = np.zeros((count, kept))
    axes[picked] = directions[0][:, :kept] * scale[picked][:, None] / np.sqrt(variances[0, 0])
    return axes, np.ones(kept)


def upper_shares(moments: ColumnMoments) -> tuple[Floats, Floats]:
    """Of two-valued columns, the share of rows with the upper value, and how far apart the values are."""
    skewness = moments.skewness
    shares = np.clip(0.5 - skewness / (2 * np.sqrt(skewness * skewness + 4)), 1e-9, 1 - 1e-9)
    return shares, np.sqrt(moments.variance / (shares * (1 - shares)))


def _find_categories(exclusive: Bools, shares: Floats) -> tuple[tuple[int, ...], ...]:
    """Which flags are levels of one category: any two exclude each other, and together they fill all rows.

    Two flags that exclude each other are one column twice.
    """
    full = 1 - TWO_VALUES_TOLERANCE
    out, left = [], list(range(len(shares)))
    while left:
        levels = [left[0]]
        filled = float(shares[left[0]])
        for other in left[1:]:
            if filled > full:
                break
            if exclusive[other, levels].all() and filled + shares[other] <= 1 + TWO_VALUES_TOLERANCE:
                levels.append(other)
                filled += float(shares[other])
        if filled < full:
            levels = levels[:1]
        left = [flag for flag in left if flag not in levels]
        out.append(tuple(levels[:1] if len(levels) == 2 else levels))
    return tuple(out)


def _category_axes(covariance: Floats, numeric: int) -> Floats:
    """How flags become coordinates of the tree: each as it is, or along the axes of most variance."""
    count = len(covariance)
    weight = CATEGORY_TREE_WEIGHT if numeric else 1.0
    kept = max(MIN_CATEGORY_AXES, TREE_AXES - numeric)
    if count <= kept:
        return np.asarray(weight * np.eye(count), np.float64)
    return np.asarray(weight * principal_axes(covariance[None], kept)[1][0], np.float64)
