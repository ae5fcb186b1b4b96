"""Random numbers of the ring that cancel in a sum: one party of a pair adds them, the other subtracts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedclust.core.release import Release
from fedclust.core.ring import UNIT_ONE, Exact, total
from fedclust.core.types import Limbs, PartyId
from fedclust.privacy.keys import digest_parts

R = TypeVar("R", bound=Release)
MAX_FULL_PAIRING_PARTIES = 50  # beyond, each party pairs with some others only
NEIGHBORS_PER_SIDE = 10  # that many to either side of its place in a shuffled ring
STREAM_CHUNK_CELLS = 1 << 16  # numbers of streams that are added in one pass


def neighbours(party: PartyId, cohort: Sequence[PartyId], salt: bytes) -> tuple[PartyId, ...]:
    """Return the parties that share masks with a party: all, or in a large group its neighbours in a shuffled ring."""
    if len(cohort) <= MAX_FULL_PAIRING_PARTIES:
        return tuple(other for other in cohort if other != party)
    ring = sorted(cohort, key=lambda name: digest_parts(salt, name))
    at = ring.index(party)
    return tuple(ring[(at + step) % len(ring)] for step in range(-NEIGHBORS_PER_SIDE, NEIGHBORS_PER_SIDE + 1) if step)


class Mask:
    """A growing sum of random streams, one number of the ring for each cell of a release."""

    def __init__(self, cells: int) -> None:
        self.limbs: Limbs = np.zeros((cells, 2), np.uint64)

    def add_streams(self, *keys: bytes) -> None:
        """Add the streams of keys."""
        if keys:
            self.limbs = add_limbs(self.limbs, _sum_streams(keys, len(self.limbs)))

    def subtract_streams(self, *keys: bytes) -> None:
        """Subtract the streams of keys."""
        if keys:
            self.limbs = add_limbs(self.limbs, negate_limbs(_sum_streams(keys, len(self.limbs))))


def pairwise(party: PartyId, keys: Mapping[PartyId, bytes], cells: int) -> Mask:
    """Return a party's mask from the key it shares with each other party; the masks of all parties add up to zero."""
    mask = Mask(cells)
    mask.add_streams(*(key for other, key in keys.items() if party < other))
    mask.subtract_streams(*(key for other, key in keys.items() if party > other))
    return mask


def _sum_streams(keys: Sequence[bytes], cells: int) -> Limbs:
    """The sum of the streams of keys, each of which serves this stream alone, so that its nonce may be zero."""
    nothing, found = bytes(16 * cells), np.zeros((cells, 2), np.uint64)
    at_once = max(1, STREAM_CHUNK_CELLS // max(1, cells))
    for start in range(0, len(keys), at_once):
        some = keys[start : start + at_once]
        data = b"".join(Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(nothing) for key in some)
        terms = np.frombuffer(data, "<u8").reshape(len(some), cells, 2)
        found = total([Exact(found, UNIT_ONE), *(Exact(limbs, UNIT_ONE) for limbs in terms)]).limbs
    return found


def count_cells(release: Release) -> int:
    """How many numbers of the ring a release holds."""
    return sum(release.field_value(name).limbs.size // 2 for name in release.schema())


def add_mask(release: R, mask: Limbs) -> R:
    """A release with a mask added, cell by cell."""
    at = 0
    changed: dict[str, Exact] = {}
    for name in release.schema():
        value: Exact = release.field_value(name)
        count = value.limbs.size // 2
        part = mask[at : at + count].reshape(value.limbs.shape)
        changed[name] = Exact(add_limbs(value.limbs, part), value.unit)
        at += count
    return replace(release, **changed)


def add_limbs(limbs: Limbs, others: Limbs) -> Limbs:
    """The sums of two lists of numbers of the ring."""
    with np.errstate(over="ignore"):  # modulo 2^128, of single numbers too
        low = limbs[..., 0] + others[..., 0]
        high = limbs[..., 1] + others[..., 1] + (low < others[..., 0])
    return np.stack([low, high], axis=-1)


def negate_limbs(limbs: Limbs) -> Limbs:
    """Return the negative of a mask."""
    low = ~limbs[..., 0] + np.uint64(1)
    return np.stack([low, ~limbs[..., 1] + (low == 0)], axis=-1)
