"""What the compiled resonance loop computes, operation by operation, in NumPy: the same nodes to the last bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedclust.core.types import Array, Floats, Ints, Units
from fedclust.kernels import _twin

FIRST_ROWS = 10  # rows behind the first bandwidth, and the fewest nodes that may settle lambda
SINGULAR_DETERMINANT = 1e-6  # a determinant below says that the nodes are diverse enough
CONSTANT_COLUMN_SPREAD = 1e-6  # stands for the spread of a constant column
SITE_NEIGHBOR_RATE = 100.0
SERVER_NEIGHBOR_RATE = 10.0

State = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes]


def learn(  # noqa: PLR0917  (positions are the C function's)
    server: bool,  # noqa: FBT001
    most: int,
    rows: Floats,
    places: Floats,
    wins: Ints,
    widths: Floats,
    order: Units,
    edges: Units,
    counts: Ints,
    levels: Floats,
) -> State:
    """Take rows one after another into a net; the net's arrays as bytes."""
    net = _Net(server, most, places, wins, widths, order, edges, counts, levels)
    with np.errstate(all="ignore"):
        net.learn(rows)
    return net.state()


def nearest(width: float, rows: Array, places: Floats, labels: Units, least: Floats) -> None:
    """The node each row is most like, the first among equals, and its distance."""
    columns = np.ascontiguousarray(places.T)
    with np.errstate(all="ignore"):
        for i, x in enumerate(rows):
            alike = similarities(columns, x, -0.5 / (width * width))
            labels[i] = alike.argmax()
            least[i] = np.sqrt(1.0 - alike[labels[i]] / len(x))


def similarities(columns: Floats, x: Floats, scale: float) -> Floats:
    """sum_j exp(scale (x_j - w_j)^2) for each node, the features added in their order."""
    off = x[:, None] - columns
    # A reduction would add the features of a single node in another order.
    return np.asarray(np.add.accumulate(_exp((off * off) * scale), axis=0)[-1], np.float64)


def bandwidth(rows: Sequence[Floats]) -> float:
    """Silverman's bandwidth: median_j (c s_j) n^(-1/(4+d)), c = (4/(2+d))^(1/(4+d))."""
    count, d = len(rows), len(rows[0])
    mean = rows[0].copy()
    for row in rows[1:]:
        mean += row
    mean /= count
    spread = np.zeros(d)
    for row in rows:
        off = row - mean
        spread += off * off
    s = np.sqrt(spread / (count - 1)) if count > 1 else np.zeros(d)
    p = 1.0 / (4 + d)
    return _median(
        (_power(4.0 / (2 + d), p) * np.where(s == 0.0, CONSTANT_COLUMN_SPREAD, s)) * _power(float(count), -p)
    )


class _Net:
    """The state of a net while rows come in; columns hold the positions feature by feature."""

    def __init__(  # noqa: PLR0917
        self,
        server: bool,  # noqa: FBT001
        most: int,
        places: Floats,
        wins: Ints,
        widths: Floats,
        order: Units,
        edges: Units,
        counts: Ints,
        levels: Floats,
    ) -> None:
        self.server, self.most = server, most
        self.nodes = len(places)
        self.columns = np.zeros((places.shape[1], max(32, 2 * self.nodes)))
        self.columns[:, : self.nodes] = places.T
        self.wins, self.widths = wins.tolist(), widths.tolist()
        self.order = dict.fromkeys(order.tolist())  # oldest first
        self.ages: list[dict[int, int]] = [{} for _ in range(self.nodes)]
        for a, b, age in edges.reshape(-1, 3).tolist():
            self.ages[a][b] = self.ages[b][a] = age
        self.seen, self.half, self.settled, self.deleted, self.deleted_ages, self.refused = counts.tolist()
        self.vigilance, self.width = levels.tolist()
        self.width_total = _sum_in_order(self.widths)
        self.factor = np.zeros((32, 32))
        self.pivots: list[float] = []
        self.determinant = 1.0

    def state(self) -> State:
        places = np.ascontiguousarray(self.columns[:, : self.nodes].T)
        edges = [(i, j, age) for i, own in enumerate(self.ages) for j, age in own.items() if j > i]
        counts = [self.seen, self.half, self.settled, self.deleted, self.deleted_ages, self.refused]
        return (
            places.tobytes(),
            np.array(self.wins, np.int64).tobytes(),
            np.array(self.widths, np.float64).tobytes(),
            np.array(list(self.order), np.int32).tobytes(),
            np.array(edges, np.int32).tobytes(),
            np.array(counts, np.int64).tobytes(),
            np.array([self.vigilance, self.width]).tobytes(),
        )

    def learn(self, rows: Floats) -> None:
        if not self.settled:
            total = 0.0
            for i in range(self.nodes):
                total += self.widths[i]
                self._next_pivot(i + 1, _scale(total, i + 1))
        for x in rows:
            self.seen += 1
            if self.seen == 1:
                self.width = bandwidth(list(rows[:FIRST_ROWS]))
            if not self.settled or self.nodes < self.half:
                self._gather(x)
            else:
                self._compare(x)
            if self.server and self.half and self.seen % (2 * self.half) == 0 and self.nodes > 1:
                self._drop_isolated()

    def _similarities(self, x: Floats, scale: float, count: int) -> Floats:
        return similarities(self.columns[:, :count], x, scale)

    def _add(self, x: Floats) -> None:
        if self.nodes == self.columns.shape[1]:
            self.columns = np.concatenate([self.columns, np.zeros_like(self.columns)], axis=1)
        self.columns[:, self.nodes] = x
        self.order[self.nodes] = None
        self.wins.append(1)
        self.ages.append({})
        self.nodes += 1

    def _record_width(self) -> None:
        self.widths.append(self.width)
        self.width_total += self.width

    def _recent_bandwidth(self) -> float:
        """The bandwidth of the nodes touched last, the last one first."""
        recent = [node for node, _ in zip(reversed(self.order), range(self.half), strict=False)]
        return bandwidth([self.columns[:, node].copy() for node in recent])

    def _gather(self, x: Floats) -> None:
        self._add(x)
        self._record_width()
        if not self.settled:
            self._next_pivot(self.nodes, _scale(self.width_total, self.nodes))
            if self.nodes >= FIRST_ROWS and (self.determinant < SINGULAR_DETERMINANT or self.nodes >= self.most):
                self.half = self.nodes
        if self.nodes != self.half:
            return
        self.settled = 1
        self.width = self._recent_bandwidth()
        self.widths = [self.width] * self.nodes
        self.width_total = _sum_in_order(self.widths)
        self.vigilance = self._vigilance(_scale(self.width_total, self.nodes))

    def _next_pivot(self, count: int, scale: float) -> None:
        """Pivot of the newest of the first nodes in the factors L D L' of exp(R), R their similarities."""
        old = count - 1
        if count > len(self.factor):
            self.factor = np.pad(self.factor, (0, len(self.factor)))
        pivot = _exp_scalar(1.0)
        if old:
            y = _exp(self._similarities(self.columns[:, old], scale, old) / len(self.columns))
            for i in range(old):
                y[i + 1 :] -= self.factor[i, i + 1 : old] * y[i]
            for i, (value, before) in enumerate(zip(y.tolist(), self.pivots, strict=True)):
                share = value / before if before > 0.0 else 0.0
                self.factor[i, old] = share
                pivot -= share * value
        self.pivots.append(max(pivot, 0.0))
        self.determinant *= self.pivots[-1]

    def _vigilance(self, scale: float) -> float:
        """The mean, over nodes, of the distance to the nearest other node that is not at the same place."""
        total, d = 0.0, len(self.columns)
        for k in range(self.nodes):
            alike = self._similarities(self.columns[:, k], scale, self.nodes)
            others = alike[1.0 - alike / d != 0.0]
            total += self._distance(others.max()) if len(others) else 0.0
        return total / self.nodes

    def _distance(self, alike: float) -> float:
        return float(np.sqrt(1.0 - alike / len(self.columns)))

    def _compare(self, x: Floats) -> None:
        alike = self._similarities(x, _scale(self.width_total, self.nodes), self.nodes)
        first = int(alike.argmax())
        best = alike[first]
        alike[first] = -1.0
        second = int(alike.argmax())
        if self.vigilance < self._distance(best):
            if self.nodes < self.most:
                self._add(x)
                self.width = self._recent_bandwidth()
                self._record_width()
                return
            self.refused += 1
        self._resonate(x, first, second, near=self.nodes > 1 and self.vigilance >= self._distance(alike[second]))

    def _pull(self, node: int, x: Floats, rate: float) -> None:
        w = self.columns[:, node]
        self.columns[:, node] = w + (x - w) / rate

    def _resonate(self, x: Floats, first: int, second: int, *, near: bool) -> None:
        self.wins[first] += 1
        self._pull(first, x, float(self.wins[first]))
        del self.order[first]
        self.order[first] = None
        if not self.server:
            if near:
                self._pull(second, x, SITE_NEIGHBOR_RATE * self.wins[second])
            return
        own = self.ages[first]
        for other in own:
            own[other] += 1
            self.ages[other][first] += 1
        if near:
            own[second] = self.ages[second][first] = 1
            for other in own:
                self._pull(other, x, SERVER_NEIGHBOR_RATE * self.wins[other])
        self._prune(first)

    def _prune(self, node: int) -> None:
        own = self.ages[node]
        ages = np.array(list(own.values()), np.float64)
        middle = _median(ages) if own else 0.0
        below, above = ages[ages < middle], ages[ages > middle]
        if not len(below) or not len(above):
            return
        q1, q3 = _median(below), _median(above)
        usual = q3 + 0.1 * (q3 - q1)
        lived = self.deleted_ages / self.deleted if self.deleted else 0.0
        r = self.deleted / (self.deleted + len(ages))
        limit = lived * r + usual * (1.0 - r)
        for other in [other for other, age in own.items() if age > limit]:
            self.deleted += 1
            self.deleted_ages += own.pop(other)
            del self.ages[other][node]

    def _drop_isolated(self) -> None:
        kept = [i for i in range(self.nodes) if self.ages[i]]
        now = {old: new for new, old in enumerate(kept)}
        self.columns[:, : len(kept)] = self.columns[:, kept]
        self.nodes = len(kept)
        self.wins = [self.wins[i] for i in kept]
        self.widths = [self.widths[i] for i in kept]
        self.order = {now[i]: None for i in self.order if i in now}
        self.ages = [{now[j]: age for j, age in self.ages[i].items()} for i in kept]
        self.width_total = _sum_in_order(self.widths)


def _scale(total: float, count: int) -> float:
    width = total / count
    return -0.5 / (width * width)


def _sum_in_order(values: Sequence[float]) -> float:
    total = 0.0
    for value in values:  # sum() would compensate
        total += value
    return total


def _median(values: Floats) -> float:
    ranked, half = np.sort(values), len(values) // 2
    return float(ranked[half] if len(values) % 2 else (ranked[half - 1] + ranked[half]) * 0.5)


def _exp(x: Floats) -> Floats:
    out = np.empty_like(x)
    _twin.elementary(_twin.EXP, x, 0.0, out)
    return out


def _exp_scalar(x: float) -> float:
    return float(_exp(np.array([x]))[0])


def _power(x: float, p: float) -> float:
    out = np.empty(1)
    _twin.elementary(_twin.POWER, np.array([x]), p, out)
    return float(out[0])
