"""A door on a named address that leads to a port of this machine's loopback; what passes is not looked at."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Self

from fedclust.core.errors import StudyError

FORWARD_CHUNK_BYTES = 1 << 16  # bytes
MAX_CONNECTIONS = 256  # connections at a time: whoever knocks takes no more of this process than that
FIRST_BYTE_SECONDS = 30.0  # seconds that a connection may take to its first byte
ACCEPT_RETRY_SECONDS = 0.2  # seconds until the next try, where the machine has no room for a connection


class PortForwarder:
    """Connections to `address` go on to a local port, as long as the door is open."""

    def __init__(self, address: tuple[str, int], port: int) -> None:
        self.port = port
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()  # who is being let in while the door is shut is cut off, too
        self._open, self._closed = True, False
        try:
            self._listener = socket.create_server(address, backlog=64)
        except OSError as error:
            raise StudyError(f"cannot listen on {address[0]}:{address[1]} ({error.strerror}); name another") from None
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        threading.Thread(target=self._accept_connections, name="fedclust-door", daemon=True).start()

    def cut_off(self) -> None:
        """Cut everyone off, and let nobody through."""
        with self._lock:
            self._open = False
            lines = list(self._connections)
        for line in lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def reopen(self) -> None:
        self._open = True

    def close(self) -> None:
        self._closed = True
        self.cut_off()
        with suppress(OSError):  # only this wakes who waits at the door, and would keep it open
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept_connections(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(
                    ACCEPT_RETRY_SECONDS
                )  # too many open files, or a caller that has gone: no reason to close the door
                continue
            if not self._open or len(self._connections) >= 2 * MAX_CONNECTIONS:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.port), 10)
            except OSError:
                near.close()
                continue
            with self._lock:
                if through := self._open:
                    self._connections |= {near, far}
            if not through:
                near.close()
                far.close()
                continue
            near.settimeout(FIRST_BYTE_SECONDS)
            far.settimeout(None)
            for one, other in ((near, far), (far, near)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._copy_bytes, args=(one, other), daemon=True).start()

    def _copy_bytes(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(FORWARD_CHUNK_BYTES):
                one.settimeout(None)
                other.sendall(data)
        for line in (one, other):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._connections.discard(line)
        one.close()
