"""What a choice of K with a floor asks about all rows: how often values repeat, and products over halves of the rows.

The sums of products with a column in which few rows differ from the others are sums over these few rows. So the
products of each two columns are added up over another half of the rows, which the rows' own values decide. Two such
sums do not differ by a few known rows, whatever the columns hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedclust.core.effects import handler
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.core.row_weights import tally_unit_weights
from fedclust.core.site_interface import Site
from fedclust.core.types import Bools, Floats, Ints, Limbs, Units
from fedclust.kernels import exact_sums
from fedclust.kernels.row_sample import hash_rows, hash_values
from fedclust.kernels.units import bounds_above, unit_of
from fedclust.questions.choice_of_k.choice_contracts import fits_halves, fits_repeats
from fedclust.questions.choice_of_k.choice_questions import (
    CHUNK_VALUES,
    ChoiceQuestion,
    row_count,
    rows_in_deviations,
)

HASH_BITS = 64
PAIR_SEED = 0x5EED  # of the halves; rows are hashed with it and the seed of the choice


@dataclass(frozen=True)
class RepeatsQuestion(ChoiceQuestion):
    """How often does each bit of a public hash of the values occur, column by column?"""


@dataclass(frozen=True)
class HashBits(Release):
    bits: Exact = additive(
        "for each column, how many of its values have each of the 64 bits of a public hash, which shows whether many "
        "values are equal"
    )


def _rows_behind_bits(site: Site, ask: RepeatsQuestion) -> Floats:
    return row_count(site, ask)


@handler(releases=HashBits, row_weights=_rows_behind_bits, contract=fits_repeats)
def count_hash_bits(site: Site, ask: RepeatsQuestion) -> HashBits:
    """How many values of each column have each bit of their hash."""
    found = np.zeros((len(ask.columns), HASH_BITS), np.int64)
    places = np.arange(HASH_BITS, dtype=np.uint64)
    for x in site.sample(ask.view, ask.seed, ask.share):
        for k, values in enumerate(hash_values(x[ask.columns], ask.seed)):
            found[k] += ((values[:, None] >> places) & np.uint64(1)).sum(axis=0).astype(np.int64)
    return HashBits(Exact.from_counts(found))


@dataclass(frozen=True)
class HalvesQuestion(ChoiceQuestion):
    """Sum the products of any two columns over halves of the rows; of `flagged` columns the flags count."""

    flagged: Bools

    @cached_property
    def unit(self) -> Units:
        i, j = np.triu_indices(len(self.reach), 1)
        reach = np.where(self.flagged, 1.0, self.reach)
        return unit_of(bounds_above(reach[i] * reach[j]) + 1)

    def halves(self, rows: Floats) -> Bools:
        """For each column and row a sign; a pair of columns uses the rows for which their signs are equal."""
        words = -(-len(self.columns) // HASH_BITS)
        hashed = [hash_rows(rows, PAIR_SEED + self.seed * words + word) for word in range(words)]
        places = np.arange(HASH_BITS, dtype=np.uint64)[:, None]
        bits = [(own[None] >> places) & np.uint64(1) for own in hashed]
        return np.asarray(np.concatenate(bits)[: len(self.columns)] > 0, np.bool_)


def _values_with_halves(site: Site, ask: HalvesQuestion) -> Iterator[tuple[Floats, Bools]]:
    """The values whose products are summed, and the signs of the rows."""
    for x, z in zip(site.sample(ask.view, ask.seed, ask.share), rows_in_deviations(site, ask), strict=True):
        yield np.where(ask.flagged[:, None], z > 0, z), ask.halves(x)


def _rows_behind_halves(site: Site, ask: HalvesQuestion) -> Floats:
    """How many rows are behind each product."""
    rows = np.zeros((len(ask.columns),) * 2, np.int64)
    for _, halves in _values_with_halves(site, ask):
        signs = 2 * halves.astype(np.int64) - 1
        rows += (halves.shape[1] + signs @ signs.T) // 2
    return tally_unit_weights(rows[np.triu_indices(len(rows), 1)])


@dataclass(frozen=True)
class HalfProducts(Release):
    products: Exact = additive(
        "for each pair of columns, the sum of the products of the deviations from their means (of a two-valued column, "
        "1 for its upper value and 0 for the other), over a half of the rows that is another one for each pair"
    )


@handler(releases=HalfProducts, row_weights=_rows_behind_halves, contract=fits_halves)
def half_products(site: Site, ask: HalvesQuestion) -> HalfProducts:
    """The products of each two columns over a half of the rows."""
    i, j = np.triu_indices(len(ask.reach), 1)
    found: Limbs = np.zeros((len(i), 2), np.uint64)
    for values, halves in _values_with_halves(site, ask):
        step = max(1, CHUNK_VALUES * 4 // max(len(i), 1))
        for at in range(0, values.shape[1], step):
            piece, signs = values[:, at : at + step], halves[:, at : at + step]
            products = np.where(signs[i] == signs[j], piece[i] * piece[j], 0.0)
            exact_sums.add_in_place(found, exact_sums.exact_totals(products, ask.unit))
    return HalfProducts(Exact(found, ask.unit))


def mean_repeats(rows: float, bits: Ints) -> Floats:
    """About how many rows share the value of a row, column by column, on average; a row itself counts.

    The squares of sums of random signs estimate the sum of the squared numbers of equal values (Alon, Matias and
    Szegedy, 1996).

    >>> mean_repeats(4.0, np.array([[4, 0, 4, 0], [1, 3, 2, 2]])).tolist()
    [4.0, 0.5]
    """
    signs = 2.0 * bits - rows
    return np.asarray((signs * signs).sum(axis=1) / bits.shape[1] / rows, np.float64)
