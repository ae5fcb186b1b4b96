"""Which questions of c-means a study asks: the sums around centres, cells above a floor, and slices of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedclust.algorithms.shared.start_contracts import is_partition_tree
from fedclust.core.release import MAX_ROWS
from fedclust.core.study_terms import (
    MAX_FINER_BITS,
    StudyTerms,
    fits_points,
    is_fine_power,
    is_matrix,
    is_subset,
    is_vector,
)
from fedclust.core.types import Array
from fedclust.kernels.units import squared_distance_bound
from fedclust.questions.question_contracts import fits_plane

if TYPE_CHECKING:
    from fedclust.algorithms.cmeans.choice_cells import LeavesQuestion
    from fedclust.algorithms.cmeans.column_labels import LabelAssignment, RowComparison, Seats, SeedMessages
    from fedclust.algorithms.cmeans.column_split import CenterPlacement, Preparation, RowSpan, RowWeights
    from fedclust.algorithms.cmeans.described_cells import CellDistancesQuestion, CellSpreadQuestion, DescribedCells
    from fedclust.algorithms.cmeans.exact_rounds import RoundQuestion
    from fedclust.algorithms.cmeans.floored_opening import FloorQuestion, OpeningQuestion, Roles
    from fedclust.algorithms.cmeans.opened_cells import Partition
    from fedclust.algorithms.cmeans.row_split import CentersQuestion
    from fedclust.algorithms.cmeans.rows_with_gaps import GapCentersQuestion

C_MEANS = ("k-means", "fuzzy-c-means")
SUMMED_METHODS = (*C_MEANS, "k-fed", "mufc", "averaged-fuzzy-c-means", "gradient-fuzzy-c-means")
CELLS_PER_CENTER = 4  # of the start of a column split
MIN_TESTED_SITES = 3  # from here on a site tests counts
MAX_EARLIER = 512  # partitions with opened cells that a question names
FLOOR_QUESTION_CELLS = 4  # times the cells of a start or a fit, and as many more: cells of a cut and of no group


def fits_round(terms: StudyTerms, ask: RoundQuestion) -> bool:
    """The sums around at most K centres, at the study's fuzziness, in units that are no thresholds."""
    shifts = (ask.shifts >= 0).all() and (ask.shifts <= MAX_FINER_BITS).all()
    units = shifts and is_fine_power(ask.reach, ask.largest_share)
    return terms.opens_rows and fits_points(terms, ask.view, ask.centers) and ask.m == terms.fuzziness and bool(units)


def fits_centers(terms: StudyTerms, ask: CentersQuestion) -> bool:
    """The sums of rows without gaps, under the papers' rules as the study sets them."""
    rules = (ask.singletons, ask.small_sites) == (terms.hides_singletons, terms.hides_small_sites)
    known = terms.method in SUMMED_METHODS or not terms.is_own_method
    whole = terms.missing != "partial" and not terms.opening_floor and known
    return whole and rules and is_vector(ask.shifts, len(ask.centers)) and fits_round(terms, ask)


def fits_gap_centers(terms: StudyTerms, ask: GapCentersQuestion) -> bool:
    """The sums of rows with gaps."""
    known = terms.missing == "partial" and terms.method in C_MEANS
    return known and ask.shifts.shape == ask.centers.shape and fits_round(terms, ask)


def fits_roles(terms: StudyTerms, ask: Roles) -> bool:
    """Who tests counts; the site compares the roles with those that follow from all sites."""
    usual = sorted(terms.parties)
    tester, hiders = ("", usual) if len(usual) < MIN_TESTED_SITES else (usual[0], usual[1:])
    return terms.opening_floor > 0 and (ask.tester, list(ask.hiders)) == (tester, hiders)


def is_known_partition(terms: StudyTerms, partition: Partition) -> bool:
    """Whether a study can have opened the cells of a partition: of a fit, a start, a choice of K, or all rows."""
    cells = terms.choice.cells if terms.choice is not None else 0
    most = FLOOR_QUESTION_CELLS * (1 + max(terms.max_clusters, terms.start_cells, cells))
    if not 1 <= partition.cells <= most or any(array.size > most * most + 64 for array in _small_arrays(partition)):
        return False
    if partition.kind == "nearest":
        return fits_points(terms, partition.view, partition.arrays["centers"])
    if partition.kind == "tree":
        return terms.start in TREE_STARTS and is_partition_tree(terms, partition.view, partition.arrays)
    if partition.kind in ("choice", "components"):
        known = terms.choice is not None and is_subset(partition.arrays["columns"], terms.columns)
        return known and int(partition.arrays["seed"][0]) in terms.seeds
    return partition.kind == "whole" and partition.cells == 1


TREE_STARTS = ("k-means++", "random")


def _small_arrays(partition: Partition) -> list[Array]:
    return [partition.arrays[name] for name in ("groups", "cells", "levels", "offsets") if name in partition.arrays]


def fits_floor_question(terms: StudyTerms, ask: FloorQuestion) -> bool:
    """Which cells may be opened, above the study's own floor."""
    partitions = [ask.partition, *(one.partition for one in ask.earlier)]
    listed = all(is_vector(one.opened, one.partition.cells) for one in ask.earlier) and len(ask.earlier) <= MAX_EARLIER
    if not listed or len({one.partition.digest for one in ask.earlier}) != len(ask.earlier):
        return False
    floor = terms.opening_floor > 0 and ask.floor == terms.opening_floor
    return floor and fits_roles(terms, ask.roles) and all(is_known_partition(terms, one) for one in partitions)


def fits_opening(terms: StudyTerms, ask: OpeningQuestion) -> bool:
    """The sums of the cells that may be opened."""
    shaped = is_vector(ask.wanted, ask.asked.partition.cells) and is_vector(ask.allowed, ask.asked.partition.cells)
    return shaped and ask.m == 1 and fits_floor_question(terms, ask.asked) and fits_points(terms, ask.view, ask.centers)


def fits_leaves(terms: StudyTerms, ask: LeavesQuestion) -> bool:
    """The sums of the cells of a choice of K, for a start."""
    known = terms.opening_floor > 0 and terms.choice is not None and ask.partition.kind == "choice"
    return known and terms.start in TREE_STARTS and is_known_partition(terms, ask.partition)


def fits_described_cells(terms: StudyTerms, ask: DescribedCells) -> bool:
    """Cells that describe at most K clusters."""
    count, partitions = len(ask.centers), ask.partitions
    named = is_vector(ask.cell_of, count) and is_vector(ask.partition_of, count) and len(partitions) <= count
    if not named or not ((ask.partition_of >= 0) & (ask.partition_of < len(partitions))).all():
        return False
    cells = np.array([partitions[number].cells for number in ask.partition_of.tolist()])
    known = bool(((ask.cell_of >= 0) & (ask.cell_of < cells)).all())
    known = known and all(is_known_partition(terms, one) for one in partitions)
    return terms.opening_floor > 0 and known and fits_points(terms, ask.view, ask.centers)


def fits_cell_counts(terms: StudyTerms, ask: DescribedCells) -> bool:
    """The same, for counts of each site, which only plain studies ask for."""
    return terms.aggregation == "plain" and fits_described_cells(terms, ask)


def fits_cell_distances(terms: StudyTerms, ask: CellDistancesQuestion) -> bool:
    """Distances in the cells, in the unit that the view gives."""
    return fits_described_cells(terms, ask) and is_fine_power(
        ask.reach, squared_distance_bound(ask.view.exponents, ask.centers) + 1
    )


def fits_cell_spread(terms: StudyTerms, ask: CellSpreadQuestion) -> bool:
    """The spread of the cells in a plane."""
    placed = fits_described_cells(terms, ask) and len(ask.places) == len(ask.centers)
    return placed and fits_plane(terms, ask.view, ask.plane, ask.places, ask.reach)


def holds_columns(terms: StudyTerms, ask: object) -> bool:  # noqa: ARG001
    """Whether sites hold columns, for questions that name nothing else."""
    return terms.split == "columns"


def opens_distances(terms: StudyTerms) -> bool:
    """Whether a study over columns opens distances."""
    return terms.split == "columns" and not terms.labels_only


def fits_preparation(terms: StudyTerms, ask: Preparation) -> bool:
    """The study's own scale and initial centres."""
    if terms.split != "columns" or ask.standardise != (terms.scale == "standardise"):
        return False
    if not _is_same(ask.centers, terms.given if terms.start == "given" else None):
        return False
    if terms.scale != "minmax" or terms.low is None or terms.high is None:
        return ask.origin is None and ask.spread is None
    wide = np.where(terms.high > terms.low, terms.high - terms.low, 1.0)
    return _is_same(ask.origin, terms.low) and _is_same(ask.spread, wide)


def _max_column_centers(terms: StudyTerms) -> int:
    """How many centres a column split has at most, those of cells of the start included."""
    return terms.max_clusters * (CELLS_PER_CENTER if terms.start == "k-means++" else 1)


def fits_placement(terms: StudyTerms, ask: CenterPlacement) -> bool:
    """Centres on a few rows for each of K clusters, or drawn with the study's seed within its bounds."""
    if terms.split != "columns" or terms.start == "given":
        return False
    if ask.rows is not None:
        drawn = terms.start != "box" and not terms.labels_only and ask.uniforms is ask.low is ask.high is None
        return (
            drawn
            and ask.rows.ndim == 1
            and 1 <= len(ask.rows) <= _max_column_centers(terms)
            and bool(((ask.rows >= 0) & (ask.rows < MAX_ROWS)).all())
        )
    if terms.start != "box" or ask.uniforms is None or terms.place_of_columns is None:
        return False
    if not is_matrix(ask.uniforms, terms.columns, most=terms.max_clusters):
        return False
    shape = len(ask.uniforms), terms.width
    draws = (np.random.RandomState(seed).rand(*shape)[:, terms.place_of_columns] for seed in terms.seeds)
    if not any(np.array_equal(own, ask.uniforms) for own in draws):
        return False
    low, high = terms.low, terms.high
    if terms.scale == "minmax" and low is not None and high is not None:
        low, high = np.zeros(len(low)), np.where(high > low, 1.0, 0.0)
    elif terms.scale == "standardise":
        low = high = None
    return _is_same(ask.low, low) and _is_same(ask.high, high)


def _is_same(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None:
        return one is other
    return bool(np.array_equal(one, other))


def fits_span(terms: StudyTerms, ask: RowSpan) -> bool:
    """Distances of some rows to all centres, if the study opens distances."""
    return opens_distances(terms) and 0 <= ask.start <= ask.stop


def fits_weights(terms: StudyTerms, ask: RowWeights) -> bool:
    """Weights from 0 to 1 of some rows in at most K clusters."""
    shaped = ask.weights.ndim == 2 and 1 <= len(ask.weights) <= _max_column_centers(terms)
    sound = shaped and is_vector(ask.reseed, len(ask.weights)) and ask.start >= 0
    return opens_distances(terms) and sound and bool(((ask.weights >= 0) & (ask.weights <= 1)).all())


def compares_labels(terms: StudyTerms, ask: Seats) -> bool:
    """Which sites compare distances, if the study opens labels only."""
    named = set(ask.parties)
    return terms.labels_only and named <= set(terms.parties) and len(named) == len(ask.parties)


def fits_comparison(terms: StudyTerms, ask: RowComparison) -> bool:
    """Rows to label."""
    return compares_labels(terms, ask.seats) and 0 <= ask.span.start <= ask.span.stop


def fits_seed(terms: StudyTerms, ask: SeedMessages) -> bool:
    """One seed from a neighbour."""
    return terms.labels_only and len(ask.messages) == 1 and not ask.note


def fits_label_assignment(terms: StudyTerms, ask: LabelAssignment) -> bool:
    """Labels of at most K clusters."""
    whole = ask.labels.ndim == 1 and ask.labels.dtype.kind in "iu"
    return terms.labels_only and whole and 1 <= ask.clusters <= terms.max_clusters
