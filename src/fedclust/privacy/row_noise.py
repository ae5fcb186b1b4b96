"""Noise for one whole row: the noised row reveals little about the true one, however it is used later.

A mechanism is a channel from rows to rows with P(out | row) <= e^epsilon P(out | row') for any two rows within public
bounds and every outcome. It sees one row at a time; what is computed from its outcomes costs nothing more.

Values are brought to a grid of LEVELS steps between their bounds, noised in integers, and brought back. Coins are
thrown with bits of the operating system, and the chances are whole multiples of 2^-62, so that the claim is about the
numbers that are really drawn.

window    each of d columns has epsilon / d. Its value i becomes, with the same chance p each, one of the w = 2h + 1
          levels around i, or, with q each, one of the others of -h ... LEVELS - 1 + h; p <= e^(epsilon / d) q. Of the
          half-widths h from a twentieth of the range on, the one with the least variance is taken: a large epsilon
          alone would let values leave as they are.
laplace   discrete Laplace noise of scale d (LEVELS - 1) / epsilon in each column, drawn by OpenDP
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from fedclust.core.errors import StudyError
from fedclust.core.types import Array, Floats, Ints

GRID_LEVELS = 1025
COIN_RANGE = 1 << 62
DECIMAL_CONTEXT = Context(prec=80)


@dataclass(frozen=True)
class WindowChannel:
    """The channel of one column: a level goes to the window around it with chance `hit_chance` / 2^62, else anywhere
    else.
    """

    half_width: int
    hit_chance: int
    levels: int = GRID_LEVELS

    @property
    def width(self) -> int:
        return 2 * self.half_width + 1

    def probability(self, i: int, j: int) -> Fraction:
        """P(j | i), exactly."""
        if abs(i - j) <= self.half_width:
            return Fraction(self.hit_chance, COIN_RANGE * self.width)
        return Fraction(COIN_RANGE - self.hit_chance, COIN_RANGE * (self.levels - 1))

    @cached_property
    def slope(self) -> float:
        """E(j | i) = slope i + const."""
        return float(self.width * (self.probability(0, 0) - self.probability(0, self.half_width + 1)))

    @cached_property
    def intercept(self) -> float:
        return float(
            self.probability(0, self.half_width + 1) * (self.levels + 2 * self.half_width) * (self.levels - 1) / 2
        )

    def variance(self) -> float:
        """Of the level that an outcome stands for, the mean over all levels."""
        p, q = float(self.probability(0, 0)), float(self.probability(0, self.half_width + 1))
        h, top = self.half_width, self.levels - 1
        i = np.linspace(0, top, 33)
        everywhere = (_squares(top + h) + _squares(h)) * q
        nearby = (p - q) * (self.width * i**2 + 2 * _squares(h))
        second = everywhere + nearby
        return float((second - (self.slope * i + self.intercept) ** 2).mean()) / self.slope**2

    def draw_outcomes(self, at: Ints) -> Ints:
        """An outcome for each level."""
        near = at - self.half_width + uniform(self.width, at.size).reshape(at.shape)
        # The levels - 1 outcomes beyond the window, in order: i below it, the others above.
        far = uniform(self.levels - 1, at.size).reshape(at.shape) - self.half_width
        far = np.where(far < at - self.half_width, far, far + self.width)
        return np.where(coins(self.hit_chance, at.size).reshape(at.shape), near, far)

    def estimate_levels(self, outcomes: Ints) -> Floats:
        """The levels that outcomes stand for; their mean is the true one."""
        return np.asarray((outcomes - self.intercept) / self.slope, np.float64)


@lru_cache(maxsize=64)
def best_window(epsilon: Decimal, levels: int = GRID_LEVELS) -> WindowChannel:
    """The window of least variance that keeps to an epsilon.

    >>> own = best_window(Decimal(2), 5)
    >>> float(own.probability(0, 0) / own.probability(0, own.half_width + 1)) <= math.exp(2)
    True
    """
    least = max(1, levels // 20)
    widths = sorted({int(h) for h in np.geomspace(least, levels, 60)})
    found = (WindowChannel(h, _largest_hit_chance(epsilon, 2 * h + 1, levels), levels) for h in widths)
    return min((own for own in found if own.slope > 0), key=WindowChannel.variance)


def _largest_hit_chance(epsilon: Decimal, width: int, levels: int) -> int:
    """The largest chance of the window, in parts of 2^62, that keeps p <= e^epsilon q: rounded down throughout."""
    ratio = Fraction(min(epsilon, Decimal(60)).exp(DECIMAL_CONTEXT)) * (1 - Fraction(1, 10**70))
    odds = ratio * width / (levels - 1)
    return math.floor(COIN_RANGE * odds / (1 + odds))


def _squares(n: int) -> float:
    return n * (n + 1) * (2 * n + 1) / 6


def coins(hit_chance: int, count: int) -> Array:
    """Throws that fall with chance hit / 2^62."""
    return _random_integers(count) < hit_chance


def uniform(bound: int, count: int) -> Ints:
    """Whole numbers from 0, all with the same chance: what would make some likelier is thrown again."""
    most = COIN_RANGE - COIN_RANGE % bound
    found = _random_integers(count)
    while (again := found >= most).any():
        found[again] = _random_integers(int(again.sum()))
    return np.asarray(found % bound, np.int64)


def _random_integers(count: int) -> Ints:
    """Numbers of 62 bits from the operating system."""
    return np.asarray(np.frombuffer(secrets.token_bytes(8 * count), np.uint64) >> np.uint64(2), np.int64)


def add_window_noise(rows: Floats, low: Floats, high: Floats, epsilon: float) -> Floats:
    """Rows noised by windows. An outcome is right on average before it is brought back into the bounds."""
    used = high > low
    out = np.repeat(low[None, :], len(rows), axis=0)
    if not used.any() or not len(rows):
        return out
    own = best_window(_epsilon_per_column(epsilon, int(used.sum())))
    drawn = own.estimate_levels(own.draw_outcomes(_levels(rows[:, used], low[used], high[used])))
    # Beyond the bounds they would be outliers to every method.
    out[:, used] = low[used] + np.clip(drawn / (GRID_LEVELS - 1), 0.0, 1.0) * (high - low)[used]
    return out


def add_laplace_noise(rows: Floats, low: Floats, high: Floats, epsilon: float) -> Floats:
    """Rows with discrete Laplace noise, brought back into the bounds."""
    used = high > low
    out = np.repeat(low[None, :], len(rows), axis=0)
    if not used.any() or not len(rows):
        return out
    dp = _opendp()
    reach = int(used.sum()) * (GRID_LEVELS - 1)  # by how much two rows differ at most, all columns together
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    scale = reach / epsilon
    noise = dp.m.make_laplace(*space, scale=scale)
    while noise.map(reach) > epsilon:  # a division may round down, and OpenDP rounds its claim up
        scale = math.nextafter(scale, math.inf) * (1 + 1e-12)
        noise = dp.m.make_laplace(*space, scale=scale)
    at = _levels(rows[:, used], low[used], high[used])
    drawn = np.array(noise(at.ravel().tolist()), np.float64).reshape(at.shape)
    out[:, used] = low[used] + np.clip(drawn / (GRID_LEVELS - 1), 0.0, 1.0) * (high - low)[used]
    return out


def add_published_noise(rows: Floats, epsilon: float, stream: np.random.RandomState | None = None) -> Floats:
    """Paper 3's noise: Laplace by the site's own range, an epsilon for each column, one stream for all sites.

    Not differential privacy. The range is the rows' own, so one row changes the noise of all others.

    >>> add_published_noise(np.array([[0.0], [1.0], [9.0]]), 3.0).shape
    (3, 1)
    """
    if not len(rows):
        return rows
    scale = (rows.max(axis=0) - rows.min(axis=0)) / epsilon
    stream = np.random.RandomState(0) if stream is None else stream  # every site the same, as in the published runs
    return np.asarray(rows + stream.laplace(0.0, 1.0, rows.shape) * scale, np.float64)


def _levels(rows: Floats, low: Floats, high: Floats) -> Ints:
    share = np.clip((rows - low) / (high - low), 0.0, 1.0)
    return np.asarray(np.rint(share * (GRID_LEVELS - 1)), np.int64)


def _epsilon_per_column(epsilon: float, columns: int) -> Decimal:
    """What each column may spend; the sum of all is at most epsilon."""
    return Context(prec=40, rounding="ROUND_DOWN").divide(Decimal(epsilon), Decimal(columns))


def _opendp() -> Any:
    try:
        import opendp.prelude as dp  # noqa: PLC0415 an extra
    except ImportError:
        raise StudyError(
            "noise 'laplace' needs OpenDP; run pip install 'fedclust[dp]', or set mechanism to 'window'"
        ) from None
    dp.enable_features("contrib")
    return dp
