"""Greedy joins of groups of rows by their evidence: from many pieces to one group, with a value for each number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.shared.fixed_order import ordered_sum
from fedclust.core.types import Floats, Ints
from fedclust.questions.choice_of_k.evidence import GroupSums, Likelihood, log_gamma, sizes_evidence


@dataclass(frozen=True)
class JoinPath:
    """For each number of groups the evidence of the partition into so many groups, and the pieces' labels."""

    likelihood: Likelihood
    values: dict[int, float]
    labels: dict[int, Ints]

    @property
    def best(self) -> int:
        """The number of groups with the most evidence."""
        return max(self.values, key=lambda k: self.values[k])


@dataclass(frozen=True)
class Partition:
    """Groups of rows under one kind of component, with their evidence."""

    groups: GroupSums
    likelihood: Likelihood
    evidence: float


def join_by_evidence(likelihood: Likelihood, pieces: GroupSums, rows: float) -> JoinPath:
    """Join, one after the other, the two groups whose union gains most."""
    many = len(pieces)
    labels, alive = np.arange(many), np.ones(many, np.bool_)
    own = _group_evidence(likelihood, pieces)
    gains = np.full((many, many), -np.inf)
    i, j = np.triu_indices(many, 1)
    if len(i):
        gains[i, j] = _group_evidence(likelihood, pieces.take(i).add(pieces.take(j))) - own[i] - own[j]
    groups = pieces.copy()
    whole = float(ordered_sum(own))
    values, found = {many: whole + sizes_evidence(many, rows)}, {many: labels.copy()}
    for count in range(many - 1, 0, -1):
        a, b = divmod(int(gains.argmax()), many)
        whole += float(gains[a, b])
        for part in groups.parts:
            part[a] += part[b]
        own[a] += own[b] + gains[a, b]
        alive[b] = False
        labels[labels == b] = a
        gains[b] = gains[:, b] = -np.inf
        others = np.flatnonzero(alive)
        others = others[others != a]
        if len(others):
            union = groups.take(others).add(groups.take(np.full(len(others), a)))
            new = _group_evidence(likelihood, union) - own[others] - own[a]
            gains[np.minimum(others, a), np.maximum(others, a)] = new
        values[count] = whole + sizes_evidence(count, rows)
        found[count] = np.asarray(np.unique(labels, return_inverse=True)[1], np.int64)
    return JoinPath(likelihood, values, found)


def best_path(likelihoods: Sequence[Likelihood], pieces: GroupSums, rows: float) -> JoinPath:
    """The joins under the likelihood that describes the rows best."""
    paths = [join_by_evidence(likelihood, pieces, rows) for likelihood in likelihoods]
    return max(paths, key=lambda path: path.values[path.best])


def _group_evidence(likelihood: Likelihood, groups: GroupSums) -> Floats:
    return np.asarray(likelihood.log_evidence(groups) + log_gamma(groups.rows + 1.0), np.float64)
