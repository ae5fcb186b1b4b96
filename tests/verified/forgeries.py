"""Forged questions: every field of a call altered in every way that its type allows, down to its last bit."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedclust.core.effects import SealedMessages
from fedclust.core.envelope import Call
from fedclust.core.ring import Exact

SAMPLED_ELEMENTS = 4  # of an array


def forged_calls(call: Call, rng: np.random.Generator) -> Iterator[tuple[str, Call]]:
    """Calls that differ from one in a single place, each with the place in words."""
    yield "run", replace(call, run=_altered_run(call.run))
    for step in (call.step - 1, call.step + 1, call.step + 1000, -1):
        yield "step", replace(call, step=step)
    for want in {"total", "each", "relay"} - {call.want}:
        yield "want", replace(call, want=want)
    yield "masks", replace(call, masks=None if call.masks else "lasting-1")
    yield "masks", replace(call, masks="lasting-2")
    for cohort in (call.cohort[:-1], call.cohort[::-1], (*call.cohort, "stranger")):
        if cohort and cohort != call.cohort:
            yield "cohort", replace(call, cohort=cohort)
    for place, message in altered_values(call.message, type(call.message), rng, "message"):
        yield place, replace(call, message=message)


def _altered_run(run: str) -> str:
    return ("1" if run[0] == "0" else "0") + run[1:]


def altered_values(value: Any, hint: Any, rng: np.random.Generator, place: str) -> Iterator[tuple[str, Any]]:
    """Values of the same type that differ in one place."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(a for a in args if a is not types.NoneType)
        if value is None:
            yield place, _any_value(inner)
            return
        yield place, None
        yield from altered_values(value, inner, rng, place)
    elif isinstance(value, Exact):
        for at, limbs in altered_values(value.limbs, None, rng, f"{place}.limbs"):
            if limbs.ndim == value.limbs.ndim and limbs.shape == value.limbs.shape:
                yield at, Exact(limbs, value.unit)
        yield f"{place}.unit", Exact(value.limbs, value.unit + np.int32(1))
    elif isinstance(value, SealedMessages):
        yield from _altered_sealed(value, place)
    elif dataclasses.is_dataclass(value):
        hints = typing.get_type_hints(type(value))
        for field in dataclasses.fields(value):
            own = getattr(value, field.name)
            for at, other in altered_values(own, hints[field.name], rng, f"{place}.{field.name}"):
                yield at, replace(value, **{field.name: other})
    else:
        yield from ((place, other) for other in _altered_plain(value, hint, rng, place))


def _altered_plain(value: Any, hint: Any, rng: np.random.Generator, place: str) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, -value - 7)
    elif isinstance(value, float):
        yield from (float(np.nextafter(value, 1e300)), float(np.nextafter(value, -1e300)), value * 2 + 1)
    elif isinstance(value, str):
        yield from (value + "x", value[:-1] if value else "y")
    elif isinstance(value, bytes):
        yield value + b"\0"
        if value:
            yield from (value[:-1] + bytes([value[-1] ^ 1]), value[:-1])
    elif isinstance(value, np.ndarray):
        yield from _altered_arrays(value, rng)
    elif isinstance(value, tuple):
        inner = (typing.get_args(hint) or (Any,))[0]
        if value:
            yield from (value[:-1], (*value, value[-1]))
        if len(value) > 1 and not _same(value[0], value[-1]):
            yield (value[-1], *value[1:-1], value[0])
        for at, own in enumerate(value[:2]):
            for _, other in altered_values(own, inner, rng, place):
                yield (*value[:at], other, *value[at + 1 :])
    elif isinstance(value, dict):
        for key, own in list(value.items())[:2]:
            yield {name: v for name, v in value.items() if name != key}
            yield {name + "x" if name == key else name: v for name, v in value.items()}
            inner = (typing.get_args(hint) or (str, Any))[1]
            for _, other in altered_values(own, inner, rng, place):
                yield {**value, key: other}


def _same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)


def _altered_sealed(value: SealedMessages, place: str) -> Iterator[tuple[str, SealedMessages]]:
    yield f"{place}.note", replace(value, note=value.note + b"\0")
    if value.note:
        yield f"{place}.note", replace(value, note=value.note[:-1] + bytes([value.note[-1] ^ 1]))
    yield f"{place}.senders", replace(value, messages={**value.messages, "stranger": bytes(60)})
    for sender, text in value.messages.items():
        others = {name: v for name, v in value.messages.items() if name != sender}
        yield f"{place}.senders", replace(value, messages=others)
        for at in (7, 20, len(text) - 1):  # the step in which it was written, the salt, the code at the end
            flipped = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
            yield f"{place}.text", replace(value, messages={**value.messages, sender: flipped})


def _altered_arrays(value: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    for at in rng.permutation(value.size)[:SAMPLED_ELEMENTS]:
        changed = np.array(value, copy=True, order="C")
        flat = changed.reshape(-1)
        if changed.dtype == bool:
            flat[at] = not flat[at]
        else:
            raw = flat.view(np.uint8).reshape(changed.size, -1)
            raw[at, 0] ^= 1  # the last bit of its fraction
        yield changed
    if value.ndim and value.shape[0]:
        yield np.ascontiguousarray(value[:-1])
        yield np.concatenate([value, value[-1:]])
        swapped = np.ascontiguousarray(value[::-1])
        if not np.array_equal(swapped, value):
            yield swapped


def _any_value(hint: Any) -> Any:
    """Some value of a type, for a field that holds None."""
    if typing.get_origin(hint) is np.ndarray or "NDArray" in str(hint) or "ndarray" in str(hint):
        args = list(typing.get_args(typing.get_args(hint)[-1])) if typing.get_args(hint) else []
        kind = args[0] if args and isinstance(args[0], type) and issubclass(args[0], np.generic) else np.float64
        return np.zeros(2, kind)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{field.name: _any_value(hints[field.name]) for field in dataclasses.fields(hint)})
    if typing.get_origin(hint) is tuple:
        return ()
    if typing.get_origin(hint) is dict:
        return {}
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return None
    return hint()
