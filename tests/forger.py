"""Forged questions: every field of a question, and of what it contains, replaced by what no study asks for."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import replace

import numpy as np

from fedclust.core import wire
from fedclust.core.effects import SealedMessages

MANY = 400
FAR = 2.0**200


def forged(question, note=None):
    """Yield (field, what was done, forged question) for a question; `note` is the type of a sealed message's note."""
    if note is not None and isinstance(question, SealedMessages):
        for field, how, other in forged(wire.decode(note, question.note)):
            yield field, how, replace(question, note=wire.encode(other))
        return
    hints = typing.get_type_hints(type(question))
    for field in dataclasses.fields(question):
        value = vars(question)[field.name]
        absent = _arrays_of_hint(str(hints[field.name])) if value is None else ()
        for name, how, other in (*_forged_values(value), *absent):
            yield f"{field.name}{name}", how, replace(question, **{field.name: other})


def _arrays_of_hint(hint):
    """Arrays in place of one that is left out."""
    if "float64" in hint:
        yield from (("", "given", np.full(shape, 0.5)) for shape in ((1,), (2,), (3, 1), (3, 2)))
    elif "int64" in hint:
        yield from (("", "given", np.arange(count)) for count in (1, 2, 3))


def _forged_values(value):
    if isinstance(value, bool):
        yield "", "negated", not value
    elif isinstance(value, int):
        yield from (("", how, other) for how, other in (("huge", (1 << 31) + 1), ("negative", -(1 << 31))))
    elif isinstance(value, float):
        yield from (("", how, other) for how, other in (("doubled", 2 * value + 1), ("huge", 4000.0)))
    elif isinstance(value, str):
        yield "", "another text", "another"
    elif isinstance(value, np.ndarray):
        yield from (("", how, other) for how, other in _forged_arrays(value))
    elif isinstance(value, tuple) and value:
        yield "", "repeated", value * MANY
        if dataclasses.is_dataclass(value[0]):
            for name, how, other in _forged_values(value[0]):
                yield f"[0]{name}", how, (other, *value[1:])
    elif dataclasses.is_dataclass(value):
        yield from ((f".{field}", how, other) for field, how, other in forged(value))


def _forged_arrays(value):
    if value.ndim:
        yield (
            "many times as long",
            np.concatenate([value] * MANY) if len(value) else np.zeros((MANY, *value.shape[1:]), value.dtype),
        )
        yield "another rank", value[None]
    if not value.size:
        return
    if value.dtype.kind == "f":
        yield "far", value + FAR
        yield "negative", -np.abs(value) - FAR
    elif value.dtype.kind in "iu" and value.dtype.itemsize > 1:
        top = np.iinfo(value.dtype).max // 2
        yield "huge", np.full_like(value, top)
        yield "negative", np.full_like(value, -top)
