"""Attacks a and a3: a sum of rows before and after one row left it differs by that row.

Given counts and sums of rows per cluster, round after round, of one party (a) or of all (a3). A cluster that lost or
gained one row shows it in the difference, unless others came and went as well; the centres, where known, tell: a row
taken for one that left was nearest to that cluster before and is not now. A cluster of one row shows it at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from fedclust.core.types import Floats
from fedclust.privacy.attacks.transcript import (
    Observation,
    RecoveredPoint,
    Transcript,
    distinct_points,
    group_by_question,
    subtract_field,
)


def attack_by_differencing(transcript: Transcript) -> tuple[RecoveredPoint, ...]:
    """Return rows that changed their cluster alone, or were alone in one."""
    found: list[RecoveredPoint] = []
    for count, total in cell_fields(transcript):
        for _, rounds in group_by_question(transcript, count, total):
            usable = [seen for seen in rounds if (count, total) in seen.cells and _has_hard_cells(seen, count, total)]
            for seen in usable:
                found += _rows_alone(seen, count, total)
            for before, after in pairwise(usable):
                found += _rows_that_moved(before, after, count, total)
    return distinct_points(found)


def cell_fields(transcript: Transcript) -> list[tuple[str, str]]:
    """The pairs of fields with counts and sums by cluster that any answer has."""
    return list(dict.fromkeys(pair for seen in transcript for pair in seen.cells))


def _has_hard_cells(seen: Observation, count: str, total: str) -> bool:
    """Return whether an answer has counts and sums by cluster; fuzzy counts are for another attack."""
    shape = seen.floats_of(count).shape
    fuzzy = "m" in seen.asked and float(seen.asked["m"]) != 1.0
    return len(shape) == 1 and seen.floats_of(total).shape[:1] == shape and not fuzzy


def _rows_alone(seen: Observation, count: str, total: str) -> Iterator[RecoveredPoint]:
    for cluster in np.flatnonzero(seen.floats_of(count) == 1):
        yield RecoveredPoint(
            seen.to_original_units(seen.floats_of(total)[cluster]),
            seen.step,
            seen.parties,
            "the only row of a cluster",
        )


def _rows_that_moved(before: Observation, after: Observation, count: str, total: str) -> Iterator[RecoveredPoint]:
    if before.floats_of(count).shape != after.floats_of(count).shape:
        return
    counts, sums = subtract_field(after, before, count), subtract_field(after, before, total)
    for cluster in np.flatnonzero(np.abs(counts) == 1):
        gained = counts[cluster] > 0
        row = sums[cluster] if gained else -sums[cluster]
        old, new = nearest_center(row, before.centers), nearest_center(row, after.centers)
        if old == new and old is not None:
            continue
        if (new if gained else old) in (None, cluster):
            yield RecoveredPoint(
                after.to_original_units(row), after.step, after.parties, "the only row that joined or left a cluster"
            )


def nearest_center(point: Floats, centers: Floats | None) -> int | None:
    """The nearest centre, or None where the centres are not known."""
    return None if centers is None else int(np.argmin(((centers - point) ** 2).sum(axis=1)))
