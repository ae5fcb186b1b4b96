"""Paper 4's runs: those of `experiments/fedcref.py`, read from its file, and a small one for the course of a run."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fedclust as fc
from papers.reproduction.store import PACKAGE, part

FILE = Path("experiments") / "fedcref.jsonl"
HOW = (
    "made by python experiments/fedcref.py (torch; minutes on a GPU, many hours on a CPU) and part of the project's "
    "source; run from a checkout"
)
SITES, ROWS = 8, 25  # of the small runs


@cache
def recorded() -> list[dict[str, Any]] | None:
    """All runs of the experiment, a line each; None outside a checkout."""
    for folder in (Path.cwd(), PACKAGE.parents[1]):
        if (folder / FILE).is_file():
            lines = (folder / FILE).read_text("utf-8").splitlines()
            return sorted((json.loads(line) for line in lines), key=lambda own: str(own["name"]))
    return None


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
    "algorithms/fedcref*.py",
    "algorithms/autoencoder*.py",
    "kernels/*coder*.py",
    "kernels/_coder*.[ch]",
    "datasets/deep.py",
)
def course(rule: str, seed: int, sites: int = SITES, overlap: float = 0.0) -> list[dict[str, Any]]:
    """Sites with a few of the ten digits of scikit-learn each, dirt .3: what each iteration finds."""
    from sklearn.datasets import load_digits

    from fedclust.datasets.deep import populate

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
