"""Means and standard deviations of columns that nobody pools: two totals, each exact.

One pass over sums of squares is wrong at large offsets; the second total is of squared deviations from the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.core.protocol import Protocol, handler, total
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact, power_above
from fedclust.core.site import Site, View
from fedclust.core.types import Floats, Limbs, Units
from fedclust.kernels import sums

BITS = 51


@dataclass(frozen=True)
class Deviation:
    """Sum the first power of x, or the second of x - mean."""

    view: View
    mean: Floats | None
    unit: Units


@dataclass(frozen=True)
class Spread(Release):
    rows: Exact = additive("the number of rows in all")
    sums: Exact = additive("a sum per column")


@handler(releases=Spread)
def spread(site: Site, ask: Deviation) -> Spread:
    """Row count, and the sum of x or of (x - mean)^2, per column."""
    found: list[Exact] = []
    for block in site.blocks(ask.view):
        values = np.asarray(block, np.float64)
        if ask.mean is not None:
            values = (values - ask.mean[:, None]) ** 2
        found.append(Exact(sums.exact(values, ask.unit), ask.unit))
    return Spread(Exact.counts(site.rows), sum_of(found, ask.unit))


def sum_of(parts: list[Exact], unit: Units) -> Exact:
    """The ring's sum of any number of parts, none included."""
    zero: Limbs = np.zeros((*unit.shape, 2), np.uint64)
    out = Exact(zero, unit)
    for part in parts:
        out = out + part
    return out


@dataclass(frozen=True)
class Columns:
    """Exact statistics of the columns over all parties (population variance)."""

    rows: int
    mean: Floats
    sd: Floats


def columns(view: View) -> Protocol[Columns]:
    """Row count, mean and standard deviation of each column."""
    unit = (view.exponents - BITS).astype(np.int32)
    first = yield from total(spread, Deviation(view, None, unit))
    rows = first.rows.integers()[0]
    mean = first.sums.floats() / rows
    bound = [power_above((np.ldexp(1.0, e) + abs(m)) ** 2) for e, m in zip(view.exponents, mean, strict=True)]
    unit = (np.array(bound) - BITS).astype(np.int32)
    second = yield from total(spread, Deviation(view, mean, unit))
    return Columns(rows, mean, np.sqrt(second.sums.floats() / rows))


def standardise(view: View) -> Protocol[View]:
    """The view in which every column has mean 0 and standard deviation 1; a constant column keeps spread 1."""
    found = yield from columns(view)
    return scaled(view, found.mean, np.where(found.sd > 0, found.sd, 1.0))


def scaled(view: View, origin: Floats, spread: Floats) -> View:
    """A view with origin and spread, bounded by what bounds the raw columns."""
    seen = View(view.exponents, origin, spread)
    largest = seen.largest(np.ldexp(1.0, view.exponents))
    exponents = np.array([power_above(value) for value in largest], np.int32)
    return View(exponents, origin, spread)
