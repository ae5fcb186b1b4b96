"""The bar charts of the report: cluster sizes, the clusters at each site, and how clearly rows belong to a cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedclust.core.counted_nouns import count_noun
from fedclust.report.chart_axes import CHART_WIDTH, Scale, color_class, figure, marker, write_text
from fedclust.report.markup import Markup, Node, tag
from fedclust.report.wording import format_number, format_share

MAX_SITE_BARS = 40  # with a bar; the table has all
HIDDEN_COUNT_WIDTH = 22.0  # the width of a count that a site hides


def draw_sizes(
    rows: Sequence[int | None], whole: int, weights: Sequence[float] | None, *, earlier: bool = False
) -> Markup:
    """Draw how many of all rows are nearest to each centre; for fuzzy clusters, also their weights.

    None stands for a cluster whose size is not known. `earlier` sizes are those from when sums were opened last.
    """
    most = max((own for own in rows if own is not None), default=1) or 1
    drawn: list[Node] = []
    for cluster, own in enumerate(rows):
        top = 12 + 34 * cluster
        long = (CHART_WIDTH - 150) * (own or 0) / most
        bar = tag("rect", x=38, y=top, width=max(long, 1.0), height=22, rx=3, class_=f"fill {color_class(cluster)}")
        drawn += [
            bar,
            marker(cluster, 16, top + 11),
            write_text(_describe_size(own, whole), 46 + long, top + 16),
        ]
    summary = "; ".join(f"cluster {c}: {_describe_size(own, whole)}" for c, own in enumerate(rows))
    counted = sum(own or 0 for own in rows)
    counted_by = "Rows of each cluster when its sums were opened last" if earlier else "Rows by nearest centre"
    caption = f"{counted_by}, {whole:,} in total."
    if counted != whole:
        caption += (
            f" The sizes add up to {counted:,}, because not all of them were counted in the same iteration. The notes "
            "explain why."
        )
    if weights:
        shown = ", ".join(f"{c}: {format_number(w)}" for c, w in enumerate(weights))
        caption += f" Fuzzy weights (the sum of memberships to the power m): {shown}."
    title = f"Sizes of {count_noun(len(rows), 'cluster')}"
    return figure("sizes", 12 + 34 * len(rows), drawn, title=title, description=f"{summary}.", caption=caption)


def _describe_size(own: int | None, whole: int) -> str:
    return "not known" if own is None else f"{own:,} ({format_share(own, whole)})"


def draw_composition(sites: Mapping[str, Sequence[int | None]]) -> Markup:
    """Draw a stacked bar of clusters for each site; hidden counts are hatched and not to scale."""
    shown = list(sites.items())[:MAX_SITE_BARS]
    drawn: list[Node] = [_hatch()]
    for at, (site, counts) in enumerate(shown):
        top = 16 + 52 * at
        drawn += [
            write_text(site, 2, top + 2, class_="strong"),
            write_text(_describe_site_rows(counts), CHART_WIDTH - 2, top + 2, "end"),
        ]
        drawn.append(_bar(counts, top + 9))
    rest = (
        f" The figure shows the first {len(shown)} of {len(sites)} sites; the table lists all of them."
        if len(sites) > MAX_SITE_BARS
        else ""
    )
    hidden = any(n is None for own in sites.values() for n in own)
    note = (
        " Hatched areas are counts that a site hides, or that would reveal a hidden count; they are not to scale."
        if hidden
        else ""
    )
    summary = "; ".join(f"{site}: {_describe_counts(counts)}" for site, counts in shown)
    caption = f"Share of each site's rows by nearest centre. The numbers are the cluster numbers.{note}{rest}"
    return figure(
        "composition",
        10 + 52 * len(shown),
        drawn,
        title="Clusters at each site",
        description=f"{summary}.{rest}",
        caption=caption,
    )


def _bar(counts: Sequence[int | None], top: float) -> Markup:
    known = [n or 0 for n in counts]
    hidden = sum(n is None for n in counts)
    covered = min(HIDDEN_COUNT_WIDTH, 0.6 * CHART_WIDTH / max(hidden, 1))
    room = CHART_WIDTH - 2 - covered * hidden
    left, parts = 1.0, list[Node]()
    for cluster, own in enumerate(counts):
        wide = covered if own is None else room * own / (sum(known) or 1)
        if wide <= 0:
            continue
        place = {"x": left, "y": top, "width": wide, "height": 24.0}
        parts.append(tag("rect", class_=f"fill edge {color_class(cluster)}", **place))
        if own is None:
            parts.append(tag("rect", class_="covered", **place))
        if wide >= 9 + 7 * len(str(cluster)):
            label = write_text(str(cluster), left + wide / 2, top + 16.5, "middle", "under" if own is None else "on")
            parts.append(tag("g", label, class_=color_class(cluster)))
        left += wide
    return tag("g", parts)


def _hatch() -> Markup:
    lines = tag("path", d="M-2 2 l4 -4 M0 8 l8 -8 M6 10 l4 -4", class_="hatch-line")
    ground = tag("rect", width=8.0, height=8.0, class_="hatch-ground")
    pattern = tag("pattern", ground, lines, id="hatch", width=8.0, height=8.0, patternUnits="userSpaceOnUse")
    return tag("defs", pattern)


def _describe_site_rows(counts: Sequence[int | None]) -> str:
    hidden = sum(n is None for n in counts)
    known = sum(n for n in counts if n is not None)
    return count_noun(known, "row") if not hidden else f"{count_noun(known, 'row')} shown, {hidden} hidden"


def _describe_counts(counts: Sequence[int | None]) -> str:
    return ", ".join(f"{'hidden' if n is None else f'{n:,}'} in cluster {c}" for c, n in enumerate(counts))


def draw_fuzziness(coefficient: float | None, entropy: float, clusters: int) -> Markup:
    """Show where the partition lies between equal memberships and membership in one cluster only."""
    most = math.log(clusters) if clusters > 1 else 1.0
    gauges = [] if coefficient is None else [("Partition coefficient", coefficient, 1 / clusters, 1.0)]
    gauges.append(("Partition entropy", entropy, most, 0.0))
    drawn: list[Node] = []
    summary = []
    for at, (name, value, vague, clear) in enumerate(gauges):
        top = 24 + 70 * at
        x = Scale(vague, clear, 12, CHART_WIDTH - 12)
        place = min(max(x(value), 12), CHART_WIDTH - 12)
        drawn += [
            write_text(f"{name} {format_number(value, 3)}", 2, top - 6, class_="strong"),
            tag("rect", x=12, y=top + 6, width=CHART_WIDTH - 24, height=8, rx=4, class_="track"),
            tag("rect", x=12, y=top + 6, width=max(place - 12, 0.0), height=8, rx=4, class_="soft"),
            tag("circle", cx=place, cy=top + 10, r=7, class_="pointer"),
            write_text(f"{format_number(vague, 3)}: vague", 2, top + 34),
            write_text(f"{format_number(clear, 3)}: clear", CHART_WIDTH - 2, top + 34, "end"),
        ]
        summary.append(
            f"{name} is {format_number(value, 3)}, between {format_number(vague, 3)} (vague) and "
            f"{format_number(clear, 3)} (clear)"
        )
    caption = "Vague: every row belongs equally to all clusters. Clear: every row belongs to one cluster only."
    return figure(
        "fuzziness",
        70 * len(gauges),
        drawn,
        title="How clearly rows belong to a cluster",
        description=f"{'. '.join(summary)}.",
        caption=caption,
    )
