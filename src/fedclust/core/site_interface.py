"""What a handler may know: its party's rows, seen through the study's view of them, a seeded stream and a memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedclust.core.types import Array, Floats, Ints, PartyId, Units


@dataclass(frozen=True)
class View:
    """How the study looks at the columns: x' = (x - origin) / spread, and |x'| <= 2**exponent.

    One subtraction and one division; without origin the columns are seen as they are. The exponents make sums exact.
    `missing` says what happens to rows with gaps: "refuse" them all, "drop" those rows, or "partial": gaps stay NaN,
    and only rows without any value are left out.
    """

    exponents: Units
    origin: Floats | None = None
    spread: Floats | None = None
    missing: str = "refuse"

    def transform(self, block: Array) -> Array:
        """A block of columns, seen through the view."""
        if self.origin is None or self.spread is None:
            return block
        return np.asarray((block - self.origin[:, None]) / self.spread[:, None], np.float64)

    def transform_points(self, points: Array) -> Floats:
        """Points (rows by columns) in original units, seen through the view."""
        if self.origin is None or self.spread is None:
            return np.asarray(points, np.float64)
        return np.asarray((points - self.origin) / self.spread, np.float64)

    def to_original_units(self, points: Array) -> Floats:
        """Points of the view in original units."""
        if self.origin is None or self.spread is None:
            return np.asarray(points, np.float64)
        return np.asarray(points * self.spread + self.origin, np.float64)

    def transform_bound(self, largest: Floats) -> Floats:
        """A bound on |x'| from one on |x|."""
        if self.origin is None or self.spread is None:
            return largest
        return np.asarray((largest + np.abs(self.origin)) / self.spread, np.float64)

    def admits(self, largest: Floats) -> bool:
        """Whether columns with these largest magnitudes keep within the exponents."""
        return bool((self.transform_bound(largest) <= np.ldexp(1.0, self.exponents)).all())

    def shows_same(self, other: View | None) -> bool:
        """Whether both show the same numbers."""
        if other is None or self.missing != other.missing:
            return False
        if self.origin is None or other.origin is None:
            return self.origin is other.origin
        return np.array_equal(self.origin, other.origin) and np.array_equal(self.spread, other.spread)  # type: ignore[arg-type]


@dataclass(frozen=True)
class RowOrder:
    """Which of a site's rows a run reads, in what order, and a key that sites have in common when they agree on it."""

    rows: Ints
    key: bytes


class Vault(Protocol):
    """What a site keeps to itself of one run: keys by name, its signing identity, the identities it was told of."""

    cache: dict[Any, Any]  # what can be worked out again

    @property
    def run(self) -> str: ...
    @property
    def enrolled(self) -> tuple[PartyId, ...]:
        """Everyone whose identity this site was told of, itself among them."""

    def get(self, name: str) -> bytes | None: ...
    def put(self, values: Mapping[str, bytes]) -> None:
        """Keep values; on disk, where there is one, before this returns."""

    def drop(self, which: Callable[[str], bool]) -> None: ...
    def sign(self, message: bytes) -> bytes: ...
    def has_signed(self, party: PartyId, signature: bytes, message: bytes) -> bool:
        """Whether the identity enrolled under a party's name signed a message."""


class Site(Protocol):
    """A party's own side of a step. Handlers read it; what they want kept they return in `Keep`."""

    @property
    def party(self) -> PartyId: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def column_fingerprints(self) -> Mapping[str, bytes]:
        """A fingerprint of what the party says each of its columns is."""

    @property
    def rows(self) -> int: ...
    @property
    def left_out(self) -> int:
        """How many rows the study's way with gaps leaves out; `rows` does not count them."""

    @property
    def gaps(self) -> Ints:
        """How many values each column lacks."""

    @property
    def largest(self) -> Floats: ...
    @property
    def rng(self) -> np.random.Generator: ...
    @property
    def memory(self) -> Mapping[str, Array]: ...
    @property
    def vault(self) -> Vault: ...
    def rng_from_seed(self, seed: int) -> np.random.Generator:
        """The stream that a seed of the study and the party determine, in whatever step."""

    def blocks(self, view: View) -> Iterable[Array]:
        """The rows in blocks of columns: a list where they are in memory, else one block at a time."""

    def ids(self) -> Array | None:
        """The id of every row the party holds, whatever the run reads of them; None where it names none."""

    def row_key(self) -> bytes: ...
