"""The server side of a FLARE job passes packets between the coordinator's process and the sites, unopened.

The coordinator keeps its journal, its progress and its Ctrl-C in its own process; this component only carries packets.
It ends when the coordinator does.
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
from fedclust.engines.nvflare.child_processes import (
    ARRIVAL_TOPIC,
    PAYLOAD_FIELD,
    REQUEST_TOPIC,
    JoinedSites,
    Packet,
    connect_to_listener,
)

MAX_PACKETS_IN_FLIGHT = 64  # packets in transit at a time
SITE_JOIN_SECONDS = 40.0  # time limit for sites to start their side of a job, in seconds
JOB_END_SECONDS = 10.0  # time limit for FLARE to end a job, in seconds
LINE_POLL_SECONDS = 0.5  # seconds between two checks whether FLARE wants the job to end


class ServerBridge(Controller):  # type: ignore[misc]
    """A controller that assigns no tasks."""

    def start_controller(self, fl_ctx: Any) -> None:
        self.engine = fl_ctx.get_engine()
        self.arrived_sites: set[str] = set()
        self.engine.register_aux_message_handler(ARRIVAL_TOPIC, self._note_arrival)

    def _note_arrival(self, topic: str, request: Any, fl_ctx: Any) -> Any:  # noqa: ARG002 FLARE's signature
        """Record that a site's side of the job has started."""
        self.arrived_sites.add(str(fl_ctx.get_peer_context().get_identity_name()))
        return make_reply(ReturnCode.OK)

    def _wait_for_sites(self, abort_signal: Any) -> tuple[str, ...]:
        """The sites of this job, as soon as all have arrived; after the time limit, those that have."""
        until = time.monotonic() + SITE_JOIN_SECONDS
        everyone = {client.name for client in self.engine.get_clients()}
        while not everyone <= self.arrived_sites and time.monotonic() < until and not abort_signal.triggered:
            time.sleep(0.02)
        return tuple(sorted(everyone & self.arrived_sites))

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:  # noqa: ARG002 FLARE's signature
        """Carry packets until the coordinator disconnects or FLARE ends the job."""
        with connect_to_listener() as line:
            line.send_bytes(wire.encode(JoinedSites(self._wait_for_sites(abort_signal))))
            with ThreadPoolExecutor(MAX_PACKETS_IN_FLIGHT, "packet") as carriers:
                lock = threading.Lock()
                while not abort_signal.triggered:
                    if not line.poll(LINE_POLL_SECONDS):
                        continue
                    try:
                        packet = wire.decode(Packet, line.recv_bytes())
                    except (EOFError, OSError):
                        self._exit_after_timeout()
                        break
                    carriers.submit(self._carry_packet, packet, line, lock)

    @staticmethod
    def _exit_after_timeout() -> None:
        """End this process after the coordinator disconnected, if FLARE's server, gone too, does not end the job."""
        end = threading.Timer(JOB_END_SECONDS, os._exit, (0,))
        end.daemon = True
        end.start()

    def _carry_packet(self, packet: Packet, line: Connection, lock: threading.Lock) -> None:
        """Carry one packet to a site and its reply back; the reply is empty if the site could not be reached.

        A site that is connected but does not answer is silent; another job would not help, so nothing is sent back.
        """
        request = Shareable()
        request[PAYLOAD_FIELD] = packet.data
        with self.engine.new_context() as context:
            # One target per call: broadcasts of several messages are unreliable in this version of FLARE.
            replies = self.engine.send_aux_request([packet.site], REQUEST_TOPIC, request, packet.timeout, context) or {}
        reply = replies.get(packet.site)
        data = b""
        if reply is not None and reply.get_return_code() == ReturnCode.OK:
            data = reply.get(PAYLOAD_FIELD)
            if not isinstance(data, bytes) or not data:
                return
        try:
            with lock:
                line.send_bytes(wire.encode(Packet(packet.site, data, 0.0, packet.request_number)))
        except OSError:
            return  # the coordinator is gone; it asks again when it is back

    def stop_controller(self, fl_ctx: Any) -> None:
        """There is nothing to stop."""

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        """No tasks are assigned, so no results arrive."""
