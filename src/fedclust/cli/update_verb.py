"""`fedclust update`: updates a finished run's model with the rows that its sites have now."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedclust.cli import coordinate_verbs, run_verb


def add_update_verb(verbs: Any) -> None:
    verb = verbs.add_parser("update", help="update a finished run with new rows", description=act_update.__doc__)
    verb.add_argument("run", type=Path, metavar="RUN", help="the run folder of the previous round")
    verb.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="the run folder to create (default: next to RUN, with the round's number)",
    )
    coordinate_verbs.add_run_options(verb)
    run_verb.add_output_options(verb)
    verb.set_defaults(act=act_update)


def act_update(chosen: argparse.Namespace) -> int:
    """Update a finished run's model with the rows that its sites have now. The update is a new run on the same engine.

    SummaryClustering uses only the rows that it has not used yet, so a table may contain earlier rows too. FCAC learns
    from all rows of the table again. Other methods treat all rows of the table as new.
    """
    from fedclust.app.execute import begin_next_round
    from fedclust.app.run_folder import Run

    before = Run.find(chosen.run)
    options = coordinate_verbs.parse_run_options(chosen)
    if before.engine_choice is None:
        options.refuse_for_local_sites()
    return coordinate_verbs.finish_run(begin_next_round(before, chosen.out), options, chosen)
