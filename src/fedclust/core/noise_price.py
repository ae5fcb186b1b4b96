"""Questions with differential privacy and their answers: noisy sums at a price.

Such a question names its price. The site, not the coordinator, turns the price into noise, pays it from its own budget,
and adds the noise in its gate. Its handler sums terms of norm at most one, using `kernels.bounded`, so the price is
right for any rows.
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

NOISE_UNIT_EXPONENT = -36  # a noisy sum counts in units of 2^-36 of the most that one row can change it
NOISE_UNITS_PER_ONE = 1 << -NOISE_UNIT_EXPONENT
FINITE_ROWS_ONLY = (
    "finite"  # a rule for missing values: rows with a value that is not finite are left out, and nothing is refused
)
MAX_VALUE_EXPONENT = 1000  # no such row has a value beyond 2^1000
SITES_PER_COLLUDER = 3  # one in this many sites may reveal what it knows to the coordinator, including its own noise


@dataclass(frozen=True)
class Price:
    """The most that an answer may reveal about one row, as rho of zero-concentrated differential privacy.

    The noise in a sum over sites is the sum of their noise. Each site adds the variance that the price requires divided
    by `honest`, so that this many sites together add all of it.
    """

    rho: float
    honest: int = 1

    @property
    def sigma(self) -> float:
        """The standard deviation of one site's noise, in units of the most that one row can change a sum."""
        return 1 / math.sqrt(2 * self.rho * self.honest)

    @property
    def is_valid(self) -> bool:
        """Whether the price is valid and its noise can be drawn."""
        return math.isfinite(self.rho) and 2.0**-44 <= self.rho <= 2.0**10 and 1 <= self.honest <= 1 << 10


class PricedQuestion:
    """A question that is answered with noise, at a price."""

    price: Price


def count_honest_sites(sites: int, min_answers: int) -> int:
    """Return how many of the fewest sites that may answer add noise that the coordinator does not know.

    >>> count_honest_sites(3, 3), count_honest_sites(10, 10), count_honest_sites(2, 2)
    (2, 7, 2)
    """
    return max(1, min_answers - sites // SITES_PER_COLLUDER)


@dataclass(frozen=True)
class Noisy(Release):
    """Base of answers whose sums get noise in the gate; its one field `sums` is declared by `noisy` or `noisy_own`."""


def noisy(why: str) -> Any:
    """Declare sums of terms, one per row and of norm at most one, that leave only with noise."""
    return dataclasses.field(metadata={"disclosure": Disclosure("sum", "noisy", why)})


def noisy_own(why: str) -> Any:
    """Declare the same for one site's own sums, whose noise suffices on its own, also under masks."""
    return dataclasses.field(metadata={"disclosure": Disclosure("each", "noisy", why)})


def exact_from_noise_units(numbers: Ints) -> Exact:
    """Return whole multiples of 2^-36 as a sum."""
    return Exact(Exact.from_counts(numbers).limbs, np.asarray(NOISE_UNIT_EXPONENT, np.int32))


def unbounded_view(columns: int) -> View:
    """Return the columns unchanged, under a bound that no row exceeds, so that the rows cannot make a site refuse."""
    return View(np.full(columns, MAX_VALUE_EXPONENT, np.int32), missing=FINITE_ROWS_ONLY)
