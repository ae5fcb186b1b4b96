"""A tree of cells that is grown from sums over all rows alone: a few weighted points that stand for the whole table.

The tree lies in the span of the first principal axes. From level to level, the cells with the largest inertia are cut
in two or four, across their own first axes; the sums of the last part are those of the cell less those of its other
parts. If there are more columns than axes, the cells' means then become centres, each row goes to its nearest centre,
and each centre to the mean of its rows, in all columns. Every sum is exact and no draw depends on a site: the cells are
the same for every spread of the rows over the sites.

With a `floor`, no sum is asked for of fewer rows: the numbers of rows of all parts are asked for first. In a run that
opens sums above a floor, the sites decide about each part instead, and nobody sees its number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import Protocol as Structural

import numpy as np

from fedclust.algorithms.shared.cell_cuts import (
    Cell,
    Cut,
    Cuts,
    PartSums,
    Path,
    drawing_widths,
    last_part,
    measure_cells,
    number_cells,
    paths_in_order,
    plan_cuts,
)
from fedclust.algorithms.shared.cell_sums import (
    NearestQuestion,
    PartsQuestion,
    ScatterQuestion,
    nearest_counts,
    nearest_sums,
    part_counts,
    part_moments,
    part_sums,
    product_pairs,
    scatter_sums,
)
from fedclust.algorithms.shared.fixed_order import (
    matrix_product,
    ordered_sum,
    orthonormal_basis,
    principal_axes,
    symmetric_matrices,
)
from fedclust.core.effects import Protocol, total
from fedclust.core.ring import Exact
from fedclust.core.site_interface import View
from fedclust.core.types import Bools, Floats, Ints, Units
from fedclust.kernels.row_sample import WHOLE_TABLE, sample_share
from fedclust.kernels.units import farthest_in_columns
from fedclust.questions.standardisation import ColumnStatistics, rare_levels

MAX_AXES = 8  # the tree lies in the span of so many principal axes
OVERSAMPLING = 2  # further columns of the sketch that finds the axes of a wide table
MAX_WIDTH_OF_PRODUCTS = 4  # times the columns of the sketch: above, two sketches have fewer numbers than all products
CELLS_PER_CLUSTER = 2.5
CELLS_PER_SQUARE, MAX_SQUARE_CELLS = 0.2, 100  # many clusters have many local optima
FAR_CELLS = 12  # so many cells more than are wanted are made to part few far rows from the others
MAX_LEVELS, MAX_FLOORED_LEVELS = 14, 7
MAX_REMOVALS = 2  # how often small cells are removed before a refinement
MIN_SAMPLE_FRACTION = 0.25  # of the rows that were expected in the sample; with fewer the whole table is read
MAX_TREE_ASKS = 4 + max(MAX_LEVELS, 2 * MAX_FLOORED_LEVELS) + MAX_REMOVALS + 2
CUT_ATTEMPTS, DECISION_ASKS = 2, 3  # as planned, and in halves
MAX_DECISIONS = CUT_ATTEMPTS * MAX_FLOORED_LEVELS
MAX_DECIDED_TREE_ASKS = 6 + MAX_FLOORED_LEVELS + DECISION_ASKS * MAX_DECISIONS


def wanted_cells(clusters: int, *, decided: bool = False) -> int:
    """How many cells are wanted for so many clusters; `decided` says that sites decide which cells are opened."""
    more = 0.0 if decided else min(CELLS_PER_SQUARE * clusters * clusters, MAX_SQUARE_CELLS)
    return int(max(CELLS_PER_CLUSTER * clusters, more)) + 1


def max_cells(clusters: int) -> int:
    """How many cells there are at most, with those for few far rows."""
    return wanted_cells(clusters) + FAR_CELLS


@dataclass(frozen=True)
class Frame:
    """What all questions of a tree share: the view, the sample, the columns' means, and bounds on deviations."""

    view: View
    seed: int
    share: int
    mean: Floats
    reach: Floats

    @property
    def sample(self) -> tuple[View, int, int, Floats]:
        return self.view, self.seed, self.share, self.mean


@dataclass(frozen=True)
class CellMeans:
    """The cells' means in the columns of the view, how many rows each stands for, and where to draw further points.

    `numbers` are those of the leaves in the last question about parts, in the order of the means if these are the
    leaves' own. `places` are the leaves' means along the `axes` of the tree, the widest leaf first, and `widths` how
    far from them points are drawn.
    """

    frame: Frame
    means: Floats
    rows: Floats
    numbers: Ints
    axes: Floats
    places: Floats
    widths: Floats

    def draw_points(self, count: int, rng: np.random.Generator) -> Floats:
        """Points drawn around the means of the widest leaves, one after the other and again from the first."""
        at = np.arange(count) % len(self.places)
        drawn = self.places[at] + self.widths[at] * rng.uniform(-1, 1, (count, self.places.shape[1]))
        return np.asarray(self.frame.mean + matrix_product(drawn, self.axes.T), np.float64)


class CellOpening(Structural):
    """Decides which cells may be opened, in a run that opens sums above a floor."""

    def known_cells(self, found: ColumnStatistics, seed: int) -> Protocol[CellMeans | None]: ...
    def may_open_parts(self, ask: PartsQuestion) -> Protocol[Bools]: ...
    def record_parts(self, ask: PartsQuestion) -> None: ...
    def record_start(self, cells: Ints, group_of_cell: Ints, centers: int) -> None: ...


@dataclass(frozen=True)
class _Start:
    """The cell of all rows and the axes (columns, axes) of the tree."""

    root: Cell
    axes: Floats


def find_cells(
    view: View,
    found: ColumnStatistics,
    clusters: int,
    *,
    seed: int,
    floor: int,
    everyone: bool,
    opening: CellOpening | None = None,
) -> Protocol[CellMeans | None]:
    """The cells of all rows, enough for so many clusters; None if no two rows differ.

    `everyone` says that no site is absent in any step; only then do the statistics bound single rows. With `opening`,
    the sites decide which cells are opened.
    """
    rows = float(found.counts.max())
    frame = Frame(view, seed, sample_share(rows), found.mean, _reach(view, found, everyone=everyone))
    rare = np.flatnonzero(rare_levels(view, found, floor))
    start = yield from _find_root(frame, clusters, rare)
    if frame.share < WHOLE_TABLE and start.root.rows < MIN_SAMPLE_FRACTION * rows * frame.share / WHOLE_TABLE:
        frame = replace(frame, share=WHOLE_TABLE)
        start = yield from _find_root(frame, clusters, rare)
    if not start.axes.shape[1] or start.root.rows < 1:
        return None
    leaves, cuts = yield from _grow(frame, start, clusters, floor, opening)
    numbers, _ = number_cells(cuts)
    means = found.mean + matrix_product(np.array([cell.mean for cell in leaves]), start.axes.T)
    weights = np.array([cell.rows for cell in leaves])
    # Refined cells nearly equal clusters, which then stay closed where sites decide.
    if opening is None and start.axes.shape[1] < len(frame.mean):
        means, weights = yield from _refine(frame, means, weights, floor)
    widest = sorted(leaves, key=lambda cell: cell.rank)
    places = np.array([cell.mean for cell in widest])
    widths = drawing_widths(start.root, widest)
    return CellMeans(
        frame, means, weights, np.array([numbers[cell.path] for cell in leaves]), start.axes, places, widths
    )


def _reach(view: View, found: ColumnStatistics, *, everyone: bool) -> Floats:
    """How far a row may lie from the mean of each column."""
    reach = farthest_in_columns(view.exponents, found.mean[None])
    if not everyone:
        return reach
    # No deviation exceeds the root of the sum of their squares, which far from 0 is much nearer than the bounds.
    nearer = 1.001 * found.sd * np.sqrt(found.counts) + np.ldexp(np.abs(found.mean), -44)
    return np.where(nearer > 0, np.minimum(reach, nearer), reach)


def _find_root(frame: Frame, clusters: int, rare: Ints) -> Protocol[_Start]:
    """The cell of all rows, and the axes of the tree; of a wide table they are found by a sketch.

    The axes are orthogonal to columns of `rare` levels, whose products with others would show few rows.
    """
    width = len(frame.mean)
    wanted = min(MAX_AXES, width, max(2, clusters - 1))
    if width < MAX_WIDTH_OF_PRODUCTS * (wanted + OVERSAMPLING):
        answer = yield from total(scatter_sums, ScatterQuestion(*frame.sample, frame.reach, None, rare))
        rows, sums = float(answer.rows.to_floats()), answer.sums.to_floats()
        products = symmetric_matrices(answer.products.to_floats(), np.triu_indices(width), width)
        mean = sums / max(rows, 1.0)
        variances, axes = principal_axes((products / max(rows, 1.0) - mean[:, None] * mean)[None], wanted)
        basis = orthonormal_basis(axes[0][:, variances[0] > 0])
        along = ordered_sum(sums[:, None] * basis, axis=0)
        return _Start(_root_cell(rows, along, matrix_product(matrix_product(basis.T, products), basis)), basis)
    signs = np.random.default_rng((frame.seed, 3)).random((width, min(width, wanted + OVERSAMPLING)))
    rows, sums, sketch = yield from _sketch(frame, np.where(signs < 0.5, -1.0, 1.0), rare)
    basis = orthonormal_basis(sketch)
    variances = np.zeros((1, 0))
    if basis.shape[1]:
        rows, sums, sketch = yield from _sketch(frame, basis, rare)
        inner = matrix_product(basis.T, sketch)
        variances, axes = principal_axes((inner + inner.T)[None] / 2, wanted)
        basis = orthonormal_basis(matrix_product(sketch, axes[0][:, variances[0] > 0]))
    along = ordered_sum(sums[:, None] * basis, axis=0)
    guess = np.diag(variances[0][: basis.shape[1]]) * rows + along[:, None] * along / max(rows, 1.0)
    return _Start(_root_cell(rows, along, guess), basis)


def _root_cell(rows: float, sums: Floats, products: Floats) -> Cell:
    """The cell of all rows, with these sums and products (axes, axes) along the axes."""
    return Cell((), rows, sums, products[product_pairs(len(sums))])


def _sketch(frame: Frame, directions: Floats, rare: Ints) -> Protocol[tuple[float, Floats, Floats]]:
    """The number of rows, their sums, and their covariance times some directions."""
    answer = yield from total(scatter_sums, ScatterQuestion(*frame.sample, frame.reach, directions, rare))
    rows, sums = float(answer.rows.to_floats()), answer.sums.to_floats()
    mean = sums / max(rows, 1.0)
    own = ordered_sum(mean[:, None] * directions, axis=0)
    return rows, sums, answer.products.to_floats().T / max(rows, 1.0) - mean[:, None] * own


def _grow(
    frame: Frame, start: _Start, clusters: int, floor: int, opening: CellOpening | None
) -> Protocol[tuple[list[Cell], Cuts]]:
    """Cut cells until there are enough of them; the leaves that have rows, in the order of their paths, and all cuts.

    A part without rows is no leaf, but its cut stays: the cuts are those that sites were asked about.
    """
    wanted = wanted_cells(clusters, decided=opening is not None)
    most = wanted + FAR_CELLS if opening is None else wanted  # sites open no cell of few rows
    measure_cells([start.root])
    leaves, cuts = [start.root], Cuts()
    for _ in range(MAX_LEVELS if floor == 1 and opening is None else MAX_FLOORED_LEVELS):
        plan, is_last = plan_cuts(leaves, wanted, most, floor)
        if not plan:
            break
        parts, made = yield from _cut_cells(
            frame, start.axes, cuts, plan, floor=floor, opening=opening, with_products=not is_last
        )
        cuts |= made
        born: list[Cell] = []
        for cell, _ in plan:
            cell.is_final = True
            if own := cell.divide(parts.get(cell.path, [])):
                leaves = [*(leaf for leaf in leaves if leaf is not cell), *own]
                born += own if len(own) > 1 else []  # a part with all rows is not cut again
        measure_cells(born)
    return sorted(leaves, key=lambda cell: cell.path), cuts


def _cut_cells(
    frame: Frame,
    axes: Floats,
    cuts: Cuts,
    plan: Sequence[tuple[Cell, Cut]],
    *,
    floor: int,
    opening: CellOpening | None,
    with_products: bool,
) -> Protocol[tuple[dict[Path, list[PartSums]], Cuts]]:
    """The sums of the parts of each cell that can be cut, and how it was cut.

    With a floor, a part has no row or enough. Otherwise the cell is cut in halves; if one of these is too small too,
    it stays whole. Only of the root every part is asked for.
    """
    wanted = {cell.path: cut for cell, cut in plan}
    if opening is not None:
        wanted = yield from _cuts_that_may_open(frame, axes, cuts, wanted, opening)
    elif floor > 1:
        wanted = yield from _cuts_above_floor(frame, axes, cuts, plan, floor)
    if not wanted:
        return {}, {}
    answer = yield from _ask_parts(
        _parts_question(frame, axes, cuts, wanted, every_part=not cuts), with_products=with_products
    )
    if opening is not None:
        opening.record_parts(_parts_question(frame, axes, cuts, wanted, every_part=True))
    found: dict[Path, list[PartSums]] = {}
    for cell, _ in plan:
        if cell.path in wanted:
            found[cell.path] = list(islice(answer, wanted[cell.path].part_count - (cell.exact is not None)))
            if cell.exact is not None:
                found[cell.path].append(last_part(cell.exact, found[cell.path]))
    return found, wanted


def _ask_parts(question: PartsQuestion, *, with_products: bool) -> Protocol[Iterator[PartSums]]:
    """The sums of the parts that a question names."""
    if with_products:
        moments = yield from total(part_moments, question)
        counts, sums, products = moments.counts, moments.sums, list(_split_rows(moments.products))
    else:
        means = yield from total(part_sums, question)
        counts, sums, products = means.counts, means.sums, []
    rows = counts.to_floats().tolist()
    return (PartSums(many, own, product) for many, own, product in zip_longest(rows, _split_rows(sums), products))


def _split_rows(numbers: Exact) -> Iterator[Exact]:
    """The rows of a matrix of exact numbers."""
    return (Exact(limbs, unit) for limbs, unit in zip(numbers.limbs, numbers.unit, strict=True))


def _cuts_above_floor(
    frame: Frame, axes: Floats, cuts: Cuts, plan: Sequence[tuple[Cell, Cut]], floor: int
) -> Protocol[Cuts]:
    """The cuts, or halves in their place, whose every part has at least so many rows; the others are left out."""
    question = _parts_question(frame, axes, cuts, {cell.path: cut for cell, cut in plan}, every_part=False)
    counts = (yield from total(part_counts, question)).counts.to_floats().tolist()
    out: Cuts = {}
    for cell, cut in plan:
        own, counts = counts[: cut.part_count - 1], counts[cut.part_count - 1 :]
        own = [*own, cell.rows - sum(own)]
        if cut.part_count > 2 and any(0 < rows < floor for rows in own):
            own, cut = [own[0] + own[1], own[2] + own[3]], cut.as_halves()  # noqa: PLW2901
        if not any(0 < rows < floor for rows in own):
            out[cell.path] = cut
    return out


def _cuts_that_may_open(frame: Frame, axes: Floats, cuts: Cuts, wanted: Cuts, opening: CellOpening) -> Protocol[Cuts]:
    """The cuts, or halves in their place, whose every part may be opened; the others are left out."""
    kept: Cuts = {}
    left = wanted
    for _ in range(CUT_ATTEMPTS):
        tried = {**kept, **left}
        ask = _parts_question(frame, axes, cuts, tried, every_part=True)
        may_open = (yield from opening.may_open_parts(ask)).tolist()
        kept, left = {}, {}
        for path, cut in tried.items():
            own, may_open = may_open[: cut.part_count], may_open[cut.part_count :]
            if all(own):
                kept[path] = cut
            elif cut.part_count > 2:
                left[path] = cut.as_halves()
        if not left:
            break
    return {path: kept[path] for path in wanted if path in kept}


def _parts_question(frame: Frame, axes: Floats, cuts: Cuts, new: Cuts, *, every_part: bool) -> PartsQuestion:
    """The question for the parts that new cuts make; of each cell all parts, or all but the last."""
    whole = {**cuts, **new}
    paths = paths_in_order(whole)
    numbers, children = number_cells(whole)
    asked = [numbers[(*path, j)] for path, cut in new.items() for j in range(cut.part_count - (not every_part))]
    return PartsQuestion(
        *frame.sample,
        frame.reach,
        axes,
        cells=_numbers(numbers[path] for path in paths),
        kinds=_numbers(whole[path].kind for path in paths),
        places=np.stack([whole[path].place for path in paths]),
        directions=np.stack([whole[path].directions for path in paths]),
        widths=np.array([whole[path].width for path in paths]),
        children=children,
        asked=_numbers(asked),
    )


def _numbers(values: object) -> Units:
    return np.array(list(values), np.int32)  # type: ignore[call-overload]


def _refine(frame: Frame, means: Floats, weights: Floats, floor: int) -> Protocol[tuple[Floats, Floats]]:
    """The means of the rows nearest to each mean; with a floor, without the means that too few rows are nearest to."""
    centers = means if floor == 1 else (yield from _centers_above_floor(frame, means, floor))
    if not len(centers):
        return means, weights
    answer = yield from total(nearest_sums, NearestQuestion(*frame.sample, centers))
    counts, sums = answer.counts.to_floats()[:, 0], answer.sums.to_floats()
    some = counts > 0
    return sums[some] / counts[some][:, None], counts[some]


def _centers_above_floor(frame: Frame, centers: Floats, floor: int) -> Protocol[Floats]:
    """Centres to each of which at least so many rows are nearest; none if that takes too many removals."""
    for _ in range(MAX_REMOVALS + 1):
        counts = (yield from total(nearest_counts, NearestQuestion(*frame.sample, centers))).counts.to_floats()
        if (counts >= floor).all():
            return centers
        centers = centers[counts >= floor]
        if not len(centers):
            break
    return centers[:0]
