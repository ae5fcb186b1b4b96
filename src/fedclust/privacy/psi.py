"""Ids under keys that commute: an id, hashed to a P-256 point and multiplied by all keys in any order, gives one tag.

A point is known by its x coordinate, which multiples of it and of its negative share; so Diffie and Hellman's
exchange, x(k P), is all that is needed of the curve. P-256 has prime order: every point on it is as good as any other,
and what is not on it is refused. Without all keys a tag reveals nothing about its id, as long as the decisional
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
CURVE_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
POINT_BYTES = 32  # bytes of an x coordinate
TAG_BYTES = 16  # bytes of a tag: two of 2^40 ids have the same one with probability 2^-49
EVEN_Y_PREFIX = b"\x02"  # of the two points with an x coordinate, the one with an even y
MIN_LIST_LENGTH = 64  # entries that any list has


@dataclass(frozen=True)
class PsiKeys:
    """A party's two factors: `outward` before its ids leave, `inward` when they are back; others' ids get both at once.

    The last site to handle a list has not seen it under its owner's second factor and cannot compare it with its own.
    """

    outward: int
    inward: int

    @classmethod
    def new(cls) -> PsiKeys:
        return cls(*(secrets.randbelow(CURVE_ORDER - 1) + 1 for _ in range(2)))

    @property
    def combined_factor(self) -> int:
        return self.outward * self.inward % CURVE_ORDER

    def to_array(self) -> Array:
        """The factors as bytes."""
        data = b"".join(factor.to_bytes(POINT_BYTES, "big") for factor in (self.outward, self.inward))
        return np.frombuffer(data, np.uint8)

    @classmethod
    def from_array(cls, data: Array) -> PsiKeys:
        first, second = data.reshape(2, POINT_BYTES)
        return cls(int.from_bytes(first.tobytes(), "big"), int.from_bytes(second.tobytes(), "big"))


def hash_ids(ids: Sequence[bytes], factor: int) -> Array:
    """Ids as points times a factor, (n, 32) bytes."""
    key = ec.derive_private_key(factor, CURVE)
    return _stack_points([key.exchange(EXCHANGE, _point(one)) for one in ids])


def multiply_points(points: Array, factor: int) -> Array:
    """Points times a further factor, in their order."""
    key = ec.derive_private_key(factor, CURVE)
    try:
        return _stack_points([key.exchange(EXCHANGE, _point_from_x(one.tobytes())) for one in points])
    except ValueError:
        raise KeysRefused("a list of encrypted ids holds a value that is not a point on the elliptic curve") from None


def tags(points: Array) -> Array:
    """What points are compared by, (n, 16) bytes; a hash, so that nothing more can be multiplied."""
    digests = (hashlib.sha256(b"fedclust tag" + one.tobytes()).digest()[:TAG_BYTES] for one in points)
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, TAG_BYTES)


def padded_length(count: int) -> int:
    """How long a list of so many ids is made, so that its length tells about an eighth of its size.

    >>> padded_length(3), padded_length(1000), padded_length(100_000)
    (64, 1024, 106496)
    """
    grain = max(MIN_LIST_LENGTH, 1 << max(0, count.bit_length() - 4))
    return max(MIN_LIST_LENGTH, -(-count // grain) * grain)


def fillers(count: int) -> list[bytes]:
    """Return ids that no site has."""
    return [b"filler" + secrets.token_bytes(POINT_BYTES) for _ in range(count)]


def draw_order(count: int) -> Ints:
    """Return a random order that nobody else knows."""
    return np.argsort(np.frombuffer(secrets.token_bytes(8 * count), np.int64), kind="stable")


def _point(one: bytes) -> ec.EllipticCurvePublicKey:
    """An id's point: the first of its digests that is an x coordinate; about every second one is."""
    attempt = 0
    while True:
        x = hashlib.sha256(b"fedclust id" + attempt.to_bytes(4, "big") + one).digest()
        try:
            return _point_from_x(x)
        except ValueError:
            attempt += 1


def _point_from_x(x: bytes) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, EVEN_Y_PREFIX + x)


def _stack_points(points: list[bytes]) -> Array:
    return np.frombuffer(b"".join(points), np.uint8).reshape(-1, POINT_BYTES)
