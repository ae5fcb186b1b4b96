"""What a handler can see: its party's rows through the study's view, a seeded random stream, and stored state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedclust.core.types import Array, Floats, Ints, PartyId, Units


@dataclass(frozen=True)
class View:
    """How the study transforms the columns: x' = (x - origin) / spread, and |x'| <= 2**exponent.

    This is one subtraction and one division. Without an origin the columns stay as they are. The exponents make sums
    exact. `missing` says what happens to rows with missing values: "refuse" refuses them all, "drop" leaves those rows
    out, and "partial" keeps missing values as NaN and leaves out only rows without any value.
    """

    exponents: Units
    origin: Floats | None = None
    spread: Floats | None = None
    missing: str = "refuse"

    def transform(self, block: Array) -> Array:
        """Transform a block of columns."""
        if self.origin is None or self.spread is None:
            return block
        return np.asarray((block - self.origin[:, None]) / self.spread[:, None], np.float64)

    def transform_points(self, points: Array) -> Floats:
        """Transform points (rows by columns) from original units."""
        if self.origin is None or self.spread is None:
            return np.asarray(points, np.float64)
        return np.asarray((points - self.origin) / self.spread, np.float64)

    def to_original_units(self, points: Array) -> Floats:
        """Transform points of the view back to original units."""
        if self.origin is None or self.spread is None:
            return np.asarray(points, np.float64)
        return np.asarray(points * self.spread + self.origin, np.float64)

    def transform_bound(self, largest: Floats) -> Floats:
        """Return a bound on |x'| from a bound on |x|."""
        if self.origin is None or self.spread is None:
            return largest
        return np.asarray((largest + np.abs(self.origin)) / self.spread, np.float64)

    def scale_bound(self, largest: Floats) -> Floats:
        """Return the largest magnitudes in units of the spread, wherever the origin lies."""
        if self.origin is None or self.spread is None:
            return np.asarray(largest, np.float64)
        return np.asarray(largest / self.spread, np.float64)

    def admits(self, largest: Floats) -> bool:
        """Return whether columns with these largest magnitudes stay within the exponents.

        A spread that is not positive, or numbers that are not finite, admit no column: a bound on |x'| would not hold.
        Nor does a view with only one of origin and spread.
        """
        if (self.origin is None) != (self.spread is None):
            return False
        if self.origin is not None and self.spread is not None:
            finite = np.isfinite(self.origin).all() and np.isfinite(self.spread).all()
            if not finite or not (self.spread > 0).all():
                return False
        return bool((self.transform_bound(largest) <= np.ldexp(1.0, self.exponents)).all())

    def shows_same(self, other: View | None) -> bool:
        """Return whether both views show the same numbers."""
        if other is None or self.missing != other.missing:
            return False
        if self.origin is None or other.origin is None:
            return self.origin is other.origin
        return np.array_equal(self.origin, other.origin) and np.array_equal(self.spread, other.spread)  # type: ignore[arg-type]


@dataclass(frozen=True)
class RowOrder:
    """Which of a site's rows a run reads, in what order, and a key that sites share when they agree on it."""

    rows: Ints
    key: bytes


class Vault(Protocol):
    """A site's secrets for one run: keys by name, its signing identity, and the identities it was enrolled with."""

    cache: dict[Any, Any]  # values that can be computed again

    @property
    def run(self) -> str: ...
    @property
    def enrolled_parties(self) -> tuple[PartyId, ...]:
        """Every party whose identity this site knows, including itself."""

    def get(self, name: str) -> bytes | None: ...
    def put(self, values: Mapping[str, bytes]) -> None:
        """Store values; if there is a disk, they are on it before this returns."""

    def drop(self, which: Callable[[str], bool]) -> None: ...
    def sign(self, message: bytes) -> bytes: ...
    def has_signed(self, party: PartyId, signature: bytes, message: bytes) -> bool:
        """Return whether the identity enrolled under a party's name signed a message."""


class Site(Protocol):
    """A party's own side of a step. Handlers only read it, and return what the site must store in `Keep`."""

    @property
    def party(self) -> PartyId: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def column_fingerprints(self) -> Mapping[str, bytes]:
        """A fingerprint of the party's declaration of each column."""

    @property
    def rows(self) -> int: ...
    @property
    def left_out(self) -> int:
        """How many rows the study's rule for missing values leaves out; `rows` does not count them."""

    @property
    def gaps(self) -> Ints:
        """How many values each column lacks."""

    @property
    def largest(self) -> Floats: ...
    @property
    def point_floor(self) -> int:
        """How many rows the site's own policy requires behind a point that leaves it; 0 in a simulation."""

    @property
    def rng(self) -> np.random.Generator: ...
    @property
    def memory(self) -> Mapping[str, Array]: ...
    @property
    def vault(self) -> Vault: ...
    def rng_from_seed(self, seed: int) -> np.random.Generator:
        """Return the random stream that a study's seed and the party determine, independent of the step."""

    def blocks(self, view: View) -> Iterable[Array]:
        """Return the rows in blocks of columns: a list if they are in memory, otherwise one block at a time."""

    def sample(self, view: View, seed: int, share: int) -> Iterable[Floats]:
        """Return the rows of a public sample in blocks of columns; `share` is counted in 2^-32 of all rows."""

    def ids(self) -> Array | None:
        """The id of every row that the party holds, including rows that the run does not read; None without an id
        column.
        """

    def row_key(self) -> bytes: ...
