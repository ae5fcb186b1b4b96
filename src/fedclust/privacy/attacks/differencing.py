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
from fedclust.privacy.attacks.transcript import Found, Seen, Transcript, distinct, minus, streams

CELLS = (("mass", "pull"), ("sizes", "pull"))  # how answers call counts and sums


def differencing(transcript: Transcript) -> tuple[Found, ...]:
    """Rows that changed their cluster alone, or were alone in one."""
    found: list[Found] = []
    for count, total in CELLS:
        for _, rounds in streams(transcript, count, total):
            usable = [seen for seen in rounds if _cells(seen, count, total)]
            for seen in usable:
                found += _lone(seen, count, total)
            for before, after in pairwise(usable):
                found += _moved(before, after, count, total)
    return distinct(found)


def _cells(seen: Seen, count: str, total: str) -> bool:
    """Counts by cluster beside sums by cluster and column; fuzzy counts are for another attack."""
    shape = seen.number(count).shape
    fuzzy = "m" in seen.asked and float(seen.asked["m"]) != 1.0
    return len(shape) == 1 and seen.number(total).shape[:1] == shape and not fuzzy


def _lone(seen: Seen, count: str, total: str) -> Iterator[Found]:
    for cluster in np.flatnonzero(seen.number(count) == 1):
        yield Found(seen.original(seen.number(total)[cluster]), seen.step, seen.parties, "a cluster of one row")


def _moved(before: Seen, after: Seen, count: str, total: str) -> Iterator[Found]:
    if before.number(count).shape != after.number(count).shape:
        return
    counts, sums = minus(after, before, count), minus(after, before, total)
    for cluster in np.flatnonzero(np.abs(counts) == 1):
        gained = counts[cluster] > 0
        row = sums[cluster] if gained else -sums[cluster]
        old, new = nearest(row, before.centers), nearest(row, after.centers)
        if old == new and old is not None:
            continue
        if (new if gained else old) in (None, cluster):
            yield Found(after.original(row), after.step, after.parties, "the one row that came or went")


def nearest(point: Floats, centers: Floats | None) -> int | None:
    """The nearest centre, or None where the centres are not known."""
    return None if centers is None else int(np.argmin(((centers - point) ** 2).sum(axis=1)))
