"""Pads messages so that their lengths do not reveal their content."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedclust.core.errors import WireError
from fedclust.core.release import Release
from fedclust.core.ring import Exact
from fedclust.core.types import Ints, Units

LIMB_BYTES = 16  # bytes of a number
MAX_PADDING_BYTES = 1 << 27  # bytes of filling


@dataclass(frozen=True)
class Padding:
    """How long messages are made: multiples of so many bytes of a question, numbers of a sum, bytes of an own answer.

    0 leaves them as they are.
    """

    question: int = 0
    numbers: int = 0
    own_answer: int = 0

    def cover_both(self, other: Padding) -> Padding:
        """Return padding that suffices for both."""
        return Padding(
            max(self.question, other.question), max(self.numbers, other.numbers), max(self.own_answer, other.own_answer)
        )

    @property
    def shape_bytes(self) -> int:
        """Bytes for the shapes and units of the numbers."""
        return 4 * self.numbers + 1024 if self.numbers else 0

    @property
    def is_within_limit(self) -> bool:
        """Return whether a site accepts this much padding; a larger request would use up its memory."""
        sizes = self.question, LIMB_BYTES * self.numbers, self.own_answer
        return all(0 <= size <= MAX_PADDING_BYTES for size in sizes)


@dataclass(frozen=True)
class Shapes:
    """The shapes and units of the numbers of a sum, field by field."""

    sizes: dict[str, Ints]
    units: dict[str, Units]


def empty_release(kind: type[Release], shapes: Shapes, max_numbers: int) -> Any:
    """A release of these shapes and units, all zero, if it holds no more numbers than came."""
    names, sizes = list(kind.schema()), [size.ravel().tolist() for size in shapes.sizes.values()]
    known = list(shapes.sizes) == names == list(shapes.units)
    if not known or any(i < 0 for size in sizes for i in size) or sum(map(math.prod, sizes)) > max_numbers:
        raise WireError("the stated shape of a sum does not match how many numbers it has")
    return kind(**{n: Exact(np.zeros((*shapes.sizes[n].tolist(), 2), np.uint64), shapes.units[n]) for n in names})


def pad_text(text: bytes, multiple: int) -> bytes:
    """Return a text with its length in front, padded to a multiple of `multiple` bytes."""
    return len(text).to_bytes(4, "little") + text + bytes(-len(text) % max(multiple, 1))


def unpad_text(padded: bytes) -> bytes:
    """Return the padded text; refuse anything but padding after it."""
    length = int.from_bytes(padded[:4], "little")
    if len(padded) < 4 + length or padded[4 + length :].strip(b"\0"):
        raise WireError("an encrypted text does not match its stated length")
    return padded[4 : 4 + length]
