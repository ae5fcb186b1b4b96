"""The entry point of a site for messages from outside: it meets a coordinator, recognises it after a restart, and
serves it.

Every engine between machines passes what arrives to `SiteSession.answer_message` and sends back what that returns. The
method never raises.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from fedclust.core import wire
from fedclust.core.atomic_files import log_error, write_file
from fedclust.core.envelope import (
    NO_OUTCOMES,
    REMEDIES,
    Answer,
    Call,
    EarlierOutcomes,
    OpenedCall,
    Refusal,
    SealedAnswer,
)
from fedclust.core.errors import DataError, RuleRefusal, RunFailed, StudyError, WireError
from fedclust.core.file_locks import locked_folder
from fedclust.core.greeting import Greeting, Welcome, versions_differ
from fedclust.core.types import PartyId
from fedclust.site.approval import digest_study, study_digest_from_run
from fedclust.site.server import SiteServer

OPENED_CALL_HEAD = wire.MAGIC + wire.wire_name(OpenedCall).encode() + b"\0"
MAX_KEPT_REFUSALS = 64  # refusal texts that nobody has fetched yet
MAX_UNANSWERED_RUNS = 256  # runs that are remembered although nothing was answered in them
ENCRYPTED_REFUSAL_REASON = "a rule of its policy; in a blind run, only the lead site learns which rule"
ServerOpener = Callable[[str], SiteServer]
"""Returns the server for a study's text; raises StudyError if this site does not take part in it."""


class SiteSession:
    """A site's entry point for encoded calls; only the process that opened it serves the site.

    `only_study` is the text of a study, if the site serves no other.
    """

    def __init__(
        self, party: PartyId, folder: Path, open_server: ServerOpener, *, only_study: str | None = None
    ) -> None:
        self.party = party
        self.folder = folder
        self.last_error: Exception | None = None  # for the site's own staff
        self.refusals: deque[str] = deque(
            maxlen=MAX_KEPT_REFUSALS
        )  # the reasons for its refusals, to show to the site's staff
        self._open_server = open_server
        self._only_study = only_study
        self._served_run: str | None = None
        self._site_server: SiteServer | None = None
        self._message_lock = threading.Lock()
        self._folder_lock = locked_folder(folder)

    def __enter__(self) -> Self:
        self._folder_lock.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_server()
        self._folder_lock.__exit__(kind, error, trace)

    def answer_message(self, data: bytes) -> bytes:
        """Return the reply to a greeting or to a call, one at a time."""
        with self._message_lock:
            self.last_error = None
            return self._answer_greeting(data) if data[:1] == b"{" else self._answer_call_bytes(data)

    def server_for_run(self, run: str) -> SiteServer | None:
        """Return the server of a run that this site was greeted for, or None if it takes no part."""
        with self._message_lock:
            greeting = self.greeting_for_run(run)
            return self._site_server if greeting is not None and not self._refusal_of_greeting(greeting) else None

    def greeting_for_run(self, run: str) -> Greeting | None:
        """Return the greeting that this site received for a run, even before a restart."""
        with contextlib.suppress(OSError, WireError):
            return Greeting.decode(self._greeting_path(run).read_bytes())
        return None

    def _answer_greeting(self, data: bytes) -> bytes:
        try:
            greeting = Greeting.decode(data)
        except WireError as error:
            self._note_refusal(self._log_failure("not-understood", error))
            return Welcome("", self.party, "", "not-understood").encode()
        try:
            code = self._refusal_of_greeting(greeting) or self._remember_greeting(greeting)
        except Exception as error:  # noqa: BLE001 a full disk, or text that is not valid: the error stays at the site
            code = self._log_failure("failed", error)
        if code:
            self._note_refusal(code)
        return Welcome.reply_to(greeting, self.party, code).encode()

    def _remember_greeting(self, greeting: Greeting) -> str:
        """Store a greeting so that a restarted site knows the run; return a refusal code if too many runs got no
        answer.
        """
        path = self._greeting_path(greeting.run)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            entries = self._site_server.gate.ledger.entries if self._site_server else []
            answered = {self._greeting_path(run).name for run in {entry.run for entry in entries}}
            if sum(known.name not in answered for known in path.parent.iterdir()) >= MAX_UNANSWERED_RUNS:
                self._close_server()
                many = f"{MAX_UNANSWERED_RUNS} or more runs contacted this site and got no answer"
                return self._log_failure(
                    "too-many-runs", RunFailed(f"{many}; delete the files of old runs in {path.parent}")
                )
        write_file(path, greeting.encode())
        return ""

    def _refusal_of_greeting(self, greeting: Greeting) -> str:
        """Return the code to refuse a coordinator with, or an empty text if the server is ready."""
        if versions_differ(greeting, Welcome.reply_to(greeting, self.party)):
            return "another-version"
        if greeting.party != self.party:
            return "another-name"
        if digest_study(greeting.study) != study_digest_from_run(greeting.run) or self._only_study not in (
            None,
            greeting.study,
        ):
            return "another-study"
        return self._ensure_server(greeting)

    def _ensure_server(self, greeting: Greeting) -> str:
        if self._served_run == greeting.run:
            return ""
        self._close_server()  # only one server at a time writes the ledger
        try:
            self._site_server, self._served_run = self._open_server(greeting.study), greeting.run
        except StudyError as error:
            return self._log_failure(error.code if isinstance(error, RuleRefusal) else "another-study", error)
        except DataError as error:
            return self._log_failure("bad-data", error)
        except Exception as error:  # noqa: BLE001 every error stays at the site
            return self._log_failure("failed", error)
        return ""

    def _close_server(self) -> None:
        if self._site_server is not None:
            self._site_server.close()
        self._served_run = self._site_server = None

    def _answer_call_bytes(self, data: bytes) -> bytes:
        digest = hashlib.sha256(data).digest()
        try:
            earlier, data = _unpack_call(data)
            digest = hashlib.sha256(data).digest()
            reply = self._answer_call(replace(Call.decode(data), earlier=earlier))
        except Exception as error:  # noqa: BLE001 bytes from outside must not stop a site
            reply = Refusal(self.party, self._log_failure("not-understood", error))
        if isinstance(reply, Refusal):
            self._note_refusal(reply.code)
        return wire.encode(Answer.from_reply(digest, reply))

    def _answer_call(self, call: Call) -> SealedAnswer | Refusal:
        if self._served_run != call.run:
            greeting = self.greeting_for_run(call.run)
            if greeting is None:
                return Refusal(self.party, "not-greeted")
            if code := self._refusal_of_greeting(greeting):
                return Refusal(self.party, code)
        if self._site_server is None:
            return Refusal(self.party, "not-greeted")
        reply = self._site_server.answer(call)
        self.last_error = self._site_server.last_error
        return reply

    def _note_refusal(self, code: str) -> None:
        """Note the reason for a refusal: the local error if there is one, otherwise the text of the rule."""
        self.refusals.append(str(self.last_error or REMEDIES.get(code, ENCRYPTED_REFUSAL_REASON)))

    def _log_failure(self, code: str, error: Exception) -> str:
        self.last_error = error
        log_error(self.folder, code, error)
        return code

    def _greeting_path(self, run: str) -> Path:
        return self.folder / "runs" / hashlib.sha256(run.encode()).hexdigest()[:32]


def _unpack_call(data: bytes) -> tuple[EarlierOutcomes, bytes]:
    """Return the outcomes that came with a call of a verified run, and the call."""
    if not data.startswith(OPENED_CALL_HEAD):
        return NO_OUTCOMES, data
    opened = wire.decode(OpenedCall, data)
    return opened.earlier, opened.call
