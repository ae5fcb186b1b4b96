"""Where the clusters lie in the plane that shows most: principal components from sums, and the spread around centres.

Means and covariances are totals of exact terms: every partition of the rows gives the same plane, bit for bit, and no
row leaves its site. A gap counts as its column's mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.shared.eigenvectors import eigen
from fedclust.core.effects import Protocol, handler, total
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, additive, additive_counts
from fedclust.core.ring import Exact, power_above
from fedclust.core.row_weights import tally_unit_weights
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Bools, Floats, Ints, Limbs, Units
from fedclust.kernels import distances, exact_sums
from fedclust.kernels import gap_sweep as gapped
from fedclust.kernels.units import bounds_above, farthest_in_columns, unit_of
from fedclust.questions.question_contracts import fits_products, fits_spread
from fedclust.questions.standardisation import ColumnStatistics, rare_levels

MAX_PLANE_COLUMNS = 64  # whose products are 2,080 numbers
PLANE_CHUNK_ROWS = 1024  # rows whose terms are in memory together
PLANE_AXES = 2


@dataclass(frozen=True)
class Plane:
    """Two directions through the mean: a row's place is axes (x - mean), over the columns that were used.

    `variances` has one number per direction, all of them, in falling order.
    """

    columns: Ints
    mean: Floats
    axes: Floats
    variances: Floats
    reach: Floats  # no row deviates from the mean by more

    @property
    def variance_shares(self) -> tuple[float, ...]:
        """How much of the variance of the columns used each of the two directions shows."""
        whole = math.fsum(self.variances.tolist())
        shown = [*self.variances.tolist(), 0.0][:PLANE_AXES]
        return tuple(value / whole if whole else 0.0 for value in shown)

    def project_block(self, block: Array) -> Floats:
        """The places (2, n) of a block of columns (F, n); columns are added in their order, ever."""
        out = np.zeros((PLANE_AXES, block.shape[1]))
        for at, mean, weights in zip(self.columns, self.mean, self.axes.T, strict=True):
            away = np.asarray(block[at], np.float64) - mean
            out += weights[:, None] * np.where(np.isnan(away), 0.0, away)
        return out


@dataclass(frozen=True)
class ProductsQuestion(ViewedQuestion):
    """Which columns, their means, and the unit of each product of two."""

    view: View
    columns: Ints
    mean: Floats
    unit: Units


@dataclass(frozen=True)
class DeviationProducts(Release):
    rows: Exact = additive_counts("the total number of rows")
    products: Exact = additive("for each pair of columns, the sum of the products of the deviations from their means")


def _rows_with_both(site: Site, ask: ProductsQuestion) -> Floats:
    """For every two columns, how many rows have both."""
    there = np.zeros((len(ask.columns), len(ask.columns)), np.int64)
    for block in site.blocks(ask.view):
        known = (~np.isnan(block[ask.columns])).astype(np.int64)
        there += known @ known.T
    return tally_unit_weights(there[np.triu_indices(len(ask.columns))])


@handler(releases=DeviationProducts, row_weights=_rows_with_both, contract=fits_products)
def deviation_products(site: Site, ask: ProductsQuestion) -> DeviationProducts:
    """Sums over rows of the products of deviations, by pairs of columns."""
    one, other = np.triu_indices(len(ask.columns))
    found: Limbs = np.zeros((len(one), 2), np.uint64)
    for block in site.blocks(ask.view):
        for at in range(0, block.shape[1], PLANE_CHUNK_ROWS):
            piece = np.asarray(block[ask.columns, at : at + PLANE_CHUNK_ROWS], np.float64) - ask.mean[:, None]
            piece = np.where(np.isnan(piece), 0.0, piece)
            exact_sums.add_in_place(found, exact_sums.exact_totals(piece[one] * piece[other], ask.unit))
    return DeviationProducts(Exact.from_counts(site.rows), Exact(found, ask.unit))


def plane(view: View, found: ColumnStatistics, *, everyone: bool = True, floor: int = 1) -> Protocol[Plane]:
    """The two directions of most variance in a view, from one total.

    `found` are the columns' means and deviations; `everyone` says that no party is absent there or here. Levels that
    fewer than `floor` rows have are left out.
    """
    columns = widest_columns(found.sd, rare_levels(view, found, floor))
    mean = found.mean[columns]
    reach = farthest_in_columns(view.exponents[columns], mean[None])
    if everyone:
        # No deviation exceeds the root of the sum of their squares, which far from 0 is much nearer than the bounds.
        nearer = 1.001 * found.sd[columns] * np.sqrt(found.counts[columns]) + np.ldexp(np.abs(mean), -44)
        reach = np.where(nearer > 0, np.minimum(reach, nearer), reach)
    one, other = np.triu_indices(len(columns))
    unit = unit_of(bounds_above(reach[one] * reach[other]))
    answer = yield from total(deviation_products, ProductsQuestion(view, columns, mean, unit))
    covariance = np.zeros((len(columns), len(columns)))
    covariance[one, other] = answer.products.to_floats() / answer.rows.to_integers()[0]
    covariance[other, one] = covariance[one, other]
    variances, vectors = eigen(covariance)
    variances = np.maximum(variances, 0.0)
    axes = np.zeros((PLANE_AXES, len(columns)))
    axes[: len(vectors)] = vectors[:PLANE_AXES]
    return Plane(columns, mean, axes, variances, reach)


def widest_columns(sd: Floats, rare: Bools | None = None) -> Ints:
    """The columns to look at, in their order: all but rare levels, or as many of the largest deviations as may be."""
    ordered = np.argsort(-sd, kind="stable")
    if rare is not None:
        ordered = ordered[~rare[ordered]]
    return np.sort(ordered[:MAX_PLANE_COLUMNS]).astype(np.int64)


@dataclass(frozen=True)
class SpreadQuestion(ViewedQuestion):
    """Where the centres are, in all columns and in the plane: how do the rows nearest to each lie around it?"""

    view: View
    centers: Floats
    plane: Plane
    places: Floats
    reach: int


@dataclass(frozen=True)
class SpreadSums(Release):
    counts: Exact = additive("how many rows are nearest to each centre", cells=True)
    offsets: Exact = additive("for each centre, the sum of the offsets of its nearest rows in two directions")
    squares: Exact = additive("for each centre, the sum of the products of these offsets")


@handler(releases=SpreadSums, contract=fits_spread)
def spread_sums(site: Site, ask: SpreadQuestion) -> SpreadSums:
    """Counts and offsets in the plane of the rows nearest to each centre."""
    clusters = len(ask.centers)
    counts = np.zeros(clusters, np.int64)
    offsets: Limbs = np.zeros((PLANE_AXES * clusters, 2), np.uint64)
    squares: Limbs = np.zeros((3 * clusters, 2), np.uint64)
    units = unit_of(ask.reach), unit_of(2 * ask.reach)
    for block in site.blocks(ask.view):
        for at in range(0, block.shape[1], PLANE_CHUNK_ROWS):
            piece = block[:, at : at + PLANE_CHUNK_ROWS]
            labels = nearest_centers(piece, ask.centers, ask.view.missing)
            mine = np.asarray(labels == np.arange(clusters)[:, None], np.float64)
            x, y = ask.plane.project_block(piece) - ask.places.T[:, labels]
            counts += mine.sum(axis=1).astype(np.int64)
            exact_sums.add_in_place(offsets, exact_sums.exact_totals(_mask_by_cluster(mine, (x, y)), int(units[0])))
            exact_sums.add_in_place(
                squares, exact_sums.exact_totals(_mask_by_cluster(mine, (x * x, x * y, y * y)), int(units[1]))
            )
    shaped = offsets.reshape(clusters, PLANE_AXES, 2), squares.reshape(clusters, 3, 2)
    return SpreadSums(Exact.from_counts(counts), Exact(shaped[0], units[0]), Exact(shaped[1], units[1]))


def _mask_by_cluster(mine: Floats, values: tuple[Floats, ...]) -> Floats:
    """Each value where the row is the cluster's, else 0: clusters, then values, by rows."""
    return np.ascontiguousarray((mine[:, None] * np.stack(values)).reshape(-1, mine.shape[1]))


def nearest_centers(block: Array, centers: Floats, missing: str) -> Ints:
    """The nearest centre of each row, by the values it has."""
    found = (
        gapped.partial_labels(block, centers) if missing == "partial" else distances.nearest_centers(block, centers)[0]
    )
    return found.astype(np.int64)


@dataclass(frozen=True)
class ClusterSpread:
    """Around each centre: how many rows are nearest to it, where their mean lies, and their 2 x 2 covariance."""

    counts: Ints
    places: Floats
    means: Floats
    covariances: Floats


def cluster_spread(view: View, centers: Floats, seen: Plane) -> Protocol[ClusterSpread]:
    """The centres in the plane with their rows' mean and covariance there, from one total."""
    places, reach = place_centers(centers, seen)
    answer = yield from total(spread_sums, SpreadQuestion(view, centers, seen, places, reach))
    return spread_from_sums(places, answer)


def place_centers(centers: Floats, seen: Plane) -> tuple[Floats, int]:
    """Where centres lie in the plane, and an exponent above the offset of any row from any of them."""
    places = seen.project_block(np.ascontiguousarray(centers.T)).T
    far = np.abs(seen.axes) * seen.reach
    reach = power_above(float((far.sum(axis=1) + np.abs(places).max(axis=0)).max()) or 1.0) + 1
    return np.ascontiguousarray(places), reach


def sum_offsets(away: Floats, offsets: Limbs, squares: Limbs, units: tuple[int, int]) -> None:
    """Add the offsets (2, n) of rows, and the products of their coordinates, to their sums."""
    x, y = away
    exact_sums.add_in_place(offsets, exact_sums.exact_totals(np.ascontiguousarray(away), units[0]))
    exact_sums.add_in_place(squares, exact_sums.exact_totals(np.stack([x * x, x * y, y * y]), units[1]))


def spread_from_sums(places: Floats, answer: SpreadSums) -> ClusterSpread:
    """The mean and the covariance of the rows around each place."""
    counts = np.array(answer.counts.to_integers(), np.int64)
    rows = np.maximum(counts, 1)
    offset = answer.offsets.to_floats() / rows[:, None]
    xx, xy, yy = (answer.squares.to_floats() / rows[:, None]).T
    x, y = offset.T
    covariance = np.stack([xx - x * x, xy - x * y, xy - x * y, yy - y * y], axis=1).reshape(-1, 2, 2)
    return ClusterSpread(counts, places, places + offset, covariance)
