"""Sets of ten kinds with a known number of clusters, drawn from a seed.

A set is drawn again until the Bayes rule with the true parameters labels enough rows rightly, so that its clusters can
be told apart at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedclust.core.types import Floats, Ints

LEAST_BAYES_ACCURACY = 0.93
SECOND_STREAM = 77
MAX_DRAWS = 400


@dataclass(frozen=True)
class Drawn:
    """The rows of a set, the true label of each (None without clusters), and the number of clusters."""

    rows: Floats
    labels: Ints | None
    k: int


Rng = np.random.Generator
Draw = Callable[[Rng], Drawn | None]


def draw(kind: str, seed: int, *, second: bool = False) -> Drawn:
    """A set of a kind; the same for the same seed."""
    kinds = SECOND_KINDS if second else FIRST_KINDS
    stream = (SECOND_STREAM,) if second else ()
    for turn in range(MAX_DRAWS):
        rng = np.random.default_rng([*stream, KINDS.index(kind), seed, turn])
        found = kinds[kind](rng)
        if found is not None:
            order = rng.permutation(len(found.rows))
            labels = None if found.labels is None else found.labels[order]
            return Drawn(np.ascontiguousarray(found.rows[order]), labels, found.k)
    raise RuntimeError(f"no set of the kind {kind} with the seed {seed} has clusters that can be told apart")


def _keep(rows: Floats, labels: Ints, log_densities: Floats) -> Drawn | None:
    """A set whose true parameters label enough rows rightly."""
    right = float((log_densities.argmax(axis=0) == labels).mean())
    return None if right < LEAST_BAYES_ACCURACY else Drawn(rows, labels, len(log_densities))


def _keep_each(rows: Floats, labels: Ints, log_densities: Floats, least: float = 0.93) -> Drawn | None:
    """A set whose true parameters label enough rows rightly, and .85 of every cluster."""
    hits = log_densities.argmax(axis=0) == labels
    shares = [hits[labels == k].mean() if (labels == k).any() else 0.0 for k in range(len(log_densities))]
    if min(shares) < 0.85 or hits.mean() < least:
        return None
    return Drawn(rows, labels, len(log_densities))


def _count_and_rows(rng: Rng) -> tuple[int, int]:
    k = int(rng.integers(1, 16))
    return k, _some_rows(rng, max(200, 20 * k))


def _some_rows(rng: Rng, least: int = 200) -> int:
    return int(np.exp(rng.uniform(np.log(least), np.log(4000))))


def _sizes(rng: Rng, k: int, rows: int) -> tuple[Floats, Ints]:
    shares = 0.4 / k + 0.6 * rng.dirichlet(np.full(k, 3.0))
    labels = np.repeat(np.arange(k), np.maximum(8, np.round(shares * rows)).astype(int))
    return shares / shares.sum(), labels


def _place_means(rng: Rng, k: int, width: int, is_apart: Callable[[Floats, Floats, int], bool]) -> Floats:
    """Means one after the other from a growing ball, each far enough from those before it."""
    means, radius = [np.zeros(width)], 1.0
    while len(means) < k:
        point = rng.normal(size=width) * radius / np.sqrt(width) * 1.3
        if is_apart(point, np.array(means), len(means)):
            means.append(point)
        else:
            radius *= 1.03
    return np.array(means)


def _squares(rows: Floats, mean: Floats) -> Floats:
    return np.asarray(((rows - mean) ** 2).sum(axis=1), np.float64)


def _unequal(rng: Rng) -> Drawn | None:
    """Round Gaussians of unequal size and width, 4 to 7 mean standard deviations apart."""
    k, rows = _count_and_rows(rng)
    width = int(rng.integers(2, 11))
    shares, labels = _sizes(rng, k, rows)
    sd = np.exp(rng.uniform(np.log(0.6), np.log(1.8), k))
    apart = rng.uniform(4, 7)
    means = _place_means(
        rng, k, width, lambda c, m, i: bool((np.sqrt(_squares(m, c)) > apart * (sd[:i] + sd[i]) / 2).all())
    )
    X = means[labels] + sd[labels, None] * rng.normal(size=(len(labels), width))
    log = [np.log(shares[j]) - width * np.log(sd[j]) - _squares(X, means[j]) / 2 / sd[j] ** 2 for j in range(k)]
    return _keep(X, labels, np.array(log))


def _stretched(rng: Rng) -> Drawn | None:
    """Gaussians that are 2.5 to 6 times as long as wide, in a common direction or in several."""
    k, rows = _count_and_rows(rng)
    width = int(rng.integers(2, 7))
    shares, labels = _sizes(rng, k, rows)
    is_common = rng.random() < 0.5
    shapes: list[Floats] = []
    for j in range(k):
        if is_common and j:
            shapes.append(shapes[0])
            continue
        turned, _ = np.linalg.qr(rng.normal(size=(width, width)))
        lengths = np.ones(width)
        lengths[0] = rng.uniform(2.5, 6)
        shapes.append(turned * lengths)
    roots = np.array(shapes)
    apart = rng.uniform(4, 7)

    def is_apart(point: Floats, means: Floats, count: int) -> bool:
        for j in range(count):
            away = point - means[j]
            between = (roots[count] @ roots[count].T + roots[j] @ roots[j].T) / 2
            if away @ np.linalg.solve(between, away) < apart * apart:
                return False
        return True

    means = _place_means(rng, k, width, is_apart)
    X = means[labels] + np.einsum("nij,nj->ni", roots[labels], rng.normal(size=(len(labels), width)))
    return _keep(X, labels, _log_normal(X, shares, means, roots))


def _log_normal(X: Floats, shares: Floats, means: Floats, roots: Floats) -> Floats:
    """Log densities of Gaussians with covariances root root^T, times their shares."""
    out = []
    for share, mean, root in zip(shares, means, roots, strict=True):
        y = np.linalg.solve(root, (X - mean).T)
        out.append(np.log(share) - np.linalg.slogdet(root)[1] - (y * y).sum(axis=0) / 2)
    return np.array(out)


def _heavy_tails(rng: Rng) -> Drawn | None:
    """Round t distributions of 3 to 6 degrees of freedom."""
    k, rows = _count_and_rows(rng)
    width = int(rng.integers(2, 9))
    shares, labels = _sizes(rng, k, rows)
    freedom = int(rng.integers(3, 7))
    sd = np.exp(rng.uniform(np.log(0.8), np.log(1.25), k))
    apart = rng.uniform(4.5, 8)
    means = _place_means(
        rng, k, width, lambda c, m, i: bool((np.sqrt(_squares(m, c)) > apart * (sd[:i] + sd[i]) / 2).all())
    )
    noise = rng.normal(size=(len(labels), width)) / np.sqrt(rng.chisquare(freedom, len(labels)) / freedom)[:, None]
    X = means[labels] + sd[labels, None] * noise
    return _keep(X, labels, _log_t(X, shares, means, sd, freedom))


def _log_t(X: Floats, shares: Floats, means: Floats, sd: Floats, freedom: int) -> Floats:
    width = X.shape[1]
    log = [
        np.log(share) - width * np.log(own) - (freedom + width) / 2 * np.log1p(_squares(X, mean) / freedom / own**2)
        for share, mean, own in zip(shares, means, sd, strict=True)
    ]
    return np.array(log)


def _sparse(rng: Rng) -> Drawn | None:
    """40 columns, of which 3 to 8 hold clusters."""
    k, rows = _count_and_rows(rng)
    columns, width = 40, int(rng.integers(3, 9))
    shares, labels = _sizes(rng, k, rows)
    apart = rng.uniform(4.5, 7)
    means = _place_means(rng, k, width, lambda c, m, _: bool((np.sqrt(_squares(m, c)) > apart).all()))
    X = rng.normal(size=(len(labels), columns))
    X[:, :width] += means[labels]
    log = [np.log(shares[j]) - _squares(X[:, :width], means[j]) / 2 for j in range(k)]
    log_densities = np.array(log)
    X = X[:, rng.permutation(columns)]
    if rng.random() < 1 / 3:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    return _keep(X, labels, log_densities)


def _binary(rng: Rng) -> Drawn | None:
    """Profiles of 8 to 30 columns of 0 and 1."""
    k, rows = _count_and_rows(rng)
    columns = int(rng.integers(8, 31))
    shares, labels = _sizes(rng, k, rows)
    if rng.integers(2) == 0:
        rare = rng.uniform(0.05, 0.2)
        p = np.where(rng.random((k, columns)) < 0.5, rare, 1 - rare)
    else:
        p = np.clip(rng.beta(0.4, 0.4, (k, columns)), 0.03, 0.97)
    X = (rng.random((len(labels), columns)) < p[labels]).astype(float)
    return _keep(X, labels, np.log(shares)[:, None] + np.log(p) @ X.T + np.log1p(-p) @ (1 - X).T)


def _mixed(rng: Rng) -> Drawn | None:
    """2 to 5 numbers and 1 to 4 categories of 2 to 5 levels, one column for each level."""
    k, rows = _count_and_rows(rng)
    width, categories = int(rng.integers(2, 6)), int(rng.integers(1, 5))
    shares, labels = _sizes(rng, k, rows)
    apart = rng.uniform(3, 6)
    means = _place_means(rng, k, width, lambda c, m, _: bool((np.sqrt(_squares(m, c)) > apart).all()))
    Y = means[labels] + rng.normal(size=(len(labels), width))
    log = np.array([np.log(shares[j]) - _squares(Y, means[j]) / 2 for j in range(k)])
    blocks = [(Y - Y.mean(axis=0)) / Y.std(axis=0)]
    for _ in range(categories):
        levels = int(rng.integers(2, 6))
        p = rng.dirichlet(np.full(levels, 0.4), k) * 0.9 + 0.1 / levels
        values = (rng.random((len(labels), 1)) > np.cumsum(p, axis=1)[labels]).sum(axis=1).clip(0, levels - 1)
        log += np.log(p)[:, values]
        blocks.append(np.eye(levels)[values])
    X = np.hstack(blocks)
    is_standardised = rng.random() < 0.5
    X = X[:, X.std(axis=0) > 0]
    if is_standardised:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    return _keep(X, labels, log)


def _turn(rng: Rng, X: Floats) -> Floats:
    a = rng.uniform(0, 2 * np.pi)
    turned = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
    return np.asarray(X @ turned.T * np.exp(rng.uniform(-1, 1)), np.float64)


def _two_moons(labels: Ints, angles: Floats) -> Floats:
    upper = np.column_stack([np.cos(angles), np.sin(angles)])
    lower = np.column_stack([1 - np.cos(angles), 0.5 - np.sin(angles)])
    return np.where(labels[:, None] == 0, upper, lower)


def _moons(rng: Rng) -> Drawn | None:
    """Two interleaved half circles."""
    rows = _some_rows(rng)
    noise = rng.uniform(0.04, 0.12)
    labels = np.arange(rows) % 2
    X = _two_moons(labels, rng.uniform(0, np.pi, rows)) + noise * rng.normal(size=(rows, 2))
    return Drawn(_turn(rng, X), labels, 2)


def _rings(rng: Rng) -> Drawn | None:
    """Two or three rings with one centre."""
    rows = _some_rows(rng)
    noise, k = rng.uniform(0.03, 0.1), int(rng.integers(2, 4))
    radii = np.array([1.0, rng.uniform(0.35, 0.55)]) if k == 2 else np.array([1.0, 0.6, 0.25])
    if k == 3:
        noise = min(noise, 0.06)
    labels = rng.choice(k, rows, p=radii / radii.sum()) if rng.random() < 0.5 else np.arange(rows) % k
    angles = rng.uniform(0, 2 * np.pi, rows)
    X = radii[labels][:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
    return Drawn(_turn(rng, X + noise * rng.normal(size=(rows, 2))), labels, k)


def _none(rng: Rng) -> Drawn | None:
    """One normal, uniform or t distribution in 1 to 12 columns, mixed by a matrix or scaled."""
    rows, columns = _some_rows(rng), int(rng.integers(1, 13))
    form = rng.integers(3)
    mixing = rng.normal(size=(columns, columns)) if rng.random() < 0.5 else np.diag(np.exp(rng.uniform(-1, 1, columns)))
    if form == 0:
        X = rng.normal(size=(rows, columns))
    elif form == 1:
        X = rng.uniform(-1, 1, (rows, columns))
    else:
        freedom = int(rng.integers(3, 7))
        X = rng.normal(size=(rows, columns)) / np.sqrt(rng.chisquare(freedom, rows) / freedom)[:, None]
    if form == 1 and rng.random() < 0.5:
        mixing = np.eye(columns)
    return Drawn(X @ mixing.T, None, 1)


def _lognormal(rng: Rng) -> Drawn | None:
    """Log-normal columns, some with a common factor."""
    rows, columns, sigma = _some_rows(rng), int(rng.integers(1, 9)), rng.uniform(0.4, 1.1)
    X = rng.normal(size=(rows, columns))
    if rng.random() < 0.4:
        X = np.sqrt(0.6) * X + np.sqrt(0.4) * rng.normal(size=(rows, 1))
    X = np.exp(sigma * X)
    if rng.random() < 0.5:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    return Drawn(X, None, 1)


# The second distributions of each kind


def _second_rows(rng: Rng, most: int = 800) -> int:
    return int(rng.integers(200, 4001)) if rng.random() < 0.5 else int(rng.integers(200, most))


def _second_sizes(rng: Rng, k: int, rows: int, ratio: float) -> tuple[Floats, Ints] | None:
    shares = np.exp(rng.uniform(0, np.log(ratio), k))
    shares /= shares.sum()
    return None if (shares * rows < 8).any() else (shares, rng.choice(k, rows, p=shares))


def _means_in_box(rng: Rng, k: int, width: int, sd: Floats, apart: float) -> Floats | None:
    means = rng.uniform(-10, 10, (k, width))
    for i in range(k):
        if (np.sqrt(_squares(means[:i], means[i])) < apart * (sd[:i] + sd[i]) / 2).any():
            return None
    return means


def _second_unequal(rng: Rng) -> Drawn | None:
    k, rows, width = int(rng.integers(1, 16)), _second_rows(rng), int(rng.integers(2, 11))
    sizes, sd = _second_sizes(rng, k, rows, 8), rng.uniform(0.5, 2, k)
    means = _means_in_box(rng, k, width, sd, 3.5)
    if sizes is None or means is None:
        return None
    shares, labels = sizes
    X = means[labels] + sd[labels, None] * rng.normal(size=(rows, width))
    log = [np.log(shares[j]) - width * np.log(sd[j]) - _squares(X, means[j]) / 2 / sd[j] ** 2 for j in range(k)]
    return _keep_each(X, labels, np.array(log))


def _second_stretched(rng: Rng) -> Drawn | None:
    k, rows, width = int(rng.integers(1, 16)), _second_rows(rng), int(rng.integers(2, 9))
    if (sizes := _second_sizes(rng, k, rows, 3)) is None:
        return None
    shares, labels = sizes
    means, roots = rng.uniform(-10, 10, (k, width)), rng.normal(size=(k, width, width)) * 0.5 + np.eye(width) * 0.4
    if rng.random() < 0.5:
        roots[:] = roots[0]
    X = means[labels] + np.einsum("nij,nj->ni", roots[labels], rng.normal(size=(rows, width)))
    return _keep_each(X, labels, _log_normal(X, shares, means, roots), 0.95)


def _second_heavy_tails(rng: Rng) -> Drawn | None:
    k, rows, width = int(rng.integers(1, 16)), _second_rows(rng), int(rng.integers(2, 9))
    sizes, freedom, sd = _second_sizes(rng, k, rows, 3), int(rng.integers(3, 7)), rng.uniform(0.7, 1.4, k)
    means = _means_in_box(rng, k, width, sd, 4.5)
    if sizes is None or means is None:
        return None
    shares, labels = sizes
    is_independent = rng.random() < 0.6
    if not is_independent:
        noise = rng.normal(size=(rows, width)) / np.sqrt(rng.chisquare(freedom, rows) / freedom)[:, None]
        X = means[labels] + sd[labels, None] * noise
        return _keep_each(X, labels, _log_t(X, shares, means, sd, freedom))
    X = means[labels] + sd[labels, None] * rng.standard_t(freedom, size=(rows, width))
    log = [
        np.log(shares[j])
        - width * np.log(sd[j])
        - (freedom + 1) / 2 * np.log1p((X - means[j]) ** 2 / freedom / sd[j] ** 2).sum(axis=1)
        for j in range(k)
    ]
    return _keep_each(X, labels, np.array(log))


def _second_sparse(rng: Rng) -> Drawn | None:
    k, rows, width = int(rng.integers(1, 16)), _second_rows(rng), int(rng.integers(2, 7))
    if (sizes := _second_sizes(rng, k, rows, 3)) is None:
        return None
    shares, labels = sizes
    means = rng.uniform(-1, 1, (k, width)) * rng.uniform(4, 9)
    X = rng.normal(size=(rows, 40)) * (1 if rng.random() < 0.6 else np.exp(rng.uniform(-1, 1, 40)))
    X[:, :width] = rng.normal(size=(rows, width)) + means[labels]
    log = [np.log(shares[j]) - _squares(X[:, :width], means[j]) / 2 for j in range(k)]
    return _keep_each(X, labels, np.array(log), 0.94)


def _second_binary(rng: Rng) -> Drawn | None:
    k, rows, columns = int(rng.integers(1, 16)), _second_rows(rng), int(rng.integers(5, 41))
    if (sizes := _second_sizes(rng, k, rows, 3)) is None:
        return None
    shares, labels = sizes
    p = rng.choice([0.1, 0.9], (k, columns)) if rng.random() < 0.5 else rng.uniform(0.05, 0.95, (k, columns))
    if rng.random() < 0.3:
        p[:, : columns // 3] = p[0, : columns // 3]
    X = (rng.random((rows, columns)) < p[labels]).astype(np.float64)
    log = np.log(shares)[:, None] + np.log(p) @ X.T + np.log1p(-p) @ (1 - X).T
    return _keep_each(X, labels, np.asarray(log, np.float64))


def _second_mixed(rng: Rng) -> Drawn | None:
    k, rows = int(rng.integers(1, 16)), _second_rows(rng)
    width, categories = int(rng.integers(2, 6)), int(rng.integers(1, 5))
    if (sizes := _second_sizes(rng, k, rows, 3)) is None:
        return None
    shares, labels = sizes
    means = rng.normal(size=(k, width)) * rng.uniform(2, 4)
    Y = means[labels] + rng.normal(size=(rows, width))
    log = np.array([np.log(shares[j]) - _squares(Y, means[j]) / 2 for j in range(k)])
    blocks = [Y]
    for _ in range(categories):
        levels = int(rng.integers(2, 5))
        p = np.full((k, levels), 0.2 / (levels - 1))
        p[np.arange(k), rng.integers(levels, size=k)] = 0.8
        if rng.random() < 0.25:
            p[:] = rng.dirichlet(np.ones(levels))  # says nothing
        p /= p.sum(axis=1, keepdims=True)
        values = (rng.random((rows, 1)) > np.cumsum(p, axis=1)[labels]).sum(axis=1).clip(0, levels - 1)
        log += np.log(np.maximum(p, 1e-9))[:, values]
        blocks.append(np.eye(levels)[values])
    X = np.hstack(blocks)
    X = X[:, X.std(axis=0) > 0]
    if rng.integers(3):
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    return _keep_each(X, labels, log)


def _second_moons(rng: Rng) -> Drawn | None:
    rows, noise = _second_rows(rng, 600), rng.uniform(0.03, 0.15)
    labels = rng.integers(2, size=rows)
    return Drawn(_two_moons(labels, np.pi * rng.random(rows)) + noise * rng.normal(size=(rows, 2)), labels, 2)


def _second_rings(rng: Rng) -> Drawn | None:
    rows, noise = _second_rows(rng, 600), rng.uniform(0.03, 0.1)
    labels, inner = np.arange(rows) % 2, rng.uniform(0.3, 0.6)
    angles = 2 * np.pi * rng.random(rows)
    X = np.where(labels == 0, 1, inner)[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
    return Drawn(X + noise * rng.normal(size=(rows, 2)), labels, 2)


def _second_none(rng: Rng) -> Drawn | None:
    rows, columns = _second_rows(rng, 600), int(rng.choice([1, 2, 3, 5, 8, 10, 15, 20, 40]))
    form = int(rng.integers(4))
    if form == 0:
        X = rng.normal(size=(rows, columns))
    elif form == 1:
        X = rng.uniform(size=(rows, columns))
    elif form == 2:
        X = rng.standard_t(rng.integers(3, 7), size=(rows, columns))
    else:
        X = rng.normal(size=(rows, columns)) / np.sqrt(rng.chisquare(3, rows) / 3)[:, None]
    return Drawn(X @ rng.normal(size=(columns, columns)) if rng.random() < 0.3 else X, None, 1)


def _second_lognormal(rng: Rng) -> Drawn | None:
    rows, columns = _second_rows(rng, 600), int(rng.choice([1, 2, 3, 5, 8, 10, 20]))
    return Drawn(np.exp(rng.choice([0.3, 0.5, 0.8, 1.0]) * rng.normal(size=(rows, columns))), None, 1)


FIRST_KINDS: dict[str, Draw] = {
    "unequal": _unequal,
    "stretched": _stretched,
    "t": _heavy_tails,
    "sparse": _sparse,
    "binary": _binary,
    "mixed": _mixed,
    "moons": _moons,
    "rings": _rings,
    "none": _none,
    "lognormal": _lognormal,
}
SECOND_KINDS: dict[str, Draw] = {
    "unequal": _second_unequal,
    "stretched": _second_stretched,
    "t": _second_heavy_tails,
    "sparse": _second_sparse,
    "binary": _second_binary,
    "mixed": _second_mixed,
    "moons": _second_moons,
    "rings": _second_rings,
    "none": _second_none,
    "lognormal": _second_lognormal,
}
KINDS = list(FIRST_KINDS)
