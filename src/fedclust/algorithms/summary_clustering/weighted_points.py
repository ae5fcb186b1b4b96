"""Points that stand for rows, joined by Ward's cost Wa Wb / (Wa + Wb) |a - b|^2 until they are few and heavy enough."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedclust.algorithms.shared.row_likeness import near_rows
from fedclust.core.types import Floats
from fedclust.kernels import grouping

MAX_POINTS = 400  # that a site works on at a time
POINTS_AFTER_JOINING = 200  # what Ward makes of them when there is no room for more
MAX_SUMMARIES = 60


@dataclass(frozen=True)
class WeightedPoints:
    """Means of rows, the means by which they are compared, the number of rows, and the scatter within each."""

    places: Floats
    compared: Floats  # where outliers are damped, means of the damped rows; else the places
    weights: Floats
    scatter: Floats

    @classmethod
    def empty(cls, columns: int) -> WeightedPoints:
        """No points at all."""
        nowhere = np.empty((0, columns))
        return cls(nowhere, nowhere, np.empty(0), np.empty(0))

    def add_rows(self, rows: Floats, compared: Floats) -> WeightedPoints:
        """With more rows, joined by Ward whenever there is no room for all."""
        held, at = self, 0
        while at < len(rows):
            if len(held.places) >= MAX_POINTS:
                held = held.join_to(POINTS_AFTER_JOINING)
            end = min(len(rows), at + MAX_POINTS - len(held.places))
            held = held.append(WeightedPoints(rows[at:end], compared[at:end], np.ones(end - at), np.zeros(end - at)))
            at = end
        return held

    def join_to(self, count: int, floor: float = 0.0) -> WeightedPoints:
        """At most so many points, of at least a floor of rows each while there are others to join."""
        width = self.compared.shape[1]
        both = np.concatenate([self.compared, self.places], axis=1)
        found, *rest = grouping.ward(both, self.weights, self.scatter, count, floor, blur=floor > 0, along=width)
        return WeightedPoints(np.ascontiguousarray(found[:, width:]), np.ascontiguousarray(found[:, :width]), *rest)

    def with_floor(self, floor: int) -> WeightedPoints:
        """With at least a floor of rows behind each point: lighter ones are joined to others, or left out."""
        found = self.join_to(len(self.places), floor)
        enough = found.weights >= floor
        return WeightedPoints(*(own[enough] for own in (found.places, found.compared, found.weights, found.scatter)))

    def append(self, other: WeightedPoints) -> WeightedPoints:
        """These points and others."""
        return WeightedPoints(
            np.concatenate([self.places, other.places]),
            np.concatenate([self.compared, other.compared]),
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.scatter, other.scatter]),
        )

    def summarise(self, floor: int, rows: Floats) -> WeightedPoints:
        """At most MAX_SUMMARIES points of at least a floor of rows each, none of which equals a row."""
        found = self.join_to(min(MAX_SUMMARIES, int(self.weights.sum()) // floor), floor)
        while (same := near_rows(found.places, rows)).any():
            if len(found.places) == 1:
                return WeightedPoints.empty(found.places.shape[1])
            # A point that equals a row is joined to another, like one whose rows are all the same.
            found = replace(found, scatter=np.where(same, 0.0, np.maximum(found.scatter, 1e-300)))
            found = found.join_to(len(found.places), floor)
        return found
