"""The privacy section of the report: the guarantee of differential privacy and the effect of its noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedclust.report.chart_axes import CHART_WIDTH, Scale, draw_path, figure, frame, ticks
from fedclust.report.markup import Markup, Node, table, tag
from fedclust.report.run_facts import FinishedRun
from fedclust.report.sections import absence_note, section


def privacy_promise_section(run: FinishedRun) -> Markup | None:
    """Return the section on privacy if the run has an epsilon."""
    found = run.analysis.get("privacy")
    if not found:
        return None
    if (missing := absence_note(found)) is not None:
        return section("privacy", "Privacy and its cost", missing)
    summary: list[Node] = [
        tag(
            "p",
            "The answers that left the sites are differentially private for each single row, with epsilon = "
            f"{found['epsilon']:g} at delta = {found['delta']:g}. Computed from the privacy loss distribution, "
            f"epsilon is {found['reported']:.3g}. {found['meaning']}",
        )
    ]
    if found["warning"]:
        summary.append(tag("p", tag("strong", found["warning"])))
    relied = found["honest"]
    summary.append(
        tag(
            "p",
            "Each site added the full noise to its own answers."
            if relied == 1
            else f"The sites shared the noise. The guarantee holds if at least {relied} of them keep their share "
            "secret.",
        )
    )
    curve = found["curve"]
    shown: Node = [_curve(curve, float(found["epsilon"])), _table(curve)] if curve else None
    return section("privacy", "Privacy and its cost", summary, shown)


def _curve(points: list[Mapping[str, Any]], epsilon: float) -> Markup:
    lowest, highest = points[0]["epsilon"], points[-1]["epsilon"]
    x, y = Scale(lowest, highest, 58, CHART_WIDTH - 20, log=True), Scale(0.0, 1.0, 232, 44)
    drawn: list[Node] = [
        frame(
            x,
            y,
            [p["epsilon"] for p in points],
            ticks(0.0, 1.0, 5),
            ("epsilon", "agreement with the result without noise (ARI)"),
        )
    ]
    here = [(x(p["epsilon"]), y(max(0.0, p["mean"]))) for p in points]
    drawn.append(draw_path(here, "curve"))
    drawn += [tag("circle", cx=a, cy=b, r=3, class_="dot") for a, b in here]
    if lowest <= epsilon <= highest:
        drawn.append(tag("line", x1=x(epsilon), x2=x(epsilon), y1=44, y2=232, class_="chosen-line"))
    values = "; ".join(f"{p['epsilon']:g}: {p['mean']:.3f}" for p in points)
    caption = (
        "Expected agreement between clusters with noise and clusters without noise (ARI: adjusted Rand index), on "
        "simulated rows drawn from this model."
    )
    return figure(
        "utility", 272, drawn, title="The effect of noise", description=f"By epsilon: {values}.", caption=caption
    )


def _table(points: list[Mapping[str, Any]]) -> Markup:
    rows: list[list[Node]] = [[f"{p['epsilon']:g}", f"{p['mean']:.3f}", f"{p['least']:.3f}"] for p in points]
    return table(["epsilon", "mean ARI", "lowest"], rows, caption="Expected agreement by epsilon", class_="numbers")
