"""What a site must know about its rows before it takes part: how many, how large, and that all are numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedclust.core.errors import DataError
from fedclust.core.noise_price import FINITE_ROWS_ONLY, MAX_VALUE_EXPONENT
from fedclust.site.sources.source_interface import RESIDENT_BYTES, Block, PackedRows, Source, regroup, rows_per_block

if TYPE_CHECKING:
    from collections.abc import Sequence

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Survey:
    """Facts about the rows that take part, which stay at the site; each array has one entry per column."""

    rows: int
    lo: Floats
    hi: Floats
    constant: tuple[str, ...]
    left_out: int  # rows that do not take part
    gaps: npt.NDArray[np.int64]  # missing values, including those in rows left out

    @property
    def largest(self) -> Floats:
        """The largest |x|, which decides the exponent of exact sums; 0 for a column without values."""
        return np.where(self.lo <= self.hi, np.maximum(np.abs(self.lo), np.abs(self.hi)), 0.0)


def survey(source: Source, missing: str = "refuse") -> Survey:
    """Pass over the rows once; refuse infinite values, an empty table, and missing values unless they are allowed."""
    width, rows, kept = len(source.columns), 0, 0
    lo, hi = np.full(width, np.inf), np.full(width, -np.inf)
    gaps, infinite = np.zeros(width, np.int64), np.zeros(width, np.int64)
    for block in source.blocks():
        rows += block.shape[1]
        if missing == FINITE_ROWS_ONLY:  # values beyond its bound are finite, too
            block = _finite_rows(block)  # noqa: PLW2901
            kept += block.shape[1]
            low, high = block.min(axis=1, initial=np.inf), block.max(axis=1, initial=-np.inf)
            lo, hi = np.fmin(lo, low), np.fmax(hi, high)
            continue
        low, high = block.min(axis=1), block.max(axis=1)
        used = block
        # A NaN or an infinity shows in the extremes, so complete blocks need no check of each value.
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            gaps += np.isnan(block).sum(axis=1)
            infinite += np.isinf(block).sum(axis=1)
            used = select_rows(block, missing)
            low, high = np.fmin.reduce(used, axis=1, initial=np.inf), np.fmax.reduce(used, axis=1, initial=-np.inf)
        kept += used.shape[1]
        lo, hi = np.fmin(lo, low), np.fmax(hi, high)
    if missing == FINITE_ROWS_ONLY:  # a refusal must not reveal whether there is a row, or an unusual one
        return Survey(kept, lo, hi, (), rows - kept, gaps)
    if rows == 0:
        raise DataError(f"site '{source.site}' has no rows; add rows, or leave the site out")
    _refuse_gaps(source, gaps if missing == "refuse" else np.zeros_like(gaps), infinite)
    constant = tuple(name for name, same in zip(source.columns, lo == hi, strict=True) if same)
    return Survey(kept, lo, hi, constant, rows - kept, gaps)


def select_rows(block: Block, missing: str) -> Block:
    """Return the rows of a block that a study works on: all, the complete ones, or those with any value."""
    if missing == "refuse":
        return block
    if missing == FINITE_ROWS_ONLY:
        return _finite_rows(block)
    gap = np.isnan(block)
    out = gap.any(axis=0) if missing == "drop" else gap.all(axis=0)
    return np.ascontiguousarray(block[:, ~out]) if out.any() else block


def _finite_rows(block: Block) -> Block:
    # comparisons with NaN are always false
    out = ~(np.abs(block.astype(np.float64)) <= 2.0**MAX_VALUE_EXPONENT).all(axis=0)
    return np.ascontiguousarray(block[:, ~out]) if out.any() else block


def _refuse_gaps(source: Source, missing: npt.NDArray[np.int64], infinite: npt.NDArray[np.int64]) -> None:
    bad = np.flatnonzero(missing + infinite)
    if not bad.size:
        return
    first = bad[0]
    counts = [f"{n} {word}" for n, word in ((missing[first], "missing"), (infinite[first], "infinite")) if n]
    plural = "value" if missing[first] + infinite[first] == 1 else "values"
    others = (
        f" (as do {bad.size - 1} more columns)" if bad.size > 2 else " (as does 1 more column)" if bad.size == 2 else ""
    )
    remedy = "fill them, drop those rows" if infinite.any() else "fill them, set missing to 'drop' or 'partial'"
    raise DataError(
        f"column '{source.columns[first]}' of site '{source.site}' holds {' and '.join(counts)} {plural}{others}; "
        f"{remedy}, or leave the column out"
    )


def sort_by_id(source: Source) -> Source:
    """Hold the rows in memory in the order of their ids, integers by value and text by code point.

    Sites that split columns between them bring their rows into the same order in this way, whatever their file formats.
    """
    ids = source.ids()
    if ids is None:
        raise DataError(f"site '{source.site}' has no id column, but a column split matches rows by id; set `id`")
    return take_rows(source, np.argsort(ids, kind="stable"))


def take_rows(source: Source, rows: npt.NDArray[np.intp]) -> PackedRows:
    """Hold some of the rows in memory, in the given order."""
    ids, blocks = source.ids(), tuple(source.blocks())
    count = sum(block.shape[1] for block in blocks)
    if count <= rows.max(initial=-1) or (ids is not None and count != len(ids)):
        raise DataError(f"site '{source.site}' changed while it was read; keep its data unchanged during a run")
    held = _reorder_blocks(blocks, rows, len(source.columns))
    return PackedRows(source.site, source.columns, held, None if ids is None else ids[rows])


def _reorder_blocks(blocks: Sequence[Block], order: npt.NDArray[np.intp], width: int) -> tuple[Block, ...]:
    if not blocks:
        return ()
    columns = [np.concatenate([block[f] for block in blocks])[order] for f in range(width)]
    rows = rows_per_block(width, RESIDENT_BYTES)
    return tuple(regroup([columns], width=width, rows=rows, dtype=blocks[0].dtype))
