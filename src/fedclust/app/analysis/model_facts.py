"""The one place where a fitted model is read: each value once, checked, with a note in its place if that fails.

A method may come from another package, and its properties may raise or return anything. Description, metrics, summary
and export take what they say about a model from `ModelFacts`. Where a value cannot be read, it holds what a model
without that value has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from fedclust.app.analysis.part_guard import PartGuard
from fedclust.core.types import Array
from fedclust.models.base import MixturePart, Model, PrivacyPart

T = TypeVar("T")
Number = int | float


@dataclass(frozen=True)
class ModelFacts:
    """What a fitted model says about itself."""

    cluster_count: int
    n_iter: int
    final_objective: Number | None
    shifts: list[Number | None]
    objectives: list[Number | None]
    cluster_centers: Array | None
    initial_centers: Array | None
    cluster_sizes: Array | None
    fuzziness: Number
    is_soft: bool
    is_lossless: bool
    scale: str | None
    missing: str
    seed: int
    tol: Number | None
    max_iter: int | None
    mixture_part: MixturePart | None
    privacy_part: PrivacyPart | None
    is_later_round: bool  # sites sent each row's share once, and the rows of earlier rounds are not asked about again
    has_unread_limits: bool  # whether it is private or in a later round is not known, so nothing more may be asked
    notes: list[str]
    failures: list[str]  # one sentence for each value that could not be read


def read_model_facts(model: Model) -> ModelFacts:
    """Read a fitted model; whatever its properties raise, this does not.

    >>> import fedclust as fc
    >>> class Broken(fc.KMeans):
    ...     @property
    ...     def shifts(self):
    ...         return 1 / 0
    >>> facts = read_model_facts(Broken(2, init=[[0.0], [10.0]]).fit([[0.0], [1.0], [10.0]]))
    >>> facts.cluster_count, facts.shifts, [sentence[:45] for sentence in facts.failures]
    (2, [], ['A part of the description is missing (shifts)'])
    """
    limits, others = PartGuard(), PartGuard()
    privacy = limits.read("privacy", lambda: _part_or_none(PrivacyPart, model.privacy_part), None)
    is_later = limits.read("earlier rounds", lambda: bool(model.remembers_rounds and model.saw_batches), default=False)
    read = others.read
    centers = read("centres", lambda: _or_none(partial(_table, model), model.cluster_centers_), None)
    sizes = read("cluster sizes", lambda: _or_none(_vector, model.cluster_sizes_), None)
    facts = ModelFacts(
        cluster_count=_read_cluster_count(model, others, centers, sizes),
        n_iter=read("number of rounds", lambda: _whole_number(model.n_iter_), 0),
        final_objective=read("objective", lambda: _or_none(_number, model.final_objective), None),
        shifts=read("shifts", lambda: [_or_none(_number, shift) for shift in model.shifts], []),
        objectives=read("objectives", lambda: [_or_none(_number, value) for value in model.objectives], []),
        cluster_centers=centers,
        initial_centers=read("initial centres", lambda: _or_none(np.asarray, model.initial_centers_), None),
        cluster_sizes=sizes,
        fuzziness=read("fuzziness", lambda: _number(model.fuzziness), 1.0),
        is_soft=read("kind of membership", lambda: bool(model.is_soft), default=False),
        is_lossless=read("losslessness", lambda: bool(model.lossless), default=False),
        scale=read("scale", lambda: _or_none(_text, model.scale), None),
        missing=read("rule for missing values", lambda: _text(model.missing), "refuse"),
        seed=read("seed", lambda: _whole_number(model.seed_), 0),
        tol=read("tolerance", lambda: _or_none(_number, model.tol), None),
        max_iter=read("maximum of rounds", lambda: _or_none(_whole_number, model.max_iter), None),
        mixture_part=read("mixture", lambda: _part_or_none(MixturePart, model.mixture_part), None),
        privacy_part=privacy,
        is_later_round=is_later,
        has_unread_limits=bool(limits.notes),
        notes=read("notes of the fit", lambda: [_text(note) for note in model.notes_], []),
        failures=others.notes,
    )
    others.notes[:0] = limits.notes
    return facts


def _read_cluster_count(model: Model, guard: PartGuard, centers: Array | None, sizes: Array | None) -> int:
    """The number of clusters as the model says, or else as its sizes, its centres or its parameter say."""
    count = guard.read("number of clusters", lambda: _whole_number(model.cluster_count), None)
    if count is not None:
        return count
    for part in (sizes, centers):
        if part is not None:
            return len(part)
    return guard.read("parameter n_clusters", lambda: _whole_number(model.n_clusters), 0)


def _or_none(convert: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else convert(value)


def _part_or_none(kind: type[T], value: Any) -> T | None:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"not a {kind.__name__}")
    return value


def _number(value: Any) -> Number:
    """A plain number; NumPy's numbers and arrays of one number are taken as well."""
    found = _numeric_array(value, 0)
    number: Number = found.item()
    return number


def _whole_number(value: Any) -> int:
    number = _number(value)
    if number != int(number):
        raise ValueError("not a whole number")
    return int(number)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return str.__str__(value)  # a plain one, also of a subclass


def _table(model: Model, value: Any) -> Array:
    """One row per cluster, with a number for each of the model's columns."""
    found = _numeric_array(value, 2)
    if found.shape[1] != len(model.columns_):
        raise ValueError("it does not have one value for each column")
    return found


def _vector(value: Any) -> Array:
    return _numeric_array(value, 1)


def _numeric_array(value: Any, dimensions: int) -> Array:
    found = np.asarray(value)
    if found.dtype.kind not in "iuf" or found.ndim != dimensions:
        raise TypeError("it is not an array of numbers of the expected shape")
    return found
