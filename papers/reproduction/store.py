"""The store keeps results by inputs, versions and data, so that each is computed once and a run can be resumed.

A part is a function of named values that returns numbers, texts and lists. Its key is a digest of its name, its inputs,
the versions of its paper and of the methods it uses (`versions.toml`), and the rows of the data sets it reads. Source
code is not part of the key: golden values show when a method's version must change.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import processor
from fedclust.core.errors import DataError, FedclustError
from fedclust.datasets.loading import Dataset, load
from papers.versions import method_versions, paper_versions

DIGITS = 12  # of a number that is kept


class NotKept(FedclustError):
    """A part was asked for that is not in the store."""


@dataclass(frozen=True)
class Part:
    """A function whose results are kept. Its name stays when the function is renamed."""

    name: str
    function: Callable[..., Any]
    paper: str
    methods: tuple[str, ...] = ()
    data: tuple[str, ...] = ()  # inputs that name data sets

    def __call__(self, **inputs: Any) -> Any:
        return self.function(**inputs)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return _import_part, (self.function.__module__, self.function.__qualname__)


def _import_part(module: str, name: str) -> Any:
    """The part by its place: in another process, the function's own name leads to the part."""
    return getattr(importlib.import_module(module), name)


def part(
    name: str, *, paper: str, methods: Sequence[str] = (), data: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Part]:
    """Make a function a part, with the methods that it uses and the inputs that name data sets."""
    versions_in_use(paper, methods)  # an unknown name fails here, not in the middle of a run

    def declare(function: Callable[..., Any]) -> Part:
        return Part(name, function, paper, tuple(methods), tuple(data))

    return declare


@dataclass(frozen=True)
class Kept:
    """A result, the CPU seconds it took (of all threads; the clock would tell how busy the machine was), and where."""

    value: Any
    seconds: float
    machine: str


class Store:
    """A folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, part: Part, inputs: Mapping[str, Any]) -> Kept | None:
        path = self._path(part, inputs)
        if not path.is_file():
            return None
        try:
            kept = json.loads(path.read_text("utf-8"))
            return Kept(kept["value"], kept["seconds"], kept["machine"])
        except (ValueError, KeyError):
            return None  # cut short; it is computed again

    def compute(self, part: Part, inputs: Mapping[str, Any]) -> Kept:
        """Compute a part and keep it."""
        begin = time.process_time()
        value = plain(part(**inputs))
        kept = Kept(value, round(time.process_time() - begin, 3), machine())
        path = self._path(part, inputs)
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"of": part.name, "inputs": dict(inputs), **kept.__dict__}
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file)
        Path(name).replace(path)
        return kept

    def _path(self, part: Part, inputs: Mapping[str, Any]) -> Path:
        key = part_key(part, inputs)
        return self.folder / key[:2] / f"{key}.json"


def part_key(part: Part, inputs: Mapping[str, Any]) -> str:
    """The digest of all that a part's result depends on."""
    facts = {"of": part.name, "inputs": dict(sorted(inputs.items())), "with": dependencies(part, [inputs])}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def dependencies(part: Part, many: Sequence[Mapping[str, Any]] = ()) -> dict[str, str]:
    """What a part's results for these inputs depend on, by name: versions, and digests of data sets."""
    sets = {inputs[name] for inputs in many for name in part.data if name in inputs}
    return versions_in_use(part.paper, part.methods) | {f"data/{name}": digest(name) for name in sorted(sets)}


def versions_in_use(paper: str, methods: Sequence[str] = ()) -> dict[str, str]:
    """The versions of a paper's experiments and of methods, by the names under which results record them.

    >>> versions_in_use("paper1", ["c-means"])
    {'paper/paper1': '1', 'method/c-means': '1'}
    """
    known = method_versions()
    return {f"paper/{paper}": str(paper_versions()[paper])} | {f"method/{n}": str(known[n].version) for n in methods}


def current(name: str) -> str | None:
    """The version or digest that something has now that a result depends on; None if it is gone or not at hand."""
    kind, _, own = name.partition("/")
    try:
        if kind == "paper":
            return str(paper_versions()[own])
        if kind == "method":
            return str(method_versions()[own].version)
        return digest(own)
    except (DataError, KeyError):
        return None


@cache
def loaded(name: str) -> Dataset:
    """A data set as it is stored; few at a time are in use."""
    return load(name, dtype=None)


@cache
def digest(name: str) -> str:
    """A digest of a data set's rows and classes."""
    data = loaded(name)
    whole = hashlib.sha256(json.dumps(data.classes).encode())
    for own in (data.X, data.y):
        if own is not None:
            kept = np.ascontiguousarray(own)
            whole.update(f"{kept.dtype.str}{kept.shape}".encode())
            whole.update(kept.tobytes())
    return whole.hexdigest()


def machine() -> str:
    return f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}"


def plain(value: Any) -> Any:
    """Numbers with so many digits, lists and dicts of them; what JSON has no word for becomes None or text.

    >>> plain({"a": np.float64(1 / 3), "b": (np.int64(2), float("inf"))})
    {'a': 0.333333333333, 'b': [2, 'inf']}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(own) for key, own in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(own) for own in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(float(value))
    return value
