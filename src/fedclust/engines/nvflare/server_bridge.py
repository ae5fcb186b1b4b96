"""The server's half of a FLARE job: it passes parcels between the coordinator's process and the sites, unopened.

The coordinator keeps its journal, its progress and its Ctrl-C in a process of its own; this component only carries. It
ends when the coordinator does.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply

from fedclust.core import wire
from fedclust.engines.nvflare.child_processes import BYTES, HERE, TOPIC, Joined, Parcel, call_home

AT_ONCE = 64  # parcels on their way
GATHERING = 40.0  # seconds that sites have to begin their half of a job
ENDING = 10.0  # seconds that FLARE has to end a job
POLL = 0.5  # seconds between looks at whether FLARE wants the job to end


class Bridge(Controller):  # type: ignore[misc]
    """A controller that asks no task of its own."""

    def start_controller(self, fl_ctx: Any) -> None:
        self.engine = fl_ctx.get_engine()
        self.here: set[str] = set()
        self.engine.register_aux_message_handler(HERE, self._arrived)

    def _arrived(self, topic: str, request: Any, fl_ctx: Any) -> Any:  # noqa: ARG002 FLARE's signature
        """A site's half of the job has begun."""
        self.here.add(str(fl_ctx.get_peer_context().get_identity_name()))
        return make_reply(ReturnCode.OK)

    def _gathered(self, abort_signal: Any) -> tuple[str, ...]:
        """The sites of this job, as soon as all of them are here, or those that came in time."""
        until = time.monotonic() + GATHERING
        everyone = {client.name for client in self.engine.get_clients()}
        while not everyone <= self.here and time.monotonic() < until and not abort_signal.triggered:
            time.sleep(0.02)
        return tuple(sorted(everyone & self.here))

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:  # noqa: ARG002 FLARE's signature
        """Carry parcels until the coordinator hangs up or FLARE ends the job."""
        with call_home() as line:
            line.send_bytes(wire.encode(Joined(self._gathered(abort_signal))))
            with ThreadPoolExecutor(AT_ONCE, "parcel") as carriers:
                lock = threading.Lock()
                while not abort_signal.triggered:
                    if not line.poll(POLL):
                        continue
                    try:
                        parcel = wire.decode(Parcel, line.recv_bytes())
                    except (EOFError, OSError):
                        self._end_soon()
                        break
                    carriers.submit(self._carry, parcel, line, lock)

    @staticmethod
    def _end_soon() -> None:
        """The coordinator hung up. FLARE ends the job now, unless its server went with the coordinator."""
        end = threading.Timer(ENDING, os._exit, (0,))
        end.daemon = True
        end.start()

    def _carry(self, parcel: Parcel, line: Connection, lock: threading.Lock) -> None:
        """One parcel there, and what comes back: nothing in it, where the site could not be reached.

        A site that is there and says nothing is silent: it would be no nearer on another road.
        """
        request = Shareable()
        request[BYTES] = parcel.data
        with self.engine.new_context() as context:
            # One target a call: broadcasts of several messages are not to be relied on in this version.
            replies = self.engine.send_aux_request([parcel.to], TOPIC, request, parcel.timeout, context) or {}
        reply = replies.get(parcel.to)
        data = b""
        if reply is not None and reply.get_return_code() == ReturnCode.OK:
            data = reply.get(BYTES)
            if not isinstance(data, bytes) or not data:
                return
        try:
            with lock:
                line.send_bytes(wire.encode(Parcel(parcel.to, data, 0.0, parcel.asking)))
        except OSError:
            return  # the coordinator is gone; it will ask again when it is back

    def stop_controller(self, fl_ctx: Any) -> None:
        """Nothing is left to stop."""

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        """No tasks are given, so none come back."""
