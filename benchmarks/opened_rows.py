"""How many rows an honest secure study gives away, on seven real tables: all sums of whole studies, by all attacks.

Every opened count and sum of a study is collected: scaling, the choice of K, initial centres, the fit and the
description. Counted are the rows that the product's attacks recover, differences of two and three sums and products
with columns in which one row alone differs included. Two tables hold categories, one column for each level. A
study of k-means opens all sums ("exact") or sums above a floor of rows ("floored"). Where K is chosen from 2 to 6, an
exact study compares an index of several fits for each K, and a floored study chooses by evidence.
"""

from __future__ import annotations

import argparse
import json as text
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedclust as fc
from fedclust.app.analysis import describe
from fedclust.app.audit.recovered_rows import OpenedSums
from fedclust.app.audit.shown_rows import listen_to_sums
from fedclust.core.types import Floats
from fedclust.datasets import load
from fedclust.federation.federation import Federation
from fedclust.kernels import distances
from fedclust.models.base import FederatedEstimator

TABLES = {
    "bank_full": 440,
    "hill_valley": 1212,
    "ozone_8hr": 1848,
    "rice": 3810,
    "phoneme": 4000,
    "bank_categories": 1500,
    "heart_disease_4sites": 299,
}
BANK_NUMBERS = (0, 1, 3)  # age, balance and duration, next to all nine categories
SEEDS = (0, 1, 2)
SITES = 3
CELL_FLOOR = 10  # of the cells of initial centres, as in a study
SEARCHED_K = range(2, 7)
STUDIES = (
    ("5", "exact"),
    ("5", "floored"),
    ("10", "exact"),
    ("10", "floored"),
    ("search", "exact"),
    ("search", "floored"),
    ("5", "fuzzy-c-means"),
    ("5", "gaussian-mixture"),
)


@dataclass(frozen=True)
class OpenedRows:
    """What one study gave away, and how good it is."""

    table: str
    study: str
    opening: str
    seed: int
    rows: int
    clusters: int
    cells: int
    recovered: int
    inertia: float
    seconds: float


def read_table(name: str, rows: int, seed: int) -> Floats:
    """Return complete, distinct rows of a table, so that no row is several persons' row."""
    X = _bank_with_categories() if name == "bank_categories" else np.asarray(load(name).X, np.float64)
    X = np.unique(X[np.isfinite(X).all(axis=1)], axis=0)
    X = X[:, X.std(axis=0) > 0]
    rng = np.random.default_rng(seed)
    return X[rng.permutation(len(X))[:rows]]


def _bank_with_categories() -> Floats:
    """Return numbers of the customers of a bank, and one column for each level of each category."""
    with np.load(Path(os.environ["FEDCLUST_DATA"]) / "bank_full.npz", allow_pickle=False) as file:
        numbers, names = file["X"].astype(np.float64)[:, BANK_NUMBERS], file["C"]
    levels = [(own[:, None] == np.unique(own)).astype(np.float64) for own in names.T]
    return np.concatenate([numbers, *levels], axis=1)


def estimator_of(study: str, opening: str, seed: int) -> FederatedEstimator:
    """Return the estimator of one study; where K is chosen, the number of clusters does not matter."""
    settings: Mapping[str, Any] = {"scale": "standardise", "random_state": seed}
    k = 2 if study == "search" else int(study)
    if opening == "fuzzy-c-means":
        return fc.FuzzyCMeans(k, **settings)
    if opening == "gaussian-mixture":
        return fc.GaussianMixture(k, **settings)
    return fc.KMeans(k, opening=opening, **settings)


def open_federation(X: Floats) -> Federation:
    """Return a secure federation of a table, with the floor of a study."""
    parts = np.array_split(X, SITES)
    fed = fc.Federation.local({f"s{i}": own for i, own in enumerate(parts)}, aggregation="secure")
    fed.cell_floor = CELL_FLOOR
    return fed


def run_study(table: str, study: str, opening: str, seed: int) -> OpenedRows:
    """Run one secure study and attack it."""
    X = read_table(table, TABLES[table], seed)
    fed, began = open_federation(X), time.monotonic()
    listened = listen_to_sums(fed)
    model, selection = estimator_of(study, opening, seed), None
    if study == "search":
        selection = fc.select_k(model, fed, SEARCHED_K, criterion="index" if opening == "exact" else None)
        model = selection.model
    else:
        model.fit(fed)
    describe(model, fed, selection)
    seconds = time.monotonic() - began
    opened: OpenedSums = listened.opened
    return OpenedRows(
        table,
        study,
        opening,
        seed,
        len(X),
        model.cluster_count,
        opened.count(X),
        int(opened.recovered_rows(X).sum()),
        true_inertia(model, X),
        round(seconds, 2),
    )


def true_inertia(model: Any, X: Floats) -> float:
    """Return the sum of squared distances to the final centres: a floored fit itself only knows that of its cells."""
    rows = np.ascontiguousarray(((X - model.origin_) / model.spread_).T)
    return float(distances.nearest_centers(rows, model.scaled_centers_)[1].sum())


def measure(
    tables: Mapping[str, int], seeds: tuple[int, ...], studies: tuple[tuple[str, str], ...]
) -> list[OpenedRows]:
    """Run all studies."""
    return [run_study(table, study, opening, seed) for table in tables for study, opening in studies for seed in seeds]


def main(arguments: Sequence[str] = (), *, json: bool = False) -> int:
    """Measure and print one line for each table and study: the range over the seeds."""
    words = argparse.ArgumentParser(prog="python -m benchmarks opened_rows", description=main.__doc__)
    words.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    words.add_argument("--studies", nargs="+", default=[k for k, _ in STUDIES], help="numbers of clusters, or search")
    asked = words.parse_args(arguments)
    tables = {name: TABLES[name] for name in asked.tables}
    results = measure(tables, SEEDS, tuple(study for study in STUDIES if study[0] in asked.studies))
    if json:
        print(text.dumps([asdict(one) for one in results]))
        return 0
    print("table, rows | k | opening | clusters | cells | rows recovered | inertia, of exact | seconds")
    for key in dict.fromkeys((one.table, one.study, one.opening) for one in results):
        own = [one for one in results if (one.table, one.study, one.opening) == key]
        exact = [one for one in results if (one.table, one.study, one.opening) == (*key[:2], "exact")]
        same = [a.inertia / b.inertia for a, b in zip(own, exact, strict=True) if a.clusters == b.clusters]
        ratios = f"{np.median(same):.3f} (worst {max(same):.3f})" if same else "-"
        print(
            f"{key[0]}, {own[0].rows} | {key[1]} | {key[2]} | {_span(own, 'clusters')} | {_span(own, 'cells')} | "
            f"{_span(own, 'recovered')} | {ratios} | {max(one.seconds for one in own)}"
        )
    return 0


def _span(results: list[OpenedRows], name: str) -> str:
    values = [getattr(one, name) for one in results]
    return f"{min(values)}-{max(values)}"
