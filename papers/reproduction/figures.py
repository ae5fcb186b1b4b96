"""Figures draw an experiment's lines, points and ranks as SVG, with the report's axes."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from fedclust.report import method_ranks
from fedclust.report.chart_axes import (
    CHART_WIDTH,
    Scale,
    color_class,
    decades,
    draw_path,
    figure,
    frame,
    ticks,
    write_text,
)
from fedclust.report.markup import Markup, Node, tag
from fedclust.report.wording import format_number

HEIGHT = 250.0
STYLE = """
svg .series { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round }
svg .mark { fill: var(--c); stroke: none } svg .speck { fill: var(--c); fill-opacity: .5; stroke: none }
"""


def drawn(what: Mapping[str, Any], name: str) -> Markup:
    """A figure of the page."""
    if what.get("kind") == "ranks":
        compared = method_ranks.compare(what["scores"], what["methods"])
        inner = Markup(method_ranks.diagram(compared))
        return tag("figure", inner, tag("figcaption", what["title"]), id=name)
    series = [own for own in what["series"] if own["points"]]
    if not series:
        return tag("p", f"{what['title']}: nothing to draw.")
    x, y = _scales(what, series)
    across = ticks(x.low, x.high, 6)
    up = decades(y.low, y.high) if y.log else ticks(y.low, y.high)
    parts: list[Node] = [frame(x, y, across, up, (what["axes"][0], what["axes"][1]))]
    for at, own in enumerate(series):
        parts.append(_one(own["points"], at, x, y, scatter=what.get("kind") == "points"))
    parts.append(_legend([own["name"] for own in series]))
    height = HEIGHT + 48 + 20 * math.ceil(len(series) / 2)
    told = "; ".join(f"{own['name']}: last value {format_number(own['points'][-1][1])}" for own in series)
    return figure(name, height, parts, title=what["title"], description=f"{told}.", caption=what["title"])


def _scales(what: Mapping[str, Any], series: Sequence[Mapping[str, Any]]) -> tuple[Scale, Scale]:
    xs = [point[0] for own in series for point in own["points"]]
    ys = [point[1] for own in series for point in own["points"]]
    log = bool(what.get("log")) and min(ys) > 0
    low, high = min(ys), max(ys)
    pad = 0.0 if log else (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    if log and high / low < 10:
        low, high = low / 2, high * 2
    wide = (max(xs) - min(xs)) or 1.0
    return (
        Scale(min(xs), min(xs) + wide, 62, CHART_WIDTH - 16),
        Scale(low - pad, high + pad, HEIGHT - 30, 40, log=log),
    )


def _one(points: Sequence[Sequence[float]], at: int, x: Scale, y: Scale, *, scatter: bool) -> Markup:
    here = [(x(a), y(b)) for a, b in points]
    if scatter:
        marks = [tag("circle", cx=a, cy=b, r=1.6, class_="speck") for a, b in here]
        return tag("g", marks, class_=color_class(at))
    few = len(here) <= 12
    marks = [tag("circle", cx=a, cy=b, r=3, class_="mark") for a, b in here] if few else []
    return tag("g", draw_path(here, "series"), marks, class_=color_class(at))


def _legend(names: Sequence[str]) -> list[Markup]:
    found = []
    for at, name in enumerate(names):
        left, top = 62 + (at % 2) * 165, HEIGHT + 34 + 20 * (at // 2)
        line = tag("line", x1=left, x2=left + 18, y1=top, y2=top, class_="series")
        found.append(tag("g", line, write_text(name, left + 24, top + 4), class_=color_class(at)))
    return found


def alone(markup: str) -> str:
    """The drawing of a figure as a separate file."""
    inner = markup[markup.index("<svg") : markup.index("</svg>") + 6]
    if "xmlns=" in inner:
        return inner + "\n"
    style = files("fedclust.report").joinpath("style.css").read_text(encoding="utf-8")
    head, body = inner.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{html.escape(style + STYLE, quote=False)}</style>{body}\n'
