"""Where messages from outside reach a site: it meets a coordinator, knows it again after a restart, and hands calls in.

Every engine between machines gives what arrives to `Reception.hear` and sends back what that returns. It never raises.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from fedclust.core import wire
from fedclust.core.atomic_files import log_error, write_file
from fedclust.core.envelope import REMEDIES, Answer, Call, Refusal, Sealed
from fedclust.core.errors import DataError, RunFailed, StudyError, WireError
from fedclust.core.file_locks import locked_folder
from fedclust.core.greeting import Greeting, Welcome, versions_differ
from fedclust.core.types import PartyId
from fedclust.site.approval import digest_in, digest_of
from fedclust.site.server import Desk

KEPT = 64  # sentences about refusals that nobody has asked for
UNASKED = 256  # runs that are remembered though nothing was answered in them
UNDER_VEIL = "a rule of its policy; which one, a blind run tells its lead alone"
Opening = Callable[[str], Desk]
"""A study's text to the desk that serves it; refuses with a StudyError what this site does not take part in."""


class Reception:
    """One site's door for calls that arrive as bytes; the process that opened it is the only one that serves the site.

    `only` is a study's text, where no other is to be served.
    """

    def __init__(self, party: PartyId, folder: Path, opening: Opening, *, only: str | None = None) -> None:
        self.party = party
        self.folder = folder
        self.trouble: Exception | None = None  # for the site's own eyes
        self.refusals: deque[str] = deque(maxlen=KEPT)  # why it said no, for whoever shows that to the site
        self._opening = opening
        self._only = only
        self._run: str | None = None
        self._desk: Desk | None = None
        self._turn = threading.Lock()
        self._lock = locked_folder(folder)

    def __enter__(self) -> Self:
        self._lock.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    def hear(self, data: bytes) -> bytes:
        """The reply to a greeting or to a call, one at a time."""
        with self._turn:
            self.trouble = None
            return self._met(data) if data[:1] == b"{" else self._asked(data)

    def desk(self, run: str) -> Desk | None:
        """The desk of a run that this site was greeted for; none where it takes no part."""
        with self._turn:
            greeting = self.known(run)
            return self._desk if greeting is not None and not self._against(greeting) else None

    def known(self, run: str) -> Greeting | None:
        """What this site was greeted with for a run, also before a restart."""
        with contextlib.suppress(OSError, WireError):
            return Greeting.decode(self._path(run).read_bytes())
        return None

    def _met(self, data: bytes) -> bytes:
        try:
            greeting = Greeting.decode(data)
        except WireError as error:
            self._said_no(self._note("not-understood", error))
            return Welcome("", self.party, "", "not-understood").encode()
        try:
            code = self._against(greeting) or self._remembered(greeting)
        except Exception as error:  # noqa: BLE001 a full disk, or text that is none: it stays at the site
            code = self._note("failed", error)
        if code:
            self._said_no(code)
        return Welcome.of(greeting, self.party, code).encode()

    def _remembered(self, greeting: Greeting) -> str:
        """Know a run again after a restart; the code to refuse it with where too many were greeted for nothing."""
        path = self._path(greeting.run)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            entries = self._desk.gate.ledger.entries if self._desk else []
            answered = {self._path(run).name for run in {entry.run for entry in entries}}
            if sum(known.name not in answered for known in path.parent.iterdir()) >= UNASKED:
                self._run = self._desk = None
                many = f"{UNASKED} runs or more greeted this site and got no answer"
                return self._note("too-many-runs", RunFailed(f"{many}; clear what is old in {path.parent}"))
        write_file(path, greeting.encode())
        return ""

    def _against(self, greeting: Greeting) -> str:
        """The code to refuse a coordinator with, or nothing: then the desk is open."""
        if versions_differ(greeting, Welcome.of(greeting, self.party)):
            return "another-version"
        if greeting.party != self.party:
            return "another-name"
        if digest_of(greeting.study) != digest_in(greeting.run) or self._only not in (None, greeting.study):
            return "another-study"
        return self._opened(greeting)

    def _opened(self, greeting: Greeting) -> str:
        if self._run == greeting.run:
            return ""
        self._run = self._desk = None  # one desk at a time writes the ledger
        try:
            self._desk, self._run = self._opening(greeting.study), greeting.run
        except StudyError as error:
            return self._note("another-study", error)
        except DataError as error:
            return self._note("bad-data", error)
        except Exception as error:  # noqa: BLE001 whatever it is, it stays at the site
            return self._note("failed", error)
        return ""

    def _asked(self, data: bytes) -> bytes:
        digest = hashlib.sha256(data).digest()
        try:
            reply = self._replied(Call.decode(data))
        except Exception as error:  # noqa: BLE001 bytes from outside must not stop a site
            reply = Refusal(self.party, self._note("not-understood", error))
        if isinstance(reply, Refusal):
            self._said_no(reply.code)
        return wire.encode(Answer.to(digest, reply))

    def _replied(self, call: Call) -> Sealed | Refusal:
        if self._run != call.run:
            greeting = self.known(call.run)
            if greeting is None:
                return Refusal(self.party, "not-greeted")
            if code := self._against(greeting):
                return Refusal(self.party, code)
        if self._desk is None:
            return Refusal(self.party, "not-greeted")
        reply = self._desk.answer(call)
        self.trouble = self._desk.trouble
        return reply

    def _said_no(self, code: str) -> None:
        """Remember why: in the words of what went wrong here, else in those of the rule."""
        self.refusals.append(str(self.trouble or REMEDIES.get(code, UNDER_VEIL)))

    def _note(self, code: str, error: Exception) -> str:
        self.trouble = error
        log_error(self.folder, code, error)
        return code

    def _path(self, run: str) -> Path:
        return self.folder / "runs" / hashlib.sha256(run.encode()).hexdigest()[:32]
