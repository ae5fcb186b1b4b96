"""The axes and marks that all figures share; the style sheet sets colours, strokes and fonts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedclust.report.markup import Markup, Node, tag
from fedclust.report.wording import format_number

CHART_WIDTH = 400.0
COLOR_COUNT = 8  # clusters beyond that share a colour; their numbers tell them apart


def figure(name: str, height: float, content: Node, *, title: str, description: str, caption: Node) -> Markup:
    """Return a drawing with a caption, and with a description for screen readers."""
    ids = f"{name}-title", f"{name}-description"
    drawing = tag(
        "svg",
        tag("title", title, id=ids[0]),
        tag("desc", description, id=ids[1]),
        content,
        viewBox=f"0 0 {CHART_WIDTH:g} {height:g}",
        role="img",
        aria_labelledby=" ".join(ids),
    )
    return tag("figure", drawing, tag("figcaption", caption), id=name)


@dataclass(frozen=True)
class Scale:
    """Maps values to positions in the drawing."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            low, high, value = (math.log10(v) for v in (self.low, self.high, value))
        else:
            low, high = self.low, self.high
        return self.start + (value - low) / ((high - low) or 1.0) * (self.end - self.start)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return a few round values within a range.

    >>> ticks(0.0, 1.0), ticks(5182.0, 9540.0, 5)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [6000.0, 7000.0, 8000.0, 9000.0])
    """
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(at * step, 12) for at in range(first, last + 1)]


def decades(low: float, high: float) -> list[float]:
    """Return a few powers of ten within a range.

    >>> decades(1e-4, 1.0)
    [0.0001, 0.001, 0.01, 0.1, 1.0]
    """
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, -(-(last - first) // 5))
    return [10.0**at for at in range(first, last + 1) if (last - at) % every == 0]


def frame(
    x: Scale, y: Scale, x_ticks: Sequence[float], y_ticks: Sequence[float], names: tuple[str, str]
) -> list[Markup]:
    """Draw the grid, ticks and names of both axes."""
    left, right, bottom, top = x.start, x.end, y.start, y.end
    grid = [tag("line", x1=left - 4, x2=right, y1=y(v), y2=y(v), class_="grid") for v in y_ticks]
    labels = [write_text(format_number(v), left - 8, y(v) + 4, "end") for v in y_ticks]
    below = [write_text(format_number(v), x(v), bottom + 18, "middle") for v in x_ticks]
    axis = tag("line", x1=left - 4, x2=right, y1=bottom, y2=bottom, class_="axis")
    titles = [
        write_text(names[0], (left + right) / 2, bottom + 36, "middle", "name"),
        write_text(names[1], 4, min(top - 14, 24), class_="name"),
    ]
    return [*grid, axis, *labels, *below, *titles]


def write_text(words: str, x: float, y: float, anchor: str | None = None, class_: str | None = None) -> Markup:
    return tag("text", words, x=x, y=y, text_anchor=anchor, class_=class_)


def draw_path(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    """Draw a line through points."""
    drawn = " ".join(f"{'L' if at else 'M'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(points))
    return tag("path", d=drawn, class_=class_)


def color_class(cluster: int) -> str:
    """Return the CSS class that gives a cluster its colour."""
    return f"c{cluster % COLOR_COUNT}"


def marker(cluster: int, x: float, y: float, radius: float = 11.0) -> Markup:
    """Draw a cluster's number on its colour."""
    label = write_text(str(cluster), x, y + 4.5, "middle", "on")
    return tag("g", tag("circle", cx=x, cy=y, r=radius, class_="fill edge"), label, class_=color_class(cluster))


def chip(cluster: int) -> Markup:
    """Return a cluster's number on its colour, for a line of text."""
    return tag("span", str(cluster), class_=f"chip {color_class(cluster)}")
