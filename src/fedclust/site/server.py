"""The part of a site that an engine can reach. It answers or refuses; it never raises, and no error text leaves."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedclust.core import wire
from fedclust.core.atomic_files import log_error, write_file
from fedclust.core.effects import HANDLERS, Handler, Keep, SealedMessages
from fedclust.core.envelope import Call, Refusal, SealedAnswer
from fedclust.core.errors import (
    AnswerChanged,
    DataError,
    KeysRefused,
    NotAsDeclared,
    OutOfBounds,
    OverBudget,
    WireError,
)
from fedclust.core.noise_price import Noisy
from fedclust.core.run_series import parse_series
from fedclust.core.site_interface import RowOrder
from fedclust.core.study_terms import StudyTerms
from fedclust.core.types import Array, PartyId
from fedclust.privacy import sealed_messages
from fedclust.privacy.blind import blind_aggregation
from fedclust.privacy.verified.transcript import finish
from fedclust.site.approval import Approval
from fedclust.site.gate import Gate
from fedclust.site.ledger import Ledger
from fedclust.site.noise_budget import NoiseBudget
from fedclust.site.policy import Policy
from fedclust.site.run_agreements import RunAgreements
from fedclust.site.site_data import HandlerContext, RowlessContext, SiteData, missing_rule_of
from fedclust.site.stored_state import SavedState, memory_of_package, read_stored_state, replace_memory_of_package
from fedclust.site.vault import Vaults
from fedclust.site.verified_run import CallRefused, ReplayOpener, VerifiedRun

ERROR_CODES: dict[type[Exception], str] = {
    DataError: "bad-data",
    OutOfBounds: "out-of-bounds",
    WireError: "not-understood",
    KeysRefused: "keys-refused",
    OverBudget: "over-budget",
    AnswerChanged: "answer-changed",
    NotAsDeclared: "not-as-declared",
}


class ForeignHandlerFailed(RuntimeError):
    """The handler of another package raised an error, of whatever kind."""


@contextlib.contextmanager
def _one_error_for_all(handler: Handler[Any, Any]) -> Iterator[None]:
    """Turn every error in the code of another package into the same error: its kind could carry bits of a row."""
    try:
        yield
    except (Exception, SystemExit, GeneratorExit) as error:
        if not handler.is_foreign or isinstance(error, NotAsDeclared):
            raise
        raise ForeignHandlerFailed("the handler of another package failed") from error


class SiteServer:
    """Serves a party's rows under its policy, with its ledger and stored state, through one method."""

    def __init__(
        self,
        site_data: SiteData,
        policy: Policy,
        *,
        seed: int = 0,
        folder: Path | None = None,
        durable: bool = True,
        vaults: Callable[[], Vaults] | None = None,
        approval: Approval | None = None,
        split: str | None = None,
        method: str | None = None,
        floored: bool = False,
        needs_alignment: bool = False,
        terms: StudyTerms | None = None,
        open_replay: ReplayOpener | None = None,
    ) -> None:
        policy.refuse_unlisted_columns(site_data.schema or site_data.source.columns, site_data.party)
        self.site_data = site_data
        noise_budget = NoiseBudget(policy, folder, durable=durable, study_rho=0.0 if terms is None else terms.rho)
        ledger = Ledger(folder, durable=durable)
        self.gate = Gate(
            site_data.party,
            policy,
            ledger,
            vaults,
            approval,
            noise_budget=noise_budget,
            split=split,
            method=method,
            floored=floored,
            terms=terms,
            agreements=RunAgreements(folder),
        )
        self.seed = seed
        self.needs_alignment = needs_alignment  # in a study of common rows, no other rows are read
        self.open_replay = open_replay  # of a study whose questions the site verifies
        self.memory: dict[str, dict[str, Array]] = {}
        self.last_error: Exception | None = None  # for the site's own staff
        self._data_by_run: dict[str, SiteData] = {}
        self._last_answer: tuple[str, int, bytes, SealedAnswer] | None = None
        self._folder = folder
        self._verified: VerifiedRun | None = None
        self._state_path = folder / "state" if folder else None
        self._saved_run: str | None = None  # the run that the stored state belongs to
        self._recalled_runs: set[str] = set()
        if self._state_path and self._state_path.exists():
            state = SavedState.read(self._state_path)
            self._saved_run = state.run
            self._restore_state(state, state.run)

    @property
    def party(self) -> PartyId:
        return self.site_data.party

    def data_for_run(self, run: str) -> SiteData:
        """Return the rows that a run reads: all, or those that the sites agreed on in it."""
        if run not in self._data_by_run:
            path = self._order_path(run)
            found = path is not None and path.exists()
            order = wire.decode(RowOrder, path.read_bytes()) if path is not None and found else None
            self._data_by_run[run] = self.site_data if order is None else self.site_data.with_order(order)
        return self._data_by_run[run]

    def share_memory(self, other: SiteServer) -> None:
        """Remember from now on what another server over the same rows remembers, as a rehearsal needs it."""
        self.memory, self._data_by_run = other.memory, other._data_by_run

    def answer(self, call: Call) -> SealedAnswer | Refusal:
        """Return the answer to a call, or a code; in blind mode the code is encrypted too."""
        self.last_error = None
        if call.is_encrypted:
            call = replace(call, is_encrypted=False)  # only this server may find out
        try:
            reply = self._answer_call(call)
        except CallRefused as refused:
            reply = self._refuse_and_log(refused.code, refused)
        except Exception as error:  # noqa: BLE001 whatever a handler raises stays at the site
            reply = self._refuse_and_log(self._refusal_code(error, call), error)
        if isinstance(reply, Refusal) and call.handler in blind_aggregation.CARRIERS:
            with contextlib.suppress(KeysRefused):
                return Refusal(
                    self.party, blind_aggregation.encrypt_code(reply.code, call, self.gate.vault_for(call.run))
                )
        return reply

    def _refusal_code(self, error: Exception, call: Call) -> str:
        """Return the code that leaves the site for an error."""
        if isinstance(error, OutOfBounds):
            self.gate.abstain(call, "out-of-bounds")  # answers to ever closer bounds would reveal a largest value
        code = next((code for kind, code in ERROR_CODES.items() if isinstance(error, kind)), "failed")
        one = HANDLERS.get(call.handler)
        foreign = one is not None and one.is_foreign and not isinstance(error, (KeysRefused, AnswerChanged))
        if foreign or isinstance(error, (ForeignHandlerFailed, NotAsDeclared)):
            self.gate.abstain(call, code)  # a failure in one round and none in the next would be a message too
        return code

    def answer_bytes(self, data: bytes) -> SealedAnswer | Refusal:
        """Return the encoded reply to an encoded call."""
        try:
            call = Call.decode(data)
        except Exception as error:  # noqa: BLE001 bytes from outside must not stop a site
            return self._refuse_and_log("not-understood", error)
        return self.answer(call)

    def _answer_call(self, call: Call) -> SealedAnswer | Refusal:
        encryption = None
        if call.handler in blind_aggregation.CARRIERS:
            call, encryption = blind_aggregation.decrypt_question(call, self.gate.vault_for(call.run), self.party)
        self._load_memory(call.run)
        if self._is_superseded(call.run):
            return Refusal(self.party, "round-passed")
        if (again := self._check_repeated_step(call)) is not None:
            return again
        handler = HANDLERS[call.handler]
        proved_with = self._follow_script(call)
        if code := self._refusal_in_advance(call, handler):
            return Refusal(self.party, code)
        site_data = self.data_for_run(call.run)
        with _one_error_for_all(handler):
            missing = missing_rule_of(handler, call.message)
        if self.needs_alignment and site_data is self.site_data and not handler.before_alignment:
            return Refusal(self.party, "not-aligned")
        rows = site_data.survey_for(missing).rows if self._must_count_rows(handler) else 0
        with _one_error_for_all(handler):
            if code := self._admit(call, handler, rows):
                return Refusal(self.party, code)
        context = self._make_context(call, handler, missing)
        message = self._read_message(call, handler)
        answer = (
            self.gate.noise_budget.answer_with_noise(
                call, handler.release, lambda: self.compute_answer(handler, context, message)
            )
            if issubclass(handler.release, Noisy)
            else self.compute_answer(handler, context, message)
        )
        with _one_error_for_all(handler):
            answer = read_stored_state(handler, answer)
            release = self.gate.receive(handler, answer.release if isinstance(answer, Keep) else answer)
            if handler.is_foreign:  # the rules ask a context that the handler has not seen
                context = self._make_context(call, handler, missing)
            if code := self.gate.judge(call, handler, release, context):
                return Refusal(self.party, code)
        if self._verified is not None:
            self._verified.commit()
        sealed = self.gate.seal(call, release, encryption, proved_with=proved_with)
        self._store_with_answer(call, handler, answer, sealed)
        return sealed

    def _store_with_answer(self, call: Call, handler: Handler[Any, Any], answer: Any, sealed: SealedAnswer) -> None:
        """Store what must be known again if the answer is asked again, and the model of a verified run that ends."""
        if isinstance(answer, Keep):
            self._keep_with_answer(call, handler, answer, sealed)
        if handler.name == finish.name and self._verified is not None:
            self._verified.store_model()
        self._last_answer = (call.run, call.step, call.digest, sealed)

    def _follow_script(self, call: Call) -> str | None:
        """Refuse a call of a verified run that the script does not ask next; return the keys that prove its answer."""
        if self.open_replay is None:
            return None
        if self._verified is None or self._verified.run != call.run:
            self.close()
            self._verified = VerifiedRun(
                call.run, self.party, self._folder, self.open_replay, lambda: self.gate.vault_for(call.run)
            )
        return self._verified.follow(call)

    def close(self) -> None:
        """End the replay of a verified run, and close its transcript."""
        if self._verified is not None:
            self._verified.close()
            self._verified = None

    def _refusal_in_advance(self, call: Call, handler: Handler[Any, Any]) -> str | None:
        """Return the code to refuse a question of another package with before any of its code runs, or None."""
        if not handler.is_foreign:
            return None
        if not self.gate.policy.allows(handler):
            return "handler-not-allowed"
        return None if self.gate.policy.has_no_rules else self.gate.ledger.tally(call.run).abstained

    def _admit(self, call: Call, handler: Handler[Any, Any], rows: int) -> str | None:
        """Return the code to refuse a question with, or None; another package gets no answer afterwards.

        The rules run code of its message, so a refusal in one round and none in the next would be a message too.
        """
        code = self.gate.admit(call, handler, rows)
        if code is not None and handler.is_foreign:
            self.gate.abstain(call, code)
        return code

    def _read_message(self, call: Call, handler: Handler[Any, Any]) -> Any:
        """Return the question for a handler; another package gets a copy, because the rules read the question later."""
        message = call.message
        if isinstance(message, SealedMessages):
            message = sealed_messages.open_messages(message, call, self.gate.vault_for(call.run), self.party)
        return wire.copy_as(handler.message, message) if handler.is_foreign else message

    def _make_context(self, call: Call, handler: Handler[Any, Any], missing: str) -> HandlerContext:
        """Return what a handler sees; another package gets neither the site's keys nor what fedclust stored."""
        kind = RowlessContext if handler.reads == "nothing" else HandlerContext
        return kind(
            self.data_for_run(call.run),
            (self.seed, call.step),
            memory_of_package(self.memory.get(call.run, {}), handler.package),
            missing,
            None if handler.is_foreign else lambda: self.gate.vault_for(call.run),
            point_floor=self.gate.policy.min_cell,
            one_rule=handler.is_foreign,
        )

    def _must_count_rows(self, handler: Handler[Any, Any]) -> bool:
        """Return whether the gate needs the number of rows; a question that reads none needs it for the floor only.

        If noise hides the rows, do not count them first: even a failed count would reveal something about them.
        """
        return not self.gate.is_private and (handler.reads != "nothing" or self.gate.policy.min_rows > 0)

    def _keep_with_answer(
        self, call: Call, handler: Handler[Any, Any], answer: Keep[Any], sealed: SealedAnswer
    ) -> None:
        """Store what an answer asks the site to remember."""
        if answer.order is not None:
            self._save_order(call.run, answer.order)
        before = self.memory.get(call.run, {})
        self._save_memory(call, sealed, replace_memory_of_package(before, handler.package, answer.memory))

    def compute_answer(self, handler: Handler[Any, Any], context: HandlerContext, message: Any) -> Any:
        """Return the answer to a question, before the gate has seen it."""
        with _one_error_for_all(handler):
            return handler.answer(context, message)

    def _check_repeated_step(self, call: Call) -> SealedAnswer | Refusal | None:
        """Answer a step once: the same question gets the same answer again, and another question gets none."""
        if self._last_answer and self._last_answer[:3] == (call.run, call.step, call.digest):
            return self._last_answer[3]
        last = self.gate.ledger.last_entry(call.run)
        passed = self._last_answer[1] if self._last_answer and self._last_answer[0] == call.run else 0
        if call.step <= passed:
            return Refusal(self.party, "step-reused")
        if last is None or call.step > last.step or (call.step == last.step and call.digest.hex() == last.call):
            return None
        return Refusal(self.party, "step-reused")

    def _refuse_and_log(self, code: str, error: Exception) -> Refusal:
        self.last_error = error
        if self._state_path:
            log_error(self._state_path.parent, code, error)
        return Refusal(self.party, code)

    def _save_order(self, run: str, order: RowOrder) -> None:
        self._check_same_rows(run, order)
        if (path := self._order_path(run)) is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(path, wire.encode(order))
        self._data_by_run[run] = self.site_data.with_order(order)

    def _check_same_rows(self, run: str, order: RowOrder) -> None:
        """Refuse other rows in another run of a study: a sum with and without one row would reveal it."""
        study = run.partition("-")[2]
        if self.gate.policy.has_no_rules or not study or (path := self._order_path(study)) is None:
            return
        now = wire.encode(RowOrder(np.sort(order.rows), b""))
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(path, now)
        if path.read_bytes() != now:
            raise KeysRefused(
                "the rows that all sites have in common differ from those in an earlier run of this study; "
                "restore the earlier ids"
            )

    def _order_path(self, run: str) -> Path | None:
        if self._state_path is None:
            return None
        return self._state_path.with_name("orders") / hashlib.sha256(run.encode()).hexdigest()[:32]

    def _save_memory(self, call: Call, sealed: SealedAnswer, memory: dict[str, Array]) -> None:
        if self._state_path:
            if self._saved_run is not None and parse_series(self._saved_run)[0] != parse_series(call.run)[0]:
                kept = self._saved_state_path(self._saved_run, self._state_path)
                kept.parent.mkdir(mode=0o700, exist_ok=True)
                write_file(kept, self._state_path.read_bytes())  # that study may continue later
            write_file(
                self._state_path, wire.encode(SavedState(call.run, call.step, call.digest, sealed.wire_bytes, memory))
            )
            self._saved_run = call.run
        self.memory[call.run] = memory

    def _load_memory(self, run: str) -> None:
        """Load the stored state of a run, or of the run before it in its series."""
        if self._state_path is None or run in self.memory or run in self._recalled_runs:
            return
        self._recalled_runs.add(run)
        for path in (self._state_path, self._saved_state_path(run, self._state_path)):
            state = SavedState.read(path) if path.exists() else None
            if state is not None and parse_series(state.run)[0] == parse_series(run)[0]:
                self._restore_state(state, run)
                break

    def _restore_state(self, state: SavedState, run: str) -> None:
        self.memory[state.run] = state.memory
        if state.run == run:
            self._last_answer = (state.run, state.step, state.digest, SealedAnswer.decode(state.reply))
        elif parse_series(state.run)[1] < parse_series(run)[1]:
            self.memory[run] = state.memory

    def _is_superseded(self, run: str) -> bool:
        """Return whether a later run of the same series was answered: this one would get the same information again."""
        if self.memory.keys() <= {run}:
            return False
        first, place = parse_series(run)
        return any(of == first and at > place for of, at in map(parse_series, self.memory))

    def _saved_state_path(self, run: str, path: Path) -> Path:
        """Return where the state of a series is stored while another series is active."""
        return path.with_name("states") / hashlib.sha256(parse_series(run)[0].encode()).hexdigest()[:32]
