"""The wire: what goes in comes out, and nothing else gets in."""

import dataclasses
import types
import typing
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedclust.models  # noqa: F401 registers every handler
from fedclust.core import wire
from fedclust.core.effects import HANDLERS, Handler, SealedMessages
from fedclust.core.errors import WireError
from fedclust.core.release import Done
from fedclust.core.ring import Exact
from fedclust.core.types import Array, Floats, Ints


@dataclass(frozen=True)
class Inner:
    flag: bool
    note: str | None


@dataclass(frozen=True)
class Letter:
    count: int
    share: float
    name: str
    raw: bytes
    inner: Inner
    names: tuple[str, ...]
    points: Floats
    rows: Ints | None
    held: dict[str, Array]
    sums: Exact


MARK = np.full(3, 7.5)
finite = st.floats(allow_nan=False, allow_infinity=False)
floats = hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), elements=finite)
exacts = hnp.arrays(np.uint64, st.tuples(st.integers(0, 3), st.just(2))).map(
    lambda a: Exact(a, np.asarray(-51, np.int32))
)
letters = st.builds(
    Letter,
    st.integers(-(2**63), 2**63 - 1),
    finite,
    st.text(),
    st.binary(),
    st.builds(Inner, st.booleans(), st.none() | st.text()),
    st.lists(st.text(), max_size=4).map(tuple),
    floats,
    st.none() | hnp.arrays(np.int64, 3),
    st.dictionaries(st.text(), floats, max_size=3),
    exacts,
)


def equal(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if dataclasses.is_dataclass(a) and not isinstance(a, Exact):
        return all(equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return a == b


@given(letters)
def test_a_message_comes_back_and_its_size_is_known_beforehand(letter):
    data = wire.encode(letter)
    assert equal(wire.decode(Letter, data), letter)
    assert wire.encoded_size(letter) == len(data)


@given(letters, st.data())
def test_a_truncated_message_is_refused(letter, data):
    whole = wire.encode(letter)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(WireError):
        wire.decode(Letter, whole[:cut])


@given(letters, st.binary(min_size=1, max_size=9))
def test_a_message_with_more_behind_it_is_refused(letter, more):
    with pytest.raises(WireError):
        wire.decode(Letter, wire.encode(letter) + more)


@settings(max_examples=300)
@given(letters, st.data())
def test_an_altered_message_decodes_to_something_sound_or_is_refused(letter, data):
    raw = bytearray(wire.encode(letter))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = wire.decode(Letter, bytes(raw))
    except WireError:
        return
    assert np.isfinite(found.points).all()
    assert wire.encode(found) == bytes(raw)


@given(st.binary(max_size=400))
def test_noise_is_refused(noise):
    with pytest.raises(WireError):
        wire.decode(Letter, noise)


def test_a_message_of_another_kind_is_refused():
    with pytest.raises(WireError, match="same version"):
        wire.decode(Letter, wire.encode(Inner(True, None)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused(value):
    @dataclass(frozen=True)
    class One:
        x: float

    @dataclass(frozen=True)
    class Many:
        x: Floats

    globals().update(One=One, Many=Many)
    for message in (One(value), Many(np.array([1.0, value]))):
        with pytest.raises(WireError, match="not finite"):
            wire.decode(type(message), wire.encode(message))


def test_a_lie_about_a_shape_costs_no_memory():
    data = wire.encode(Letter(0, 0.0, "", b"", Inner(True, None), (), MARK, None, {}, Exact.from_counts(0)))
    head = data.index(MARK.tobytes()) - 4
    lie = data[:head] + (2**32 - 1).to_bytes(4, "little") + data[head + 4 :]
    with pytest.raises(WireError, match="shorter than its stated length"):
        wire.decode(Letter, lie)


def test_an_array_of_another_dtype_is_refused():
    letter = Letter(0, 0.0, "", b"", Inner(True, None), (), MARK, None, {}, Exact.from_counts(0))
    data = bytearray(wire.encode(letter))
    at = data.index(MARK.tobytes()) - 6
    data[at] = wire.DTYPE_CODES[np.dtype("<i8")]
    with pytest.raises(WireError, match="float64 was expected"):
        wire.decode(Letter, bytes(data))


def test_every_handler_speaks_types_that_travel():
    for handler in HANDLERS.values():
        wire._codec_for(handler.message)
        wire._codec_for(handler.release)


def test_an_array_may_be_declared_by_a_name_of_its_kind():
    """As NumPy 2.5 does: its NDArray is not the array's type, but a name whose value that is."""
    kind = typing.TypeVar("kind", bound=np.generic)
    named = type("Named", (), {"__value__": np.ndarray[typing.Any, np.dtype[kind]]})
    codec, out = wire._codec_for(types.GenericAlias(named, (np.int32,))), []
    codec.put(np.arange(3, dtype=np.int32), out)
    assert b"".join(out).endswith(np.arange(3, dtype=np.int32).tobytes())
    with pytest.raises(TypeError, match="int32 was declared"):
        codec.put(np.arange(3.0), out)


def test_a_handler_of_sealed_messages_declares_the_type_of_their_note():
    with pytest.raises(TypeError, match="use note= to declare the type of the note"):
        Handler("letters.read", lambda _site, _messages: Done(), SealedMessages, Done, "fedclust")
