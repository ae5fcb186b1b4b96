"""Lists what left each site, according to its own ledger, with the declared reason for every field."""

from __future__ import annotations

from typing import Any

from fedclust.core.effects import HANDLERS
from fedclust.federation.federation import Federation


def list_what_left(fed: Federation) -> dict[str, Any]:
    """List by question what left each site, from its own ledger; an answer sent again after a crash counts once."""
    sites = fed.local_sites
    if not sites:
        return {"absent": "Each site records what it sends in its own ledger."}
    own = {p: {e.step: e for e in d.gate.ledger.entries if e.run == fed.run_id} for p, d in sites.items()}
    questions: dict[str, dict[str, Any]] = {}
    for party, entries in own.items():
        for entry in entries.values():
            question = questions.setdefault(entry.handler, {"steps": set(), "bytes": dict.fromkeys(own, 0)})
            question["steps"].add(entry.step)
            question["bytes"][party] += entry.size
    return {
        "sites": {
            party: {
                "messages": len(entries),
                "bytes": sum(entry.size for entry in entries.values()),
                "policy": sites[party].gate.policy.name,
                "min_rows": sites[party].gate.policy.min_rows,
            }
            for party, entries in own.items()
        },
        "questions": [
            {"name": name, "times": len(q["steps"]), "bytes": q["bytes"], "fields": _field_reasons(name)}
            for name, q in sorted(questions.items(), key=lambda item: min(item[1]["steps"]))
        ],
    }


def _field_reasons(handler: str) -> list[dict[str, str]]:
    schema = HANDLERS[handler].schema
    return [{"name": name, "leaves": d.combine, "why": d.why} for name, d in schema.items()]
