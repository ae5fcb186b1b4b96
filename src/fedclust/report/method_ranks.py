"""Rank tests of whether methods differ over many data sets: Friedman's test, Nemenyi's critical distance, a diagram.

Scores are a table with a row for each block (a data set, or a metric or split of one) and a column for each method.
In each block the best method has rank 1, and ties share the mean of their ranks. Nemenyi's critical distance

    CD = q sqrt(k (k + 1) / (6 N)),    q the studentised range of k methods over sqrt 2

is the smallest difference in mean rank at which two of k methods over N blocks differ.

Papers: Friedman 1937; Iman and Davenport 1980; Nemenyi 1963; Demsar 2006, "Statistical comparisons of classifiers over
multiple data sets".

>>> scores = [[0.9, 0.7, 0.1], [0.8, 0.6, 0.3], [0.7, 0.8, 0.2], [0.9, 0.5, 0.4]]
>>> compared = compare(scores, ["ours", "theirs", "chance"])
>>> [float(rank) for rank in compared.ranks], round(compared.p_value, 4)
([1.25, 1.75, 3.0], 0.0388)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from fedclust.core.errors import StudyError
from fedclust.core.types import Floats
from fedclust.report.chart_axes import Scale, write_text
from fedclust.report.markup import Markup, tag

__all__ = ["Comparison", "compare", "critical_distance", "diagram", "mean_ranks"]

AXIS_LENGTH = 360.0
AXIS_TOP, NAME_HEIGHT, BAR_HEIGHT = 64.0, 22.0, 9.0  # heights: down to the axis, of a name, of a bar
LETTER_WIDTH = 7.2  # approximate
DIAGRAM_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1a1a1a } .small { font-size: 11px; fill: #555 }
line, path { stroke: #1a1a1a; fill: none } .bar { stroke: #b3541e; stroke-width: 4; stroke-linecap: round }
.cd { stroke: #b3541e; stroke-width: 2 }
"""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods by mean rank, best first, and the tests of their differences."""

    names: tuple[str, ...]
    ranks: Floats
    blocks: int
    chi_square: float
    p_value: float  # of Friedman's test
    f_statistic: float  # Iman and Davenport's, less conservative
    f_p_value: float
    p_values: Floats  # of each pair, by Nemenyi
    alpha: float
    distance: float  # the critical one

    def groups(self) -> list[tuple[int, int]]:
        """Return the longest runs of methods, as first and last place, within which no two differ."""
        found: list[tuple[int, int]] = []
        for first in range(len(self.ranks)):
            last = int(np.flatnonzero(self.ranks - self.ranks[first] < self.distance)[-1])
            if last > first and (not found or last > found[-1][1]):
                found.append((first, last))
        return found

    def differ(self, one: str, other: str) -> bool:
        """Whether two methods differ by at least the critical distance."""
        a, b = (self.ranks[self.names.index(name)] for name in (one, other))
        return bool(abs(a - b) >= self.distance)


def compare(scores: Any, names: Sequence[str], *, higher_is_better: bool = True, alpha: float = 0.05) -> Comparison:
    """Rank methods over blocks and test whether they differ."""
    table = np.asarray(scores, np.float64)
    if table.ndim != 2 or table.shape[1] != len(names) or len(set(names)) != len(names):
        raise StudyError("the scores need one column for each method, each with its own name")
    blocks, methods = table.shape
    if methods < 3 or blocks < 2 or not np.isfinite(table).all():
        raise StudyError("a comparison needs at least three methods, two blocks, and a finite score in every cell")
    ranks = mean_ranks(table, higher_is_better=higher_is_better)
    chi, p = _friedman(table)
    f, f_p = _iman_davenport(chi, blocks, methods)
    order = np.argsort(ranks, kind="stable")
    ranks = ranks[order]
    apart = np.abs(ranks[:, None] - ranks) / math.sqrt(methods * (methods + 1) / (6 * blocks))
    return Comparison(
        names=tuple(names[i] for i in order),
        ranks=ranks,
        blocks=blocks,
        chi_square=chi,
        p_value=p,
        f_statistic=f,
        f_p_value=f_p,
        p_values=np.asarray(stats.studentized_range.sf(apart * math.sqrt(2), methods, np.inf), np.float64),
        alpha=alpha,
        distance=critical_distance(methods, blocks, alpha),
    )


def mean_ranks(scores: Any, *, higher_is_better: bool = True) -> Floats:
    """Return the mean rank of each column; the best in a row has rank 1, and ties share.

    >>> mean_ranks([[3, 1, 2], [5, 5, 1]]).tolist()
    [1.25, 2.25, 2.5]
    """
    table = np.asarray(scores, np.float64)
    return np.asarray(stats.rankdata(-table if higher_is_better else table, axis=1).mean(axis=0), np.float64)


def critical_distance(methods: int, blocks: int, alpha: float = 0.05) -> float:
    """Return how far apart mean ranks must be to differ at level alpha (Nemenyi).

    >>> round(critical_distance(4, 14), 2)
    1.25
    """
    q = float(stats.studentized_range.ppf(1 - alpha, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * blocks))


def _friedman(table: Floats) -> tuple[float, float]:
    """Return Friedman's chi square, corrected for ties, and p; scores that tie everywhere do not differ."""
    if (table == table[:, :1]).all():
        return 0.0, 1.0
    found = stats.friedmanchisquare(*table.T)
    return float(found.statistic), float(found.pvalue)


def _iman_davenport(chi: float, blocks: int, methods: int) -> tuple[float, float]:
    """F = (N - 1) chi / (N (k - 1) - chi); infinite if all blocks have the same ranks."""
    left = blocks * (methods - 1) - chi
    if left <= 1e-9 * blocks:
        return math.inf, 0.0
    f = (blocks - 1) * chi / left
    return f, float(stats.f.sf(f, methods - 1, (methods - 1) * (blocks - 1)))


def diagram(compared: Comparison) -> str:
    """Draw a critical-difference diagram as SVG: methods on an axis of mean ranks, with bars over those that tie."""
    k = len(compared.names)
    half = (k + 1) // 2
    side = 60 + LETTER_WIDTH * max(len(name) for name in compared.names)
    width = AXIS_LENGTH + 2 * side
    x = Scale(1, k, side, width - side)
    bars = _bars(compared, x)
    top = AXIS_TOP + 14 + BAR_HEIGHT * len(bars)
    height = top + NAME_HEIGHT * half + 14
    named = [_draw_method(compared, place, x, top, half) for place in range(k)]
    summary = ", ".join(f"{n} {r:.2f}" for n, r in zip(compared.names, compared.ranks, strict=True))
    return tag(
        "svg",
        tag("title", "Mean ranks and the critical distance"),
        tag("desc", f"{summary}; critical distance {compared.distance:.3f} at level {compared.alpha:g}"),
        tag("style", Markup(DIAGRAM_STYLE)),
        tag("rect", width=width, height=height, fill="white"),
        _axis(compared, x),
        bars,
        named,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
    )


def _axis(compared: Comparison, x: Scale) -> list[Markup]:
    k = len(compared.names)
    ticks = [tag("line", x1=x(r), x2=x(r), y1=AXIS_TOP - 6, y2=AXIS_TOP) for r in range(1, k + 1)]
    labels = [write_text(str(r), x(r), AXIS_TOP - 11, "middle") for r in range(1, k + 1)]
    end = x(1 + compared.distance)
    words = f"CD = {compared.distance:.3f} ({compared.blocks} blocks, level {compared.alpha:g})"
    return [
        tag("line", x1=x(1), x2=x(k), y1=AXIS_TOP, y2=AXIS_TOP),
        *ticks,
        *labels,
        tag("line", x1=x(1), x2=end, y1=22, y2=22, class_="cd"),
        tag("line", x1=x(1), x2=x(1), y1=17, y2=27, class_="cd"),
        tag("line", x1=end, x2=end, y1=17, y2=27, class_="cd"),
        write_text(words, x(1), 12, class_="small"),
    ]


def _bars(compared: Comparison, x: Scale) -> list[Markup]:
    drawn = []
    for at, (first, last) in enumerate(compared.groups()):
        y = AXIS_TOP + 10 + BAR_HEIGHT * at
        ends = x(compared.ranks[first]) - 3, x(compared.ranks[last]) + 3
        drawn.append(tag("line", x1=ends[0], x2=ends[1], y1=y, y2=y, class_="bar"))
    return drawn


def _draw_method(compared: Comparison, place: int, x: Scale, top: float, half: int) -> list[Markup]:
    """Draw a method: a line from its mean rank down and to the side, with its name at the end."""
    k, rank = len(compared.names), float(compared.ranks[place])
    left = place < half
    row = place if left else k - 1 - place
    y, at = top + NAME_HEIGHT * row + 10, x(rank)
    end = x.start - 8 if left else x.end + 8
    words = f"{compared.names[place]} {rank:.2f}" if left else f"{rank:.2f} {compared.names[place]}"
    line = tag("path", d=f"M{at:.1f} {AXIS_TOP:.1f} L{at:.1f} {y:.1f} L{end:.1f} {y:.1f}")
    return [line, write_text(words, end - 5 if left else end + 5, y + 4, "end" if left else None)]
