"""What a handler may know: its party's rows, seen through the study's view of them, a seeded stream and a memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedclust.core.types import Array, Floats, PartyId


@dataclass(frozen=True)
class View:
    """How the study looks at a column: x' = (x - origin) / spread, one subtraction and one division."""

    origin: Floats
    spread: Floats

    def of(self, block: Array) -> Floats:
        """A block of columns, seen through the view."""
        return np.asarray((block - self.origin[:, None]) / self.spread[:, None], np.float64)

    def back(self, points: Array) -> Floats:
        """Points (rows by columns) of the view in original units."""
        return np.asarray(points * self.spread + self.origin, np.float64)

    def largest(self, largest: Floats) -> Floats:
        """A bound on |x'| from one on |x|."""
        return (largest + np.abs(self.origin)) / self.spread


class Site(Protocol):
    """A party's own side of a step. Handlers read it; what they want kept they return in `Keep`."""

    @property
    def party(self) -> PartyId: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def rows(self) -> int: ...
    @property
    def largest(self) -> Floats: ...
    @property
    def rng(self) -> np.random.Generator: ...
    @property
    def memory(self) -> Mapping[str, Array]: ...
    def blocks(self, view: View | None = None) -> Iterable[Array]: ...
    def row_key(self) -> bytes: ...
