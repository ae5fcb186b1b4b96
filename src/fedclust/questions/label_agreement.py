"""How far labels agree with a known truth, from a table of counts; and the table itself, summed over parties.

For evaluation: whoever knows the truth hands each party the truth of its own rows, and only counts of (cluster, class)
over all parties come back. In a real study nobody has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Keep, Protocol, each_to, handler, total
from fedclust.core.errors import DataError
from fedclust.core.question_types import GapsQuestion, ViewedQuestion
from fedclust.core.release import Done, Release, additive
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.study_terms import never_in_study
from fedclust.core.types import Array, Floats, Ints, PartyId, Units
from fedclust.kernels import distances, elementary, gap_sweep

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class KnownClasses(GapsQuestion):
    """The class of each of a party's rows that take part, in their order."""

    classes: Ints
    missing: str

    def rows_with_gaps(self) -> str:
        return self.missing


# Classes are the coordinator's choice: a row alone in its class is singled out.
@handler(releases=Done, withheld=True, contract=never_in_study)
def remember_truth(site: Site, ask: KnownClasses) -> Keep[Done]:
    """Keep the truth until it is counted."""
    if len(ask.classes) != site.rows:
        raise DataError(
            f"{count_noun(site.rows, 'row')} of site '{site.party}' can take part, but "
            f"{count_noun(len(ask.classes), 'true class was', 'true classes were')} given; "
            "give one class for each row"
        )
    return Keep(Done(), {**site.memory, "truth": ask.classes})


@dataclass(frozen=True)
class ContingencyQuestion(ViewedQuestion):
    """Rows take the label of the nearest centre; how many of each label has each of so many classes?"""

    view: View
    centers: Floats
    classes: int


@dataclass(frozen=True)
class ContingencyCounts(Release):
    table: Exact = additive("how many rows of each cluster belong to each class", cells=True)


@handler(releases=ContingencyCounts, withheld=True, contract=never_in_study)
def count_classes(site: Site, ask: ContingencyQuestion) -> Keep[ContingencyCounts]:
    """This party's share of the table; the truth is forgotten."""
    table = np.zeros((len(ask.centers), ask.classes), np.int64)
    at = 0
    for block in site.blocks(ask.view):
        truth = site.memory["truth"][at : at + block.shape[1]]
        np.add.at(table, (nearest_labels(block, ask), truth), 1)
        at += block.shape[1]
    return Keep(
        ContingencyCounts(Exact.from_counts(table)),
        {name: kept for name, kept in site.memory.items() if name != "truth"},
    )


def nearest_labels(block: Array, ask: ContingencyQuestion) -> Units:
    """Labels as the model gives them."""
    if ask.view.missing == "partial":
        return gap_sweep.partial_labels(block, ask.centers)
    return distances.nearest_centers(block, ask.centers)[0]


def contingency(view: View, centers: Floats, truth: Mapping[PartyId, Ints], classes: int) -> Protocol[Ints]:
    """Clusters by classes, over all parties."""
    yield from each_to(remember_truth, {party: KnownClasses(own, view.missing) for party, own in truth.items()})
    counts = (yield from total(count_classes, ContingencyQuestion(view, centers, classes))).table
    return np.array(counts.to_integers(), np.int64).reshape(counts.shape)


def ari(table: Ints) -> float:
    """Adjusted Rand index (Hubert and Arabie): pairs that both keep together, beyond chance.

    >>> ari(np.array([[2, 0], [1, 1]]))
    0.0
    """
    both, one, other = (_count_pairs(counts) for counts in (table, table.sum(axis=1), table.sum(axis=0)))
    every = _count_pairs(table.sum())
    if both == one == other:
        return 1.0
    # 2 (tp tn - fn fp) / ((tp + fn)(fn + tn) + (tp + fp)(fp + tn)), in whole numbers.
    fn, fp, tn = one - both, other - both, every - one - other + both
    return 2 * (both * tn - fn * fp) / (one * (fn + tn) + other * (fp + tn))


def nmi(table: Ints) -> float:
    """Mutual information over the mean of both entropies (Strehl and Ghosh)."""
    table = _without_empty(table)
    if table.shape == (1, 1):
        return 1.0
    shared = mutual_information(table)
    mean = (entropy(table.sum(axis=0)) + entropy(table.sum(axis=1))) / 2
    return shared / mean if shared > EPS else 0.0


def ami(table: Ints) -> float:
    """Mutual information beyond chance, over the mean of both entropies beyond chance (Vinh, Epps and Bailey)."""
    table = _without_empty(table)
    if 1 in table.shape:
        return 1.0 if table.shape == (1, 1) else 0.0
    chance = expected_information(table.sum(axis=1), table.sum(axis=0))
    mean = (entropy(table.sum(axis=0)) + entropy(table.sum(axis=1))) / 2
    return _off_zero(mutual_information(table) - chance) / _off_zero(mean - chance)


def accuracy(table: Ints) -> float:
    """The share of rows in the right cluster under the best one-to-one naming of clusters (Hungarian)."""
    rows, columns = linear_sum_assignment(table, maximize=True)
    return int(table[rows, columns].sum()) / int(table.sum())


def entropy(counts: Ints) -> float:
    """Entropy of a partition, in nats."""
    shares = counts[counts > 0] / counts.sum()
    return -math.fsum((shares * elementary.log(shares)).tolist())


def mutual_information(table: Ints) -> float:
    """Mutual information of the two partitions of a table, in nats."""
    rows = float(table.sum())
    chance = np.outer(table.sum(axis=1), table.sum(axis=0).astype(np.float64)) / rows
    seen = table > 0
    terms = table[seen] / rows * elementary.log(table[seen] / chance[seen])
    return max(math.fsum(terms.tolist()), 0.0)


def expected_information(a: Ints, b: Ints) -> float:
    """Mutual information that partitions of these sizes have by chance.

    sum_ij sum_n P(n) n/N log(N n / (a_i b_j)), where P is hypergeometric: P(n + 1) / P(n) follows from n alone, so P
    needs no factorials.
    """
    rows = int(a.sum())
    terms = [_expected_information(int(one), int(other), rows) for one in a for other in b]
    return math.fsum(terms)


def _expected_information(a: int, b: int, rows: int) -> float:
    n = np.arange(max(0, a + b - rows), min(a, b) + 1, dtype=np.float64)
    ratios = (a - n[:-1]) * (b - n[:-1]) / ((n[:-1] + 1) * (rows - a - b + n[:-1] + 1))
    logs = np.concatenate([[0.0], np.cumsum(elementary.log(ratios))])
    chances = elementary.exp(logs - logs.max())
    possible = n > 0
    terms = chances[possible] * n[possible] / rows * elementary.log(rows * n[possible] / (float(a) * b))
    return math.fsum(terms.tolist()) / math.fsum(chances.tolist())


def least_cost_matching(cost: Floats) -> tuple[Ints, Ints]:
    """The one-to-one matching of least total cost."""
    rows, columns = linear_sum_assignment(cost)
    return np.asarray(rows, np.int64), np.asarray(columns, np.int64)


def _count_pairs(counts: Ints) -> int:
    return sum(n * (n - 1) // 2 for n in np.ravel(counts).tolist())


def _without_empty(table: Ints) -> Ints:
    """The table without empty rows and columns."""
    return np.asarray(table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0], np.int64)


def _off_zero(value: float) -> float:
    """At least the spacing of 1 away from zero, so that a perfect match by chance alone is 1."""
    return min(value, -EPS) if value < 0 else max(value, EPS)
