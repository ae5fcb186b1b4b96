"""`fedclust run`: runs a study in one process; also what the other verbs share with it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedclust.cli.progress import Progress
from fedclust.core.errors import FedclustError, RunFailed

if TYPE_CHECKING:
    from fedclust.app.run_folder import Run
    from fedclust.models import Model


def add_run_verb(verbs: Any) -> None:
    run = verbs.add_parser("run", help="run a study in this process", description=act_run.__doc__)
    run.add_argument("study", type=Path, metavar="STUDY", help="a study.toml")
    run.add_argument(
        "--out", type=Path, metavar="DIR", help="the run folder to create (default: runs/NAME, the study's name)"
    )
    add_output_options(run)
    run.set_defaults(act=act_run)


def add_output_options(verb: argparse.ArgumentParser) -> None:
    """Add the options that say how much is printed."""
    verb.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    verb.add_argument("--quiet", action="store_true", help="print errors only: no progress and no summary")


def act_run(chosen: argparse.Namespace) -> int:
    """Run a study in this process. If you stop it with Ctrl-C, 'fedclust resume' continues it with the same result."""
    from fedclust.app import execute
    from fedclust.app.run_folder import study_origin
    from fedclust.app.study import read_study

    origin = study_origin(chosen.study) or chosen.study.parent
    study = read_study(chosen.study, folder=origin)
    progress = make_progress(study, chosen)
    with show_opening(progress):
        run = execute.begin_run(study, chosen.out or Path("runs") / study.name, origin=origin)
    with explain_failures(run, progress):
        model = execute.resume_run(run, watch=progress)
    if model is not None:
        print_result(run, model, chosen)
    return 0


def make_progress(study: Any, chosen: argparse.Namespace) -> Progress:
    """Create a progress display that knows when the study's method stops."""
    settings = study.make_estimator().get_params()
    choosing = study.cluster.choice is not None
    progress = Progress(tol=settings.get("tol"), max_iter=settings.get("max_iter", 1), choosing=choosing)
    progress.is_silent = chosen.quiet or (chosen.json and not progress.has_bar)
    return progress


@contextmanager
def show_opening(progress: Progress) -> Iterator[None]:
    """Show that the sites' rows are being read."""
    progress.show_opening()
    try:
        yield
    except BaseException:
        progress.end()
        raise


@contextmanager
def explain_failures(run: Run, progress: Progress) -> Iterator[None]:
    """If a run in this process stops, say how far it got and which command continues it."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{_describe_stop(progress)}; continue with: fedclust resume {run.folder}") from None
    except FedclustError as error:
        if run.folder.exists():
            error.args = (f"{error} ({_describe_stop(progress)}; {advise_next_step(error, run, 'run STUDY')})",)
        raise
    finally:
        progress.end()


def advise_next_step(error: FedclustError, run: Run, restart: str) -> str:
    """Name the command to use once a failure is fixed; `restart` starts another run if this one would fail again."""
    if isinstance(error, RunFailed) and error.must_restart:
        return f"then start again with: fedclust {restart} --out DIR"
    return f"once fixed, continue with: fedclust resume {run.folder}"


def _describe_stop(progress: Progress) -> str:
    return f"stopped after {progress.progress_text}" if progress.round else "stopped before the first round"


def print_result(run: Run, model: Model, chosen: argparse.Namespace) -> None:
    """Print the result on stdout."""
    from fedclust.app.analysis import read_model_facts
    from fedclust.cli import result_summary

    facts = read_model_facts(model)
    if chosen.json:
        print(json.dumps(result_summary.result_document(run, facts, run.metrics), allow_nan=False))
    elif not chosen.quiet:
        print(result_summary.format_summary(run, facts, run.metrics))
