"""Which components belong to one group: those between which the rows show no valley.

The rows of two neighbouring components are counted along the line that separates the two best. From dense to thin, each
component joins the denser neighbour to which it has no valley ("watershed"). Two groups are joined through a third
component only if that is dense enough, and if the rows of all three show no valley on the line of the outer two.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.core.effects import Protocol, total
from fedclust.core.types import Bools, Floats, Ints
from fedclust.kernels import elementary
from fedclust.questions.choice_of_k.choice_frame import ChoiceFrame
from fedclust.questions.choice_of_k.choice_questions import HistogramCounts
from fedclust.questions.choice_of_k.component_questions import (
    Components,
    LinesQuestion,
    line_histograms,
    padded_members,
)
from fedclust.questions.choice_of_k.evidence import MIN_WEIGHT, GroupSums, Likelihood
from fedclust.questions.choice_of_k.matrices import (
    inner_products,
    inverse_roots,
    log_determinants,
    squared_lengths,
    transform,
)
from fedclust.questions.choice_of_k.valleys import bin_range, valley_evidence

MILD_LIMIT, MILD_SLOPE, MILD_ROWS = 1.5, 3.0, 300.0  # evidence for a valley between so many rows: 1.5 to 4.5
STRICT_LIMIT = 4.5  # evidence for a valley whatever the number of rows
MARGIN = 2.5  # standard deviations that a line reaches beyond the means of its components
NEAREST = 6  # components that each one is compared with
BRIDGE_DENSITY = -1.2039728043259361  # log .3: a component that joins two groups is at most so much thinner
PEAK_DENSITY, OTHER_PEAK_DENSITY = 1.5, 0.5  # log densities below the peaks of components that may join two groups
LINE_RIDGE = 0.05  # of the prior variance, added to a component's own
MAX_LINES = 1024

Pair = tuple[int, int]
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Landscape:
    """Components with rows: their sums, means, covariances and log peak densities, and which come next to which.

    `numbers` are their numbers among `components`, by which rows are assigned.
    """

    components: Components
    numbers: Ints
    groups: GroupSums
    means: Floats
    covariances: Floats  # as the likelihood sees them
    own_covariances: Floats  # of the rows, with a small ridge
    densities: Floats
    distances: Floats  # squared, in the mean covariance of the two
    neighbors: Bools

    def __len__(self) -> int:
        return len(self.numbers)

    def members(self, groups: Sequence[Sequence[int]]) -> Ints:
        """The components of each histogram, by the numbers by which rows are assigned."""
        return padded_members([self.numbers[list(group)].tolist() for group in groups])


@dataclass(frozen=True)
class Basins:
    """The group of each component at the mild and at the strict limit."""

    mild: Ints
    strict: Ints


def make_landscape(likelihood: Likelihood, components: Components, groups: GroupSums, neighbors: Floats) -> Landscape:
    """The components that have rows, as they lie to each other."""
    numbers = np.flatnonzero(groups.rows > 0)
    own = groups.take(numbers)
    covariances = likelihood.covariances(own)
    ridge = likelihood.spread * LINE_RIDGE * np.eye(likelihood.axes)
    densities = elementary.log(np.maximum(own.rows, MIN_WEIGHT)) - 0.5 * log_determinants(covariances)
    between = neighbors[np.ix_(numbers, numbers)]
    return Landscape(
        components,
        numbers,
        own,
        own.means,
        covariances,
        (own.scatter + ridge) / own.rows[:, None, None],
        densities,
        _squared_distances(own.means, covariances),
        between + between.T > 0,
    )


def _squared_distances(means: Floats, covariances: Floats) -> Floats:
    i, j = np.triu_indices(len(means), 1)
    roots = inverse_roots((covariances[i] + covariances[j]) / 2)
    out = np.zeros((len(means), len(means)))
    out[i, j] = out[j, i] = squared_lengths(transform(roots, means[i] - means[j]))
    return out


@dataclass(frozen=True)
class Lines:
    """Lines on which rows of two components are best apart, and the bins between the two means."""

    directions: Floats
    low: Floats
    high: Floats
    bins: list[tuple[int, int]]


def find_basins(frame: ChoiceFrame, land: Landscape) -> Protocol[Basins]:
    """The groups of components, at the mild limit and at the strict one."""
    pairs = _neighbor_pairs(land)
    evidence, rows = yield from _ask_lines(frame, land, pairs, pairs)
    whole = evidence + _category_evidence(frame, land, pairs)
    limits = _mild_limits(frame, rows)
    mild = _pairs_within(pairs, evidence, whole <= limits)
    strict = _pairs_within(pairs, evidence, whole <= np.maximum(STRICT_LIMIT, limits))
    order = np.argsort(-land.densities, kind="stable").tolist()
    triples = _bridges(land, strict)
    if triples:
        across, rows = yield from _ask_lines(frame, land, triples, [(a, b) for _, a, b in triples])
        is_bridge = dict(zip(triples, (across <= _mild_limits(frame, rows)).tolist(), strict=True))
    else:
        is_bridge = {}
    return Basins(
        _watershed(order, land.densities, mild, strict, is_bridge),
        _watershed(order, land.densities, strict, strict, {}),
    )


def _pairs_within(pairs: Sequence[Pair], evidence: Floats, within: Bools) -> dict[Pair, float]:
    """The pairs without a valley, with the evidence of their rows for one."""
    return {pair: value for pair, value, keep in zip(pairs, evidence.tolist(), within.tolist(), strict=True) if keep}


def _mild_limits(frame: ChoiceFrame, rows: Floats) -> Floats:
    """The evidence that is needed for a valley: less where there are few rows, which cannot give more.

    On a single axis, the tail of a skewed column falls into many small components, and each may show a valley by
    chance. There the limit is that of all rows.
    """
    if frame.geometry.axes == 1:
        rows = np.full(rows.shape, frame.rows)
    return np.asarray(MILD_LIMIT + MILD_SLOPE * np.minimum(1.0, rows / MILD_ROWS), np.float64)


def _neighbor_pairs(land: Landscape) -> list[Pair]:
    """Each component with the few nearest ones, and those that share rows for which they are the best two."""
    found = set[Pair]()
    for i in range(len(land)):
        order = np.argsort(land.distances[i], kind="stable")
        found |= {(min(i, int(j)), max(i, int(j))) for j in order[order != i][:NEAREST]}
    one, other = np.nonzero(np.triu(land.neighbors, 1))
    found |= set(zip(one.tolist(), other.tolist(), strict=True))
    return sorted(found)[:MAX_LINES]


def _bridges(land: Landscape, strict: Container[Pair]) -> list[Triple]:
    """Components with two denser neighbours to which they have no valley, but which are not neighbours themselves."""
    out = []
    for i in range(len(land)):
        denser = [j for j in range(len(land)) if land.densities[j] > land.densities[i] and _pair(i, j) in strict]
        out += [(i, a, b) for a in denser for b in denser if a < b and (a, b) not in strict]
    return out[:MAX_LINES]


def lines_between(land: Landscape, pairs: Sequence[Pair]) -> Lines:
    """The discriminant line of each two components."""
    a, b = np.array(pairs, np.int64).T
    roots = inverse_roots((land.covariances[a] + land.covariances[b]) / 2)
    directions = transform(np.swapaxes(roots, 1, 2), transform(roots, land.means[b] - land.means[a]))
    directions = directions / np.sqrt(squared_lengths(directions))[:, None]
    one, other = inner_products(directions, land.means[a]), inner_products(directions, land.means[b])
    low = one - MARGIN * np.sqrt(_variances_along(land, directions, a))
    high = other + MARGIN * np.sqrt(_variances_along(land, directions, b))
    return Lines(directions, low, high, bin_range(low, high, one, other))


def _variances_along(land: Landscape, directions: Floats, which: Ints) -> Floats:
    return inner_products(directions, transform(land.own_covariances[which], directions))


def _ask_lines(
    frame: ChoiceFrame, land: Landscape, groups: Sequence[Sequence[int]], ends: Sequence[Pair]
) -> Protocol[tuple[Floats, Floats]]:
    """The evidence for a valley on the lines between two components each, and the number of rows, of groups of them."""
    lines = lines_between(land, ends)
    nothing = np.zeros((0, frame.geometry.axes))
    ask = LinesQuestion(
        *frame.fields,
        components=land.components,
        members=land.members(groups),
        directions=lines.directions,
        low=lines.low,
        high=lines.high,
        centers=nothing,
        factors=np.zeros((0, *nothing.shape[1:] * 2)),
        radii=np.zeros(0),
    )
    counts = histogram_counts((yield from total(line_histograms, ask)))
    return valley_evidences(counts, lines.bins), counts.sum(axis=1).astype(np.float64)


def histogram_counts(answer: HistogramCounts) -> Ints:
    return answer.counts.to_floats().astype(np.int64)


def valley_evidences(counts: Ints, bins: Sequence[tuple[int, int]]) -> Floats:
    """The evidence for a valley in each histogram, between two bins each."""
    found = [valley_evidence(own, *ends) for own, ends in zip(counts.tolist(), bins, strict=True)]
    return np.array(found)


def _category_evidence(frame: ChoiceFrame, land: Landscape, pairs: Sequence[Pair]) -> Floats:
    """What categories say for two components rather than one, in the same unit; never against them."""
    if not frame.geometry.categories:
        return np.zeros(len(pairs))
    likelihood = Likelihood("round", 1.0, 0, frame.geometry.categories)
    a, b = np.array(pairs, np.int64).T
    one, other = land.groups.take(a), land.groups.take(b)
    apart = likelihood.category_evidence(one) + likelihood.category_evidence(other)
    return np.maximum(0.0, apart - likelihood.category_evidence(one.add(other)))


def _pair(i: int, j: int) -> Pair:
    return (i, j) if i < j else (j, i)


def _watershed(
    order: Sequence[int],
    densities: Floats,
    edges: Mapping[Pair, float],
    strict: Container[Pair],
    is_bridge: Mapping[Triple, bool],
) -> Ints:
    """The densest component of each component's group; `edges` are pairs without a valley, with their evidence."""
    basin: dict[int, int] = {}
    for i in order:
        near = [j for j in order if j in basin and _pair(i, j) in edges]
        if not near:
            basin[i] = i
            continue
        least: dict[int, float] = {}
        for j in near:
            least[basin[j]] = min(edges[_pair(i, j)], least.get(basin[j], np.inf))
        main = min(least, key=lambda root: (least[root], -densities[root]))
        basin[i] = main
        for root in [root for root in least if root != main]:
            thinner, denser = (root, main) if densities[root] < densities[main] else (main, root)
            if _peaks_touch(basin, densities, strict, i, thinner, denser) or (
                densities[i] > densities[thinner] + BRIDGE_DENSITY
                and _joins(basin, near, strict, is_bridge, i, root, main)
            ):
                basin.update({j: main for j in basin if basin[j] == root})
    return np.array([basin[i] for i in range(len(order))], np.int64)


def _peaks_touch(  # noqa: PLR0917
    basin: Mapping[int, int], densities: Floats, strict: Container[Pair], i: int, thinner: int, denser: int
) -> bool:
    """Whether a component near the peak of the thinner group has no valley to a dense one of the other group."""
    peak = densities[thinner]
    ours = [j for j in basin if basin[j] == thinner and j != i and densities[j] > peak - PEAK_DENSITY]
    theirs = [j for j in basin if basin[j] == denser and j != i and densities[j] > peak - OTHER_PEAK_DENSITY]
    return any(_pair(a, b) in strict for a in ours for b in theirs)


def _joins(  # noqa: PLR0917
    basin: Mapping[int, int],
    near: Sequence[int],
    strict: Container[Pair],
    is_bridge: Mapping[Triple, bool],
    i: int,
    root: int,
    main: int,
) -> bool:
    """Whether a component joins two groups: some neighbours of it, one of each, show no valley with it between them."""
    ours = [j for j in near if basin[j] == root]
    theirs = [j for j in near if basin[j] == main]
    return any(_pair(a, b) in strict or is_bridge.get((i, *_pair(a, b)), True) for a in ours for b in theirs)
