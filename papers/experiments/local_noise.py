"""This experiment measures the cost of local noise by epsilon, and tests the privacy that each mechanism promises.

    python -m papers.experiments.local_noise curve [--sets NAME ...] [--seeds 2] [--out FOLDER]
    python -m papers.experiments.local_noise promise [--runs 60000]

`curve` draws ARI against epsilon, and the 1-Wasserstein distance of noised columns to the true ones as a share of
their range (paper 3's Fig. 3), for each mechanism. Every run is a line of FOLDER/runs.jsonl and is not repeated.
`promise` gives a lower bound of each mechanism's epsilon, from many runs with and without a row.
"""

from __future__ import annotations

import argparse
import json
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import wasserstein_distance

import fedclust as fc
from fedclust.app.audit.membership_attack import empirical_epsilon
from fedclust.core.types import Array
from fedclust.privacy import row_noise

SETS = ("s_set1", "phoneme_openml", "pendigits", "optdigits")
ROWS, SITES = 3000, 10
EPSILONS = (1.0, 2.0, 5.0, 10.0, 15.0, 25.0, 50.0, 75.0)
MECHANISMS = ("window", "laplace", "paper")
METHODS: dict[str, Any] = {
    "SummaryClustering": lambda k, seed: fc.SummaryClustering(random_state=seed),  # noqa: ARG005
    "FCAC": lambda k, seed: fc.FCAC(),  # noqa: ARG005
    "k-FED": lambda k, seed: fc.KFed(k, random_state=seed),
    "MUFC": lambda k, seed: fc.MUFC(k, random_state=seed),
}


def rows_of(name: str) -> tuple[Array, Array]:
    """Rows between 0 and 1; here the range serves as bounds that are known in advance."""
    data = fc.datasets.load(name)
    some = np.sort(np.random.RandomState(1).permutation(len(data.X))[:ROWS])
    X, y = data.X[some], np.asarray(data.y)[some]
    wide = np.ptp(X, axis=0)
    return (X - X.min(axis=0)) / np.where(wide > 0, wide, 1.0), y


def one(name: str, mechanism: str, epsilon: float, seed: int) -> dict[str, Any]:
    X, y = rows_of(name)
    where = fc.datasets.split(np.arange(len(X))[:, None], y, SITES, "iid", seed=seed)
    parts = {party: X[own[:, 0].astype(int)] for party, own in where.items()}
    if mechanism == "none":
        sites: dict[str, Any] = dict(parts)
    else:
        sites = dict(fc.LocalNoise(epsilon, bounds=(0, 1), mechanism=mechanism).apply_to(parts))
    fed = fc.Federation.local(sites)
    seen = np.concatenate([b.T for h in fed.site_data.values() for b in h.source.blocks()])
    apart = [wasserstein_distance(a, b) for a, b in zip(X.T, seen.T, strict=True)]
    found: dict[str, Any] = {
        "set": name,
        "mechanism": mechanism,
        "epsilon": epsilon,
        "seed": seed,
        "columns": X.shape[1],
        "wasserstein": float(np.mean(apart)),
    }
    for method, made in METHODS.items():
        try:
            labels = made(len(np.unique(y)), seed).fit(fed).predict(X)
            found[method] = float(fc.agreement.ari(labels, y))
        except fc.FedclustError:
            found[method] = 0.0
    return found


def curve(chosen: argparse.Namespace) -> None:
    folder = Path(chosen.out)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "runs.jsonl"
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(r["set"], r["mechanism"], r["epsilon"], r["seed"]) for r in runs}
    wanted = [
        *product(chosen.sets, ["none"], [0.0], range(chosen.seeds)),
        *product(chosen.sets, MECHANISMS, EPSILONS, range(chosen.seeds)),
    ]
    for key in sorted(wanted, key=lambda key: key[3]):
        if key not in done:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                runs.append(one(*key))
            with path.open("a") as file:
                file.write(json.dumps(runs[-1]) + "\n")
    for name, mechanism in product(chosen.sets, ("none", *MECHANISMS)):
        for epsilon in (0.0,) if mechanism == "none" else EPSILONS:
            own = [r for r in runs if (r["set"], r["mechanism"], r["epsilon"]) == (name, mechanism, epsilon)]
            means = "  ".join(f"{m} {np.mean([r[m] for r in own]):.3f}" for m in METHODS)
            apart = np.mean([r["wasserstein"] for r in own])
            print(f"{name:15} {mechanism:8} epsilon {epsilon:4g}  {means}  W1 {apart:.3f}")
    (folder / "local-noise.svg").write_text(picture(runs, chosen.sets))


def picture(runs: list[dict[str, Any]], sets: list[str]) -> str:
    """Above the agreement of SummaryClustering by epsilon, below the distance of rows; a column for each set."""
    marks = []
    for at, name in enumerate(sets):
        columns = next(r["columns"] for r in runs if r["set"] == name)
        for row, (key, top, word) in enumerate(
            (("SummaryClustering", 1.0, "ARI of SummaryClustering"), ("wasserstein", 1.0, "1-Wasserstein"))
        ):
            left, base = 50 + 190 * at, 150 + 190 * row
            marks.append(f'<path d="M{left} {base - 120}V{base}H{left + 150}" fill="none" stroke="#444"/>')
            marks.append(f'<text x="{left}" y="{base - 128}">{name}, {columns} columns: {word}</text>')
            marks += [
                f'<text x="{left + x * 21}" y="{base + 14}" text-anchor="middle">{epsilon:g}</text>'
                for x, epsilon in enumerate(EPSILONS)
            ]
            marks += [
                f'<text x="{left - 4}" y="{base - 120 * v / top + 4}" text-anchor="end">{v:g}</text>'
                for v in (0.0, 0.5, 1.0)
            ]
            free = [r[key] for r in runs if r["set"] == name and r["mechanism"] == "none"]
            level = base - 120 * min(float(np.mean(free)), top) / top
            marks.append(f'<path d="M{left} {level:.1f}h150" stroke="#999" stroke-dasharray="3 3"/>')
            for colour, mechanism in zip(("#0b6", "#26c", "#c40"), MECHANISMS, strict=True):
                points = []
                for x, epsilon in enumerate(EPSILONS):
                    own = [
                        r[key] for r in runs if (r["set"], r["mechanism"], r["epsilon"]) == (name, mechanism, epsilon)
                    ]
                    value = min(max(float(np.mean(own)), 0.0), top)
                    points.append(f"{left + x * 21},{base - 120 * value / top:.1f}")
                marks.append(
                    f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
                )
    for x, (colour, mechanism) in enumerate(zip(("#0b6", "#26c", "#c40"), MECHANISMS, strict=True)):
        said = "paper (not private; epsilon for each column)" if mechanism == "paper" else mechanism
        marks.append(f'<text x="{50 + 150 * x}" y="378" fill="{colour}">{said}</text>')
    wide = 60 + 190 * len(sets)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} 390" font-family="sans-serif" font-size="9">'
        f'<rect width="{wide}" height="390" fill="#fff"/>{"".join(marks)}</svg>\n'
    )


def promise(chosen: argparse.Namespace) -> None:
    """Print a lower bound of epsilon from many runs, for a claimed epsilon of 1."""
    low, high = np.zeros(2), np.ones(2)
    here, there = np.array([[0.0, 0.0]]), np.array([[1.0, 1.0]])
    for name, mechanism in (("window", row_noise.add_window_noise), ("laplace", row_noise.add_laplace_noise)):
        runs = chosen.runs if name == "window" else chosen.runs // 6  # OpenDP takes its time
        found = empirical_epsilon(lambda row, m=mechanism: m(row, low, high, 1.0), here, there, runs=runs)
        print(
            f"{name:8} claimed 1, at least {found.epsilon:.2f} ({found.hits} and {found.strays} of {found.runs} runs)"
        )
    stream = np.random.RandomState(1)
    near = np.linspace(0.0, 1.0, 20)[:, None]
    far = np.concatenate([near[:-1], [[1e6]]])  # one row lies far out
    found = empirical_epsilon(
        lambda rows: row_noise.add_published_noise(rows, 1.0, stream),
        near,
        far,
        runs=chosen.runs,
        score=lambda out: float(np.median(np.abs(out[:-1]))),
    )
    print(f"{'paper':8} claimed 1, at least {found.epsilon:.2f} ({found.hits} and {found.strays} of {found.runs} runs)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    curves = verbs.add_parser("curve")
    curves.add_argument("--sets", nargs="*", default=list(SETS))
    curves.add_argument("--seeds", type=int, default=2)
    curves.add_argument("--out", default="runs/local-noise")
    curves.set_defaults(act=curve)
    promised = verbs.add_parser("promise")
    promised.add_argument("--runs", type=int, default=60_000)
    promised.set_defaults(act=promise)
    chosen = parser.parse_args()
    chosen.act(chosen)


if __name__ == "__main__":
    main()
