"""Starts and fits over tables with few distinct rows: they end, and are the same for every spread of the rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fedclust as fc
from fedclust.core.errors import FedclustError
from fedclust.core.types import Floats

Table = Callable[[np.random.Generator, int], Floats]

TABLES: dict[str, Table] = {
    "one category of four levels": lambda rng, rows: np.eye(4)[rng.integers(4, size=rows)],
    "two-valued columns": lambda rng, rows: rng.integers(0, 2, (rows, 3)).astype(float),
    "scores in one column": lambda rng, rows: rng.integers(0, 11, (rows, 1)).astype(float),
    "one column": lambda rng, rows: rng.normal(size=(rows, 1)),
    "few distinct rows": lambda rng, rows: rng.normal(size=(8, 3))[
        rng.integers(8, size=rows) % int(rng.integers(1, 9))
    ],
    "duplicates": lambda rng, rows: np.repeat(rng.normal(size=(rows // 4 + 1, 2)), 4, axis=0),
    "a constant column": lambda rng, rows: np.c_[rng.normal(size=rows), np.full(rows, 7.0), rng.integers(3, size=rows)],
    "equal rows and a few far ones": lambda rng, rows: np.r_[
        np.zeros((rows, 2)), 1e6 * rng.normal(size=(int(rng.integers(1, 5)), 2))
    ],
    "profiles": lambda rng, rows: (
        (rng.random((rows, 8)) < rng.choice([0.1, 0.9], (4, 8))[rng.integers(4, size=rows)]) * 1.0
    ),
}


def _fit(parts: list[Floats], opening: str, cell_floor: int, **settings: object) -> dict[str, object]:
    """The result of a fit, or the kind of error it ends with."""
    fed = fc.Federation.local({f"site {i}": own for i, own in enumerate(parts)})
    fed.cell_floor = cell_floor
    try:
        model = fc.KMeans(opening=opening, max_iter=4, **settings).fit(fed)  # type: ignore[arg-type]
    except FedclustError as error:
        return {"error": type(error).__name__}
    return {
        "centers": model.cluster_centers_.tobytes(),
        "sizes": np.asarray(model.cluster_sizes_).tolist(),
        "inertia": model.inertia_,
    }


@pytest.mark.parametrize("opening", ["exact", "floored"])
@pytest.mark.parametrize("kind", TABLES)
def test_a_fit_of_few_distinct_rows_is_the_same_for_every_spread(kind: str, opening: str) -> None:
    for seed in range(4):
        rng = np.random.default_rng([seed, len(kind)])
        X = TABLES[kind](rng, int(rng.choice([3, 20, 150, 400])))
        missing = "refuse" if seed % 2 else "drop"
        if missing == "drop":
            X = np.where(rng.random(X.shape) < 0.05, np.nan, X)
        floor = int(rng.integers(1, 21))
        settings = {"n_clusters": int(rng.integers(1, 13)), "floor": floor, "missing": missing, "random_state": seed}
        cell_floor = int(rng.choice([1, floor]))
        cuts = np.sort(rng.integers(0, len(X) + 1, int(rng.integers(1, 5))))
        parts = [own for own in np.split(rng.permutation(X), cuts) if len(own)]
        assert _fit(parts, opening, cell_floor, **settings) == _fit([X], opening, cell_floor, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("opening", ["exact", "floored"])
@pytest.mark.parametrize("kind", TABLES)
def test_many_tables_of_few_distinct_rows_can_be_fitted(kind: str, opening: str) -> None:
    for seed in range(25):
        rng = np.random.default_rng([seed, 1, len(kind)])
        X = TABLES[kind](rng, int(rng.integers(3, 800)))
        found = _fit(
            [X], opening, int(rng.integers(1, 21)), n_clusters=int(rng.integers(1, 13)), floor=int(rng.integers(1, 21))
        )
        assert "error" not in found or len(X) < 13
