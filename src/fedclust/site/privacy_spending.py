"""What a site has spent of each row's privacy over all studies, and the limit of its privacy budget.

Every answer with noise is paid for, in rho, before it is computed. The price is appended to a file as a line of a hash
chain, and it is on disk before noise is drawn. OpenDP's privacy filter for fully adaptive composition decides whether a
price can still be paid. The filter is rebuilt from the file, so a crash can cost budget but never gives any back. All
servers of a site share the file, under a lock.
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
from fedclust.core.noise_price import NOISE_UNITS_PER_ONE, Price
from fedclust.privacy.accountant import epsilon_from_rho, rho_from_epsilon
from fedclust.privacy.discrete_noise import gaussian_measurement, opendp

BUDGET_START = "fedclust budget 1"


@dataclass(frozen=True)
class Purchase:
    """One answer that was paid for."""

    run: str
    step: int
    handler: str
    call: str
    rho: float


class PrivacySpending:
    """The epsilon and delta for everything that a site ever answers; without them, prices are only recorded."""

    def __init__(self, folder: Path | None, epsilon: float = 0.0, delta: float = 0.0, *, durable: bool = True) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.purchases: list[Purchase] = []
        self._durable = durable
        self._path = None if folder is None else folder / "budget.jsonl"
        self._chain_digest, self._read_position = BUDGET_START, 0
        self._filter: Any = None
        self._filtered_count = 0  # the purchases that the filter includes
        with self._lock_file() as file:
            self._read_new_lines(file)

    @property
    def rho_limit(self) -> float | None:
        """The total budget in rho, or None if there is no limit."""
        return rho_from_epsilon(self.epsilon, self.delta) if self.epsilon else None

    @property
    def spent_rho(self) -> float:
        """The rho spent so far."""
        return sum(one.rho for one in self.purchases)

    def spent_epsilon(self, delta: float) -> float:
        """The same as epsilon at a delta."""
        return epsilon_from_rho(self.spent_rho, delta)

    def spend(self, purchase: Purchase) -> None:
        """Record a price on disk, or raise `OverBudget`; the answer must come after this."""
        with self._lock_file() as file:
            self._read_new_lines(file)
            self._check_price(purchase)
            if file is not None:
                chain = _chain_link(self._chain_digest, purchase)
                self._append_line(file, json.dumps({**asdict(purchase), "chain": chain}) + "\n")
                self._chain_digest = chain
            self.purchases.append(purchase)

    def _check_price(self, purchase: Purchase) -> None:
        """Ask OpenDP's filter whether a price can be paid."""
        if self.rho_limit is None:
            return
        if not Price(purchase.rho).is_valid:
            raise OverBudget("the question has an invalid privacy price (rho)")
        if self.spent_rho + purchase.rho > self.rho_limit * (1 + 2.0**-20):
            raise self._over_budget_error(purchase)  # do not exhaust the filter, which would have to be rebuilt
        if self._filter is None:
            self._filter, self._filtered_count = _make_filter(self.rho_limit), 0
        for one in (*self.purchases[self._filtered_count :], purchase):
            self._query_filter(one)

    def _query_filter(self, purchase: Purchase) -> None:
        try:
            # The filter answers a stand-in question with noise of this price. The gate draws the noise that leaves.
            self._filter(gaussian_measurement(NOISE_UNITS_PER_ONE * Price(purchase.rho).sigma))
        except opendp().OpenDPException as full:
            self._filter = None  # a price that was not paid leaves no trace: the filter is rebuilt from the file
            raise self._over_budget_error(purchase) from full
        self._filtered_count += 1

    def _over_budget_error(self, purchase: Purchase) -> OverBudget:
        return OverBudget(
            f"{self.spent_rho:.4g} of {self.rho_limit:.4g} rho (the unit of the privacy budget) have been spent, "
            f"and the question costs {purchase.rho:.4g} more"
        )

    def _append_line(self, file: Any, line: str) -> None:
        self._read_position = append_line(file, line, durable=self._durable) + len(line.encode())

    def _read_new_lines(self, file: Any) -> None:
        """Read what other processes have added, check the chain, and drop a last line that a crash left incomplete."""
        if file is None:
            return
        file.seek(self._read_position)
        text = file.read()
        whole, _, cut = text.rpartition("\n")
        found = []
        for line in whole.split("\n") if whole else ():
            try:
                record = json.loads(line)
                chain = record.pop("chain")
                purchase = Purchase(**record)
            except (ValueError, KeyError, TypeError):
                raise self._altered_error() from None
            if _chain_link(self._chain_digest, purchase) != chain:
                raise self._altered_error()
            self._chain_digest = chain
            found.append(purchase)
        self.purchases += found
        self._read_position += len(text.encode()) - len(cut.encode())
        if cut:
            file.truncate(self._read_position)

    def _altered_error(self) -> DataError:
        return DataError(f"{self._path} was altered; restore the budget file as the site wrote it")

    @contextmanager
    def _lock_file(self) -> Iterator[Any]:
        """Lock the file for this server alone; None if nothing is stored."""
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


def _make_filter(rho: float) -> Any:
    """Return OpenDP's filter with nothing spent; one row is worth 2^36 units of a sum."""
    dp = opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    odometer = dp.c.make_fully_adaptive_composition(*space, dp.zero_concentrated_divergence())
    return dp.c.make_privacy_filter(odometer, d_in=float(NOISE_UNITS_PER_ONE), d_out=rho)([0])


def _chain_link(chain: str, purchase: Purchase) -> str:
    return hashlib.sha256((chain + json.dumps(asdict(purchase), sort_keys=True)).encode()).hexdigest()
