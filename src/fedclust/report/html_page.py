"""The whole report as one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from fedclust.core.counted_nouns import count_noun
from fedclust.report import final_sections, privacy_section, sections
from fedclust.report.markup import Markup, Node, tag
from fedclust.report.run_facts import FinishedRun

# The browser itself blocks any download and any script.
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
SECTION_LINKS = {
    "choice": "Number of clusters",
    "clusters": "Clusters",
    "quality": "Quality",
    "sites": "Sites",
    "course": "Convergence",
    "privacy": "Privacy",
    "leaving": "What left",
    "notes": "Notes",
    "again": "Reproduce",
}


def page(run: FinishedRun) -> str:
    """Return a finished run as HTML."""
    style = files("fedclust.report").joinpath("style.css").read_text(encoding="utf-8")
    title = f"{run.name}: {count_noun(run.analysis['k'], 'cluster')} (fedclust report)"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=CONTENT_SECURITY_POLICY),
        tag("title", title),
        Markup('<link rel="icon" href="data:,">'),
        tag("style", Markup(style)),
    )
    body = tag("body", tag("a", "Skip to main content", href="#choice", class_="skip"), _content(run))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _content(run: FinishedRun) -> Node:
    noted = len(run.analysis["notes"])
    names = {**SECTION_LINKS, "notes": f"Notes ({noted})" if noted else "Notes"}
    if not run.analysis.get("privacy"):
        del names["privacy"]
    links = [tag("li", tag("a", name, href=f"#{place}")) for place, name in names.items()]
    parts = (
        sections.k_choice_section,
        sections.clusters_section,
        sections.quality_section,
        sections.sites_section,
        sections.convergence_section,
        privacy_section.privacy_promise_section,
        final_sections.disclosure_section,
        final_sections.notes_section,
        final_sections.reproduction_section,
    )
    return [
        sections.headline(run),
        tag("nav", tag("ul", links), aria_label="Contents"),
        tag("main", [part(run) for part in parts]),
        tag(
            "footer",
            tag("p", f"Made by fedclust {run.metrics['fedclust']}. This file is complete and needs no network."),
        ),
    ]
