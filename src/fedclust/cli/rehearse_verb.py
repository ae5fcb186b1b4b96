"""`fedclust rehearse`: find out, before a federation starts, what its sites would refuse, where, and how to fix it."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedclust.app.rehearse import Rehearsal, SiteOutcome
    from fedclust.app.rehearsed_site import SiteRefusal

REHEARSAL_WIDTH = 100  # columns of a terminal
EXIT_WOULD_REFUSE = 3
TABLE_HEAD = ("site", "policy", "rules from", "asked", "answered", "refused")
COUNT_HEADINGS = frozenset(TABLE_HEAD[3:])


def add_rehearse_verb(verbs: Any) -> None:
    rehearse = verbs.add_parser(
        "rehearse", help="find out what the sites would refuse, in this process", description=act_rehearse.__doc__
    )
    rehearse.add_argument("study", type=Path, metavar="STUDY", help="a study.toml whose [sites.*] name sources")
    rehearse.add_argument(
        "--site",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="a site's site.toml, or a folder of such files or of kits; may be given several times",
    )
    rehearse.add_argument(
        "--policy",
        metavar="NAME",
        default="standard",
        help="the profile of sites without a file, as enrol would write it (default: standard)",
    )
    rehearse.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    rehearse.set_defaults(act=act_rehearse)


def act_rehearse(chosen: argparse.Namespace) -> int:
    """Run a study in this process under the sites' real policies, and say what each site would refuse.

    Nothing is written to the sites' folders. The exit code is 0 if every site would answer everything, and 3 if not.
    """
    from fedclust.app.rehearsal_sites import read_site_files
    from fedclust.app.rehearse import rehearse
    from fedclust.app.run_folder import study_origin
    from fedclust.app.study import read_study
    from fedclust.site.policy import find_policy

    find_policy(chosen.policy)
    study = read_study(chosen.study, folder=study_origin(chosen.study), served=True)
    found = rehearse(study, read_site_files(chosen.site, study), policy=chosen.policy)
    print(json.dumps(rehearsal_document(found)) if chosen.json else format_rehearsal(found))
    return 0 if found.all_answer else EXIT_WOULD_REFUSE


def format_rehearsal(found: Rehearsal) -> str:
    """Format a rehearsal: a table of sites, every refusal with its remedy, and what would become of the served run."""
    study = found.study
    head = (
        f'Rehearsal of study "{study.name}": {len(study.sites)} sites, aggregation {study.aggregation.mode}, '
        "on copies of the sites' state."
    )
    refusals = list(_refusal_lines(found))
    notes = [_wrap(note, "  ", "  ") for note in found.notes]
    parts = [
        _wrap(head),
        _format_table(found),
        "\n".join(["REFUSALS", *refusals]) if refusals else "",
        "\n".join(["NOTES", *notes]) if notes else "",
        _wrap(_outcome_sentence(found)),
    ]
    return "\n\n".join(part for part in parts if part)


def _wrap(text: str, first: str = "", rest: str = "") -> str:
    return textwrap.fill(
        text,
        REHEARSAL_WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _format_table(found: Rehearsal) -> str:
    lines = [TABLE_HEAD]
    lines += [
        (site.party, site.policy, site.rules_from, f"{site.asked:,}", f"{site.answered:,}", f"{site.refused:,}")
        for site in found.sites
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(TABLE_HEAD))]
    return "\n".join(_table_row(line, widths) for line in lines)


def _table_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    placed = [
        cell.rjust(width) if heading in COUNT_HEADINGS else cell.ljust(width)
        for cell, width, heading in zip(cells, widths, TABLE_HEAD, strict=True)
    ]
    return "  ".join(placed).rstrip()


def _refusal_lines(found: Rehearsal) -> Iterator[str]:
    """Yield each rule that refuses something, with the sites where it refuses the same."""
    by_rule: dict[tuple[str, str, str], list[str]] = {}
    for site in found.sites:
        for refusal in site.refusals:
            place = f"{_place(refusal)}{_leaving(site, refusal)}"
            by_rule.setdefault((refusal.code, f"{refusal.reason}.{_remedy(refusal)}", place), []).append(site.party)
    for (code, why, place), parties in by_rule.items():
        yield _wrap(f"{', '.join(parties)}: {why} [{code}, {place}]", "  ", "      ")


def _leaving(site: SiteOutcome, refusal: SiteRefusal) -> str:
    """Say that a refusal ended the site's part in the run, so that other rules were not tried afterwards."""
    if site.message_of_leaving is None or refusal.code != site.refusals[-1].code:
        return ""
    return "; the site then leaves the run, so its other rules were not tried on later questions"


def _remedy(refusal: SiteRefusal) -> str:
    return f" Fix: {refusal.remedy}." if refusal.remedy else ""


def _place(refusal: SiteRefusal) -> str:
    if refusal.question == "greeting":
        return "before any question"
    more = len(refusal.questions) - 1
    others = f" and {more} other {'question' if more == 1 else 'questions'}" if more else ""
    times = f", {refusal.times:,} times" if refusal.times > 1 else ""
    return f"first at message {refusal.message:,}: {refusal.question}{others}{times}"


def _outcome_sentence(found: Rehearsal) -> str:
    if found.all_answer:
        once = ", once the notes above are followed" if found.notes else ""
        return f"The served run would succeed{once}: every site answers every question."
    refusing = ", ".join(site.party for site in found.sites if site.refusals)
    if found.would_succeed:
        return f"The served run would succeed without {refusing}, as far as the study's quorum allows it."
    sentence = f"The served run would fail: {refusing} would refuse." if refusing else "The served run would fail."
    if found.stopped is not None:
        return f"{sentence} The rehearsal stopped early, so more refusals may follow: {found.stopped}."
    if found.study.cluster.options.get("quorum", "all") == "all":
        return sentence
    return f"{sentence} Without them it stops: {found.lost}."


def rehearsal_document(found: Rehearsal) -> dict[str, Any]:
    """Return the rehearsal as a JSON document for programs."""
    from fedclust.site.approval import digest_study

    return {
        "format": "fedclust-rehearsal",
        "version": 1,
        "study": {"name": found.study.name, "digest": digest_study(found.study.text)},
        "aggregation": found.study.aggregation.mode,
        "all_answer": found.all_answer,
        "would_succeed": found.would_succeed,
        "stopped": found.stopped,
        "lost": found.lost,
        "notes": list(found.notes),
        "sites": {
            site.party: {
                "policy": site.policy,
                "rules_from": site.rules_from,
                "asked": site.asked,
                "answered": site.answered,
                "refused": site.refused,
                "left_at": site.message_of_leaving,
                "refusals": [{**asdict(refusal), "questions": sorted(refusal.questions)} for refusal in site.refusals],
            }
            for site in found.sites
        },
    }
