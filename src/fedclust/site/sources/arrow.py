"""Converts Arrow columns to NumPy: which types count as numbers or ids, and how each becomes exact float64."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import DataError
from fedclust.core.types import Array, Ints
from fedclust.questions.encoding import columns_from_ranks, encode_numbers
from fedclust.questions.schema import Column
from fedclust.site.sources.array_rows import MAX_EXACT_INTEGER, wide_integer_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fedclust.site.sources.source_interface import Ids

NUMBER_COLUMN = Column()
# texts that mean a missing value; the last one is from the UCI repository
MISSING_MARKS = (*pa.csv.ConvertOptions().null_values, "?")


@contextmanager
def replace_error(sentence: str) -> Iterator[None]:
    """Replace a library's error message, which may quote a value, by our own."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError):
        raise DataError(sentence) from None


def check_type(kind: pa.DataType, name: str, site: str, declared: Column = NUMBER_COLUMN) -> None:
    """Refuse a column whose type differs from its declaration before reading any row of it."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if declared.is_text:
        if _is_text(plain) or pa.types.is_null(plain):
            return
        raise DataError(
            f"column '{name}' of site '{site}' does not hold text, but its declared levels are text; use the same "
            "type for both"
        )
    if _is_number(plain):
        return
    if declared.levels and _is_text(plain):
        raise DataError(
            f"column '{name}' of site '{site}' holds text, but its declared levels are numbers; use the same "
            "type for both"
        )
    what = "text" if _is_text(plain) else f"values of type {plain}"
    raise DataError(f"column '{name}' of site '{site}' holds {what}; encode it as numbers or leave it out of `columns`")


def _is_text(kind: pa.DataType) -> bool:
    return any(holds(kind) for holds in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_number(kind: pa.DataType) -> bool:
    simple = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return _is_numeric_text(kind) or any(holds(kind) for holds in simple)


def _is_numeric_text(kind: pa.DataType) -> bool:
    # PostgreSQL's NUMERIC has no Arrow type and arrives as digits.
    return getattr(kind, "extension_name", "") == "arrow.opaque" and getattr(kind, "type_name", "") == "numeric"


def numbers(column: pa.Array, name: str, site: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the column as floats, with NaN for a missing value; not copied if it is float already and complete."""
    check_type(column.type, name, site)
    integral = pa.types.is_integer(column.type) or (pa.types.is_decimal(column.type) and column.type.scale <= 0)
    if _is_numeric_text(column.type):
        column = column.storage
    elif pa.types.is_decimal(column.type):
        # Arrow scales a decimal by a rounded power of ten (.3 becomes .30000000000000004); parsing digits rounds once.
        column = column.cast(pa.string())
    with replace_error(wide_integer_message(name, site)):
        values: npt.NDArray[Any] = column.cast(pa.from_numpy_dtype(np.dtype(dtype))).to_numpy(zero_copy_only=False)
    if integral and np.abs(values).max(initial=0, where=~np.isnan(values)) > MAX_EXACT_INTEGER:
        raise DataError(wide_integer_message(name, site))
    return values


def encode_column(
    column: pa.Array, name: str, site: str, declared: Column, dtype: npt.DTypeLike
) -> tuple[list[Array], int]:
    """Return the columns that a column becomes by its declaration, and how many of its values are undeclared levels."""
    if not declared.is_text:
        values = numbers(column, name, site, dtype)
        return ([values], 0) if declared.is_plain else encode_numbers(values, declared)
    check_type(column.type, name, site, declared)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    texts = column.cast(pa.string())
    at = _positions(texts, declared.levels)
    gap = ~(_positions(texts, [*(set(MISSING_MARKS) - set(declared.levels)), *declared.missing_values]) < 0)
    gap |= texts.is_null().to_numpy(zero_copy_only=False)
    return columns_from_ranks(at, declared), int(((at < 0) & ~gap).sum())


def _positions(texts: pa.Array, words: Sequence[str | float]) -> Ints:
    found = pa.compute.index_in(texts, value_set=pa.array(words, pa.string()))
    return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def ids_from_column(column: pa.Array, name: str, site: str) -> Ids:
    """Return the column as ids: integers as int64, text as str."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    integral = pa.types.is_integer(column.type)
    if not (integral or _is_text(column.type) or pa.types.is_null(column.type)):
        raise DataError(f"id column '{name}' of site '{site}' holds neither integers nor text; cast it to text")
    values = column.to_pylist()
    missing = sum(value is None or value == "" for value in values)
    if missing:
        raise DataError(
            f"id column '{name}' of site '{site}' has no id in {count_noun(missing, 'row')}; give each row its own id"
        )
    with replace_error(f"id column '{name}' of site '{site}' holds integers beyond 2^63; cast it to text"):
        return column.cast(pa.int64()).to_numpy() if integral else np.array(values, dtype=np.str_)
