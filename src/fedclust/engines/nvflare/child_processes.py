"""FLARE's processes run as children that end with the process that needs them, and connect back over a private line.

FLARE starts a process for each job, which is not our child. It finds the line in the environment that it inherits.
"""

from __future__ import annotations

import os
import re
import runpy
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path

REQUEST_TOPIC, ARRIVAL_TOPIC, PAYLOAD_FIELD = (
    "fedclust",
    "fedclust.here",
    "bytes",
)  # the topics of our messages in FLARE, and their only field
LINE_ADDRESS_VARIABLE, LINE_KEY_VARIABLE = "FEDCLUST_LINE", "FEDCLUST_LINE_KEY"
ACCEPT_PAUSE_SECONDS = 0.25  # seconds to wait after a failed accept
AUTHENTICATION_SECONDS = 5.0  # time limit for a caller to prove that it has the key
PLAIN_PATH_PATTERN = re.compile(r"[A-Za-z0-9_./+:@%=,-]+")
FLARE_PROGRAMS = {
    "server": "nvflare.private.fed.app.server.server_train",
    "site": "nvflare.private.fed.app.client.client_train",
}
FLARE_ENVIRONMENT = {
    "GRPC_VERBOSITY": "NONE",
    "GRPC_ENABLE_FORK_SUPPORT": "False",
    "NVFLARE_TELEMETRY": "0",
    "PYTHONUNBUFFERED": "1",
    "MALLOC_ARENA_MAX": "2",  # otherwise each of a hundred threads keeps its own memory
    "MALLOC_MMAP_THRESHOLD_": "65536",  # otherwise large freed buffers stay between small ones
    "MALLOC_TRIM_THRESHOLD_": "131072",
}


@dataclass(frozen=True)
class Packet:
    """Bytes to or from a site, empty if it could not be reached; `request_number` links an answer to its request."""

    site: str
    data: bytes
    timeout: float
    request_number: int


@dataclass(frozen=True)
class JoinedSites:
    """The sites of a job that has started."""

    sites: tuple[str, ...]


class JobListener:
    """A listener for FLARE's jobs, which accepts only callers that hold a fresh key."""

    def __init__(self) -> None:
        self.key = secrets.token_bytes(32)
        self.listener = Listener(None, backlog=8)
        self._closed = False

    @property
    def environment(self) -> dict[str, str]:
        return {LINE_ADDRESS_VARIABLE: str(self.listener.address), LINE_KEY_VARIABLE: self.key.hex()}

    def accept_lines(self) -> Iterator[Connection]:
        """The connections of jobs, until this is closed; strangers and jobs that died while connecting are dropped."""
        is_reported = False
        while True:
            try:
                line = self.listener.accept()
            except OSError as error:
                if self._closed:
                    return
                if not is_reported:
                    why = error.strerror or error
                    sys.stderr.write(f"fedclust: cannot accept a connection from NVIDIA FLARE ({why}); retrying\n")
                is_reported = True
                time.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            is_reported = False
            if self._authenticate(line):
                yield line

    def _authenticate(self, line: Connection) -> bool:
        """Whether the caller has the key; one that does not answer is cut off, so that others need not wait."""
        late = threading.Timer(AUTHENTICATION_SECONDS, shut_down_line, (line,))
        late.start()
        try:
            deliver_challenge(line, self.key)
            answer_challenge(line, self.key)
        except (AuthenticationError, EOFError, OSError):
            line.close()
            return False
        finally:
            late.cancel()
        return True

    def close(self) -> None:
        self._closed = True
        self.listener.close()


def connect_to_listener() -> Connection:
    """The line from a FLARE job to the process that started FLARE."""
    return Client(os.environ[LINE_ADDRESS_VARIABLE], authkey=bytes.fromhex(os.environ[LINE_KEY_VARIABLE]))


def shut_down_line(line: Connection) -> None:
    """End a line that another thread reads; closing it would neither wake that thread nor inform the other end."""
    with suppress(OSError), socket.socket(fileno=os.dup(line.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def plain_path(folder: Path, scratch: Path) -> Path:
    """A path to the folder without blanks and quotes, which break FLARE's command lines."""
    if PLAIN_PATH_PATTERN.fullmatch(str(folder)):
        return folder
    link = scratch / "kit"
    link.symlink_to(folder)
    return link


def start_program(
    program: str, arguments: list[str], *, log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start FLARE's server or a site's client; it ends when its standard input closes, at the latest with us."""
    with log.open("ab") as file:
        return subprocess.Popen(  # noqa: S603 our own interpreter
            [sys.executable, "-m", __name__, program, *arguments],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            env={**os.environ, **FLARE_ENVIRONMENT, **environment},
            start_new_session=True,  # only the coordinator should receive Ctrl-C
        )


def stop_program(process: subprocess.Popen[bytes], *, patience: float = 5.0) -> None:
    """Stop a FLARE process that this process started."""
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def exit_with_line(line: Connection) -> None:
    """End this process when the other end of a line is gone; no data is ever sent on it."""
    with suppress(OSError, EOFError):
        line.recv_bytes()
    os._exit(1)


def exit_with_parent() -> None:
    """End this process and the jobs it started when its standard input closes, because its parent is gone."""
    import psutil  # noqa: PLC0415 installed with FLARE, like all callers of this function

    def wait_for_end() -> None:
        while os.read(0, 1024):
            pass
        for child in psutil.Process().children(recursive=True):  # each job has its own session
            with suppress(psutil.Error):
                child.kill()
        os._exit(1)

    threading.Thread(target=wait_for_end, name="end-with-parent", daemon=True).start()


def hide_own_address() -> None:
    """Keep the machine's address in its local network private.

    FLARE finds it by opening a route to an outside address, and reports it to its server. Nothing needs it.
    """
    from nvflare.private.fed import authenticator  # noqa: PLC0415 optional, and slow to import

    authenticator._get_client_ip = lambda: "127.0.0.1"  # noqa: SLF001


def main() -> None:
    program, *arguments = sys.argv[1:]
    exit_with_parent()
    hide_own_address()
    sys.argv = [FLARE_PROGRAMS[program], *arguments]
    runpy.run_module(FLARE_PROGRAMS[program], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
