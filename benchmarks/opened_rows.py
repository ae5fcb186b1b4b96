"""How many rows an honest secure study gives away: exact k-means against floored opening, on five real tables.

Every opened count and sum of every iteration and fit is collected. Counted are the rows that the product's own attacks
find, and those that are a difference of at most three opened cells. A search fits K = 2..6 with three restarts each.
"""

from __future__ import annotations

import json as text
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import fedclust as fc
from fedclust.app.audit.observer_record import Recording, record_federation
from fedclust.core.types import Floats
from fedclust.datasets import load
from fedclust.kernels import distances
from fedclust.privacy import attacks
from fedclust.privacy.attacks.cell_differences import opened_cells, rows_by_differences

TABLES = {"bank_full": 440, "hill_valley": 1212, "ozone_8hr": 1848, "rice": 3810, "phoneme": 4000}
SEEDS = (0, 1, 2)
OPENINGS = ("exact", "floored")
SITES = 3
SEARCHED_K, RESTARTS = range(2, 7), 3
INITIAL_CENTERS = "careful"


@dataclass(frozen=True)
class OpenedRows:
    """What one study gave away, and how good it is."""

    table: str
    study: str
    opening: str
    seed: int
    rows: int
    openings: int
    fits_iterations: int
    recovered: int  # by differences of at most three cells
    attacked: int  # by the product's attacks
    inertia: float
    seconds: float


def read_table(name: str, rows: int, seed: int) -> Floats:
    """Return complete, distinct rows of a table, so that no row is several persons' row."""
    X = np.asarray(load(name).X, np.float64)
    X = np.unique(X[np.isfinite(X).all(axis=1)], axis=0)
    X = X[:, X.std(axis=0) > 0]
    rng = np.random.default_rng(seed)
    return X[rng.permutation(len(X))[:rows]]


def fits_of(study: str, opening: str, seed: int) -> Iterator[fc.KMeans]:
    """Return the fits of one study."""
    settings: Mapping[str, Any] = {"init": INITIAL_CENTERS, "scale": "standardise", "opening": opening}
    if study != "search":
        yield fc.KMeans(int(study), random_state=seed, **settings)
        return
    for k in SEARCHED_K:
        for restart in range(RESTARTS):
            yield fc.KMeans(k, random_state=100 * seed + 10 * k + restart, **settings)


def run_study(table: str, study: str, opening: str, seed: int) -> OpenedRows:
    """Run one secure study and attack it."""
    X = read_table(table, TABLES[table], seed)
    parts = np.array_split(X, SITES)
    fed = fc.Federation.local({f"s{i}": own for i, own in enumerate(parts)}, aggregation="secure")
    recording, began = record_federation(fed), time.monotonic()
    models = [model.fit(fed) for model in fits_of(study, opening, seed)]
    seconds = time.monotonic() - began
    recovered, attacked, cells = attack_recording(recording, X)
    return OpenedRows(
        table,
        study,
        opening,
        seed,
        len(X),
        cells,
        sum(model.n_iter_ for model in models),
        recovered,
        attacked,
        min(true_inertia(model, X) for model in models),
        round(seconds, 2),
    )


def true_inertia(model: fc.KMeans, X: Floats) -> float:
    """Return the sum of squared distances to the final centres: a floored fit itself only knows that of its cells."""
    assert model.scaled_centers_ is not None
    assert model.origin_ is not None
    assert model.spread_ is not None
    rows = np.ascontiguousarray(((X - model.origin_) / model.spread_).T)
    return float(distances.nearest_centers(rows, model.scaled_centers_)[1].sum())


def attack_recording(recording: Recording, X: Floats) -> tuple[int, int, int]:
    """Return the rows recovered by differences, those that the product's attacks find, and the number of cells."""
    seen = [one for one in recording.lead_view() if len(one.parties) > 1]
    counts, sums = opened_cells(seen)
    counts, sums = np.append(counts, len(X)), np.concatenate([sums, X.sum(axis=0)[None]])  # all rows are one cell
    recovered = rows_by_differences(counts, sums, X)
    found = attacks.score(attacks.attack_by_differencing(seen), {"all": X})
    return int(recovered.sum()), found.exact, len(counts)


def measure(tables: Mapping[str, int], seeds: tuple[int, ...], studies: tuple[str, ...]) -> list[OpenedRows]:
    """Run all studies."""
    return [
        run_study(table, study, opening, seed)
        for table in tables
        for study in studies
        for opening in OPENINGS
        for seed in seeds
    ]


def main(*, json: bool = False) -> int:
    """Measure and print one line for each table, study and opening: the range over the seeds."""
    results = measure(TABLES, SEEDS, ("5", "10", "search"))
    if json:
        print(text.dumps([asdict(one) for one in results]))
        return 0
    print("table, rows | study | opening | cells | iterations | rows recovered | by the product | inertia")
    for key in dict.fromkeys((one.table, one.study, one.opening) for one in results):
        own = [one for one in results if (one.table, one.study, one.opening) == key]
        exact = [one for one in results if (one.table, one.study, one.opening) == (*key[:2], "exact")]
        ratios = [a.inertia / b.inertia for a, b in zip(own, exact, strict=True)]
        print(
            f"{key[0]}, {own[0].rows} | {key[1]} | {key[2]} | {_span(own, 'openings')} | "
            f"{_span(own, 'fits_iterations')} | {_span(own, 'recovered')} | {_span(own, 'attacked')} | "
            f"{np.median(ratios):.3f} (worst {max(ratios):.3f})"
        )
    return 0


def _span(results: list[OpenedRows], name: str) -> str:
    values = [getattr(one, name) for one in results]
    return f"{min(values)}-{max(values)}"
