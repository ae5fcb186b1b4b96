"""Compares points with the site's own rows before they leave, to check that enough rows are behind each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedclust.algorithms.shared.row_likeness import ROW_TOLERANCE, count_equal_rows
from fedclust.core import wire
from fedclust.core.effects import Handler
from fedclust.core.question_types import FlooredQuestion, ViewedQuestion
from fedclust.core.release import FLOOR_FROM_QUESTION, Disclosure, Release
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Bools, Floats, Ints
from fedclust.site.site_data import missing_rule_of

MAX_FINITE_EXPONENT = 1023  # the power of two that exceeds any finite number
ROUNDING = 2.0**-45  # relative to the largest number in the view: the rounding of a mean of many rows
TINY = 1e-300
RANK_TOLERANCE = 2.0**-44  # relative: weights that differ by less are equal but for rounding
MAX_STATED_WEIGHTS = 2**26  # weights of rows in points that fit into memory at once
FLOOR_TOLERANCE = 1 - 2.0**-40  # relative to a floor: an effective size is a float


def point_fields(schema: Mapping[str, Disclosure]) -> dict[str, Disclosure]:
    """Return the fields that are points, whichever way they leave."""
    return {name: d for name, d in schema.items() if d.kind == "points"}


def declared_floor(disclosure: Disclosure, message: object) -> int:
    """Return how many rows each point stands for, by its declaration or by the question."""
    if disclosure.floor != FLOOR_FROM_QUESTION:
        return int(disclosure.floor)
    return message.rows_per_point() if isinstance(message, FlooredQuestion) else 0


@dataclass(frozen=True)
class PointCheck:
    """What a site compares points with: its rows in the view of the question, and its floor."""

    handler: Handler[Any, Any]
    message: object
    site: Site
    min_cell: int
    max_share: float

    def passes(self, release: Release) -> bool:
        """Return whether no point equals a row that fewer rows share than the floor, or stands for too few rows."""
        for name, d in point_fields(self.handler.schema).items():
            places = release.field_value(name)
            if d.combine != "each" or places is None:
                continue
            floor = max(declared_floor(d, self.message), self.min_cell)
            if floor > 1 and not self._represent_enough_rows(np.atleast_2d(places), floor, release):
                return False
        return True

    def has_numbers_equal_to_row(self, release: Release) -> bool:
        """Return whether sums or weights by column equal a row that fewer than a floor of rows share.

        The columns may be along any axis, whatever the cells say.
        """
        width = len(self.site.columns)
        for name, d in self.handler.schema.items():
            if d.combine == "messages" or d.kind not in ("sums", "weights") or d.cells:
                continue
            value = release.field_value(name)
            values = np.asarray(value.to_floats() if isinstance(value, Exact) else value, np.float64)
            for axis in (axis for axis, length in enumerate(values.shape) if length == width):
                numbers = np.moveaxis(values, axis, -1).reshape(-1, width)
                for candidate in (numbers, -numbers):
                    equal = self._count_equal_rows(candidate)
                    if ((equal > 0) & (equal < self.min_cell)).any():
                        return True
        return False

    def _represent_enough_rows(self, places: Floats, floor: int, release: Release) -> bool:
        if places.ndim != 2 or places.shape[1] != len(self.site.columns):
            return False
        if not len(places):
            return True
        sizes = [release.field_value(name) for name, d in release.schema().items() if d.kind == "counts"]
        if any(np.any(np.asarray(size) < floor) for size in sizes if np.shape(size) == places.shape[:1]):
            return False
        if self.handler.members is not None and not self._are_means(places, floor, sizes).all():
            return False
        equal = self._count_equal_rows(places)
        return not bool(((equal > 0) & (equal < floor)).any())

    @property
    def question_view(self) -> View:
        """Return the view of the question, or the rows unchanged if it has none."""
        if isinstance(self.message, ViewedQuestion):
            return self.message.view
        width = len(self.site.columns)
        return View(np.full(width, MAX_FINITE_EXPONENT, np.int32), missing=missing_rule_of(self.handler, self.message))

    def _count_equal_rows(self, points: Floats) -> Ints:
        view = self.question_view
        return count_equal_rows(points, self.site.blocks(view), view.scale_bound(self.site.largest))

    @property
    def _mean_tolerance(self) -> Floats:
        """How far a point may be from the mean computed here: rounding, and no more because of a far origin."""
        view = self.question_view
        near = ROW_TOLERANCE * view.scale_bound(self.site.largest)
        return np.maximum(near + ROUNDING * view.transform_bound(self.site.largest), TINY)

    def _are_independent_of_single_rows(self, parts: list[Floats]) -> bool:
        """Return whether no combination of the points depends on one row more than a single point may.

        The largest share of a row in any combination of points, by squares, is its leverage: one if the points could
        be solved for the row.
        """
        if not self.max_share or sum(part.size for part in parts) > MAX_STATED_WEIGHTS:
            return not self.max_share
        weights = np.concatenate(parts, axis=1)
        weights /= weights.sum(axis=1, keepdims=True)
        _, sizes, shares = np.linalg.svd(weights, full_matrices=False)
        leverage = (shares[sizes > RANK_TOLERANCE * sizes.max(initial=0.0)] ** 2).sum(axis=0)
        return bool((FLOOR_TOLERANCE * leverage <= self.max_share).all())

    def _are_means(self, places: Floats, floor: int, sizes: list[Ints]) -> Bools:
        """Return which points are weighted means of at least a floor of rows, computed here from the weights."""
        if self.handler.members is None:
            return np.ones(len(places), bool)
        total, squares, largest, rows = (np.zeros(len(places)) for _ in range(4))
        pull = np.zeros(places.shape)
        blocks = iter(self.site.blocks(self.question_view))
        parts: list[Floats] = []
        asked = wire.copy_as(self.handler.message, self.message) if self.handler.is_foreign else self.message
        for stated in self.handler.members(self.site, asked):
            weights = np.array(stated, np.float64) if self.handler.is_foreign else stated
            block = next(blocks)
            if weights.shape != (len(places), block.shape[1]) or not bool((weights >= 0).all()):
                return np.zeros(len(places), bool)
            total += weights.sum(axis=1)
            with np.errstate(over="ignore", under="ignore"):
                squares += (weights * weights).sum(axis=1)
            largest = np.maximum(largest, weights.max(axis=1, initial=0.0))
            rows += (weights > 0).sum(axis=1)
            pull += weights @ block.T
            parts += [weights] if self.handler.is_foreign else []
        some = np.where(total > 0, total, 1.0)
        fits = (np.abs(pull / some[:, None] - places) <= self._mean_tolerance).all(axis=1)
        with np.errstate(over="ignore", under="ignore"):
            square = total**2
            exact = np.isfinite(square) & (squares >= TINY)  # squares that vanish or overflow compare as anything
            enough = exact & (square >= FLOOR_TOLERANCE * floor * squares)
        if self.max_share:
            enough &= FLOOR_TOLERANCE * largest <= self.max_share * total
        if enough.all() and self.handler.is_foreign and not self._are_independent_of_single_rows(parts):
            return np.zeros(len(places), bool)
        counted = [np.asarray(size) == rows for size in sizes if np.shape(size) == rows.shape]
        return np.asarray(fits & enough & np.all(counted, axis=0)) if counted else np.asarray(fits & enough)
