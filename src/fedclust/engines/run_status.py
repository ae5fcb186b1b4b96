"""A run's status shows when each site was last heard, how many answers and bytes it sent, and what it refused.

It contains no value, column or row. Times are for people to read; nothing is decided by them.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any, runtime_checkable
from typing import Protocol as Structural

from fedclust.core.atomic_files import write_file
from fedclust.core.drive import Engine, Reply
from fedclust.core.envelope import Call, Refusal, SealedAnswer
from fedclust.core.types import PartyId
from fedclust.engines.attendance import Attendance, EventListener
from fedclust.site.ledger import LedgerEntry

STATUS_FORMAT, STATUS_VERSION = "fedclust-status", 1
STATUS_WRITE_SECONDS = 0.5  # least seconds between two writes of the status file


def combine_listeners(*listeners: EventListener) -> EventListener:
    """A listener that passes each event to several listeners in turn."""

    def notify_all(event: str, **facts: object) -> None:
        for one in listeners:
            one(event, **facts)

    return notify_all


@runtime_checkable
class KeepsLedgers(Structural):
    """An engine whose sites' ledgers are remote, as those of a cluster are."""

    def ledgers(self) -> Mapping[PartyId, Sequence[LedgerEntry]]: ...


@runtime_checkable
class ReportsReplies(Structural):
    """An engine that reports each reply as it arrives."""

    attendance: Attendance


class ObservedEngine:
    """Wraps an engine and reports each exchange to a listener."""

    def __init__(self, engine: Engine, notify: EventListener) -> None:
        self.engine = engine
        self.notify = notify
        self.parties = engine.parties

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        first = next(iter(calls.values()))
        self.notify("asked", step=first.step, question=first.handler, sites=list(calls), need=quorum)
        began = time.monotonic()
        replies = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        if not isinstance(self.engine, ReportsReplies):
            for party, reply in replies.items():
                report_reply(self.notify, party, reply, first.step)
        for party in calls:
            if party not in replies:
                self.notify("silent", site=party, step=first.step)
        self.notify("settled", step=first.step, seconds=round(time.monotonic() - began, 6))
        return replies


def report_reply(notify: EventListener, party: PartyId, reply: Reply, step: int) -> None:
    """Report one reply."""
    if isinstance(reply, Refusal):
        notify("refused", site=party, step=step, code=reply.code)
    elif isinstance(reply, SealedAnswer):
        notify("answered", site=party, step=step, bytes=reply.size)


class RunStatus:
    """The state of a run, built from its events and stored in a file that can be read at any time."""

    def __init__(self, path: Path | None, parties: Sequence[PartyId], **about: Any) -> None:
        self._path = path
        self._next_write = 0.0
        self._lock = threading.Lock()
        before = read_status(path) if path else None
        self.document: dict[str, Any] = before or {
            "format": STATUS_FORMAT,
            "version": STATUS_VERSION,
            "state": "running",
            "step": 0,
            "question": None,
            "steps": 0,
            "seconds": 0.0,
            "waiting": [],
            "files": {},
            "sites": {party: _new_site_status() for party in parties},
        }
        self.document |= about | {"state": "running", "waiting": []}

    def __call__(self, event: str, **facts: Any) -> None:
        with self._lock:
            self._apply_event(event, facts)
            self._write_status(at_once=event in ("state", "suspended", "rejoined", "job"))

    def snapshot(self) -> dict[str, Any]:
        """A copy of the status that later events do not change."""
        with self._lock:
            return copy.deepcopy(self.document)

    def _apply_event(self, event: str, facts: Mapping[str, Any]) -> None:
        whole = self.document
        now = whole["updated"] = _timestamp()
        site = whole["sites"].get(facts.get("site"))
        if event == "asked":
            whole |= {
                "step": facts["step"],
                "question": facts["question"],
                "waiting": list(facts["sites"]),
                "files": {},
            }
        elif event == "settled":
            whole |= {"steps": whole["steps"] + 1, "seconds": round(whole["seconds"] + facts["seconds"], 6)}
            whole["waiting"] = []
        elif event == "state":
            whole |= {"state": facts["state"]}
        elif event == "job":
            whole["jobs"] = facts["number"]
        elif event == "bad-file":
            whole["files"][facts["file"]] = facts["why"]
        elif site is not None:
            _apply_site_event(site, event, facts, now)
            if facts["site"] in whole["waiting"] and event in ("answered", "refused"):
                whole["waiting"].remove(facts["site"])

    def _write_status(self, *, at_once: bool) -> None:
        began = time.monotonic()
        if self._path is None or (not at_once and began < self._next_write):
            return
        # A status file that cannot be written does not stop the run.
        with contextlib.suppress(OSError):
            write_file(self._path, json.dumps(self.document, indent=1), durable=False)
        # With thousands of sites a write takes a while; it must stay a small share of the run.
        self._next_write = time.monotonic() + max(STATUS_WRITE_SECONDS, 50 * (time.monotonic() - began))


def _new_site_status() -> dict[str, Any]:
    return {
        "seen": None,
        "step": 0,
        "answers": 0,
        "bytes": 0,
        "refusals": {},
        "silences": 0,
        "suspended": False,
        "dropped": {},
    }


def _apply_site_event(site: dict[str, Any], event: str, facts: Mapping[str, Any], now: str) -> None:
    if event in ("answered", "refused", "met", "rejoined"):
        site |= {"seen": now, "suspended": False}
    if event == "answered":
        site |= {"step": facts["step"], "answers": site["answers"] + 1, "bytes": site["bytes"] + facts["bytes"]}
    elif event == "refused":
        site["refusals"][facts["code"]] = site["refusals"].get(facts["code"], 0) + 1
    elif event == "silent":
        site["silences"] += 1
    elif event == "suspended":
        site["suspended"] = True
    elif event == "dropped":
        site["dropped"][facts["kind"]] = site["dropped"].get(facts["kind"], 0) + 1


def read_status(path: Path) -> dict[str, Any] | None:
    """The status in a file; None if it is missing or cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    sound = isinstance(found, dict) and (found.get("format"), found.get("version")) == (STATUS_FORMAT, STATUS_VERSION)
    return found if sound else None


class EventLog:
    """A log with one JSON document per line, for log collectors; a log that cannot be written does not stop the run."""

    def __init__(self, path: Path, run: str) -> None:
        self._path, self._run = path, run
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file: FileIO | None = os.fdopen(os.open(path, flags, 0o600), "ab", buffering=0)

    def __call__(self, event: str, **facts: object) -> None:
        line = json.dumps({"time": _timestamp(), "run": self._run, "event": event, **facts}).encode() + b"\n"
        if self._file is None:
            return
        try:
            self._append_line(self._file, line)
        except OSError as error:
            self.close()
            reason = (error.strerror or type(error).__name__).lower()
            with contextlib.suppress(OSError):
                sys.stderr.write(f"fedclust: cannot write to the log {self._path} ({reason}); the run continues\n")

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    @staticmethod
    def _append_line(file: FileIO, line: bytes) -> None:
        """Append a line completely or not at all."""
        before = os.fstat(file.fileno()).st_size
        if file.write(line) != len(line):
            file.truncate(before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
