"""The one way to begin a run and the one way to resume it, whether its sites are local or remote.

`begin_run` and `begin_next_round` create a run folder once the study passed all checks; they ask the sites nothing.
`resume_run` takes a run from its current state to its model, its description and its metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import fedclust
from fedclust.app.analysis import ModelFacts, describe, json_values, read_model_facts
from fedclust.app.audit.shown_rows import OpenedClusterSums, listen_to_sums
from fedclust.app.blind_relay import relay_for_lead
from fedclust.app.choose_k import Selection
from fedclust.app.coordinate import (
    RunOptions,
    check_served_study,
    check_waiting,
    connected_engine,
    event_listeners,
)
from fedclust.app.fit_study import fit_study
from fedclust.app.run_folder import (
    EngineChoice,
    Run,
    new_run_name,
    refuse_to_overwrite,
    status_after_error,
    utc_timestamp,
)
from fedclust.app.served_study import open_served_study, send_outcomes
from fedclust.app.study import OpenStudy, Study, open_study
from fedclust.app.verified_site import confirm_with_sites
from fedclust.core.atomic_files import write_file
from fedclust.core.errors import DataError, OutOfBounds, StudyError, Waiting
from fedclust.core.run_series import next_run_name, parse_series
from fedclust.engines import run_status
from fedclust.engines.attendance import EventListener
from fedclust.engines.run_status import ObservedEngine
from fedclust.federation.run_record import RunRecord
from fedclust.kernels import backend
from fedclust.models import FederatedEstimator, Model

NEXT_ROUND_FILE = "next"  # in a run folder: the folder of the next round
Watch = Callable[[Mapping[str, Any]], None]


def begin_run(
    study: Study,
    folder: Path,
    *,
    origin: Path | None = None,
    engine_choice: EngineChoice | None = None,
) -> Run:
    """Create a run folder if the study passes all checks.

    `origin` is where the study's relative paths start. `engine_choice` is the engine that reaches remote sites. Without
    it all sites are in this process, and their rows are read once.
    """
    refuse_to_overwrite(folder)
    if engine_choice is not None:
        engine_choice = check_served_study(study, folder, engine_choice)
        return Run.create(folder, study.text, origin=Path(), engine_choice=engine_choice)
    name = new_run_name(study.text)
    ready = open_study(study, record=RunRecord(folder, name))
    paths = (Path() if origin is None else origin).resolve()
    run = Run.create(folder, study.text, origin=paths, digests=ready.row_digests(), name=name)
    return replace(run, open_study=ready, is_new=True)


def begin_next_round(previous: Run, folder: Path | None = None) -> Run:
    """Create a run folder that continues from a finished run, if all checks pass.

    Each run is continued only once, because its sites would not send the same rows again.
    """
    folder = folder or next_round_folder(previous)
    model = _model_to_update(previous)
    refuse_to_overwrite(folder)
    study, name = previous.study(), next_run_name(previous.name)
    ready, digests, origin = None, dict[str, str](), Path()
    if previous.engine_choice is None:
        origin = (previous.folder / previous.origin["folder"]).resolve()
        ready = open_study(study, record=RunRecord(folder, name), fresh=False)
        digests = ready.row_digests()
        if digests == previous.origin["rows"]:
            raise DataError(f"the sites have the same rows as in {previous.folder}; add new rows first")
    write_file(previous.folder / NEXT_ROUND_FILE, f"{folder.resolve()}\n")
    try:
        run = Run.create(
            folder,
            study.text,
            origin=origin,
            digests=digests,
            files={"before.json": model},
            name=name,
            engine_choice=previous.engine_choice,
            previous_folder=previous.folder,
        )
    except BaseException:
        (previous.folder / NEXT_ROUND_FILE).unlink(missing_ok=True)
        raise
    return replace(run, open_study=ready, is_new=ready is not None)


def next_round_folder(previous: Run) -> Path:
    """Return the default folder of the next round: next to the first one, with the round's number."""
    first, place = previous.folder.resolve(), parse_series(previous.name)[1]
    stem = first.name.removesuffix(f"-{place}") if place > 1 else first.name
    return previous.folder.parent / f"{stem}-{place + 1}"


def _model_to_update(run: Run) -> str:
    """Return the text of a finished run's model, if the run can be updated."""
    if not run.is_finished:
        raise StudyError(f"{run.folder} is not finished; continue with: fedclust resume {run.folder}")
    study = run.study()
    if study.aggregation.is_blind:
        raise StudyError("the model of a blind run is at its leading site; run the study again with all rows")
    if not fedclust.load(run.model_path).takes_batches:
        raise StudyError(
            f"method '{study.cluster.method}' cannot be updated with new rows; run the study again with all rows"
        )
    link = run.folder / NEXT_ROUND_FILE
    there = Path(link.read_text().strip()) if link.is_file() else None
    if there is not None and there.exists():
        raise StudyError(f"{run.folder} has already been updated; update {there} instead")
    if there is not None and run.engine_choice is not None:  # in one process the sites' memory went with the folder
        raise StudyError(
            f"{run.folder} was updated in {there}, but that folder is missing, and the sites do not accept a second "
            "update of the same run; restore the folder and update that run, or run the study again"
        )
    return run.model_path.read_text(encoding="utf-8")


def open_recorded_study(run: Run, folder: Path) -> OpenStudy:
    """Open a run's study on the same rows as it began with; `folder` is the run's, or a copy of it to work in."""
    ready = open_study(run.study(), record=RunRecord(folder, run.name), fresh=run.previous_folder is None)
    before = run.origin["rows"]
    for party, digest in ready.row_digests().items():
        if before.get(party, digest) != digest:
            raise DataError(
                f"the rows of site '{party}' have changed since {run.folder} began; "
                "restore them, or run the study again in another folder"
            )
    return ready


def resume_run(
    run: Run,
    options: RunOptions | None = None,
    watch: Watch | None = None,
    *,
    while_opening: AbstractContextManager[None] | None = None,
) -> FederatedEstimator | None:
    """Take a run from its current state to its model, its description and its metrics; return the model.

    The coordinator of a blind run gets none, because the model is at the leading site. A new run that meets bad data
    before its first round leaves no folder. `while_opening` is entered while sites in this process open their rows.
    """
    options, rounds = options or RunOptions(), 0

    def count_rounds(facts: Mapping[str, Any]) -> None:
        nonlocal rounds
        rounds += 1
        if watch is not None:
            watch(facts)

    if run.open_study is None and run.engine_choice is not None and run.study().aggregation.is_blind:
        relay_for_lead(run, options)
        return None
    with _open_run(run, options, while_opening or nullcontext()) as (ready, notify):
        began, fed = time.monotonic(), ready.fed
        fed.watch = count_rounds
        fed.use_engine(ObservedEngine(fed.engine, notify))
        opened = listen_to_sums(fed)
        try:
            if run.previous_folder is None:
                model, selection = fit_study(ready)
            else:
                model, selection = fedclust.load(run.folder / "before.json"), None
                # Sites in this process keep their memory in the run folder; remote sites have their own.
                model.update(fed, after=run.previous_folder if run.engine_choice is None else None)
            model.save(run.model_path)
            facts = read_model_facts(model)
            described = _describe_model(run, model, facts, ready, selection, opened=opened)
            if ready.study.is_verified and run.engine_choice is not None:
                _note_unconfirmed(run, ready, described)
        except BaseException as error:
            notify("state", state=status_after_error(error))
            if isinstance(error, (StudyError, DataError, OutOfBounds)) and run.is_new and not rounds:
                run.discard()
            raise
        finally:
            fed.close()
        seconds = time.monotonic() - began
        notify("state", state="finished")
        sites = fed.traffic() or _received_traffic(run_status.read_status(run.status_path))
        run.write_json("metrics.json", _run_metrics(run, ready.study, facts, seconds, sites=sites, described=described))
        return model


@contextmanager
def _open_run(
    run: Run, options: RunOptions, while_opening: AbstractContextManager[None]
) -> Iterator[tuple[OpenStudy, EventListener]]:
    """Lock a run, connect or open its sites and start its event listeners.

    The lock comes first: a second process must not touch what the first one works with, such as the sites' ledgers.
    """
    if run.open_study is None and run.engine_choice is not None:
        study = run.study()
        check_waiting(run, study, options)
        with (
            run.lock_same_version(),
            event_listeners(run, options) as notify,
            connected_engine(run, study, options, notify) as engine,
        ):
            served = open_served_study(study, engine, RunRecord(run.folder, run.name))
            send_outcomes(served, engine, run.folder)
            yield served, notify
        return
    with run.lock_same_version(), event_listeners(run, options) as notify:
        ready = run.open_study
        if ready is None:
            with while_opening:
                ready = open_recorded_study(run, run.folder)
        yield ready, notify


def _describe_model(
    run: Run,
    model: Model,
    facts: ModelFacts,
    ready: OpenStudy,
    selection: Selection | None,
    *,
    opened: OpenedClusterSums,
) -> dict[str, Any]:
    """Describe a model that is saved already; if this fails, the run still finishes, with a note."""
    try:
        described = describe(model, ready.fed, selection, facts)
        described["notes"] += opened.sentences(ready.fed)
        run.write_json("analysis.json", described)
    except Waiting:
        raise  # not an error: the run continues when the sites' answers arrive
    except Exception as error:  # noqa: BLE001 the model is there even if it cannot be described
        note = f"The run is finished and its model is saved, but it could not be described ({type(error).__name__})."
        notes = [*facts.notes, *facts.failures, note]
        return {"columns": [{"name": name} for name in ready.fed.columns], "notes": notes}
    return described


def _note_unconfirmed(run: Run, ready: OpenStudy, described: dict[str, Any]) -> None:
    """Ask the sites of a verified run whether they found the same model; note it if not all of them say so."""
    notes = confirm_with_sites(ready.fed, run.model_path.read_text(encoding="utf-8"))
    if notes:
        described["notes"] += notes
        if run.analysis is not None:
            run.write_json("analysis.json", described)


def _run_metrics(
    run: Run,
    study: Study,
    facts: ModelFacts,
    seconds: float,
    *,
    sites: Mapping[str, Mapping[str, int]],
    described: Mapping[str, Any],
) -> dict[str, Any]:
    """Return facts about the run for other tools; none of them is about a single row."""
    origin = run.origin
    return {
        "format": "fedclust-metrics",
        "version": 1,
        "fedclust": fedclust.__version__,
        "kernels": backend(),
        "name": study.name,
        "method": study.cluster.method,
        "k": facts.cluster_count,
        "split": study.split,
        "columns": [column["name"] for column in described["columns"]],
        "rounds": facts.n_iter,
        "objective": json_values(facts.final_objective),
        "shifts": json_values(facts.shifts),
        "objectives": json_values(facts.objectives),
        "started": origin["started"],
        "finished": utc_timestamp(),
        "seconds": round(seconds, 3),
        "sites": sites,
        "notes": described["notes"],
    }


def _received_traffic(status: Mapping[str, Any] | None) -> dict[str, dict[str, int]]:
    """Count the messages and bytes that arrived from remote sites, which keep their own ledgers."""
    sites = status["sites"] if status else {}
    return {party: {"messages": own["answers"], "bytes": own["bytes"]} for party, own in sites.items()}
