"""At a FLARE site a child process keeps the outgoing connection, and this process has the rows and answers."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from fedclust.core.errors import RunFailed
from fedclust.engines.nvflare.child_processes import JobListener, plain_path, start_program, stop_program
from fedclust.engines.nvflare.startup_kit import ORG_NAME, Kit

MessageHandler = Callable[[bytes], bytes]
CLIENT_RESTART_SECONDS = 5.0  # seconds before a stopped client is started again
CLIENT_POLL_SECONDS = 0.5


class SiteClient:
    """A site's FLARE client; its jobs connect to this process, and `answer_message` answers their requests."""

    def __init__(self, folder: Path, answer_message: MessageHandler) -> None:
        self.kit = Kit.read(folder, "site")
        self.folder = folder.resolve()
        self._scratch = tempfile.TemporaryDirectory(prefix="fedclust-")
        self._workspace = plain_path(self.folder, Path(self._scratch.name))
        self.answer_message = answer_message
        self._listener = JobListener()
        self._client: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._accept_jobs, name="fedclust-line", daemon=True).start()

    def run_until(self, stop_event: threading.Event) -> None:
        """Keep the client running; give up if it stops soon after each of several starts."""
        short = 0
        while not stop_event.is_set():
            began = time.monotonic()
            self._client = self._start_client()
            while self._client.poll() is None and not stop_event.wait(CLIENT_POLL_SECONDS):
                pass
            if stop_event.is_set():
                break
            short = short + 1 if time.monotonic() - began < 4 * CLIENT_RESTART_SECONDS else 0
            if short >= 3:
                raise RunFailed(
                    f"NVIDIA FLARE's client stops right after it starts; see {self.folder / 'console.log'} and log.txt "
                    "next to it. Check that the kit was made for this study and that its certificates are still valid"
                )
            stop_event.wait(CLIENT_RESTART_SECONDS)

    def close(self) -> None:
        if self._client is not None:
            stop_program(self._client)
        self._listener.close()
        self._scratch.cleanup()

    def _start_client(self) -> subprocess.Popen[bytes]:
        own = self.kit.names[self.kit.name]
        settings = ["secure_train=true", f"uid={own}", f"org={ORG_NAME}", "config_folder=config"]
        return start_program(
            "site",
            ["-m", str(self._workspace), "-s", "fed_client.json", "--set", *settings],
            log=self.folder / "console.log",
            environment=self._listener.environment,
        )

    def _accept_jobs(self) -> None:
        """Accept the client's jobs, one connection each; an old job may still be ending when the next begins."""
        for line in self._listener.accept_lines():
            threading.Thread(target=self._answer_job, args=(line,), name="fedclust-job", daemon=True).start()

    def _answer_job(self, line: Connection) -> None:
        """Answer a job until it ends."""
        with suppress(OSError, EOFError), line:
            while True:
                line.send_bytes(self._answer_or_log(line.recv_bytes()))

    def _answer_or_log(self, data: bytes) -> bytes:
        """The answer, or nothing after an error, which is printed here; disconnecting would end the job for all."""
        try:
            return self.answer_message(data)
        except Exception as error:  # noqa: BLE001 the text of any error stays at the site
            with suppress(OSError):
                sys.stderr.write(f"fedclust: this site could not answer ({type(error).__name__}: {error})\n")
            return b""
