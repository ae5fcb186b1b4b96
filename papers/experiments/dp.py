# ruff: noqa: S603  (a script, not part of the package)
"""This experiment measures clusters under differential privacy: ARI by epsilon, rows, columns, sizes and real sets.

    python -m papers.experiments.dp --out FILE [--only BED ...] [--diffprivlib PYTHON] [--seeds N] [--first SEED]

Each result is a line of FILE and is not computed again. `--diffprivlib` names a Python interpreter that has
diffprivlib, to compare its KMeans with ours: pure epsilon, the same public bounds. Generated sets are a formula and a
seed; real ones are read by name (set FEDCLUST_DATA). `--table` prints the means of FILE.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

import fedclust as fc

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
SD = 0.5
APART = 6.0  # least distance between centres, in standard deviations
REAL = {
    "pendigits": (0.0, 100.0),
    "optdigits": (0.0, 16.0),
}  # the range of the tablet and the scanner, not that of the data
PEER = """
import json, sys, warnings
import numpy as np
from diffprivlib.models import KMeans
warnings.simplefilter("ignore")
X, job = np.load(sys.argv[1]), json.loads(sys.argv[2])
low, high = (np.full(X.shape[1], b) for b in job["bounds"])
out = {}
for epsilon in job["epsilons"]:
    model = KMeans(n_clusters=job["k"], epsilon=epsilon, bounds=(low, high), random_state=job["seed"])
    out[str(epsilon)] = model.fit(X).predict(X).tolist()
print(json.dumps(out))
"""


@dataclass(frozen=True)
class Bed:
    """One kind of rows."""

    name: str
    rows: int
    columns: int
    k: int
    sizes: tuple[float, ...] = ()
    seeds: int = 10
    sites: int = 1


BEDS = [
    Bed("N 1,000", 1000, 17, 3),
    Bed("N 4,000", 4000, 17, 3),
    Bed("k 8", 4000, 17, 8),
    Bed("unequal", 4000, 17, 3, (0.8, 0.15, 0.05)),
    Bed("F 2", 4000, 2, 3),
    Bed("F 50", 4000, 50, 3, seeds=5),
    Bed("F 100", 4000, 100, 3, seeds=5),
    Bed("five sites, secure", 4000, 17, 3, seeds=3, sites=5),
    Bed("pendigits", 10992, 16, 10, seeds=3),
    Bed("optdigits", 5620, 64, 10, seeds=3),
    Bed("N 100,000", 100_000, 17, 3, seeds=2),
    Bed("N 100,000, F 100", 100_000, 100, 3, seeds=1),
    Bed("N 1,000,000", 1_000_000, 17, 3, seeds=1),
]


def drawn(bed: Bed, seed: int) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """Rows, classes and public bounds of Gaussian clusters around centres that are uniform in [-1, 1]."""
    if bed.name in REAL:
        found = fc.datasets.load(bed.name)
        return np.asarray(found.X, np.float64), found.y, REAL[bed.name]
    rng = np.random.default_rng(seed)
    while True:
        centers = rng.uniform(-1, 1, (bed.k, bed.columns))
        gaps = np.linalg.norm(centers[:, None] - centers[None], axis=2)[np.triu_indices(bed.k, 1)]
        sd = min(SD, gaps.min() / APART)
        if sd >= 0.3 * SD or bed.columns <= 3:
            break
    sizes = np.array(bed.sizes or [1.0] * bed.k)
    y = rng.choice(bed.k, bed.rows, p=sizes / sizes.sum())
    edge = 1 + 3 * SD
    return np.clip(centers[y] + sd * rng.normal(size=(bed.rows, bed.columns)), -edge, edge), y, (-edge, edge)


@dataclass(frozen=True)
class Result:
    bed: str
    method: str
    epsilon: float
    seed: int
    ari: float


def results(bed: Bed, seed: int, done: set[tuple[str, str, float, int]], peer: str | None) -> Iterator[Result]:
    X, y, bounds = drawn(bed, seed)

    def due(method: str, epsilon: float) -> bool:
        return (bed.name, method, epsilon, seed) not in done

    if due("exact", 0.0):
        model = fc.KMeans(bed.k, bounds=bounds, init=_spread(X, bed.k, seed)).fit(X)
        yield Result(bed.name, "exact", 0.0, seed, adjusted_rand_score(y, model.labels_))
    mode = "secure" if bed.sites > 2 else "plain"
    for variant in ("projected", "lloyd"):
        for epsilon in EPSILONS:
            if due(variant, epsilon):
                parts = {f"s{i}": part for i, part in enumerate(np.array_split(X, bed.sites))}
                fed = fc.Federation.local(parts, aggregation=mode)
                model = fc.PrivateKMeans(bed.k, epsilon=epsilon, bounds=bounds, variant=variant, random_state=seed)
                yield Result(bed.name, variant, epsilon, seed, adjusted_rand_score(y, model.fit(fed).labels_))
    if peer and any(due("diffprivlib", epsilon) for epsilon in EPSILONS):
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder) / "rows.npy", X)
            job = json.dumps({"bounds": bounds, "epsilons": EPSILONS, "k": bed.k, "seed": seed})
            told = subprocess.run(
                [peer, "-c", PEER, str(Path(folder) / "rows.npy"), job], capture_output=True, text=True, check=True
            )
        for epsilon, labels in json.loads(told.stdout.splitlines()[-1]).items():
            yield Result(bed.name, "diffprivlib", float(epsilon), seed, adjusted_rand_score(y, labels))


def _spread(X: np.ndarray, k: int, seed: int) -> np.ndarray:
    """The initial centres of the exact run: k-means++, the best of five by the objective."""
    rng, best = np.random.default_rng(seed), None
    sample = X[rng.choice(len(X), min(len(X), 4000), replace=False)]
    for _ in range(5):
        chosen = [sample[rng.integers(len(sample))]]
        while len(chosen) < k:
            far = ((sample[:, None] - np.array(chosen)) ** 2).sum(axis=2).min(axis=1)
            chosen.append(sample[rng.choice(len(sample), p=far / far.sum())])
        model = fc.KMeans(k, init=np.array(chosen), max_iter=20).fit(sample)
        if best is None or model.final_objective < best[0]:
            best = model.final_objective, model.cluster_centers_
    return best[1]


def table(path: Path) -> None:
    """Means over seeds, one line for each bed and method."""
    found: dict[tuple[str, str], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in path.read_text().splitlines():
        one = Result(**json.loads(line))
        found[one.bed, one.method][one.epsilon].append(one.ari)
    print("| rows | method | " + " | ".join(f"{e:g}" for e in EPSILONS) + " | seeds |")
    print("|---|---|" + "---|" * (len(EPSILONS) + 1))
    for bed in BEDS:
        for method in ("exact", "projected", "lloyd", "diffprivlib"):
            if scores := found.get((bed.name, method)):
                cells = [f"{np.mean(scores.get(e) or scores.get(0.0) or [np.nan]):.3f}" for e in EPSILONS]
                print(f"| {bed.name} | {method} | {' | '.join(cells)} | {max(map(len, scores.values()))} |")


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--only", nargs="*")
    asked.add_argument("--seeds", type=int, help="number of seeds, instead of each bed's default")
    asked.add_argument("--first", type=int, default=0, help="the first seed")
    asked.add_argument("--diffprivlib")
    asked.add_argument("--table", action="store_true")
    chosen = asked.parse_args()
    if chosen.table:
        table(chosen.out)
        return 0
    lines = chosen.out.read_text().splitlines() if chosen.out.exists() else []
    done = {(r["bed"], r["method"], r["epsilon"], r["seed"]) for r in map(json.loads, lines)}
    with chosen.out.open("a") as file:
        for bed in BEDS:
            if chosen.only and bed.name not in chosen.only:
                continue
            for seed in range(chosen.first, chosen.first + (chosen.seeds or bed.seeds)):
                for result in results(bed, seed, done, chosen.diffprivlib):
                    file.write(json.dumps(asdict(result)) + "\n")
                    file.flush()
            print(bed.name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
