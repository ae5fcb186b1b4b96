"""A run folder: made in one move, held by one process at a time, and enough to go on from wherever the run stopped."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import fedclust
from fedclust.app.analysis import describe
from fedclust.app.choose_k import Selection, select_k
from fedclust.app.study import Opened, Study, opened, read_study
from fedclust.core.atomic_files import new_folder, write_file
from fedclust.core.errors import DataError, OutOfBounds, RunFailed, StudyError, Waiting
from fedclust.core.file_locks import try_lock
from fedclust.engines import run_status
from fedclust.engines.attendance import Tell
from fedclust.engines.run_status import Observed, Status
from fedclust.federation.federation import Federation
from fedclust.kernels import backend
from fedclust.site.approval import digest_of

FORMAT, VERSION = "fedclust-run", 1
Watch = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Run:
    """A run folder: study.toml, origin.json, run, journal, sites/; at the end also model, analysis and metrics.json."""

    folder: Path

    @classmethod
    def make(
        cls,
        folder: Path,
        text: str,
        *,
        origin: Path,
        digests: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        name: str | None = None,
        served: Mapping[str, Any] | None = None,
        after: Path | None = None,
    ) -> Run:
        """A folder that was not there, with all it needs to be resumed; readable by its owner alone.

        `origin` is where the study's relative paths start, seen from the folder; `digests` tells its rows from others;
        `files` are texts to put beside the study; `name` is the run's where it has one already; `served` says by which
        engine its sites are reached; `after` is the run folder of the round before, whose model is in before.json.
        """
        files = {"study.toml": text, **(files or {})}
        about = {
            "format": FORMAT,
            "version": VERSION,
            "fedclust": fedclust.__version__,
            "kernels": backend(),
            "started": now(),
            "folder": str(origin),
            "rows": dict(digests or {}),
            "files": {path: _digest(content) for path, content in files.items()},
            **({"served": dict(served)} if served else {}),
            **({"after": str(after.resolve())} if after else {}),
        }
        refuse_to_overwrite(folder)
        with new_folder(folder) as draft:
            write_file(draft / "origin.json", json.dumps(about, indent=1) + "\n")
            # Every call names the study.
            write_file(draft / "run", f"{name or f'{secrets.token_hex(8)}-{digest_of(text)}'}\n")
            for path, content in files.items():
                (draft / path).parent.mkdir(mode=0o700, exist_ok=True)
                write_file(draft / path, content)
        return cls(folder)

    @classmethod
    def find(cls, folder: Path) -> Run:
        """A run folder that is there."""
        if not (folder / "origin.json").is_file():
            why = "is not a run folder" if folder.exists() else "does not exist"
            raise StudyError(f"{folder} {why}; name a folder that 'fedclust run' made, such as runs/NAME")
        run = cls(folder)
        if (run.origin.get("format"), run.origin.get("version")) != (FORMAT, VERSION):
            raise StudyError(f"{folder} was made by another version of fedclust; resume it with that one")
        return run

    @classmethod
    def clear(cls, folder: Path) -> None:
        """Remove a self-contained run, unless someone edited what was put into it."""
        if not (folder / "origin.json").is_file():
            return
        run = cls.find(folder)
        if run.origin["folder"] != ".":
            raise StudyError(f"{folder} holds another run; choose another folder with --out")
        for name, digest in run.origin["files"].items():
            path = folder / name
            if path.is_file() and _digest(path.read_bytes().decode(errors="replace")) != digest:
                raise StudyError(
                    f"{path} was edited; to keep it, choose another folder with --out, else remove {folder}"
                )
        with run.held():
            shutil.rmtree(folder)

    @property
    def origin(self) -> dict[str, Any]:
        """Where and how the run began."""
        return _document(self.folder / "origin.json")

    @property
    def metrics(self) -> dict[str, Any]:
        """How the run went; only a finished one has them."""
        if not self.finished:
            raise StudyError(f"{self.folder} is not finished; go on with: fedclust resume {self.folder}")
        return _document(self.folder / "metrics.json")

    @property
    def analysis(self) -> dict[str, Any] | None:
        """The finished run described; None where an older version wrote none."""
        path = self.folder / "analysis.json"
        return _document(path) if path.is_file() else None

    @property
    def finished(self) -> bool:
        """The metrics are the last thing a run writes."""
        return (self.folder / "metrics.json").is_file()

    @property
    def model(self) -> Path:
        return self.folder / "model.json"

    @property
    def status(self) -> Path:
        return self.folder / "status.json"

    @property
    def name(self) -> str:
        """What every call of the run names it."""
        return (self.folder / "run").read_text().strip()

    @property
    def served(self) -> dict[str, Any] | None:
        """By which engine the sites are reached, and with what settings; None where they are in one process."""
        return self.origin.get("served")

    @property
    def after(self) -> Path | None:
        """The folder of the round before; None for a first round."""
        found = self.origin.get("after")
        return None if found is None else Path(found)

    def study(self) -> Study:
        """The study as it was when the run began."""
        served = self.served is not None
        return read_study(self.folder / "study.toml", folder=self.folder / self.origin["folder"], served=served)

    def watched(self) -> Status:
        """The run's status, gone on with."""
        study = self.study()
        names = [site.name for site in study.sites]
        return Status(self.status, names, run=self.name, aggregation=study.aggregation.mode)

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        write_file(self.folder / name, json.dumps(document, indent=1, allow_nan=False) + "\n")

    def discard(self) -> None:
        """Leave no trace of a run that could not begin."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()  # only where nothing else is in it

    @property
    def at_work(self) -> bool:
        """Whether some process is at work in the folder; asking keeps none from beginning."""
        with (self.folder / "run").open() as file:
            return not try_lock(file, exclusive=False, patience=0.0)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes away: two that write one journal would spoil it."""
        with _to_lock(self.folder / "run") as file:
            if not try_lock(file):
                raise RunFailed(f"another process is at work in {self.folder}; wait for it, or stop it first")
            yield


def _to_lock(path: Path) -> TextIO:
    """A file to be had to oneself: over NFS it must be open for writing, on a disk that is only read it cannot be."""
    return path.open("r+" if os.access(path, os.W_OK) else "r")


def refuse_to_overwrite(folder: Path) -> None:
    """A run never writes into what is there."""
    if (folder / "origin.json").exists():
        done = (folder / "metrics.json").exists()
        advice = (
            "choose another with --out"
            if done
            else f"go on with 'fedclust resume {folder}', or choose another with --out"
        )
        raise StudyError(f"{folder} already holds a {'finished' if done else 'stopped'} run; {advice}")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise StudyError(f"{folder} already exists and is not a run; choose another folder with --out")


def origin_of(study: Path) -> Path | None:
    """Where the paths of a study start that is a run's copy; None for any other."""
    if not (study.parent / "origin.json").is_file():
        return None
    run = Run.find(study.parent)
    return run.folder / str(run.origin["folder"])


def begin(study: Study, folder: Path, *, origin: Path) -> tuple[Run, Opened]:
    """A new run folder, once nothing speaks against the study; `origin` is where its relative paths start."""
    refuse_to_overwrite(folder)
    ready = opened(study)
    return Run.make(folder, study.text, origin=origin.resolve(), digests=ready.digests()), ready


def again(run: Run) -> Opened:
    """The study of a run that stopped, on the very rows it began with."""
    ready = opened(run.study(), fresh=run.after is None)
    before = run.origin["rows"]
    for party, digest in ready.digests().items():
        if before.get(party, digest) != digest:
            raise DataError(
                f"the rows of site '{party}' have changed since {run.folder} began; "
                "put them back as they were, or run the study anew in another folder"
            )
    return ready


def see_through(run: Run, ready: Opened, watch: Watch | None = None, *, fresh: bool = False) -> Any:
    """Go on from the journal to a model, its description and the run's metrics.

    A `fresh` run that meets bad data at once leaves no folder.
    """
    with working_at(run):
        return carry_out(run, ready, watch, fresh=fresh)


@contextmanager
def working_at(run: Run) -> Iterator[None]:
    """Have a run to oneself, with the version of fedclust that began it."""
    begun = run.origin.get("fedclust")
    if begun != fedclust.__version__:
        raise StudyError(
            f"{run.folder} was begun by fedclust {begun}, and this is {fedclust.__version__}, whose bits may differ; "
            "go on with that version, or run the study anew"
        )
    with run.held():
        yield


def carry_out(
    run: Run, ready: Opened, watch: Watch | None = None, *, fresh: bool = False, tell: Tell | None = None
) -> Any:
    """See a run through that one has to oneself. `tell` hears of every step; by default the status."""
    rounds = 0

    def note(facts: Mapping[str, Any]) -> None:
        nonlocal rounds
        rounds += 1
        if watch is not None:
            watch(facts)

    began = time.monotonic()
    fed = ready.fed.on_record(run.folder)
    fed.watch = note
    heard = tell or run.watched()
    fed.use(Observed(fed.engine, heard))
    try:
        model, selection = _fitted(run, ready, fed)
        model.save(run.model)
        described = describe(model, fed, selection)
    except BaseException as error:
        heard("state", state=state_after(error))
        if isinstance(error, (StudyError, DataError, OutOfBounds)) and fresh and not rounds:
            run.discard()
        raise
    finally:
        fed.close()
    run.write("analysis.json", described)
    seconds = time.monotonic() - began
    heard("state", state="finished")
    sites = fed.traffic() or _heard(run_status.read(run.status))
    run.write("metrics.json", _metrics(run, ready.study, model, seconds, sites=sites, described=described))
    return model


def state_after(error: BaseException) -> str:
    """What a status says of a run that did not finish."""
    return "waiting" if isinstance(error, Waiting) else "failed" if isinstance(error, Exception) else "stopped"


def _fitted(run: Run, ready: Opened, fed: Federation) -> tuple[Any, Selection | None]:
    """The study's method fitted to its sites, with as many clusters as the study says, or as many as are found.

    In a later round, the model of the round before updated by them.
    """
    if run.after is not None:
        model = fedclust.load(run.folder / "before.json")
        # Sites of this process keep their memory in the run's folder; others have one of their own.
        remembers = model.remembers_rounds and run.served is None
        return model.partial_fit(fed, **({"after": run.after} if remembers else {})), None
    choice = ready.study.cluster.choice
    if choice is None:
        return ready.estimator.fit(fed), None
    found = select_k(ready.estimator, fed, choice.ks, **choice.how)
    return found.model, found


def _metrics(
    run: Run,
    study: Study,
    model: Any,
    seconds: float,
    *,
    sites: Mapping[str, Mapping[str, int]],
    described: Mapping[str, Any],
) -> dict[str, Any]:
    """How the run went, for other tools; nothing in it is about a row."""
    origin = run.origin
    return {
        "format": "fedclust-metrics",
        "version": 1,
        "fedclust": fedclust.__version__,
        "kernels": backend(),
        "name": study.name,
        "method": study.cluster.method,
        "k": getattr(model, "n_clusters_", model.n_clusters),
        "split": study.split,
        "columns": [column["name"] for column in described["columns"]],
        "rounds": model.n_iter_,
        "objective": model.objective_,
        "shifts": [entry["shift"] for entry in model.history_],
        "objectives": [entry["objective"] for entry in model.history_],
        "started": origin["started"],
        "finished": now(),
        "seconds": round(seconds, 3),
        "sites": sites,
        "notes": described["notes"],
    }


def _heard(status: Mapping[str, Any] | None) -> dict[str, dict[str, int]]:
    """Messages and bytes that came from sites elsewhere, whose ledgers are their own."""
    sites = status["sites"] if status else {}
    return {party: {"messages": own["answers"], "bytes": own["bytes"]} for party, own in sites.items()}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise StudyError(f"{path} is damaged; start the study anew in another folder")
    return document
