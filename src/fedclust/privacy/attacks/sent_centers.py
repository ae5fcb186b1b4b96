"""Attack a3 at a site: the centres that every site is sent are global sums divided by counts, and the counts are whole.

When one row moves from cluster i to cluster j, with unknown whole counts n_i and n_j,

    n_i v_i - (n_i - 1) v_i' = x = (n_j + 1) v_j' - n_j v_j

which is F linear equations in n_i and n_j. A site knows how its own rows moved and takes them out first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, permutations

import numpy as np

from fedclust.core.types import Floats
from fedclust.privacy.attacks.transcript import Observation, RecoveredPoint, Transcript, distinct_points

WHOLE_COUNT_TOLERANCE = 1e-6  # a count this near to a whole number is one, and a residual this small is none
Cells = tuple[Floats, Floats]


def attack_sent_centers(transcript: Transcript, own: Floats | None = None) -> tuple[RecoveredPoint, ...]:
    """Rows of others that changed their cluster alone, from the centres of consecutive rounds.

    `own` are the observer's rows as the question looks at them.
    """
    rounds = [s for s in transcript if s.centers is not None and float(s.asked.get("m", 2.0)) == 1.0]
    kept: dict[tuple[str, bytes], Observation] = {}
    for seen in rounds:
        kept.setdefault((seen.question, np.asarray(seen.centers).tobytes()), seen)
    usable = list(kept.values())
    found: list[RecoveredPoint] = []
    # Three sets of centres show the sums of two rounds.
    for (asked, then), (_, now) in pairwise(pairwise(usable)):
        same = len({seen.question for seen in (asked, then, now)}) == 1
        if same and len({np.asarray(seen.centers).shape for seen in (asked, then, now)}) == 1:
            found += _rows_of_others(asked, then, now, own)
    return distinct_points(found)


def _rows_of_others(
    asked: Observation, then: Observation, now: Observation, own: Floats | None
) -> Iterator[RecoveredPoint]:
    first, v, w = (np.asarray(seen.centers) for seen in (asked, then, now))
    before, after = _own_cells(own, first), _own_cells(own, v)
    gained, pulled = after[0] - before[0], after[1] - before[1]
    changed = np.flatnonzero((v != w).any(axis=1))
    if v.shape[1] < 3 or not (np.isfinite(v).all() and np.isfinite(w).all()):
        return  # two counts fit any two equations
    for i, j in permutations(changed.tolist(), 2):
        # n_i v_i - (n_i + g_i - 1) w_i + p_i = x = (n_j + g_j + 1) w_j - n_j v_j - p_j
        left, right = v[i] - w[i], w[j] - v[j]
        known = (gained[j] + 1) * w[j] - pulled[j] - ((1 - gained[i]) * w[i] + pulled[i])
        counts: Floats = np.linalg.lstsq(np.column_stack([left, -right]), known, rcond=None)[0]
        whole = np.asarray(np.round(counts), np.float64)
        x = whole[0] * left + (1 - gained[i]) * w[i] + pulled[i]
        y = whole[1] * right + (gained[j] + 1) * w[j] - pulled[j]
        near = np.abs(counts - whole).max() < 1e-3 and (whole > 0).all()
        if (
            near
            and np.abs(x - y).max() <= WHOLE_COUNT_TOLERANCE * (np.abs(x).max() + 1e-300)
            and not _is_own_row(x, own)
        ):
            yield RecoveredPoint(
                now.to_original_units(x), now.step, ("all",), "the only row of another site that changed its cluster"
            )


def _is_own_row(x: Floats, own: Floats | None) -> bool:
    """Whether a point is a row the observer has anyway."""
    return own is not None and bool(
        (np.abs(own - x) <= WHOLE_COUNT_TOLERANCE * (np.abs(x).max() + 1e-300)).all(axis=1).any()
    )


def _own_cells(own: Floats | None, centers: Floats) -> Cells:
    """How many of the observer's rows are nearest to each centre, and their sums."""
    if own is None or not len(own):
        return np.zeros(len(centers)), np.zeros_like(centers)
    labels = np.argmin([((own - center) ** 2).sum(axis=1) for center in centers], axis=0)
    counts = np.bincount(labels, minlength=len(centers)).astype(np.float64)
    return counts, np.stack([own[labels == cluster].sum(axis=0) for cluster in range(len(centers))])
