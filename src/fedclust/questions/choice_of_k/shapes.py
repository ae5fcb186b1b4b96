"""Whether groups are not round: hollow, or bent so that the straight way between two of their parts leaves them.

The rows of a group in a narrow tube between two of its dense parts are counted along the tube, and its rows by their
distance from its mean. A valley in either histogram means that the group is not round, and so does an empty core.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from fedclust.core.effects import Protocol, total
from fedclust.core.types import Ints
from fedclust.kernels import elementary
from fedclust.questions.choice_of_k.basins import MARGIN, Landscape, histogram_counts, valley_evidences
from fedclust.questions.choice_of_k.choice_frame import ChoiceFrame
from fedclust.questions.choice_of_k.component_questions import (
    Components,
    LinesQuestion,
    ShellsQuestion,
    line_histograms,
    padded_members,
    shell_histograms,
)
from fedclust.questions.choice_of_k.evidence import GroupSums
from fedclust.questions.choice_of_k.matrices import (
    inner_products,
    inverse_roots,
    multiply,
    squared_lengths,
    transform,
)
from fedclust.questions.choice_of_k.valleys import bin_range

NOT_ROUND_EVIDENCE = 7.0
MIN_PARTS = 3  # of a group that may be bent
MIN_PART_ROWS = 8
DENSE_PARTS = 2.5  # log densities below the peak of a group
FAR_APART = 16.0  # squared distance of two parts between which a tube is looked at
TUBE_RADIUS = 1.0  # squared, for each axis: the mean squared distance of rows from the line
SHELL_REACH = 2.5  # times the root of the number of axes
EDGE_BINS = 2, 21  # between which a valley of shells is looked for
SHELL_RIDGE = 1e-6
MAX_ROUNDING = 0.01  # variance within a step, of a column of variance 1: a step of .35 standard deviations
MAX_TUBES = 256


def is_any_bent(frame: ChoiceFrame, land: Landscape, groups: Sequence[Ints]) -> Protocol[bool]:
    """Whether a tube between two dense parts of a group has a valley."""
    pairs = [(group, a, b) for group in groups if len(group) >= MIN_PARTS for a, b in _far_parts(land, group)]
    if not pairs:
        return False
    pairs = pairs[:MAX_TUBES]
    a, b = np.array([(one, other) for _, one, other in pairs]).T
    between = (land.own_covariances[a] + land.own_covariances[b]) / 2
    directions = land.means[b] - land.means[a]
    directions = directions / np.sqrt(squared_lengths(directions))[:, None]
    along = directions[:, :, None] * directions[:, None, :]
    across = np.eye(frame.geometry.axes) - along
    factors = multiply(inverse_roots(multiply(multiply(across, between), across) + along), across)
    one, other = inner_products(directions, land.means[a]), inner_products(directions, land.means[b])
    spread = [np.sqrt(inner_products(directions, transform(land.own_covariances[k], directions))) for k in (a, b)]
    low, high = one - MARGIN * spread[0], other + MARGIN * spread[1]
    bins = bin_range(low, high, one, other)
    ask = LinesQuestion(
        *frame.fields,
        components=land.components,
        members=land.members([group.tolist() for group, _, _ in pairs]),
        directions=directions,
        low=low - one,
        high=high - one,
        centers=np.ascontiguousarray(land.means[a]),
        factors=factors,
        radii=np.full(len(pairs), TUBE_RADIUS * frame.geometry.axes),
    )
    counts = histogram_counts((yield from total(line_histograms, ask)))
    return bool((valley_evidences(counts, bins) > NOT_ROUND_EVIDENCE).any())


def _far_parts(land: Landscape, group: Ints) -> list[tuple[int, int]]:
    """The pairs of dense parts of a group that are far apart."""
    dense = land.densities[group] > land.densities[group].max() - DENSE_PARTS
    some = group[dense & (land.groups.rows[group] >= MIN_PART_ROWS)].tolist()
    return [(a, b) for a, b in combinations(some, 2) if land.distances[a, b] > FAR_APART]


def is_any_hollow(
    frame: ChoiceFrame, components: Components, groups: GroupSums, members: Sequence[Sequence[int]]
) -> Protocol[bool]:
    """Whether the distances from the mean have a valley in a group; `members` are the components of each group.

    Values that are rounded to wide steps leave gaps between distances, so they say nothing.
    """
    if frame.geometry.rounding.max(initial=0.0) > MAX_ROUNDING:
        return False
    means = groups.means
    covariances = groups.scatter / groups.rows[:, None, None] + SHELL_RIDGE * np.eye(frame.geometry.axes)
    reach = SHELL_REACH * float(np.sqrt(frame.geometry.axes))
    ask = ShellsQuestion(
        *frame.fields,
        components=components,
        members=padded_members(members),
        centers=means,
        factors=inverse_roots(covariances),
        high=reach,
    )
    counts = histogram_counts((yield from total(shell_histograms, ask)))
    valleys = valley_evidences(counts, [EDGE_BINS] * len(counts))
    cores = [core_evidence(own, frame.geometry.axes) for own in counts]
    return bool((valleys > NOT_ROUND_EVIDENCE).any() or max(cores) > NOT_ROUND_EVIDENCE)


def core_evidence(counts: Sequence[int] | Ints, axes: int) -> float:
    """The most evidence that a core is emptier than the ball that holds nine tenths of the rows; shells have one width.

    It is the logarithm of the likelihood ratio between the observed share of rows in the core and its share of volume.

    >>> round(core_evidence([0, 0, 1, 4, 20, 30, 30], 2), 1), core_evidence([4, 9, 12, 9, 4], 2)
    (18.2, 0.0)
    """
    rows = np.cumsum(counts)
    ball = int(np.argmax(10 * rows >= 9 * rows[-1]))
    inside, n = rows[:ball].astype(np.float64), float(rows[ball])
    share = np.ones(ball)
    for _ in range(axes):
        share *= np.arange(1, ball + 1) / (ball + 1)
    outside = n - inside
    there = inside * elementary.log(np.maximum(inside, 1.0) / (n * share))
    evidence = there + outside * elementary.log(outside / (n * (1 - share)))
    return float(np.where(inside < n * share, evidence, 0.0).max(initial=0.0))


def group_members(labels: Ints) -> list[Ints]:
    """The components of each group, groups in the order of their labels."""
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def joint_sums(land: Landscape, labels: Ints) -> GroupSums:
    """The sums of each group, in the same order."""
    return land.groups.join(np.asarray(np.unique(labels, return_inverse=True)[1], np.int64))
