"""The site's side of a FLARE job passes each request to the process that has the rows, and returns its reply.

The rows are never in a FLARE process, so nothing that FLARE logs, raises or sends can contain them.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.job_def import SERVER_SITE_NAME
from nvflare.apis.shareable import Shareable, make_reply

from fedclust.engines.nvflare.child_processes import (
    ARRIVAL_TOPIC,
    PAYLOAD_FIELD,
    REQUEST_TOPIC,
    connect_to_listener,
    exit_with_line,
)

ANNOUNCE_TIMEOUT_SECONDS = 5.0  # time limit for the bridge to confirm an arrival, in seconds


class SiteExecutor(Executor):  # type: ignore[misc]
    """The only component that a site's settings allow a job to run."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type != EventType.START_RUN:
            return
        self.line, self.line_lock = connect_to_listener(), threading.Lock()
        threading.Thread(target=exit_with_line, args=(connect_to_listener(),), name="fedclust-end", daemon=True).start()
        engine = fl_ctx.get_engine()
        engine.register_aux_message_handler(REQUEST_TOPIC, self.forward_request)
        threading.Thread(target=self._announce_site, args=(engine,), name="fedclust-here", daemon=True).start()

    def _announce_site(self, engine: Any) -> None:
        """Report to the bridge that this site is ready; FLARE starts the server's side of a job long before."""
        while True:
            with engine.new_context() as context:
                replies = (
                    engine.send_aux_request(
                        [SERVER_SITE_NAME], ARRIVAL_TOPIC, Shareable(), ANNOUNCE_TIMEOUT_SECONDS, context
                    )
                    or {}
                )
            reply = replies.get(SERVER_SITE_NAME)
            if reply is not None and reply.get_return_code() == ReturnCode.OK:
                return
            time.sleep(ANNOUNCE_TIMEOUT_SECONDS / 10)

    def forward_request(self, topic: str, request: Any, fl_ctx: Any) -> Any:  # noqa: ARG002 FLARE's signature
        """The reply of the serving process; requests may arrive in parallel, and it answers them one at a time."""
        data = request.get(PAYLOAD_FIELD)
        if not isinstance(data, bytes):
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        reply = Shareable()
        try:
            with self.line_lock:
                self.line.send_bytes(data)
                reply[PAYLOAD_FIELD] = self.line.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)  # the serving process is gone; FLARE then ends the job, and the coordinator asks again
        return reply

    def execute(self, *_: Any, **__: Any) -> Any:
        """No task is ever assigned."""
        return make_reply(ReturnCode.TASK_UNKNOWN)
