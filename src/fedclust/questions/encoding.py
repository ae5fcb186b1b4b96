"""From what a table holds to what clustering can measure: gaps become NaN, levels become numbers.

>>> values, strangers = encode_numbers(np.array([1.0, 3.0, 9.0]), Column("ordinal", levels=[1, 3]))
>>> values[0].tolist(), strangers
([0.0, 1.0, nan], 1)
"""

from __future__ import annotations

import numpy as np

from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import DataError
from fedclust.core.types import Array, Floats, Ints
from fedclust.questions.schema import Column


def encode_numbers(values: Array, column: Column) -> tuple[list[Array], int]:
    """The columns that a column of numbers becomes, and how many of its values are none of the declared levels."""
    gap = np.isnan(values)
    # At the column's own precision: a float32 .1 is the .1 that was declared.
    marks = np.asarray(column.missing_values, values.dtype)
    for mark in marks:
        gap |= values == mark
    if column.type == "number":
        return [np.where(gap, np.asarray(np.nan, values.dtype), values) if gap.any() else values], 0
    at = np.full(len(values), -1, np.int64)
    for rank, level in enumerate(np.asarray(column.levels, values.dtype)):
        at[values == level] = rank
    return columns_from_ranks(at, column), int(((at < 0) & ~gap).sum())


def columns_from_ranks(at: Ints, column: Column) -> list[Array]:
    """An ordinal's codes, or a category's indicators, from the positions of levels; -1 is a gap."""
    if column.type == "ordinal":
        return [_look_up_codes(at, np.array(column.ranks))]
    one = np.eye(len(column.levels))
    return [_look_up_codes(at, one[rank]) for rank in range(len(column.levels))]


def _look_up_codes(at: Ints, codes: Floats) -> Floats:
    return np.append(codes, np.nan)[at]


def unknown_level_error(name: str, site: str, count: int, column: Column) -> DataError:
    """What to say of values that are no level; the levels are public, the values are not."""
    what = count_noun(count, "value that is", "values that are")
    return DataError(
        f"column '{name}' of site '{site}' holds {what} not among its {len(column.levels)} declared levels; "
        "declare every level that occurs, or correct the data"
    )
