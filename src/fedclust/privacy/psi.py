"""Ids under keys that commute: whoever hashes an id to a point of P-256 and multiplies it by all keys gets one tag.

A point is known by its x coordinate, which multiples of it and of its negative share; so Diffie and Hellman's
exchange, x(k P), is all that is needed of the curve. P-256 has prime order: every point on it is as good as any other,
and what is not on it is refused. Without all keys a tag tells nothing of its id, as long as the decisional
Diffie-Hellman problem is hard.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from fedclust.core.errors import KeysRefused
from fedclust.core.types import Array, Ints

CURVE, EXCHANGE = ec.SECP256R1(), ec.ECDH()
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
SIZE = 32  # bytes of an x coordinate
TAG = 16  # bytes of a tag: two of 2^40 ids have the same one with probability 2^-49
EVEN = b"\x02"  # of the two points with an x coordinate, the one with an even y
FEWEST = 64  # entries that any list has


@dataclass(frozen=True)
class Keys:
    """A party's two factors: `outward` before its ids leave, `inward` when they are back; others' ids get both at once.

    Whoever handles a list last has not seen it under its owner's second factor, and cannot compare it with its own.
    """

    outward: int
    inward: int

    @classmethod
    def new(cls) -> Keys:
        return cls(*(secrets.randbelow(ORDER - 1) + 1 for _ in range(2)))

    @property
    def both(self) -> int:
        return self.outward * self.inward % ORDER

    def packed(self) -> Array:
        """The factors as bytes."""
        data = b"".join(factor.to_bytes(SIZE, "big") for factor in (self.outward, self.inward))
        return np.frombuffer(data, np.uint8)

    @classmethod
    def unpacked(cls, data: Array) -> Keys:
        first, second = data.reshape(2, SIZE)
        return cls(int.from_bytes(first.tobytes(), "big"), int.from_bytes(second.tobytes(), "big"))


def hashed(ids: Sequence[bytes], factor: int) -> Array:
    """Ids as points times a factor, (n, 32) bytes."""
    key = ec.derive_private_key(factor, CURVE)
    return _joined([key.exchange(EXCHANGE, _point(one)) for one in ids])


def raised(points: Array, factor: int) -> Array:
    """Points times a further factor, in their order."""
    key = ec.derive_private_key(factor, CURVE)
    try:
        return _joined([key.exchange(EXCHANGE, _lifted(one.tobytes())) for one in points])
    except ValueError:
        raise KeysRefused("a list that holds what is no point of the curve") from None


def tags(points: Array) -> Array:
    """What points are compared by, (n, 16) bytes; a hash, so that nothing more can be multiplied."""
    digests = (hashlib.sha256(b"fedclust tag" + one.tobytes()).digest()[:TAG] for one in points)
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, TAG)


def padded(count: int) -> int:
    """How long a list of so many ids is made, so that its length tells about an eighth of its size.

    >>> padded(3), padded(1000), padded(100_000)
    (64, 1024, 106496)
    """
    grain = max(FEWEST, 1 << max(0, count.bit_length() - 4))
    return max(FEWEST, -(-count // grain) * grain)


def fillers(count: int) -> list[bytes]:
    """Ids that nobody has."""
    return [b"filler" + secrets.token_bytes(SIZE) for _ in range(count)]


def shuffled(count: int) -> Ints:
    """An order that nobody else knows."""
    return np.argsort(np.frombuffer(secrets.token_bytes(8 * count), np.int64), kind="stable")


def _point(one: bytes) -> ec.EllipticCurvePublicKey:
    """An id's point: the first of its digests that is an x coordinate; about every second one is."""
    attempt = 0
    while True:
        x = hashlib.sha256(b"fedclust id" + attempt.to_bytes(4, "big") + one).digest()
        try:
            return _lifted(x)
        except ValueError:
            attempt += 1


def _lifted(x: bytes) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, EVEN + x)


def _joined(points: list[bytes]) -> Array:
    return np.frombuffer(b"".join(points), np.uint8).reshape(-1, SIZE)
