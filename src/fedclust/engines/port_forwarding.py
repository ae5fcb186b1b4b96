"""Port forwarding passes connections on a named address to a loopback port, without reading their content."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Self

from fedclust.core.errors import StudyError

FORWARD_CHUNK_BYTES = 1 << 16  # bytes
MAX_CONNECTIONS = 256  # connections at a time; this bounds what callers can take of this process
FIRST_BYTE_SECONDS = 30.0  # time limit for the first byte of a connection, in seconds
ACCEPT_RETRY_SECONDS = 0.2  # seconds until the next try, if the machine cannot open another connection


class PortForwarder:
    """Forwards connections from `address` to a local port while it is open."""

    def __init__(self, address: tuple[str, int], port: int) -> None:
        self.port = port
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()  # also cuts off a connection that is being accepted while the forwarder closes
        self._open, self._closed = True, False
        try:
            self._listener = socket.create_server(address, backlog=64)
        except OSError as error:
            raise StudyError(
                f"cannot listen on {address[0]}:{address[1]} ({error.strerror}); choose another address"
            ) from None
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        threading.Thread(target=self._accept_connections, name="fedclust-forwarder", daemon=True).start()

    def cut_off(self) -> None:
        """Close all connections, and accept no new ones."""
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
        with suppress(OSError):  # only this wakes the accepting thread, which would keep the socket open
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
                time.sleep(ACCEPT_RETRY_SECONDS)  # too many open files, or the caller has gone: keep listening
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
