"""Further sums of rows in cells that were opened before: where they lie in a plane, and how far from the centres.

A floored fit describes each cluster by the cell whose sums were opened last. Every number here is a sum over one such
cell, so no set of rows gets a sum that had none before. A site refuses cells that it has not opened.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans.cmeans_contracts import fits_cell_counts, fits_cell_distances, fits_cell_spread
from fedclust.algorithms.cmeans.floored_opening import has_opened
from fedclust.algorithms.cmeans.opened_cells import OpenedCell, Partition, select_blocks
from fedclust.core.effects import Protocol, each, handler, total
from fedclust.core.errors import KeysRefused, WireError
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.core.row_weights import tally_unit_weights
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Floats, Ints, Limbs, PartyId, Units
from fedclust.kernels import distances, exact_sums
from fedclust.kernels.fine_sums import fine_sums
from fedclust.kernels.units import DISTANCE_BITS, squared_distance_bound, unit_of
from fedclust.questions import index_formulas
from fedclust.questions.composition import Composition
from fedclust.questions.index_terms import silhouettes
from fedclust.questions.pca import ClusterSpread, Plane, SpreadSums, place_centers, spread_from_sums, sum_offsets


@dataclass(frozen=True)
class DescribedCells(ViewedQuestion):
    """The centres, and for each the cell that describes its cluster: the number of its partition, and its own."""

    view: View
    centers: Floats
    partitions: tuple[Partition, ...]
    partition_of: Ints
    cell_of: Ints

    @classmethod
    def from_cells(cls, view: View, centers: Floats, cells: Sequence[OpenedCell]) -> DescribedCells:
        """Return the part of a question that names the cells."""
        partitions = {cell.partition.digest: cell.partition for cell in cells}
        number = {digest: at for at, digest in enumerate(partitions)}
        return cls(
            view,
            np.ascontiguousarray(centers),
            tuple(partitions.values()),
            np.array([number[cell.partition.digest] for cell in cells], np.int64),
            np.array([cell.cell for cell in cells], np.int64),
        )

    @property
    def fields(self) -> tuple[View, Floats, tuple[Partition, ...], Ints, Ints]:
        return self.view, self.centers, self.partitions, self.partition_of, self.cell_of


def _blocks_of_cells(site: Site, ask: DescribedCells) -> Iterator[tuple[int, Array]]:
    """The blocks of rows of each cell, with its number; cells that this site has not opened are refused."""
    if not len(ask.centers) == len(ask.partition_of) == len(ask.cell_of):
        raise WireError("the question does not name one cell for each centre")
    named = list(zip(ask.partition_of.tolist(), ask.cell_of.tolist(), strict=True))
    for number, cell in named:
        known = 0 <= number < len(ask.partitions) and ask.partitions[number].view.missing == ask.view.missing
        if not (known and has_opened(site, ask.partitions[number], cell)):
            raise KeysRefused("a description is about cells that have been opened before")
    for at, (number, cell) in enumerate(named):
        for block in select_blocks(site, ask.view, ask.partitions[number], cell):
            yield at, block


@dataclass(frozen=True)
class CellSpreadQuestion(DescribedCells):
    """How do the rows of each cell lie around a place in a plane?"""

    plane: Plane
    places: Floats
    reach: int


@handler(releases=SpreadSums, split="rows", contract=fits_cell_spread)
def cell_spread(site: Site, ask: CellSpreadQuestion) -> SpreadSums:
    """Counts and offsets in the plane of the rows of each cell."""
    clusters, (offset, square) = len(ask.centers), (unit_of(ask.reach), unit_of(2 * ask.reach))
    counts = np.zeros(clusters, np.int64)
    offsets: Limbs = np.zeros((clusters, 2, 2), np.uint64)
    squares: Limbs = np.zeros((clusters, 3, 2), np.uint64)
    for at, block in _blocks_of_cells(site, ask):
        counts[at] += block.shape[1]
        away = ask.plane.project_block(block) - ask.places[at][:, None]
        sum_offsets(away, offsets[at], squares[at], (int(offset), int(square)))
    return SpreadSums(Exact.from_counts(counts), Exact(offsets, offset), Exact(squares, square))


@dataclass(frozen=True)
class CellDistancesQuestion(DescribedCells):
    """How far are the rows of each cell from the centres?"""

    reach: int

    @property
    def units(self) -> tuple[Units, Units]:
        """The units of distances and of squared distances."""
        return unit_of(-(-self.reach // 2) + 1, DISTANCE_BITS), unit_of(self.reach, DISTANCE_BITS)


@dataclass(frozen=True)
class CellDistances(Release):
    distances: Exact = additive("for each cell, the sum of the distances of its rows to each centre", least=0.0)
    squares: Exact = additive("for each cell, the sum of the squared distances of its rows to its centre", least=0.0)
    silhouettes: Exact = additive("for each cell, the sum of the simplified silhouettes of its rows")


def _rows_of_cells(site: Site, ask: CellDistancesQuestion) -> Floats:
    """How many rows each cell has."""
    sizes = np.zeros(len(ask.centers), np.int64)
    for at, block in _blocks_of_cells(site, ask):
        sizes[at] += block.shape[1]
    return tally_unit_weights(sizes)


@handler(releases=CellDistances, row_weights=_rows_of_cells, split="rows", contract=fits_cell_distances)
def cell_distances(site: Site, ask: CellDistancesQuestion) -> CellDistances:
    """One sweep over the rows of each cell."""
    clusters, (unit, square) = len(ask.centers), ask.units
    apart: Limbs = np.zeros((clusters, clusters, 2), np.uint64)
    squares: Limbs = np.zeros((clusters, 2), np.uint64)
    outlines: Limbs = np.zeros((clusters, 2), np.uint64)
    for at, block in _blocks_of_cells(site, ask):
        d2 = distances.squared_distances(block, ask.centers)
        exact_sums.add_in_place(apart[at], fine_sums(np.sqrt(d2), int(unit)))
        exact_sums.add_in_place(squares[at : at + 1], fine_sums(d2[[at]], int(square)))
        if clusters > 1:
            exact_sums.add_in_place(
                outlines[at : at + 1], exact_sums.exact_totals(silhouettes(d2)[None, :], int(unit_of(0)))
            )
    return CellDistances(Exact(apart, unit), Exact(squares, square), Exact(outlines, unit_of(0)))


# A site that masks its sums does not say how its rows spread, as with `composition`.
@handler(releases=Composition, max_distinct=3, plain_only=True, split="rows", contract=fits_cell_counts)
def cell_counts(site: Site, ask: DescribedCells) -> Composition:
    """Rows of this site in each cell."""
    counts = np.zeros(len(ask.centers), np.int64)
    for at, block in _blocks_of_cells(site, ask):
        counts[at] += block.shape[1]
    return Composition(counts)


def spread_of_cells(cells: DescribedCells, seen: Plane) -> Protocol[ClusterSpread]:
    """The centres in the plane, with the mean and the covariance of their cells' rows there."""
    places, reach = place_centers(cells.centers, seen)
    answer = yield from total(cell_spread, CellSpreadQuestion(*cells.fields, seen, places, reach))
    return spread_from_sums(places, answer)


def indices_of_cells(cells: DescribedCells, sizes: Floats) -> Protocol[dict[str, float]]:
    """Validation indices over the rows of the cells, of which each centre is the mean."""
    reach = squared_distance_bound(cells.view.exponents, cells.centers) + 1
    found = yield from total(cell_distances, CellDistancesQuestion(*cells.fields, int(reach)))
    apart, rows = found.distances.to_floats(), int(sizes.sum())
    within = math.fsum(found.squares.to_floats().tolist())
    between = index_formulas.powers_between(cells.centers, cells.centers)
    mean = (sizes[:, None] * cells.centers).sum(axis=0) / rows
    from_mean = index_formulas.powers_between(cells.centers, mean[None, :])[:, 0]
    fuzzy = index_formulas.fuzzy_spread(sizes, apart.sum(axis=0), rows, 1.0)
    return {
        "fuzzy-davies-bouldin": index_formulas.davies_bouldin(fuzzy, np.sqrt(between)),
        "davies-bouldin": index_formulas.davies_bouldin(np.diag(apart) / sizes, np.sqrt(between)),
        "xie-beni": index_formulas.xie_beni(within, rows, between),
        "calinski-harabasz": index_formulas.calinski_harabasz(sizes, from_mean, within),
        "simplified-silhouette": math.fsum(found.silhouettes.to_floats().tolist()) / rows,
        "partition-coefficient": 1.0,
        "partition-entropy": 0.0,
    }


def counts_of_cells(cells: DescribedCells) -> Protocol[dict[PartyId, Ints]]:
    """Each party's counts; `HIDDEN` where its policy hides one."""
    answers = yield from each(cell_counts, cells)
    return {party: answer.rows for party, answer in answers.items()}
