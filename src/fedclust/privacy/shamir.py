"""A secret in shares: any `needed` of them give it back, fewer say nothing about it (Shamir 1979).

>>> shares = split(b"sesame", 5, needed=3)
>>> join_shares({2: shares[1], 4: shares[3], 5: shares[4]}, length=6)
b'sesame'
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import lru_cache

from fedclust.core.errors import KeysRefused

SECRET_PRIME = (1 << 521) - 1  # a Mersenne prime: secrets of up to 65 bytes
SHARE_BYTES = 66


def split(secret: bytes, count: int, *, needed: int) -> list[bytes]:
    """The shares of parties 1..count: values at those places of a random polynomial that is the secret at 0."""
    if not 1 <= needed <= count:
        raise ValueError(f"{needed} of {count} secret shares is not a valid threshold")
    value = int.from_bytes(secret, "big")
    if value >= SECRET_PRIME:
        raise ValueError("the secret has more than 65 bytes")
    coefficients = [value, *(secrets.randbelow(SECRET_PRIME) for _ in range(needed - 1))]
    shares = []
    for place in range(1, count + 1):
        at = 0
        for coefficient in reversed(coefficients):
            at = (at * place + coefficient) % SECRET_PRIME
        shares.append(at.to_bytes(SHARE_BYTES, "big"))
    return shares


def join_shares(shares: Mapping[int, bytes], *, length: int) -> bytes:
    """The secret of `length` bytes from shares by place; nonsense where too few were given."""
    value = sum(
        int.from_bytes(share, "big") * weight
        for share, weight in zip(shares.values(), _weights(tuple(shares)), strict=True)
    )
    value %= SECRET_PRIME
    if value >> (8 * length):
        raise KeysRefused("the secret shares do not belong to the same secret")
    return value.to_bytes(length, "big")


@lru_cache(maxsize=8)
def _weights(places: tuple[int, ...]) -> tuple[int, ...]:
    """What each share counts for in the value at 0 (Lagrange); the same for every secret shared among the same."""
    weights = []
    for i in places:
        above = below = 1
        for j in places:
            if j != i:
                above = above * j % SECRET_PRIME
                below = below * (j - i) % SECRET_PRIME
        weights.append(above * pow(below, -1, SECRET_PRIME) % SECRET_PRIME)
    return tuple(weights)
