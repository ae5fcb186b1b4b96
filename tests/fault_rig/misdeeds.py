"""Patches that make a process of a federation hang, lie, die or find its disk full."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedclust.core.drive import Reply
from fedclust.core.envelope import Call, Refusal, SealedAnswer
from fedclust.core.journal import Journal
from fedclust.core.ring import Exact
from fedclust.core.types import PartyId
from fedclust.engines.local_engine import LocalEngine
from fedclust.site.server import SiteServer

Patch = Callable[[], None]
VICTIM = "south"
FAULT_STEP = 5  # a step in the middle of a run


def hang_once(flag: Path, *, seconds: float = 3600.0) -> Patch:
    """A site that computes an answer and hangs before it sends it, once."""

    def patch() -> None:
        plain = SiteServer.answer

        def answer(self: SiteServer, call: Call) -> Any:
            reply = plain(self, call)
            if call.step == FAULT_STEP and not flag.exists():
                flag.touch()
                time.sleep(seconds)
            return reply

        SiteServer.answer = answer  # type: ignore[method-assign]

    return patch


def refuse_from_fault_step() -> None:
    """A site whose rows become unusable in the middle of the run."""
    plain = SiteServer.answer

    def answer(self: SiteServer, call: Call) -> Any:
        return Refusal(self.party, "bad-data") if call.step >= FAULT_STEP else plain(self, call)

    SiteServer.answer = answer  # type: ignore[method-assign]


def lie_about(change: Callable[[SealedAnswer], SealedAnswer], handler_name: str) -> Patch:
    """A site whose answers are wrong from the middle of the run on."""

    def patch() -> None:
        plain = SiteServer.answer

        def answer(self: SiteServer, call: Call) -> Any:
            reply = plain(self, call)
            lies = self.party == VICTIM and call.step >= FAULT_STEP and call.handler == handler_name
            return change(reply) if lies and isinstance(reply, SealedAnswer) else reply

        SiteServer.answer = answer  # type: ignore[method-assign]

    return patch


def leave_out_victim() -> None:
    """A run in one process that stops asking the victim in the middle of the run, as if the site were gone."""
    plain = LocalEngine.exchange

    def exchange(self: LocalEngine, calls: Mapping[PartyId, Call], **how: Any) -> dict[PartyId, Reply]:
        return plain(self, {p: call for p, call in calls.items() if p != VICTIM or call.step < FAULT_STEP}, **how)

    LocalEngine.exchange = exchange  # type: ignore[method-assign]


def die_after_writes(writes: int) -> Patch:
    """A coordinator that is killed after it has written a number of records to its journal."""

    def patch() -> None:
        plain, left = Journal.write, [writes]

        def write(self: Journal, kind: bytes, step: int, payload: bytes) -> None:
            plain(self, kind, step, payload)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        Journal.write = write  # type: ignore[method-assign]

    return patch


def fill_disk_after(records: int) -> Patch:
    """A coordinator whose disk is full after a number of journal records; the next record is cut short."""

    def patch() -> None:
        plain, left = Journal.write, [records]

        def write(self: Journal, kind: bytes, step: int, payload: bytes) -> None:
            left[0] -= 1
            if left[0] == 0:
                size = self.path.stat().st_size + 10
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            plain(self, kind, step, payload)

        Journal.write = write  # type: ignore[method-assign]

    return patch


def change_sum(name: str, number: Callable[[Exact], Exact]) -> Callable[[SealedAnswer], SealedAnswer]:
    """An answer with one of its sums changed."""
    return lambda sealed: replace(
        sealed, release=replace(sealed.release, **{name: number(getattr(sealed.release, name))})
    )


def replace_by_nan(sealed: SealedAnswer) -> SealedAnswer:
    """An answer whose floats are all NaN."""
    own = {name: getattr(sealed.release, name) for name in sealed.release.schema()}
    none = {n: np.full_like(v, np.nan) for n, v in own.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"}
    return replace(sealed, release=replace(sealed.release, **none))


def replace_by_huge(value: Exact) -> Exact:
    return Exact.from_floats(np.full(value.shape, 1e12), unit=value.unit)


def drop_last_number(value: Exact) -> Exact:
    return Exact(value.limbs[:-1], value.unit if value.unit.ndim == 0 else value.unit[:-1])


def shift_step(sealed: SealedAnswer) -> SealedAnswer:
    return replace(sealed, step=sealed.step - 1)
