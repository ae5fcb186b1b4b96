"""Which questions a study asks to choose K by evidence or by an index: how many cells, components, lines and pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedclust.algorithms.method_contracts import is_component_set
from fedclust.core.study_terms import ChoiceLimits, StudyTerms, is_at_most, is_positive, is_subset, is_vector
from fedclust.kernels.row_sample import is_sample_share

if TYPE_CHECKING:
    from fedclust.core.types import Array
    from fedclust.questions.choice_of_k.choice_questions import (
        CellLinesQuestion,
        CellsQuestion,
        ChoiceQuestion,
        MappedQuestion,
        PowersQuestion,
        ProductsQuestion,
        TreeQuestion,
    )
    from fedclust.questions.choice_of_k.component_questions import (
        Components,
        ComponentsQuestion,
        ComponentSumsQuestion,
        HistogramsQuestion,
        LinesQuestion,
        SharedRowsQuestion,
        ShellsQuestion,
    )
    from fedclust.questions.choice_of_k.contingency_tables import PairsQuestion, Partition
    from fedclust.questions.choice_of_k.floored_questions import CellSumsQuestion, PlainComponentsQuestion
    from fedclust.questions.choice_of_k.whole_table_questions import HalvesQuestion, RepeatsQuestion

MAX_NUMBER = 2.0**130  # places and directions in a choice say which rows are counted, and are no units
MAX_UNIT = 4096
LENGTH_SLACK = 1.001  # of lengths that rows cannot exceed
MAX_EDGES = 64  # of a histogram along a line through a cell


def _limits(terms: StudyTerms) -> ChoiceLimits:
    return terms.choice or ChoiceLimits(0, 0, 0, 0, 0, 0)


def fits_choice(terms: StudyTerms, ask: ChoiceQuestion) -> bool:
    """The study's seed, some of its columns, and means and deviations within their bounds."""
    if terms.k_search != "evidence" or not terms.opens_rows or not is_subset(ask.columns, terms.columns):
        return False
    width = len(ask.columns)
    shaped = all(is_vector(part, width) for part in (ask.mean, ask.sd, ask.reach))
    if not shaped or ask.seed not in terms.seeds or not is_sample_share(ask.share):
        return False
    far = np.ldexp(1.0, ask.view.exponents[ask.columns])
    deviations = is_positive(ask.sd) and is_at_most(ask.sd, far) and is_at_most(ask.mean, far)
    return deviations and bool((ask.reach >= 0).all()) and is_at_most(ask.reach * ask.sd, 2 * LENGTH_SLACK * far)


def fits_powers(terms: StudyTerms, ask: PowersQuestion) -> bool:
    """Powers of the columns."""
    return fits_choice(terms, ask)


def fits_choice_products(terms: StudyTerms, ask: ProductsQuestion) -> bool:
    """Products of the columns that a choice uses."""
    return len(ask.columns) <= _limits(terms).columns and fits_choice(terms, ask)


def fits_row_map(terms: StudyTerms, ask: MappedQuestion) -> bool:
    """Axes in the columns, and columns of two values."""
    seen, used = ask.row_map, len(ask.columns)
    if used > _limits(terms).columns or not fits_choice(terms, ask):
        return False
    shaped = seen.axes.ndim == 2 and seen.axes.shape[0] == used and seen.axes.shape[1] <= used
    flagged = is_subset(seen.flagged, used) and is_vector(seen.reach, seen.axes.shape[-1])
    if not (shaped and flagged):
        return False
    wide = np.abs(seen.axes).T @ ask.reach
    return is_at_most(seen.axes, MAX_NUMBER) and is_at_most(seen.reach, LENGTH_SLACK * wide + 2.0**-900)


def fits_tree(terms: StudyTerms, ask: TreeQuestion) -> bool:
    """A tree of as many cells as a choice has at most."""
    if not fits_row_map(terms, ask):
        return False
    numbers, flags, cuts = ask.row_map.axes.shape[1], len(ask.row_map.flagged), len(ask.levels)
    embedded = ask.embedding.ndim == 2 and ask.embedding.shape[0] == flags
    if not embedded or not is_vector(ask.weights, numbers) or cuts >= _limits(terms).cells:
        return False
    wide = numbers + ask.embedding.shape[1]
    listed = is_vector(ask.cut_cells, cuts) and is_vector(ask.places, cuts) and ask.directions.shape == (cuts, wide)
    weighed = is_at_most(ask.weights, LENGTH_SLACK) and ask.embedding.shape[1] <= max(flags, 1)
    sized = is_at_most(ask.directions, MAX_NUMBER) and is_at_most(ask.places, MAX_NUMBER)
    ordered = bool(((ask.levels >= 0) & (ask.levels <= cuts)).all()) and is_vector(ask.levels, cuts)
    return listed and weighed and sized and ordered and bool(((ask.cut_cells >= 0) & (ask.cut_cells <= cuts)).all())


def fits_cells(terms: StudyTerms, ask: CellsQuestion) -> bool:
    """Different cells of the tree."""
    return fits_tree(terms, ask) and is_subset(ask.asked, len(ask.levels) + 1)


def fits_cell_lines(terms: StudyTerms, ask: CellLinesQuestion) -> bool:
    """Histograms of cells along a few lines each."""
    if not fits_tree(terms, ask) or ask.asked.ndim != 1 or len(ask.asked) > _limits(terms).asked:
        return False
    shaped = ask.lines.shape == (len(ask.asked), ask.directions.shape[1]) and ask.edges.ndim == 2
    sized = shaped and len(ask.edges) == len(ask.asked) and ask.edges.shape[1] <= MAX_EDGES
    sized = sized and is_at_most(ask.lines, MAX_NUMBER) and is_at_most(ask.edges, MAX_NUMBER)
    return sized and bool(((ask.asked >= 0) & (ask.asked <= len(ask.levels))).all())


def _are_components(terms: StudyTerms, ask: MappedQuestion, components: Components) -> bool:
    count, numbers = len(components.offsets), ask.row_map.axes.shape[1]
    if not 1 <= count <= _limits(terms).components or components.means.shape != (count, numbers):
        return False
    shapes = {"round": (count, 1), "axes": (count, numbers), "full": (count, numbers, numbers)}
    flags = components.flags.shape == (count, len(ask.row_map.flagged))
    parts = (components.offsets, components.means, components.factors, components.flags)
    flags = flags and is_vector(components.offsets, count) and all(is_at_most(part, MAX_NUMBER) for part in parts)
    return flags and components.factors.shape == shapes.get(components.shape)


def fits_components(terms: StudyTerms, ask: ComponentsQuestion) -> bool:
    """A few sets of components."""
    few = 1 <= len(ask.sets) <= _limits(terms).sets
    return few and fits_row_map(terms, ask) and all(_are_components(terms, ask, one) for one in ask.sets)


def fits_component_sums(terms: StudyTerms, ask: ComponentSumsQuestion) -> bool:
    """The sums of different components of these sets."""
    return fits_components(terms, ask) and is_subset(ask.asked, sum(len(one.offsets) for one in ask.sets))


def fits_cell_sums(terms: StudyTerms, ask: CellSumsQuestion) -> bool:
    """Different cells of the tree, and products of some of their numbers."""
    return fits_cells(terms, ask) and is_subset(ask.squared, ask.row_map.axes.shape[1])


def fits_plain_components(terms: StudyTerms, ask: PlainComponentsQuestion) -> bool:
    """Different components, and products of some of their numbers."""
    return fits_component_sums(terms, ask) and is_subset(ask.squared, ask.row_map.axes.shape[1])


def fits_repeats(terms: StudyTerms, ask: RepeatsQuestion) -> bool:
    """Hashes of the columns' values."""
    return fits_choice(terms, ask)


def fits_halves(terms: StudyTerms, ask: HalvesQuestion) -> bool:
    """Products of the columns that a choice uses, each over a half of the rows."""
    return (
        is_vector(ask.flagged, len(ask.columns))
        and _limits(terms).columns >= len(ask.columns)
        and fits_choice(terms, ask)
    )


def fits_shared_rows(terms: StudyTerms, ask: SharedRowsQuestion) -> bool:
    """How many rows each cell and each component have in common."""
    return fits_tree(terms, ask) and _are_components(terms, ask, ask.components)


def _fits_histograms(terms: StudyTerms, ask: HistogramsQuestion, *parts: Array) -> bool:
    if not fits_row_map(terms, ask) or not _are_components(terms, ask, ask.components) or ask.members.ndim != 2:
        return False
    count, many = len(ask.components.offsets), len(ask.members)
    listed = bool(((ask.members >= -1) & (ask.members < count)).all()) and ask.members.shape[1] <= count
    sized = all(len(part) == many and is_at_most(part, MAX_NUMBER) for part in parts)
    return listed and many <= _limits(terms).lines and sized


def fits_lines(terms: StudyTerms, ask: LinesQuestion) -> bool:
    """Histograms of components along lines, or along tubes around them."""
    numbers, many = ask.row_map.axes.shape[1], len(ask.members)
    tubes = (ask.centers, ask.factors, ask.radii) if len(ask.factors) else ()
    empty = bool(tubes) or not (len(ask.centers) or len(ask.radii))
    shaped = ask.directions.shape == (many, numbers) and is_vector(ask.low, many) and is_vector(ask.high, many)
    return shaped and empty and _fits_histograms(terms, ask, ask.directions, ask.low, ask.high, *tubes)


def fits_shells(terms: StudyTerms, ask: ShellsQuestion) -> bool:
    """Histograms of the distances of components' rows from a centre."""
    return 0 < ask.high <= MAX_NUMBER and _fits_histograms(terms, ask, ask.centers, ask.factors)


def fits_pairs(terms: StudyTerms, ask: PairsQuestion) -> bool:
    """The partitions of two restarts each, of at most K clusters."""
    restarts = len(terms.seeds)
    few = terms.k_search == "index" and terms.opens_rows and len(ask.pairs) <= restarts * (restarts - 1) // 2
    return few and all(_is_partition(terms, own) for pair in ask.pairs for own in (pair.one, pair.other))


def _is_partition(terms: StudyTerms, partition: Partition) -> bool:
    by, width = partition.by, terms.columns
    known = by.family in (terms.family, "nearest", "VVI") and is_component_set(terms, by)
    near = known and is_at_most(by.means, MAX_NUMBER) and is_at_most(by.variance, MAX_NUMBER)
    rooted = partition.root is None or partition.root.shape == (width, width)
    return near and rooted and abs(by.unit) <= MAX_UNIT
