"""The summary of a result for a terminal: number of clusters, centres in original units, notes, and what left."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fedclust.app.analysis import ModelFacts
from fedclust.app.analysis.describe_rows import NO_CELLS_REASON
from fedclust.app.run_folder import Run
from fedclust.core.counted_nouns import count_noun
from fedclust.core.types import Array


def format_summary(run: Run, model: ModelFacts, metrics: dict[str, Any]) -> str:
    """Summarise a finished run for a terminal."""
    rounds = count_noun(metrics["rounds"], "round")
    head = (
        f"{metrics['name']}: {count_noun(metrics['k'], 'cluster')} by {metrics['method']} in {rounds} "
        f"({metrics['seconds']:.1f} s)"
    )
    found = run.analysis or {}
    following = f"""Written to {run.folder}. Next:
  fedclust report {run.folder}
  fedclust export {run.folder} --to csv
  fedclust site assign {run.model_path} --data FILE --out labels.csv"""
    parts = [
        head if metrics["objective"] is None else f"{head}, objective {_format_objective(metrics['objective'])}",
        *([format_choice(found["selection"])] if "curve" in (found.get("selection") or {}) else []),
        format_centers(model, metrics["columns"], _counted_rows(found.get("sizes") or {}, model)),
        format_notes(metrics["notes"], model, metrics["split"]),
        format_traffic(metrics["sites"], arrived=run.engine_choice is not None),
        following,
    ]
    return "\n\n".join(parts)


def _counted_rows(sizes: Mapping[str, Any], model: ModelFacts) -> Sequence[int | None] | None:
    """Return the sizes of the description; unknown ones if the sums of no cluster were opened."""
    if sizes.get("absent") == NO_CELLS_REASON:
        return [None] * model.cluster_count
    found: Sequence[int | None] | None = sizes.get("rows")
    return found


def _format_objective(value: float | str) -> str:
    """Format the objective; it is infinite if clusters stayed closed whose rows nobody counted.

    >>> _format_objective(12.34567891), _format_objective("inf")
    ('12.3457', 'not known')
    """
    return f"{float(value):.6g}" if math.isfinite(float(value)) else "not known"


def format_choice(found: Mapping[str, Any], width: int = 24) -> str:
    """Show the curve over K as bars, mark the chosen K, and give the reason."""
    utf = "utf" in (sys.stdout.encoding or "").lower()
    points = [(point["k"], float(point["value"])) for point in found["curve"]]
    finite = [value for _, value in points if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    shown = [_format_number(value) for _, value in points]
    room = max(map(len, shown), default=0)
    lines = [
        f"  K = {k:<3} {text.rjust(room)}  "
        f"{_bar_text(value, low, high, width, utf=utf)}{' <- chosen' * (k == found['k'])}"
        for (k, value), text in zip(points, shown, strict=True)
    ]
    better = "lower" if found["best"] == "min" else "higher"
    if not lines:
        return f"Number of clusters: {found['why']}"
    stable = float(found["stability"]) if found["stability"] is not None else None
    agreement = (
        [] if stable is None else [f"Agreement between restarts: {stable:.2f} (1 means the same partition each time)."]
    )
    return "\n".join([f"Number of clusters by {found['name']} ({better} is better):", *lines, found["why"], *agreement])


def _format_number(value: float) -> str:
    """Format with four digits, or with all digits before the point: the values of a curve can differ widely.

    >>> [_format_number(value) for value in (0.6061, 12.5, 28731.4, 3e12)]
    ['0.6061', '12.5', '28,731', '3e+12']
    """
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"


def _bar_text(value: float, low: float, high: float, width: int, *, utf: bool) -> str:
    """Draw a bar: empty at the smallest value, full width at the largest."""
    if not math.isfinite(value):
        return ""
    eighths = round((value - low) / (high - low) * width * 8) if high > low else 0
    if not utf:
        return "#" * (eighths // 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def format_centers(model: ModelFacts, columns: Sequence[str], rows: Sequence[int | None] | None = None) -> str:
    """Show the centres in original units, one per line; columns that do not fit the terminal are only counted.

    `rows` are the numbers of rows nearest to each centre. Without them, a fuzzy cluster has a weight, the sum of u^m.
    """
    if model.cluster_centers is None:
        return "The model has no centres to show."
    head = ["cluster", "rows" if rows else "weight" if model.fuzziness > 1 else "size", *columns]
    sizes = _format_sizes(model, rows)
    lines = [
        [str(i), sizes[i], *(f"{value:.5g}" for value in center)] for i, center in enumerate(model.cluster_centers)
    ]
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    room, shown = shutil.get_terminal_size().columns, len(head)
    while shown > 3 and sum(widths[:shown]) + 2 * shown > room:
        shown -= 1
    cells = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in [head, *lines]]
    text = "\n".join("  ".join(row[:shown]) for row in cells)
    hidden = len(head) - shown
    return text if not hidden else f"{text}\n({hidden} more columns; fedclust export writes all)"


def _format_sizes(model: ModelFacts, rows: Sequence[int | None] | None) -> list[str]:
    """Format the size of each cluster, or "?" if it is not known."""
    if rows:
        return ["?" if size is None else f"{size:,}" for size in rows]
    if model.cluster_sizes is None:
        return ["?"] * model.cluster_count
    return [f"{size:.6g}" for size in model.cluster_sizes]


def format_notes(sentences: Sequence[str], model: ModelFacts, split: str) -> str:
    """List the notes of a run, and say whether the result is lossless."""
    lossless = model.is_lossless and not any(sentence.startswith("Not lossless") for sentence in sentences)
    same = "any other split of the columns" if split == "columns" else "the pooled rows"
    praise = (
        [f"Lossless: from the same initial centres, {same} would give exactly this result, to the last bit."]
        if lossless
        else []
    )
    return "\n".join([*praise, *sentences])


def format_traffic(sites: dict[str, dict[str, int]], max_sites: int = 12, *, arrived: bool = False) -> str:
    """Show what left each site, from the sites' own ledgers, or what `arrived` if the sites are remote."""
    width = max(map(len, sites))
    lines = [
        f"  {name.ljust(width)}  {own['messages']:>6,} messages  {own['bytes']:>12,} bytes"
        for name, own in list(sites.items())[:max_sites]
    ]
    rest = list(sites.values())[max_sites:]
    if rest:
        messages, size = (sum(own[what] for own in rest) for what in ("messages", "bytes"))
        lines.append(f"  and {count_noun(len(rest), 'more site')}: {count_noun(messages, 'message')}, {size:,} bytes")
    head = (
        "What arrived from each site (each site keeps its own record, the ledger):"
        if arrived
        else "What left each site, according to its own ledger:"
    )
    return "\n".join([head, *lines])


def _to_list(values: Array | None) -> list[Any] | None:
    return None if values is None else values.tolist()


def result_document(run: Run, model: ModelFacts, metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the result as a JSON document for programs."""
    found = run.analysis or {}
    return {
        **metrics,
        "rows": (found.get("sizes") or {}).get("rows"),
        "indices": found.get("indices"),
        "selection": found.get("selection"),
        "run": str(run.folder),
        "model": str(run.model_path),
        "centers": _to_list(model.cluster_centers),
        "sizes": _to_list(model.cluster_sizes),
        "initial_centers": _to_list(model.initial_centers),
    }
