"""Whether a histogram has a valley: how much likelier two peaks make its counts than one peak.

A curve with one peak rises to it and falls after it; the likeliest such curve of given counts is found by pooling
adjacent bins. A curve with two peaks is one with one peak to the left of a cut and another to the right. The logarithm
of the ratio of the two likelihoods is the evidence for a valley.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedclust.core.types import Floats
from fedclust.kernels import elementary

BINS = 12
LOG_TABLE_STEP = 4096

_logs: list[float] = [0.0]


def _log_table(most: int) -> list[float]:
    """Logarithms of 0 (as 0), 1, ..., at least up to `most`."""
    if len(_logs) <= most:
        size = (most // LOG_TABLE_STEP + 1) * LOG_TABLE_STEP + 1
        _logs[:] = [0.0, *elementary.log(np.arange(1, size, dtype=np.float64)).tolist()]
    return _logs


def valley_evidence(counts: Sequence[int], low: int, high: int) -> float:
    """The evidence for the deepest valley between two bins; see `find_valley`."""
    return find_valley(counts, low, high)[0]


def find_valley(counts: Sequence[int], low: int, high: int) -> tuple[float, int]:
    """The logarithm of the ratio of likelihoods, two peaks to one, with the cut after at least `low` bins, at most
    `high`; and that cut, or 0.

    >>> find_valley([1, 5, 3, 0], 1, 3)
    (0.0, 0)
    >>> evidence, cut = find_valley([4, 0, 4], 1, 2)
    >>> round(evidence, 6), cut  # 8 log(1/2) - (4 log(1/2) + 4 log(1/4))
    (2.772589, 1)
    """
    bins, backward = list(counts), list(counts)[::-1]
    size = len(bins)
    logs = _log_table(max(sum(bins), size))
    rising, falling = _rising_fits(bins, logs), _rising_fits(backward, logs)
    one = max(rising[m] + falling[size - m] for m in range(size + 1))
    best, place = 0.0, 0
    for cut in range(max(1, low), min(size - 1, high) + 1):
        left_falling = _rising_fits(backward[size - cut :], logs)
        right_rising = _rising_fits(bins[cut:], logs)
        left = max(rising[m] + left_falling[cut - m] for m in range(cut + 1))
        right = max(right_rising[m] + falling[size - cut - m] for m in range(size - cut + 1))
        if left + right - one > best:
            best, place = left + right - one, cut
    return best, place


def _rising_fits(counts: Sequence[int], logs: Sequence[float]) -> list[float]:
    """The log-likelihood of the best curve that does not fall, for the first m counts, m = 0, 1, ..."""
    out = [0.0]
    widths, sums, terms = list[int](), list[int](), list[float]()
    whole = 0.0
    for count in counts:
        width, added = 1, count
        while widths and sums[-1] * width >= added * widths[-1]:
            width += widths.pop()
            added += sums.pop()
            whole -= terms.pop()
        term = added * (logs[added] - logs[width]) if added else 0.0
        widths.append(width)
        sums.append(added)
        terms.append(term)
        whole += term
        out.append(whole)
    return out


def bin_range(low: Floats, high: Floats, one: Floats, other: Floats) -> list[tuple[int, int]]:
    """For each line from `low` to `high`, the bins between which a valley between two places is looked for."""
    first = np.floor((one - low) / (high - low) * BINS)
    last = np.floor((other - low) / (high - low) * BINS) + 1
    return [(int(a), int(b)) for a, b in zip(first, last, strict=True)]
