"""What an approved study promises about its questions, and the contracts that hold single questions to it.

A site builds `StudyTerms` from the text of the study that it serves. Every question of fedclust has a contract, a
function `(terms, message) -> bool` at its `@handler`. It says whether the study may ask exactly this: how many
centres, which fuzziness, which units, which price. What a contract does not allow is refused before a row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedclust.core.ring import power_above
from fedclust.core.site_interface import View
from fedclust.core.types import Array, Floats, Ints, PartyId, Units

POINT_SLACK_BITS = 5  # centres lie within 2^5 of what bounds the rows: initial ones are drawn beyond the rows
VIEW_SLACK_BITS = 3  # a mixture bounds its centred columns a little more widely than needed
MAX_FINER_BITS = 1700  # two repetitions of the finest unit that floats have


@dataclass(frozen=True, eq=False)
class StudyTerms:
    """The part of a study that its questions must keep to, as one site sees it; the defaults promise as little as
    possible.
    """

    method: str
    split: str
    parties: tuple[PartyId, ...]
    columns: int  # of this site, once categories are encoded
    is_own_method: bool = True  # fedclust's; a method of another package may ask any of its questions of one kind
    column_names: frozenset[str] = frozenset()  # as the study declares them
    max_clusters: int = 1  # of a fit
    fuzziness: float = 1.0
    missing: str = "refuse"
    scale: str = "none"
    low: Floats | None = None  # declared bounds of this site's columns
    high: Floats | None = None
    needs_everyone: bool = True  # quorum and participation: the same sites answer every question
    aggregation: str = "plain"
    start: str = ""  # how initial centres are found; "given" if the study lists them
    given: Floats | None = None  # initial centres that the study lists, in this site's columns
    seeds: range = range(1)
    fits: int = 1  # how often the method is fitted at most
    candidates: int = 1  # sets of initial centres that are compared at once
    start_cells: int = 1  # of the tree that initial centres come from
    opening_floor: int = 0  # rows by which opened sums differ; 0: every sum is opened
    labels_only: bool = False
    alignment: str = ""  # what to do with repeated ids, if rows are aligned
    k_search: str = ""  # "evidence", "index", or a number that the study gives
    finds_range: bool = False  # whether sites suggest a range of K
    choice: ChoiceLimits | None = None
    hides_singletons: bool = False
    hides_small_sites: bool = False
    local_clusters: int = 0  # points that a site sends on its own
    min_rows: int = 0  # behind each of them
    levels: int = 0  # of the grid along each column; 0: as many as the number of rows calls for
    max_nodes: int = 0
    local_rounds: int = 0
    local_tol: float = 0.0
    family: str = ""  # of a mixture
    place_of_columns: Ints | None = None  # this site's columns among those of all sites
    width: int = 0  # columns of all sites
    prices: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # rho of each question with noise
    rho: float = 0.0  # of all questions together
    honest: int = 1  # sites whose noise a price relies on
    box_unit: Floats | None = None  # the unit of each column under noise

    @property
    def is_private(self) -> bool:
        """Whether every answer about rows carries noise."""
        return self.rho > 0

    @property
    def opens_rows(self) -> bool:
        """Whether sites hold whole rows and answer with exact numbers."""
        return self.split == "rows" and not self.is_private

    @property
    def finds_clusters(self) -> bool:
        """Whether the method finds the number of clusters itself."""
        return self.method in ("fcac", "summary-clustering")

    @property
    def max_scaled_views(self) -> int:
        """How many pairs of origin and spread one run uses."""
        own = {"gaussian-mixture": 1, "summary-clustering": 1}.get(self.method, 0)
        scales = self.scale != "none"
        return own + scales if self.needs_everyone else 3 * (own + scales)


@dataclass(frozen=True)
class ChoiceLimits:
    """How many cells, components, lines and columns the questions of a choice by evidence name at most."""

    cells: int
    asked: int
    components: int
    sets: int
    lines: int
    columns: int


Contract = Callable[[StudyTerms, Any], bool]
"""Whether a study may ask a question; for sealed messages, the question is the note that comes with them."""


def never_in_study(terms: StudyTerms, ask: object) -> bool:  # noqa: ARG001
    """The contract of a question that no study asks: it is for sites in the process of their coordinator."""
    return False


def in_any_study(terms: StudyTerms, ask: object) -> bool:  # noqa: ARG001
    """The contract of a question that tells nothing about rows and whose size is that of its message."""
    return True


def recovers_dropouts(terms: StudyTerms, ask: object) -> bool:  # noqa: ARG001
    """The contract of a question that opens keys of sites that dropped out."""
    return not terms.needs_everyone and terms.aggregation == "secure"


def proves_sums(terms: StudyTerms, ask: object) -> bool:  # noqa: ARG001
    """The contract of a question with which sites prove masked sums to each other."""
    return terms.aggregation == "secure"


def is_matrix(points: Array, columns: int, *, least: int = 1, most: int) -> bool:
    """Whether these are points of so many columns, not more than `most`."""
    return points.ndim == 2 and least <= len(points) <= most and points.shape[1] == columns


def is_vector(values: Array, length: int) -> bool:
    """Whether these are so many numbers in a row."""
    return values.shape == (length,)


def is_at_most(values: Array, bound: Array | float) -> bool:
    """Whether all magnitudes are finite and at most the bound."""
    return bool((np.abs(np.asarray(values, np.float64)) <= bound).all())


def is_positive(values: Array) -> bool:
    """Whether all numbers are finite and positive."""
    return bool((np.isfinite(values) & (values > 0)).all())


def is_subset(numbers: Array, count: int) -> bool:
    """Whether these are different numbers of things that are counted from 0."""
    known = numbers.ndim == 1 and bool(((numbers >= 0) & (numbers < count)).all())
    return known and len(np.unique(numbers)) == len(numbers)


def fits_points(terms: StudyTerms, view: View, points: Array, most: int | None = None) -> bool:
    """Whether these are at most K points (or `most`) in the columns, and not far beyond where rows can be.

    The difference of a row to a very distant point would be rounded: whether it changes shows on which side of a
    threshold the row lies.
    """
    if not is_matrix(points, terms.columns, most=terms.max_clusters if most is None else most):
        return False
    return is_at_most(points, farthest_points(terms, view))


def farthest_points(terms: StudyTerms, view: View) -> Floats:
    """How far out a centre may lie in each column of a view."""
    far = np.ldexp(1.0, view.exponents + POINT_SLACK_BITS)
    if terms.given is not None and len(terms.given):
        far = np.maximum(far, 2 * np.abs(view.transform_points(terms.given)).max(axis=0))
    return np.asarray(far, np.float64)


def is_fine_unit(unit: Units, usual: Units) -> bool:
    """Whether a unit of rounding is that which the bounds give, or finer; a coarser one would be a threshold."""
    return bool((unit <= usual).all() and (unit >= usual - MAX_FINER_BITS).all())


def is_fine_power(power: int, usual: int) -> bool:
    """The same for the power of two that bounds a row's share of a sum, from which its unit follows."""
    return usual - MAX_FINER_BITS <= power <= usual


def is_bounded_view(terms: StudyTerms, view: View) -> bool:
    """Whether a view has the study's form: its shape, its rule for missing values, and what its scale allows."""
    width = terms.columns
    if view.missing != terms.missing or not is_vector(view.exponents, width):
        return False
    if view.origin is None or view.spread is None:
        return view.origin is view.spread
    shaped = is_vector(view.origin, width) and is_vector(view.spread, width)
    if not shaped or not np.isfinite(view.origin).all() or not is_positive(view.spread):
        return False
    if terms.scale == "minmax" and terms.low is not None and terms.high is not None and terms.max_scaled_views == 1:
        wide = np.where(terms.high > terms.low, terms.high - terms.low, 1.0)
        return bool(np.array_equal(view.origin, terms.low) and np.array_equal(view.spread, wide))
    return terms.max_scaled_views > 0


def declared_exponents(terms: StudyTerms) -> Units | None:
    """The powers of two that the study's declared bounds give, or None."""
    if terms.low is None or terms.high is None:
        return None
    largest = np.maximum(np.abs(terms.low), np.abs(terms.high))
    return np.array([power_above(value) for value in largest.tolist()], np.int32)
