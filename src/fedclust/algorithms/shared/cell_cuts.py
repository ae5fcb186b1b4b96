"""The cells of a tree at the coordinator: their sums, and which of them are cut next and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedclust.algorithms.shared.cell_routing import HALVES, MAX_PARTS, QUARTERS, SLICES
from fedclust.algorithms.shared.cell_sums import product_pairs
from fedclust.algorithms.shared.fixed_order import (
    ROUNDING_FRACTION,
    ordered_sum,
    principal_axes,
    symmetric_matrices,
    traces,
)
from fedclust.core.ring import Exact
from fedclust.core.types import Floats, Units

FOUR_WAYS = 3.0  # a cell is cut in four if its inertia is above so many shares, otherwise in two
LONG = 3.0  # ... into slices along its first axis if that variance is above so many times the second
SLICE_WIDTH = 0.9  # the outer planes of slices, in standard deviations


Path = tuple[int, ...]  # from the root: the number of the part at each cut


@dataclass(frozen=True)
class PartSums:
    """A part's number of rows, and the exact sums of its rows and of their products along the axes."""

    rows: float
    sums: Exact
    products: Exact | None  # None: not asked for, so the part is not cut again


@dataclass
class Cell:
    """One cell: its path from the root, its rows, and their sums and products along the axes."""

    path: Path
    rows: float
    sums: Floats
    products: Floats | None  # of the pairs of axes in `product_pairs`
    exact: PartSums | None = None  # None for the root, whose axes were not known when its sums were asked for
    inertia: float = 0.0
    variances: Floats = field(default_factory=lambda: np.zeros(0))
    directions: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    is_final: bool = True

    @classmethod
    def from_part(cls, path: Path, part: PartSums, inertia: float) -> Cell:
        """A cell of these sums; the inertia is a guess until its products are measured."""
        products = None if part.products is None else part.products.to_floats()
        return cls(path, part.rows, part.sums.to_floats(), products, part, inertia)

    def divide(self, parts: Sequence[PartSums]) -> list[Cell]:
        """The cells of those parts that have rows."""
        some = [(j, part) for j, part in enumerate(parts) if part.rows > 0]
        return [Cell.from_part((*self.path, j), part, self.inertia / len(some)) for j, part in some]

    @property
    def mean(self) -> Floats:
        return self.sums / self.rows

    @property
    def rank(self) -> tuple[float, Path]:
        """The widest cell comes first."""
        return -self.inertia, self.path


@dataclass(frozen=True)
class Cut:
    """How a cell is cut."""

    kind: int
    place: Floats
    directions: Floats
    width: float

    @property
    def part_count(self) -> int:
        return 2 if self.kind == HALVES else MAX_PARTS

    def as_halves(self) -> Cut:
        """The same cut by its middle plane only: the upper two parts of four lie above it."""
        return replace(self, kind=HALVES, directions=np.stack([self.directions[0], np.zeros_like(self.place)]))


Cuts = dict[Path, Cut]


def measure_cells(cells: Sequence[Cell]) -> None:
    """Set the inertia and the first two axes of cells whose products are known.

    Coordinates whose product is not asked for count as independent.
    """
    known = [(cell, cell.products) for cell in cells if cell.products is not None]
    if not known:
        return
    width = len(known[0][0].sums)
    i, j = product_pairs(width)
    raw = np.array([products / cell.rows for cell, products in known])
    means = np.array([cell.mean for cell, _ in known])
    covariances = symmetric_matrices(raw - means[:, i] * means[:, j], (i, j), width)
    inertia = traces(covariances)
    variances, directions = principal_axes(covariances, 2)
    for k, (cell, _) in enumerate(known):
        cell.inertia = float(inertia[k] * cell.rows)
        cell.variances, cell.directions = variances[k], directions[k].T
        # What subtraction leaves below this share of the mean square is rounding.
        cell.is_final = not variances[k, 0] > ROUNDING_FRACTION * float(np.max(raw[k, i == j]))


def plan_cuts(leaves: Sequence[Cell], wanted: int, most: int, floor: int) -> tuple[list[tuple[Cell, Cut]], bool]:
    """Which cells are cut next and how, and whether no further cuts are expected.

    A cell with much more than its share of the inertia may have far rows. It is cut in four even if there are as many
    cells as are wanted, and its parts' products are needed, because most of them may be empty.
    """
    room, spare = wanted - len(leaves), most - len(leaves)
    share = float(ordered_sum(np.array([cell.inertia for cell in leaves]))) / wanted
    able = [cell for cell in leaves if not cell.is_final and cell.rows >= 2 * floor and cell.inertia > share]
    plan: list[tuple[Cell, Cut]] = []
    for cell in sorted(able, key=lambda cell: cell.rank):
        is_wide = cell.inertia > FOUR_WAYS * share and spare >= MAX_PARTS - 1
        if room <= 0 and not is_wide:
            break
        cut = _make_cut(cell, in_four=is_wide and cell.rows >= 4 * floor)
        plan.append((cell, cut))
        room, spare = room - cut.part_count + 1, spare - cut.part_count + 1
    has_wide = any(cell.inertia > FOUR_WAYS * share for cell, _ in plan)
    return plan, room <= 0 and not has_wide


def _make_cut(cell: Cell, *, in_four: bool) -> Cut:
    first, *others = cell.directions
    nothing = np.zeros_like(first)
    if not in_four:
        return Cut(HALVES, cell.mean, np.stack([first, nothing]), 0.0)
    if len(first) < 2 or cell.variances[0] > LONG * max(cell.variances[1], 0.0):
        return Cut(SLICES, cell.mean, np.stack([first, nothing]), SLICE_WIDTH * float(np.sqrt(cell.variances[0])))
    return Cut(QUARTERS, cell.mean, np.stack([first, others[0]]), 0.0)


def last_part(cell: PartSums, parts: Sequence[PartSums]) -> PartSums:
    """The sums of a cell less those of some of its parts, exactly: a far row in another part costs no digits."""
    rows, sums, products = cell.rows, cell.sums, cell.products
    for part in parts:
        rows, sums = rows - part.rows, _subtract(sums, part.sums)
        products = None if products is None or part.products is None else _subtract(products, part.products)
    return PartSums(rows, sums, products)


def _subtract(whole: Exact, part: Exact) -> Exact:
    low = ~part.limbs[..., 0] + np.uint64(1)
    negated = np.stack([low, ~part.limbs[..., 1] + (low == 0)], axis=-1)
    return whole + Exact(negated, part.unit)


def drawing_widths(root: Cell, leaves: Sequence[Cell]) -> Floats:
    """How far from each leaf's mean points are drawn: standard deviations of all rows, scaled to the leaf's inertia."""
    i, j = product_pairs(len(root.sums))
    squares = np.zeros(len(root.sums)) if root.products is None else root.products[i == j]
    whole = np.sqrt(np.maximum(squares / root.rows - root.mean * root.mean, 0.0))
    tiny = 1e-300
    shares = [(max(cell.inertia, tiny) / max(cell.rows, 1.0)) / max(root.inertia / root.rows, tiny) for cell in leaves]
    return np.asarray(np.sqrt(np.array(shares))[:, None] * whole, np.float64)


def paths_in_order(cuts: Cuts) -> list[Path]:
    """The cells that are cut, each after the one that it is a part of."""
    return sorted(cuts, key=lambda path: (len(path), path))


def number_cells(cuts: Cuts) -> tuple[dict[Path, int], Units]:
    """The number of each cell in a question about these cuts, and those of the parts of each cell that is cut."""
    numbers: dict[Path, int] = {(): 0}
    children = np.full((len(cuts), MAX_PARTS), -1, np.int32)
    for at, path in enumerate(paths_in_order(cuts)):
        for j in range(cuts[path].part_count):
            children[at, j] = numbers[(*path, j)] = len(numbers)
    return numbers, children
