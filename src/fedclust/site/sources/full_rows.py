"""A row as its source holds it, independent of the study: this is how a site recognises a row.

Every value of a column that a study could name becomes eight bytes: the float64 of a number, or of a text that reads as
a number, and a digest of any other text. How a study selects, orders, encodes or names columns changes none of it.
Values that no study can read count as missing. Rows that differ only in those are then treated as the same row, which
errs towards protecting the row.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fedclust.core.errors import DataError
from fedclust.core.types import Ints
from fedclust.site.sources.array_rows import Words, words
from fedclust.site.sources.arrow import MISSING_MARKS

if TYPE_CHECKING:
    from fedclust.site.sources.streamed import Feed


def whole_rows(feed: Feed) -> Words:
    """Return the rows of a file, a database or a frame, with columns in the order of their names."""
    names = [name for name, times in sorted(Counter(feed.names).items()) if times == 1 and _readable(feed, name)]
    parts = [np.stack([_column(column) for column in batch.columns], axis=1) for batch in feed.batches(names)]
    return np.concatenate([np.empty((0, len(names)), np.uint64), *parts])


def _readable(feed: Feed, name: str) -> bool:
    try:
        feed.types([name])
    except DataError:  # values that cannot be read are shown to nobody
        return False
    return True


def _column(column: pa.Array) -> Words:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())  # digits are rounded once
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return words(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        return words(np.full(len(column), np.nan))
    listed = pa.compute.dictionary_encode(column.cast(pa.string()))
    known: Words = np.array([*map(_text_word, listed.dictionary.to_pylist()), _text_word("")], np.uint64)
    at: Ints = np.asarray(listed.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False), np.int64)
    return known[at]


def _text_word(text: str) -> int:
    """Treat a text that reads as a number as that number: the same file may be read as text or as numbers."""
    plain = text.strip()
    try:
        number = math.nan if plain in MISSING_MARKS else float(plain)
    except ValueError:
        return int.from_bytes(hashlib.blake2b(plain.encode(), digest_size=8).digest(), "little")
    return int(words([number])[0])
