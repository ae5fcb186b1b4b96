"""Messages that are longer than they need to be, so that their lengths do not tell what is in them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedclust.core.errors import WireError
from fedclust.core.release import Release
from fedclust.core.ring import Exact
from fedclust.core.types import Ints, Units

LIMB = 16  # bytes of a number
LARGEST = 1 << 27  # bytes of filling


@dataclass(frozen=True)
class Room:
    """How long messages are made: multiples of so many bytes of a question, numbers of a sum, bytes of an own answer.

    0 leaves them as they are.
    """

    question: int = 0
    numbers: int = 0
    told: int = 0

    def wider(self, other: Room) -> Room:
        """Room for either."""
        return Room(max(self.question, other.question), max(self.numbers, other.numbers), max(self.told, other.told))

    @property
    def shape(self) -> int:
        """Bytes for the shapes and units of the numbers."""
        return 4 * self.numbers + 1024 if self.numbers else 0

    @property
    def sound(self) -> bool:
        """Whether a site will fill so much; whoever asks for more asks for its memory."""
        sizes = self.question, LIMB * self.numbers, self.told
        return all(0 <= size <= LARGEST for size in sizes)


@dataclass(frozen=True)
class Shapes:
    """The shapes and units of the numbers of a sum, field by field."""

    sizes: dict[str, Ints]
    units: dict[str, Units]


def empty_release(kind: type[Release], shapes: Shapes, most: int) -> Any:
    """A release of these shapes and units, all zero, if it holds no more numbers than came."""
    names, sizes = list(kind.schema()), [size.ravel().tolist() for size in shapes.sizes.values()]
    known = list(shapes.sizes) == names == list(shapes.units)
    if not known or any(i < 0 for size in sizes for i in size) or sum(map(math.prod, sizes)) > most:
        raise WireError("the shape of a sum is not that of its numbers")
    return kind(**{n: Exact(np.zeros((*shapes.sizes[n].tolist(), 2), np.uint64), shapes.units[n]) for n in names})


def filled(text: bytes, room: int) -> bytes:
    """A text with its length in front, filled up to a multiple of the room made for it."""
    return len(text).to_bytes(4, "little") + text + bytes(-len(text) % max(room, 1))


def emptied(filled: bytes) -> bytes:
    """The text that was filled up; whatever is not filling after it is refused."""
    length = int.from_bytes(filled[:4], "little")
    if len(filled) < 4 + length or filled[4 + length :].strip(b"\0"):
        raise WireError("a veiled text that is not as long as it says")
    return filled[4 : 4 + length]
