"""`fedclust site answer`: lets a site take part through files alone, without a network connection."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedclust.core.errors import StudyError

if TYPE_CHECKING:
    from fedclust.app.run_folder import Run
    from fedclust.engines.files.files_site import InboxReport


def add_answer_verb(acts: Any) -> None:
    answer = acts.add_parser("answer", help="answer the message files of a coordinator", description=act_answer.__doc__)
    answer.add_argument("inbox", type=Path, metavar="INBOX", help="the folder with messages from the coordinator")
    answer.add_argument("outbox", type=Path, metavar="OUTBOX", help="the folder to write replies to")
    answer.add_argument("--site", type=Path, required=True, metavar="FILE", help="this site's site.toml")
    answer.add_argument(
        "--data", type=Path, metavar="FILE", help="this site's data file (default: the source named in the --site file)"
    )
    answer.add_argument("--study", type=Path, metavar="FILE", help="the only study that this site answers")
    answer.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="the run folder, if this site leads a blind run (default: in the state folder)",
    )
    answer.add_argument("--wait", action="store_true", help="keep running and answer messages until the run ends")
    answer.add_argument("--poll", type=float, default=1.0, metavar="S", help="seconds between checks (default: 1)")
    answer.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    answer.set_defaults(act=act_answer)


def act_answer(chosen: argparse.Namespace) -> int:
    """Read a coordinator's messages and write replies, under this site's own rules. No network connection is used.

    Invalid files are listed with the reason and left as they are. Valid ones are still answered.
    """
    from fedclust.app.blind_lead import BlindLead
    from fedclust.app.serve import open_session
    from fedclust.engines.files.files_site import FileTransport
    from fedclust.site.site_file import read_site_file

    if not chosen.poll > 0:
        raise StudyError("--poll must be a number of seconds greater than 0")
    site = read_site_file(chosen.site)
    with open_session(site, data=chosen.data, study=chosen.study) as session:
        transport = FileTransport.for_site(session, site, chosen.inbox, chosen.outbox)
        lead = BlindLead(session, site, chosen.inbox, chosen.outbox, chosen.out)
        printed: set[tuple[str, str]] = set()
        ended = False
        while True:
            report = transport.answer_inbox()
            ended |= report.has_run_ended
            if chosen.wait and not ended:
                report.all_ended = (
                    False  # messages of an earlier, finished run may still be there; the next round's will come
                )
            refusals = [session.refusals.popleft() for _ in range(len(session.refusals))]  # said once
            _print_report(report, refusals, chosen, printed)
            for done in filter(None, map(lead.resume_script, transport.runs)):
                _print_led_run(done, chosen, printed)
            if not chosen.wait or report.all_ended:
                return 0
            time.sleep(chosen.poll)


def _print_led_run(run: Run, chosen: argparse.Namespace, printed: set[tuple[str, str]]) -> None:
    if not chosen.json and ("led", run.name) not in printed:
        printed.add(("led", run.name))
        print(f"this site led the run; the result is in {run.folder}")


def _inbox_document(report: InboxReport) -> dict[str, Any]:
    return {
        "answered": report.answered,
        "written": report.written,
        "known": report.answered_before,
        "refused": report.refused,
        "unfinished": report.incomplete,
        "over": report.all_ended,
    }


def _print_report(
    report: InboxReport, refusals: list[str], chosen: argparse.Namespace, printed: set[tuple[str, str]]
) -> None:
    from fedclust.engines.files.message_file import escape_unprintable

    if chosen.json:
        if report.answered or not chosen.wait:
            print(json.dumps(_inbox_document(report)))
        return
    for name, why in {**report.refused, **report.incomplete}.items():
        if (name, why) not in printed:
            printed.add((name, why))
            print(f"{escape_unprintable(name)}: {why}", file=sys.stderr)
    if report.answered_before and not chosen.wait:
        print(f"already answered: {', '.join(map(escape_unprintable, report.answered_before))}", file=sys.stderr)
    for why in refusals:
        print(f"This site refused: {why}", file=sys.stderr)  # shown at the site only
    if report.answered or not chosen.wait:
        count = len(report.answered)
        what = "nothing new to answer" if not count else f"{count} message{'s' * (count > 1)} answered"
        where = f"; now copy the files in {chosen.outbox} to the coordinator" if report.written else ""
        print(f"{what}{where}")
    if report.all_ended:
        print("the run is finished")
