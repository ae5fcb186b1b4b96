"""The two apps of a Flower federation: `server_app()` coordinates a study, `client_app()` answers for one site.

A user's app folder imports these two and holds nothing else; fedclust itself is installed where the nodes run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedclust.core.atomic_files import write_file
from fedclust.core.errors import StudyError

if TYPE_CHECKING:
    from fedclust.app.run_folder import Run
    from fedclust.app.study import Study

APP_TEMPLATE = {
    "pyproject.toml": """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedclust-study"
version = "1.0.0"
dependencies = []

[tool.flwr.app]
publisher = "local"

[tool.flwr.app.components]
serverapp = "study_app.server:app"
clientapp = "study_app.client:app"

[tool.flwr.app.config]
study = ""  # the study file, an absolute path where the SuperLink runs
own = ""    # the coordinator's own file, with the sites' keys
out = ""    # the run folder; an existing run of this study is resumed
after = ""  # for an update: the folder of the finished run to update
timeout = 0   # seconds until a silent site is suspended; 0 uses the default
patience = 0  # seconds until a run without enough sites ends; 0 uses the default
""",
    "study_app/__init__.py": '"""A fedclust study over Flower."""\n',
    "study_app/server.py": "from fedclust.app.flower_app import server_app\n\napp = server_app()\n",
    "study_app/client.py": "from fedclust.app.flower_app import client_app\n\napp = client_app()\n",
}


def write_template(folder: Path) -> None:
    """Write a Flower app folder, ready for `flwr run`."""
    for name, text in APP_TEMPLATE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text, mode=0o644)  # for the user to edit


def server_app() -> Any:
    """Return a Flower ServerApp; its run configuration names `study`, `own` and `out`, and optionally other keys."""
    from fedclust.engines.flower_link import server_app as make  # noqa: PLC0415 an extra

    return make(coordinate_study)


def client_app() -> Any:
    """Return a Flower ClientApp; its node configuration names the site's own file as `site`."""
    from fedclust.app.serve import open_session  # noqa: PLC0415
    from fedclust.core.atomic_files import log_error  # noqa: PLC0415
    from fedclust.core.greeting import Greeting, Welcome  # noqa: PLC0415
    from fedclust.engines.flower_link import client_app as make  # noqa: PLC0415 an extra
    from fedclust.site.site_file import read_private_key, read_site_file  # noqa: PLC0415

    def read_identity(path: str) -> Any:
        site = read_site_file(path)
        if site.identity is None:
            raise StudyError(
                "the site file has no identity; make a key with 'fedclust site key' and set identity to its path"
            )
        return site.name, read_private_key(site.identity)

    def answer_message(path: str, data: bytes) -> bytes:
        site, study = (
            read_site_file(path),
            Path(path).parent / "study.toml",
        )  # a kit has both, and then no other study is served
        try:
            session = open_session(site, study=study if study.is_file() else None)
        except StudyError as error:
            log_failure(path, error)
            return Welcome.reply_to(Greeting.decode(data), site.name, "failed").encode()
        with session:
            return session.answer_message(data)

    def log_failure(path: str, error: Exception) -> None:
        """Log where the site's staff will look; on stderr if the site file cannot be read."""
        try:
            state = read_site_file(path).state
        except StudyError as unread:
            sys.stderr.write(f"fedclust: {unread}\n")
            return
        if state is not None:
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
            log_error(state, "failed", error)

    return make(read_identity, answer_message, log_failure)


def coordinate_study(config: Mapping[str, Any]) -> None:
    """Coordinate a study, or an update of it, over Flower's grid; an existing run folder is resumed."""
    from fedclust.app.coordinate import RunOptions  # noqa: PLC0415
    from fedclust.app.execute import begin_next_round, begin_run, resume_run  # noqa: PLC0415
    from fedclust.app.run_folder import EngineChoice, Run  # noqa: PLC0415
    from fedclust.app.study import read_study  # noqa: PLC0415

    for name in ("study", "own", "out", *(("after",) if config.get("after") else ())):
        if not Path(str(config.get(name, ""))).is_absolute():
            raise StudyError(f"the run configuration must set '{name}' to an absolute path")
    timeout, patience = (_read_seconds(config, name) for name in ("timeout", "patience"))
    folder, own = Path(str(config["out"])), Path(str(config["own"]))
    study = read_study(Path(str(config["study"])), served=True)
    if (folder / "origin.json").is_file():
        run = Run.find(folder)
        _check_same_study(run, study)
        if config.get("after") and run.previous_folder != Path(str(config["after"])).resolve():
            raise StudyError(
                f"{folder} contains a run that does not update {config['after']}; use another folder for 'out'"
            )
        if run.is_finished:
            sys.stderr.write(
                f"fedclust: the run in {folder} is finished; to run the study again, set 'out' to another folder\n"
            )
            return
    elif config.get("after"):
        before = Run.find(Path(str(config["after"])))
        _check_same_study(before, study)
        run = begin_next_round(before, folder)
    else:
        settings = {} if patience is None else {"patience": str(patience)}
        run = begin_run(study, folder, engine_choice=EngineChoice("flower", own, settings))
    resume_run(run, RunOptions(wait=True, timeout=timeout, patience=patience, coordinator_file=own))


def _check_same_study(run: Run, study: Study) -> None:
    """Refuse to resume a run of another study, or of another engine."""
    engine = None if run.engine_choice is None else run.engine_choice.engine
    if engine != "flower":
        whose = "without an engine" if engine is None else f"of engine '{engine}'"
        raise StudyError(f"{run.folder} contains a run {whose}, not of engine 'flower'; use another folder for 'out'")
    if (run.folder / "study.toml").read_bytes() != study.text.encode():
        raise StudyError(
            f"{run.folder} contains a run of a different study text; use the study.toml that it started with, "
            "or use another folder for 'out'"
        )


def _read_seconds(config: Mapping[str, Any], name: str) -> float | None:
    """Read a number of seconds from the run configuration; None if it is 0 or missing."""
    said = config.get(name, 0)
    if isinstance(said, bool) or not isinstance(said, (int, float)) or not 0 <= said < math.inf:
        raise StudyError(f"'{name}' of the run configuration is '{said}'; give a number of seconds")
    return float(said) or None
