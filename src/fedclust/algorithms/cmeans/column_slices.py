"""A party's own side of a column split: how it sees its columns, its rows by number, its slice of the centres."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedclust.core.effects import run_on_own_rows
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels.exact_sums import Sums
from fedclust.kernels.units import bounds_above, unit_of
from fedclust.questions import standardisation


def raw_view(site: Site) -> View:
    """The columns as they are, bounded by their largest values."""
    return View(bounds_above(site.largest))


def own_view(site: Site) -> View:
    """How this party looks at its own columns."""
    if "origin" not in site.memory:
        return raw_view(site)
    return standardisation.scale_view(raw_view(site), site.memory["origin"], site.memory["spread"])


def view_memory(site: Site) -> dict[str, Array]:
    """What the party remembers of its view, to remember it again."""
    return {name: site.memory[name] for name in ("origin", "spread") if name in site.memory}


def blocks_of_rows(site: Site, start: int, stop: int) -> Iterator[Array]:
    """The blocks of the rows from `start` to `stop`."""
    at = 0
    for block in site.blocks(own_view(site)):
        end = at + block.shape[1]
        if start < end and at < stop:
            yield block[:, max(start - at, 0) : stop - at]
        at = end


def rows_at(site: Site, rows: Sequence[int] | Ints) -> Floats:
    """This party's columns of some rows."""
    found = np.empty((len(rows), len(site.columns)))
    for i, row in enumerate(rows):
        found[i] = next(blocks_of_rows(site, int(row), int(row) + 1))[:, 0]
    return found


def own_box(site: Site) -> tuple[Floats, Floats]:
    """Mean -+ 2 sd of this party's own columns, from exact sums."""
    found = run_on_own_rows(standardisation.column_statistics(own_view(site)), site)
    return found.mean - 2 * found.sd, found.mean + 2 * found.sd


def zero_sums(site: Site, n_clusters: int) -> Sums:
    """Mass and pull of no rows, in the units of this party's columns; weights are at most 1."""
    mass = np.full(n_clusters, unit_of(0), np.int32)
    return Sums.zeros(mass, np.tile(unit_of(own_view(site).exponents), (n_clusters, 1)), 0)


def moved_slice(site: Site, sums: Sums, reseed: Ints) -> Floats:
    """This party's slice of the centres at pull / mass; one without mass stays, one to `reseed` goes to that row."""
    mass = Exact(sums.mass, sums.mass_unit).to_floats()
    pull = Exact(sums.pull, sums.pull_unit).to_floats()
    centers = np.where(mass[:, None] > 0, pull / np.where(mass > 0, mass, 1.0)[:, None], site.memory["centers"])
    on_rows = reseed >= 0
    centers[on_rows] = rows_at(site, reseed[on_rows])
    return np.asarray(centers, np.float64)
