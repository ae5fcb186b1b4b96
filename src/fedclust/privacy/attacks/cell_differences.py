"""Attack a4: any one, two or three cells whose counts and sums were opened, in any question of a run, show a row.

The difference of two cells of n and n + 1 rows is a row if one lies inside the other, and so is that of one cell and
two disjoint ones. The attack takes every such difference of one row. Most of its points are no rows, because the cells
overlap in other ways; so it is scored with the rows at hand, as an upper bound for whoever knows which are right.

Some questions open sums of a few linear combinations of the columns. Cells are compared in all combinations that both
of them show; a row counts as shown if it is found there.

Whole numbers make many points equal rows by chance. Where tags say which rows each cell has, such points do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedclust.core.types import Array, Bools, Floats, Ints
from fedclust.privacy.attacks.scoring import EXACT_TOLERANCE
from fedclust.privacy.attacks.transcript import Observation, Transcript

MAX_COUNT = 2.0**48
MAX_COMPARED_CELLS = 1000  # of which all threes are tried
SPAN_TOLERANCE = 1e-9
CELL_FIELDS = ("counts", "sums")  # of cells of initial centres
TREE_FIELDS = ("cells", "kinds", "places", "directions", "widths", "children")
MIN_SHARED_COMBINATIONS = 2  # of two sets of linear combinations: one number may equal that of a row by chance


@dataclass(frozen=True)
class CellTags:
    """The sums of the tags of some cells' rows modulo 2^64, and for which cells they are known."""

    tags: Array
    known: Bools

    @classmethod
    def unknown(cls, cells: int) -> CellTags:
        return cls(np.zeros(cells, np.uint64), np.zeros(cells, np.bool_))

    def __getitem__(self, cells: Any) -> CellTags:
        return CellTags(self.tags[cells], self.known[cells])

    def __add__(self, other: CellTags) -> CellTags:
        return CellTags(self.tags + other.tags, self.known & other.known)

    def __sub__(self, other: CellTags) -> CellTags:
        return CellTags(self.tags - other.tags, self.known & other.known)

    @classmethod
    def concatenate(cls, parts: Sequence[CellTags]) -> CellTags:
        return cls(np.concatenate([own.tags for own in parts]), np.concatenate([own.known for own in parts]))


@dataclass(frozen=True)
class CellSums:
    """The numbers of rows of some cells, and the sums of linear combinations (combinations, columns) of their rows."""

    counts: Ints
    sums: Floats
    combinations: Floats
    tags: CellTags | None = None

    @classmethod
    def of_all_rows(cls, rows: Floats, row_tags: Array | None = None) -> CellSums:
        """The cell of all rows, whose sum every scaling opens."""
        tags = None if row_tags is None else CellTags(row_tags.sum(keepdims=True), np.ones(1, np.bool_))
        return cls(np.array([len(rows)]), rows.sum(axis=0)[None], np.eye(rows.shape[1]), tags)

    @property
    def known_tags(self) -> CellTags:
        return CellTags.unknown(len(self.counts)) if self.tags is None else self.tags


FindTags = Callable[[Observation], CellTags | None]
"""Finds the tags of the cells in an answer, where the rows are at hand."""


def _find_no_tags(seen: Observation) -> CellTags | None:  # noqa: ARG001 there are no rows
    return None


def opened_cells(transcript: Transcript, find_tags: FindTags = _find_no_tags) -> list[CellSums]:
    """Return all cells that an observer saw, in original units."""
    found = [own for seen in transcript if (own := _cells_of_columns(seen, find_tags)) is not None]
    return [*found, *_cells_of_trees(transcript, find_tags)]


def count_cells(cells: Iterable[CellSums]) -> int:
    """Return the number of distinct cells."""
    return len({(n, *own.tolist()) for one in cells for n, own in zip(one.counts.tolist(), one.sums, strict=True)})


def rows_by_differences(cells: Sequence[CellSums], rows: Array, row_tags: Array | None = None) -> Bools:
    """Return which rows are the difference of at most three cells, up to rounding.

    Without the rows' tags, points that equal a row by chance count as well.

    >>> rows = np.array([[1.0], [2.0], [5.0], [9.0]])
    >>> cells = CellSums(np.array([2, 3, 4]), np.array([[3.0], [8.0], [17.0]]), np.eye(1))  # {1, 2}, {1, 2, 5}, all
    >>> rows_by_differences([cells], rows).tolist()
    [False, False, True, True]
    """
    rows = np.asarray(rows, np.float64)
    found = np.zeros(len(rows), np.bool_)
    if not len(rows):
        return found
    deviation = rows.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    seen = [_in_basis(one, scale) for one in cells if one.counts.any()]
    for basis in _comparable_spaces([own.basis for own in seen]):
        inside = [own.project(basis) for own in seen if own.shows(basis)]
        counts = np.concatenate([counts for counts, _ in inside])
        sums = np.concatenate([sums for _, sums in inside])
        tags = CellTags.concatenate([own.tags for own in seen if own.shows(basis)])
        found |= _single_rows(*_distinct(counts, sums, tags), RowIndex((rows / scale) @ basis.T, row_tags))
    return found


def _cells_of_columns(seen: Observation, find_tags: FindTags) -> CellSums | None:
    """Cells whose sums are those of all columns."""
    named = [CELL_FIELDS] if seen.has_fields(*CELL_FIELDS) and {"centers", "partition"} & set(seen.asked) else []
    for count, total in (*seen.cells, *named):
        if "m" in seen.asked and float(seen.asked["m"]) != 1.0:
            continue  # weights of fuzzy clusters are no counts
        counts, sums = seen.floats_of(count), seen.floats_of(total)
        if (count, total) == CELL_FIELDS and counts.ndim == 2:
            counts = counts[:, 0]  # the others say how many rows have each column
        if counts.ndim != 1 or sums.shape[:-1] != counts.shape or (counts != np.rint(counts)).any():
            continue  # sums of many mixtures, whose weights are no counts
        some = (counts > 0) & (counts < MAX_COUNT)  # numbers that a blind coordinator cannot read may be any
        rows = counts[some][:, None]
        places = np.array([seen.to_original_units(mean) for mean in sums[some] / rows]).reshape(-1, sums.shape[1])
        tags = find_tags(seen)
        own = None if tags is None else tags[some]
        return CellSums(counts[some].astype(np.int64), places * rows, np.eye(sums.shape[1]), own)
    return None


_Node = tuple[object, ...]
"""A cell of a tree by the cuts that lead to it."""


def _cells_of_trees(transcript: Transcript, find_tags: FindTags) -> Iterator[CellSums]:
    """Cells whose sums are those along the axes of a tree, with parts that are what other parts leave of a cell."""
    known: dict[_Node, tuple[float, Floats, CellTags]] = {}
    for seen in transcript:
        if not (seen.has_fields(*CELL_FIELDS) and {"axes", "children", "asked"} <= set(seen.asked)):
            continue
        asked = seen.asked
        axes = np.asarray(asked["axes"], np.float64)
        origin, spread = asked.get("origin"), asked.get("spread")
        whole = np.asarray(asked["mean"], np.float64) + (0.0 if origin is None else origin / spread)
        nodes, cuts = _nodes(asked, axes)
        own = []
        counts, sums = seen.floats_of("counts"), seen.floats_of("sums")
        tags = find_tags(seen) or CellTags.unknown(len(counts))
        for at, cell in enumerate(np.asarray(asked["asked"]).tolist()):
            known[nodes[cell]] = float(counts[at]), sums[at] + counts[at] * (whole @ axes), tags[at : at + 1]
            own.append(known[nodes[cell]])
        for cell, parts in cuts:
            left = [part for part in parts if part not in known]
            if len(left) == 1 and cell in known:
                count, total, tag = known[cell]
                for part in parts:
                    if part in known:
                        count, total, tag = count - known[part][0], total - known[part][1], tag - known[part][2]
                known[left[0]] = count, total, tag
                own.append(known[left[0]])
        if own:
            counts, sums = np.array([n for n, _, _ in own]), np.stack([total for _, total, _ in own])
            combinations = axes.T / (1.0 if spread is None else np.asarray(spread))
            yield CellSums(
                counts.astype(np.int64), sums, combinations, CellTags.concatenate([tag for _, _, tag in own])
            )


def _nodes(asked: Mapping[str, Any], axes: Floats) -> tuple[dict[int, _Node], list[tuple[_Node, list[_Node]]]]:
    """The cells of a question's tree by number, and each cell that is cut with its parts."""
    fields = {name: np.asarray(asked[name]) for name in TREE_FIELDS}
    nodes: dict[int, _Node] = {0: (axes.tobytes(), np.asarray(asked["mean"]).tobytes())}
    cuts = list[tuple[_Node, list[_Node]]]()
    for at, cell in enumerate(fields["cells"].tolist()):
        cut = tuple(fields[name][at].tobytes() for name in ("kinds", "places", "directions", "widths"))
        parts = {child: (nodes[cell], cut, part) for part, child in enumerate(fields["children"][at].tolist())}
        nodes |= {child: part for child, part in parts.items() if child > 0}
        cuts.append((nodes[cell], [part for child, part in parts.items() if child > 0]))
    return nodes, cuts


@dataclass(frozen=True)
class _SeenCells:
    """Cells in an orthonormal basis of the combinations that are known of them."""

    counts: Ints
    sums: Floats
    basis: Floats
    tags: CellTags

    def shows(self, basis: Floats) -> bool:
        """Whether the coordinates in another basis follow from these."""
        return bool(np.abs(basis - basis @ self.basis.T @ self.basis).max(initial=0.0) < SPAN_TOLERANCE)

    def project(self, basis: Floats) -> tuple[Ints, Floats]:
        return self.counts, self.sums @ (basis @ self.basis.T).T


def _in_basis(cells: CellSums, scale: Floats) -> _SeenCells:
    left, values, right = np.linalg.svd(cells.combinations * scale, full_matrices=False)
    rank = int((values > SPAN_TOLERANCE * values.max(initial=0.0)).sum())
    basis = np.eye(len(scale)) if rank == len(scale) else right[:rank]
    coordinates = (cells.sums @ left[:, :rank]) / values[:rank]
    return _SeenCells(cells.counts, coordinates @ (right[:rank] @ basis.T), basis, cells.known_tags)


def _comparable_spaces(bases: Sequence[Floats]) -> list[Floats]:
    """The spaces that cells are compared in: those of all cells, and what any two of them have in common."""
    found: list[Floats] = []
    for basis in bases:
        _add_space(found, basis)
    for one in tuple(found):
        for other in tuple(found):
            left, values, _ = np.linalg.svd(one @ other.T)
            common = left[:, : len(values)].T[values > 1 - SPAN_TOLERANCE] @ one
            if len(common) >= MIN_SHARED_COMBINATIONS:
                _add_space(found, common)
    return found


def _add_space(found: list[Floats], basis: Floats) -> None:
    """Add a space unless it is there already."""
    for known in found:
        if known.shape == basis.shape and np.abs(basis - basis @ known.T @ known).max(initial=0.0) < SPAN_TOLERANCE:
            return
    found.append(basis)


def _distinct(counts: Ints, sums: Floats, tags: CellTags) -> tuple[Ints, Floats, CellTags]:
    """Each cell once; sums that differ only by rounding count as one, unless their rows' tags differ."""
    digits = np.column_stack([counts, np.array([[float(f"{value:.10e}") for value in own] for own in sums])])
    words = np.column_stack([digits.view(np.uint64), tags.tags, tags.known])
    _, first = np.unique(words, axis=0, return_index=True)
    kept = np.sort(first)[:MAX_COMPARED_CELLS]
    return counts[kept], sums[kept], tags[kept]


def _single_rows(counts: Ints, sums: Floats, tags: CellTags, known: RowIndex) -> Bools:
    """Which rows are the difference of at most three cells."""
    known.mark(sums[counts == 1], tags[counts == 1])
    first, second = np.triu_indices(len(counts), 1)
    near = np.abs(counts[first] - counts[second]) == 1
    swapped = counts[first[near]] < counts[second[near]]
    larger = np.where(swapped, second[near], first[near])
    smaller = np.where(swapped, first[near], second[near])
    known.mark(sums[larger] - sums[smaller], tags[larger] - tags[smaller])
    together = counts[first] + counts[second]
    order = together.argsort(kind="stable")
    ascending = together[order]
    for cell, count in enumerate(counts):
        for sign in (1, -1):
            start, stop = np.searchsorted(ascending, [count + sign, count + sign + 1])
            one, other = first[order[start:stop]], second[order[start:stop]]
            both, whole = tags[one] + tags[other], tags[[cell]]
            apart = both - whole if sign > 0 else whole - both
            known.mark(sign * (sums[one] + sums[other] - sums[cell]), apart)
    return known.found


class RowIndex:
    """Rows by a random projection, and which of them have been found."""

    def __init__(self, rows: Floats, tags: Array | None = None, *, tolerance: float = EXACT_TOLERANCE) -> None:
        self.rows, self.tags, self.found = rows, tags, np.zeros(len(rows), bool)
        self._reach = tolerance * np.abs(rows).max(axis=0, initial=0.0)
        self._way = np.random.default_rng(0).normal(size=rows.shape[1])
        self._slack = float(np.abs(self._way) @ self._reach)
        self._order = (rows @ self._way).argsort(kind="stable")
        self._sorted = (rows @ self._way)[self._order]

    def mark(self, points: Floats, tags: CellTags | None = None) -> None:
        """Mark every row that equals one of some points, and its tag if that is known."""
        if not len(points):
            return
        tags = CellTags.unknown(len(points)) if tags is None else tags
        at = points @ self._way
        starts = np.searchsorted(self._sorted, at - self._slack)
        stops = np.searchsorted(self._sorted, at + self._slack, side="right")
        for point in np.flatnonzero(stops > starts):
            some = self._order[starts[point] : stops[point]]
            if self.tags is not None and tags.known[point]:
                some = some[self.tags[some] == tags.tags[point]]
            self.found[some[(np.abs(self.rows[some] - points[point]) <= self._reach).all(axis=1)]] = True
