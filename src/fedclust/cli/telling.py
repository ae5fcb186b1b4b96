"""A result in plain words: clusters in the units of the data, what must be admitted, and what left each site."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from fedclust.runs import Run


def summary(run: Run, model: Any, metrics: dict[str, Any]) -> str:
    """What a finished run found, for a reader at a terminal."""
    rounds = "1 round" if metrics["rounds"] == 1 else f"{metrics['rounds']} rounds"
    head = f"{metrics['name']}: {metrics['k']} clusters by {metrics['method']} in {rounds} ({metrics['seconds']:.1f} s)"
    following = f"""Written to {run.folder}. Next:
  fedclust export {run.folder} --to csv
  fedclust site assign {run.model} --data FILE --out labels.csv"""
    parts = [
        f"{head}, objective {metrics['objective']:.6g}",
        centers(model, metrics["columns"]),
        notes(metrics["notes"]),
        traffic(metrics["sites"]),
        following,
    ]
    return "\n\n".join(parts)


def centers(model: Any, columns: Sequence[str]) -> str:
    """Centres in original units, one line each; columns beyond the terminal's width are only counted."""
    # Of a fuzzy cluster the sum of u^m is known, which is no number of rows.
    head = ["cluster", "weight" if hasattr(model, "m") else "size", *columns]
    lines = [
        [str(i), f"{size:.6g}", *(f"{value:.5g}" for value in center)]
        for i, (size, center) in enumerate(zip(model.cluster_sizes_, model.cluster_centers_, strict=True))
    ]
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    room, shown = shutil.get_terminal_size().columns, len(head)
    while shown > 3 and sum(widths[:shown]) + 2 * shown > room:
        shown -= 1
    cells = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in [head, *lines]]
    text = "\n".join("  ".join(row[:shown]) for row in cells)
    hidden = len(head) - shown
    return text if not hidden else f"{text}\n({hidden} more columns: fedclust export shows all)"


def notes(sentences: Sequence[str]) -> str:
    """What must be admitted; where nothing has to be, that."""
    lossless = not any(sentence.startswith("Not lossless") for sentence in sentences)
    praise = ["Lossless: from the same start, the pooled rows give the same bits."] if lossless else []
    return "\n".join([*praise, *sentences])


def traffic(sites: dict[str, dict[str, int]], most: int = 12) -> str:
    """What left each site, from the sites' own ledgers."""
    width = max(map(len, sites))
    lines = [
        f"  {name.ljust(width)}  {own['messages']:>6,} messages  {own['bytes']:>12,} bytes"
        for name, own in list(sites.items())[:most]
    ]
    rest = list(sites.values())[most:]
    if rest:
        messages, size = (sum(own[what] for own in rest) for what in ("messages", "bytes"))
        lines.append(f"  and {len(rest)} more sites: {messages:,} messages, {size:,} bytes")
    return "\n".join(["What left each site, by its own ledger:", *lines])


def document(run: Run, model: Any, metrics: dict[str, Any]) -> dict[str, Any]:
    """The same for programs."""
    return {
        **metrics,
        "run": str(run.folder),
        "model": str(run.model),
        "centers": model.cluster_centers_.tolist(),
        "sizes": model.cluster_sizes_.tolist(),
        "start_centers": start.tolist() if (start := getattr(model, "start_centers_", None)) is not None else None,
    }
