"""Checks, value by value, that an answer holds no more than the classes of its fields allow.

A class limits what a field can carry. A fact is one whole number. Marks are one for each column, at one of a few
places. Counts count each row once. So nobody can pack a row into whole numbers that are declared as facts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from fedclust.core.release import MAX_PLACES, Disclosure, Release
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site
from fedclust.core.types import PartyId

MIN_TOTALS = 2  # how many whole numbers over all rows an answer may hold, even with few columns


def has_valid_facts(release: Release) -> bool:
    """Return whether every fact is a yes, a whole number within its bound, or names; checked under every policy."""
    return all(_is_fact(release.field_value(name), d) for name, d in release.schema().items() if d.kind == "facts")


def fits_field_classes(
    release: Release, schema: Mapping[str, Disclosure], site: Site, parties: Collection[PartyId], *, foreign: bool
) -> bool:
    """Return whether every field holds only what its class allows; facts may name only `parties`.

    For other packages the weights of cells are checked too. fedclust's own kernels compute theirs within these bounds.
    """
    points = next((release.field_value(name) for name, d in schema.items() if d.kind == "points"), None)
    for name, d in schema.items():
        value = release.field_value(name)
        if d.kind == "facts" and isinstance(value, tuple):
            fits = set(value) <= set(parties) and len(set(value)) == len(value)
        elif d.kind == "counts" and d.combine == "each":
            fits = _is_count(value, site, points)
        elif d.combine == "sum" and d.cells and foreign:
            fits = _are_cell_weights(value, site)
        elif (d.combine, d.kind) in _SUM_CHECKS and not d.cells:
            fits = _SUM_CHECKS[d.combine, d.kind](value, site)
        else:
            fits = True
        if not fits:
            return False
    return True


def has_declared_units(release: Release, schema: Mapping[str, Disclosure], message: Any) -> bool:
    """Return whether every sum is in a unit that its field declares or the question states.

    Units travel beside masked sums without a mask, so a handler must not choose them by what it reads.
    """
    stated = [value for value in vars(message).values() if isinstance(value, np.ndarray)]
    allowed = {0, *(int(unit) for value in stated if value.dtype == np.int32 for unit in value.flat)}
    exact = ((d, release.field_value(name)) for name, d in schema.items() if d.combine == "sum")
    return all(set(value.unit.flat) <= allowed | {d.power} for d, value in exact if isinstance(value, Exact))


def _is_fact(value: Any, declared: Disclosure) -> bool:
    if isinstance(value, tuple):
        return all(type(name) is str for name in value)
    whole = isinstance(value, (bool, int, np.bool_, np.integer))
    return whole and declared.least <= int(value) <= declared.most


def _is_count(value: Any, site: Site, points: Any) -> bool:
    """Return whether a value is a count of rows or values, or counts that count each row at most once.

    Rows may be behind several points, so counts next to points need only be one for each point, of rows held here.
    """
    held = site.rows + site.left_out
    if isinstance(value, np.ndarray):
        if value.dtype != np.int64 or value.ndim != 1 or (value < 0).any() or (value > held).any():
            return False
        return int(value.sum()) <= held if points is None else len(value) == len(points)
    return isinstance(value, (int, np.integer)) and 0 <= int(value) <= held * max(1, len(site.columns))


def _are_totals(value: Exact, site: Site) -> bool:
    """Return whether the values are numbers over all rows: a few, or one for each column."""
    most = max(1, site.rows + site.left_out)
    few = int(np.prod(value.shape)) <= max(MIN_TOTALS, len(site.columns))
    return few and not value.unit.any() and _are_between(value, 0.0, most)


def _are_cell_weights(value: Exact, site: Site) -> bool:
    """Return whether no cell has a negative weight or more weight than the site has rows; no row weighs more than 1."""
    return _are_between(value, 0.0, site.rows + site.left_out)


def _are_between(value: Exact, least: float, most: float) -> bool:
    numbers = value.to_floats()
    return bool(((numbers >= least) & (numbers <= most)).all())


def _are_marks(value: Exact, site: Site) -> bool:
    """Return whether there are no more marks than columns, at no more places than allowed."""
    columns = max(1, len(site.columns))
    few = int(np.prod(value.shape)) <= MAX_PLACES * columns
    return (
        few and not value.unit.any() and _are_between(value, 0.0, columns) and float(value.to_floats().sum()) <= columns
    )


_SUM_CHECKS: Mapping[tuple[str, str], Callable[[Exact, Site], bool]] = {
    ("sum", "counts"): _are_totals,
    ("sum", "marks"): _are_marks,
}
