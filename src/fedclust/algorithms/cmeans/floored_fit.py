"""The iterations of k-means whose sums are opened only above a floor, and the notes on clusters that stayed closed.

A cluster that is closed in the first iteration is nearly the group of cells that its initial centre comes from. The
sums of this group are opened instead, if the sites allow it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedclust.algorithms.cmeans.fit_result import FitNotes, FitResult, Round, RoundResult, frobenius
from fedclust.algorithms.cmeans.floored_decision import OpeningRecord, StartFacts, agree_on_secret, decide_openings
from fedclust.algorithms.cmeans.floored_opening import (
    FloorQuestion,
    OpenedMoments,
    OpeningQuestion,
    Roles,
    open_moments,
)
from fedclust.algorithms.cmeans.opened_cells import OpenedCell, Partition, nearest_partition, whole_table
from fedclust.algorithms.shared.reseeding import CenterReseeder
from fedclust.core.effects import Protocol, report, total
from fedclust.core.site_interface import View
from fedclust.core.types import Bools, Floats, Ints, PartyId
from fedclust.kernels import distances


@dataclass(frozen=True)
class FlooredFitResult(FitResult):
    """A finished run, and for each cluster the cell whose sums were opened last; None if that never happened."""

    cells: tuple[OpenedCell | None, ...]


@dataclass
class OpenedSums:
    """The sums of each cluster as last opened: its size, its centre and its scatter come from one cell or from none."""

    mass: Floats
    centers: Floats
    scatter: Floats  # to the centres that were asked about
    around_mean: Floats  # to the means
    iteration: Ints  # in which the cell was opened; 0 for groups of cells
    cells: list[OpenedCell | None] = field(init=False)
    forgotten: set[int] = field(default_factory=set)  # clusters whose sums were opened, but describe them no more

    def __post_init__(self) -> None:
        self.cells = [None] * len(self.mass)

    @property
    def is_known(self) -> Bools:
        """Which clusters are described by a cell."""
        return np.array([cell is not None for cell in self.cells])

    @classmethod
    def start(cls, centers: Floats) -> OpenedSums:
        nothing = np.zeros(len(centers))
        return cls(nothing, centers.copy(), nothing.copy(), nothing.copy(), np.zeros(len(centers), np.int64))

    def update(
        self, partition: Partition, asked: Floats, allowed: Bools, sums: OpenedMoments, *, iteration: int
    ) -> None:
        """Replace the sums of the clusters that were opened; a cluster without rows stays where it is."""
        mass, pull, scatter = sums.mass.to_floats(), sums.pull.to_floats(), sums.scatter.to_floats()
        means = np.where(mass[:, None] > 0, pull / np.maximum(mass, 1.0)[:, None], asked)
        moved = means - asked
        squares = np.array([math.fsum(row) for row in (moved * moved).tolist()])
        around = np.maximum(scatter - mass * squares, 0.0)
        self.mass = np.where(allowed, mass, self.mass)
        self.centers = np.where(allowed[:, None], means, asked)
        self.scatter = np.where(allowed, scatter, self.scatter)
        self.around_mean = np.where(allowed, around, self.around_mean)
        self.iteration = np.where(allowed, iteration, self.iteration)
        for cluster in np.flatnonzero(allowed).tolist():
            self.cells[cluster] = OpenedCell(partition, cluster)
            self.forgotten.discard(cluster)

    def forget(self, clusters: Bools) -> None:
        """Describe some clusters by no cell any more."""
        for cluster in np.flatnonzero(clusters & self.is_known).tolist():
            self.cells[cluster] = None
            self.forgotten.add(cluster)
        for sums in (self.mass, self.scatter, self.around_mean):
            sums[clusters] = 0.0

    def forget_surplus(self, rows: int, floor: int) -> None:
        """Forget cells until no row can count more than once, but for rows that may have moved.

        Cells of one iteration have no row in common. Each cell that was opened before the newest ones may have fewer
        rows than the floor in common with others. The cells that were opened first are forgotten first.
        """
        left, newest = float(rows), self.iteration.max(initial=0)
        for cluster in np.argsort(-self.iteration, kind="stable").tolist():
            moved = floor - 1 if self.iteration[cluster] < newest and self.mass[cluster] > 0 else 0
            if self.mass[cluster] > left + moved:
                self.forget(np.arange(len(self.mass)) == cluster)
            else:
                left += moved - self.mass[cluster]


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

    def sentences(self, floor: int, known: OpenedSums) -> list[str]:
        """Return what a reader of the result must know."""
        rounds = sum(count > 0 for count in self.counts)
        found = []
        if rounds:
            found.append(
                f"Clusters stayed closed {sum(self.counts)} times in {rounds} of {len(self.counts)} iterations, "
                f"because fewer than {floor} rows distinguished them from sums that were opened before. A closed "
                "cluster's centre does not move, so the result is not that of exact k-means; it is the same however "
                "the rows are spread."
            )
        if (grouped := sum(cell is not None and cell.partition.has_groups for cell in known.cells)) > 0:
            found.append(
                f"Clusters that stayed closed in every iteration: {grouped}. Their centres and sizes are those of the "
                "groups of rows that their initial centres come from."
            )
        advice = (
            "so the inertia is not known and is given as infinite. Ask for fewer clusters, or use other initial "
            "centres."
        )
        if not known.is_known.any():
            found.append(
                f"No cluster was found: the sum of no cluster could be opened above a floor of {floor} rows. The "
                "centres are the initial ones. Use more rows, or a lower floor if all sites agree."
            )
        if (never := int((~known.is_known).sum()) - len(known.forgotten)) > 0:
            found.append(
                f"Clusters whose sums were never opened: {never}. They kept their initial centres, and their rows are "
                f"not counted, {advice}"
            )
        if known.forgotten:
            found.append(
                f"Clusters of which too little is known: {len(known.forgotten)}. Most rows of the "
                "sums that were opened for them belong to other clusters by now, or they had no rows and were placed "
                f"again. Their sizes are not known, {advice}"
            )
        return found


def fit(
    view: View,
    start: Floats,
    *,
    floor: int,
    tol: float | None,
    max_iter: int,
    rows: int,
    parties: Sequence[PartyId],
    rng: np.random.Generator,
    record: OpeningRecord,
) -> Protocol[FlooredFitResult]:
    """Move the centres of clusters that may be opened until none may be or all have settled.

    `rows` is the number of rows of all sites. The sizes of all clusters exceed it by less than the floor for each
    cluster; sums that were opened long ago are left out if they would exceed it by more.

    Without `tol`, every iteration asks its questions, so that their number does not depend on the rows. `record` has
    the cells that were opened before in this run; the cells of this fit are added to it. The objective of an iteration
    is that of all rows around its centres; it is not known if a cluster was closed.
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
        closed.observe(allowed)
        if tol is not None and not allowed.any() and (number > 1 or facts is None):
            history.append(Round(number, 0.0, None))
            break
        sums = yield from total(open_moments, OpeningQuestion.from_verdict(ask, centers, allowed, signature))
        record.add(partition, allowed)
        known.update(partition, centers, allowed, sums, iteration=number)
        target, reseeded = places.reseed_empty(_round_result(known, allowed), centers, number)
        objective = math.fsum(known.scatter.tolist()) if allowed.all() else None
        if reseeded:
            known.forget(allowed & (known.mass <= 0))
        if number == 1 and facts is not None and not known.is_known.all():
            target = yield from _open_groups(view, target, facts, known, floor=floor, roles=roles, record=record)
        shift = frobenius(target - centers)
        centers = target
        history.append(Round(number, shift, objective))
        yield from report(round=number, shift=shift, objective=objective)
        if tol is not None and shift < tol and not reseeded:
            break
    known.forget_surplus(rows, floor)
    notes.note_empty_clusters(int((known.is_known & (known.mass <= 0)).sum()))
    notes.others += closed.sentences(floor, known)
    within = math.fsum(known.around_mean.tolist()) if known.is_known.all() else math.inf
    return FlooredFitResult(
        centers, start, within, known.mass, tuple(history), tuple(notes.sentences()), tuple(known.cells)
    )


def _open_groups(
    view: View,
    centers: Floats,
    facts: StartFacts,
    known: OpenedSums,
    *,
    floor: int,
    roles: Roles,
    record: OpeningRecord,
) -> Protocol[Floats]:
    """The centres after the groups of cells of clusters that have not been opened have been opened instead."""
    ask = FloorQuestion(view, facts.groups, record.earlier, floor, roles)
    if not ask.is_small:
        return centers
    allowed, signature = yield from decide_openings(ask)
    has_cells = np.isin(np.arange(len(allowed)), facts.groups.arrays["groups"])
    wanted = np.append(~known.is_known, False) & has_cells  # not the rows of no group
    opened = (allowed & wanted)[:-1]
    sums = yield from total(open_moments, OpeningQuestion.from_verdict(ask, centers, allowed, signature, wanted))
    record.add(facts.groups, allowed & wanted)
    known.update(facts.groups, centers, opened, sums, iteration=0)
    far = opened & ~_is_own_centre_nearest(known.centers, centers)
    known.forget(far)
    return np.where((opened & ~far)[:, None], known.centers, centers)


def _is_own_centre_nearest(means: Floats, centers: Floats) -> Bools:
    """For each cluster, whether its own centre is nearest to a mean: a far group does not describe its cluster."""
    apart, _ = distances.nearest_centers(np.ascontiguousarray(means.T), centers)
    return np.asarray(apart == np.arange(len(centers)), np.bool_)


def _round_result(known: OpenedSums, allowed: Bools) -> RoundResult:
    """Return where the sums put the centres. A closed cluster is not empty, even if it was when it was last opened."""
    mass = np.where(allowed, known.mass, np.maximum(known.mass, 1.0))
    scatter = math.fsum(known.scatter.tolist())
    return RoundResult(known.centers, mass, scatter, hidden=0, abstained=0, everyone_asked=True)
