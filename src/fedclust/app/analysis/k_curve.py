"""Explains the choice of K: the curve that was examined, and the reason in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedclust.app.choose_k import Selection
from fedclust.questions.cluster_indices import BEST_DIRECTION

INDEX_TITLES = {
    "fuzzy-davies-bouldin": "fuzzy Davies-Bouldin index",
    "davies-bouldin": "Davies-Bouldin index",
    "xie-beni": "Xie-Beni index",
    "calinski-harabasz": "Calinski-Harabasz index",
}
VERDICTS = {
    "groups": "K = {k} was chosen: the rows form groups with few rows between them.",
    "none": "K = {k}: the rows show no groups.",
    "not round": "K = {k} was chosen, but the groups are not round.",
}


def describe_choice(found: Selection) -> dict[str, Any]:
    """Return what was examined, what was chosen, and the reason in a sentence."""
    by_index = found.criterion == "index"
    name = found.scores[0]["index"] if by_index else "evidence"
    best = BEST_DIRECTION[name] if by_index else "max"
    curve = {row["k"]: row["value" if by_index else "evidence"] for row in found.scores}
    return {
        "k": found.k,
        "criterion": found.criterion,
        "name": name,
        "best": best,
        "range": list(found.range),
        "verdict": found.verdict,
        "certainty": found.certainty,
        "stability": found.stability,
        "curve": [{"k": k, "value": value} for k, value in curve.items()],
        "scores": found.scores,
        "notes": list(found.notes),
        "why": _explain_index(found.k, INDEX_TITLES.get(name, name.replace("-", " ")), curve, best)
        if by_index
        else f"{VERDICTS[found.verdict or 'groups'].format(k=found.k)} {found.reason}",
    }


def _explain_index(k: int, name: str, curve: Mapping[int, float], best: str) -> str:
    sign = 1.0 if best == "min" else -1.0
    order = sorted(curve, key=lambda n: sign * curve[n])
    looked = f"among {len(curve)} values of K from {min(curve)} to {max(curve)}"
    least = "lowest" if best == "min" else "highest"
    if len(curve) == 1:
        return f"K = {k} was the only value examined."
    if order[0] == k:
        after = f"The next best value is {_format_value(curve[order[1]])} at K = {order[1]}"
        return f"K = {k} has the {least} {name} {looked}: {_format_value(curve[k])}. {after}."
    return f"The curve of the {name} bends most at K = {k}, {looked}. Its {least} value is at K = {order[0]}."


def _format_value(value: float) -> str:
    return f"{value:,.0f}" if 1e4 > abs(value) >= 1e3 else f"{value:.4g}"
