"""The last sections of the report: what left each site, the notes, and how to reproduce the run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedclust.core.counted_nouns import count_noun
from fedclust.report.markup import Markup, table, tag
from fedclust.report.run_facts import FinishedRun
from fedclust.report.sections import absence_note, section
from fedclust.report.wording import format_bytes

AGGREGATION_NOTES = {
    "plain": "Aggregation was plain: the coordinator saw each site's own contribution to a sum, not only the sum. "
    "Protect the run folder, and above all its journal, as you would protect the sites' own sums.",
    "secure": "Aggregation was secure: where answers were summed, the coordinator saw only the sum over all sites. "
    "Exact sums over few rows can still reveal a row; fedclust audit checks for that.",
    "blind": "Aggregation was blind: the coordinator saw neither questions nor sums. It saw which sites were asked, "
    "the lengths of messages, and times. The leading site saw the sums over all sites.",
}


def disclosure_section(run: FinishedRun) -> Markup:
    """List what left each site, by question and by site, with the reason declared for each field."""
    found = run.analysis["left"]
    if (missing := absence_note(found)) is not None:
        return section("leaving", "What left each site", missing)
    total = sum(own["bytes"] for own in found["sites"].values())
    answers = sum(own["messages"] for own in found["sites"].values())
    summary = (
        f"Rows stayed at their sites. The sites sent {count_noun(answers, 'answer')} to "
        f"{count_noun(len(found['questions']), 'kind')} of question, {format_bytes(total)} in total. Each site "
        "recorded every answer in its own ledger before sending it."
    )
    floors = (
        "A floor is a minimum number of rows. A site with fewer rows than its floor sends nothing, and a site hides "
        "counts below its floor."
    )
    questions = tag("ul", [_question(question) for question in found["questions"]], class_="questions")
    by_site = [
        [party, f"{own['messages']:,}", format_bytes(own["bytes"]), _rule(own)] for party, own in found["sites"].items()
    ]
    return section(
        "leaving",
        "What left each site",
        tag("p", summary, _repeated_answers_note(run)),
        tag("p", AGGREGATION_NOTES[run.analysis.get("aggregation", "plain")]),
        table(["site", "answers", "bytes", "its policy"], by_site, caption="Answers by site", class_="numbers"),
        tag("p", floors) if any(own["min_rows"] for own in found["sites"].values()) else None,
        tag("h3", "Answers by question"),
        tag("p", "The purpose of every field, as declared in the code."),
        questions,
    )


def _question(question: Mapping[str, Any]) -> Markup:
    reasons = [tag("li", tag("b", field["name"]), f": {field['why'] or 'not stated'}") for field in question["fields"]]
    why = tag("ul", reasons) if reasons else tag("p", "only a confirmation")
    sizes = sorted(set(question["bytes"].values()))
    shown = format_bytes(sizes[0]) if len(sizes) == 1 else f"{format_bytes(sizes[0])} to {format_bytes(sizes[-1])}"
    kinds = {field["leaves"] for field in question["fields"]}
    way = "each site's own answer" if "each" in kinds else "sums over sites" if kinds else "without content"
    times = "once" if question["times"] == 1 else f"{question['times']:,} times"
    return tag("li", tag("code", question["name"]), tag("p", f"{way}, {times}, {shown} from each site"), why)


def _rule(own: Mapping[str, Any]) -> str:
    return f"{own['policy']}, floor {own['min_rows']}" if own["min_rows"] else str(own["policy"])


def _repeated_answers_note(run: FinishedRun) -> str:
    """Report answers that were sent twice because the run was interrupted; the ledgers count both."""
    once = sum(own["messages"] for own in run.analysis["left"]["sites"].values())
    all_of_them = sum(own["messages"] for own in run.metrics["sites"].values())
    if all_of_them <= once:
        return ""
    return f" After an interruption, {count_noun(all_of_them - once, 'answer was', 'answers were')} sent a second time."


def notes_section(run: FinishedRun) -> Markup:
    """List what a reader should know before using the result."""
    found = run.analysis["notes"]
    if not found:
        return section("notes", "Notes", tag("p", "There are no notes: no site was missing, and nothing was left out."))
    return section("notes", "Notes", tag("ul", [tag("li", note) for note in found]))


def reproduction_section(run: FinishedRun) -> Markup:
    """Give the command, the versions, the seed and the study itself."""
    metrics = run.metrics
    folder = Path(run.folder).name
    line = f"fedclust run {shlex.quote(folder + '/study.toml')} --out {shlex.quote(folder + '-again')}"
    facts = {
        "version": f"fedclust {metrics['fedclust']}",
        "kernels": "compiled" if metrics["kernels"] == "c" else "NumPy (slower, with the same result, bit for bit)",
        "seed": str(run.analysis["seed"]),
        "scale": run.analysis["scale"],
        "missing values": run.analysis["missing"],
        "started": _format_time(metrics["started"]),
        "finished": _format_time(metrics["finished"]),
    }
    listed = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()]
    return section(
        "again",
        "How to reproduce the run",
        tag("p", f"With fedclust {metrics['fedclust']}, the same study on the same rows {_rerun_result(run)}:"),
        tag("pre", tag("code", line), tabindex="0"),
        tag("dl", listed, class_="facts"),
        tag("h3", "The study"),
        tag("pre", tag("code", run.study), tabindex="0"),
    )


def _rerun_result(run: FinishedRun) -> str:
    if run.analysis.get("privacy"):
        return "draws new noise and spends more of the sites' privacy budgets"
    return "gives the same result, bit for bit"


def _format_time(stamp: str) -> str:
    """Format a time for people."""
    return stamp.replace("T", " ").replace("+00:00", " UTC")
