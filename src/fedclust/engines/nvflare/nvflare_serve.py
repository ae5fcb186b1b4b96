"""A site under FLARE: a child that keeps the connection outwards, and this process, which has the rows and answers."""

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
from fedclust.engines.nvflare.child_processes import Home, named_plainly, start, stop
from fedclust.engines.nvflare.startup_kit import ORG, Kit

Hear = Callable[[bytes], bytes]
AGAIN = 5.0  # seconds before a client that ended is started again
LOOK = 0.5


class Served:
    """A site's client to FLARE, whose jobs call here; `hear` answers what they bring."""

    def __init__(self, folder: Path, hear: Hear) -> None:
        self.kit = Kit.read(folder, "site")
        self.folder = folder.resolve()
        self._scratch = tempfile.TemporaryDirectory(prefix="fedclust-")
        self._workspace = named_plainly(self.folder, Path(self._scratch.name))
        self.hear = hear
        self._home = Home()
        self._client: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._welcome, name="fedclust-line", daemon=True).start()

    def run(self, until: threading.Event) -> None:
        """Keep the client alive; one that ends at once, again and again, is given up."""
        short = 0
        while not until.is_set():
            began = time.monotonic()
            self._client = self._started()
            while self._client.poll() is None and not until.wait(LOOK):
                pass
            if until.is_set():
                break
            short = short + 1 if time.monotonic() - began < 4 * AGAIN else 0
            if short >= 3:
                raise RunFailed(
                    f"NVIDIA FLARE's client ends at once; {self.folder / 'console.log'} and log.txt beside it say why. "
                    "Was the kit made for this study, and is it still valid?"
                )
            until.wait(AGAIN)

    def close(self) -> None:
        if self._client is not None:
            stop(self._client)
        self._home.close()
        self._scratch.cleanup()

    def _started(self) -> subprocess.Popen[bytes]:
        own = self.kit.names[self.kit.name]
        settings = ["secure_train=true", f"uid={own}", f"org={ORG}", "config_folder=config"]
        return start(
            "site",
            ["-m", str(self._workspace), "-s", "fed_client.json", "--set", *settings],
            log=self.folder / "console.log",
            environment=self._home.environment,
        )

    def _welcome(self) -> None:
        """Each job of the client calls once; an old one may still be ending when the next begins."""
        for line in self._home.calls():
            threading.Thread(target=self._answer, args=(line,), name="fedclust-job", daemon=True).start()

    def _answer(self, line: Connection) -> None:
        """Answer a job until it is gone."""
        with suppress(OSError, EOFError), line:
            while True:
                line.send_bytes(self._heard(line.recv_bytes()))

    def _heard(self, data: bytes) -> bytes:
        """The answer; nothing where there is none, and why is said here: to hang up would end the job for all sites."""
        try:
            return self.hear(data)
        except Exception as error:  # noqa: BLE001 whatever it is, it stays at the site
            with suppress(OSError):
                sys.stderr.write(f"fedclust: this site could not answer ({type(error).__name__}: {error})\n")
            return b""
