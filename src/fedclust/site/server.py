"""All that an engine can reach of a site. It answers or refuses; it never raises, and no text of an error leaves."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedclust.core import wire
from fedclust.core.atomic_files import log_error, write_file
from fedclust.core.effects import HANDLERS, Handler, Keep, Mail
from fedclust.core.envelope import Call, Refusal, Sealed
from fedclust.core.errors import AnswerChanged, DataError, KeysRefused, OutOfBounds, OverBudget, WireError
from fedclust.core.noise_price import Noisy
from fedclust.core.run_series import series
from fedclust.core.site_interface import Order
from fedclust.core.types import Array, PartyId
from fedclust.privacy import sealed_messages
from fedclust.privacy.blind import blind_aggregation
from fedclust.site.approval import Approval
from fedclust.site.gate import Gate
from fedclust.site.ledger import Ledger
from fedclust.site.noise_budget import Till
from fedclust.site.policy import Policy
from fedclust.site.site_data import Holding, RowlessTurn, Turn, missing_in
from fedclust.site.vault import Vaults

LAYOUT = 1  # of what handlers remember
CODES: dict[type[Exception], str] = {
    DataError: "bad-data",
    OutOfBounds: "out-of-bounds",
    WireError: "not-understood",
    KeysRefused: "keys-refused",
    OverBudget: "over-budget",
    AnswerChanged: "answer-changed",
}


@dataclass(frozen=True)
class State:
    """What a site remembers, together with the answer that went with it, so that both survive or neither."""

    run: str
    step: int
    digest: bytes
    reply: bytes
    memory: dict[str, Array]
    layout: int = LAYOUT

    @classmethod
    def read(cls, path: Path) -> State:
        try:
            found = wire.decode(cls, path.read_bytes())
        except WireError:
            found = None
        if found is None or found.layout != LAYOUT:
            raise DataError(f"{path} is damaged, or of another version of fedclust; begin the study anew without it")
        return found


class Desk:
    """A party's desk: rows, policy, ledger and memory behind one verb."""

    def __init__(
        self,
        holding: Holding,
        policy: Policy,
        *,
        seed: int = 0,
        folder: Path | None = None,
        durable: bool = True,
        vaults: Callable[[], Vaults] | None = None,
        approval: Approval | None = None,
        split: str | None = None,
        method: str | None = None,
        aligned: bool = False,
    ) -> None:
        self.holding = holding
        till = Till(policy, folder, durable=durable)
        ledger = Ledger(folder, durable=durable)
        self.gate = Gate(holding.party, policy, ledger, vaults, approval, till=till, split=split, method=method)
        self.seed = seed
        self.aligned = aligned  # a study of rows that the sites have in common: no others are read
        self.memory: dict[str, dict[str, Array]] = {}
        self.trouble: Exception | None = None  # for the site's own eyes
        self._ordered: dict[str, Holding] = {}
        self._last: tuple[str, int, bytes, Sealed] | None = None
        self._path = folder / "state" if folder else None
        self._kept: str | None = None  # the run whose state is there
        self._recalled: set[str] = set()
        if self._path and self._path.exists():
            state = State.read(self._path)
            self._kept = state.run
            self._restore(state, state.run)

    @property
    def party(self) -> PartyId:
        return self.holding.party

    def held(self, run: str) -> Holding:
        """The rows that a run reads: all, or those that the sites agreed on in it."""
        if run not in self._ordered:
            path = self._order_of(run)
            found = path is not None and path.exists()
            order = wire.decode(Order, path.read_bytes()) if path is not None and found else None
            self._ordered[run] = self.holding if order is None else self.holding.ordered(order)
        return self._ordered[run]

    def answer(self, call: Call) -> Sealed | Refusal:
        """The answer to a call, or a code, which under a veil is veiled too."""
        self.trouble = None
        if call.veiled:
            call = replace(call, veiled=False)  # that is for this desk to find out
        try:
            reply = self._answer(call)
        except Exception as error:  # noqa: BLE001 whatever a handler raises stays at the site
            reply = self._refuse(self._code_for(error, call), error)
        if isinstance(reply, Refusal) and call.handler in blind_aggregation.CARRIERS:
            with contextlib.suppress(KeysRefused):
                return Refusal(self.party, blind_aggregation.hidden_code(reply.code, call, self.gate.vault(call.run)))
        return reply

    def _code_for(self, error: Exception, call: Call) -> str:
        """The code that an error leaves the site as."""
        if isinstance(error, OutOfBounds):
            self.gate.abstain(call, "out-of-bounds")  # answers to ever closer bounds would show a largest value
        return next((code for kind, code in CODES.items() if isinstance(error, kind)), "failed")

    def answer_bytes(self, data: bytes) -> Sealed | Refusal:
        """The same for a call as bytes carry it."""
        try:
            call = Call.decode(data)
        except Exception as error:  # noqa: BLE001 bytes from outside must not stop a site
            return self._refuse("not-understood", error)
        return self.answer(call)

    def _answer(self, call: Call) -> Sealed | Refusal:
        veil = None
        if call.handler in blind_aggregation.CARRIERS:
            call, veil = blind_aggregation.lifted(call, self.gate.vault(call.run), self.party)
        self._recall(call.run)
        if self._passed(call.run):
            return Refusal(self.party, "round-passed")
        if (again := self._answered(call)) is not None:
            return again
        handler = HANDLERS[call.handler]
        missing, holding = missing_in(call.message), self.held(call.run)
        if self.aligned and holding is self.holding and not handler.before_alignment:
            return Refusal(self.party, "not-aligned")
        # Where noise hides the rows, nobody counts them first: even that they cannot be counted would tell of them.
        rows = 0 if self.gate.policy.epsilon else holding.under(missing).rows
        if code := self.gate.admit(call, handler, rows):
            return Refusal(self.party, code)
        memory = self.memory.get(call.run, {})
        kind = RowlessTurn if handler.reads == "nothing" else Turn
        turn = kind(holding, (self.seed, call.step), memory, missing, lambda: self.gate.vault(call.run))
        message = call.message
        if isinstance(message, Mail):
            message = sealed_messages.opened(message, call, turn.vault, self.party)
        answer = (
            self.gate.till.noisy(call, handler.release, lambda: self.work(handler, turn, message))
            if issubclass(handler.release, Noisy)
            else self.work(handler, turn, message)
        )
        release = answer.release if isinstance(answer, Keep) else answer
        if code := self.gate.judge(call, handler, release, turn):
            return Refusal(self.party, code)
        sealed = self.gate.seal(call, handler, release, veil)
        if isinstance(answer, Keep):
            if answer.order is not None:
                self._order(call.run, answer.order)
            self._remember(call, sealed, dict(answer.memory))
        self._last = (call.run, call.step, call.digest, sealed)
        return sealed

    def work(self, handler: Handler[Any, Any], turn: Turn, message: Any) -> Any:
        """A question's answer, before the gate has seen it."""
        return handler.answer(turn, message)

    def _answered(self, call: Call) -> Sealed | Refusal | None:
        """A step is answered once: the same question again gets the same answer, another one gets none."""
        if self._last and self._last[:3] == (call.run, call.step, call.digest):
            return self._last[3]
        last = self.gate.ledger.last(call.run)
        passed = self._last[1] if self._last and self._last[0] == call.run else 0
        if call.step <= passed:
            return Refusal(self.party, "step-reused")
        if last is None or call.step > last.step or (call.step == last.step and call.digest.hex() == last.call):
            return None
        return Refusal(self.party, "step-reused")

    def _refuse(self, code: str, error: Exception) -> Refusal:
        self.trouble = error
        if self._path:
            log_error(self._path.parent, code, error)
        return Refusal(self.party, code)

    def _order(self, run: str, order: Order) -> None:
        self._same_rows_as_ever(run, order)
        if (path := self._order_of(run)) is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(path, wire.encode(order))
        self._ordered[run] = self.holding.ordered(order)

    def _same_rows_as_ever(self, run: str, order: Order) -> None:
        """In all runs of a study the same rows are read: a sum with and without one row would show it."""
        study = run.partition("-")[2]
        if self.gate.policy.lax or not study or (path := self._order_of(study)) is None:
            return
        now = wire.encode(Order(np.sort(order.rows), b""))
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(path, now)
        if path.read_bytes() != now:
            raise KeysRefused("other rows than those that the study's sites had in common before")

    def _order_of(self, run: str) -> Path | None:
        if self._path is None:
            return None
        return self._path.with_name("orders") / hashlib.sha256(run.encode()).hexdigest()[:32]

    def _remember(self, call: Call, sealed: Sealed, memory: dict[str, Array]) -> None:
        if self._path:
            if self._kept is not None and series(self._kept)[0] != series(call.run)[0]:
                kept = self._kept_of(self._kept, self._path)
                kept.parent.mkdir(mode=0o700, exist_ok=True)
                write_file(kept, self._path.read_bytes())  # that study may go on one day
            write_file(self._path, wire.encode(State(call.run, call.step, call.digest, sealed.packed, memory)))
            self._kept = call.run
        self.memory[call.run] = memory

    def _recall(self, run: str) -> None:
        """Remember what is written down of a run, or of the one before it in its series."""
        if self._path is None or run in self.memory or run in self._recalled:
            return
        self._recalled.add(run)
        for path in (self._path, self._kept_of(run, self._path)):
            state = State.read(path) if path.exists() else None
            if state is not None and series(state.run)[0] == series(run)[0]:
                self._restore(state, run)
                break

    def _restore(self, state: State, run: str) -> None:
        self.memory[state.run] = state.memory
        if state.run == run:
            self._last = (state.run, state.step, state.digest, Sealed.decode(state.reply))
        elif series(state.run)[1] < series(run)[1]:
            self.memory[run] = state.memory

    def _passed(self, run: str) -> bool:
        """Whether a later run of the same series was answered: what it was told, this one would be told again."""
        if self.memory.keys() <= {run}:
            return False
        first, place = series(run)
        return any(of == first and at > place for of, at in map(series, self.memory))

    def _kept_of(self, run: str, path: Path) -> Path:
        """Where the state of a series is while that of another is in its place."""
        return path.with_name("states") / hashlib.sha256(series(run)[0].encode()).hexdigest()[:32]
