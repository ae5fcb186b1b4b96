"""`fedclust audit`: runs the known attacks on what the participants of a finished run saw."""

from __future__ import annotations

import argparse
import json
from itertools import groupby
from pathlib import Path
from typing import Any

from fedclust.core.counted_nouns import count_noun


def add_audit_verb(verbs: Any) -> None:
    audit = verbs.add_parser(
        "audit", help="run the known privacy attacks on a finished run", description=act_audit.__doc__
    )
    audit.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    audit.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    audit.set_defaults(act=act_audit)


def act_audit(chosen: argparse.Namespace) -> int:
    """Count the rows that an attacker could recover from what the coordinator and each site saw.

    The audit does not change the run.
    """
    from fedclust.app.audit.replay import replay_run
    from fedclust.app.audit.verdicts import audit_document, judge_run
    from fedclust.app.run_folder import Run

    past = replay_run(Run.find(chosen.run))
    verdicts = judge_run(past)
    found = audit_document(verdicts, past)
    print(json.dumps(found, allow_nan=False) if chosen.json else _format_audit(chosen.run, found))
    return 0


def _format_audit(run: Path, found: dict[str, Any]) -> str:
    lines = [f"{run}: {count_noun(found['sites'], 'site')}, aggregation {found['aggregation']}"]
    for observer, attacks in groupby(found["attacks"], key=lambda one: one["observer"]):
        lines += ["", f"What the {observer} saw"]
        for one in attacks:
            lines.append(f"  {one['attack']:3} {one['title']}: {one['sentence']}")
    return "\n".join([*lines, "", found["verdict"]])
