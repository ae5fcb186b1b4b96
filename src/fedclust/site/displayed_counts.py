"""How displayed counts of rows look: small ones are hidden, the others rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedclust.core.release import HIDDEN_COUNT


def hide_small_counts(counts: Any, floor: int) -> Any:
    """Counts with every one below the floor hidden, none at all included: where 0 is shown, hidden is some.

    A single count is hidden likewise.

    The total reveals the sum of the hidden counts, so they are at least two and a floor of rows; if not, the
    smallest of the others is hidden with them.

    >>> hide_small_counts(np.array([20, 3, 9]), 5).tolist()
    [20, -1, -1]
    """
    hidden = np.asarray(counts < (floor if floor > 1 else 0))
    while hidden.any() and not hidden.all() and (hidden.sum() < 2 or counts[hidden].sum() < floor):
        hidden.flat[np.where(hidden, np.iinfo(np.int64).max, counts).argmin()] = True
    found = np.where(hidden, HIDDEN_COUNT, counts)
    return found if isinstance(counts, np.ndarray) else int(found)


def round_counts(counts: Any, step: int) -> Any:
    """Counts to the nearest multiple of a step, half of it up; hidden ones stay hidden.

    >>> round_counts(np.array([12, 13, -1]), 5).tolist(), round_counts(7, 5)
    ([10, 15, -1], 5)
    """
    found = np.where(
        np.asarray(counts) == HIDDEN_COUNT, HIDDEN_COUNT, (2 * np.asarray(counts) + step) // (2 * step) * step
    )
    return found.astype(np.int64) if isinstance(counts, np.ndarray) else int(found)
