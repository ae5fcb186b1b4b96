"""Attack e: points that sites show may be rows, or means of so few rows that other sums undo them.

A point may equal a row bit for bit. A mean of five rows of a site, taken five times from a sum of six rows that has
the five in it, leaves the sixth.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedclust.privacy.attacks.differencing import nearest_center
from fedclust.privacy.attacks.transcript import Observation, RecoveredPoint, Transcript, distinct_points

ROWS_PER_MEAN = 5  # of how many rows a shown mean is made


def attack_shown_points(transcript: Transcript) -> tuple[RecoveredPoint, ...]:
    """Points as they were shown, each taken for a row."""
    return distinct_points(found for found, _ in _points_shown(transcript))


def attack_remainders(transcript: Transcript) -> tuple[RecoveredPoint, ...]:
    """Rows that remain when a mean of five is taken from a sum of six of the same site."""
    found: list[RecoveredPoint] = []
    for point, seen in _points_shown(transcript):
        for other in transcript:
            if other.parties == seen.parties:
                found += _sixth_rows(point.point, other)
    return distinct_points(found)


def _points_shown(transcript: Transcript) -> Iterator[tuple[RecoveredPoint, Observation]]:
    for seen in transcript:
        for name in seen.roles.points:
            if seen.has_fields(name) and np.ndim(seen.answer[name]) == 2:
                for point in seen.floats_of(name):
                    yield (
                        RecoveredPoint(
                            seen.to_original_units(point),
                            seen.step,
                            seen.parties,
                            "a point that a site sent, assumed to be a row",
                        ),
                        seen,
                    )


def _sixth_rows(mean: np.ndarray[tuple[int], np.dtype[np.float64]], seen: Observation) -> Iterator[RecoveredPoint]:
    for count, total in seen.cells:
        if float(seen.asked.get("m", 1.0)) != 1.0 or seen.floats_of(count).ndim != 1:
            continue
        counts, sums = seen.floats_of(count), seen.floats_of(total)
        for cluster in np.flatnonzero(counts == ROWS_PER_MEAN + 1):
            six = seen.to_original_units(sums[cluster] / (ROWS_PER_MEAN + 1)) * (ROWS_PER_MEAN + 1)
            row = six - ROWS_PER_MEAN * mean
            centers = None if seen.centers is None else seen.to_original_units(seen.centers)
            if nearest_center(row, centers) in (None, cluster) and nearest_center(mean, centers) in (None, cluster):
                yield RecoveredPoint(
                    row,
                    seen.step,
                    seen.parties,
                    "the sixth row: the sum of six rows minus five times the sent mean of the other five",
                )
