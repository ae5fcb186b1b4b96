"""A site's half of a FLARE job: it hands what arrives to the process that has the rows, and brings its reply.

The rows are never in a FLARE process, so nothing that FLARE logs, raises or sends can speak of them.
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

from fedclust.engines.nvflare.child_processes import BYTES, HERE, TOPIC, call_home, end_with

SAYING = 5.0  # seconds that the bridge may take to hear that a site is here


class DeskExecutor(Executor):  # type: ignore[misc]
    """The one component that a site's settings let a job run."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type != EventType.START_RUN:
            return
        self.line, self.turn = call_home(), threading.Lock()
        threading.Thread(target=end_with, args=(call_home(),), name="fedclust-end", daemon=True).start()
        engine = fl_ctx.get_engine()
        engine.register_aux_message_handler(TOPIC, self.answer)
        threading.Thread(target=self._say_so, args=(engine,), name="fedclust-here", daemon=True).start()

    def _say_so(self, engine: Any) -> None:
        """Tell the bridge that this site can be asked; FLARE begins the server's half of a job long before."""
        while True:
            with engine.new_context() as context:
                replies = engine.send_aux_request([SERVER_SITE_NAME], HERE, Shareable(), SAYING, context) or {}
            reply = replies.get(SERVER_SITE_NAME)
            if reply is not None and reply.get_return_code() == ReturnCode.OK:
                return
            time.sleep(SAYING / 10)

    def answer(self, topic: str, request: Any, fl_ctx: Any) -> Any:  # noqa: ARG002 FLARE's signature
        """The reply of the serving process; messages may come side by side, it hears them one by one."""
        data = request.get(BYTES)
        if not isinstance(data, bytes):
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        reply = Shareable()
        try:
            with self.turn:
                self.line.send_bytes(data)
                reply[BYTES] = self.line.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)  # whoever serves this site is gone; FLARE then ends the job, and the coordinator asks again
        return reply

    def execute(self, *_: Any, **__: Any) -> Any:
        """No task is ever given."""
        return make_reply(ReturnCode.TASK_UNKNOWN)
