"""Which questions the methods of one round, the published baselines and the mixtures ask in a study."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedclust.core.ring import power_above
from fedclust.core.study_terms import (
    POINT_SLACK_BITS,
    StudyTerms,
    farthest_points,
    fits_points,
    is_at_most,
    is_fine_power,
    is_matrix,
    is_positive,
    is_vector,
)
from fedclust.kernels import elementary
from fedclust.kernels.units import unit_of
from fedclust.privacy.sparse_sums import FIELD_PRIME

if TYPE_CHECKING:
    from fedclust.algorithms.fcac.site_nets import Batch as NodesBatch
    from fedclust.algorithms.fuzzy_baselines.averaged_fcm import LocalCentersQuestion
    from fedclust.algorithms.fuzzy_baselines.gradient_fcm import GradientQuestion
    from fedclust.algorithms.fuzzy_baselines.local_fcm import CostQuestion
    from fedclust.algorithms.gaussian_mixture.densities import (
        CenteredQuestion,
        Gaussians,
        MixturesQuestion,
        ScatterQuestion,
    )
    from fedclust.algorithms.kfed import DeviceQuestion
    from fedclust.algorithms.mufc import Count
    from fedclust.algorithms.summary_clustering.summaries import Batch as SummariesBatch
    from fedclust.core.site_interface import View
    from fedclust.core.types import Units

AVERAGED, GRADIENT = "averaged-fuzzy-c-means", "gradient-fuzzy-c-means"
ANY_BOUND = 127  # the bound of values in questions whose answers are not sums
MAX_GRID_LEVELS = 1 << 20  # of a grid, for as many rows squared
MIN_REACH = -1100  # no float has a smaller bound
MAX_LOG_DENSITY = 1000.0  # of a component in each column
FARTHEST_SHARE = 1e9  # of a row's deviation over the least deviation of a component


def fits_devices(terms: StudyTerms, ask: DeviceQuestion) -> bool:
    """Each site's centres, once: as many, and of as many rows, as the study says."""
    asked = ask.count == terms.local_clusters and ask.least == terms.min_rows
    return terms.opens_rows and terms.method == "k-fed" and asked and ask.seed in terms.seeds


def fits_counts(terms: StudyTerms, ask: Count) -> bool:
    """Cells of a grid in the columns: as many picks, and of as many rows, as the study says."""
    if not (terms.opens_rows and terms.method == "mufc") or ask.seed not in terms.seeds or ask.again:
        return False
    grid, far = ask.grid, np.ldexp(1.0, ask.view.exponents + 5)
    asked = ask.count == terms.local_clusters and ask.least == terms.min_rows
    sized = asked and ask.most == terms.local_clusters * len(terms.parties)
    levels = grid.levels == terms.levels if terms.levels else 1 <= grid.levels <= MAX_GRID_LEVELS
    box = is_vector(grid.low, terms.columns) and is_vector(grid.high, terms.columns)
    if not (sized and levels and box and is_at_most(grid.low, far) and is_at_most(grid.high, far)):
        return False
    parts = -(-terms.columns // grid.columns_per_number)
    mix = np.random.default_rng((ask.seed, 3)).integers(1, FIELD_PRIME, parts)
    return bool(np.array_equal(grid.mix, mix))


def fits_summaries(terms: StudyTerms, ask: SummariesBatch) -> bool:
    """Summaries of the site's rows, each of as many rows as the study says."""
    known = terms.opens_rows and terms.method == "summary-clustering"
    damped = not ask.damped or terms.scale == "damped"
    return known and damped and ask.floor == terms.min_rows and bool((ask.view.exponents == ANY_BOUND).all())


def fits_nodes(terms: StudyTerms, ask: NodesBatch) -> bool:
    """The nodes of a net, as large as the study says."""
    known = terms.opens_rows and terms.method == "fcac" and ask.max_nodes == terms.max_nodes
    return known and bool((ask.view.exponents == ANY_BOUND).all())


def fits_cost(terms: StudyTerms, ask: CostQuestion) -> bool:
    """The objective at at most K centres."""
    known = terms.opens_rows and terms.method in (AVERAGED, GRADIENT, "k-fed", "mufc")
    return known and ask.m == terms.fuzziness and fits_points(terms, ask.view, ask.centers)


def fits_local_centers(terms: StudyTerms, ask: LocalCentersQuestion) -> bool:
    """Where a site alone would put at most K centres."""
    known = terms.opens_rows and terms.method == AVERAGED and ask.tol == terms.local_tol
    return known and ask.m == terms.fuzziness and fits_points(terms, ask.view, ask.centers)


def fits_gradient(terms: StudyTerms, ask: GradientQuestion) -> bool:
    """The gradient at at most K centres, which may run away from the rows."""
    known = terms.opens_rows and terms.method == GRADIENT and ask.rounds == terms.local_rounds
    shaped = is_matrix(ask.centers, terms.columns, most=terms.max_clusters)
    near = shaped and is_at_most(ask.centers, np.ldexp(1.0, ask.view.exponents + 20))
    return known and ask.m == terms.fuzziness and near


def _is_mixture_study(terms: StudyTerms) -> bool:
    return terms.opens_rows and terms.method == "gaussian-mixture"


def fits_centered(terms: StudyTerms, ask: CenteredQuestion) -> bool:
    """How far the columns of a mixture reach."""
    return _is_mixture_study(terms) and ask.view.origin is not None


def _is_tight(terms: StudyTerms, view: View, reach: Units) -> bool:
    """Whether centred columns are bounded by what sites marked: a power of two at most that of the view."""
    return is_vector(reach, terms.columns) and bool(((reach <= view.exponents) & (reach >= MIN_REACH)).all())


def fits_mixture_products(terms: StudyTerms, ask: ScatterQuestion) -> bool:
    """The covariance of all columns, for the family that needs it."""
    return _is_mixture_study(terms) and terms.family == "EEE" and _is_tight(terms, ask.view, ask.reach)


def fits_mixtures(terms: StudyTerms, ask: MixturesQuestion) -> bool:
    """One mixture of at most K components of the study's family, or the nearest of so many places."""
    if not (_is_mixture_study(terms) and _is_tight(terms, ask.view, ask.reach) and len(ask.mixtures) == 1):
        return False
    if ask.root is not None and (terms.family != "EEE" or ask.root.shape != (terms.columns, terms.columns)):
        return False
    g = ask.mixtures[0]
    if g.family not in (terms.family, "nearest") or not is_component_set(terms, g):
        return False
    far, white = np.ldexp(1.0, ask.reach + POINT_SLACK_BITS), g.family == "EEE"
    if terms.given is not None:
        far = farthest_points(terms, ask.view)
    near = is_at_most(g.means, FARTHEST_SHARE if white else far) and is_at_most(
        g.variance, 1.0 if white or g.family == "nearest" else float((far * far).sum())
    )
    if g.family == "nearest":
        return near and g.unit == 0 and is_at_most(g.offset, 0.0)
    return near and is_fine_power(g.unit, _log_unit(ask, g))


def is_component_set(terms: StudyTerms, g: Gaussians) -> bool:
    """Whether at most K components have means and variances of one shape, and numbers of a usual size."""
    columns, count = terms.columns, len(g.offset)
    if not is_matrix(g.means, columns, most=terms.max_clusters) or not is_vector(g.offset, len(g.means)):
        return False
    axes = g.axes.ndim == 2 and g.axes.shape[1] == columns and len(g.axes) <= min(count, columns)
    sized = axes and is_vector(g.gains, len(g.axes)) and g.variance.shape in {(1, 1), (count, 1), (count, columns)}
    usual = sized and is_positive(g.variance) and is_at_most(g.offset, MAX_LOG_DENSITY * (columns + 2))
    return usual and is_at_most(g.axes, FARTHEST_SHARE) and is_at_most(g.gains, FARTHEST_SHARE)


def _log_unit(ask: MixturesQuestion, g: Gaussians) -> int:
    """The unit of a log density that the bounds give, if no component is far narrower than the columns are wide."""
    width = float(np.ldexp(1.0, int(ask.reach.max(initial=0)) + 1))
    far = (FARTHEST_SHARE**2) * len(ask.reach)
    if g.family != "EEE":
        exact = float((((np.ldexp(1.0, ask.reach) + np.abs(g.means)) ** 2) / g.variance).sum(axis=1).max())
        far = min(exact, far)
    bound = float(np.abs(g.offset).max()) + far / 2 + elementary.log_of(len(g.offset)) + 1
    usual = 1000.0 * (len(ask.reach) + 2) + far / 2 + math.log(max(width, 2.0)) + 64
    return int(unit_of(power_above(2 * min(bound, usual)))) + 1
