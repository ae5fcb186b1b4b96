"""Whether sums of secret counts lie between 1 and a floor, found in one message and without showing the sums.

For each count x that the sites' parts add up to, and each forbidden value i = 1, ..., floor - 1, the sites add

    v_i = r_i (x - i)    modulo a prime,

where the random r_i != 0 follow from a secret that all sites except one know. That one, the tester, receives the
parts, hidden by shares of zero, and adds them. If x is forbidden, exactly one v_i is 0; each other v_i is a random
number other than 0, whatever x is and however small the prime, so the prime is the smallest above any x: mostly one
byte. The values come in an order that follows from the secret. So for each cluster the
tester learns in how many comparisons the count is forbidden, and the other sites learn nothing. The tester's own part
enters as two secret shares, which two other sites add to theirs. The tester together with another site could compute
the counts.

>>> import numpy as np
>>> parts = [np.array([[3, 0]]), np.array([[8, 0]]), np.array([[0, 4]])]  # the counts of three sites: 11 and 4
>>> shared = SharedSecret(bytes(32), b"question", sites=3, residues=Residues.for_counts(10, sites=3))
>>> hidden = [hide_counts(own, 10, shared, place) for place, own in enumerate(parts)]
>>> shared.residues.count_forbidden(hidden).tolist()
[1]
>>> parts[1][0, 1] = 6
>>> hidden = [hide_counts(own, 10, shared, place) for place, own in enumerate(parts)]
>>> shared.residues.count_forbidden(hidden).tolist()
[0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedclust.core.types import Array, Ints
from fedclust.privacy import keys

PRIMES = {251: "u1", 32_749: "<i2", 2**31 - 1: "<i4"}  # and the type of their residues in a message
MAX_TESTED_FLOOR = max(PRIMES) >> 8
SECRET_BYTES = 32


def clip_counts(counts: Ints, floor: int) -> Ints:
    """Return a site's counts as they enter: no larger than the floor, which leaves every answer as it is."""
    return np.minimum(counts, floor)


@dataclass(frozen=True)
class Residues:
    """The numbers modulo a prime that counts are hidden among; products of two of them fit into 64 bits."""

    prime: int

    @classmethod
    def for_counts(cls, floor: int, sites: int) -> Residues:
        """Return the smallest ones that tell apart all counts of so many sites, each of them clipped at the floor."""
        return cls(min(prime for prime in PRIMES if prime >= floor * sites))

    def split_counts(self, counts: Ints, seed: bytes) -> Ints:
        """Return the second of two shares of counts; the first one follows from the seed."""
        return (counts - self.expand_share(seed, counts.shape)) % self.prime

    def expand_share(self, seed: bytes, shape: tuple[int, ...]) -> Ints:
        """Return the first of two shares of counts."""
        return self.draw(seed, shape, "share")

    def draw(self, secret: bytes, shape: tuple[int, ...], *purpose: bytes | str | int) -> Ints:
        """Return random residues that follow from a secret and a purpose."""
        return (_words(secret, shape, *purpose) % np.uint64(self.prime)).astype(np.int64)

    def count_forbidden(self, hidden: Sequence[Ints]) -> Ints:
        """Return for each cluster how many counts are forbidden, from the parts of all sites that know the secret."""
        added = np.sum(hidden, axis=0, dtype=np.int64) % self.prime
        return np.asarray((added == 0).sum(axis=1), np.int64)

    def shrink(self, residues: Ints) -> Array:
        """Return residues in the type in which they travel."""
        return residues.astype(PRIMES[self.prime])

    def pack(self, residues: Ints) -> bytes:
        """Return residues as they travel."""
        return self.shrink(residues).tobytes()

    def unpack(self, text: bytes, shape: tuple[int, ...]) -> Ints:
        """Return residues from a message; a message of another length raises ValueError."""
        return np.frombuffer(text, PRIMES[self.prime]).astype(np.int64).reshape(shape) % self.prime


@dataclass(frozen=True)
class SharedSecret:
    """A secret for one question, which has a digest that no other question has, and how many sites know it."""

    secret: bytes
    question: bytes
    sites: int
    residues: Residues

    def words(self, shape: tuple[int, ...], purpose: str) -> Array:
        """Return random words for one purpose."""
        return _words(self.secret, shape, purpose, self.question)

    def share_of_zero(self, shape: tuple[int, ...], place: int) -> Ints:
        """Return one site's residues; those of all sites add up to zero."""
        own, following = (
            self.residues.draw(self.secret, shape, "zero", self.question, at)
            for at in (place, (place + 1) % self.sites)
        )
        return own - following


def hide_counts(parts: Ints, floor: int, shared: SharedSecret, place: int) -> Ints:
    """Return a site's part of all v_i, (clusters, cells (floor - 1)), from its part of the counts (clusters, cells).

    `place` is the site's place among the sites that know the secret.
    """
    clusters, cells = parts.shape
    shape, prime = (clusters, cells, floor - 1), shared.residues.prime
    factors = 1 + shared.words(shape, "factors") % np.uint64(prime - 1)
    shifted = np.broadcast_to(parts[..., None] % prime, shape)
    if place == 0:
        shifted = shifted - np.arange(1, floor)
    hidden = (shifted % prime).astype(np.uint64) * factors % np.uint64(prime)
    mixed = ((hidden.astype(np.int64) + shared.share_of_zero(shape, place)) % prime).reshape(clusters, -1)
    order = shared.words(mixed.shape, "order").argsort(axis=1, kind="stable")
    return np.take_along_axis(mixed, order, axis=1)


def _words(secret: bytes, shape: tuple[int, ...], *purpose: bytes | str | int) -> Array:
    """Return random words that follow from a secret and a purpose that has no other use."""
    count = int(np.prod(shape, dtype=np.int64))
    key = keys.derive_key(secret, "floor test", *purpose)
    data = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(8 * count))
    return np.frombuffer(data, "<u8").astype(np.uint64, copy=False).reshape(shape)
