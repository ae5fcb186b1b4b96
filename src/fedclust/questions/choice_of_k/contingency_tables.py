"""Contingency tables of two partitions of the same rows, counted at the sites: whether fits from restarts agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.gaussian_mixture.densities import Gaussians, component_scores, whiten
from fedclust.core.effects import Protocol, handler, total
from fedclust.core.errors import WireError
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats, Ints
from fedclust.questions.choice_of_k.choice_contracts import fits_pairs
from fedclust.questions.partition_changes import MAX_PAIRS


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
    """Two partitions of the same rows."""

    one: Partition
    other: Partition


@dataclass(frozen=True)
class PairsQuestion(ViewedQuestion):
    """Pairs of partitions to compare."""

    view: View
    pairs: tuple[PartitionPair, ...]


@dataclass(frozen=True)
class ContingencyTables(Release):
    counts: Exact = additive(
        "for two partitions: how many rows lie in each pair of clusters, one cluster from each partition (a "
        "contingency table)",
        cells=True,
    )


@handler(releases=ContingencyTables, contract=fits_pairs)
def count_label_pairs(site: Site, ask: PairsQuestion) -> ContingencyTables:
    """One contingency table after the other."""
    shapes = [(len(pair.one.by.means), len(pair.other.by.means)) for pair in ask.pairs]
    if sum(one * other for one, other in shapes) > MAX_PAIRS:
        raise WireError("the question has more pairs of clusters than a site accepts")
    counts = [np.zeros(shape, np.int64) for shape in shapes]
    for block in site.blocks(ask.view):
        x = np.asarray(block, np.float64)
        for pair, table in zip(ask.pairs, counts, strict=True):
            np.add.at(table, (pair.one.labels(x), pair.other.labels(x)), 1)
    return ContingencyTables(Exact.from_counts(np.concatenate([table.ravel() for table in counts])))


def contingency_tables(view: View, pairs: Sequence[PartitionPair]) -> Protocol[list[Ints]]:
    """The contingency table of each pair, over all parties."""
    sums = yield from total(count_label_pairs, PairsQuestion(view, tuple(pairs)))
    counts = np.array(sums.counts.to_integers(), np.int64)
    shapes = [(len(pair.one.by.means), len(pair.other.by.means)) for pair in pairs]
    cuts = np.cumsum([a * b for a, b in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(counts, cuts), shapes, strict=True)]
