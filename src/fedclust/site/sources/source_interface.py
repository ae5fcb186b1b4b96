"""The interface to a site's rows: blocks of columns, any number of passes, one fixed order."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fedclust.core.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Block: TypeAlias = npt.NDArray[np.floating[Any]]  # (F, n): each data column is contiguous along axis 1
Ids: TypeAlias = npt.NDArray[Any]  # int64 or str, one for each row

RESIDENT_BYTES = 1 << 20  # a block that stays in a core's second-level cache
BATCH_BYTES = 4 << 20  # the batch size of a file or database
STREAMED_BYTES = 8 << 20  # a block large enough to outweigh the cost of starting a read


class Source(Protocol):
    """The rows of one site. Row-split sums are exact in any order; column splits align rows by `ids`."""

    @property
    def site(self) -> str: ...
    @property
    def columns(self) -> tuple[str, ...]:
        """The names in the order of the blocks' axis 0, without the id column."""

    @property
    def resident(self) -> bool:
        """Whether the blocks are held in memory, as the same arrays on each pass."""

    def blocks(self) -> Iterator[Block]:
        """Start a new pass over the rows."""

    def ids(self) -> Ids | None:
        """Return the id of each row in the order of `blocks`, or None without an id column."""


@dataclass(frozen=True, eq=False)
class DerivedSource:
    """Base of sources that are made from another source: the same site and columns, other rows, read in blocks."""

    source: Source

    @property
    def site(self) -> str:
        return self.source.site

    @property
    def columns(self) -> tuple[str, ...]:
        return self.source.columns

    @property
    def resident(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Rows held in memory as read-only blocks."""

    site: str
    columns: tuple[str, ...]
    held: tuple[Block, ...]
    row_ids: Ids | None = None
    resident: bool = True

    def __post_init__(self) -> None:
        for block in self.held:
            block.flags.writeable = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A cluster may move an array to any address, but kernels need aligned numbers.
        self.__dict__.update(state, held=tuple(np.require(block, requirements=("C", "A")) for block in state["held"]))
        self.__post_init__()

    def __repr__(self) -> str:
        # The generated repr would print rows, and a repr ends up in logs.
        return f"Packed(site={self.site!r}, columns={self.columns!r})"

    def blocks(self) -> Iterator[Block]:
        return iter(self.held)

    def ids(self) -> Ids | None:
        return self.row_ids


def rows_per_block(width: int, budget: int) -> int:
    """Return the multiple of 256 from 256 to 65,536 whose block of `width` columns comes closest below `budget`."""
    return min(65536, max(256, budget // (8 * width) // 256 * 256))


def regroup(
    pieces: Iterable[Sequence[npt.NDArray[Any]]], *, width: int, rows: int, dtype: npt.DTypeLike
) -> Iterator[Block]:
    """Copy pieces of any length, each a list of columns, into blocks of exactly `rows` rows; the last may be shorter.

    Every block is a new array, so that a consumer may keep it while the next one is read.
    """
    block: Block = np.empty((width, rows), dtype)
    filled = 0
    for piece in pieces:
        length, taken = len(piece[0]), 0
        while taken < length:
            step = min(rows - filled, length - taken)
            for row, column in zip(block, piece, strict=True):
                row[filled : filled + step] = column[taken : taken + step]
            filled, taken = filled + step, taken + step
            if filled == rows:
                yield block
                block, filled = np.empty((width, rows), dtype), 0
    if filled:
        yield np.ascontiguousarray(block[:, :filled])


def choose_columns(
    names: Sequence[str],
    *,
    columns: Sequence[str] | None,
    id: str | None,  # noqa: A002
    site: str,
) -> tuple[str, ...]:
    """Return the requested data columns in the requested order, or all but the id; each must exist exactly once."""
    wanted = [name for name in (names if columns is None else columns) if name != id]
    if not wanted:
        raise DataError(f"site '{site}' has no data column to cluster; list at least one in `columns`")
    asked = Counter(wanted)
    held = Counter(names)
    for name in [*wanted, *([] if id is None else [id])]:
        if name not in held:
            raise DataError(f"site '{site}' has no column '{name}'; {separator_hint(names) or _name_hint(name, names)}")
        if held[name] > 1:
            raise DataError(f"site '{site}' has {held[name]} columns named '{name}'; rename all of them but one")
        if asked[name] > 1:
            raise DataError(f"column '{name}' is listed {asked[name]} times for site '{site}'; list it once")
    return tuple(wanted)


def separator_hint(names: Sequence[str]) -> str:
    """Return a hint if a header is one column because commas do not separate its fields, otherwise an empty text."""
    found = [word for mark, word in ((";", "semicolons"), ("\t", "tabs")) if len(names) == 1 and mark in names[0]]
    return f"its fields are separated by {found[0]}; separate them by commas" if found else ""


def _name_hint(name: str, names: Sequence[str]) -> str:
    folded = {other.strip().casefold(): other for other in names}
    close = difflib.get_close_matches(name.strip().casefold(), folded, n=1)
    return (
        f"did you mean '{folded[close[0]]}'?" if close else "check the names in `columns` and `id` against its header"
    )


def join_distinct_ids(parts: Sequence[Ids], *, id: str, site: str, repeats: bool = False) -> Ids:  # noqa: A002
    """Join the ids of one pass, and refuse ids that repeat unless repeats are allowed."""
    joined = _join_ids(parts)
    repeated = len(joined) - len(np.unique(joined))
    if repeated and not repeats:
        raise DataError(
            f"id column '{id}' of site '{site}' repeats an earlier id in {repeated} of its {len(joined)} rows; "
            "give each row its own id"
        )
    return joined


def _join_ids(parts: Sequence[Ids]) -> Ids:
    """Convert ids to int64 if all are plain integers, even as text, so that equal ids sort alike at every site."""
    if all(part.dtype.kind == "i" for part in parts):
        return np.concatenate([np.empty(0, np.int64), *parts])
    texts: Ids = np.concatenate([part.astype(str) for part in parts])
    try:
        integers = texts.astype(np.int64)
    except (ValueError, OverflowError):
        return texts
    # "007" and "+7" are not the usual form of an integer: such ids stay text.
    return integers if np.array_equal(integers.astype(str), texts) else texts
