"""Whether clusters reappear: contingency tables of two partitions of the same rows, counted at the sites.

Prediction strength (Tibshirani and Walther 2005) of K clusters: halve the rows, cluster either half, and see how many
pairs of rows that one half puts together the other half's centres put together as well, in the worst cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.gaussian_mixture.densities import ALL_ROWS, Gaussians, component_scores, rows_of_part, whiten
from fedclust.algorithms.gaussian_mixture.mixture import (
    Family,
    Frame,
    frame_of_part,
    nearest_gaussians,
    run_em,
    start_mixtures,
    to_gaussians,
)
from fedclust.core.effects import Protocol, handler, total
from fedclust.core.errors import WireError
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Floats, Ints
from fedclust.questions.choice_of_k.centers_for_each_k import GrownCenters, grow_centers
from fedclust.questions.partition_changes import MAX_PAIRS

HALVINGS = 2


@dataclass(frozen=True)
class Partition:
    """A way to label rows: the likeliest component, or the nearest centre."""

    by: Gaussians
    root: Floats | None = None

    def labels(self, x: Floats) -> Ints:
        """The label of each row of a block of columns."""
        return np.asarray(
            component_scores(self.by, x if self.root is None else whiten(x, self.root)).argmax(axis=0), np.int64
        )


@dataclass(frozen=True)
class PartitionPair:
    """Two partitions of the same part of the rows."""

    part: int
    one: Partition
    other: Partition


@dataclass(frozen=True)
class PairsQuestion(ViewedQuestion):
    """Pairs of partitions to compare."""

    view: View
    seed: int
    pairs: tuple[PartitionPair, ...]


@dataclass(frozen=True)
class ContingencyTables(Release):
    counts: Exact = additive(
        "for two partitions: how many rows lie in each pair of clusters, one cluster from each partition (a "
        "contingency table)",
        cells=True,
    )


@handler(releases=ContingencyTables)
def tables(site: Site, ask: PairsQuestion) -> ContingencyTables:
    """One contingency table after the other."""
    shapes = [(len(pair.one.by.means), len(pair.other.by.means)) for pair in ask.pairs]
    if sum(one * other for one, other in shapes) > MAX_PAIRS:
        raise WireError("the question has more pairs of clusters than a site accepts")
    counts = [np.zeros(shape, np.int64) for shape in shapes]
    for block in site.blocks(ask.view):
        x = np.asarray(block, np.float64)
        for pair, table in zip(ask.pairs, counts, strict=True):
            part = rows_of_part(x, pair.part, ask.seed)
            np.add.at(table, (pair.one.labels(part), pair.other.labels(part)), 1)
    return ContingencyTables(Exact.from_counts(np.concatenate([table.ravel() for table in counts])))


def contingency_tables(view: View, pairs: Sequence[PartitionPair], *, seed: int = 0) -> Protocol[list[Ints]]:
    """The contingency table of each pair, over all parties."""
    sums = yield from total(tables, PairsQuestion(view, seed, tuple(pairs)))
    counts = np.array(sums.counts.to_integers(), np.int64)
    shapes = [(len(pair.one.by.means), len(pair.other.by.means)) for pair in pairs]
    cuts = np.cumsum([a * b for a, b in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(counts, cuts), shapes, strict=True)]


def halves(frame: Frame, max_clusters: int) -> Protocol[Halves]:
    """Centres of c-means on every half of a few halvings."""
    return Halves(frame, (yield from grow_centers(frame, max_clusters, parts=range(1, 2 * HALVINGS + 1))))


@dataclass(frozen=True)
class Halves:
    """Clusters of every half, for K = 1, 2, ...; parts 1 and 2, 3 and 4, ... are the halves of one halving."""

    frame: Frame
    grown: list[list[GrownCenters]]

    @property
    def has_empty_half(self) -> bool:
        """Whether a half has no rows, as happens where few rows differ: equal ones are in the same half."""
        return any(not runs[0].mass.any() for runs in self.grown)

    def strengths(self, ks: Sequence[int]) -> Protocol[list[float]]:
        """Prediction strength of c-means for some K: the mean over halvings, and over which half predicts."""
        ways = [[Partition(nearest_gaussians(runs[k - 1].centers)) for runs in self.grown] for k in ks]
        return (yield from self._strengths(ways))

    def strength_of_mixture(self, means: Floats, family: Family, *, tol: float, max_iter: int) -> Protocol[float]:
        """The same for the components of a mixture, given by the means it has in all rows.

        EM climbs in every half from the half's own centres of c-means and from those means, and the likelier end
        counts: c-means of a half may cut it along a column that has nothing to do with the components.
        """
        way = list[Partition]()
        for runs in self.grown:
            part = runs[0].part
            frame = self.frame
            if family == "EEE":
                frame = yield from frame_of_part(frame, part, float(runs[0].mass.sum()))
            starts = yield from start_mixtures(frame, [family], [runs[len(means) - 1].centers, means], parts=[part] * 2)
            first = [only for (only,) in starts]
            found = yield from run_em(frame, first, tol=tol, max_iter=max_iter, parts=[part] * 2)
            likelier = max(found, key=lambda e: e.log)
            way.append(Partition(to_gaussians(likelier.mixture, frame), frame.root if family == "EEE" else None))
        return (yield from self._strengths([way]))[0]

    def _strengths(self, ways: Sequence[Sequence[Partition]]) -> Protocol[list[float]]:
        parts = [runs[0].part for runs in self.grown]
        pairs = [PartitionPair(part, own[i], own[i ^ 1]) for own in ways for i, part in enumerate(parts)]
        found = yield from contingency_tables(self.frame.view, pairs, seed=self.frame.seed)
        each = [found[at : at + len(parts)] for at in range(0, len(found), len(parts))]
        return [float(np.mean([_half_strength(tables, i) for i in range(len(parts))])) for tables in each]


def _half_strength(tables: Sequence[Array], i: int) -> float:
    """The strength of one half's clusters; none where the other half has no rows to predict from."""
    return strength(tables[i]) if tables[i ^ 1].any() else 0.0


def strength(table: Array) -> float:
    """The least share of pairs of rows of a cluster (a row of the table) that share a column, too."""
    sizes = table.sum(axis=1)
    kept = (table * (table - 1)).sum(axis=1)
    return min((float(a) / float(n * (n - 1)) for a, n in zip(kept, sizes, strict=True) if n > 1), default=0.0)


def pair_over_all_rows(one: Partition, other: Partition) -> PartitionPair:
    """Two partitions of all rows."""
    return PartitionPair(ALL_ROWS, one, other)
