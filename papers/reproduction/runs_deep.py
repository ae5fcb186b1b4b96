"""Paper 4's runs come from the file of `papers.experiments.fedcref`; a small run shows each iteration."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fedclust as fc
from papers.reproduction.store import part

FILE = Path(__file__).parents[1] / "experiments" / "fedcref.jsonl"
HOW = (
    "made by python -m papers.experiments.fedcref (torch; minutes on a GPU, many hours on a CPU) and part of the "
    "project's source; run from a checkout"
)
SITES, ROWS = 8, 25  # of the small runs


@cache
def recorded() -> list[dict[str, Any]] | None:
    """All runs of the experiment, a line each; None if they are not here."""
    if not FILE.is_file():
        return None
    return sorted(map(json.loads, FILE.read_text("utf-8").splitlines()), key=lambda own: str(own["name"]))


def chosen(**facts: Any) -> list[dict[str, Any]]:
    """Recorded runs with these facts, in the order of their seeds; of central runs the name begins so."""
    central = facts.pop("central", False)
    some = [
        own
        for own in recorded() or []
        if own["name"].startswith("central/") == central and all(own.get(key) == value for key, value in facts.items())
    ]
    return sorted(some, key=lambda own: int(own["seed"]))


@part(
    "deep/course",
    paper="paper4",
    methods=("fedcref", "draws"),
)
def course(rule: str, seed: int, sites: int = SITES, overlap: float = 0.0) -> list[dict[str, Any]]:
    """Sites with a few of the ten digits of scikit-learn each, dirt .3: what each iteration finds."""
    from sklearn.datasets import load_digits

    from papers.deep_sites import populate

    digits = load_digits()
    pop = populate(digits.target, sites, classes=(2, 3), per_class=ROWS, overlap=overlap, dirt=0.3, seed=seed)
    fed = fc.Federation.local({site: digits.data[rows] for site, rows in pop.rows.items()})
    counts = {site: int(own.max()) + 1 for site, own in pop.start.items()}
    model = fc.FedCRef(
        counts,
        init=pop.start,
        association=rule,
        bounds=(0, 16),
        rate=3e-3,
        rounds=4,
        max_iterations=4,
        closing=0,
        random_state=seed,
    ).fit(fed)
    first = {"round": 0, "communities": 0, "isolated": sum(counts.values()), "active": sites}
    return [first, *({key: _number(value) for key, value in own.items()} for own in model.history_)]


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, (float, np.floating)) else value
