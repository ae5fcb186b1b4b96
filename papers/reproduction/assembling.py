"""The assembled document compares found and printed cells, lists claims, and compares our best with theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from papers.reproduction.judging import as_good, half_width, judged
from papers.reproduction.published import Printed, Table, papers, table
from papers.reproduction.store import plain

RULE = (
    "A printed number agrees if it differs from our mean by at most two units of its last digit (a count must be "
    "equal), or if it lies inside the 95% interval of our repeats. In 19 cases out of 20, this interval contains the "
    "mean of as many new repeats as the paper has."
)
UNEXPLAINED = "not explained yet"
APART = {"paper3": "Optdigits"}  # rows of a paper that are also counted separately
FEWER = "computed with --quick, with fewer repeats and sizes than in the paper; run it in full before judging the paper"


def assembled(documents: Sequence[Mapping[str, Any]], asked: Sequence[str]) -> dict[str, Any]:
    """All findings as one reproducible document, which also lists the requested experiments that are missing."""
    done = [_experiment(document, table(document["name"])) for document in documents]
    absent = [name for name in asked if name not in {entry["name"] for entry in done}]
    whole = {
        "rule": RULE,
        "papers": _agreement(done),
        "where we lose": _losses(done),
        "not computed": absent,
        "experiments": done,
    }
    return dict(plain(whole))


def _experiment(document: Mapping[str, Any], printed: Table) -> dict[str, Any]:
    unknown = FEWER if document["size"] == "quick" else UNEXPLAINED
    cells = [_cell(cell, document["cells"].get(at), printed.repeats, unknown) for at, cell in printed.cells.items()]
    claims = [_claim(key, document["claims"].get(key), printed, unknown) for key in printed.claims]
    rest = {key: document[key] for key in ("size", "figures", "more", "notes", "absent")}
    return {
        "name": printed.name,
        "title": printed.title,
        "place": printed.place,
        "held because": printed.held,
        **rest,
        "cells": cells,
        "claims": claims,
        "ours": [_ours(own, printed) for own in document["ours"]],
    }


def taken_apart(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The findings of an assembled experiment, the inverse of `assembled`."""
    cells = {
        cell["at"]: {key: cell[key] for key in ("mean", "sd", "repeats")} for cell in entry["cells"] if "mean" in cell
    }
    claims = {own["key"]: {key: own[key] for key in ("holds", "measured")} for own in entry["claims"]}
    ours = [{key: own[key] for key in ("row", "method", "value", "repeats", "against")} for own in entry["ours"]]
    rest = {key: entry[key] for key in ("name", "size", "figures", "more", "notes", "absent")}
    return {**rest, "cells": cells, "claims": claims, "ours": ours}


def _claim(key: str, found: Mapping[str, Any] | None, printed: Table, unknown: str) -> dict[str, Any]:
    own = {"key": key, "text": printed.claims[key], **(found or {"holds": None, "measured": "not run"})}
    if own["holds"] is False:
        own["why"] = printed.claims_explained.get(key, unknown)
    return own


def _cell(cell: Printed, found: Mapping[str, Any] | None, repeats: int, unknown: str) -> dict[str, Any]:
    own: dict[str, Any] = {"at": cell.place, "printed": cell.text, "held": cell.held}
    if cell.mark:
        own |= {"mark": cell.mark, "reason": cell.reason}
    if not found:
        return own
    half = half_width(found["sd"], found["repeats"], repeats)
    own |= {**found, "half": half}
    if cell.text is not None:
        by = judged(cell, found["mean"], half)
        own |= {"difference": found["mean"] - cell.value, "agrees": bool(by), "by": by}
        if not by:
            own["why"] = cell.reason or cell.explained or unknown
    return own


def _ours(own: Mapping[str, Any], printed: Table) -> dict[str, Any]:
    """Our value and the best printed one; nothing if all printed ones are lost."""
    rivals = [printed.cells[at] for at in own["against"] if printed.cells[at].text is not None]
    if not rivals:
        return {**own, "best printed": None, "holds": None}
    high = rivals[0].better == "high"
    best = (max if high else min)(rivals, key=lambda cell: cell.value)
    return {**own, "best printed": best.text, "at": best.place, "mark": best.mark, "holds": as_good(best, own["value"])}


def _agreement(done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found = {}
    for name, paper in papers().items():
        own = [entry for entry in done if entry["name"].startswith(f"{name}-")]
        cells = [cell for entry in own for cell in entry["cells"]]
        held = [cell for cell in cells if cell["held"]]
        measured = [cell for cell in held if "agrees" in cell]
        others = [cell for cell in cells if not cell["held"] and "agrees" in cell]
        claims = [claim for entry in own for claim in entry["claims"] if claim["holds"] is not None]
        found[name] = {
            "title": paper.title,
            "cells": len(cells),
            "held": len(held),
            "measured": len(measured),
            "agree": sum(cell["agrees"] for cell in measured),
            "agree by digits": sum(cell["by"] == "digits" for cell in measured),
            "not held, measured": len(others),
            "not held, agree": sum(cell["agrees"] for cell in others),
            "claims": len(claims),
            "claims that hold": sum(claim["holds"] for claim in claims),
        }
    return found


def _losses(done: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"experiment": entry["name"], **{key: own[key] for key in ("row", "method", "value", "best printed", "mark")}}
        for entry in done
        for own in entry["ours"]
        if own["holds"] is False
    ]


def _of(whole: Mapping[str, Any], paper: str) -> list[Mapping[str, Any]]:
    """The cells of a paper."""
    return [cell for entry in whole["experiments"] if entry["name"].startswith(f"{paper}-") for cell in entry["cells"]]


def summary(whole: Mapping[str, Any]) -> str:
    """The agreement of each paper, for a terminal."""
    lines = ["", "agreement on the cells that we expect to reproduce, and on claims made in words:"]
    for name, own in whole["papers"].items():
        part = f"{own['agree'] / own['measured']:.1%}" if own["measured"] else "-"
        lines.append(
            f"  {name}: {own['agree']} of {own['measured']} agree ({part}); {own['held']} of {own['cells']} "
            f"printed cells are expected to agree; claims that hold: {own['claims that hold']} of {own['claims']}"
        )
        if name in APART:
            some = [cell for cell in _of(whole, name) if cell["held"] and f"| {APART[name]} |" in cell["at"]]
            right = sum(cell.get("agrees", False) for cell in some)
            lines += [f"    of these {APART[name]}: {right} of {len(some)} agree"] if some else []
    if whole["not computed"]:
        lines.append(f"not computed: {', '.join(whole['not computed'])}")
    losses = whole["where we lose"]
    lines.append(f"where we lose (rows in which the paper is better): {len(losses)}")
    lines += [
        f"  {own['experiment']}, {own['row']}: {own['value']:.4g}, printed {own['best printed']}" for own in losses
    ]
    open_ = [
        f"  {entry['name']}: {cell['at']}"
        for entry in whole["experiments"]
        for cell in entry["cells"]
        if cell["held"] and cell.get("why") == UNEXPLAINED
    ] + [
        f"  {entry['name']}: {claim['text']}"
        for entry in whole["experiments"]
        for claim in entry["claims"]
        if claim.get("why") == UNEXPLAINED
    ]
    if open_:
        lines += ["disagreements without a reason:", *open_]
    return "\n".join(lines)
