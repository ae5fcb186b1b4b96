"""What the compiled Ward and Leiden compute, operation by operation, in NumPy: the same groups to the last bit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedclust.core.types import Floats, Ints, Units

GAIN_MARGIN = 1e-10  # a gain must exceed this share of a node's weight, or rounding would turn in circles
WORD_MASK = (1 << 64) - 1


def ward(  # noqa: PLR0917  (positions are the C function's)
    places: Floats,
    weights: Floats,
    scatter: Floats,
    target: int,
    floor: float,
    blur: bool,  # noqa: FBT001
    along: int,
) -> int:
    """Join points until `target` are left and none is too light; they close up at the front. Returns how many."""
    n = len(places)
    here = np.ones(n, bool)
    counted = places[:, : places.shape[1] - along]  # a view: joining changes it, too
    costs = np.stack([_costs(counted, weights, i) for i in range(n)]) if n else np.empty((0, 0))
    np.fill_diagonal(costs, np.inf)
    left = n
    while left > 1:
        if left > target:
            pair = divmod(int(np.argmin(costs)), n)
        else:
            odd = _point_to_join(weights, scatter, here, floor, blur=blur)
            if odd is None:
                break
            pair = (odd, int(np.argmin(costs[odd])))
        a, b = sorted(pair)
        wa, wb = float(weights[a]), float(weights[b])
        scatter[a] = (scatter[a] + scatter[b]) + costs[a, b]
        places[a] = (wa * places[a] + wb * places[b]) / (wa + wb)
        weights[a] = wa + wb
        here[b] = False
        left -= 1
        again = np.where(here, _costs(counted, weights, a), np.inf)
        again[a] = np.inf
        costs[a], costs[:, a] = again, again
        costs[b], costs[:, b] = np.inf, np.inf
    kept = np.flatnonzero(here)
    for array in (places, weights, scatter):
        array[: len(kept)] = array[kept]
    return len(kept)


def _costs(places: Floats, weights: Floats, a: int) -> Floats:
    """Wa Wb / (Wa + Wb) |a - b|^2 for every b, the features added in their order."""
    off = places[a] - places
    # Of two joined the lower stands first in the product, as in C; products and sums of two do not care.
    squared = np.add.accumulate(off * off, axis=1)[:, -1]
    return np.asarray(weights[a] * weights / (weights[a] + weights) * squared, np.float64)


def _point_to_join(
    weights: Floats, scatter: Floats, here: NDArray[np.bool_], floor: float, *, blur: bool
) -> int | None:
    """The lightest point below the floor, else one whose rows are all the same, else none."""
    light = np.where(here & (weights < floor), weights, np.inf)
    if np.isfinite(light).any():
        return int(np.argmin(light))
    same = here & (scatter == 0.0)
    return int(np.argmax(same)) if blur and same.any() else None


class _SplitMix64:
    """The generator splitmix64, as in C."""

    def __init__(self, seed: int) -> None:
        self.state = seed & WORD_MASK

    def __call__(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & WORD_MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD_MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD_MASK
        return z ^ (z >> 31)

    def draw_order(self, n: int) -> list[int]:
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            j = self() % (i + 1)
            order[i], order[j] = order[j], order[i]
        return order


Edges = list[list[tuple[int, float]]]


def leiden(start: Ints, to: Units, weight: Floats, resolution: float, seed: int, labels: Units) -> float:  # noqa: PLR0917
    """Communities of a graph that has each edge in both directions; returns their modularity."""
    n, random = len(labels), _SplitMix64(seed)
    others, weights = to.tolist(), weight.tolist()
    edges: Edges = [list(zip(others[a:b], weights[a:b], strict=True)) for a, b in pairwise(start.tolist())]
    degree = [_sum_in_order(w for _, w in own) for own in edges]
    whole, degrees = edges, degree
    total = _sum_in_order(degree)
    share = resolution / total if total > 0.0 else 0.0
    label, group = list(range(n)), list(range(n))
    while True:
        _move(edges, degree, share, group, random)
        part, parts = _renumber(_refine_groups(edges, degree, share, group))
        if parts == len(edges):
            break
        above = [0] * parts
        for i, own in enumerate(part):
            above[own] = group[i]
        label = [part[i] for i in label]
        group, _ = _renumber(above)
        edges, degree = _aggregate_graph(edges, degree, part, parts)
    label, _ = _renumber([group[i] for i in label])
    labels[:] = label
    return _quality(whole, degrees, label, share, total)


def _quality(edges: Edges, degree: list[float], label: list[int], share: float, total: float) -> float:
    within, sums = 0.0, [0.0] * len(label)
    for i, own in enumerate(edges):
        sums[label[i]] += degree[i]
        for other, w in own:
            if label[other] == label[i]:
                within += w
    return (within - share * _sum_in_order(s * s for s in sums)) / total if total > 0.0 else 0.0


def _move(edges: Edges, degree: list[float], share: float, group: list[int], random: _SplitMix64) -> None:
    """Every node goes where it gains most, and wakes its neighbours elsewhere when it goes."""
    n = len(edges)
    total, size = [0.0] * n, [0] * n
    for i, own in enumerate(group):
        total[own] += degree[i]
        size[own] += 1
    empty = [i for i in range(n - 1, -1, -1) if not size[i]]
    queue = deque(random.draw_order(n))
    waiting = [True] * n
    while queue:
        v = queue.popleft()
        waiting[v] = False
        old = group[v]
        met = _weights_by_group(edges[v], group)
        total[old] -= degree[v]
        size[old] -= 1
        pull, margin = share * degree[v], GAIN_MARGIN * degree[v]
        best, most = old, met.get(old, 0.0) - pull * total[old]
        for c, w in met.items():
            gain = w - pull * total[c]
            if gain > most + margin:
                best, most = c, gain
        if most + margin < 0.0 and size[old] and empty:
            best = empty.pop()
        if best != old and not size[old]:
            empty.append(old)
        total[best] += degree[v]
        size[best] += 1
        group[v] = best
        if best == old:
            continue
        for other, _ in edges[v]:
            if group[other] != best and not waiting[other]:
                waiting[other] = True
                queue.append(other)


def _refine_groups(edges: Edges, degree: list[float], share: float, group: list[int]) -> list[int]:
    """Parts of each group that hang together: a node alone joins the part it gains most from, if both are well tied."""
    n = len(edges)
    part, size, degrees = list(range(n)), [1] * n, list(degree)
    whole = [0.0] * n
    for i, own in enumerate(group):
        whole[own] += degree[i]
    tied = [_sum_in_order(w for other, w in own if group[other] == group[i]) for i, own in enumerate(edges)]
    for v in range(n):
        mine = group[v]
        if part[v] != v or size[v] != 1 or tied[v] < share * degree[v] * (whole[mine] - degree[v]):
            continue
        met = _weights_by_group([(other, w) for other, w in edges[v] if group[other] == mine], part)
        best, most = v, 0.0
        for c, w in met.items():
            if tied[c] < share * degrees[c] * (whole[mine] - degrees[c]):
                continue
            gain = w - share * degree[v] * degrees[c]
            if gain > most:
                best, most = c, gain
        if best != v:
            tied[best] = (tied[best] + tied[v]) - 2.0 * met[best]
            degrees[best] += degree[v]
            size[best] += 1
            size[v] = 0
            part[v] = best
    return part


def _aggregate_graph(edges: Edges, degree: list[float], part: list[int], parts: int) -> tuple[Edges, list[float]]:
    """The graph whose nodes are the parts."""
    members: list[list[int]] = [[] for _ in range(parts)]
    for i, own in enumerate(part):
        members[own].append(i)
    smaller: Edges = []
    for c, those in enumerate(members):
        met = _weights_by_group([edge for v in those for edge in edges[v]], part)
        smaller.append([(other, w) for other, w in met.items() if other != c])
    return smaller, [_sum_in_order(degree[v] for v in those) for those in members]


def _weights_by_group(edges: list[tuple[int, float]], group: list[int]) -> dict[int, float]:
    met: dict[int, float] = {}
    for other, w in edges:
        met[group[other]] = met.get(group[other], 0.0) + w
    return met


def _renumber(group: list[int]) -> tuple[list[int], int]:
    names: dict[int, int] = {}
    return [names.setdefault(own, len(names)) for own in group], len(names)


def _sum_in_order(values: Iterable[float]) -> float:
    total = 0.0
    for value in values:  # sum() would compensate
        total += value
    return total
