"""Attack a4: any one, two or three cells whose counts and sums were opened, in any iterations and fits, show a row.

The difference of two cells of n and n + 1 rows is a row if one lies inside the other, and so is that of one cell and
two disjoint ones. The attack takes every such difference of one row. Most of its points are no rows, because the cells
overlap in other ways; so it is scored with the rows at hand, as an upper bound for whoever knows which are right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fedclust.core.types import Array, Bools, Floats, Ints
from fedclust.privacy.attacks.scoring import EXACT_TOLERANCE
from fedclust.privacy.attacks.transcript import Transcript

MAX_COMPARED_CELLS = 1000  # of which all threes are tried


def opened_cells(transcript: Transcript) -> tuple[Ints, Floats]:
    """Return the counts and the sums, in original units, of all distinct cells that an observer saw."""
    found: dict[tuple[float, ...], tuple[int, Floats]] = {}
    for seen in transcript:
        for count, total in seen.cells:
            if seen.floats_of(count).ndim != 1:
                continue
            if "m" in seen.asked and float(seen.asked["m"]) != 1.0:
                continue  # weights of fuzzy clusters are no counts
            counts, sums = seen.floats_of(count), seen.floats_of(total)
            if sums.shape[:-1] != counts.shape or (counts != np.rint(counts)).any():
                continue  # sums of many mixtures, whose weights are no counts
            for rows, pull in zip(counts, sums, strict=True):
                if rows > 0:
                    place = seen.to_original_units(pull / rows) * rows
                    found.setdefault((rows, *pull.tolist()), (int(rows), place))
    if not found:
        return np.zeros(0, np.int64), np.zeros((0, 0))
    listed = list(found.values())
    return np.array([rows for rows, _ in listed]), np.stack([place for _, place in listed])


def rows_by_differences(counts: Ints, sums: Floats, rows: Array) -> Bools:
    """Return which rows are the difference of at most three cells, up to rounding.

    >>> rows = np.array([[1.0], [2.0], [5.0], [9.0]])
    >>> counts, sums = np.array([2, 3, 4]), np.array([[3.0], [8.0], [17.0]])  # {1, 2}, {1, 2, 5}, all
    >>> rows_by_differences(counts, sums, rows).tolist()
    [False, False, True, True]
    """
    kept = slice(0, MAX_COMPARED_CELLS)
    counts, sums = counts[kept], sums[kept]
    known = _RowIndex(np.asarray(rows, np.float64))
    known.mark(sums[counts == 1])
    first, second = np.triu_indices(len(counts), 1)
    apart = counts[first] - counts[second]
    for sign in (1, -1):
        near = apart == sign
        known.mark(sign * (sums[first[near]] - sums[second[near]]))
    together = counts[first] + counts[second]
    order = together.argsort(kind="stable")
    ascending = together[order]
    for cell, count in enumerate(counts):
        for sign in (1, -1):
            start, stop = np.searchsorted(ascending, [count + sign, count + sign + 1])
            pairs = order[start:stop]
            known.mark(sign * (sums[first[pairs]] + sums[second[pairs]] - sums[cell]))
    return known.found


class _RowIndex:
    """Rows by a random projection, and which of them have been found."""

    def __init__(self, rows: Floats) -> None:
        self.rows, self.found = rows, np.zeros(len(rows), bool)
        self._reach = EXACT_TOLERANCE * np.abs(rows).max(axis=0, initial=0.0)
        self._way = np.random.default_rng(0).normal(size=rows.shape[1])
        self._slack = float(np.abs(self._way) @ self._reach)
        self._order = (rows @ self._way).argsort(kind="stable")
        self._sorted = (rows @ self._way)[self._order]

    def mark(self, points: Iterable[Floats] | Floats) -> None:
        """Mark every row that equals one of some points."""
        listed: Sequence[Floats] | Floats = points if isinstance(points, np.ndarray) else list(points)
        if not len(listed):
            return
        places = np.asarray(listed)
        at = places @ self._way
        starts = np.searchsorted(self._sorted, at - self._slack)
        stops = np.searchsorted(self._sorted, at + self._slack, side="right")
        for point in np.flatnonzero(stops > starts):
            some = self._order[starts[point] : stops[point]]
            self.found[some[(np.abs(self.rows[some] - places[point]) <= self._reach).all(axis=1)]] = True
