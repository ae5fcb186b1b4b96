"""Attack e: points that sites show may be rows, or means of so few rows that other sums undo them.

A point may equal a row bit for bit. A mean of five rows of a site, taken five times from a sum of six rows that has
the five in it, leaves the sixth.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedclust.privacy.attacks.differencing import CELLS, nearest
from fedclust.privacy.attacks.transcript import Found, Seen, Transcript, distinct

NEIGHBOURS = 5  # of how many rows a shown mean is made
SHOWN = ("points", "places", "centers")  # how answers call points


def shown_points(transcript: Transcript) -> tuple[Found, ...]:
    """Points as they were shown, each taken for a row."""
    return distinct(found for found, _ in _shown(transcript))


def remainders(transcript: Transcript) -> tuple[Found, ...]:
    """Rows that remain when a mean of five is taken from a sum of six of the same site."""
    found: list[Found] = []
    for point, seen in _shown(transcript):
        for other in transcript:
            if other.parties == seen.parties:
                found += _sixth(point.point, other)
    return distinct(found)


def _shown(transcript: Transcript) -> Iterator[tuple[Found, Seen]]:
    for seen in transcript:
        for name in SHOWN:
            if seen.has(name) and np.ndim(seen.answer[name]) == 2:
                for point in seen.number(name):
                    yield Found(seen.original(point), seen.step, seen.parties, "a point shown as it is"), seen


def _sixth(mean: np.ndarray[tuple[int], np.dtype[np.float64]], seen: Seen) -> Iterator[Found]:
    for count, total in CELLS:
        if not seen.has(count, total) or float(seen.asked.get("m", 1.0)) != 1.0 or seen.number(count).ndim != 1:
            continue
        counts, sums = seen.number(count), seen.number(total)
        for cluster in np.flatnonzero(counts == NEIGHBOURS + 1):
            six = seen.original(sums[cluster] / (NEIGHBOURS + 1)) * (NEIGHBOURS + 1)
            row = six - NEIGHBOURS * mean
            centers = None if seen.centers is None else seen.original(seen.centers)
            if nearest(row, centers) in (None, cluster) and nearest(mean, centers) in (None, cluster):
                yield Found(row, seen.step, seen.parties, "the sixth row beside a mean of five")
