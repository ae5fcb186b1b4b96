"""The coordinator's admin console to its FLARE server lists connected sites and runs one job at a time."""

from __future__ import annotations

import io
import json
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

from nvflare.fuel.flare_api.api_spec import InternalError, NoConnection, NoReply, SessionClosed
from nvflare.fuel.flare_api.flare_api import new_secure_session

from fedclust.core.atomic_files import write_file
from fedclust.core.errors import RunFailed
from fedclust.engines.nvflare.child_processes import hide_own_address
from fedclust.engines.nvflare.startup_kit import ADMIN_NAME, SERVER_BRIDGE_PATH, SITE_EXECUTOR_PATH

ENDED_JOB_STATES = ("FINISHED", "FAILED", "ABANDONED")
MAX_QUERY_ATTEMPTS, QUERY_BACKOFF_SECONDS = (
    5,
    1.0,
)  # attempts of one query to the server, and the seconds by which each waits longer than the one before
TASK_POLL_SECONDS = 600.0  # seconds between a site's requests for tasks; there are none, as all questions are pushed


class AdminConsole:
    """An admin session with the server on this machine; `try_open` opens it."""

    def __init__(self, kit: Path, work: Path) -> None:
        self.work = work
        hide_own_address()
        logging.getLogger("nvflare").setLevel(logging.CRITICAL)  # otherwise it writes to the user's terminal
        home = work / "admin"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(kit / "admin", home, ignore=shutil.ignore_patterns("*.key"))
        for key in (kit / "admin" / "startup").glob("*.key"):  # links, not copies: people pass run folders on
            (home / "startup" / key.name).symlink_to(key.resolve())
        (home / "local").mkdir(exist_ok=True)
        path = home / "startup" / "fed_admin.json"
        config = json.loads(path.read_text())
        config["admin"].update(upload_dir=str(work), download_dir=str(home))
        write_file(path, json.dumps(config))
        self._kit = home
        self._session: Any = None

    def try_open(self) -> bool:
        """Whether the server accepts a session; it may still be starting."""
        try:
            with redirect_stdout(io.StringIO()):  # it prints each attempt
                self._session = new_secure_session(ADMIN_NAME, str(self._kit), timeout=5.0, auto_login_max_tries=1)
        except NoConnection:
            return False
        return True

    def last_contacts(self) -> dict[str, float]:
        """When FLARE last heard from each connected site, by this machine's clock."""
        found = self._query_server(lambda session: session.get_connected_client_list())
        return {client.name: float(client.last_connect_time) for client in found}

    def submit_job(self, sites: Sequence[str]) -> str:
        """Submit the job that includes these sites."""
        path = str(write_job(self.work / "job", sites))
        return str(self._query_server(lambda session: session.submit_job(path)))

    def has_job_ended(self, job: str) -> bool:
        """Whether a job has run, or will never run."""
        status: str = self._query_server(lambda session: session.get_job_status(job)) or ""
        return status.startswith(ENDED_JOB_STATES)

    def abort_job(self, job: str) -> None:
        with suppress(Exception):  # it may have ended already
            self._session.abort_job(job)

    def _query_server(self, question: Callable[[Any], Any]) -> Any:
        """Ask the server. It closes a session after half an hour without queries, so the session is opened again."""
        for attempt in range(MAX_QUERY_ATTEMPTS):
            try:
                return question(self._session)
            except (SessionClosed, NoConnection, NoReply, InternalError):
                time.sleep(attempt * QUERY_BACKOFF_SECONDS)
                self.close()
                self.try_open()
        raise RunFailed("NVIDIA FLARE's server does not answer the coordinator; resume the run with fedclust resume")

    def close(self) -> None:
        if self._session is not None:
            with suppress(Exception):  # an open session keeps the process alive
                self._session.close()


def write_job(folder: Path, sites: Sequence[str]) -> Path:
    """Write a job without code; it names the two installed components and the sites."""
    shutil.rmtree(folder, ignore_errors=True)
    documents: dict[str, Any] = {
        "meta.json": {
            "name": "fedclust",
            "resource_spec": {},
            "min_clients": len(sites),
            "mandatory_clients": list(sites),
            "deploy_map": {"coordinator": ["server"], "site": list(sites)},
        },
        "coordinator/config/config_fed_server.json": {
            "format_version": 2,
            "task_request_interval": TASK_POLL_SECONDS,
            "workflows": [{"id": "bridge", "path": SERVER_BRIDGE_PATH, "args": {}}],
        },
        "site/config/config_fed_client.json": {
            "format_version": 2,
            "executors": [{"tasks": ["none"], "executor": {"path": SITE_EXECUTOR_PATH, "args": {}}}],
        },
    }
    for name, document in documents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(document, indent=1) + "\n")
    return folder
