"""What a question of differential privacy asks for, and what kind of answer it gets: noisy sums at a price.

Such a question names its price; the site, not the coordinator, turns it into noise, pays it from its own budget, and
adds the noise in its gate. Its handler sums terms of norm at most one, by `kernels.bounded`, so the price is right for
whatever rows there are.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedclust.core.release import Disclosure, Release
from fedclust.core.ring import Exact
from fedclust.core.site_interface import View
from fedclust.core.types import Ints

NOISE_UNIT_EXPONENT = -36  # a noisy sum counts in 2^-36 of the most that a row can move it
NOISE_UNITS_PER_ONE = 1 << -NOISE_UNIT_EXPONENT
FINITE_ROWS_ONLY = (
    "finite"  # a way with gaps: rows with a value that is no finite number are left out, and nothing is refused
)
MAX_VALUE_EXPONENT = 1000  # no such row has a value beyond 2^1000
SITES_PER_COLLUDER = 3  # one in so many sites may tell the coordinator what it knows, its own noise among it


@dataclass(frozen=True)
class Price:
    """The most an answer may tell of one row, as rho of zero-concentrated differential privacy.

    The noise in a sum over sites is the sum of theirs: each adds a `honest`th of the variance that the price asks for,
    so that so many sites give it all.
    """

    rho: float
    honest: int = 1

    @property
    def sigma(self) -> float:
        """The standard deviation of one site's noise, in units of the most that a row can move a sum."""
        return 1 / math.sqrt(2 * self.rho * self.honest)

    @property
    def is_valid(self) -> bool:
        """Whether it is a price at all, and one whose noise can be drawn."""
        return math.isfinite(self.rho) and 2.0**-44 <= self.rho <= 2.0**10 and 1 <= self.honest <= 1 << 10


class PricedQuestion:
    """A question that is answered under noise, at a price."""

    price: Price


def count_honest_sites(sites: int, min_answers: int) -> int:
    """How many of the fewest sites that may answer add noise that the coordinator does not know.

    >>> count_honest_sites(3, 3), count_honest_sites(10, 10), count_honest_sites(2, 2)
    (2, 7, 2)
    """
    return max(1, min_answers - sites // SITES_PER_COLLUDER)


@dataclass(frozen=True)
class Noisy(Release):
    """Base of answers whose sums get noise in the gate; one field `sums` is declared by `noisy` or `noisy_own`."""


def noisy(why: str) -> Any:
    """Sums of terms, one for each row, of norm at most one; they leave under noise only."""
    return dataclasses.field(metadata={"disclosure": Disclosure("sum", "noisy", why)})


def noisy_own(why: str) -> Any:
    """The same, seen as one site's own: its noise does by itself, under masks too."""
    return dataclasses.field(metadata={"disclosure": Disclosure("each", "noisy", why)})


def exact_from_noise_units(numbers: Ints) -> Exact:
    """Whole numbers of 2^-36 as a sum."""
    return Exact(Exact.from_counts(numbers).limbs, np.asarray(NOISE_UNIT_EXPONENT, np.int32))


def unbounded_view(columns: int) -> View:
    """The columns as they are, under a bound that no row exceeds: nothing about the rows can make a site refuse."""
    return View(np.full(columns, MAX_VALUE_EXPONENT, np.int32), missing=FINITE_ROWS_ONLY)
