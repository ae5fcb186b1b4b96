"""The number of groups of the rows, from totals alone: components by evidence, kept apart by valleys.

1. Moments of the columns say which hold numbers and which categories, and along which axes rows are compared.
2. All rows are cut into cells, and the cells' sums are joined into components by evidence (`cell_growth`,
   `components`).
3. Components between which the rows show no valley are one group (`basins`).
4. Groups that are hollow or bent are not round (`shapes`).

With a limit of evidence that depends on the number of rows ("mild") some groups may be by chance; at a higher limit
("strict") hardly any are. K is the number at the mild limit. There is no structure only if that number is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedclust.core.effects import Protocol, total
from fedclust.core.round_padding import pad_rounds
from fedclust.core.site_interface import View
from fedclust.core.types import Floats, Ints
from fedclust.kernels.row_sample import WHOLE_TABLE, sample_share
from fedclust.kernels.units import farthest_in_columns
from fedclust.questions import standardisation
from fedclust.questions.choice_of_k.basins import MAX_LINES, find_basins, make_landscape
from fedclust.questions.choice_of_k.cell_growth import MAX_CELLS, MAX_CHOICE_LEVELS, MAX_PIECES, grow_cells
from fedclust.questions.choice_of_k.choice_frame import ChoiceFrame
from fedclust.questions.choice_of_k.choice_questions import PowersQuestion, ProductsQuestion, power_sums, product_sums
from fedclust.questions.choice_of_k.column_kinds import (
    MAX_COLUMNS,
    MAX_COMPARED_AXES,
    MIN_CATEGORY_AXES,
    TREE_AXES,
    column_moments,
    find_geometry,
    rounding_variances,
)
from fedclust.questions.choice_of_k.component_questions import SHELL_BINS, ComponentsQuestion, neighbor_counts
from fedclust.questions.choice_of_k.components import (
    CHAINS,
    ROUNDS,
    TRIES,
    EvidenceCurve,
    find_components,
    row_sums,
)
from fedclust.questions.choice_of_k.evidence import Shape
from fedclust.questions.choice_of_k.floored_frame import ask_geometry
from fedclust.questions.choice_of_k.joins import Partition
from fedclust.questions.choice_of_k.shapes import (
    MAX_TUBES,
    group_members,
    is_any_bent,
    is_any_hollow,
    joint_sums,
)
from fedclust.questions.choice_of_k.valleys import BINS
from fedclust.questions.choice_of_k.whole_table_questions import HASH_BITS
from fedclust.questions.standardisation import ColumnStatistics

Verdict = Literal["groups", "none", "not round"]
MIN_SAMPLE_SHARE = 0.25  # of the rows that were expected in the sample; with fewer the whole table is read
WIDE_STEP_ROUNDING = 1 / 12  # variance within a step of one standard deviation
OTHER_ASKS = 14  # statistics, moments, the root, neighbours, final sums, lines, tubes and shells
MAX_SHOWN_FACTOR, MIN_SHOWN = 2, 8  # the curve goes as far as twice the components, and at least as far as this


@dataclass(frozen=True)
class KChoice:
    """How many groups there are, and the three counts that say how sure that is.

    `evidence` is the number of components with the most evidence, `mild` and `strict` how many groups these form at
    the two limits for a valley; `curve` has the evidence and the shape of components for each number of them.
    """

    k: int
    verdict: Verdict
    evidence: int
    mild: int
    strict: int
    curve: dict[int, tuple[float, Shape]]
    rows: int  # that were read: all, or those of the public sample
    is_sample: bool
    unused_columns: int = 0
    floor: int = 1  # no sum of fewer rows was opened
    has_few_values: bool = False  # of the only column: two, or steps as wide as its standard deviation


def choose_groups(view: View, *, seed: int, floor: int, everyone: bool, level_floor: int = 1) -> Protocol[KChoice]:
    """Choose the number of groups; `everyone` says that no site is absent in any step.

    With a `floor` no sum is asked for of fewer rows, and none of rows that differ by fewer from others. Levels of a
    category that fewer than `level_floor` rows have are not used.
    """
    script = _choose(view, seed=seed, floor=floor, everyone=everyone, level_floor=max(floor, level_floor))
    return (yield from pad_rounds(script, max_asks(floor)))


def max_asks(floor: int) -> int:
    """How many questions a choice takes at most."""
    return OTHER_ASKS + (2 * MAX_CHOICE_LEVELS + 1 if floor > 1 else MAX_CHOICE_LEVELS) + ROUNDS + TRIES


def _choose(view: View, *, seed: int, floor: int, everyone: bool, level_floor: int) -> Protocol[KChoice]:
    found = yield from standardisation.column_statistics(view)
    rows = int(found.counts.max())
    used = np.flatnonzero((found.sd > 0) & ~standardisation.rare_levels(view, found, level_floor))
    if not len(used):
        return KChoice(1, "none", 1, 1, 1, {}, rows, is_sample=False, floor=floor)
    frame = yield from _make_frame(view, found, used, seed=seed, floor=floor, everyone=everyone)
    cells = yield from grow_cells(frame)
    curve = EvidenceCurve()
    partition = yield from find_components(frame, cells, curve)
    k, verdict, mild, strict = yield from _count_groups(frame, partition)
    return KChoice(
        k,
        verdict,
        len(partition.groups),
        mild,
        strict,
        curve.values_up_to(max(MIN_SHOWN, MAX_SHOWN_FACTOR * len(partition.groups))),
        int(frame.rows),
        is_sample=frame.share < WHOLE_TABLE,
        unused_columns=len(used) - len(frame.columns),
        floor=floor,
        has_few_values=len(used) == 1 and _has_few_values(frame),
    )


def _has_few_values(frame: ChoiceFrame) -> bool:
    """Whether no column has more values than a category."""
    return frame.geometry.axes == 0 or bool((frame.geometry.rounding >= WIDE_STEP_ROUNDING).all())


def _count_groups(frame: ChoiceFrame, partition: Partition) -> Protocol[tuple[int, Verdict, int, int]]:
    """How many groups components form, whether they are round, and how many at the mild and the strict limit."""
    count, axes = len(partition.groups), frame.geometry.axes
    components = partition.likelihood.components(partition.groups)
    if count == 1 and axes > 1 and (yield from is_any_hollow(frame, components, partition.groups, [[0]])):
        return 1, "not round", 1, 1
    if count == 1 or axes == 0:
        return count, "none" if count == 1 else "groups", count, count
    neighbors = (yield from total(neighbor_counts, ComponentsQuestion(*frame.fields, sets=(components,)))).neighbors
    groups = partition.groups
    if frame.floor == 1:
        (groups,) = yield from row_sums(frame, [components])
    land = make_landscape(partition.likelihood, components, groups, neighbors.to_floats())
    basins = yield from find_basins(frame, land)
    mild, strict = len(np.unique(basins.mild)), len(np.unique(basins.strict))
    if axes == 1:  # nothing bends along a line
        return mild, "none" if mild == 1 else "groups", mild, strict
    members = group_members(basins.strict)
    is_odd = yield from is_any_bent(frame, land, members)
    if not is_odd:
        numbers = [land.numbers[group].tolist() for group in members]
        is_odd = yield from is_any_hollow(frame, components, joint_sums(land, basins.strict), numbers)
    if is_odd:
        return mild, "not round", mild, strict
    return mild, "none" if mild == 1 else "groups", mild, strict


def _make_frame(
    view: View, found: ColumnStatistics, used: Ints, *, seed: int, floor: int, everyone: bool
) -> Protocol[ChoiceFrame]:
    """Which rows and columns are read, and how columns are seen."""
    rows = float(found.counts.max())
    reach = _reach(view, found, everyone=everyone)
    share = sample_share(rows)
    ask = _question(view, seed, share, found, used, reach)
    powers = yield from total(power_sums, PowersQuestion(*ask))
    if share < WHOLE_TABLE and powers.rows.to_floats() < MIN_SAMPLE_SHARE * rows * share / WHOLE_TABLE:
        share = WHOLE_TABLE
        ask = _question(view, seed, share, found, used, reach)
        powers = yield from total(power_sums, PowersQuestion(*ask))
    moments = column_moments(float(powers.rows.to_floats()), powers.powers.to_floats())
    kept = np.sort(np.argsort(-moments.normality, kind="stable")[:MAX_COLUMNS])
    ask = _question(view, seed, share, found, used[kept], reach)
    variances = rounding_variances(moments.rows, powers.rounded.to_floats()) / (found.sd[used] * found.sd[used])
    rounding, moments = variances[kept], moments.take(kept)
    if floor > 1:
        geometry, spread = yield from ask_geometry(ask, moments, rounding, floor)
        return ChoiceFrame(*ask, moments.rows, geometry, floor, spread)
    triangle = (yield from total(product_sums, ProductsQuestion(*ask))).products.to_floats()
    products = np.zeros((len(kept), len(kept)))
    i, j = np.triu_indices(len(kept))
    products[i, j] = products[j, i] = triangle
    covariance = products / moments.rows - moments.mean[:, None] * moments.mean
    return ChoiceFrame(*ask, moments.rows, find_geometry(moments, covariance, ask[-1], rounding), floor)


def _question(  # noqa: PLR0917
    view: View, seed: int, share: int, found: ColumnStatistics, columns: Ints, reach: Floats
) -> tuple[View, int, int, Ints, Floats, Floats, Floats]:
    sd = found.sd[columns]
    return view, seed, share, columns.astype(np.int64), found.mean[columns], sd, reach[columns] / sd


def _reach(view: View, found: ColumnStatistics, *, everyone: bool) -> Floats:
    """How far a row may lie from the mean of each column."""
    reach = farthest_in_columns(view.exponents, found.mean[None])
    if not everyone:
        return reach
    # No deviation exceeds the root of the sum of their squares, which far from 0 is much nearer than the bounds.
    nearer = 1.001 * found.sd * np.sqrt(found.counts) + np.ldexp(np.abs(found.mean), -44)
    return np.where(nearer > 0, np.minimum(reach, nearer), reach)


def max_message_numbers(columns: int) -> tuple[int, int]:
    """How many numbers the longest question and the longest answer of a choice hold at most."""
    used, q = min(columns, MAX_COLUMNS), min(columns, MAX_COMPARED_AXES)
    wide = min(columns, q + max(MIN_CATEGORY_AXES, TREE_AXES - q))
    square = used * (used + 1) // 2
    shared = 8 * columns + used * (q + wide + 1) + 64
    question = max(
        CHAINS * MAX_PIECES * (q * q + q + 1 + used),
        MAX_CELLS * (wide + 4) + MAX_PIECES * (q * q + q + 1 + used),
        MAX_PIECES * (q * q + q + 1 + used) + max(MAX_LINES * (q + 6), MAX_TUBES * (q * q + 2 * q + 6 + MAX_PIECES)),
    )
    answer = max(
        MAX_CELLS * (1 + wide + wide * (wide + 1) // 2 + used),
        CHAINS * MAX_PIECES * (1 + q + q * (q + 1) // 2 + used),
        MAX_CELLS * MAX_PIECES,
        MAX_LINES * BINS,
        MAX_PIECES * SHELL_BINS,
        MAX_PIECES * (MAX_PIECES + 1),
        square,
        HASH_BITS * columns,
    )
    return shared + question, answer
