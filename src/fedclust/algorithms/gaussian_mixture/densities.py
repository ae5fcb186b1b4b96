"""What a site answers about Gaussian mixtures: one sweep over its rows evaluates any number of them.

With r_ik = pi_k N(x_i | m_k, S_k) / sum_l pi_l N(x_i | m_l, S_l), a round asks for

    n_k = sum r_ik    sum r_ik x_i    sum r_ik x_i^2
    l = sum log sum_k pi_k N(x_i | m_k, S_k)          E = -sum r_ik log r_ik

in columns whose mean is 0. Every operation on a row is elementwise and in a fixed order, every term becomes an integer
before it is added: the sums do not depend on blocks or sites.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.method_contracts import fits_centered, fits_mixture_products, fits_mixtures
from fedclust.core.effects import handler
from fedclust.core.errors import OutOfBounds
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.core.row_weights import tally_unit_weights, tally_weights
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats, Limbs, Units
from fedclust.kernels import distances, elementary
from fedclust.kernels import exact_sums as exact
from fedclust.kernels.exact_sums import Sums
from fedclust.kernels.fine_sums import fine_sums
from fedclust.kernels.units import TERM_BITS, bounds_above, unit_of
from fedclust.questions import bounds

LOG_DENSITY_BITS = 91  # a log density is rounded to 2^-91 of its bound, which lies far off
ENTROPY_UNIT = unit_of(4)  # -sum_k r log r <= log K < 2^4


@dataclass(frozen=True)
class Gaussians:
    """One mixture as the sites evaluate it: log pi_k N(x | m_k, S_k) = offset_k - |x - m_k|^2_S / 2.

    `variance` is (1, 1), (K, 1) or (K, F). EEE: means in whitened columns, x -> x + sum_j gain_j (axis_j x) axis_j.
    `nearest` gives each row wholly to the nearest mean.
    """

    family: str
    offset: Floats
    means: Floats
    variance: Floats
    axes: Floats
    gains: Floats
    unit: int  # of the log density of a row, which is at most 2^(unit + 51)


@dataclass(frozen=True)
class MixturesQuestion(ViewedQuestion):
    """Mixtures to evaluate in one sweep over the rows."""

    view: View
    reach: Units
    root: Floats | None
    mixtures: tuple[Gaussians, ...]

    def sums_per_component(self, mixture: Gaussians) -> int:
        """Sums per component in addition to its mass: x, and x^2 or |x|^2."""
        return len(self.reach) * 2 if _is_by_column(mixture) else len(self.reach) + 1

    def units(self, mixture: Gaussians) -> tuple[Units, Units]:
        """The units of mass and of the sums, from bounds on a single row's term."""
        squares = 2 * self.reach
        if not _is_by_column(mixture):
            squares = bounds_above([math.fsum(np.ldexp(1.0, 2 * self.reach).tolist())])
        k = len(mixture.means)
        return np.full(k, unit_of(0), np.int32), np.tile(unit_of(np.concatenate([self.reach, squares])), (k, 1))


@dataclass(frozen=True)
class MixtureMoments(Release):
    mass: Exact = additive("the total weight of each component of each mixture", cells=True)
    pull: Exact = additive("for each component, the weighted sum of the rows, and of their squares")
    log: Exact = additive("the log-likelihood of each mixture")
    entropy: Exact = additive("the entropy of the rows' memberships in each mixture")


def component_weights(site: Site, ask: MixturesQuestion) -> Floats:
    """What the rows weigh in each component of each mixture."""
    return np.concatenate([tally_weights(_block_weights(site, ask, g)) for g in ask.mixtures], axis=1)


def _block_weights(site: Site, ask: MixturesQuestion, g: Gaussians) -> Iterator[Floats]:
    for block in site.blocks(ask.view):
        x = check_reach(np.asarray(block, np.float64), ask.reach)
        white = whiten(x, ask.root) if ask.root is not None and g.family == "EEE" else x
        yield _responsibilities(component_scores(g, white), hard=_is_nearest(g))[0]


@handler(releases=MixtureMoments, row_weights=component_weights, contract=fits_mixtures)
def moments(site: Site, ask: MixturesQuestion) -> MixtureMoments:
    """One sweep over the rows for all mixtures."""
    units = [ask.units(g) for g in ask.mixtures]
    sums = [Sums.zeros(mass, pull, 0) for mass, pull in units]
    log_units = np.array([log_density_unit(g) for g in ask.mixtures], np.int32)
    logs, entropies = np.zeros((2, len(ask.mixtures), 2), np.uint64)
    for block in site.blocks(ask.view):
        x = check_reach(np.asarray(block, np.float64), ask.reach)
        white = whiten(x, ask.root) if ask.root is not None else x
        norm = np.concatenate([x, distances.squared_distances(x, np.zeros((1, len(x))))])
        square = np.concatenate([x, x * x]) if any(map(_is_by_column, ask.mixtures)) else norm
        for j, g in enumerate(ask.mixtures):
            t = component_scores(g, white if g.family == "EEE" else x)
            r, log, entropy = _responsibilities(t, hard=_is_nearest(g))
            exact.add_weighted(sums[j], square if _is_by_column(g) else norm, r)
            exact.add_in_place(logs[j], _sum_of_logs(log, g))
            exact.add_in_place(entropies[j], exact.exact_totals(entropy[None], ENTROPY_UNIT)[0])
    return MixtureMoments(
        Exact(np.concatenate([s.mass for s in sums]), np.concatenate([mass for mass, _ in units])),
        Exact(
            np.concatenate([s.pull.reshape(-1, 2) for s in sums]), np.concatenate([pull.ravel() for _, pull in units])
        ),
        Exact(logs, log_units),
        Exact(entropies, ENTROPY_UNIT),
    )


def component_scores(g: Gaussians, x: Floats) -> Floats:
    """The scores log pi_k N(x | m_k, S_k), components by rows, of a block of columns (whitened ones for EEE)."""
    if g.family == "VVI":
        scale = 1 / np.sqrt(g.variance)
        means = (g.means * scale)[:, None, :]
        d2 = np.concatenate([distances.squared_distances(x * s[:, None], m) for s, m in zip(scale, means, strict=True)])
    elif g.family == "EEE":
        d2 = distances.squared_distances(_straighten_rows(x, g), g.means)
    else:
        d2 = distances.squared_distances(x, g.means) / g.variance
    return np.asarray(g.offset[:, None] - 0.5 * d2, np.float64)


def log_density(t: Floats) -> Floats:
    """The log of sum_k exp(t_k) of each row, the components added in their order."""
    top = t.max(axis=0)
    return np.asarray(top + elementary.log(_sum_in_order(elementary.exp(t - top))), np.float64)


def whiten(x: Floats, root: Floats) -> Floats:
    """root^-1 x by forward substitution, in an order that no shape of a block changes."""
    z = x.copy()
    for at in range(0, z.shape[1], 1024):
        part = z[:, at : at + 1024]
        for f in range(len(z)):
            part[f] /= root[f, f]
            part[f + 1 :] -= root[f + 1 :, f, None] * part[f]
    return z


def _straighten_rows(z: Floats, g: Gaussians) -> Floats:
    along = np.zeros((len(g.axes), z.shape[1]))
    for f in range(len(z)):
        along += g.axes[:, f, None] * z[f]
    out = z.copy()
    for j in range(len(g.axes)):
        out += (g.gains[j] * g.axes[j])[:, None] * along[j]
    return out


def _responsibilities(t: Floats, *, hard: bool) -> tuple[Floats, Floats, Floats]:
    """Responsibilities r (K, n), and of each row the log density and -sum_k r log r."""
    n = t.shape[1]
    if hard:
        r = np.asarray(t.argmax(axis=0) == np.arange(len(t))[:, None], np.float64)
        return r, np.zeros(n), np.zeros(n)
    top = t.max(axis=0)
    e = elementary.exp(t - top)
    s = _sum_in_order(e)
    log = top + elementary.log(s)
    r = e / s
    return r, log, _sum_in_order(r * (log - t))


def _sum_in_order(terms: Floats) -> Floats:
    out = np.zeros(terms.shape[1])
    for term in terms:
        out += term
    return out


def check_reach(x: Floats, reach: Units) -> Floats:
    """The block itself, if it keeps to the bounds that its sums need."""
    if x.size and (np.abs(x).max(axis=1) > np.ldexp(1.0, reach)).any():
        raise OutOfBounds("a value is beyond the bound agreed on before; keep the data unchanged during a run")
    return x


def log_density_unit(g: Gaussians) -> int:
    """The unit of the sum of log densities: a bound 2^40 times too wide costs no digits."""
    return g.unit + TERM_BITS - LOG_DENSITY_BITS


def _sum_of_logs(log: Floats, g: Gaussians) -> Limbs:
    """The exact sum of log densities, in that unit."""
    if log.size and np.abs(np.rint(np.ldexp(log, -g.unit))).max() > 2.0**TERM_BITS:
        raise OutOfBounds("a log density exceeds its bound; site and coordinator must run the same version of fedclust")
    return np.asarray(fine_sums(log[None], log_density_unit(g), LOG_DENSITY_BITS)[0], np.uint64)


def _is_nearest(g: Gaussians) -> bool:
    return g.family == "nearest"


def _is_by_column(g: Gaussians) -> bool:
    return g.family in ("VVI", "nearest")


@dataclass(frozen=True)
class CenteredQuestion(ViewedQuestion):
    """A view whose columns have mean 0."""

    view: View


@handler(releases=bounds.MagnitudeMarks, max_distinct=3, contract=fits_centered)
def mark_deviations(site: Site, ask: CenteredQuestion) -> bounds.MagnitudeMarks:
    """A mark per column at the smallest power of two above its largest deviation from the mean."""
    most = np.zeros(len(site.columns))
    for block in site.blocks(ask.view):
        most = np.maximum(most, np.abs(block).max(axis=1, initial=0.0))
    return bounds.MagnitudeMarks(Exact.from_counts(bounds.mark_exponents(most)))


@dataclass(frozen=True)
class CovarianceProducts(Release):
    products: Exact = additive("for each pair of columns, the sum of their products over all rows, for the covariance")


@dataclass(frozen=True)
class ScatterQuestion(ViewedQuestion):
    """Which rows to multiply column by column."""

    view: View
    reach: Units


def _row_weights(site: Site, ask: ScatterQuestion) -> Floats:
    """How many rows the site has."""
    return tally_unit_weights(np.array([sum(block.shape[1] for block in site.blocks(ask.view))]))


@handler(releases=CovarianceProducts, row_weights=_row_weights, contract=fits_mixture_products)
def scatter_matrix(site: Site, ask: ScatterQuestion) -> CovarianceProducts:
    """Sum x x^T over the rows, columns by columns."""
    unit = unit_of(ask.reach[:, None] + ask.reach[None, :])
    sums = Sums.zeros(unit_of(ask.reach), unit, 0)
    for block in site.blocks(ask.view):
        x = check_reach(np.asarray(block, np.float64), ask.reach)
        exact.add_weighted(sums, x, x)
    return CovarianceProducts(Exact(sums.pull, unit))
