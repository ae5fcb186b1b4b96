"""The iterations of k-means whose sums are opened only above a floor, and the notes on clusters that stayed closed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedclust.algorithms.cmeans.fit_result import FitNotes, FitResult, Round, RoundResult, frobenius
from fedclust.algorithms.cmeans.floored_decision import OpeningRecord, agree_on_secret, decide_openings
from fedclust.algorithms.cmeans.floored_opening import (
    FloorQuestion,
    OpenedMoments,
    OpeningQuestion,
    Roles,
    open_moments,
)
from fedclust.algorithms.cmeans.opened_cells import nearest_partition, whole_table
from fedclust.algorithms.shared.reseeding import CenterReseeder
from fedclust.core.effects import Protocol, report, total
from fedclust.core.site_interface import View
from fedclust.core.types import Bools, Floats, PartyId


@dataclass(frozen=True)
class FlooredFitResult(FitResult):
    """A finished run, and the centres around which all cells were opened last; None if that never happened."""

    opened_centers: Floats | None


@dataclass
class OpenedSums:
    """The sums of each cluster as they were last opened."""

    mass: Floats
    centers: Floats
    scatter: Floats  # to the centres that were asked about
    around_mean: Floats  # to the means
    ever: Bools = field(init=False)
    whole: Floats | None = None  # the centres around which all cells were opened last

    def __post_init__(self) -> None:
        self.ever = np.zeros(len(self.mass), bool)

    @classmethod
    def start(cls, centers: Floats) -> OpenedSums:
        nothing = np.zeros(len(centers))
        return cls(nothing, centers.copy(), nothing.copy(), nothing.copy())

    def update(self, asked: Floats, allowed: Bools, sums: OpenedMoments) -> None:
        """Replace the sums of the clusters that were opened."""
        mass, pull, scatter = sums.mass.to_floats(), sums.pull.to_floats(), sums.scatter.to_floats()
        with np.errstate(divide="ignore", invalid="ignore"):
            means = pull / mass[:, None]
        moved = np.where(mass[:, None] > 0, means - asked, 0.0)
        squares = np.array([math.fsum(row) for row in (moved * moved).tolist()])
        around = np.maximum(scatter - mass * squares, 0.0)
        self.mass = np.where(allowed, mass, self.mass)
        self.centers = np.where(allowed[:, None], means, asked)
        self.scatter = np.where(allowed, scatter, self.scatter)
        self.around_mean = np.where(allowed, around, self.around_mean)
        self.ever = self.ever | allowed
        self.whole = asked if allowed.all() else self.whole


TOO_MANY_CELLS_NOTE = (
    "The fit ended early, because too many cells had been opened to compare further ones with all of them. Lower "
    "max_iter, or ask for fewer clusters."
)


@dataclass
class ClosedClusters:
    """Which clusters stayed closed, iteration by iteration."""

    counts: list[int] = field(default_factory=list)

    def observe(self, allowed: Bools) -> None:
        self.counts.append(int((~allowed).sum()))

    def sentences(self, floor: int, ever: Bools, *, has_start: bool) -> list[str]:
        """Return what a reader of the result must know."""
        rounds = sum(count > 0 for count in self.counts)
        if not rounds:
            return []
        closed = (
            f"Clusters stayed closed {sum(self.counts)} times in {rounds} of {len(self.counts)} iterations, because "
            f"fewer than {floor} rows had changed since sums that were opened before. A closed cluster's centre does "
            "not move, so the result is not that of exact k-means; it is the same however the rows are spread."
        )
        found = [closed]
        if not ever.all():
            never = int((~ever).sum())
            kept = f"Clusters whose sums were never opened: {never}. They kept their initial centres. "
            if has_start:
                kept += (
                    "Their sizes are those of the groups of rows that the initial centres come from, and the inertia "
                    "is that of all initial centres."
                )
            else:
                kept += (
                    "Their rows are not counted, so the inertia is not known and is given as infinite. Ask for fewer "
                    "clusters, or use other initial centres."
                )
            found.append(kept)
        return found


def fit(
    view: View,
    start: Floats,
    *,
    floor: int,
    tol: float | None,
    max_iter: int,
    parties: Sequence[PartyId],
    rng: np.random.Generator,
    record: OpeningRecord,
) -> Protocol[FlooredFitResult]:
    """Move the centres of clusters that may be opened until none may be or all have settled.

    Without `tol`, every iteration asks its questions, so that their number does not depend on the rows. `record` has
    the cells that were opened before in this run; the cells of this fit are added to it.
    """
    centers, history, notes, closed = start, list[Round](), FitNotes(), ClosedClusters()
    facts, record.start = record.start, None
    places, known, roles = CenterReseeder(rng, notes), OpenedSums.start(start), Roles.assign(parties)
    record.add(whole_table(view), np.ones(1, bool))  # scaling and other questions open the sum of all rows
    yield from agree_on_secret(roles, record)
    for number in range(1, max_iter + 1):
        partition = nearest_partition(view, centers)
        ask = FloorQuestion(view, partition, record.earlier, floor, roles)
        if not ask.is_small:
            notes.others.append(TOO_MANY_CELLS_NOTE)
            break
        allowed, signature = yield from decide_openings(ask)
        if tol is not None and not allowed.any():
            closed.observe(allowed)
            history.append(Round(number, 0.0, math.fsum(known.scatter.tolist())))
            break
        sums = yield from total(open_moments, OpeningQuestion.from_verdict(ask, allowed, signature))
        record.add(partition, allowed)
        closed.observe(allowed)
        known.update(centers, allowed, sums)
        objective = math.fsum(known.scatter.tolist())
        target, reseeded = places.reseed_empty(_round_result(known, allowed, objective), centers, number)
        shift = frobenius(target - centers)
        centers = target
        history.append(Round(number, shift, objective))
        yield from report(round=number, shift=shift, objective=objective)
        if tol is not None and shift < tol and not reseeded:
            break
    notes.note_empty_clusters(int((known.ever & (known.mass <= 0)).sum()))
    notes.others += closed.sentences(floor, known.ever, has_start=facts is not None)
    within, sizes = math.fsum(known.around_mean.tolist()), known.mass
    if not known.ever.all():  # then a cluster's part is not known
        within, sizes = (
            (math.inf, sizes) if facts is None else (facts.objective, np.where(known.ever, sizes, facts.sizes))
        )
    return FlooredFitResult(centers, start, within, sizes, tuple(history), tuple(notes.sentences()), known.whole)


def _round_result(known: OpenedSums, allowed: Bools, objective: float) -> RoundResult:
    """Return where the sums put the centres. A closed cluster is not empty, even if it was when it was last opened."""
    mass = np.where(allowed, known.mass, np.maximum(known.mass, 1.0))
    return RoundResult(known.centers, mass, objective, hidden=0, abstained=0, everyone_asked=True)
