"""The metrics endpoint serves a run's status to Prometheus, on this machine's loopback address only."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from fedclust.core.errors import StudyError
from fedclust.engines.run_status import RunStatus

LOOPBACK_ADDRESS = "127.0.0.1"
PROMETHEUS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(status: Mapping[str, Any]) -> str:
    """A status in the text format of Prometheus.

    >>> print(prometheus_text({"step": 3, "steps": 3, "seconds": 0.5, "sites": {}}).splitlines()[2])
    fedclust_step 3
    """
    return "\n".join(_metric_lines(status)) + "\n"


def _metric_lines(status: Mapping[str, Any]) -> Iterator[str]:
    sites = status["sites"]
    yield from _format_metric("fedclust_step", "gauge", "number of the latest step", [("", status["step"])])
    yield from _format_metric("fedclust_steps_total", "counter", "number of completed steps", [("", status["steps"])])
    yield from _format_metric(
        "fedclust_step_seconds_total", "counter", "time spent in completed steps, in seconds", [("", status["seconds"])]
    )
    for name, kind, why, key in (
        ("fedclust_answers_total", "counter", "number of answers from a site", "answers"),
        ("fedclust_answer_bytes_total", "counter", "size of all answers from a site, in bytes", "bytes"),
        ("fedclust_silences_total", "counter", "number of steps that a site did not answer", "silences"),
        (
            "fedclust_suspended",
            "gauge",
            "1 while a site is suspended (not asked, because it did not answer), otherwise 0",
            "suspended",
        ),
    ):
        yield from _format_metric(name, kind, why, [(f"site={_quote_label(p)}", own[key]) for p, own in sites.items()])
    for name, why, key, label in (
        ("fedclust_refusals_total", "number of refusals from a site", "refusals", "code"),
        ("fedclust_dropped_total", "number of replies from a site that were dropped", "dropped", "kind"),
    ):
        counts = [
            (f"site={_quote_label(party)},{label}={_quote_label(what)}", count)
            for party, own in sites.items()
            for what, count in own[key].items()
        ]
        yield from _format_metric(name, "counter", why, counts)


def _format_metric(name: str, kind: str, why: str, values: list[tuple[str, Any]]) -> Iterator[str]:
    yield f"# HELP {name} {why}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        yield f"{name}{{{labels}}} {float(value):.10g}" if labels else f"{name} {float(value):.10g}"


def _quote_label(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class MetricsEndpoint:
    """The endpoint /metrics for the duration of a `with` block; port 0 selects a free port."""

    def __init__(self, status: RunStatus, port: int) -> None:
        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path != "/metrics":
                    self.send_error(404)
                    return
                body = prometheus_text(status.snapshot()).encode()
                self.send_response(200)
                self.send_header("Content-Type", PROMETHEUS_CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Requests are not logged, so that reading metrics writes nothing to the terminal."""

        try:
            self._server = ThreadingHTTPServer((LOOPBACK_ADDRESS, port), Page)
        except (OSError, OverflowError):
            raise StudyError(f"--metrics cannot use port {port} of {LOOPBACK_ADDRESS}; choose another port") from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
