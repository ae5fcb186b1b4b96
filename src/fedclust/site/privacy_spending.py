"""What a site has told of each of its rows so far, over all studies, and the end of what it will tell.

Every answer under noise is paid for, in rho, before it is made: the price is added to a file, each line chained to the
one before, and the disk has it before noise is drawn. OpenDP's privacy filter over a fully adaptive composition decides
whether a price can still be paid; it is rebuilt from the file, so a crash can cost budget but never gives any back. All
desks of a site share the file, under a lock.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedclust.core.atomic_files import append_line, sync_folder
from fedclust.core.errors import DataError, OverBudget
from fedclust.core.file_locks import wait_for_lock
from fedclust.core.noise_price import ONE, Price
from fedclust.privacy.accountant import epsilon_of, rho_of
from fedclust.privacy.discrete_noise import gaussian, opendp

START = "fedclust budget 1"


@dataclass(frozen=True)
class Purchase:
    """One answer that was paid for."""

    run: str
    step: int
    handler: str
    call: str
    rho: float


class Budget:
    """An epsilon at a delta for everything a site ever answers; without one, prices are written down only."""

    def __init__(self, folder: Path | None, epsilon: float = 0.0, delta: float = 0.0, *, durable: bool = True) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.purchases: list[Purchase] = []
        self._durable = durable
        self._path = None if folder is None else folder / "budget.jsonl"
        self._chain, self._read = START, 0
        self._filter: Any = None
        self._passed = 0  # purchases that the filter knows
        with self._locked() as file:
            self._catch_up(file)

    @property
    def rho(self) -> float | None:
        """All there is to spend, or None where there is no end of it."""
        return rho_of(self.epsilon, self.delta) if self.epsilon else None

    @property
    def spent(self) -> float:
        """What was spent, in rho."""
        return sum(one.rho for one in self.purchases)

    def spent_epsilon(self, delta: float) -> float:
        """The same as epsilon at a delta."""
        return epsilon_of(self.spent, delta)

    def spend(self, purchase: Purchase) -> None:
        """Write a price down, on disk, or raise `OverBudget`; whatever is paid for must come after."""
        with self._locked() as file:
            self._catch_up(file)
            self._pass(purchase)
            if file is not None:
                chain = _link(self._chain, purchase)
                self._append(file, json.dumps({**asdict(purchase), "chain": chain}) + "\n")
                self._chain = chain
            self.purchases.append(purchase)

    def _pass(self, purchase: Purchase) -> None:
        """Have OpenDP's filter decide."""
        if self.rho is None:
            return
        if not Price(purchase.rho).sound:
            raise OverBudget("a price that is no price")
        if self.spent + purchase.rho > self.rho * (1 + 2.0**-20):
            raise self._full(purchase)  # no need to exhaust the filter, which would have to be rebuilt
        if self._filter is None:
            self._filter, self._passed = _filter(self.rho), 0
        for one in (*self.purchases[self._passed :], purchase):
            self._query(one)

    def _query(self, purchase: Purchase) -> None:
        try:
            # What it is asked stands for an answer: noise of this price. What leaves is drawn by the gate.
            self._filter(gaussian(ONE * Price(purchase.rho).sigma))
        except opendp().OpenDPException as full:
            self._filter = None  # a price that was not paid leaves no trace: the filter is rebuilt from the file
            raise self._full(purchase) from full
        self._passed += 1

    def _full(self, purchase: Purchase) -> OverBudget:
        return OverBudget(
            f"{self.spent:.4g} of {self.rho:.4g} rho are spent, and {purchase.rho:.4g} more were asked for"
        )

    def _append(self, file: Any, line: str) -> None:
        self._read = append_line(file, line, durable=self._durable) + len(line.encode())

    def _catch_up(self, file: Any) -> None:
        """Take note of what others wrote since; check the chain; drop a last line that a crash cut short."""
        if file is None:
            return
        file.seek(self._read)
        text = file.read()
        whole, _, cut = text.rpartition("\n")
        found = []
        for line in whole.split("\n") if whole else ():
            try:
                record = json.loads(line)
                chain = record.pop("chain")
                purchase = Purchase(**record)
            except (ValueError, KeyError, TypeError):
                raise self._altered() from None
            if _link(self._chain, purchase) != chain:
                raise self._altered()
            self._chain = chain
            found.append(purchase)
        self.purchases += found
        self._read += len(text.encode()) - len(cut.encode())
        if cut:
            file.truncate(self._read)

    def _altered(self) -> DataError:
        return DataError(f"{self._path} was altered; a budget must be as the site wrote it")

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        """The file, for this desk alone; None where nothing is kept."""
        if self._path is None:
            yield None
            return
        new = not self._path.exists()
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="utf-8") as file:
            if new and self._durable:
                sync_folder(self._path.parent)
            wait_for_lock(file)
            yield file


def _filter(rho: float) -> Any:
    """OpenDP's filter, at nothing spent; a row is worth 2^36 units of a sum."""
    dp = opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    odometer = dp.c.make_fully_adaptive_composition(*space, dp.zero_concentrated_divergence())
    return dp.c.make_privacy_filter(odometer, d_in=float(ONE), d_out=rho)([0])


def _link(chain: str, purchase: Purchase) -> str:
    return hashlib.sha256((chain + json.dumps(asdict(purchase), sort_keys=True)).encode()).hexdigest()
