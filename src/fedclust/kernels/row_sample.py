"""A public sample of rows: a row's own values decide whether it is in the sample, not who holds it.

All sites choose by the same hash of a row's values, so the sample is the same for every spread of the rows. Equal rows
are in the sample together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from fedclust.core.types import Array, Bools, Floats, Limbs

SAMPLE_ROWS = 1 << 16  # a larger table is sampled down to about so many rows
WHOLE_TABLE = 1 << 32  # the share of all rows; shares are counted in 2^-32
PIECE_ROWS = 8192  # in memory together, as float64
HASH_ROWS = 4096
MISSING_BITS = np.uint64(0x7FF8000000000000)


def sample_share(rows: float) -> int:
    """The share of a table with so many rows that is in the sample, counted in 2^-32: a power of two, or all.

    So a sample leaves out about half of the rows or more. Sums over a table and over nearly all of it would differ by
    few rows.

    >>> sample_share(65536) == WHOLE_TABLE, sample_share(65537) / WHOLE_TABLE, sample_share(2**20) / WHOLE_TABLE
    (True, 0.5, 0.0625)
    """
    share = WHOLE_TABLE
    while share > 1 and rows * share > SAMPLE_ROWS * WHOLE_TABLE:
        share >>= 1
    return share


def is_sample_share(share: int) -> bool:
    """Whether a sample of some table has this share."""
    return 1 <= share <= WHOLE_TABLE and share & (share - 1) == 0


def sampled_pieces(blocks: Iterable[Array], seed: int, share: int) -> Iterator[Floats]:
    """The rows of the sample, in pieces of columns (F, n)."""
    held: list[Floats] = []
    count = 0
    step = PIECE_ROWS if share >= WHOLE_TABLE else HASH_ROWS
    for block in blocks:
        for at in range(0, block.shape[1], step):
            rows = np.asarray(block[:, at : at + step], np.float64)
            held.append(rows if share >= WHOLE_TABLE else rows[:, in_sample(rows, seed, share)])
            count += held[-1].shape[1]
            if count >= PIECE_ROWS:
                yield np.ascontiguousarray(np.concatenate(held, axis=1))
                held, count = [], 0
    if count:
        yield np.ascontiguousarray(np.concatenate(held, axis=1))


def in_sample(rows: Floats, seed: int, share: int) -> Bools:
    """Which rows of a block (F, n) are in the sample."""
    return np.asarray((hash_rows(rows, seed) >> np.uint64(32)) < np.uint64(share))


def hash_rows(rows: Floats, seed: int) -> Limbs:
    """A hash of each row of a block (F, n).

    The bits of the values are multiplied by odd numbers, one for each column, and added; the sum is mixed.
    """
    factors = _mix_bits(np.uint64(seed) + np.arange(1, len(rows) + 1, dtype=np.uint64)) | np.uint64(1)
    bits = _value_bits(rows)
    bits ^= bits >> np.uint64(29)
    bits *= factors[:, None]
    return _mix_bits(bits.sum(axis=0))


def hash_values(rows: Floats, seed: int) -> Limbs:
    """A hash of each value of a block (F, n); equal values have equal hashes."""
    return _mix_bits(_value_bits(rows) ^ _mix_bits(np.array([seed], np.uint64)))


def _value_bits(rows: Floats) -> Limbs:
    """The bits of values; those of 0 and -0 are the same, and those of missing values."""
    values = rows + 0.0  # -0 is 0
    bits = values.view(np.uint64)
    missing = np.isnan(values)
    if missing.any():
        bits[missing] = MISSING_BITS
    return np.asarray(bits, np.uint64)


def _mix_bits(h: Limbs) -> Limbs:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of h."""
    h = h + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(h ^ (h >> np.uint64(31)), np.uint64)
