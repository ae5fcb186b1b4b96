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

from fedclust.core.effects import handler
from fedclust.core.errors import OutOfBounds
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.core.row_weights import each_one, tallied
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats, Limbs, Units
from fedclust.kernels import distances, elementary
from fedclust.kernels import exact_sums as exact
from fedclust.kernels.exact_sums import Sums
from fedclust.kernels.fine_sums import fine_sums
from fedclust.kernels.units import TERM_BITS, bounds_above, unit_of
from fedclust.questions import bounds

LOG_DENSITY_BITS = 91  # a log density is rounded to 2^-91 of its bound, which lies far off
ALL = 0  # the part that is all rows; 2h + 1 and 2h + 2 are the halves of halving h
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
    part: int = 0  # of the rows; see `half`


@dataclass(frozen=True)
class Sweep(ViewedQuestion):
    """Mixtures to evaluate in one sweep over the rows."""

    view: View
    reach: Units
    root: Floats | None
    seed: int
    mixtures: tuple[Gaussians, ...]

    def width(self, of: Gaussians) -> int:
        """Sums per component beside its mass: x, and x^2 or |x|^2."""
        return len(self.reach) * 2 if _by_column(of) else len(self.reach) + 1

    def units(self, of: Gaussians) -> tuple[Units, Units]:
        """The units of mass and of the sums, from bounds on a single row's term."""
        squares = 2 * self.reach
        if not _by_column(of):
            squares = bounds_above([math.fsum(np.ldexp(1.0, 2 * self.reach).tolist())])
        k = len(of.means)
        return np.full(k, unit_of(0), np.int32), np.tile(unit_of(np.concatenate([self.reach, squares])), (k, 1))


@dataclass(frozen=True)
class Moments(Release):
    mass: Exact = additive("the total weight of each component of each mixture", cells=True)
    pull: Exact = additive("the weighted sums of the rows of each component, and of their squares")
    log: Exact = additive("the log-likelihood of each mixture")
    entropy: Exact = additive("the entropy of the rows' memberships in each mixture")


def behind(site: Site, ask: Sweep) -> Floats:
    """What the rows weigh in each component of each mixture."""
    return np.concatenate([tallied(_weights(site, ask, g)) for g in ask.mixtures], axis=1)


def _weights(site: Site, ask: Sweep, g: Gaussians) -> Iterator[Floats]:
    for block in site.blocks(ask.view):
        x = half(within(np.asarray(block, np.float64), ask.reach), g.part, ask.seed)
        white = whiten(x, ask.root) if ask.root is not None and g.family == "EEE" else x
        yield _responsibilities(scores(g, white), hard=_nearest(g))[0]


@handler(releases=Moments, row_weights=behind)
def moments(site: Site, ask: Sweep) -> Moments:
    """One sweep over the rows for all mixtures."""
    units = [ask.units(g) for g in ask.mixtures]
    sums = [Sums.zeros(mass, pull, 0) for mass, pull in units]
    log_units = np.array([log_density_unit(g) for g in ask.mixtures], np.int32)
    logs, entropies = np.zeros((2, len(ask.mixtures), 2), np.uint64)
    for block in site.blocks(ask.view):
        whole = within(np.asarray(block, np.float64), ask.reach)
        for part in sorted({g.part for g in ask.mixtures}):
            x = half(whole, part, ask.seed)
            white = whiten(x, ask.root) if ask.root is not None else x
            norm = np.concatenate([x, distances.squared(x, np.zeros((1, len(x))))])
            square = np.concatenate([x, x * x]) if any(map(_by_column, ask.mixtures)) else norm
            for j, g in enumerate(ask.mixtures):
                if g.part == part:
                    t = scores(g, white if g.family == "EEE" else x)
                    r, log, entropy = _responsibilities(t, hard=_nearest(g))
                    exact.weighted(sums[j], square if _by_column(g) else norm, r)
                    exact.add(logs[j], _sum_of_logs(log, g))
                    exact.add(entropies[j], exact.exact(entropy[None], ENTROPY_UNIT)[0])
    return Moments(
        Exact(np.concatenate([s.mass for s in sums]), np.concatenate([mass for mass, _ in units])),
        Exact(
            np.concatenate([s.pull.reshape(-1, 2) for s in sums]), np.concatenate([pull.ravel() for _, pull in units])
        ),
        Exact(logs, log_units),
        Exact(entropies, ENTROPY_UNIT),
    )


def scores(g: Gaussians, x: Floats) -> Floats:
    """The scores log pi_k N(x | m_k, S_k), components by rows, of a block of columns (whitened ones for EEE)."""
    if g.family == "VVI":
        scale = 1 / np.sqrt(g.variance)
        means = (g.means * scale)[:, None, :]
        d2 = np.concatenate([distances.squared(x * s[:, None], m) for s, m in zip(scale, means, strict=True)])
    elif g.family == "EEE":
        d2 = distances.squared(_straightened(x, g), g.means)
    else:
        d2 = distances.squared(x, g.means) / g.variance
    return np.asarray(g.offset[:, None] - 0.5 * d2, np.float64)


def log_density(t: Floats) -> Floats:
    """The log of sum_k exp(t_k) of each row, the components added in their order."""
    top = t.max(axis=0)
    return np.asarray(top + elementary.log(_in_order(elementary.exp(t - top))), np.float64)


def whiten(x: Floats, root: Floats) -> Floats:
    """root^-1 x by forward substitution, in an order that no shape of a block changes."""
    z = x.copy()
    for at in range(0, z.shape[1], 1024):
        part = z[:, at : at + 1024]
        for f in range(len(z)):
            part[f] /= root[f, f]
            part[f + 1 :] -= root[f + 1 :, f, None] * part[f]
    return z


def _straightened(z: Floats, g: Gaussians) -> Floats:
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
    s = _in_order(e)
    log = top + elementary.log(s)
    r = e / s
    return r, log, _in_order(r * (log - t))


def _in_order(terms: Floats) -> Floats:
    out = np.zeros(terms.shape[1])
    for term in terms:
        out += term
    return out


def within(x: Floats, reach: Units) -> Floats:
    """The block itself, if it keeps to the bounds that its sums need."""
    if x.size and (np.abs(x).max(axis=1) > np.ldexp(1.0, reach)).any():
        raise OutOfBounds("a row lies beyond the bound that was agreed; the rows must not change during a run")
    return x


def log_density_unit(g: Gaussians) -> int:
    """The unit of the sum of log densities: a bound 2^40 times too wide costs no digits."""
    return g.unit + TERM_BITS - LOG_DENSITY_BITS


def _sum_of_logs(log: Floats, g: Gaussians) -> Limbs:
    """The exact sum of log densities, in that unit."""
    if log.size and np.abs(np.rint(np.ldexp(log, -g.unit))).max() > 2.0**TERM_BITS:
        raise OutOfBounds("a log density lies beyond its bound; both sides must run the same version of fedclust")
    return np.asarray(fine_sums(log[None], log_density_unit(g), LOG_DENSITY_BITS)[0], np.uint64)


def _nearest(g: Gaussians) -> bool:
    return g.family == "nearest"


def _by_column(g: Gaussians) -> bool:
    return g.family in ("VVI", "nearest")


def half(x: Floats, part: int, seed: int) -> Floats:
    """The rows of a block that are in a part, which a row's own bits and the seed decide, not who holds it.

    Halvings differ in the bit of the row's hash that they look at; rows that are equal stay together.
    """
    if part == ALL:
        return x
    hashed = np.full(x.shape[1], seed, np.uint64)
    for column in x + 0.0:  # -0 is 0
        hashed = _mixed(hashed ^ np.ascontiguousarray(column).view(np.uint64))
    halving, side = divmod(part - 1, 2)
    return np.ascontiguousarray(x[:, ((hashed >> np.uint64(halving)) & np.uint64(1)) == side])


def _mixed(h: Limbs) -> Limbs:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of h."""
    h = h + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(h ^ (h >> np.uint64(31)), np.uint64)


@dataclass(frozen=True)
class Centred(ViewedQuestion):
    """A view whose columns have mean 0."""

    view: View


@handler(releases=bounds.Marks, max_distinct=3)
def reach(site: Site, ask: Centred) -> bounds.Marks:
    """A mark per column at the smallest power of two above its largest deviation from the mean."""
    most = np.zeros(len(site.columns))
    for block in site.blocks(ask.view):
        most = np.maximum(most, np.abs(block).max(axis=1, initial=0.0))
    return bounds.Marks(Exact.counts(bounds.marked(most)))


@dataclass(frozen=True)
class Products(Release):
    products: Exact = additive("the sums of the products of columns, for the covariance of all rows")


@dataclass(frozen=True)
class Spread(ViewedQuestion):
    """Which rows to multiply column by column."""

    view: View
    reach: Units
    seed: int
    part: int = ALL


def _of_part(site: Site, ask: Spread) -> Floats:
    """How many rows the part has."""
    return each_one(np.array([sum(x.shape[1] for x in _rows(site, ask))]))


@handler(releases=Products, row_weights=_of_part)
def scatter(site: Site, ask: Spread) -> Products:
    """Sum x x^T over the rows of a part, columns by columns."""
    unit = unit_of(ask.reach[:, None] + ask.reach[None, :])
    sums = Sums.zeros(unit_of(ask.reach), unit, 0)
    for x in _rows(site, ask):
        exact.weighted(sums, x, x)
    return Products(Exact(sums.pull, unit))


def _rows(site: Site, ask: Spread) -> Iterator[Floats]:
    for block in site.blocks(ask.view):
        yield half(within(np.asarray(block, np.float64), ask.reach), ask.part, ask.seed)
