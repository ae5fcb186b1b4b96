"""Means and standard deviations of columns that nobody pools: two totals, each exact.

One pass over sums of squares is wrong at large offsets; the second total is of squared deviations from the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedclust.core.effects import Protocol, handler, total_with_parties
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import ROW_BITS, Release, additive, stack_field
from fedclust.core.repeated_totals import total_at_finest_unit
from fedclust.core.ring import Exact
from fedclust.core.round_padding import pad_rounds
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Bools, Floats, Ints, Limbs, PartyId, Units
from fedclust.kernels import exact_sums
from fedclust.kernels.units import TERM_BITS, bounds_above, closer_bounds, unit_of
from fedclust.questions.question_contracts import fits_column_sums

MAX_LOOKS = 3  # at squared deviations, until they show their digits
FLAG_TOLERANCE = 1e-9  # of the variance of a column of zeros and ones
CONSTANT_FRACTION = 2.0**-48  # of the mean: a smaller spread is the rounding of one and the same value


@dataclass(frozen=True)
class ColumnSumsQuestion(ViewedQuestion):
    """Sum the first power of x, or the second of x - mean."""

    view: View
    mean: Floats | None
    unit: Units


@dataclass(frozen=True)
class ColumnSums(Release):
    counts: Exact = additive("how many values each column has", cells=True)
    sums: Exact = additive("the sum of each column, or of its squared deviations from the mean")

    @classmethod
    def plausible(cls, parts: Sequence[ColumnSums], ask: ColumnSumsQuestion) -> Bools:
        """Besides: a sum is at most its count times the largest term, and one of squares is not negative."""
        counts, sums = stack_field(parts, "counts").to_floats(), stack_field(parts, "sums")
        largest = np.ldexp(1.0, ask.view.exponents)
        if ask.mean is not None:
            largest = (largest + np.abs(ask.mean)) ** 2
        most = counts * largest + np.ldexp(1.0, sums.unit + ROW_BITS)
        least = -most if ask.mean is None else np.zeros_like(most)
        values = sums.to_floats()
        return super().plausible(parts, ask) & ((values >= least) & (values <= most)).all(axis=1)


@handler(releases=ColumnSums, contract=fits_column_sums)
def column_sums(site: Site, ask: ColumnSumsQuestion) -> ColumnSums:
    """How many values a column has, and the sum of x or of (x - mean)^2 over them."""
    found: list[Exact] = []
    counts = np.zeros(len(site.columns), np.int64)
    for block in site.blocks(ask.view):
        values = np.asarray(block, np.float64)
        if ask.mean is not None:
            values = (values - ask.mean[:, None]) ** 2
        gap = np.isnan(values)
        counts += gap.shape[1] - gap.sum(axis=1)
        found.append(Exact(exact_sums.exact_totals(np.where(gap, 0.0, values), ask.unit), ask.unit))
    return ColumnSums(Exact.from_counts(counts), sum_exact(found, ask.unit))


def sum_exact(parts: list[Exact], unit: Units) -> Exact:
    """The ring's sum of any number of parts, none included."""
    zero: Limbs = np.zeros((*unit.shape, 2), np.uint64)
    out = Exact(zero, unit)
    for part in parts:
        out = out + part
    return out


@dataclass(frozen=True)
class ColumnStatistics:
    """Exact statistics of the columns over all parties (population variance), of the values that are there."""

    counts: Ints
    mean: Floats
    sd: Floats


def column_statistics(view: View) -> Protocol[ColumnStatistics]:
    """Number of values, mean and standard deviation of each column; a column must have some value somewhere."""
    first, parties = yield from total_with_parties(column_sums, ColumnSumsQuestion(view, None, unit_of(view.exponents)))
    counts = np.array(first.counts.to_integers(), np.int64)
    mean = first.sums.to_floats() / counts
    squares, counts = yield from pad_rounds(_squared_deviations(view, mean, parties), MAX_LOOKS)
    sd = np.sqrt(squares / counts)
    return ColumnStatistics(counts, mean, np.where(sd > np.abs(mean) * CONSTANT_FRACTION, sd, 0.0))


def _squared_deviations(view: View, mean: Floats, parties: tuple[PartyId, ...]) -> Protocol[tuple[Floats, Ints]]:
    """Sums of squared deviations, and of how many values: asked for again while the sums show too few digits.

    At a large offset they are far below what bounds them; two closer bounds reach the last digit that rows can have.
    """

    def closer(ask: ColumnSumsQuestion, found: tuple[Floats, Ints]) -> ColumnSumsQuestion | None:
        bounds = closer_bounds(found[0], ask.unit + TERM_BITS)
        return None if bounds is None else replace(ask, unit=unit_of(bounds))

    bounds = bounds_above((np.ldexp(1.0, e) + abs(m)) ** 2 for e, m in zip(view.exponents, mean, strict=True))
    ask = ColumnSumsQuestion(view, mean, unit_of(bounds))
    answer = yield from total_at_finest_unit(
        column_sums, ask, read=_sums_and_counts, finer=closer, max_repeats=MAX_LOOKS - 1, among=parties
    )
    return answer.found


def _sums_and_counts(found: ColumnSums) -> tuple[Floats, Ints]:
    return found.sums.to_floats(), np.array(found.counts.to_integers(), np.int64)


def rare_levels(view: View, found: ColumnStatistics, floor: int) -> Bools:
    """Which columns of zeros and ones have fewer than `floor` rows, over all sites, with the rarer value.

    A product of such a column with another one would show the values of these few rows. Of a column of zeros and ones,
    the squares add up to the same as the values.
    """
    spread = np.ones(len(found.mean)) if view.spread is None else view.spread
    mean, sd = view.to_original_units(found.mean[None, :])[0], found.sd * spread
    fraction = np.minimum(mean, 1 - mean)
    variance = mean * (1 - mean)
    flags = (fraction > 0) & (np.abs(sd * sd - variance) <= FLAG_TOLERANCE * np.abs(variance))
    return np.asarray(flags & (np.rint(fraction * found.counts) < floor))


def standardise(view: View) -> Protocol[View]:
    """The view in which every column has mean 0 and standard deviation 1; a constant column keeps spread 1."""
    found = yield from column_statistics(view)
    return scale_view(view, found.mean, np.where(found.sd > 0, found.sd, 1.0))


def scale_view(view: View, origin: Floats, spread: Floats) -> View:
    """A view with origin and spread, bounded by what bounds the raw columns."""
    seen = replace(view, origin=origin, spread=spread)
    largest = seen.transform_bound(np.ldexp(1.0, view.exponents))
    return replace(seen, exponents=bounds_above(largest))
