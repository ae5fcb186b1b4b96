"""Checks, value by value, that an answer holds no more than the classes of its fields allow.

A class limits what a field can carry. A fact is one whole number. Marks are one for each column, at one of a few
places. Counts count each row once. So nobody can pack a row into whole numbers that are declared as facts.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from fedclust.core.effects import HANDLERS, Handler
from fedclust.core.release import COLUMNS, MAX_PLACES, Disclosure, Release
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site
from fedclust.core.types import Floats, PartyId
from fedclust.site.ledger import Tally

MIN_TOTALS = 2  # how many whole numbers over all rows an answer may hold, even with few columns
MAX_FACT_BITS = 32  # of facts that another package may send in a study
TALLY_TOLERANCE = 1e-6  # relative, of weights that are added in another order or rounded to units


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
    if foreign and not _are_few_totals(release, schema, site):
        return False
    for name, d in schema.items():
        value = release.field_value(name)
        if d.kind == "facts" and isinstance(value, tuple):
            fits = set(value) <= set(parties) and len(set(value)) == len(value)
            fits = fits and (not foreign or value == tuple(sorted(value)))  # their order would say more
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


def has_declared_forms(release: Release, schema: Mapping[str, Disclosure], message: Any, site: Site) -> bool:
    """Return whether every array has the shape, and every sum the units, that its field declares.

    Shapes and units travel next to masked sums without a mask, so a handler must not choose them by what it reads.
    """
    for name, d in schema.items():
        if d.axes is None:
            continue
        value = release.field_value(name)
        if np.shape(value) != tuple(_axis_length(axis, message, site) for axis in d.axes):
            return False
        if d.combine == "sum" and not (value.unit == _declared_unit(d, message)).all():
            return False
    return True


def _axis_length(axis: int | str, message: Any, site: Site) -> int:
    """Return how long a declared axis is; -1 if the question's field has no length."""
    if isinstance(axis, int):
        return axis
    if axis == COLUMNS:
        return len(site.columns)
    value = getattr(message, axis)
    if isinstance(value, np.ndarray):
        return len(value) if value.ndim else -1
    if isinstance(value, (tuple, dict)):
        return len(value)
    return value if type(value) is int else -1


def _declared_unit(declared: Disclosure, message: Any) -> Any:
    """Return the units of a sum: those that the question states, or the same for all numbers."""
    return getattr(message, declared.units) if declared.units else declared.power


def bits_of_facts(handler: Handler[Any, Any], parties: int) -> int:
    """Return how many bits the facts of an answer can hold, if it may name any of `parties`."""
    types = typing.get_type_hints(handler.received)
    return sum(
        1 if types[name] is bool else int(d.most - d.least).bit_length() if types[name] is int else parties
        for name, d in handler.schema.items()
        if d.kind == "facts"
    )


def bits_of_sent_facts(tally: Tally, parties: int) -> int:
    """Return how many bits other packages may have sent in facts so far."""
    return tally.timing_bits + sum(
        answers * bits_of_facts(HANDLERS[name], parties)
        for name, answers in tally.distinct_questions.items()
        if name in HANDLERS and HANDLERS[name].is_foreign
    )


def plain_floats(values: Any) -> Floats:
    """Return a copy as a plain array: a subclass of an array may compare and add as it likes."""
    return np.array(values, np.float64)


def is_possible_tally(tally: Floats, mass: Floats, rows: int) -> bool:
    """Return whether some weights of so many rows can have these sums, sums of squares and maxima.

    The first sums are those of the fields that are cells.
    """
    if tally.ndim != 2 or len(tally) != len(("total", "squares", "largest")) or not np.isfinite(tally).all():
        return False
    total, squares, largest = tally
    slack = 1 + TALLY_TOLERANCE
    if len(total) < len(mass) or (tally < 0).any():
        return False
    same = np.abs(total[: len(mass)] - mass) <= TALLY_TOLERANCE * np.maximum(1.0, mass)
    fits = (squares <= slack * total * largest) & (total**2 <= slack * rows * squares) & (largest <= slack * total)
    return bool(same.all() and fits.all())


def check_sums_of_cells(release: Release, schema: Mapping[str, Disclosure], totals: Floats, columns: int) -> str | None:
    """Return the code to refuse an answer with if a sum belongs to no cell, or to one without rows.

    The first axes of a sum are those of a field that is cells, or count the cells that `row_weights` adds. A few sums
    may be over all rows.
    """
    cells: list[tuple[tuple[int, ...], Floats]] = []
    at = 0
    for name, d in schema.items():
        if d.cells and d.combine == "sum":
            shape = release.field_value(name).shape
            cells.append((shape, totals[at : at + math.prod(shape)]))
            at += math.prod(shape)
    for name, d in schema.items():
        if d.combine != "sum" or d.cells or d.kind not in ("sums", "weights"):
            continue
        value: Exact = release.field_value(name)
        own = next((total for shape, total in cells if value.shape[: len(shape)] == shape), None)
        if own is None and len(totals) > at:
            own = next(
                (
                    totals[at:]
                    for axes in range(len(value.shape) + 1)
                    if math.prod(value.shape[:axes]) == len(totals) - at
                ),
                None,
            )
        if own is None:
            if math.prod(value.shape) > columns:
                return "not-as-declared"
        elif value.limbs.reshape(len(own), -1)[own == 0].any():
            return "abstains"
    return None


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


def _are_few_totals(release: Release, schema: Mapping[str, Disclosure], site: Site) -> bool:
    """Return whether the numbers over all rows are few in all fields together."""
    fields = [name for name, d in schema.items() if (d.combine, d.kind) == ("sum", "counts") and not d.cells]
    count: int = sum(math.prod(release.field_value(name).shape) for name in fields)
    return count <= max(MIN_TOTALS, len(site.columns))


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
