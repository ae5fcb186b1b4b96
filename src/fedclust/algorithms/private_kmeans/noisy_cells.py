"""Where clusters are, and how many, from noisy counts of rows in the cells of a grid; nothing here asks the sites.

Clusters are taken to be round and equally wide, of any sizes: a mixture of Gaussians of one width v,

    log-likelihood = sum_c n_c log sum_k p_k exp(-|x_c - m_k|^2 / 2v^2),   n_c: noisy counts that stand out,

by EM from many starts. C-means on the same cells splits a large cluster where a small one should be found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.shared.fixed_order import matrix_product, ordered_sum
from fedclust.core.types import Floats, Ints
from fedclust.kernels import distances, elementary, fuzzy_sweep
from fedclust.kernels.normal_draws import draw_normals

MAX_GRID_CELLS = 512  # cells
MAX_BINS_BY_AXES = {1: 64, 2: 22, 3: 8}  # bins along each axis where widths are not known, at most
BIN_WIDTH = 1.5  # of a cluster's width
EM_STARTS, EM_ROUNDS = 12, 60
CLUSTER_GAIN_FACTOR = 6.0  # noise that stands out once more could gain a cluster of its own so much likelihood
# Two places nearer than that, in widths, are one cluster cut in two: halves of a Gaussian lie 1.6 of its widths apart,
# 2.7 of their own.
MIN_GAP_KNOWN_WIDTH, MIN_GAP_UNKNOWN_WIDTH = 2.5, 3.2
MIXTURE_SAMPLE_ROWS = 2000  # rows that stand for a mixture


@dataclass(frozen=True)
class Lattice:
    """Cells along axes: from -half to half, in so many bins."""

    half_width: Floats
    bins: Ints

    @property
    def cell_centers(self) -> Floats:
        """The middle of each cell."""
        bins = self.bins.tolist()
        at = np.stack(np.unravel_index(np.arange(math.prod(bins)), bins), axis=1)
        return np.asarray(((at + 0.5) / self.bins * 2 - 1) * self.half_width)

    @property
    def cell_variance(self) -> Floats:
        """How far rows of a cell lie from its middle, squared, along each axis."""
        return np.asarray((2 * self.half_width / self.bins) ** 2 / 12)


@dataclass(frozen=True)
class CellClusters:
    """Places of clusters, what they weigh, and how wide they are along an axis."""

    places: Floats
    mass: Floats
    width: float
    notes: tuple[str, ...] = ()


def make_lattice(half: Floats, width: float | None, rows: float, *, noise: float) -> Lattice:
    """A grid as fine as clusters are wide; where that is not known, as fine as leaves rows enough in a cell."""
    count = len(half)
    if width is None:
        each = elementary.power(np.array([max(rows, 1.0) / (1.5 * max(noise, 1.0))]), 1 / count)
        bins = np.full(count, int(np.clip(each, 5, MAX_BINS_BY_AXES[count])[0]))
    else:
        bins = np.clip(np.ceil(2 * half / (BIN_WIDTH * width)), 3, MAX_BINS_BY_AXES[1]).astype(np.int64)
    while np.prod(bins) > MAX_GRID_CELLS:
        bins[bins.argmax()] -= 1
    return Lattice(half, bins.astype(np.int64))


def find_clusters(
    counts: Floats, grid: Lattice, ks: Sequence[int], width: float | None, *, noise: float, rng: np.random.Generator
) -> CellClusters:
    """The clusters that noisy counts show; of several numbers of them the likeliest, noise allowed for."""
    threshold = noise * math.sqrt(2 * elementary.log_of(len(counts)))
    keep = counts > threshold
    while keep.sum() < max(ks) and threshold > noise:
        threshold *= 0.8
        keep = counts > threshold
    if keep.sum() < max(ks):
        keep = np.zeros(len(counts), bool)
        keep[np.argsort(-counts, kind="stable")[: max(*ks, 3)]] = True
    places, weights = grid.cell_centers[keep], np.maximum(counts[keep], 1e-9)
    best = {k: _mixture(places, weights, k, width=width, grid=grid, rng=rng) for k in ks}
    cost = (places.shape[1] + 1) / 2 * elementary.log_of(max(weights.sum(), 2.0)) + CLUSTER_GAIN_FACTOR * threshold
    apart = [
        k for k in ks if k == 1 or best[k].nearest > (MIN_GAP_UNKNOWN_WIDTH if width is None else MIN_GAP_KNOWN_WIDTH)
    ] or [min(ks)]
    chosen = max(apart, key=lambda k: best[k].likelihood - k * cost)
    note = (
        f"The number of clusters was chosen from {min(ks)} to {max(ks)}: {chosen} clusters stand out from the noise. "
        "The choice used no additional privacy budget."
    )
    found = best[chosen]
    return CellClusters(found.places, found.mass, found.width, (note,) if len(ks) > 1 else ())


@dataclass(frozen=True)
class _Mixture:
    places: Floats
    mass: Floats
    width: float
    likelihood: float
    nearest: float  # of two places, how far apart, in widths


def _mixture(
    places: Floats, weights: Floats, k: int, *, width: float | None, grid: Lattice, rng: np.random.Generator
) -> _Mixture:
    """The likeliest of several climbs."""
    climbs = [_run_em(places, weights, _seeds(places, weights, k, rng), width, grid) for _ in range(EM_STARTS)]
    return max(climbs, key=lambda found: found.likelihood)


def _run_em(places: Floats, weights: Floats, means: Floats, width: float | None, grid: Lattice) -> _Mixture:
    """EM for weights and means, and for the one width where it is not known."""
    shares = np.full(len(means), 1 / len(means))
    gaps = ((places[:, None] - means) ** 2).min(axis=1)
    v2 = (
        float(ordered_sum(weights[:, None] * gaps, axis=0).sum() / weights.sum() / places.shape[1])
        if width is None
        else width**2
    )
    rows, likelihood = weights.sum(), -math.inf
    for _ in range(EM_ROUNDS):
        var = v2 + grid.cell_variance
        logs = elementary.log(np.maximum(shares, 1e-12)) - ((places[:, None] - means) ** 2 / (2 * var)).sum(axis=2)
        top = logs.max(axis=1, keepdims=True)
        parts = elementary.exp(logs - top)
        each = top[:, 0] + elementary.log(parts.sum(axis=1))
        likelihood = float(ordered_sum(weights * each) - rows * elementary.log(var).sum() / 2)
        parts *= (weights / parts.sum(axis=1))[:, None]
        mass = parts.sum(axis=0)
        moved = np.where(mass[:, None] > 1e-9, matrix_product(parts.T, places) / np.maximum(mass, 1e-9)[:, None], means)
        if width is None:
            spread = (parts[:, :, None] * (places[:, None] - moved) ** 2).sum(axis=(0, 1)) / rows - grid.cell_variance
            v2 = max(float(spread.mean()), float(grid.cell_variance.mean()) / 4)
        still = np.abs(moved - means).max() < 1e-4
        means, shares = moved, mass / rows
        if still:
            break
    gaps = ((means[:, None] - means) ** 2 / (v2 + grid.cell_variance)).sum(axis=2) + np.diag(
        np.full(len(means), math.inf)
    )
    return _Mixture(means, shares * rows, math.sqrt(v2), likelihood, math.sqrt(float(gaps.min())))


def _seeds(places: Floats, weights: Floats, k: int, rng: np.random.Generator) -> Floats:
    """K-means++ on weighted places."""
    chosen = [int(rng.choice(len(places), p=weights / weights.sum()))]
    while len(chosen) < k:
        far = ((places[:, None] - places[chosen]) ** 2).sum(axis=2).min(axis=1) * weights
        chosen.append(int(rng.choice(len(places), p=far / far.sum() if far.sum() > 0 else None)))
    return places[chosen]


def fuzzy_centers(
    centers: Floats, mass: Floats, *, width: float, columns: int, m: float, rng: np.random.Generator
) -> Floats:
    """Where fuzzy c-means would put the centres on rows like these: round clusters, as wide in every column.

    Drawn rows stand for the mixture; columns beyond the axes only add to all distances, as they do in the data.
    """
    k, axes = centers.shape
    shares = np.maximum(mass, 1.0) / np.maximum(mass, 1.0).sum()
    at = np.zeros((k, columns))
    at[:, :axes] = centers
    rows = at[rng.choice(k, MIXTURE_SAMPLE_ROWS, p=shares)] + width * draw_normals(rng, (MIXTURE_SAMPLE_ROWS, columns))
    block = np.ascontiguousarray(rows.T)
    for _ in range(EM_ROUNDS):
        weights = fuzzy_sweep.weights_from_distances(distances.squared_distances(block, at), m)
        moved = matrix_product(weights, rows) / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
        still = np.abs(moved - at).max() < 1e-5 * max(width, 1e-12)
        at = np.ascontiguousarray(moved)
        if still:
            break
    return np.asarray(at[:, :axes])
