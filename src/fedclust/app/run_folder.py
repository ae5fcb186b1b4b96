"""The run folder: created in one step, locked by one process at a time, and sufficient to resume the run."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import fedclust
from fedclust.app.study import OpenStudy, Study, read_study
from fedclust.core.atomic_files import new_folder, write_file
from fedclust.core.errors import RunFailed, StudyError, Waiting
from fedclust.core.file_locks import try_lock
from fedclust.engines.run_status import RunStatus
from fedclust.kernels import backend
from fedclust.site.approval import digest_study

RUN_FORMAT, RUN_VERSION = "fedclust-run", 1


@dataclass(frozen=True)
class EngineChoice:
    """How the sites of a run are reached: the engine, its settings, and the coordinator's own file."""

    engine: str
    coordinator_file: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        own = str(self.coordinator_file.resolve()) if self.coordinator_file else None
        return {"engine": self.engine, "own": own, "settings": dict(self.settings)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> EngineChoice:
        own = document.get("own")
        return cls(str(document["engine"]), Path(own) if own else None, document.get("settings", {}))


@dataclass(frozen=True)
class Run:
    """A run folder: study.toml, origin.json, run, journal, sites/; if finished, also model, analysis, metrics.json."""

    folder: Path
    open_study: OpenStudy | None = field(default=None, compare=False)  # the sites in this process, if they are open
    is_new: bool = field(default=False, compare=False)  # this process began it

    @classmethod
    def create(
        cls,
        folder: Path,
        text: str,
        *,
        origin: Path,
        digests: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        name: str | None = None,
        engine_choice: EngineChoice | None = None,
        previous_folder: Path | None = None,
    ) -> Run:
        """Create a new folder with everything needed to resume the run; only its owner can read it.

        `origin` is where the study's relative paths start, relative to the folder. `digests` identify the sites' rows.
        `files` are texts to store next to the study. `name` is the run's name if it has one already. `engine_choice`
        says how remote sites are reached. `previous_folder` is the run folder of the previous round, whose model is in
        before.json.
        """
        files = {"study.toml": text, **(files or {})}
        about = {
            "format": RUN_FORMAT,
            "version": RUN_VERSION,
            "fedclust": fedclust.__version__,
            "kernels": backend(),
            "started": utc_timestamp(),
            "folder": str(origin),
            "rows": dict(digests or {}),
            "files": {path: _digest_text(content) for path, content in files.items()},
            **({"served": engine_choice.to_dict()} if engine_choice else {}),
            **({"after": str(previous_folder.resolve())} if previous_folder else {}),
        }
        refuse_to_overwrite(folder)
        with new_folder(folder) as draft:
            write_file(draft / "origin.json", json.dumps(about, indent=1) + "\n")
            write_file(draft / "run", f"{name or new_run_name(text)}\n")
            for path, content in files.items():
                (draft / path).parent.mkdir(mode=0o700, exist_ok=True)
                write_file(draft / path, content)
        return cls(folder)

    @classmethod
    def find(cls, folder: Path) -> Run:
        """Open an existing run folder."""
        if not (folder / "origin.json").is_file():
            why = "is not a run folder" if folder.exists() else "does not exist"
            raise StudyError(f"{folder} {why}; give a folder that 'fedclust run' made, such as runs/NAME")
        run = cls(folder)
        if (run.origin.get("format"), run.origin.get("version")) != (RUN_FORMAT, RUN_VERSION):
            raise StudyError(f"{folder} was made by another version of fedclust; resume it with that version")
        return run

    @classmethod
    def remove_unedited(cls, folder: Path) -> None:
        """Remove a self-contained run, unless someone edited what was put into it."""
        if not (folder / "origin.json").is_file():
            return
        run = cls.find(folder)
        if run.origin["folder"] != ".":
            raise StudyError(f"{folder} contains another run; choose another folder with --out")
        for name, digest in run.origin["files"].items():
            path = folder / name
            if path.is_file() and _digest_text(path.read_bytes().decode(errors="replace")) != digest:
                raise StudyError(f"{path} was edited; choose another folder with --out to keep it, or remove {folder}")
        with run.lock():
            shutil.rmtree(folder)

    @property
    def origin(self) -> dict[str, Any]:
        """Where and how the run began."""
        return _read_json(self.folder / "origin.json")

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of a finished run."""
        if not self.is_finished:
            raise StudyError(f"{self.folder} is not finished; continue with: fedclust resume {self.folder}")
        return _read_json(self.folder / "metrics.json")

    @property
    def analysis(self) -> dict[str, Any] | None:
        """The description of a finished run, or None if there is none."""
        path = self.folder / "analysis.json"
        return _read_json(path) if path.is_file() else None

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished: it writes its metrics last."""
        return (self.folder / "metrics.json").is_file()

    @property
    def model_path(self) -> Path:
        return self.folder / "model.json"

    @property
    def status_path(self) -> Path:
        return self.folder / "status.json"

    @property
    def name(self) -> str:
        """The name of the run, which every call carries."""
        return (self.folder / "run").read_text().strip()

    @property
    def engine_choice(self) -> EngineChoice | None:
        """The engine that reaches the sites, and its settings; None if all sites are in one process."""
        found = self.origin.get("served")
        return None if found is None else EngineChoice.from_dict(found)

    @property
    def previous_folder(self) -> Path | None:
        """The folder of the previous round; None for a first round."""
        found = self.origin.get("after")
        return None if found is None else Path(found)

    def study(self) -> Study:
        """The study as it was when the run began."""
        served = self.engine_choice is not None
        return read_study(self.folder / "study.toml", folder=self.folder / self.origin["folder"], served=served)

    def open_status(self) -> RunStatus:
        """Open the run's status to continue it."""
        study = self.study()
        names = [site.name for site in study.sites]
        return RunStatus(self.status_path, names, run=self.name, aggregation=study.aggregation.mode)

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        write_file(self.folder / name, json.dumps(document, indent=1, allow_nan=False) + "\n")

    def discard(self) -> None:
        """Remove a run that could not begin."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()  # only if it is empty

    @property
    def is_at_work(self) -> bool:
        """Whether a process is working in the folder; the check does not block one from starting."""
        with (self.folder / "run").open() as file:
            return not try_lock(file, exclusive=False, patience=0.0)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out: two that write the same journal would damage it."""
        with _open_lock_file(self.folder / "run") as file:
            if not try_lock(file):
                raise RunFailed(f"another process is working in {self.folder}; wait until it ends, or stop it first")
            yield

    @contextmanager
    def lock_same_version(self) -> Iterator[None]:
        """Lock a run, and require the version of fedclust that began it."""
        begun = self.origin.get("fedclust")
        if begun != fedclust.__version__:
            raise StudyError(
                f"{self.folder} was started with fedclust {begun}, but this is {fedclust.__version__}, whose results "
                "may differ; resume it with that version, or run the study again"
            )
        with self.lock():
            yield


def _open_lock_file(path: Path) -> TextIO:
    """Open a file for locking: NFS needs it open for writing, which a read-only disk does not allow."""
    return path.open("r+" if os.access(path, os.W_OK) else "r")


def refuse_to_overwrite(folder: Path) -> None:
    """Refuse a folder that is in use: a run never overwrites anything."""
    if (folder / "origin.json").exists():
        done = (folder / "metrics.json").exists()
        advice = (
            "choose another folder with --out"
            if done
            else f"continue it with 'fedclust resume {folder}', or choose another folder with --out"
        )
        raise StudyError(f"{folder} already holds a {'finished' if done else 'stopped'} run; {advice}")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise StudyError(f"{folder} already exists and is not a run; choose another folder with --out")


def study_origin(study: Path) -> Path | None:
    """Return where the relative paths of a run's copy of a study start; None for any other study."""
    if not (study.parent / "origin.json").is_file():
        return None
    run = Run.find(study.parent)
    return run.folder / str(run.origin["folder"])


def status_after_error(error: BaseException) -> str:
    """Return the status of a run that did not finish."""
    return "waiting" if isinstance(error, Waiting) else "failed" if isinstance(error, Exception) else "stopped"


def new_run_name(study: str) -> str:
    """Return a new, unique run name, which also identifies the study."""
    return f"{secrets.token_hex(8)}-{digest_study(study)}"


def _digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def utc_timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise StudyError(f"{path} is damaged; run the study again in another folder")
    return document
