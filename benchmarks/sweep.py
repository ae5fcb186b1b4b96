"""This benchmark compares one sweep of c-means and fuzzy c-means with the libraries that users would otherwise use."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import fedclust as fc
from benchmarks import timing
from fedclust.algorithms.cmeans.row_split import make_question
from fedclust.core.site_interface import View
from fedclust.core.types import Floats
from fedclust.kernels import fuzzy_sweep as fuzzy_kernel
from fedclust.kernels import hard_sweep as hard_kernel
from fedclust.kernels import plain_sweep
from fedclust.kernels.exact_sums import Sums

# rows, columns, clusters; floors: against scikit-fuzzy, the best fuzzy peer, scikit-learn's Lloyd
SHAPES: dict[tuple[int, int, int], tuple[float | None, float, float]] = {
    (1_000_000, 2, 3): (40, 1.0, 1.0),
    (1_000_000, 16, 10): (12, 1.0, 1.0),
    (100_000, 16, 100): (None, 0.8, 1.0),
    (100_000, 64, 10): (None, 1.0, 1.0),
    (50_000, 784, 10): (2.5, 0.8, 0.7),
    (10_000, 784, 100): (None, 0.3, 0.7),
}
AUTHORS = 0.40  # reported CPU seconds per round of the authors' lossless code on pendigits, 20 parties


def main(*, json: bool) -> int:
    """Measure every shape and print the ratios."""
    rows = []
    for shape in SHAPES:
        for row in _shape(shape):
            rows.append(row)
            print(f"{row['sweep']}: {row['ms']:.1f} ms, best peer / ours {row['best peer']:.3g}", file=sys.stderr)
    extra = [_exact_over_plain(), _parties_over_pooled(), _pendigits()]
    document = {"machine": timing.machine(), "sweeps": rows, "ratios": extra}
    if json:
        return timing.show(document, [*rows, *extra], as_json=True)
    return max(timing.show(document, table, as_json=False) for table in (rows, *([row] for row in extra)))


def _shape(shape: tuple[int, int, int]) -> Iterator[dict[str, Any]]:
    rows, width, k = shape
    rng = np.random.default_rng(0)
    # Groups overlap in any number of columns: no method converges, so every counted iteration is complete.
    X = rng.normal(size=(rows, width)) + rng.normal(size=(k, width))[rng.integers(k, size=rows)] / np.sqrt(width)
    start = X[rng.choice(rows, k, replace=False)] + 0.01
    over_fuzzy, over_best, over_lloyd = SHAPES[shape]
    pooled = fc.Federation.local({"here": X})
    for m in (2.0, 1.7):
        took = timing.marginal(_fuzzy_runs(X, pooled, start, m))
        floors = {"scikit-fuzzy": over_fuzzy, "best peer": over_best} if m == 2 else {}
        yield _row(shape, f"fuzzy m={m:g}", took, floors)
    took = timing.marginal(_hard_runs(X, pooled, start))
    yield _row(shape, "hard", took, {"Lloyd": over_lloyd})


def _row(
    shape: tuple[int, int, int], method: str, took: dict[str, float], floors: Mapping[str, float | None]
) -> dict[str, Any]:
    """Peers' time divided by ours, and the floors it misses."""
    ours = took.pop("fedclust")
    ratios = {peer: seconds / ours for peer, seconds in took.items()}
    ratios["best peer"] = min(ratios.values())
    name = f"{'x'.join(map(str, shape))} {method}"
    missed = [
        f"{name}: {ratios[p]:.3g} times as fast as {p}, at least {f} expected"
        for p, f in floors.items()
        if f and ratios[p] < f
    ]
    return {"sweep": name, "ms": ours * 1e3, **ratios, "missed": missed}


def _fuzzy_runs(X: Floats, pooled: fc.Federation, start: Floats, m: float) -> dict[str, timing.Run]:
    import skfuzzy
    from fcmeans import FCM

    k = len(start)
    transposed = np.ascontiguousarray(X.T)
    u0 = fuzzy_kernel.memberships(np.ascontiguousarray(X.T), start, m)

    def ours(count: int) -> None:
        fc.FuzzyCMeans(k, m=m, init=start, tol=None, max_iter=count).fit(pooled)

    def scikit_fuzzy(count: int) -> None:
        skfuzzy.cmeans(transposed, k, m, error=0.0, maxiter=count, init=u0)

    def fuzzy_c_means(count: int) -> None:
        FCM(n_clusters=k, m=m, max_iter=count, error=0.0, random_state=0).fit(X)

    def blocked(count: int) -> None:
        centers = start
        for _ in range(count):
            centers = _blocked_round(X, centers, m)

    runs = {"fedclust": ours, "scikit-fuzzy": scikit_fuzzy, "fuzzy-c-means": fuzzy_c_means, "blocked numpy": blocked}
    if k > 50:
        del runs["fuzzy-c-means"]  # it builds rows x clusters x clusters: gigabytes
    return {name: _quietly(run) for name, run in runs.items()}


def _hard_runs(X: Floats, pooled: fc.Federation, start: Floats) -> dict[str, timing.Run]:
    from sklearn.cluster import KMeans

    def ours(count: int) -> None:
        fc.KMeans(len(start), init=start, tol=None, max_iter=count).fit(pooled)

    def peer(algorithm: str) -> timing.Run:
        def run(count: int) -> None:
            model = KMeans(len(start), init=start, n_init=1, max_iter=count, tol=0.0, algorithm=algorithm, copy_x=True)
            whole(algorithm, asked=count, done=model.fit(X).n_iter_)

        return run

    runs: dict[str, timing.Run] = {"fedclust": ours, "Lloyd": peer("lloyd"), "Elkan": peer("elkan")}
    return {name: _quietly(run) for name, run in runs.items()}


def whole(peer: str, *, asked: int, done: int) -> None:
    """Refuse a timing in which the peer stopped early, because its iterations would seem faster than they are."""
    if done != asked:
        raise RuntimeError(f"{peer}: converged after {done} of {asked} iterations; use rows that overlap more")


def _blocked_round(X: Floats, centers: Floats, m: float, rows: int = 4096) -> Floats:
    """What a careful user would write: blocks, matrix products for distances and sums."""
    mass, pull = np.zeros(len(centers)), np.zeros(centers.shape)
    norms = (centers**2).sum(axis=1)
    for at in range(0, len(X), rows):
        block = X[at : at + rows]
        d2 = np.maximum((block**2).sum(axis=1)[:, None] - 2 * block @ centers.T + norms, 1e-12)
        w = 1 / d2 if m == 2 else d2 ** (-1 / (m - 1))
        u = w / w.sum(axis=1, keepdims=True)
        um = u * u if m == 2 else u**m
        mass += um.sum(axis=0)
        pull += um.T @ block
    return pull / mass[:, None]


def _exact_over_plain() -> dict[str, Any]:
    """The same strict kernel with exact and with ordinary sums."""
    rng = np.random.default_rng(0)
    ratios = {}
    for rows, width, k in ((1_000_000, 2, 3), (1_000_000, 16, 10), (50_000, 784, 10)):
        blocks = [
            np.ascontiguousarray(part.T)
            for part in np.array_split(rng.normal(size=(rows, width)), max(1, rows * width // 2**17))
        ]
        centers = rng.normal(size=(k, width))
        ask = make_question(View(np.full(width, 4, np.int32)), centers, 2.0)
        mass, pull, objective = ask.units

        def fuzzy(
            count: int, blocks: Any = blocks, centers: Floats = centers, units: Any = (mass, pull, int(objective))
        ) -> None:
            for _ in range(count):
                fuzzy_kernel.accumulate(Sums.zeros(*units), blocks, centers, 2.0)

        def hard(
            count: int, blocks: Any = blocks, centers: Floats = centers, units: Any = (mass, pull, int(objective))
        ) -> None:
            for _ in range(count):
                hard_kernel.accumulate(Sums.zeros(*units), blocks, centers)

        def plain_fuzzy(count: int, blocks: Any = blocks, centers: Floats = centers) -> None:
            for _ in range(count):
                plain_sweep.sweep_fuzzy(blocks, centers, 2.0)

        def plain_hard(count: int, blocks: Any = blocks, centers: Floats = centers) -> None:
            for _ in range(count):
                plain_sweep.sweep_hard(blocks, centers)

        took = timing.marginal({"e": fuzzy, "p": plain_fuzzy, "he": hard, "hp": plain_hard})
        ratios[f"fuzzy {width}x{k}"] = took["e"] / took["p"]
        ratios[f"hard {width}x{k}"] = took["he"] / took["hp"]
    return _most("exact / plain sums", max(ratios.values()), 1.4, ratios)


def _parties_over_pooled(rows: int = 1_000_000, width: int = 16, k: int = 10, parties: int = 20) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X, start = rng.normal(size=(rows, width)), rng.normal(size=(k, width))
    pooled = fc.Federation.local({"here": X})
    split = fc.Federation.local({f"p{i}": part for i, part in enumerate(np.array_split(X, parties))})

    def run(fed: fc.Federation, kind: Any) -> timing.Run:
        return lambda count: kind(k, init=start, tol=None, max_iter=count).fit(fed)

    runs = {
        "pooled": run(pooled, fc.FuzzyCMeans),
        "split": run(split, fc.FuzzyCMeans),
        "hard pooled": run(pooled, fc.KMeans),
        "hard split": run(split, fc.KMeans),
    }
    took = timing.marginal(runs)
    fuzzy, hard = took["split"] / took["pooled"], took["hard split"] / took["hard pooled"]
    return _most("20 parties / pooled", max(fuzzy, hard), 1.2, {"fuzzy": fuzzy, "hard": hard})


def _most(name: str, worst: float, limit: float, parts: dict[str, float]) -> dict[str, Any]:
    missed = [f"{name}: {worst:.3g}, at most {limit}"] if worst > limit else []
    return {"ratio": name, "worst": worst, "limit": limit, **parts, "missed": missed}


def _pendigits() -> dict[str, Any]:
    """A round at the size of pendigits over 20 parties, compared with the authors' reported time."""
    rng = np.random.default_rng(0)
    X, start = rng.random((10_992, 16)), rng.random((10, 16))
    fed = fc.Federation.local({f"p{i}": part for i, part in enumerate(np.array_split(X, 20))})
    took = timing.marginal(
        {"ours": lambda count: fc.FuzzyCMeans(10, init=start, tol=None, max_iter=count).fit(fed)},
        few=5,
        most=40,
    )
    ratio = AUTHORS / took["ours"]
    missed = [f"a round is {ratio:.3g} times as fast as the authors', at least 50 expected"] if ratio < 50 else []
    return {
        "ratio": "authors' reported round / ours",
        "worst": ratio,
        "limit": 50,
        "ms": took["ours"] * 1e3,
        "missed": missed,
    }


def _quietly(run: timing.Run) -> timing.Run:
    """Ignore the peers' warnings that they did not converge, which is intended here."""

    def quiet(count: int) -> None:
        with warnings.catch_warnings(), contextlib.suppress(StopIteration):
            warnings.simplefilter("ignore")
            run(count)

    return quiet
