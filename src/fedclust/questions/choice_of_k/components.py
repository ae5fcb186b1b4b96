"""Components of the rows by evidence: joined from cells, then improved over the rows a few times.

For each shape of component, and again from cells that are whitened by the scatter within the best result, pieces are
joined by evidence. The best two results ("chains") go on over the rows: each row belongs to its likeliest component,
the sums of the components are asked for, and they are joined again. With a floor this is done once, for the best
result, and only for components whose sums do not differ from those of cells by few rows (`floored_components`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedclust.core.effects import Protocol, total
from fedclust.core.types import Floats, Ints
from fedclust.kernels import elementary
from fedclust.questions.choice_of_k.cell_growth import Cells, group_sums, join_nearest, piece_count
from fedclust.questions.choice_of_k.choice_frame import ChoiceFrame
from fedclust.questions.choice_of_k.component_questions import Components, ComponentSumsQuestion, component_moments
from fedclust.questions.choice_of_k.evidence import (
    PRIOR_SPREADS,
    SHAPES,
    GroupSums,
    Likelihood,
    Shape,
    assign_groups,
    partition_evidence,
)
from fedclust.questions.choice_of_k.floored_components import sums_above_floor
from fedclust.questions.choice_of_k.joins import JoinPath, Partition, best_path, join_by_evidence
from fedclust.questions.choice_of_k.matrices import inverse_roots, log_determinants, transform

ROUNDS, CHAINS, TRIES = 3, 2, 2
CELL_ROUNDS = 3
MIN_SHARE, MIN_COMPONENT_ROWS = 0.1, 4  # of a component: a share of the mean size, and a number of rows
RIDGE = 1e-9  # added to variances, so that axes without scatter can be whitened
MIN_TRY_COMPONENTS = 3  # with fewer, no component is left out for a try


@dataclass
class EvidenceCurve:
    """For each number of components the most evidence of any partition, and the shape of its components."""

    best: dict[int, tuple[float, Shape]] = field(default_factory=dict)

    def note_path(self, path: JoinPath) -> None:
        for k, value in path.values.items():
            if k not in self.best or value > self.best[k][0]:
                self.best[k] = value, path.likelihood.shape

    def values_up_to(self, most: int) -> dict[int, tuple[float, Shape]]:
        """The curve for no more than so many components."""
        return {k: self.best[k] for k in sorted(self.best) if k <= most}


@dataclass(frozen=True)
class _Chain:
    """Groups that are improved with one shape of component, and how many the joins found."""

    groups: GroupSums
    likelihood: Likelihood
    value: float
    count: int


class _Search:
    """The joins of one choice, which also fill in the curve."""

    def __init__(self, frame: ChoiceFrame, curve: EvidenceCurve) -> None:
        self.frame, self.curve = frame, curve
        geometry = frame.geometry
        self.shapes: tuple[Shape, ...] = SHAPES if geometry.axes > 1 else ("round",)
        spreads = PRIOR_SPREADS if geometry.axes else (1.0,)
        self.likelihoods = [
            Likelihood(shape, spread, geometry.axes, geometry.categories) for shape in self.shapes for spread in spreads
        ]

    def of_shape(self, shape: Shape) -> list[Likelihood]:
        return [one for one in self.likelihoods if one.shape == shape]

    def join(self, groups: GroupSums, shape: Shape) -> JoinPath:
        path = best_path(self.of_shape(shape), groups, self.frame.rows)
        self.curve.note_path(path)
        return path

    def value(self, groups: GroupSums, likelihood: Likelihood) -> float:
        return partition_evidence(likelihood, groups, self.frame.rows)


def find_components(frame: ChoiceFrame, cells: Cells, curve: EvidenceCurve) -> Protocol[Partition]:
    """The partition of the rows with the most evidence that was found."""
    search = _Search(frame, curve)
    chains = _start_chains(search, cells)
    if len(chains) == 1 and chains[0].count == 1:
        everything = cells.groups.join(np.zeros(len(cells.groups), np.int64), 1)
        return Partition(everything, chains[0].likelihood, chains[0].value)
    if frame.floor > 1:
        return (yield from _improve_above_floor(search, cells, chains[0]))
    for number in range(ROUNDS):
        chains = yield from _improve_over_rows(search, chains, number)
    ends = [Partition(chain.groups, chain.likelihood, search.value(chain.groups, chain.likelihood)) for chain in chains]
    best = max(ends, key=lambda end: end.evidence)
    for _ in range(TRIES):
        better = yield from _try_one_fewer(search, best)
        if better is None:
            break
        best = better
    return best


def _more(count: int) -> int:
    """With how many components a chain goes on, of which some are joined later."""
    return count + (count + 1) // 2 + 1 if count > 1 else 1


def _start_chains(search: _Search, cells: Cells) -> list[_Chain]:
    """The best chains that joins of cells lead to; a single component only if it is the best of all."""
    count = piece_count(len(cells.groups), search.frame.rows)
    pieces = join_nearest(cells.groups.rows, cells.places, count)
    chains = [_chain_from_pieces(search, cells, pieces, shape) for shape in search.shapes]
    if search.frame.geometry.axes > 1:
        best = max(chains, key=lambda chain: chain.value)
        whitened = join_nearest(cells.groups.rows, _whiten_cells(search, cells, best), count)
        chains.append(_chain_from_pieces(search, cells, whitened, "full"))
    chains.sort(key=lambda chain: -chain.value)
    return [chain for chain in chains if chain.count > 1 or chain is chains[0]][:CHAINS]


def _chain_from_pieces(search: _Search, cells: Cells, pieces: Ints, shape: Shape) -> _Chain:
    """Join pieces, give cells to their likeliest component a few times, and join again."""
    path = search.join(joined := cells.groups.join(pieces), shape)
    count = min(len(joined), _more(path.best))
    groups = joined.join(path.labels[count], count)
    for _ in range(CELL_ROUNDS):
        moved = cells.groups.join(assign_groups(path.likelihood, cells.groups, groups), count)
        groups = moved.take(moved.rows > 0)
        count = len(groups)
    path = search.join(groups, shape)
    return _Chain(groups, path.likelihood, path.values[path.best], path.best)


def _whiten_cells(search: _Search, cells: Cells, chain: _Chain) -> Floats:
    """The cells' means in axes in which the rows of each component of a chain have the same scatter in all directions.

    The whole keeps its volume.
    """
    path = join_by_evidence(chain.likelihood, chain.groups, search.frame.rows)
    within = np.zeros((search.frame.geometry.axes,) * 2)
    for own in chain.groups.join(path.labels[chain.count], chain.count).scatter:
        within += own
    within = within / search.frame.rows + RIDGE * np.eye(len(within))
    volume = float(elementary.exp(0.5 * log_determinants(within)[None] / len(within))[0])
    return transform((inverse_roots(within) * volume)[None], cells.groups.means)


def _improve_over_rows(search: _Search, chains: Sequence[_Chain], number: int) -> Protocol[list[_Chain]]:
    """One round over the rows for all chains; components of few rows are dropped, and the last rounds join again."""
    is_last = number == ROUNDS - 1
    several = [chain for chain in chains if len(chain.groups) > 1]
    sums = iter((yield from row_sums(search.frame, [_to_components(chain) for chain in several])))
    out = []
    for chain in chains:
        groups = next(sums) if len(chain.groups) > 1 else chain.groups
        least = max(MIN_COMPONENT_ROWS, MIN_SHARE * search.frame.rows / len(groups)) if is_last else 1.0
        large = groups.rows >= least
        if large.any():
            groups = groups.take(large)
        likelihood = chain.likelihood
        if number >= ROUNDS - 2:
            path = search.join(groups, likelihood.shape)
            likelihood, groups = path.likelihood, groups.join(path.labels[path.best], path.best)
        out.append(replace(chain, groups=groups, likelihood=likelihood))
    return out


def _to_components(chain: _Chain) -> Components:
    return chain.likelihood.components(chain.groups)


def row_sums(frame: ChoiceFrame, sets: Sequence[Components]) -> Protocol[list[GroupSums]]:
    """For each set of components the sums of the rows of each; a component may have none."""
    if not sets:
        return []
    ends = np.cumsum([len(one.offsets) for one in sets]).tolist()
    ask = ComponentSumsQuestion(*frame.fields, sets=tuple(sets), asked=np.arange(ends[-1]))
    found = group_sums((yield from total(component_moments, ask))).blur(frame.geometry.rounding)
    return [found.take(slice(end - len(one.offsets), end)) for one, end in zip(sets, ends, strict=True)]


def _improve_above_floor(search: _Search, cells: Cells, chain: _Chain) -> Protocol[Partition]:
    """One round over the rows, and the joins of its components."""
    groups = yield from sums_above_floor(search.frame, cells, _to_components(chain))
    groups = groups.take(groups.rows >= MIN_COMPONENT_ROWS)
    path = search.join(groups, chain.likelihood.shape)
    joined = groups.join(path.labels[path.best], path.best)
    return Partition(joined, path.likelihood, path.values[path.best])


def _try_one_fewer(search: _Search, best: Partition) -> Protocol[Partition | None]:
    """A better partition from one component fewer: without the smallest one, or with the cheapest two joined."""
    groups, likelihood = best.groups, best.likelihood
    count = len(groups)
    if count < MIN_TRY_COMPONENTS:
        return None
    without = groups.take(np.arange(count) != int(groups.rows.argmin()))
    path = join_by_evidence(likelihood, groups, search.frame.rows)
    joined = groups.join(path.labels[count - 1], count - 1)
    tried = yield from row_sums(search.frame, [likelihood.components(one) for one in (without, joined)])
    ends = []
    for one in tried:
        some = one.take(one.rows > 0)
        path = search.join(some, likelihood.shape)
        joined = some.join(path.labels[path.best], path.best)
        ends.append(Partition(joined, path.likelihood, path.values[path.best]))
    better = max(ends, key=lambda end: end.evidence)
    return better if better.evidence > best.evidence else None
