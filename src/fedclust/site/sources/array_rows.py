"""Rows that are already in this process as an array: transposed once into blocks, never modified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import DataError
from fedclust.questions.encoding import encode_numbers, unknown_level_error
from fedclust.questions.schema import Column, Schema, encoded_names
from fedclust.site.sources.source_interface import (
    RESIDENT_BYTES,
    Ids,
    PackedRows,
    choose_columns,
    join_distinct_ids,
    regroup,
    rows_per_block,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_EXACT_INTEGER = 2**53  # above this, float64 cannot represent every integer
Words = npt.NDArray[np.uint64]  # (rows, columns): what identifies each value


def from_array(
    array: npt.ArrayLike,
    *,
    columns: Sequence[str] | None,
    id: str | None,  # noqa: A002
    site: str,
    schema: Schema,
    repeats: bool = False,
) -> PackedRows:
    """Copy an (n, F) array into blocks.

    The array is copied even if its layout would allow a view: a site's answers must not change when the caller later
    writes to the array, and short contiguous blocks are faster to read than columns that lie a whole array apart.
    """
    X = _numeric(array, site)
    names = _names(X.shape[1], columns, site)
    # Given names are the names of the array's columns; only a subset of x0, x1, ... selects among them.
    chosen = choose_columns(names, columns=columns, id=id, site=site)
    at = [names.index(name) for name in chosen]
    _refuse_wide_integers(X, names, at, site)
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    declared = {name: schema.get(name, Column()) for name in chosen}
    shown = encoded_names(declared)
    rows = rows_per_block(len(shown), RESIDENT_BYTES)
    if all(column.is_plain for column in declared.values()):
        held = tuple(_block(X[start : start + rows], at, dtype) for start in range(0, len(X), rows))
    else:
        pieces = _encode_columns(X, dict(zip(at, declared.items(), strict=True)), site)
        held = tuple(regroup([pieces], width=len(shown), rows=rows, dtype=np.float64))
    named = None if id is None else [_integer_ids(X[:, names.index(id)], id, site)]
    ids = None if id is None or named is None else join_distinct_ids(named, id=id, site=site, repeats=repeats)
    return PackedRows(site, shown, held, ids)


def whole_array(array: npt.ArrayLike, site: str) -> Words:
    """Return all columns of an array as 64-bit words."""
    return words(_numeric(array, site))


def words(values: npt.ArrayLike) -> Words:
    """Return the bits of numbers; both zeros are the same, and so are all missing values.

    >>> words([0.0, -0.0]).tolist()
    [0, 0]
    """
    exact = np.array(values, np.float64) + 0.0
    exact[np.isnan(exact)] = np.nan
    return exact.view(np.uint64)


def _numeric(array: npt.ArrayLike, site: str) -> npt.NDArray[Any]:
    masked = isinstance(array, np.ma.MaskedArray)
    try:
        # A plain conversion would drop the mask and reveal the hidden values.
        X: npt.NDArray[Any] = np.ma.filled(array.astype(np.float64), np.nan) if masked else np.asarray(array)  # type: ignore[union-attr]
    except (TypeError, ValueError):
        raise DataError(
            f"the rows of site '{site}' have unequal lengths; pass an array with two dimensions, rows and columns"
        ) from None
    if X.ndim != 2 or X.shape[1] == 0:
        raise DataError(
            f"the array of site '{site}' has shape {X.shape}; "
            "pass an array with two dimensions, rows and columns, and at least one column"
        )
    if X.dtype.kind not in "fiub":
        raise DataError(
            f"the array of site '{site}' has dtype {X.dtype.name}; pass numbers, or a frame with named columns"
        )
    return X


def _encode_columns(X: npt.NDArray[Any], at: Mapping[int, tuple[str, Column]], site: str) -> list[npt.NDArray[Any]]:
    out: list[npt.NDArray[Any]] = []
    for i, (name, column) in at.items():
        if column.is_text:
            raise DataError(
                f"column '{name}' of site '{site}' does not hold text, but its declared levels are text; use the "
                "same type for both"
            )
        values, strange = encode_numbers(X[:, i] if X.dtype == np.float32 else X[:, i].astype(np.float64), column)
        if strange:
            raise unknown_level_error(name, site, strange, column)
        out += values
    return out


def _names(width: int, columns: Sequence[str] | None, site: str) -> tuple[str, ...]:
    numbered = tuple(f"x{i}" for i in range(width))
    if columns is None or set(columns) <= set(numbered):
        return numbered
    if len(columns) != width:
        raise DataError(
            f"the array of site '{site}' has {count_noun(width, 'column')} but "
            f"{count_noun(len(columns), 'name')}; pass one name for each column"
        )
    return tuple(columns)


def _refuse_wide_integers(X: npt.NDArray[Any], names: Sequence[str], at: Sequence[int], site: str) -> None:
    if X.dtype.kind not in "iu" or X.dtype.itemsize < 8 or not len(X):
        return
    low, high = X.min(axis=0), X.max(axis=0)
    for i in at:
        if int(high[i]) > MAX_EXACT_INTEGER or int(low[i]) < -MAX_EXACT_INTEGER:
            raise DataError(wide_integer_message(names[i], site))


def wide_integer_message(name: str, site: str) -> str:
    return (
        f"column '{name}' of site '{site}' holds integers beyond 2^53, which float64 cannot hold; scale the "
        "column, or leave it out of `columns`"
    )


def _block(rows: npt.NDArray[Any], at: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    whole = len(at) == rows.shape[1] and list(at) == sorted(at)
    return np.array((rows if whole else rows[:, at]).T, dtype=dtype, order="C")


def _integer_ids(column: npt.NDArray[Any], id: str, site: str) -> Ids:  # noqa: A002
    with np.errstate(invalid="ignore"):
        ids = column.astype(np.int64)
    if not np.array_equal(ids, column):
        raise DataError(
            f"id column '{id}' of site '{site}' holds numbers that are not integers; use integer or text ids"
        )
    return ids
