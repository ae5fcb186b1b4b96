"""Gaussian mixtures over rows that lie at several parties: EM in which both steps are exact sums.

Four families of covariance, by their usual names: EII v I, VII v_k I, VVI diag(v_k), EEE one full matrix for all.
Columns are centred first. As a row's responsibilities add to 1, the matrix of EEE is the total covariance less that of
the means: rows are whitened by the total (once a sweep, for any number of mixtures), and what is left differs from I in
at most K directions. Any number of mixtures climb together, one message a round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedclust.algorithms.cmeans.fit_result import Round, frobenius
from fedclust.algorithms.gaussian_mixture.densities import (
    CenteredQuestion,
    Gaussians,
    MixturesQuestion,
    ScatterQuestion,
    mark_deviations,
    moments,
    scatter_matrix,
    whiten,
)
from fedclust.algorithms.shared.eigenvectors import eigen
from fedclust.algorithms.shared.fixed_order import gram_matrix, matrix_product, ordered_sum, triangular_root
from fedclust.core.effects import Protocol, report, total
from fedclust.core.errors import StudyError
from fedclust.core.ring import power_above
from fedclust.core.site_interface import View
from fedclust.core.types import Floats, Units
from fedclust.kernels import elementary
from fedclust.kernels.units import bounds_above, unit_of
from fedclust.questions import bounds, standardisation

Family = Literal["EII", "VII", "VVI", "EEE"]
FAMILIES: tuple[Family, ...] = ("EII", "VII", "VVI", "EEE")
MIN_VARIANCE_FRACTION = (
    1e-5  # no variance below this share of the mean variance (VVI: of its column's; EEE: of its direction's)
)
MIN_EIGENVALUE = 1e-8  # columns closer to collinear than this are held apart
MIN_SPAN_SQUARE = 1e-14  # of the components' means along an axis, whitened: below this they do not lie apart there
MIN_COMPONENT_MASS = 2.0**-8  # a component of less mass keeps its place: too few digits to move it


@dataclass(frozen=True)
class Frame:
    """Columns with mean 0, bounded more tightly than a view's can be, and what all mixtures of them share."""

    view: View
    reach: Units  # |x| <= 2^reach
    rows: int
    variance: Floats  # of each column
    root: Floats | None = None  # lower triangular, root root^T = the total covariance; for EEE only

    @property
    def mean_variance(self) -> float:
        return float(self.variance.mean()) or 1.0

    @property
    def floors(self) -> Floats:
        """The least variance of each column; a constant one is taken to vary as the others do on average."""
        return np.where(self.variance > 0, MIN_VARIANCE_FRACTION * self.variance, self.mean_variance)


@dataclass(frozen=True)
class Mixture:
    """Parameters of a mixture; `variance` is (1, 1), (K, 1), (K, F) or, for EEE, (F, F)."""

    family: Family
    weights: Floats
    means: Floats
    variance: Floats


@dataclass(frozen=True)
class MixtureSums:
    """One mixture's sums over all rows; squares by column, or (K, 1) of whole rows."""

    mass: Floats
    pull: Floats
    squares: Floats
    log: float
    entropy: float


@dataclass(frozen=True)
class EvaluatedMixture:
    """A mixture, its log-likelihood and entropy, its components' masses and mean squared radii |x - m|^2 / D."""

    mixture: Mixture
    log: float
    entropy: float
    mass: Floats
    radii: Floats
    history: tuple[Round, ...] = ()
    converged: bool = False


NOTHING_SUMMED = MixtureSums(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)), -math.inf, 0.0)


@dataclass
class Climb:
    """One mixture on its way to more likelihood: the sums over its rows, and what the last round gained."""

    mixture: Mixture
    sums: MixtureSums = NOTHING_SUMMED
    gain: float = math.inf  # of the log-likelihood
    history: list[Round] = field(default_factory=list)

    def observe(self, sums: MixtureSums) -> None:
        self.gain = sums.log - self.sums.log
        self.sums = sums

    def is_level(self, rows: int, tol: float | None) -> bool:
        """Whether the last round raised the mean log-likelihood by less than `tol`."""
        return tol is not None and self.gain / rows < tol


def make_frame(view: View, *, full: bool, floor: int = 1) -> Protocol[Frame]:
    """Centre the columns, agree on how far they reach; with `full` also on the covariance of all rows.

    The covariance would show the values of few rows if fewer than `floor` rows have a level of a category.
    """
    found = yield from standardisation.column_statistics(view)
    if full and standardisation.rare_levels(view, found, floor).any():
        raise StudyError(
            f"fewer than {floor} rows have some level of a category, and family EEE needs the products of all columns, "
            "which would show these rows; merge rare levels, or choose another family"
        )
    origin, spread = (
        view.to_original_units(found.mean),
        np.ones(len(found.mean)) if view.spread is None else view.spread,
    )
    moved = np.abs(origin - (0.0 if view.origin is None else view.origin)) / spread
    loose = bounds_above(2.0 * (2.0**e + b) for e, b in zip(view.exponents, moved, strict=True))
    seen, rows = replace(view, exponents=loose, origin=origin, spread=spread), int(found.counts[0])
    tight = bounds.highest_exponents((yield from total(mark_deviations, CenteredQuestion(seen))).marks)
    out = Frame(seen, tight, rows, found.sd**2)
    if not full:
        return out
    return (yield from _add_root(out))


def _add_root(frame: Frame) -> Protocol[Frame]:
    sums = yield from total(scatter_matrix, ScatterQuestion(frame.view, frame.reach))
    covariance = sums.products.to_floats() / frame.rows
    out = replace(frame, variance=np.diag(covariance).copy())  # from tighter bounds, so with more digits
    return replace(out, root=_root(covariance, out))


def start_mixtures(
    frame: Frame, families: Sequence[Family], centers: Sequence[Floats]
) -> Protocol[list[list[Mixture]]]:
    """For each set of centres, each family's mixture if every row belongs to its nearest centre."""
    found = yield from sum_mixtures(frame, [nearest_gaussians(points) for points in centers])
    return [
        [maximization_step(family, frame, sums, points) for family in families]
        for sums, points in zip(found, centers, strict=True)
    ]


def run_em(
    frame: Frame,
    mixtures: Sequence[Mixture],
    *,
    tol: float | None,
    max_iter: int,
) -> Protocol[list[EvaluatedMixture]]:
    """EM from each mixture until a round raises the mean log-likelihood by less than `tol`, or for `max_iter`."""
    climbs = [Climb(start) for start in mixtures]
    active = climbs
    for number in range(1, max_iter + 1):
        yield from expectation_step(frame, active)
        active = [climb for climb in active if not climb.is_level(frame.rows, tol)]
        if not active:
            break
        for climb in active:
            moved = maximization_step(climb.mixture.family, frame, climb.sums, climb.mixture.means)
            climb.history.append(Round(number, frobenius(moved.means - climb.mixture.means), -climb.sums.log))
            climb.mixture = moved
        latest = [climb.history[-1] for climb in active]
        yield from report(round=number, shift=max(r.shift for r in latest), objective=latest[0].objective)
    if active:
        yield from expectation_step(frame, active)  # of the last mixtures
    return [
        replace(
            _evaluate(climb.mixture, climb.sums),
            history=tuple(climb.history),
            converged=climb.is_level(frame.rows, tol),
        )
        for climb in climbs
    ]


def expectation_step(frame: Frame, climbs: Sequence[Climb]) -> Protocol[None]:
    """Sum the responsibilities of all rows in each mixture, and the rows and squares they weigh, in one message."""
    gaussians = [to_gaussians(climb.mixture, frame) for climb in climbs]
    for climb, sums in zip(climbs, (yield from sum_mixtures(frame, gaussians)), strict=True):
        climb.observe(sums)


def sum_mixtures(frame: Frame, mixtures: Sequence[Gaussians]) -> Protocol[list[MixtureSums]]:
    """The sums of several mixtures."""
    root = frame.root if any(g.family == "EEE" for g in mixtures) else None
    ask = MixturesQuestion(frame.view, frame.reach, root, tuple(mixtures))
    sums = yield from total(moments, ask)
    mass, pull, logs, entropies = (field.to_floats() for field in (sums.mass, sums.pull, sums.log, sums.entropy))
    found, at, at_pull = list[MixtureSums](), 0, 0
    columns = len(frame.reach)
    for j, g in enumerate(mixtures):
        k, width = len(g.means), ask.sums_per_component(g)
        own = pull[at_pull : at_pull + k * width].reshape(k, width)
        found.append(
            MixtureSums(mass[at : at + k], own[:, :columns], own[:, columns:], float(logs[j]), float(entropies[j]))
        )
        at, at_pull = at + k, at_pull + k * width
    return found


def maximization_step(family: Family, frame: Frame, found: MixtureSums, before: Floats) -> Mixture:
    """The mixture that the sums make likeliest, its variances held above their floors."""
    thick = found.mass >= MIN_COMPONENT_MASS
    mass = np.where(thick, found.mass, 1.0)
    means = np.where(thick[:, None], found.pull / mass[:, None], before)
    rows = math.fsum(found.mass.tolist()) or 1.0  # all sites may have abstained
    weights = found.mass / rows
    if family == "EEE":
        return Mixture(family, weights, means, _covariance(frame, weights, means))
    deviations = _deviations(found, means)
    columns = means.shape[1]
    if family == "VVI":
        variance = np.where(thick[:, None], deviations / mass[:, None], frame.variance)
        return Mixture(family, weights, means, np.maximum(variance, frame.floors))
    if family == "VII":
        variance = np.where(thick, deviations.sum(axis=1) / (columns * mass), frame.mean_variance)[:, None]
    else:
        variance = np.array([[math.fsum(deviations.ravel().tolist()) / (columns * rows)]])
    return Mixture(family, weights, means, np.maximum(variance, MIN_VARIANCE_FRACTION * frame.mean_variance))


def to_gaussians(m: Mixture, frame: Frame) -> Gaussians:
    """A mixture as the sites evaluate it."""
    k, columns = m.means.shape
    log_weights = elementary.log(np.maximum(m.weights, 2.0**-1000)) - 0.5 * columns * elementary.LOG_2PI
    if m.family == "EEE" and frame.root is not None:
        return _whitened_gaussians(m, frame.root, frame.reach, log_weights)
    volume = elementary.log(np.broadcast_to(m.variance, (k, columns)).copy()).sum(axis=1)
    offset = log_weights - 0.5 * volume
    far = (((np.ldexp(1.0, frame.reach) + np.abs(m.means)) ** 2) / m.variance).sum(axis=1).max()
    return Gaussians(m.family, offset, m.means, m.variance, *_no_axes(columns), unit=_unit(offset, far))


def nearest_gaussians(points: Floats) -> Gaussians:
    """Not a mixture: every row belongs to its nearest point."""
    k, columns = points.shape
    return Gaussians("nearest", np.zeros(k), points, np.ones((1, 1)), *_no_axes(columns), unit=0)


def gaussians_from_covariance(m: Mixture) -> tuple[Gaussians, Floats]:
    """A mixture of family EEE by its covariance alone, and the root to whiten with."""
    root = triangular_root(m.variance)
    columns = len(root)
    volume = 2 * elementary.log(np.diag(root).copy()).sum()
    offset = elementary.log(np.maximum(m.weights, 2.0**-1000)) - 0.5 * (columns * elementary.LOG_2PI + volume)
    means = whiten(m.means.T, root).T
    return Gaussians("EEE", offset, np.ascontiguousarray(means), np.ones((1, 1)), *_no_axes(columns), unit=0), root


def count_parameters(family: Family, k: int, columns: int) -> int:
    """How many free numbers a mixture has: KD means, K - 1 weights, and those of its covariances."""
    c = {"EII": 1, "VII": k, "VVI": k * columns, "EEE": columns * (columns + 1) // 2}[family]
    return k * columns + k - 1 + c


def bic(evaluated: EvaluatedMixture, rows: int) -> float:
    """-2 l + p log N; the smaller the better."""
    k, columns = evaluated.mixture.means.shape
    return -2 * evaluated.log + count_parameters(evaluated.mixture.family, k, columns) * elementary.log_of(rows)


def icl(evaluated: EvaluatedMixture, rows: int) -> float:
    """BIC + 2 E, E = -sum r log r: undecided rows count against a mixture."""
    return bic(evaluated, rows) + 2 * evaluated.entropy


def _evaluate(m: Mixture, found: MixtureSums) -> EvaluatedMixture:
    squared = _deviations(found, m.means).sum(axis=1)
    radii = np.maximum(squared, 0.0) / (m.means.shape[1] * np.where(found.mass >= MIN_COMPONENT_MASS, found.mass, 1.0))
    return EvaluatedMixture(m, found.log, found.entropy, found.mass, radii)


def _deviations(found: MixtureSums, means: Floats) -> Floats:
    """Sums of r (x - m)^2 from sums around 0, by column where the squares are."""
    cross, own = means * found.pull, means * means
    if found.squares.shape[1] != means.shape[1] or means.shape[1] == 1:
        cross, own = cross.sum(axis=1, keepdims=True), own.sum(axis=1, keepdims=True)
    return np.asarray(found.squares - 2 * cross + found.mass[:, None] * own, np.float64)


def _axes(root: Floats, weights: Floats, means: Floats) -> tuple[Floats, Floats, Floats]:
    """Whitened means, the directions in which the components may lie apart, and the variance left along each."""
    mu = whiten(means.T, root).T
    spread = np.sqrt(weights)[:, None] * mu
    squares, vectors = eigen(gram_matrix(spread))
    count = min(mu.shape)
    squares, vectors = squares[:count], vectors[:count]
    apart = squares > MIN_SPAN_SQUARE
    lengths = np.sqrt(np.where(apart, squares, 1.0))
    axes = np.where(apart[:, None], matrix_product(vectors, spread) / lengths[:, None], 0.0)
    left = np.where(apart, np.maximum(1 - squares, MIN_VARIANCE_FRACTION), 1.0)
    return np.ascontiguousarray(mu), axes, left


def _covariance(frame: Frame, weights: Floats, means: Floats) -> Floats:
    root = _require_root(frame.root)
    _, axes, left = _axes(root, weights, means)
    inner = np.eye(len(root)) - matrix_product(axes.T * (1 - left), axes)
    return matrix_product(matrix_product(root, inner), root.T)


def _whitened_gaussians(m: Mixture, root: Floats, reach: Units, log_weights: Floats) -> Gaussians:
    mu, axes, left = _axes(root, m.weights, m.means)
    gains = 1 / np.sqrt(left) - 1
    means = mu + matrix_product(matrix_product(mu, axes.T) * gains, axes)
    volume = 2 * elementary.log(np.diag(root).copy()).sum() + elementary.log(left).sum()
    offset = log_weights - 0.5 * volume
    white = ordered_sum(np.abs(whiten(np.eye(len(root)), root)) * np.ldexp(1.0, reach))  # no row reaches farther
    radius = (1 + gains.max(initial=0.0)) * math.sqrt((white**2).sum()) + math.sqrt((means**2).sum(axis=1).max())
    return Gaussians("EEE", offset, means, np.ones((1, 1)), axes, gains, unit=_unit(offset, radius**2))


def _unit(offset: Floats, far: float) -> int:
    """The unit of a row's log density, within max |offset| + far / 2 + log K of 0; twice that, to be safe."""
    most = float(np.abs(offset).max()) + float(far) / 2 + elementary.log_of(len(offset)) + 1
    return int(unit_of(power_above(2 * most)))


def _no_axes(columns: int) -> tuple[Floats, Floats]:
    return np.zeros((0, columns)), np.zeros(0)


def _root(covariance: Floats, frame: Frame) -> Floats:
    """The lower triangular root of a covariance whose correlations are held away from being singular."""
    scale = np.sqrt(np.where(frame.variance > 0, frame.variance, frame.mean_variance))
    correlation = covariance / (scale[:, None] * scale)
    np.fill_diagonal(correlation, 1.0)  # of constant columns, too
    apart = MIN_EIGENVALUE * np.eye(len(correlation))
    try:
        triangular_root(correlation - apart)
    except ArithmeticError:
        correlation += 2 * apart
    return triangular_root(correlation) * scale[:, None]


def _require_root(root: Floats | None) -> Floats:
    if root is None:
        raise ValueError(
            "mixtures of the family EEE (one covariance for all components) need the covariance of all rows; "
            "call make_frame with full=True"
        )
    return root
