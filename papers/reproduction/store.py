"""Results by what went into them: the same inputs, code and data are computed once, and an interrupted run goes on.

A part is a function of named values that returns numbers, texts and lists. Its key is a digest of its name, its inputs,
the source of its module and of the algorithms, splits and scores it rests on, and the rows of the data sets it reads.
Kernels and estimators do not count: tests hold them to the same bits.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
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

import fedclust
from benchmarks.timing import processor
from fedclust.core.errors import DataError, FedclustError
from fedclust.datasets.loading import Dataset, load

PACKAGE = Path(fedclust.__file__).parent
DIGITS = 12  # of a number that is kept
SHARED = (  # what nearly all parts rest on, beside what they name
    "app/agreement.py",
    "algorithms/gaussian_mixture/densities.py",
    "algorithms/shared/row_likeness.py",
    "algorithms/cmeans/fit_result.py",
    "algorithms/shared/reseeding.py",
    "algorithms/shared/weighted_kmeans.py",
    "datasets/drawn.py",
    "datasets/splitting.py",
    "privacy/sparse_sums.py",
    "questions/label_agreement.py",
    "questions/index_formulas.py",
    "validation/indices*.py",
    "questions/index_terms.py",
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
CARRYING = ("bench", "catalogue", "errors", "published", "store")  # no figure hangs on these
Compute = Callable[..., Any]


class NotKept(FedclustError):
    """A part was asked for that is not in the store."""


def part(*rests_on: str, sets: tuple[str, ...] = ()) -> Callable[[Compute], Compute]:
    """Mark a function as a part: the files of the package it rests on, and inputs that name data sets."""

    def marked(function: Compute) -> Compute:
        function.rests_on, function.sets = rests_on, sets  # type: ignore[attr-defined]
        return function

    return marked


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

    def find(self, function: Compute, inputs: Mapping[str, Any]) -> Kept | None:
        path = self._path(function, inputs)
        if not path.is_file():
            return None
        try:
            kept = json.loads(path.read_text("utf-8"))
            return Kept(kept["value"], kept["seconds"], kept["machine"])
        except (ValueError, KeyError):
            return None  # cut short; it is computed again

    def compute(self, function: Compute, inputs: Mapping[str, Any]) -> Kept:
        """Compute a part and keep it."""
        begin = time.process_time()
        value = plain(function(**inputs))
        kept = Kept(value, round(time.process_time() - begin, 3), machine())
        path = self._path(function, inputs)
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"of": function.__name__, "inputs": dict(inputs), **kept.__dict__}
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file)
        Path(name).replace(path)
        return kept

    def _path(self, function: Compute, inputs: Mapping[str, Any]) -> Path:
        key = key_of(function, inputs)
        return self.folder / key[:2] / f"{key}.json"


def key_of(function: Compute, inputs: Mapping[str, Any]) -> str:
    """The digest of all that a part's result depends on."""
    sets = getattr(function, "sets", ())
    named = [inputs[name] for name in sets if name in inputs]
    facts = {
        "of": f"{function.__module__}.{function.__qualname__}",
        "inputs": dict(sorted(inputs.items())),
        "code": _code(function.__module__, getattr(function, "rests_on", ())),
        "data": {name: digest(name) for name in named},
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def rests(function: Compute, many: Sequence[Mapping[str, Any]] = ()) -> dict[str, str]:
    """What a function's results for such inputs rest on, by name, with digests: its code, and rows of data sets."""
    sets = {inputs[name] for inputs in many for name in getattr(function, "sets", ()) if name in inputs}
    code = _code(function.__module__, getattr(function, "rests_on", ()))
    return {f"{function.__module__}:{function.__qualname__}": code, **{name: digest(name) for name in sorted(sets)}}


def present(name: str) -> str | None:
    """The digest that something has now by which `rests` names it; None if it is gone or not at hand."""
    module, parted, function = name.partition(":")
    try:
        if parted:
            return rests(getattr(importlib.import_module(module), function)).get(name)
        return digest(name)
    except (DataError, ImportError, AttributeError):
        return None


@cache
def imported(module: str) -> tuple[str, ...]:
    """The files of the package that a module imports, but for those that carry experiments out, and for errors."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    froms = [(node.module or "", node.names) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {name for base, some in froms for name in (base, *(f"{base}.{own.name}" for own in some))}
    files = {Path(*name.split(".")[1:]).with_suffix(".py") for name in names if name.startswith("fedclust.")}
    return tuple(sorted(str(file) for file in files if (PACKAGE / file).is_file() and file.stem not in CARRYING))


@cache
def _code(module: str, rests_on: tuple[str, ...]) -> str:
    """A digest of sources: a part's module, and the files that it rests on; of Python the code alone."""
    own = inspect.getsourcefile(importlib.import_module(module))
    sources = [Path(own)] if own else []
    sources += [path for pattern in (*SHARED, *rests_on) for path in sorted(PACKAGE.glob(pattern))]
    whole = hashlib.sha256()
    for source in sources:
        read = source.read_bytes()
        whole.update(_told(ast.parse(read)).encode() if source.suffix == ".py" else read)
    return whole.hexdigest()


def _told(node: Any) -> str:
    """A tree of source, without docstrings, as a text that is the same for all versions of Python.

    >>> _told(ast.parse("'A number.'; x = 1  # one"))
    "Module(body=[Assign(targets=[Name(id='x', ctx=Store())], value=Constant(value=1))])"
    """
    if isinstance(node, list):
        return f"[{', '.join(map(_told, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = node.body[1:]
    filled = {name: own for name, own in fields.items() if own is not None and own != []}  # newer ones have more empty
    return f"{type(node).__name__}({', '.join(f'{name}={_told(own)}' for name, own in filled.items())})"


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
