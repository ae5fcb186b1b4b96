"""The result of a c-means run, and the notes on what kept it from being lossless."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fedclust.core.counted_nouns import count_noun
from fedclust.core.types import Array, Floats, PartyId


@dataclass(frozen=True)
class Round:
    """How far the centres moved in a round, and the objective before they did; None if it is not known."""

    number: int
    shift: float
    objective: float | None


@dataclass(frozen=True)
class RoundResult:
    """Where one round's sums put the centres."""

    centers: Floats
    mass: Floats
    objective: float
    hidden: int
    abstained: int
    everyone_asked: bool = False  # whether every party was asked
    answered_by: tuple[PartyId, ...] = ()  # who answered

    def includes_all(self, parties: Sequence[PartyId]) -> bool:
        """Whether every one of the parties was asked and answered."""
        return self.everyone_asked and set(parties) <= set(self.answered_by)


@dataclass(frozen=True)
class FitResult:
    """A finished run. `notes` says whatever kept it from being lossless."""

    centers: Floats
    start: Floats
    objective: float
    mass: Floats
    history: tuple[Round, ...]
    notes: tuple[str, ...]


@dataclass
class FitNotes:
    """What happened that a reader of the result must know."""

    hidden_cells: Counter[int] = field(default_factory=Counter)
    abstained_sites: int = 0
    reseeded_rounds: list[int] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def note_suppressed(self, number: int, moved: RoundResult) -> None:
        if moved.hidden:
            self.hidden_cells[number] += moved.hidden
        self.abstained_sites = max(self.abstained_sites, moved.abstained)

    def note_reseeded(self, number: int, clusters: int) -> None:
        self.reseeded_rounds += [number] * clusters

    def note_empty_clusters(self, clusters: int) -> None:
        if clusters:
            self.others.append(
                f"Clusters without rows at the end of the run: {clusters}. Ask for fewer clusters, or use other "
                "initial centres."
            )

    def note_participation(self, participation: float, shift: float) -> None:
        self.others.append(
            f"Not lossless: a random {participation:.0%} of the sites took part in each round; "
            f"another round with all sites would move the centres by {shift:.3g}."
        )

    def sentences(self) -> Iterator[str]:
        yield from self.others
        if self.hidden_cells:
            yield (
                "Not lossless: the singleton rule hid clusters of one row "
                f"{count_noun(self.hidden_cells.total(), 'time')} in "
                f"{count_noun(len(self.hidden_cells), 'round')} "
                f"(first round {min(self.hidden_cells)}, last round {max(self.hidden_cells)})."
            )
        if self.abstained_sites:
            yield (
                f"Not lossless: {count_noun(self.abstained_sites, 'site')} abstained, because of too few rows under "
                "the rule small_sites='paper'."
            )
        if self.reseeded_rounds:
            yield (
                f"A cluster was empty {count_noun(len(self.reseeded_rounds), 'time')} (last in round "
                f"{self.reseeded_rounds[-1]}) and restarted from a new centre."
            )


def frobenius(difference: Array) -> float:
    """The Frobenius norm with exact summation: the same bits everywhere."""
    return math.sqrt(math.fsum((difference * difference).ravel().tolist()))
