"""One site of a rehearsal: it answers under its real rules, and without rules where these refuse a question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from types import TracebackType
from typing import Self

from fedclust.app.rehearsal_sites import RehearsalFile, without_approval, without_column_rule
from fedclust.core import wire
from fedclust.core.envelope import REMEDIES, Answer, Call
from fedclust.core.errors import KeysRefused
from fedclust.core.greeting import Welcome
from fedclust.core.types import PartyId
from fedclust.privacy.blind import blind_aggregation
from fedclust.privacy.keys import Identity
from fedclust.site.policy import PROFILES
from fedclust.site.server import SiteServer
from fedclust.site.session import SiteSession
from fedclust.site.vault import Vaults

LOCAL_CODES = frozenset({"bad-data", "failed", "another-study", "keys-refused", "not-approved", "column-not-allowed"})
RULES_LEFT_OUT = {"column-not-allowed": without_column_rule, "not-approved": without_approval}
GREETING = "greeting"  # stands for the question where a site refuses the study as a whole


@dataclass(frozen=True)
class SiteRefusal:
    """All refusals of a site by one rule: at which message first, how often, which questions, and why."""

    code: str
    message: int
    question: str
    reason: str
    remedy: str
    times: int = 1
    questions: frozenset[str] = frozenset()


class RehearsedSite:
    """A site's session on a copy of its state; `goes_on` answers in its place where it refuses."""

    def __init__(
        self, file: RehearsalFile, open_server: Callable[[RehearsalFile], SiteServer], *, goes_on: bool
    ) -> None:
        self.party: PartyId = file.name
        self.asked = self.answered = 0
        self.refusals: dict[str, SiteRefusal] = {}
        self.message_of_leaving: int | None = None
        self._file, self._open_server, self._goes_on = file, open_server, goes_on
        self._server: SiteServer | None = None
        self._unruled: SiteServer | None = None
        if file.state is None:
            raise AssertionError("a rehearsal always gives a site a folder for its state")
        self.session = SiteSession(file.name, file.state, self._open)
        if file.real is not None and file.real.state is None:
            why = "its site file has no state, without which it cannot be served"
            remedy = "set state to a folder for the ledger, the memory and the keys"
            self.refusals["no-state"] = SiteRefusal("no-state", 0, GREETING, why, remedy)

    def __enter__(self) -> Self:
        self.session.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.__exit__(kind, error, trace)

    @property
    def vaults(self) -> Vaults | None:
        """The keys of the site, if it has an identity and takes part."""
        return None if self._server is None or self._server.gate.vaults is None else self._server.gate.vaults()

    def answer_message(self, data: bytes) -> bytes:
        """Answer a greeting or a call, as the site's session does in a served run."""
        return self._answer_greeting(data) if data[:1] == b"{" else self._answer_call(data)

    def _open(self, _: str) -> SiteServer:
        self._server, self._unruled = self._open_server(self._file), None
        return self._server

    def _answer_greeting(self, data: bytes) -> bytes:
        """Answer a greeting; a rule about the study as a whole is noted and left out, to find out what else refuses."""
        while True:
            reply = self.session.answer_message(data)
            code = Welcome.decode(reply).code
            if not code:
                return reply
            known = code in self.refusals
            self._note_refusal(code, GREETING)
            if known or not self._goes_on or code not in RULES_LEFT_OUT:
                return reply
            self._file = RULES_LEFT_OUT[code](self._file)

    def _answer_call(self, data: bytes) -> bytes:
        self.asked += 1
        left = self._has_left(call := Call.decode(data))
        reply = self.session.answer_message(data)
        answer = wire.decode(Answer, reply)
        if answer.sealed is not None:
            self.answered += 1
            return reply
        if not left:
            self._note_refusal(*self._read_refusal(call, answer.code))
            if self._has_left(call):
                self.message_of_leaving = self.asked
        server = self._server_without_rules() if self._goes_on else None
        if server is None:
            return reply
        return wire.encode(Answer.from_reply(call.digest, server.answer_bytes(data)))

    def _has_left(self, call: Call) -> bool:
        """Return whether the site abstains for the rest of the run."""
        return self._server is not None and self._server.gate.ledger.tally(call.run).abstained is not None

    def _read_refusal(self, call: Call, code: str) -> tuple[str, str]:
        """Return the code and the question of a refusal; in a blind run both are encrypted."""
        if call.handler not in blind_aggregation.CARRIERS or self._server is None:
            return code, call.handler
        vault = self._server.gate.vault_for(call.run)
        try:
            question = blind_aggregation.decrypt_question(call, vault, self.party)[0].handler
            return blind_aggregation.decrypt_own_code(code, call, vault).strip(), question
        except (KeysRefused, ValueError):
            return code, call.handler

    def _note_refusal(self, code: str, question: str) -> None:
        before = self.refusals.get(code)
        if before is not None:
            self.refusals[code] = replace(before, times=before.times + 1, questions=before.questions | {question})
            return
        reason, _, remedy = REMEDIES.get(code, "it refused").partition("; ")
        error = self.session.last_error
        if code in LOCAL_CODES and error is not None:
            reason, remedy = f"{reason} ({error})", ""
        self.refusals[code] = SiteRefusal(code, self.asked, question, reason, remedy, questions=frozenset({question}))

    def _server_without_rules(self) -> SiteServer | None:
        """Return a server over the same rows, memory and keys that answers whatever it can."""
        ruled = self._server
        if ruled is None or self._unruled is not None:
            return self._unruled
        vaults = ruled.gate.vaults
        if vaults is None:
            vaults = cache(partial(Vaults, Identity.new(), self._file.roster))
        gate = ruled.gate
        self._unruled = SiteServer(
            ruled.site_data,
            PROFILES["none"],
            seed=ruled.seed,
            vaults=vaults,
            split=gate.split,
            method=gate.method,
            floored=gate.floored,
            needs_alignment=ruled.needs_alignment,
        )
        self._unruled.share_memory(ruled)
        return self._unruled
