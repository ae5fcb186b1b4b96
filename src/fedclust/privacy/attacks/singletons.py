"""Attack a2: a rule that hides a site's clusters of one row shows those rows.

A party's sum over all clusters is the sum of its rows, the same in every round. A round in which one row is hidden
falls short of a full round by that row. Two rounds that hide k and k + 1 rows differ by one too, if the k are the same
rows; then the row must be nearest to a centre whose cluster came out empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from fedclust.privacy.attacks.differencing import nearest
from fedclust.privacy.attacks.transcript import Found, Seen, Transcript, distinct, minus, streams


def singletons(transcript: Transcript) -> tuple[Found, ...]:
    """Rows that were hidden in some rounds and not in others."""
    found: list[Found] = []
    for _, rounds in streams(transcript, "mass", "pull"):
        hard = [seen for seen in rounds if seen.number("mass").ndim == 1 and float(seen.asked.get("m", 1.0)) == 1.0]
        for shape in {seen.number("pull").shape for seen in hard}:
            found += _hidden([seen for seen in hard if seen.number("pull").shape == shape])
    return distinct(found)


def _hidden(rounds: list[Seen]) -> Iterator[Found]:
    """Compare rounds with full ones, and neighbours with each other."""
    shown = [float(seen.number("mass").sum()) for seen in rounds]
    full = max(shown, default=0.0)
    whole = next((seen for seen, rows in zip(rounds, shown, strict=True) if rows == full), None)
    for seen, rows in zip(rounds, shown, strict=True):
        if whole is not None and full - rows == 1:
            yield _short(whole, seen)
    for (before, b), (after, a) in pairwise(zip(rounds, shown, strict=True)):
        more, fewer = (before, after) if b > a else (after, before)
        if abs(a - b) == 1:
            one = _short(more, fewer)
            place = nearest(_row(more, fewer), fewer.centers)
            if place is None or fewer.number("mass")[place] == 0:
                yield one


def _row(more: Seen, fewer: Seen) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(minus(more, fewer, "pull").sum(axis=0), np.float64)


def _short(more: Seen, fewer: Seen) -> Found:
    point = fewer.original(_row(more, fewer))
    return Found(point, fewer.step, fewer.parties, "the one row that a rule hid")
