"""How rows are seen if no sum of few rows may be opened: which columns repeat values, and how columns go together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.core.effects import Protocol, total
from fedclust.core.site_interface import View
from fedclust.core.types import Bools, Floats, Ints
from fedclust.questions.choice_of_k.column_kinds import ColumnMoments, Geometry, find_geometry, upper_shares
from fedclust.questions.choice_of_k.matrices import multiply
from fedclust.questions.choice_of_k.table_spread import TableSpread
from fedclust.questions.choice_of_k.whole_table_questions import (
    HalvesQuestion,
    RepeatsQuestion,
    count_hash_bits,
    half_products,
    mean_repeats,
)

MAX_EQUAL_VALUES = 1.75  # rows with the same value, on average, in a column whose products cells may open
QuestionFields = tuple[View, int, int, Ints, Floats, Floats, Floats]


@dataclass(frozen=True)
class _Covariance:
    """The covariance of columns, as far as it is known; of flags with two values 0 and 1."""

    of_columns: Floats
    of_flags: Floats
    known: Bools


def ask_geometry(
    ask: QuestionFields, moments: ColumnMoments, rounding: Floats, floor: int
) -> Protocol[tuple[Geometry, TableSpread]]:
    """How to see rows of columns with these moments, and how they are spread."""
    bits = (yield from total(count_hash_bits, RepeatsQuestion(*ask))).bits.to_floats()
    repeats = mean_repeats(moments.rows, bits.astype(np.int64))
    flagged = moments.two_valued & (moments.variance > 0)
    common = _common_columns(moments, flagged, floor)
    view, seed, share, columns, mean, sd, reach = ask
    which = columns[common], mean[common], sd[common], reach[common]
    asked = HalvesQuestion(view, seed, share, *which, flagged[common])
    products = (yield from total(half_products, asked)).products.to_floats() if len(common) > 1 else np.zeros(0)
    found = _estimate_covariance(moments, flagged, common, products)
    geometry = find_geometry(moments, found.of_columns, ask[-1], rounding, found.known)
    plain = (repeats <= MAX_EQUAL_VALUES) & ~flagged
    axes = geometry.row_map.axes
    squared = np.flatnonzero(~(axes[~plain] != 0).any(axis=0))
    return geometry, TableSpread(squared.astype(np.int64), _scatter(geometry, moments, found))


def _common_columns(moments: ColumnMoments, flagged: Bools, floor: int) -> Ints:
    """The columns of which no few rows decide the products: flags with enough rows of both values, no wild numbers."""
    shares, _ = upper_shares(moments)
    fewest = np.rint(np.minimum(shares, 1 - shares) * moments.rows)
    return np.flatnonzero(np.where(flagged, fewest >= floor, moments.kurtosis <= moments.rows / floor))


def _estimate_covariance(moments: ColumnMoments, flagged: Bools, common: Ints, products: Floats) -> _Covariance:
    """Twice the products over half of the rows, less those of the means; unknown but for common columns."""
    size, rows = len(moments.mean), moments.rows
    i, j = common[np.array(np.triu_indices(len(common), 1))]
    shares, widths = upper_shares(moments)
    of_flags = np.zeros((size, size))
    middle = np.where(flagged, shares, moments.mean)
    of_flags[i, j] = of_flags[j, i] = 2 * products / rows - middle[i] * middle[j]
    diagonal = np.arange(size)
    of_flags[diagonal, diagonal] = np.where(flagged, shares * (1 - shares), moments.variance)
    scale = np.where(flagged, widths, 1.0)
    known = np.isin(diagonal, common)
    return _Covariance(of_flags * (scale[:, None] * scale), of_flags, known[:, None] & known)


def _scatter(geometry: Geometry, moments: ColumnMoments, found: _Covariance) -> Floats:
    """The scatter of numbers along their axes and of flags, over all rows."""
    flagged = geometry.row_map.flagged
    whole = np.concatenate([geometry.row_map.axes, np.eye(len(moments.mean))[:, flagged]], axis=1)
    return moments.rows * multiply(np.ascontiguousarray(whole.T), multiply(found.of_flags, whole))
