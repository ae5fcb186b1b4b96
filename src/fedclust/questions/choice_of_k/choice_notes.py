"""Notes on a choice of K: no structure, overlap, close rivals, a choice at the edge, flat curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedclust.core.errors import DataError
from fedclust.questions.choice_of_k.two_step import MIN_KMEANS_STRENGTH, KChoice, MixtureScore

STRONG_EVIDENCE = (
    10.0  # on the scale of ICL and BIC; a smaller difference is not strong evidence (Kass and Raftery 1995)
)
INDEX_TOLERANCE = 0.01  # of the chosen index; a smaller difference counts as equal
FLAT_CURVE_FRACTION = 0.05  # of the largest


def drop_large_candidates(ks: Sequence[int], rows: int) -> tuple[list[int], list[str]]:
    """Return the candidates that do not exceed the number of rows, and a note on the others."""
    kept, left = [k for k in ks if k <= rows], [str(k) for k in ks if k > rows]
    if not kept:
        raise DataError(f"n_samples={rows} is fewer than n_clusters={ks[0]}; ask for fewer clusters")
    return kept, [f"There are only {rows} rows, so K = {', '.join(left)} was not tried."] if left else []


def choose_among(choice: KChoice, ks: Sequence[int] | None) -> tuple[int, list[str]]:
    """The choice among the candidates; one cluster need not be among them."""
    if ks is None or choice.k in ks:
        return choice.k, []
    k = min((s for s in choice.scores if s.k in ks), key=lambda s: (s.is_dropped, s.icl)).k
    return k, [f"No structure found: no candidate K describes the rows well. Of the candidates, {k} is the best."]


def mixture_notes(choice: KChoice, k: int, high: int, *, given: bool) -> list[str]:
    """Notes on the choice of the two-step method."""
    notes = []
    strong = "" if choice.strength is None else f"prediction strength {choice.strength:.2f}"
    if choice.k == 1 and k == 1:
        rival = choice.k_icl if choice.k_icl > 1 else choice.k_bic
        why = (
            f" (Gaussian mixtures suggest {rival}, but these clusters do not reappear when halves of the rows are "
            f"compared: {strong})"
            if strong
            else ""
        )
        notes.append(f"No structure found: one cluster describes the rows best{why}.")
        if choice.strengths:
            closest = max(choice.strengths, key=lambda n: choice.strengths[n])
            notes.append(
                f"The most stable c-means result has {closest} clusters, with a prediction strength of "
                f"{choice.strengths[closest]:.2f}; {MIN_KMEANS_STRENGTH} is required."
            )
    if choice.empty:
        notes.append(
            "One half of the rows was empty, because equal rows always go to the same half. There are "
            "too few different rows to test stability."
        )
    if choice.why == "halves" and k == choice.k:
        notes.append(
            f"The criterion ICL suggests {choice.k_icl}, but these mixture components do not reappear when "
            f"halves of the rows are compared ({strong}). This happens if clusters are not Gaussian or if there are "
            f"few rows. {k} is the largest number of c-means clusters that reappear."
        )
    if choice.why == "bic" and k == choice.k:
        notes.append(
            f"Overlapping clusters: the criterion ICL suggests 1 and BIC suggests {k}; these {k} reappear when "
            f"halves of the rows are compared ({strong})."
        )
    if choice.why == "icl" and k == choice.k:
        notes += _rival_notes(choice.scores, k)
    if given and k == high:
        notes.append(f"The choice is the largest candidate K. To check it, include values above {high}.")
    return notes


def _rival_notes(scores: Sequence[MixtureScore], k: int) -> list[str]:
    best = {
        n: min((s.icl for s in scores if s.k == n and not s.is_dropped), default=np.inf) for n in {s.k for s in scores}
    }
    near = sorted(n for n, value in best.items() if n != k and value - best[k] < STRONG_EVIDENCE)
    return [f"By the criterion ICL, these K are almost as good as {k}: {', '.join(map(str, near))}."] if near else []


def score_row(s: MixtureScore, *, chosen: bool) -> dict[str, Any]:
    """One row of the table of scores."""
    kept = {"k": s.k, "family": s.family, "log_likelihood": s.log, "bic": s.bic, "icl": s.icl}
    return {**kept, "separation": s.separation if s.k > 1 else None, "dropped": s.is_dropped, "chosen": chosen}


def index_notes(values: Mapping[int, float], k: int, *, given: bool, elbow: bool) -> list[str]:
    """Notes on a choice by an index; smaller `values` are better."""
    finite = {n: v for n, v in values.items() if np.isfinite(v)}
    notes = [
        f"The index is infinite at K = {', '.join(map(str, some))}: {why}."
        for why, some in (
            ("centres coincide", sorted(n for n, v in values.items() if v == np.inf)),
            ("every row equals its centre", sorted(n for n, v in values.items() if v == -np.inf)),
        )
        if some
    ]
    size = max((abs(v) for v in finite.values()), default=0.0)
    if len(finite) > 1 and max(finite.values()) - min(finite.values()) < FLAT_CURVE_FRACTION * size:
        notes.append("The index hardly depends on K, so the choice means little.")
    level = INDEX_TOLERANCE * abs(values[k]) if k in finite else 0.0
    near = sorted(n for n, v in finite.items() if n != k and abs(v - values[k]) <= level)
    if near and not elbow:
        notes.append(f"These K are almost as good as {k}: {', '.join(map(str, near))}.")
    if given and k == max(values):
        notes.append(f"The choice is the largest candidate K. To check it, include values above {k}.")
    return notes
