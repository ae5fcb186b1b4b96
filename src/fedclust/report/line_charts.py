"""The line charts of the report: the curve over K, the convergence, and a two-dimensional map of the clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedclust.core.counted_nouns import count_noun
from fedclust.report.chart_axes import (
    CHART_WIDTH,
    Scale,
    color_class,
    decades,
    draw_path,
    figure,
    frame,
    marker,
    ticks,
    write_text,
)
from fedclust.report.markup import Markup, Node, tag
from fedclust.report.wording import format_number, index_name, join_words

ELLIPSE_SHARE = 0.8
ELLIPSE_RADIUS = math.sqrt(-2 * math.log(1 - ELLIPSE_SHARE))  # of a Gaussian's ellipse that holds so many of its rows


def draw_k_curve(found: Mapping[str, Any]) -> Markup:
    """Draw the criterion over K and mark the choice."""
    name, points = index_name(found["name"]), _points(found["curve"])
    every = [value for _, value in points if math.isfinite(value)]
    ks = [k for k, _ in points]
    low, high = min(every, default=0.0), max(every, default=1.0)
    pad = (high - low) * 0.1 or abs(high) * 0.1 or 1.0
    x, y = Scale(ks[0], max(ks[-1], ks[0] + 1), 72, CHART_WIDTH - 20), Scale(low - pad, high + pad, 232, 52)
    better = "lower is better" if found["best"] == "min" else "higher is better"
    drawn: list[Node] = [
        frame(
            x,
            y,
            _thin_ticks(ks),
            ticks(low - pad, high + pad, 6),
            ("number of clusters K", f"{name}, {better}"),
        )
    ]
    at = x(found["k"])
    drawn.append(tag("line", x1=at, x2=at, y1=52, y2=232, class_="chosen-line"))
    here = [(x(k), y(v)) for k, v in points if math.isfinite(v)]
    drawn.append(draw_path(here, "curve"))
    drawn += [tag("circle", cx=a, cy=b, r=3.5, class_="dot") for a, b in here]
    own = dict(points).get(found["k"], math.nan)
    if math.isfinite(own):
        drawn.append(tag("circle", cx=at, cy=y(own), r=8, class_="ring"))
    side, gap = ("end", -8) if at > CHART_WIDTH * 0.6 else ("start", 8)
    drawn.append(write_text(f"K = {found['k']} chosen", at + gap, 48, side, "strong"))
    values = "; ".join(f"{k}: {format_number(v)}" for k, v in points)
    summary = f"{found['why']} Values of {name} by K: {values}."
    caption = ["The value at each K that was examined. The circle and the dotted line mark the choice."]
    return figure(
        "k-curve",
        272,
        drawn,
        title=f"Choice of K: {count_noun(found['k'], 'cluster')}",
        description=summary,
        caption=caption,
    )


def _points(curve: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    return [(point["k"], float(point["value"])) for point in curve]


def _thin_ticks(values: Sequence[int], most: int = 12) -> list[int]:
    """Return the values to write below an axis."""
    return list(values)[:: -(-len(values) // most)]


def draw_convergence(found: Mapping[str, Any], moving: str) -> Markup:
    """Draw how far the centres (or distances) moved in each round, on a logarithmic scale, down to the tolerance."""
    shifts = [float(shift) for shift in found["shifts"]]
    tol = found["tol"]
    above = [shift for shift in shifts if shift > 0]
    low = min([*above, *([tol] if tol else [])], default=0.1)
    high = max([*above, *([tol] if tol else [])], default=1.0)
    y = Scale(low / 2, max(high, low * 10) * 2, 232, 44, log=True)
    x = Scale(1, max(len(shifts), 2), 58, CHART_WIDTH - 20)
    drawn: list[Node] = [
        frame(x, y, _iteration_ticks(len(shifts)), decades(y.low, y.high), ("round", f"movement of the {moving}"))
    ]
    if tol:
        drawn.append(tag("line", x1=x.start, x2=x.end, y1=y(tol), y2=y(tol), class_="chosen-line"))
        drawn.append(write_text(f"tolerance {format_number(tol)}", x.start + 4, y(tol) - 6, class_="strong"))
    here = [(x(at), y(max(shift, y.low))) for at, shift in enumerate(shifts, 1)]
    drawn.append(draw_path(here, "curve"))
    if len(here) <= 60:
        drawn += [tag("circle", cx=a, cy=b, r=2.5, class_="dot") for a, b in here]
    first, last = (format_number(shifts[at], 2) for at in (0, -1)) if shifts else ("0", "0")
    rounds = count_noun(len(shifts), "round")
    summary = f"The {moving} moved by {first} in the first of {rounds} and by {last} in the last."
    caption = f"Total movement of the {moving} in each round, on a logarithmic scale."
    return figure("convergence", 272, drawn, title=f"Convergence in {rounds}", description=summary, caption=caption)


def _iteration_ticks(rounds: int) -> list[float]:
    return [1.0] if rounds < 2 else sorted({1.0, *(t for t in ticks(1, rounds, 5) if t >= 1 and t == int(t))})


def draw_map(found: Mapping[str, Any], sizes: Sequence[int | None] | None) -> Markup:
    """Draw the numbered centres in the plane, with an ellipse for the rows nearest to each, where these are known."""
    known = [mean is not None and (sizes is None or (sizes[c] or 0) >= 3) for c, mean in enumerate(found["means"])]
    shapes = [
        _Ellipse(mean, covariance) if shown else None
        for mean, covariance, shown in zip(found["means"], found["covariances"], known, strict=True)
    ]
    reach = [shape for shape in shapes if shape is not None]
    across = [c[0] for c in found["centers"]] + [edge for s in reach for edge in (s.left, s.right)]
    up = [c[1] for c in found["centers"]] + [edge for s in reach for edge in (s.low, s.high)]
    left, right, low, high = min(across), max(across), min(up), max(up)
    unit = _unit(right - left, high - low)
    wide, tall = CHART_WIDTH - 84, max(170.0, min(380.0, (high - low) * unit + 50))
    x = Scale((left + right) / 2 - wide / 2 / unit, (left + right) / 2 + wide / 2 / unit, 58, 58 + wide)
    y = Scale((low + high) / 2 - tall / 2 / unit, (low + high) / 2 + tall / 2 / unit, 34 + tall, 34)
    shares = [f"{part:.0%}" for part in found["shares"]]
    names = f"direction 1 ({shares[0]} of the variance)", f"direction 2 ({shares[1]})"
    drawn: list[Node] = [frame(x, y, ticks(x.low, x.high, 5), ticks(y.low, y.high, 5), names)]
    for cluster, shape in enumerate(shapes):
        if shape is not None:
            a, b = x(shape.x), y(shape.y)
            turn = f"translate({a:.1f} {b:.1f}) rotate({-shape.angle:.1f})"
            drawn.append(
                tag(
                    "ellipse",
                    rx=shape.along * unit,
                    ry=shape.across * unit,
                    transform=turn,
                    class_=f"area {color_class(cluster)}",
                )
            )
    drawn += [marker(cluster, x(a), y(b)) for cluster, (a, b) in enumerate(found["centers"])]
    caption = [
        "Each number is a cluster's centre. ",
        f"The ellipse around it covers about {ELLIPSE_SHARE:.0%} of its rows. ",
        "The two directions are those in which the rows vary most, in the scale that the method used. ",
        _describe_directions(found),
    ]
    summary = (
        "; ".join(
            f"cluster {cluster} at {format_number(a, 2)}, {format_number(b, 2)}"
            for cluster, (a, b) in enumerate(found["centers"])
        )
        + f". {_describe_nearest(found['centers'])}"
    )
    title = f"Map of {count_noun(len(shapes), 'cluster')} in two directions"
    return figure("map", tall + 78, drawn, title=title, description=summary, caption=caption)


def _unit(wide: float, tall: float) -> float:
    """Return the drawing units for one unit of the data, the same in both directions."""
    rooms = [(CHART_WIDTH - 84 - 50) / wide if wide else math.inf, 330 / tall if tall else math.inf]
    return min(rooms) if math.isfinite(min(rooms)) else 1.0


class _Ellipse:
    """The ellipse of a covariance: half-axes, angle and extent."""

    def __init__(self, mean: Sequence[float], covariance: Sequence[Sequence[float]]) -> None:
        (xx, xy), (_, yy) = covariance
        half, apart = (xx + yy) / 2, math.hypot((xx - yy) / 2, xy)
        self.x, self.y = mean
        self.along, self.across = (ELLIPSE_RADIUS * math.sqrt(max(v, 0.0)) for v in (half + apart, half - apart))
        self.angle = math.degrees(math.atan2(2 * xy, xx - yy) / 2)
        reach_x, reach_y = (ELLIPSE_RADIUS * math.sqrt(max(v, 0.0)) for v in (xx, yy))
        self.left, self.right = self.x - reach_x, self.x + reach_x
        self.low, self.high = self.y - reach_y, self.y + reach_y


def _describe_directions(found: Mapping[str, Any]) -> str:
    """Say which columns the directions represent."""
    summary = []
    for at, axis in enumerate(found["axes"], 1):
        order = sorted(range(len(axis)), key=lambda i: -abs(axis[i]))[:3]
        parts = [f"{'more' if axis[i] > 0 else 'less'} {found['columns'][i]}" for i in order if abs(axis[i]) > 0.25]
        if parts:
            summary.append(f"{'To the right' if at == 1 else 'Upwards'}: {join_words(parts)}.")
    if found["left_out"]:
        summary.append(f"The map uses the {len(found['columns'])} columns that vary most.")
    return " ".join(summary)


def _describe_nearest(centers: Sequence[Sequence[float]]) -> str:
    pairs = [(math.dist(a, b), i, j) for i, a in enumerate(centers) for j, b in enumerate(centers) if i < j]
    if not pairs:
        return ""
    _, i, j = min(pairs)
    return f"Clusters {i} and {j} are the closest on the map."
