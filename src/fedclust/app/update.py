"""One more round: a finished run's model, updated by the rows that its sites hold now, in a run of its own."""

from __future__ import annotations

from pathlib import Path

import fedclust
from fedclust.app.run_folder import Run, refuse_to_overwrite
from fedclust.app.study import Opened, opened
from fedclust.core.atomic_files import write_file
from fedclust.core.errors import DataError, StudyError
from fedclust.core.run_series import later, series

NEXT = "next"  # in a run folder: the folder of the round after


def folder_after(run: Run) -> Path:
    """Where the next round goes unless it is told: beside the first one, under its number."""
    first, place = run.folder.resolve(), series(run.name)[1]
    stem = first.name.removesuffix(f"-{place}") if place > 1 else first.name
    return run.folder.parent / f"{stem}-{place + 1}"


def further(run: Run, folder: Path) -> tuple[Run, Opened | None]:
    """A new run folder that goes on from a finished run, once nothing speaks against it.

    Opened, too, where the sites are in one process. Each run is gone on from once: what its sites told in the round
    after, they would not tell again.
    """
    document = _checked(run)
    refuse_to_overwrite(folder)
    study = run.study()
    origin = (run.folder / run.origin["folder"]).resolve() if run.served is None else Path()
    ready = opened(study, fresh=False) if run.served is None else None
    digests = ready.digests() if ready else {}
    if ready is not None and digests == run.origin["rows"]:
        raise DataError(f"the sites hold the very rows of {run.folder}; put new rows there first")
    write_file(run.folder / NEXT, f"{folder.resolve()}\n")
    try:
        made = Run.make(
            folder,
            study.text,
            origin=origin,
            digests=digests,
            files={"before.json": document},
            name=later(run.name),
            served=run.served,
            after=run.folder,
        )
    except BaseException:
        (run.folder / NEXT).unlink(missing_ok=True)
        raise
    return made, ready


def _checked(run: Run) -> str:
    """The model of a run that can be gone on from."""
    if not run.finished:
        raise StudyError(f"{run.folder} is not finished; go on with: fedclust resume {run.folder}")
    study = run.study()
    if study.aggregation.blind:
        raise StudyError("a blind run has its model at the site that led it; begin the study anew with all rows")
    if not hasattr(fedclust.load(run.model), "partial_fit"):
        raise StudyError(f"method '{study.cluster.method}' takes no further rows; begin the study anew with all rows")
    after = run.folder / NEXT
    there = Path(after.read_text().strip()) if after.is_file() else None
    if there is not None and there.exists():
        raise StudyError(f"{run.folder} was gone on from already; go on from {there}")
    if there is not None and run.served is not None:  # in one process the sites' memory went with the folder
        raise StudyError(
            f"{run.folder} was gone on from in {there}, which is not there, and sites that took part in that round "
            "take no letters of another in its place; put the folder back and go on from it, or begin the study anew"
        )
    return run.model.read_text(encoding="utf-8")
