"""The workbench gives an experiment its size, its parts and the available data sets, and collects its findings."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TextIO

import numpy as np

from fedclust.core.errors import DataError
from papers.reproduction import published
from papers.reproduction.store import NotKept, Part, Store, dependencies, loaded, plain

EVERY = 5.0  # seconds between progress lines without a terminal


@dataclass
class Found:
    """What came out: repeats for printed cells, claims, our best method, figures, and what a reader must know."""

    name: str
    size: str
    cells: dict[str, list[float]] = field(default_factory=dict)
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    ours: list[dict[str, Any]] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    more: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    def cell(self, block: str, row: str, column: str, values: Iterable[float]) -> None:
        """Our repeats for a cell of the published table."""
        self.cells[published.place(block, row, column)] = [float(v) for v in values]

    def claim(self, key: str, *, holds: bool, measured: str) -> None:
        self.claims[key] = {"holds": bool(holds), "measured": measured}

    def best(self, row: str, method: str, values: Sequence[float], against: Sequence[str]) -> None:
        """Our best method's mean, to be set against the best of some printed cells."""
        mean = sum(map(float, values)) / len(values)
        self.ours.append({"row": row, "method": method, "value": mean, "repeats": len(values), "against": [*against]})

    def figure(self, name: str, title: str, axes: tuple[str, str], series: Mapping[str, Any], **how: Any) -> None:
        """Lines or points by name: pairs of numbers."""
        drawn = [{"name": key, "points": points} for key, points in series.items()]
        self.figures.append({"name": name, "title": title, "axes": list(axes), "series": drawn, **how})

    def table(self, caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Numbers that have no printed counterpart."""
        self.more.append({"caption": caption, "head": list(head), "rows": [list(row) for row in rows]})

    def document(self) -> dict[str, Any]:
        """As it is written, of repeats their mean and standard deviation; the same run gives the same bytes."""
        cells = {
            at: {"mean": np.mean(own), "sd": np.std(own, ddof=1) if len(own) > 1 else 0.0, "repeats": len(own)}
            for at, own in self.cells.items()
            if own
        }
        return dict(plain({**self.__dict__, "cells": cells}))


class Bench:
    """Where an experiment finds parts, computed or kept."""

    def __init__(
        self, store: Store, *, quick: bool, jobs: int = 1, compute: bool = True, told: TextIO | None = None
    ) -> None:
        self.store, self.quick, self.jobs, self.may_compute = store, quick, jobs, compute
        self.seconds = 0.0  # of all parts, those kept from before included
        self.machines: set[str] = set()
        self.dependencies: dict[str, str | None] = {}  # versions, and digests of data sets; None: not at hand
        self.fresh = 0
        self.name = ""
        self._told, self._last = told, 0.0

    @property
    def size(self) -> str:
        return "quick" if self.quick else "full"

    def found(self, name: str) -> Found:
        """An empty result of an experiment."""
        return Found(name, self.size)

    def seeds(self, full: int, quick: int) -> range:
        return range(quick if self.quick else full)

    def few(self, full: Sequence[Any], quick: Sequence[Any]) -> list[Any]:
        return list(quick if self.quick else full)

    def at_hand(self, names: Iterable[str], found: Found) -> list[str]:
        """The available data sets among some; the others are listed with instructions to get them."""
        why = {name: _absence(name) for name in names}
        found.absent |= {name: how for name, how in why.items() if how}
        self.dependencies |= dict.fromkeys(f"data/{name}" for name in found.absent)
        return [name for name, how in why.items() if not how]

    def one(self, part: Part, **inputs: Any) -> Any:
        return self.all(part, [inputs])[0]

    def all(self, part: Part, many: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Results of a part for many inputs, those that are kept and those that are computed now."""
        self.dependencies |= dependencies(part, many)
        kept = [self.store.find(part, inputs) for inputs in many]
        lacking = [at for at, own in enumerate(kept) if own is None]
        if lacking and not self.may_compute:
            raise NotKept(f"{len(lacking)} of {len(many)} parts of {part.name} are not stored")
        done = len(many) - len(lacking)
        for at, own in self._computed(part, many, lacking):
            kept[at] = own
            done += 1
            self.fresh += 1
            self._tell(f"{self.name} ({self.size}): {part.name} {done} of {len(many)}, {own.seconds:.1f} s")
        found = [own for own in kept if own is not None]
        self.seconds += sum(own.seconds for own in found)
        self.machines |= {own.machine for own in found}
        return [own.value for own in found]

    def grouped(self, part: Part, many: Sequence[tuple[Any, Mapping[str, Any]]]) -> dict[Any, list[Any]]:
        """Results of a part for many inputs, each of which goes by a key that repeats share."""
        found: dict[Any, list[Any]] = {}
        for (key, _), own in zip(many, self.all(part, [inputs for _, inputs in many]), strict=True):
            found.setdefault(key, []).append(own)
        return found

    def _computed(self, part: Part, many: Sequence[Mapping[str, Any]], lacking: list[int]) -> Iterable[Any]:
        if self.jobs < 2 or len(lacking) < 2:
            for at in lacking:
                yield at, self.store.compute(part, many[at])
            return
        spawn = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self.jobs, mp_context=spawn)
        try:
            waiting = {pool.submit(self.store.compute, part, many[at]): at for at in lacking}
            for ready in as_completed(waiting):
                yield waiting[ready], ready.result()
        finally:  # a stopped run does not wait for parts that have not started
            pool.shutdown(cancel_futures=True)

    def _tell(self, line: str) -> None:
        to = sys.stderr if self._told is None else self._told
        now = time.monotonic()
        if to.isatty():
            print(f"\r{line}\x1b[K", end="", file=to, flush=True)
        elif now - self._last >= EVERY:
            print(line, file=to, flush=True)
            self._last = now


Experiment = Callable[[Bench], Found]


@cache
def _absence(name: str) -> str:
    """How to get a missing data set, without the paths that were searched; cached."""
    try:
        loaded(name)
    except DataError as absent:
        online = ", or connect to openml.org" if "openml" in str(absent) else ""
        return f"not found; put {name}.npz with X, y and classes into the folder $FEDCLUST_DATA{online}"
    return ""
