"""What must be said of a choice of K: no structure, overlap, rivals, edges, flat curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedclust.core.errors import DataError
from fedclust.questions.choice_of_k.two_step import MIN_KMEANS_STRENGTH, KChoice, MixtureScore

STRONG_EVIDENCE = 10.0  # on the scale of ICL and BIC: less is no strong evidence (Kass and Raftery 1995)
INDEX_TOLERANCE = 0.01  # of the chosen index: less is level
FLAT_CURVE_FRACTION = 0.05  # of the largest


def drop_large_candidates(ks: Sequence[int], rows: int) -> tuple[list[int], list[str]]:
    """The candidates that there are rows for."""
    kept, left = [k for k in ks if k <= rows], [str(k) for k in ks if k > rows]
    if not kept:
        raise DataError(f"n_samples={rows} is fewer than n_clusters={ks[0]}; ask for fewer clusters")
    return kept, [f"There are {rows} rows: K = {', '.join(left)} left out."] if left else []


def choose_among(choice: KChoice, ks: Sequence[int] | None) -> tuple[int, list[str]]:
    """The choice among the candidates; one cluster need not be among them."""
    if ks is None or choice.k in ks:
        return choice.k, []
    k = min((s for s in choice.scores if s.k in ks), key=lambda s: (s.is_dropped, s.icl)).k
    return k, [f"No structure found: nothing speaks for any of the K asked for; {k} is the least bad of them."]


def mixture_notes(choice: KChoice, k: int, high: int, *, given: bool) -> list[str]:
    """What to say of the two-step's choice."""
    notes = []
    strong = "" if choice.strength is None else f"prediction strength {choice.strength:.2f}"
    if choice.k == 1 and k == 1:
        rival = choice.k_icl if choice.k_icl > 1 else choice.k_bic
        why = f" (mixtures would say {rival}, but such clusters do not come back in halves: {strong})" if strong else ""
        notes.append(f"No structure found: one cluster describes the rows best{why}.")
        if choice.strengths:
            closest = max(choice.strengths, key=lambda n: choice.strengths[n])
            notes.append(
                f"Closest to coming back are {closest} clusters of c-means, with {choice.strengths[closest]:.2f} "
                f"where {MIN_KMEANS_STRENGTH} is asked for."
            )
    if choice.empty:
        notes.append(
            "A half of the rows was empty: equal rows stay together, and too few differ to see what comes back."
        )
    if choice.why == "halves" and k == choice.k:
        notes.append(
            f"ICL says {choice.k_icl}, but those components do not come back in halves ({strong}), as happens where "
            f"groups are no Gaussians or rows are few; {k} is the largest number of c-means clusters that do."
        )
    if choice.why == "bic" and k == choice.k:
        notes.append(f"Overlapping clusters: ICL says 1, BIC says {k}, and they come back in halves ({strong}).")
    if choice.why == "icl" and k == choice.k:
        notes += _rival_notes(choice.scores, k)
    if given and k == high:
        notes.append(f"The choice is the largest K asked for; ask for more than {high} to see whether it holds.")
    return notes


def _rival_notes(scores: Sequence[MixtureScore], k: int) -> list[str]:
    best = {
        n: min((s.icl for s in scores if s.k == n and not s.is_dropped), default=np.inf) for n in {s.k for s in scores}
    }
    near = sorted(n for n, value in best.items() if n != k and value - best[k] < STRONG_EVIDENCE)
    return [f"Nearly level with {k} by ICL: {', '.join(map(str, near))}."] if near else []


def score_row(s: MixtureScore, *, chosen: bool) -> dict[str, Any]:
    """A line of the table of scores."""
    kept = {"k": s.k, "family": s.family, "log_likelihood": s.log, "bic": s.bic, "icl": s.icl}
    return {**kept, "separation": s.separation if s.k > 1 else None, "dropped": s.is_dropped, "chosen": chosen}


def index_notes(values: Mapping[int, float], k: int, *, given: bool, elbow: bool) -> list[str]:
    """What to say of a choice by an index; of `values` the smaller is the better."""
    finite = {n: v for n, v in values.items() if np.isfinite(v)}
    notes = [
        f"The index is infinite at K = {', '.join(map(str, some))}: {why}."
        for why, some in (
            ("centres coincide", sorted(n for n, v in values.items() if v == np.inf)),
            ("no row is apart from its centre", sorted(n for n, v in values.items() if v == -np.inf)),
        )
        if some
    ]
    size = max((abs(v) for v in finite.values()), default=0.0)
    if len(finite) > 1 and max(finite.values()) - min(finite.values()) < FLAT_CURVE_FRACTION * size:
        notes.append("The curve is flat: the index hardly depends on K, so the choice means little.")
    level = INDEX_TOLERANCE * abs(values[k]) if k in finite else 0.0
    near = sorted(n for n, v in finite.items() if n != k and abs(v - values[k]) <= level)
    if near and not elbow:
        notes.append(f"Nearly level with {k}: {', '.join(map(str, near))}.")
    if given and k == max(values):
        notes.append(f"The choice is the largest K asked for; ask for more than {k} to see whether it holds.")
    return notes
