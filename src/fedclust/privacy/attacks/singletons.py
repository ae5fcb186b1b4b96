"""Attack a2: a rule that hides a site's clusters of one row shows those rows.

A party's sum over all clusters is the sum of its rows, the same in every round. A round in which one row is hidden
falls short of a full round by that row. Two rounds that hide k and k + 1 rows differ by one too, if the k are the same
rows; then the row must be nearest to a centre whose cluster came out empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from fedclust.privacy.attacks.differencing import nearest_center
from fedclust.privacy.attacks.transcript import (
    Observation,
    RecoveredPoint,
    Transcript,
    distinct_points,
    group_by_question,
    subtract_field,
)


def attack_singletons(transcript: Transcript) -> tuple[RecoveredPoint, ...]:
    """Rows that were hidden in some rounds and not in others."""
    found: list[RecoveredPoint] = []
    for _, rounds in group_by_question(transcript, "mass", "pull"):
        hard = [seen for seen in rounds if seen.floats_of("mass").ndim == 1 and float(seen.asked.get("m", 1.0)) == 1.0]
        for shape in {seen.floats_of("pull").shape for seen in hard}:
            found += _hidden_rows([seen for seen in hard if seen.floats_of("pull").shape == shape])
    return distinct_points(found)


def _hidden_rows(rounds: list[Observation]) -> Iterator[RecoveredPoint]:
    """Compare rounds with full ones, and neighbours with each other."""
    shown = [float(seen.floats_of("mass").sum()) for seen in rounds]
    full = max(shown, default=0.0)
    whole = next((seen for seen, rows in zip(rounds, shown, strict=True) if rows == full), None)
    for seen, rows in zip(rounds, shown, strict=True):
        if whole is not None and full - rows == 1:
            yield _recovered_row(whole, seen)
    for (before, b), (after, a) in pairwise(zip(rounds, shown, strict=True)):
        more, fewer = (before, after) if b > a else (after, before)
        if abs(a - b) == 1:
            one = _recovered_row(more, fewer)
            place = nearest_center(_missing_row(more, fewer), fewer.centers)
            if place is None or fewer.floats_of("mass")[place] == 0:
                yield one


def _missing_row(more: Observation, fewer: Observation) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(subtract_field(more, fewer, "pull").sum(axis=0), np.float64)


def _recovered_row(more: Observation, fewer: Observation) -> RecoveredPoint:
    point = fewer.to_original_units(_missing_row(more, fewer))
    return RecoveredPoint(point, fewer.step, fewer.parties, "the single row that the singleton rule hid")
