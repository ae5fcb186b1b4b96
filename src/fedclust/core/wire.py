"""Encodes messages as bytes and decodes them strictly; the annotations of a dataclass are its format.

The sender never names a type. The receiver knows which message it expects and refuses anything else.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedclust.core.errors import NotFinite, WireError
from fedclust.core.ring import Exact

T = TypeVar("T")
MAGIC = b"FC\x01"
MAX_MESSAGE_BYTES = 1 << 30
MAX_ITEMS = 1 << 24
MAX_DIMS = 4
DTYPES = tuple(np.dtype(name) for name in ("<f8", "<f4", "<i8", "<i4", "<i2", "<u8", "u1", "?"))
DTYPE_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_F64 = struct.Struct("<d")


class Codec(NamedTuple):
    put: Callable[[Any, list[bytes]], None]
    take: Callable[[Reader], Any]
    size: Callable[[Any], int]


class Reader:
    """A cursor that never reads past the end and never allocates more than the data holds."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.view = memoryview(data)
        self.position = 0

    def read_bytes(self, count: int) -> memoryview:
        if count > len(self.view) - self.position:
            raise WireError("the message is shorter than its stated length")
        self.position += count
        return self.view[self.position - count : self.position]

    def read_u32(self) -> int:
        return int(_U32.unpack(self.read_bytes(4))[0])


def encode(message: Any) -> bytes:
    """Return the bytes of a message whose fields match its annotations."""
    return _encode_as(type(message), message)


def _encode_as(kind: type, message: Any) -> bytes:
    out = [MAGIC, wire_name(kind).encode() + b"\0"]
    _codec_for(kind).put(message, out)
    return b"".join(out)


def copy_as(kind: type[T], message: Any) -> T:
    """Return a message of type `kind` with what the fields of `message` encode to; nothing of `message` is shared."""
    return decode(kind, _encode_as(kind, message))


def decode(kind: type[T], data: bytes | memoryview) -> T:
    """Return the message in `data`, which must be exactly one message of type `kind`."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise WireError(f"the message has {len(data)} bytes; the limit is {MAX_MESSAGE_BYTES}")
    head = MAGIC + wire_name(kind).encode() + b"\0"
    reader = Reader(data)
    if bytes(reader.view[: len(head)]) != head:
        raise WireError(
            f"expected a {wire_name(kind)} message of format {MAGIC[2]}; both sides must run the same version "
            "of fedclust"
        )
    reader.position = len(head)
    message = _codec_for(kind).take(reader)
    if reader.position != len(reader.view):
        raise WireError("the message is longer than its stated length")
    return typing.cast("T", message)


def encoded_size(message: Any) -> int:
    """Return the length of `encode(message)` without building it."""
    return len(MAGIC) + len(wire_name(type(message))) + 1 + _codec_for(type(message)).size(message)


def wire_name(kind: type) -> str:
    """Return the name of a message type on the wire."""
    return f"{kind.__module__.removeprefix('fedclust.')}.{kind.__qualname__}"


def _codec_for(hint: Any) -> Codec:
    """Return the codec of an annotation, built once."""
    if (known := _CODECS.get(hint)) is None:
        known = _CODECS[hint] = _build_codec(hint)
    return known


def _build_codec(hint: Any) -> Codec:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if alias := getattr(origin, "__value__", None):  # NumPy 2.5 and later define NDArray as such an alias
        return _codec_for(alias[args])
    if origin in (typing.Union, types.UnionType) and len(args) == 2 and types.NoneType in args:
        return _optional_codec(_codec_for(next(a for a in args if a is not types.NoneType)))
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _sequence_codec(_codec_for(args[0]))
    if origin is dict and args[0] is str:
        return _mapping_codec(_codec_for(args[1]))
    if origin is np.ndarray:
        return _array_codec(args[1])
    if dataclasses.is_dataclass(hint):
        return _record_codec(typing.cast("type", hint))
    raise TypeError(f"a message cannot hold a value of type {hint}")


def _record_codec(kind: type) -> Codec:
    hints = typing.get_type_hints(kind)
    names = tuple(field.name for field in dataclasses.fields(kind))
    codecs = tuple((name, _codec_for(hints[name])) for name in names)

    def put(value: Any, out: list[bytes]) -> None:
        for name, codec in codecs:
            codec.put(getattr(value, name), out)

    def take(reader: Reader) -> Any:
        return kind(*[codec.take(reader) for _, codec in codecs])

    def measure(value: Any) -> int:
        return sum(codec.size(getattr(value, name)) for name, codec in codecs)

    return Codec(put, take, measure)


def _optional_codec(inner: Codec) -> Codec:
    def put(value: Any, out: list[bytes]) -> None:
        out.append(b"\0" if value is None else b"\1")
        if value is not None:
            inner.put(value, out)

    def take(reader: Reader) -> Any:
        return inner.take(reader) if _take_flag(reader) else None

    return Codec(put, take, lambda value: 1 + (0 if value is None else inner.size(value)))


def _sequence_codec(inner: Codec) -> Codec:
    def put(value: Any, out: list[bytes]) -> None:
        out.append(_U32.pack(len(value)))
        for item in value:
            inner.put(item, out)

    def take(reader: Reader) -> Any:
        return tuple(inner.take(reader) for _ in range(_take_count(reader)))

    return Codec(put, take, lambda value: 4 + sum(map(inner.size, value)))


def _mapping_codec(inner: Codec) -> Codec:
    def put(value: Any, out: list[bytes]) -> None:
        out.append(_U32.pack(len(value)))
        for key, item in value.items():
            _put_text(key, out)
            inner.put(item, out)

    def take(reader: Reader) -> Any:
        found: dict[str, Any] = {}
        for _ in range(_take_count(reader)):
            key = _take_text(reader)
            if key in found:
                raise WireError("the message holds the same key twice")
            found[key] = inner.take(reader)
        return found

    return Codec(put, take, lambda value: 4 + sum(4 + len(k.encode()) + inner.size(v) for k, v in value.items()))


def _take_count(reader: Reader) -> int:
    """Read how many items follow; each takes at least a byte, so a false count is refused before anything is built."""
    count = reader.read_u32()
    if count > min(MAX_ITEMS, len(reader.view) - reader.position):
        raise WireError("the message declares more items than it holds")
    return count


def _array_codec(hint: Any) -> Codec:
    """Return a codec for arrays of one dtype, or of any allowed dtype if the annotation names none."""
    args = typing.get_args(hint)
    only = np.dtype(args[0]) if args and isinstance(args[0], type) and issubclass(args[0], np.generic) else None

    def put(value: Any, out: list[bytes]) -> None:
        array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
        if only is not None and array.dtype != only:
            raise TypeError(f"the array has dtype {array.dtype}, but {only} was declared")
        out.append(struct.pack(f"<BB{array.ndim}I", DTYPE_CODES[array.dtype], array.ndim, *array.shape))
        out.append(array.tobytes())

    def take(reader: Reader) -> Any:
        return _take_array(reader, only)

    return Codec(put, take, lambda value: 2 + 4 * value.ndim + value.nbytes)


def _take_array(reader: Reader, only: np.dtype[Any] | None) -> Any:
    code, ndim = reader.read_bytes(2)
    if code >= len(DTYPES) or ndim > MAX_DIMS:
        raise WireError("the message holds an array of a type that is not allowed")
    dtype = DTYPES[code]
    if only is not None and dtype != only:
        raise WireError(f"the message holds an array of {dtype}, but {only} was expected")
    shape = struct.unpack(f"<{ndim}I", reader.read_bytes(4 * ndim))
    data = reader.read_bytes(math.prod(shape) * dtype.itemsize)
    if dtype.kind == "b" and data.nbytes and max(data) > 1:
        raise WireError("the message holds a Boolean that is neither true nor false")
    try:
        array = np.frombuffer(data, dtype).reshape(shape)
    except ValueError:  # no bytes, and dimensions whose product exceeds any array
        raise WireError("the message holds an array with an impossible shape") from None
    if dtype.kind == "f" and not np.isfinite(array).all():
        raise NotFinite("the message holds an array with a value that is not finite")
    return array if array.flags.aligned else array.copy()


def _put_text(value: str, out: list[bytes]) -> None:
    data = value.encode()
    out.append(_U32.pack(len(data)))
    out.append(data)


def _take_text(reader: Reader) -> str:
    try:
        return bytes(reader.read_bytes(reader.read_u32())).decode()
    except UnicodeDecodeError:
        raise WireError("the message holds text that is not UTF-8") from None


def _put_bytes(value: bytes, out: list[bytes]) -> None:
    out.append(_U32.pack(len(value)))
    out.append(value)


def _take_flag(reader: Reader) -> bool:
    value = reader.read_bytes(1)[0]
    if value > 1:
        raise WireError("the message holds a Boolean that is neither true nor false")
    return bool(value)


def _take_float(reader: Reader) -> float:
    value = float(_F64.unpack(reader.read_bytes(8))[0])
    if not math.isfinite(value):
        raise NotFinite("the message holds a number that is not finite")
    return value


def _put_exact(value: Exact, out: list[bytes]) -> None:
    _LIMBS.put(value.limbs, out)
    _UNITS.put(value.unit, out)


def _take_exact(reader: Reader) -> Exact:
    limbs, unit = _LIMBS.take(reader), _UNITS.take(reader)
    if limbs.ndim == 0 or limbs.shape[-1] != 2 or unit.shape not in ((), limbs.shape[:-1]):
        raise WireError("the message holds an exact number with an impossible shape")
    if unit.size and (int(unit.min()) < -2000 or int(unit.max()) > 2000):
        raise WireError("the message holds an exact number with an impossible unit")
    return Exact(limbs, unit)


_LIMBS = _array_codec(np.dtype[np.uint64])
_UNITS = _array_codec(np.dtype[np.int32])
_CODECS: dict[Any, Codec] = {
    bool: Codec(lambda v, out: out.append(b"\1" if v else b"\0"), _take_flag, lambda _: 1),
    int: Codec(lambda v, out: out.append(_I64.pack(v)), lambda r: int(_I64.unpack(r.read_bytes(8))[0]), lambda _: 8),
    float: Codec(lambda v, out: out.append(_F64.pack(v)), _take_float, lambda _: 8),
    str: Codec(_put_text, _take_text, lambda v: 4 + len(v.encode())),
    bytes: Codec(_put_bytes, lambda r: bytes(r.read_bytes(r.read_u32())), lambda v: 4 + len(v)),
    Exact: Codec(_put_exact, _take_exact, lambda v: _LIMBS.size(v.limbs) + _UNITS.size(v.unit)),
}
