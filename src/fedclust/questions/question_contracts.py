"""Which questions about columns, clusters and ids a study asks before and after its method."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedclust.core import wire
from fedclust.core.study_terms import (
    POINT_SLACK_BITS,
    StudyTerms,
    fits_points,
    is_at_most,
    is_bounded_view,
    is_fine_power,
    is_fine_unit,
    is_matrix,
    is_subset,
    is_vector,
)
from fedclust.kernels.units import bounds_above, partial_distance_bound, squared_distance_bound, unit_of

if TYPE_CHECKING:
    from fedclust.core.site_interface import View
    from fedclust.core.types import Array
    from fedclust.questions.alignment import CommonCount, CommonTags, ReturnedList, SiteRing
    from fedclust.questions.bounds import ColumnsQuestion
    from fedclust.questions.choice_of_k.k_range import LocalKQuestion
    from fedclust.questions.cluster_indices import IndexQuestion, LabelScatterQuestion, LabelsQuestion
    from fedclust.questions.cluster_indices_columns import CenterGapsQuestion, LabelChunk, MeanDistancesQuestion
    from fedclust.questions.composition import CompositionQuestion
    from fedclust.questions.missing_values import GapCountsQuestion
    from fedclust.questions.pca import Plane, ProductsQuestion, SpreadQuestion
    from fedclust.questions.ranges import RangesQuestion
    from fedclust.questions.schema import DeclarationsQuestion
    from fedclust.questions.standardisation import ColumnSumsQuestion

MIN_INDEX_CENTERS = 2  # a blind run asks for an index even with one cluster, as if it had two
INDEX_POWER = 1.0  # the power q of the indices in a report
GAP_POWER = 2.0  # the power p of the distances between centres in a report


def fits_columns(terms: StudyTerms, ask: ColumnsQuestion) -> bool:
    """The study's number of columns and its rule for missing values."""
    return terms.opens_rows and ask.count == terms.columns and ask.missing == terms.missing


def fits_gap_counts(terms: StudyTerms, ask: GapCountsQuestion) -> bool:
    """Counts of missing values, if the study allows any."""
    return terms.opens_rows and terms.missing != "refuse" and ask.missing == terms.missing


def fits_declarations(terms: StudyTerms, ask: DeclarationsQuestion) -> bool:
    """Declarations of columns that the study names."""
    rule = ask.missing in {terms.missing, "drop" if terms.is_private else "refuse"}
    return rule and set(ask.columns) <= terms.column_names and len(ask.columns) <= len(terms.column_names)


def fits_column_sums(terms: StudyTerms, ask: ColumnSumsQuestion) -> bool:
    """Sums of columns, or of squared deviations from means within the bounds, in units that are no thresholds."""
    if not (terms.opens_rows and is_vector(ask.unit, terms.columns)):
        return False
    if ask.mean is None:
        return bool(np.array_equal(ask.unit, unit_of(ask.view.exponents)))
    far = np.ldexp(1.0, ask.view.exponents)
    if not is_vector(ask.mean, terms.columns) or not is_at_most(ask.mean, far):
        return False
    return is_fine_unit(ask.unit, unit_of(bounds_above(((far + np.abs(ask.mean)) ** 2).tolist())))


def fits_ranges(terms: StudyTerms, ask: RangesQuestion) -> bool:
    """How far rows reach, for the scales that use it."""
    return terms.opens_rows and terms.method == "summary-clustering" and ask.view.origin is not None


def fits_local_k(terms: StudyTerms, ask: LocalKQuestion) -> bool:
    """A site's own number of clusters, if the study leaves the range of K to the sites."""
    return terms.opens_rows and terms.finds_range and is_bounded_view(terms, ask.view)


def distance_bound(view: View, centers: Array) -> int:
    """The power of two above any squared distance, roundings included."""
    bound = partial_distance_bound if view.missing == "partial" else squared_distance_bound
    return bound(view.exponents, centers) + 1


def fits_described_centers(terms: StudyTerms, view: View, centers: Array) -> bool:
    """At most K centres that a report describes; two where there is one."""
    most = max(terms.max_clusters, MIN_INDEX_CENTERS)
    return terms.opens_rows and not terms.opening_floor and fits_points(terms, view, centers, most)


def fits_index(terms: StudyTerms, ask: IndexQuestion) -> bool:
    """The sums of the indices in a report, at the study's fuzziness and the usual power."""
    known = ask.terms.m == terms.fuzziness or (ask.terms.m == 2 and len(ask.centers) == MIN_INDEX_CENTERS)
    usual = ask.terms.q == INDEX_POWER and len(set(ask.terms.parts)) == len(ask.terms.parts)
    centers = fits_described_centers(terms, ask.view, ask.centers)
    return known and usual and centers and is_fine_power(ask.terms.reach, distance_bound(ask.view, ask.centers))


def fits_labels(terms: StudyTerms, ask: LabelsQuestion) -> bool:
    """Rows of at most K labels."""
    return fits_described_centers(terms, ask.view, ask.centers)


def fits_label_scatter(terms: StudyTerms, ask: LabelScatterQuestion) -> bool:
    """Distances of rows to the means of their labels, in the unit that the view gives."""
    centers = fits_described_centers(terms, ask.view, ask.centers) and ask.means.shape == ask.centers.shape
    means = centers and fits_described_centers(terms, ask.view, ask.means)
    return means and is_fine_power(ask.reach, distance_bound(ask.view, ask.means))


def fits_products(terms: StudyTerms, ask: ProductsQuestion) -> bool:
    """Products of columns for the map of a report, in units that are no thresholds."""
    if not (terms.opens_rows and is_subset(ask.columns, terms.columns) and is_vector(ask.mean, len(ask.columns))):
        return False
    far = np.ldexp(1.0, ask.view.exponents[ask.columns])
    one, other = np.triu_indices(len(ask.columns))
    if not is_at_most(ask.mean, far) or not is_vector(ask.unit, len(one)):
        return False
    reach = far + np.abs(ask.mean)
    return is_fine_unit(ask.unit, unit_of(bounds_above((reach[one] * reach[other]).tolist())))


def fits_plane(terms: StudyTerms, view: View, plane: Plane, places: Array, reach: int) -> bool:
    """Directions of length one through the mean of the columns, and the unit that follows from them."""
    width = len(plane.columns)
    if not is_subset(plane.columns, terms.columns) or plane.axes.shape != (2, width):
        return False
    shaped = is_vector(plane.mean, width) and is_vector(plane.reach, width) and is_vector(plane.variances, width)
    far = 2 * np.ldexp(1.0, view.exponents[plane.columns])
    near = shaped and is_at_most(plane.mean, far) and is_at_most(plane.reach, 1.001 * far)
    if not near or not is_at_most(plane.axes, 1.001) or not is_matrix(places, 2, most=len(places)):
        return False
    largest = float((np.ldexp(far, POINT_SLACK_BITS)).sum())
    if not is_at_most(places, largest) or not is_at_most(plane.variances, largest * largest):
        return False
    widest = float((np.abs(plane.axes) * far).sum(axis=1).max(initial=0.0) + np.abs(places).max(initial=0.0))
    return is_fine_power(reach, math.ceil(math.log2(widest or 1.0)) + 2)


def fits_spread(terms: StudyTerms, ask: SpreadQuestion) -> bool:
    """The spread of at most K clusters in the plane of a report."""
    centers = fits_described_centers(terms, ask.view, ask.centers) and len(ask.places) == len(ask.centers)
    return centers and fits_plane(terms, ask.view, ask.plane, ask.places, ask.reach)


def fits_composition(terms: StudyTerms, ask: CompositionQuestion) -> bool:
    """How each site's rows spread over the clusters, which only plain studies ask for."""
    return terms.aggregation == "plain" and fits_described_centers(terms, ask.view, ask.centers)


def _describes_columns(terms: StudyTerms) -> bool:
    return terms.split == "columns" and not terms.labels_only


def fits_center_gaps(terms: StudyTerms, ask: CenterGapsQuestion) -> bool:
    """Distances between the centres, or the means, that sites hold slices of."""
    return _describes_columns(terms) and ask.which in ("centers", "means") and ask.p == GAP_POWER


def fits_label_chunk(terms: StudyTerms, ask: LabelChunk) -> bool:
    """Labels of at most K clusters."""
    labels = ask.labels.ndim == 1 and bool(((ask.labels >= 0) & (ask.labels < ask.clusters)).all())
    return _describes_columns(terms) and labels and ask.start >= 0 and 1 <= ask.clusters <= terms.max_clusters


def fits_mean_distances(terms: StudyTerms, ask: MeanDistancesQuestion) -> bool:
    """Distances of some rows to the means of their labels."""
    labels = ask.labels.ndim == 1 and bool(((ask.labels >= 0) & (ask.labels < terms.max_clusters)).all())
    return _describes_columns(terms) and labels and ask.start >= 0


def fits_ring(terms: StudyTerms, ask: SiteRing) -> bool:
    """A ring of all sites, under the study's rule for repeated ids."""
    whole = sorted(ask.parties) == sorted(terms.parties)
    return bool(terms.alignment) and whole and ask.duplicates == terms.alignment


def fits_lone_ring(terms: StudyTerms, ask: SiteRing) -> bool:
    """The same in a study of one site."""
    return len(terms.parties) == 1 and fits_ring(terms, ask)


def fits_list(terms: StudyTerms, ask: ReturnedList) -> bool:
    """A list of ids that passes round the ring of all sites."""
    from fedclust.questions.alignment import SiteRing  # noqa: PLC0415 that module names this contract

    return len(ask.messages) == 1 and fits_ring(terms, wire.decode(SiteRing, ask.note))


def fits_common_count(terms: StudyTerms, ask: CommonCount) -> bool:
    """How many rows all sites have."""
    return bool(terms.alignment) and ask.common >= 0


def fits_common_tags(terms: StudyTerms, ask: CommonTags) -> bool:
    """The tags of the rows that all sites have."""
    return bool(terms.alignment) and ask.tags.ndim == 2
