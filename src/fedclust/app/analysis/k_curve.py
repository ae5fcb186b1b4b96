"""Explains the choice of K: the curve that was examined, and the reason in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedclust.questions.cluster_indices import BEST_DIRECTION

INDEX_TITLES = {
    "fuzzy-davies-bouldin": "fuzzy Davies-Bouldin index",
    "davies-bouldin": "Davies-Bouldin index",
    "xie-beni": "Xie-Beni index",
    "calinski-harabasz": "Calinski-Harabasz index",
}


def describe_choice(found: Any) -> dict[str, Any]:
    """Return what was examined, what was chosen, and the reason in a sentence."""
    by_index = found.criterion == "index"
    curve = _best_by_k(found.scores, "value" if by_index else "icl")
    name = found.scores[0]["index"] if by_index else "ICL"
    best = BEST_DIRECTION[name] if by_index else "min"
    return {
        "k": found.k,
        "criterion": found.criterion,
        "name": name,
        "best": best,
        "range": list(found.range),
        "stability": found.stability,
        "curve": [{"k": k, "value": value} for k, value in curve.items()],
        "beside": None if by_index else [{"k": k, "value": v} for k, v in _best_by_k(found.scores, "bic").items()],
        "scores": found.scores,
        "notes": list(found.notes),
        "why": _explain_choice(
            found.k,
            INDEX_TITLES.get(name, name.replace("-", " ") if by_index else name),
            curve,
            best,
            "" if by_index else _lowest_k(_best_by_k(found.scores, "bic")),
        ),
    }


def _best_by_k(scores: Sequence[Mapping[str, Any]], what: str) -> dict[int, float]:
    """Return the best value for each K; candidates that were dropped count only if there is no other."""
    out: dict[int, float] = {}
    for k in sorted({row["k"] for row in scores}):
        own = [row for row in scores if row["k"] == k]
        counted = [row for row in own if not row.get("dropped")] or own
        out[k] = min(row[what] for row in counted)
    return out


def _lowest_k(curve: Mapping[int, float]) -> str:
    return str(min(curve, key=lambda k: curve[k]))


def _explain_choice(k: int, name: str, curve: Mapping[int, float], best: str, by_bic: str) -> str:
    sign = 1.0 if best == "min" else -1.0
    order = sorted(curve, key=lambda n: sign * curve[n])
    looked = f"among {len(curve)} values of K from {min(curve)} to {max(curve)}"
    least = "lowest" if best == "min" else "highest"
    if len(curve) == 1:
        return f"K = {k} was the only value examined."
    if order[0] == k:
        after = f"The next best value is {_format_value(curve[order[1]])} at K = {order[1]}"
        return f"K = {k} has the {least} {name} {looked}: {_format_value(curve[k])}. {after}."
    if str(k) == by_bic:
        by_icl = f"The lowest {name}, which also penalises overlap, is at K = {order[0]}"
        return f"K = {k} has the lowest BIC {looked}. {by_icl}."
    if by_bic:
        guard = "a test that guards against chance results"
        return f"K = {k} was chosen by {guard}. The lowest {name} {looked} is at K = {order[0]}."
    return f"The curve of the {name} bends most at K = {k}, {looked}. Its {least} value is at K = {order[0]}."


def _format_value(value: float) -> str:
    return f"{value:,.0f}" if 1e4 > abs(value) >= 1e3 else f"{value:.4g}"
