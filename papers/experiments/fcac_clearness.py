"""This experiment counts how often SummaryClustering notes unclear clusters, for rows with and without clusters.

python -m papers.experiments.fcac_clearness [--seeds 5]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

import fedclust as fc
from fedclust.algorithms.summary_clustering import clearness
from fedclust.core.types import Floats

SIZES = ((300, 3), (1000, 1), (2000, 3), (2000, 20), (10_000, 20))  # rows and sites
COLUMNS = (2, 5, 20)


def clusters(along: int, apart: float, share: float = 0.5) -> Callable[[np.random.Generator, int, int], Floats]:
    """Normal clusters, two along each of the first columns, with means a given number of standard deviations apart."""

    def drawn(rng: np.random.Generator, rows: int, columns: int) -> Floats:
        X = rng.normal(size=(rows, columns))
        X[:, :along] += apart * (rng.random((rows, along)) < share)
        return X

    return drawn


KINDS: dict[str, Callable[[np.random.Generator, int, int], Floats]] = {
    "normal": lambda rng, rows, columns: rng.normal(size=(rows, columns)),
    "normal, correlated": lambda rng, rows, columns: (
        rng.normal(size=(rows, columns)) @ rng.normal(size=(columns, columns))
    ),
    "uniform": lambda rng, rows, columns: rng.uniform(size=(rows, columns)),
    "exponential": lambda rng, rows, columns: rng.exponential(size=(rows, columns)),
    "two clusters, 3 apart": clusters(1, 3.0),
    "two clusters, 4 apart": clusters(1, 4.0),
    "two clusters, 4 apart, 9:1": clusters(1, 4.0, 0.1),
    "two clusters, 6 apart": clusters(1, 6.0),
    "four clusters, 4 apart": clusters(2, 4.0),
    "four clusters, 6 apart": clusters(2, 6.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    print("| rows are |", " | ".join(f"{rows:,} rows, {sites} site{'s' * (sites > 1)}" for rows, sites in SIZES), "|")
    print("|---" * (len(SIZES) + 1) + "|")
    for kind, drawn in KINDS.items():
        cells = []
        for rows, sites in SIZES:
            said, found = [], []
            for columns in COLUMNS:
                for seed in range(seeds):
                    X = drawn(np.random.default_rng((seed, rows, sites, columns)), rows, columns)
                    fed = fc.Federation.local({f"site-{i}": X[i::sites] for i in range(sites)})
                    model = fc.SummaryClustering(random_state=seed).fit(fed)
                    said.append(any(note.startswith(clearness.UNCLEAR[:30]) for note in model.notes_))
                    found.append(model.n_clusters_)
            cells.append(f"{np.mean(said):.0%}, {np.median(found):.0f}")
        print(f"| {kind} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
