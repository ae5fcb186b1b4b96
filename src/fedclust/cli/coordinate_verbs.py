"""`fedclust coordinate`, `resume` and `status`: run a study with remote sites, continue it, and see where it stands."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedclust.cli import run_verb
from fedclust.cli.progress import Progress
from fedclust.core.errors import FedclustError, StudyError, Waiting

if TYPE_CHECKING:
    from fedclust.app.coordinate import RunOptions
    from fedclust.app.run_folder import Run

EXIT_WAITING = 4  # the run is fine and waits for sites


def add_coordinate_verbs(verbs: Any) -> None:
    verb = verbs.add_parser("coordinate", help="run a study with remote sites", description=act_coordinate.__doc__)
    verb.add_argument(
        "study", type=Path, metavar="STUDY", help="a study.toml without data sources; each site sets its own"
    )
    verb.add_argument(
        "--engine",
        required=True,
        metavar="NAME",
        help="the engine that carries the messages; an unknown name prints the list of engines",
    )
    verb.add_argument("--out", type=Path, metavar="DIR", help="the run folder to create (default: runs/NAME)")
    verb.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="an engine setting; may be repeated"
    )
    add_run_options(verb)
    run_verb.add_output_options(verb)
    verb.set_defaults(act=act_coordinate)
    resume = verbs.add_parser("resume", help="continue a run that stopped", description=act_resume.__doc__)
    resume.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    add_run_options(resume)
    run_verb.add_output_options(resume)
    resume.set_defaults(act=act_resume)
    status = verbs.add_parser("status", help="show the progress of a run, site by site", description=act_status.__doc__)
    status.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    status.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    status.set_defaults(act=act_status)


def add_run_options(verb: argparse.ArgumentParser) -> None:
    """Add the options that say how this process works on a run."""
    verb.add_argument(
        "--own",
        type=Path,
        metavar="FILE",
        help="the coordinator's settings file, with its key and the sites' public keys",
    )
    verb.add_argument(
        "--wait", action="store_true", help="keep running until all answers arrive, even if that takes days"
    )
    verb.add_argument(
        "--timeout", type=float, metavar="S", help="suspend a site after this many seconds without an answer"
    )
    verb.add_argument(
        "--without", action="append", default=[], metavar="SITE", help="do not wait for this site; may be repeated"
    )
    verb.add_argument("--log-json", type=Path, metavar="FILE", help="append one JSON line per event to this file")
    verb.add_argument("--metrics", type=int, metavar="PORT", help="serve metrics for Prometheus, on 127.0.0.1 only")


def parse_run_options(chosen: argparse.Namespace) -> RunOptions:
    """Read the options that say how this process works on a run."""
    from fedclust.app.coordinate import RunOptions

    if chosen.timeout is not None and not chosen.timeout > 0:
        raise StudyError("--timeout must be a number of seconds greater than 0")
    without = frozenset(chosen.without)
    return RunOptions(
        chosen.wait, chosen.timeout, without, chosen.log_json, chosen.metrics, coordinator_file=chosen.own
    )


def act_coordinate(chosen: argparse.Namespace) -> int:
    """Run a study whose sites are on other machines and answer questions about their own rows.

    The run folder holds everything needed to continue the run. Exit code 4 means that the run is waiting for sites:
    continue it with 'fedclust resume' when their answers have arrived.
    """
    from fedclust.app.execute import begin_run
    from fedclust.app.run_folder import EngineChoice
    from fedclust.app.study import read_study

    settings = dict(_parse_setting(text) for text in chosen.set)
    options = parse_run_options(chosen)
    study = read_study(chosen.study, served=True)
    folder = chosen.out or Path("runs") / study.name
    run = begin_run(study, folder, engine_choice=EngineChoice(chosen.engine, chosen.own, settings))
    return finish_run(run, options, chosen)


def act_resume(chosen: argparse.Namespace) -> int:
    """Continue a run that was stopped or killed, from its journal. The result is the same as without interruption."""
    from fedclust import load
    from fedclust.app.coordinate import notify_sites_of_end
    from fedclust.app.run_folder import Run

    run = Run.find(chosen.run)
    if run.is_finished:
        notify_sites_of_end(run, chosen.own)
        run_verb.print_result(run, load(run.model_path), chosen)
        return 0
    options = parse_run_options(chosen)
    if run.engine_choice is None:
        options.refuse_for_local_sites()
    return finish_run(run, options, chosen)


def finish_run(run: Run, options: RunOptions, chosen: argparse.Namespace) -> int:
    """Continue a run as far as possible and print the result."""
    from fedclust.app import execute
    from fedclust.app.blind_relay import lead_site

    study = run.study()
    progress = run_verb.make_progress(study, chosen)
    explaining = run_verb.explain_failures if run.engine_choice is None else _explain_served_failures
    try:
        with explaining(run, progress):
            model = execute.resume_run(run, options, progress, while_opening=run_verb.show_opening(progress))
    except Waiting as waiting:
        _print_waiting(run, waiting, chosen)
        return EXIT_WAITING
    if model is not None:
        run_verb.print_result(run, model, chosen)
    elif not chosen.quiet:
        print(f"the run is finished; the result is at the leading site, {lead_site(study)}")
    return 0


@contextmanager
def _explain_served_failures(run: Run, progress: Progress) -> Iterator[None]:
    """If a run with remote sites stops, say which command continues it."""
    try:
        yield
    except Waiting:
        raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; continue with: fedclust resume {run.folder}") from None
    except FedclustError as error:
        restart = f"coordinate STUDY --engine {run.engine_choice.engine if run.engine_choice else None}"
        error.args = (f"{error} ({run_verb.advise_next_step(error, run, restart)})", *error.args[1:])
        raise
    finally:
        progress.end()


def _print_waiting(run: Run, waiting: Waiting, chosen: argparse.Namespace) -> None:
    if chosen.json:
        print(json.dumps({"state": "waiting", "run": str(run.folder), "sites": list(waiting.parties)}))
    elif not chosen.quiet:
        print(f"{waiting}\nThen continue with: fedclust resume {run.folder}")


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise StudyError(f"--set is '{text}'; give a setting as KEY=VALUE")
    return name, value


def act_status(chosen: argparse.Namespace) -> int:
    """Show the progress of a run: each site's last contact, step, bytes and refusals, and whether it is suspended."""
    from fedclust.app.run_folder import Run
    from fedclust.engines import run_status

    run = Run.find(chosen.run)
    found = run_status.read_status(run.status_path)
    if found is None:
        raise StudyError(f"{run.folder} has no status yet, because the first question has not been sent")
    if found["state"] == "running" and not run.is_at_work:
        found["state"] = "interrupted"
    print(json.dumps(found) if chosen.json else format_status(run, found))
    return 0


def format_status(run: Run, found: dict[str, Any]) -> str:
    """Format a status for a terminal."""
    asked = f", step {found['step']} ({found['question']})" if found["question"] else ""
    waiting = f"; waits for {', '.join(found['waiting'])}" if found["waiting"] and found["state"] != "finished" else ""
    head = ["site", "last contact", "step", "answers", "bytes", "refusals", "unanswered", "dropped", ""]
    lines = [head]
    for party, own in found["sites"].items():
        seen = own["seen"].partition(".")[0].replace("T", " ") if own["seen"] else "never"
        lines.append(
            [
                party,
                seen,
                str(own["step"]),
                f"{own['answers']:,}",
                f"{own['bytes']:,}",
                _format_counts(own["refusals"]),
                str(own["silences"]),
                _format_counts(own["dropped"]),
                "suspended" if own["suspended"] else "",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    files = [f"  {name}: {why}" for name, why in found["files"].items()]
    refused = ["Files that were not accepted:", *files] if files else []
    jobs = [f"NVIDIA FLARE started {found['jobs']} jobs in this run."] if found.get("jobs", 1) > 1 else []
    return "\n".join([f"{run.folder}: {found['state']}{asked}{waiting}", *rows, *jobs, *refused])


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items()) or "-"
