"""k-means of weighted points that a coordinator holds, each of which stands for rows."""

from __future__ import annotations

import math

import numpy as np

from fedclust.core.types import Floats, Ints
from fedclust.kernels import distances


def plus_plus_starts(points: Floats, weights: Ints, count: int, rng: np.random.Generator, times: int) -> list[Floats]:
    """k-means++ on weighted points, a few times."""
    found = []
    for _ in range(times):
        chance = weights.astype(np.float64)
        picked: list[int] = []
        apart = np.full(len(points), np.inf)
        for _ in range(count):
            mass = np.cumsum(chance)
            at = int(np.searchsorted(mass, rng.random() * mass[-1], side="right"))
            picked.append(min(at, len(points) - 1))
            apart = np.minimum(apart, ((points - points[picked[-1]]) ** 2).sum(axis=1))
            chance = weights * apart if (apart > 0).any() else weights.astype(np.float64)
        found.append(points[picked])
    return found


def kmeans(points: Floats, weights: Ints, centers: Floats, rounds: int = 300) -> tuple[float, Floats]:
    """k-means of weighted points: objective and centres. A centre without points stays.

    >>> kmeans(np.array([[0.0], [3.0], [9.0]]), np.array([2, 1, 1]), np.array([[1.0], [8.0]]))[1].ravel().tolist()
    [1.0, 9.0]
    """
    columns = np.ascontiguousarray(points.T)
    for _ in range(rounds):
        labels, d2 = distances.nearest_centers(columns, centers)
        mass = np.bincount(labels, weights, len(centers))
        pull = np.zeros_like(centers)
        np.add.at(pull, labels, points * weights[:, None])
        moved = np.where(mass[:, None] > 0, pull / np.maximum(mass, 1e-300)[:, None], centers)
        if np.array_equal(moved, centers):
            break
        centers = moved
    return math.fsum((d2 * weights).tolist()), centers
