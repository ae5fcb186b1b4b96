"""Which columns say something the others do not, of rows that nobody pools: variance, then correlation.

A column whose variance is at most `variance` times its mean square goes: 0 is a constant, 1 a column around 0, in any
unit. Of two columns whose correlation exceeds `correlation` in magnitude the later goes. All of it comes from sums over
all parties: the two of standardisation, and products of standardised columns over the rows that have both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedclust.core.effects import Protocol, handler, total
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.study_terms import never_in_study
from fedclust.core.types import Array, Floats, Limbs, Units
from fedclust.kernels import exact_sums
from fedclust.kernels.units import bounds_above, unit_of
from fedclust.questions import bounds, standardisation
from fedclust.questions.missing_values import missing_value_notes
from fedclust.questions.schema import Schema


@dataclass(frozen=True)
class ColumnPairsQuestion(ViewedQuestion):
    """Ask for products of the columns of a view, pair by pair; no value there exceeds 2^reach."""

    view: View
    reach: Units

    @property
    def units(self) -> tuple[Units, Units, Units]:
        """The units of sums of x_a, of x_a^2 and of x_a x_b; rows are a, columns b."""
        one = np.repeat(self.reach[:, None], len(self.reach), axis=1)
        return unit_of(one), unit_of(2 * one), unit_of(one + one.T)


@dataclass(frozen=True)
class PairProducts(Release):
    both: Exact = additive("for each pair of columns, how many rows have a value in both", cells=True)
    sums: Exact = additive("for each pair of columns, the sum of the first column over the rows with a value in both")
    squares: Exact = additive(
        "for each pair of columns, the sum of the squares of the first column over the rows with a value in both"
    )
    products: Exact = additive("for each pair of columns, the sum of their products over the rows with a value in both")


@handler(releases=PairProducts, contract=never_in_study)
def pair_products(site: Site, ask: ColumnPairsQuestion) -> PairProducts:
    """Counts, sums, squares and products of each pair of columns, over the rows that have both."""
    units = ask.units
    width = len(site.columns)
    both = np.zeros((width, width), np.int64)
    limbs: list[Limbs] = [np.zeros((width, width, 2), np.uint64) for _ in units]
    for block in site.blocks(ask.view):
        there = ~np.isnan(block)
        z = np.where(there, block, 0.0)
        both += there.astype(np.int64) @ there.T.astype(np.int64)
        for a in range(width):
            for into, unit, terms in zip(limbs, units, _terms(z, there, a), strict=True):
                exact_sums.add_in_place(into[a], exact_sums.exact_totals(terms, unit[a]))
    first, second, third = (Exact(own, unit) for own, unit in zip(limbs, units, strict=True))
    return PairProducts(Exact.from_counts(both), first, second, third)


def _terms(z: Floats, there: Array, a: int) -> Iterator[Floats]:
    own = np.where(there, z[a], 0.0)
    yield own
    yield own * z[a]
    yield z[a] * z


@dataclass(frozen=True)
class ColumnRelations:
    """What the totals say of the columns: variance over mean square, and correlation (NaN where it has no meaning)."""

    variance: Floats
    correlation: Floats
    notes: tuple[str, ...]


def measure_columns(
    columns: tuple[str, ...], box: tuple[Floats, Floats] | None, missing: str
) -> Protocol[ColumnRelations]:
    """Variances and correlations of all columns over all parties."""
    notes = yield from missing_value_notes(columns, missing)
    view = (
        (yield from bounds.agree_on_bounds(len(columns), missing))
        if box is None
        else bounds.view_from_bounds(*box, missing)
    )
    found = yield from standardisation.column_statistics(view)
    square = found.sd**2 + found.mean**2
    share = np.divide(found.sd**2, square, out=np.zeros_like(square), where=square > 0)
    vary = found.sd > 0
    seen = standardisation.scale_view(view, found.mean, np.where(vary, found.sd, 1.0))
    # The squares of n standardised values add up to n, so none of them exceeds the root of n.
    root = bounds_above(float(np.sqrt(2.0 * count)) for count in found.counts)
    answer = yield from total(
        pair_products, ColumnPairsQuestion(seen, np.where(vary, root, seen.exponents).astype(np.int32))
    )
    return ColumnRelations(share, np.where(vary & vary[:, None], correlations(answer), np.nan), tuple(notes))


def correlations(sums: PairProducts) -> Floats:
    """Pearson's r of each pair over the rows that have both; NaN where one of them does not vary there."""
    count, first, square, product = (
        sums.both.to_floats(),
        sums.sums.to_floats(),
        sums.squares.to_floats(),
        sums.products.to_floats(),
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = square - first * first / count
        r = (product - first * first.T / count) / (np.sqrt(spread) * np.sqrt(spread.T))
    vary = (spread > 0) & (spread.T > 0)
    return np.where(vary, np.clip(r, -1.0, 1.0), np.nan)


def columns_to_drop(
    schema: Schema, found: ColumnRelations, variance: float | None, correlation: float | None
) -> dict[str, str]:
    """The columns to leave out, by the names in the sites' tables, and why.

    A category goes when each of its indicators would; its indicators are not held against each other.
    """
    own = _encoded_places(schema)
    out: dict[str, str] = {}
    for name, places in own.items():
        if variance is not None and (found.variance[places] <= variance).all():
            share = found.variance[places].max()
            out[name] = "constant" if share == 0 else f"variance is {share:.2g} times its mean square"
        elif correlation is not None and (twin := _earlier_twin(name, own, out, found, correlation)) is not None:
            out[name] = f"correlation {twin[1]:+.3f} with {twin[0]}"
    return out


def _earlier_twin(
    name: str, own: Mapping[str, list[int]], out: Mapping[str, str], found: ColumnRelations, limit: float
) -> tuple[str, float] | None:
    """The earlier column that is kept and says the same, and how closely; None where some part of `name` is news."""
    earlier = [other for other in own if other not in out]
    earlier = earlier[: earlier.index(name)]
    places = [at for other in earlier for at in own[other]]
    if not places:
        return None
    r = np.nan_to_num(found.correlation[np.ix_(own[name], places)])
    closest = np.abs(r).max(axis=1)
    if not (closest > limit).all():
        return None
    row, at = np.unravel_index(int(np.abs(r).argmax()), r.shape)
    return next(other for other in earlier if places[at] in own[other]), float(r[row, at])


def _encoded_places(schema: Schema) -> dict[str, list[int]]:
    """Where the columns that each declared one became are."""
    out: dict[str, list[int]] = {}
    at = 0
    for name, column in schema.items():
        count = len(column.encoded_column_names(name))
        out[name] = list(range(at, at + count))
        at += count
    return out
