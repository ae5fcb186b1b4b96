"""Which questions a study asks for initial centres: at most K candidates of a site, cells of a tree, and a race."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedclust.algorithms.shared.cell_routing import MAX_PARTS
from fedclust.core.site_interface import View
from fedclust.core.study_terms import (
    StudyTerms,
    farthest_points,
    fits_points,
    is_at_most,
    is_subset,
    is_vector,
)
from fedclust.core.types import Array
from fedclust.kernels.row_sample import is_sample_share

if TYPE_CHECKING:
    from fedclust.algorithms.cmeans.rows_with_gaps import FilledStartQuestion
    from fedclust.algorithms.shared.cell_sums import (
        NearestQuestion,
        PartsQuestion,
        RaceQuestion,
        SampleQuestion,
        ScatterQuestion,
    )
    from fedclust.algorithms.shared.initial_centers import StartQuestion

NARROWEST_WITH_SKETCH, WIDEST_WITH_PRODUCTS = 16, 40  # columns: in between it depends on K how axes are found
MAX_TREE_AXES = 10  # principal axes, and the further columns of a sketch
MAX_CELL_PARTS = 8  # cells that a tree has in all, and parts that it asks for, for each cell that it ends with
MAX_KINDS = 4  # ways to cut a cell
UNIT_LENGTH = 1.001  # of directions, roundings included
DRAWN_STARTS = ("party", "careful")


def fits_start(terms: StudyTerms, ask: StartQuestion) -> bool:
    """Candidates of one site, if the study starts from these."""
    known = terms.opens_rows and terms.start in DRAWN_STARTS and terms.missing != "partial"
    return known and 1 <= ask.count <= terms.max_clusters and ask.seed in terms.seeds


def fits_filled_start(terms: StudyTerms, ask: FilledStartQuestion) -> bool:
    """The same for rows with gaps, which column means fill."""
    known = terms.opens_rows and terms.start == "careful" and terms.missing == "partial"
    filled = is_vector(ask.fill, terms.columns) and is_at_most(ask.fill, np.ldexp(1.0, ask.view.exponents))
    return known and filled and 1 <= ask.count <= terms.max_clusters and ask.seed in terms.seeds


def is_sample(terms: StudyTerms, ask: SampleQuestion) -> bool:
    """Whether the sample is the study's, and the means lie within the columns' bounds."""
    known = terms.opens_rows and (terms.start in ("k-means++", "random") or terms.candidates > 1)
    mean = is_vector(ask.mean, terms.columns) and is_at_most(ask.mean, np.ldexp(1.0, ask.view.exponents))
    return known and mean and ask.seed in terms.seeds and is_sample_share(ask.share)


def is_reach(terms: StudyTerms, view: View, mean: Array, reach: Array) -> bool:
    """Whether rows are taken to lie no farther from the means than their bounds allow: the unit follows from that."""
    far = np.ldexp(1.0, view.exponents) + np.abs(mean)
    return is_vector(reach, terms.columns) and bool((reach >= 0).all()) and is_at_most(reach, UNIT_LENGTH * far)


def fits_scatter(terms: StudyTerms, ask: ScatterQuestion) -> bool:
    """Products of columns with each other or with a few directions."""
    if not (is_sample(terms, ask) and is_reach(terms, ask.view, ask.mean, ask.reach)):
        return False
    directions, rare = ask.directions, is_subset(ask.rare, terms.columns)
    if directions is None:
        return rare and terms.columns < WIDEST_WITH_PRODUCTS
    return rare and terms.columns >= NARROWEST_WITH_SKETCH and _are_directions(terms, directions)


def _are_directions(terms: StudyTerms, axes: Array) -> bool:
    return axes.ndim == 2 and axes.shape[0] == terms.columns and axes.shape[1] <= MAX_TREE_AXES and is_at_most(
        axes, UNIT_LENGTH
    )  # fmt: skip


def fits_parts(terms: StudyTerms, ask: PartsQuestion) -> bool:
    """The parts of some cells of a tree of as many cells as K clusters need."""
    if not (is_sample(terms, ask) and is_reach(terms, ask.view, ask.mean, ask.reach)):
        return False
    tree = {name: vars(ask)[name] for name in ("cells", "kinds", "places", "directions", "widths", "children", "axes")}
    few = ask.asked.ndim == 1 and 1 <= len(ask.asked) <= MAX_CELL_PARTS * terms.start_cells
    numbered = few and bool(((ask.asked >= 0) & (ask.asked <= ask.children.max(initial=0))).all())
    return numbered and terms.start in ("k-means++", "random") and _is_tree(terms, ask.view, tree)


def is_partition_tree(terms: StudyTerms, view: View, arrays: Mapping[str, Array]) -> bool:
    """Whether a partition is that of a tree of a start."""
    mean = arrays["mean"]
    known = is_vector(mean, terms.columns) and is_at_most(mean, farthest_points(terms, view))
    seeded = int(arrays["seed"][0]) in terms.seeds and is_sample_share(int(arrays["share"][0]))
    return known and seeded and _is_tree(terms, view, arrays)


def _is_tree(terms: StudyTerms, view: View, tree: Mapping[str, Array]) -> bool:
    """Whether a tree has no more cuts than its cells need, each at a place among the rows and across directions."""
    cuts, children, axes = len(tree["cells"]), tree["children"], tree["axes"]
    most = MAX_CELL_PARTS * terms.start_cells
    if not (1 <= cuts <= most and _are_directions(terms, axes) and children.shape == (cuts, MAX_PARTS)):
        return False
    numbers = bool(((children >= -1) & (children < MAX_PARTS * most)).all()) and is_vector(tree["kinds"], cuts)
    cells = is_vector(tree["cells"], cuts) and bool(((tree["cells"] >= 0) & (tree["cells"] < MAX_PARTS * most)).all())
    kinds = bool(((tree["kinds"] >= 0) & (tree["kinds"] < MAX_KINDS)).all())
    far = float(np.abs(farthest_points(terms, view)).sum())
    placed = tree["places"].shape == (cuts, axes.shape[1]) and is_at_most(tree["places"], far)
    across = tree["directions"].shape == (cuts, 2, axes.shape[1]) and is_at_most(tree["directions"], UNIT_LENGTH)
    wide = is_vector(tree["widths"], cuts) and is_at_most(tree["widths"], far)
    return numbers and cells and kinds and placed and across and wide


def fits_nearest(terms: StudyTerms, ask: NearestQuestion) -> bool:
    """As many centres as a tree has cells."""
    known = terms.start in ("k-means++", "random") and not terms.opening_floor
    return known and is_sample(terms, ask) and fits_points(terms, ask.view, ask.centers, terms.start_cells)


def fits_race(terms: StudyTerms, ask: RaceQuestion) -> bool:
    """Sets of at most K centres, as many as the study compares."""
    if ask.candidates.ndim != 3 or not 1 <= len(ask.candidates) <= terms.candidates:
        return False
    points = ask.candidates.reshape(-1, ask.candidates.shape[2])
    few = ask.candidates.shape[1] <= terms.max_clusters
    return few and is_sample(terms, ask) and fits_points(terms, ask.view, points, len(points))
