"""What a c-means run leaves behind, and what it must admit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fedclust.core.types import Array, Floats, PartyId


@dataclass(frozen=True)
class Round:
    """How far the centres moved in a round, and the objective before they did."""

    number: int
    shift: float
    objective: float


@dataclass(frozen=True)
class Moved:
    """Where one round's sums put the centres."""

    centers: Floats
    mass: Floats
    objective: float
    hidden: int
    abstained: int
    whole: bool = False  # whether every party was asked
    who: tuple[PartyId, ...] = ()  # who answered

    def is_of_all(self, parties: Sequence[PartyId]) -> bool:
        """Whether every one of the parties was asked and answered."""
        return self.whole and set(parties) <= set(self.who)


@dataclass(frozen=True)
class Fitted:
    """A finished run. `notes` says whatever kept it from being lossless."""

    centers: Floats
    start: Floats
    objective: float
    mass: Floats
    history: tuple[Round, ...]
    notes: tuple[str, ...]


@dataclass
class Notes:
    """What happened that a reader of the result must know."""

    cells: Counter[int] = field(default_factory=Counter)
    sites: int = 0
    empty: list[int] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def suppressed(self, number: int, moved: Moved) -> None:
        if moved.hidden:
            self.cells[number] += moved.hidden
        self.sites = max(self.sites, moved.abstained)

    def reseeded(self, number: int, clusters: int) -> None:
        self.empty += [number] * clusters

    def left_empty(self, clusters: int) -> None:
        if clusters:
            self.others.append(f"Clusters without rows at the end: {clusters}. Ask for fewer, or begin elsewhere.")

    def partial(self, participation: float, shift: float) -> None:
        self.others.append(
            f"Not lossless: a random {participation:.0%} of the parties took part in each round; "
            f"one more round with all of them would move the centres by {shift:.3g}."
        )

    def sentences(self) -> Iterator[str]:
        yield from self.others
        if self.cells:
            yield (
                f"Not lossless: the singleton rule hid {self.cells.total()} cells in {len(self.cells)} rounds "
                f"(first round {min(self.cells)}, last round {max(self.cells)})."
            )
        if self.sites:
            yield f"Not lossless: {self.sites} sites were too small for the paper's rule and abstained."
        if self.empty:
            yield f"A cluster was empty {len(self.empty)} times (last in round {self.empty[-1]}) and got a new centre."


def frobenius(difference: Array) -> float:
    """The Frobenius norm with exact summation: the same bits everywhere."""
    return math.sqrt(math.fsum((difference * difference).ravel().tolist()))
