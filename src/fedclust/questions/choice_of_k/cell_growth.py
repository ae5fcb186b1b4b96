"""A tree of cells of all rows, cut in halves from level to level, and the joining of cells into pieces.

The cells with the largest scatter along their first axes are cut through their means. Only the upper half's sums are
asked for; those of the other half are the difference.

With a floor, histograms of each cell along its first axes are asked for first. The cell is cut at its deepest valley,
or else near its mean, where both halves have enough rows; if there is no such place, it stays whole. If the axes are
estimates, because products are not opened (`table_spread`), the counts also say along which of them the rows vary most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.shared.fixed_order import ordered_sum, principal_axes
from fedclust.core.effects import Protocol, total
from fedclust.core.types import Floats, Ints
from fedclust.kernels import elementary
from fedclust.questions.choice_of_k.choice_frame import ChoiceFrame
from fedclust.questions.choice_of_k.choice_questions import (
    CellLinesQuestion,
    CellsQuestion,
    GroupMoments,
    cell_histograms,
    cell_moments,
)
from fedclust.questions.choice_of_k.evidence import GroupSums
from fedclust.questions.choice_of_k.floored_questions import CellSumsQuestion, cell_sums
from fedclust.questions.choice_of_k.matrices import inner_products, squared_lengths
from fedclust.questions.choice_of_k.table_spread import OpenedGroups, opened_groups
from fedclust.questions.choice_of_k.valleys import find_valley

MIN_CELLS, MAX_CELLS, ROWS_PER_CELL = 16, 128, 6
MIN_CUT_ROWS = 4
CUT_SHARE = 0.75  # of the cells, each level, once there are WHOLE_LEVELS of them
WHOLE_LEVELS = 8
MAX_CHOICE_LEVELS = 14
LINE_BINS, LINE_REACH = 16, 2.5  # the sections of a cell's histogram, and how many standard deviations they cover
MIN_LINE_EVIDENCE = 1.0  # for a valley, to cut there rather than at the mean
LINE_AXES, ESTIMATED_LINE_AXES = 3, 4  # of a cell, along which a valley is looked for
SPREAD_EVIDENCE = 0.1  # for an axis whose direction is an estimate: times the rows and the logarithm of their variance
NEXT_AXIS_EVIDENCE = 3.0  # by which a valley along a further axis must be deeper
MIN_SCATTER = 1e-9  # of the largest
MIN_VARIANCE = 1e-12  # along a further axis, so that its sections have a width
MAX_PIECES, MIN_PIECES, ROWS_PER_PIECE = 48, 24, 4


@dataclass(frozen=True)
class Cells:
    """The cells' sums as components see them, their means in the coordinates of the tree, and the tree."""

    groups: GroupSums
    places: Floats
    question: CellsQuestion


class _Tree:
    """The cuts made so far, and the sums of all cells in the coordinates of the tree."""

    def __init__(self, frame: ChoiceFrame, root: GroupMoments) -> None:
        self.frame = frame
        self.opened = None if frame.spread is None else self._opened(root)
        self.sums = group_sums(root) if self.opened is None else self._coordinates(self.opened)
        self.levels, self.cut_cells = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.places, self.directions = np.zeros(0), np.zeros((0, frame.geometry.coordinates))
        self.scatter, self.axes = _first_axes(self.sums)
        self.is_final = np.zeros(1, np.bool_)

    @property
    def is_estimated(self) -> bool:
        """Whether the cells' axes follow from estimates, so that counts along them say more."""
        return self.frame.spread is not None and self.frame.spread.is_estimated

    def plan_cuts(self, wanted: int) -> Ints:
        """The cells to cut next, those of the largest scatter first."""
        least = max(MIN_CUT_ROWS, 2 * self.frame.floor if self.frame.floor > 1 else 0)
        scatter = np.where(self.is_final | (self.sums.rows < least), 0.0, self.scatter)
        count = len(self.sums)
        most = max(1, min(count, wanted - count))
        order = np.argsort(-scatter, kind="stable")[:most]
        order = order[scatter[order] > MIN_SCATTER * scatter.max()]
        if count > WHOLE_LEVELS and len(order):
            order = order[: max(1, int(len(order) * CUT_SHARE + 0.5))]
        return np.asarray(order, np.int64)

    def question(self, cells: Ints, places: Floats) -> CellsQuestion:
        """The question for the upper halves that cuts of cells make at these places along their axes."""
        made = len(self.levels)
        level = int(self.levels.max(initial=-1)) + 1
        return _cells_question(
            self.frame,
            np.append(self.levels, np.full(len(cells), level)),
            np.append(self.cut_cells, cells),
            np.concatenate([self.directions, self.axes[cells]]),
            np.append(self.places, places),
            np.arange(made + 1, made + 1 + len(cells)),
        )

    def middles(self, cells: Ints) -> Floats:
        """The means of cells along their axes."""
        return inner_products(self.sums.means[cells], self.axes[cells])

    def line_question(self, cells: Ints) -> CellLinesQuestion:
        """The question for the histograms of cells along their first axes, all of a cell one after the other."""
        geometry = self.frame.geometry
        count = min(ESTIMATED_LINE_AXES if self.is_estimated else LINE_AXES, geometry.coordinates)
        variances, axes = principal_axes(self.sums.take(cells).scatter, count)
        lines = np.ascontiguousarray(np.swapaxes(axes, 1, 2).reshape(-1, geometry.coordinates))
        cells = np.repeat(cells, count)
        middles = inner_products(self.sums.means[cells], lines)
        reach = LINE_REACH * np.sqrt(np.maximum(variances.ravel(), MIN_VARIANCE) / self.sums.rows[cells])
        return CellLinesQuestion(
            *self.frame.fields,
            weights=geometry.weights,
            embedding=geometry.embedding,
            levels=self.levels,
            cut_cells=self.cut_cells,
            directions=self.directions,
            places=self.places,
            asked=cells,
            lines=lines,
            edges=middles[:, None] + reach[:, None] * np.linspace(-1, 1, LINE_BINS + 1)[1:-1],
        )

    def choose_places(self, lines: CellLinesQuestion, counts: Ints) -> tuple[Ints, Floats]:
        """Which cells can be cut, and where along the axis that is best for each; the others are closed."""
        best: dict[int, tuple[float, int, float]] = {}
        for number, cell in enumerate(lines.asked.tolist()):
            evidence, section = _place_above_floor(counts[number].tolist(), self.frame.floor)
            if self.is_estimated:
                variance = _variance_of_counts(counts[number], float(lines.edges[number, 1] - lines.edges[number, 0]))
                evidence += SPREAD_EVIDENCE * float(counts[number].sum()) * _log(max(variance, MIN_VARIANCE))
            if section and (cell not in best or evidence > best[cell][0] + NEXT_AXIS_EVIDENCE):
                best[cell] = evidence, number, float(lines.edges[number, section - 1])
        cells = np.unique(lines.asked)
        self.is_final[[cell for cell in cells.tolist() if cell not in best]] = True
        able = np.array([cell for cell in cells.tolist() if cell in best], np.int64)
        self.axes[able] = lines.lines[[best[cell][1] for cell in able.tolist()]]
        return able, np.array([best[cell][2] for cell in able.tolist()])

    def cut(self, asked: CellsQuestion, cells: Ints, answer: GroupMoments) -> None:
        """Keep new cuts of cells, with the sums of the upper halves."""
        self.levels, self.cut_cells = asked.levels, asked.cut_cells
        self.places, self.directions = asked.places, asked.directions
        if self.opened is None:
            upper = group_sums(answer)
            self.sums = self.sums.split(cells, upper)
            changed = np.append(cells, np.arange(len(self.is_final), len(self.sums)))
        else:
            self.opened = self.opened.split(cells, self._opened(answer))
            self.sums = self._coordinates(self.opened)
            changed = np.arange(len(self.sums))
        scatter, axes = _first_axes(self.sums.take(changed))
        self.scatter = np.append(self.scatter, np.zeros(len(cells)))
        self.axes = np.concatenate([self.axes, np.zeros((len(cells), self.axes.shape[1]))])
        self.scatter[changed], self.axes[changed] = scatter, axes
        empty = (self.sums.rows[len(self.is_final) :] == 0) | (self.sums.rows[cells] == 0)
        self.is_final = np.append(self.is_final, empty)
        self.is_final[cells] |= empty

    def _opened(self, answer: GroupMoments) -> OpenedGroups:
        assert self.frame.spread is not None
        return opened_groups(answer, self.frame.spread.squared, self.frame.geometry.weights)

    def _coordinates(self, opened: OpenedGroups) -> GroupSums:
        """Cells in the coordinates of the tree, with estimates of the products that are not opened."""
        assert self.frame.spread is not None
        return self.frame.spread.coordinates(opened, self.frame.geometry.weights, self.frame.geometry.embedding)


def grow_cells(frame: ChoiceFrame) -> Protocol[Cells]:
    """The cells of all rows, about as many as a sixth of the rows."""
    tree = _Tree(frame, (yield from _ask_sums(_all_rows(frame))))
    wanted = int(np.clip(frame.rows / ROWS_PER_CELL, MIN_CELLS, MAX_CELLS))
    for _ in range(MAX_CHOICE_LEVELS):
        cells = tree.plan_cuts(wanted)
        if len(tree.sums) >= wanted or not len(cells):
            break
        places = tree.middles(cells)
        if frame.floor > 1:
            lines = tree.line_question(cells)
            counts = (yield from total(cell_histograms, lines)).counts.to_floats().astype(np.int64)
            cells, places = tree.choose_places(lines, counts)
            if not len(cells):
                continue
        ask = tree.question(cells, places)
        tree.cut(ask, cells, (yield from _ask_sums(ask)))
    question = tree.question(np.zeros(0, np.int64), np.zeros(0))
    if frame.spread is None or tree.opened is None:
        return _as_cells(frame, tree.sums, question)
    return Cells(frame.spread.numbers_of_cells(tree.opened).blur(frame.geometry.rounding), tree.sums.means, question)


def _place_above_floor(counts: list[int], floor: int) -> tuple[float, int]:
    """The evidence for a valley, and after how many sections a cell is cut; 0 if no place leaves enough rows.

    >>> _place_above_floor([0, 9, 9, 9, 9, 0], 10), _place_above_floor([2, 3, 9, 4, 0, 0], 10)
    ((0.0, 3), (0.0, 0))
    >>> evidence, section = _place_above_floor([0, 9, 9, 1, 9, 9], 10)
    >>> round(evidence, 1), section
    (4.5, 3)
    """
    below = np.cumsum(counts)[:-1]
    able = np.flatnonzero((below >= floor) & (below[-1] + counts[-1] - below >= floor)) + 1
    if not len(able):
        return 0.0, 0
    evidence, place = find_valley(counts, int(able[0]), int(able[-1]))
    if evidence > MIN_LINE_EVIDENCE:
        return evidence, place
    return 0.0, int(able[np.argmin(np.abs(able - len(counts) / 2))])


def _log(value: float) -> float:
    return float(elementary.log(np.array([value]))[0])


def _variance_of_counts(counts: Ints, width: float) -> float:
    """The variance of rows in sections of a width, each taken for the middle of its section.

    >>> _variance_of_counts(np.array([2, 0, 2]), 1.0)
    1.0
    """
    middles = np.arange(len(counts)) * width
    mean = float(ordered_sum(counts * middles)) / max(int(counts.sum()), 1)
    return float(ordered_sum(counts * (middles - mean) ** 2)) / max(int(counts.sum()), 1)


def _all_rows(frame: ChoiceFrame) -> CellsQuestion:
    """The question for the cell of all rows."""
    empty = np.zeros(0, np.int64)
    directions = np.zeros((0, frame.geometry.coordinates))
    return _cells_question(frame, empty, empty, directions, np.zeros(0), np.zeros(1, np.int64))


def _cells_question(  # noqa: PLR0917
    frame: ChoiceFrame, levels: Ints, cut_cells: Ints, directions: Floats, places: Floats, asked: Ints
) -> CellsQuestion:
    """The question for the sums of cells of a tree; with a floor, without products that could show single rows."""
    own, weights, embedding = frame.fields, frame.geometry.weights, frame.geometry.embedding
    if frame.spread is None:
        return CellsQuestion(*own, weights, embedding, levels, cut_cells, directions, places, asked)
    squared = frame.spread.squared
    return CellSumsQuestion(*own, weights, embedding, levels, cut_cells, directions, places, asked, squared)


def _ask_sums(ask: CellsQuestion) -> Protocol[GroupMoments]:
    """The sums of cells."""
    if isinstance(ask, CellSumsQuestion):
        return (yield from total(cell_sums, ask))
    return (yield from total(cell_moments, ask))


def group_sums(answer: GroupMoments) -> GroupSums:
    """The sums of an answer as numbers."""
    sums = answer.sums.to_floats()
    count, width = sums.shape
    i, j = np.triu_indices(width)
    products = np.zeros((count, width, width))
    products[:, i, j] = products[:, j, i] = answer.products.to_floats()
    return GroupSums(answer.rows.to_floats(), sums, products, answer.flags.to_floats())


def _first_axes(groups: GroupSums) -> tuple[Floats, Floats]:
    """The scatter of each group along its first axis, and that axis."""
    if not groups.sums.shape[1]:
        return np.zeros(len(groups)), groups.sums
    variances, axes = principal_axes(groups.scatter, 1)
    return variances[:, 0], axes[:, :, 0]


def _as_cells(frame: ChoiceFrame, sums: GroupSums, question: CellsQuestion) -> Cells:
    own = sums.take(sums.rows > 0)
    weights = frame.geometry.weights
    q = len(weights)
    numbers = own.sums[:, :q] / weights
    products = own.products[:, :q, :q] / (weights[:, None] * weights)
    groups = GroupSums(own.rows, numbers, products, own.counts)
    return Cells(groups.blur(frame.geometry.rounding), own.means, question)


def piece_count(cells: int, rows: float) -> int:
    """How many pieces cells are joined into before pieces are joined by their evidence."""
    return int(min(cells, MAX_PIECES, max(MIN_PIECES, rows / ROWS_PER_PIECE)))


def join_nearest(rows: Floats, places: Floats, count: int) -> Ints:
    """Ward's method: labels of so many groups of weighted places.

    >>> join_nearest(np.ones(4), np.array([[0.0], [9.0], [1.0], [8.0]]), 2).tolist()
    [0, 1, 0, 1]
    """
    many = len(rows)
    n, means, labels = rows.copy(), places.copy(), np.arange(many)
    costs = squared_lengths(means[:, None] - means) * (n[:, None] * n / (n[:, None] + n))
    np.fill_diagonal(costs, np.inf)
    for _ in range(many - count):
        a, b = sorted(divmod(int(costs.argmin()), many))
        means[a] = (n[a] * means[a] + n[b] * means[b]) / (n[a] + n[b])
        n[a] += n[b]
        n[b] = 0.0
        labels[labels == b] = a
        costs[b] = costs[:, b] = np.inf
        row = squared_lengths(means - means[a]) * (n * n[a] / (n + n[a]))
        row[n == 0] = np.inf
        row[a] = np.inf
        costs[a] = costs[:, a] = row
    return np.asarray(np.unique(labels, return_inverse=True)[1], np.int64)
