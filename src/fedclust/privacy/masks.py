"""Random numbers of the ring that vanish from a sum: what one party of a pair adds, the other takes away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedclust.core.release import Release
from fedclust.core.ring import Exact
from fedclust.core.types import Limbs, PartyId
from fedclust.privacy.keys import digest

R = TypeVar("R", bound=Release)
CROWD = 50  # beyond, each party pairs with some others only
SIDE = 10  # that many to either side of its place in a shuffled ring


def neighbours(party: PartyId, cohort: Sequence[PartyId], salt: bytes) -> tuple[PartyId, ...]:
    """With whom a party shares masks: with everyone, or in a crowd with those next to it in a ring nobody chose."""
    if len(cohort) <= CROWD:
        return tuple(other for other in cohort if other != party)
    ring = sorted(cohort, key=lambda name: digest(salt, name))
    at = ring.index(party)
    return tuple(ring[(at + step) % len(ring)] for step in range(-SIDE, SIDE + 1) if step)


class Mask:
    """A growing sum of random streams, one number of the ring for each cell of a release."""

    def __init__(self, cells: int) -> None:
        self.limbs: Limbs = np.zeros((cells, 2), np.uint64)
        self._nothing = bytes(16 * cells)

    def add(self, key: bytes) -> None:
        """Add the stream of a key."""
        stream = self._stream(key)
        self.limbs[:, 0] += stream[:, 0]
        self.limbs[:, 1] += stream[:, 1] + (self.limbs[:, 0] < stream[:, 0])

    def take(self, key: bytes) -> None:
        """Take the stream of a key away."""
        stream = self._stream(key)
        borrow = self.limbs[:, 0] < stream[:, 0]
        self.limbs[:, 0] -= stream[:, 0]
        self.limbs[:, 1] -= stream[:, 1] + borrow

    def _stream(self, key: bytes) -> Limbs:
        # The key is used for this stream alone, so the nonce may be zero.
        data = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(self._nothing)
        return np.frombuffer(data, "<u8").reshape(-1, 2)


def pairwise(party: PartyId, keys: Mapping[PartyId, bytes], cells: int) -> Mask:
    """The mask of a party from the key it shares with each other one; the masks of all add up to nothing."""
    mask = Mask(cells)
    for other, key in keys.items():
        if party < other:
            mask.add(key)
        else:
            mask.take(key)
    return mask


def cells_of(release: Release) -> int:
    """How many numbers of the ring a release holds."""
    return sum(getattr(release, name).limbs.size // 2 for name in release.schema())


def shifted(release: R, mask: Limbs) -> R:
    """A release with a mask added, cell by cell."""
    at = 0
    changed: dict[str, Exact] = {}
    for name in release.schema():
        value: Exact = getattr(release, name)
        count = value.limbs.size // 2
        part = mask[at : at + count].reshape(value.limbs.shape)
        changed[name] = Exact(added(value.limbs, part), value.unit)
        at += count
    return replace(release, **changed)


def added(limbs: Limbs, others: Limbs) -> Limbs:
    """The sums of two lists of numbers of the ring."""
    with np.errstate(over="ignore"):  # modulo 2^128, of single numbers too
        low = limbs[..., 0] + others[..., 0]
        high = limbs[..., 1] + others[..., 1] + (low < others[..., 0])
    return np.stack([low, high], axis=-1)


def negative(limbs: Limbs) -> Limbs:
    """What takes a mask away again."""
    low = ~limbs[:, 0] + np.uint64(1)
    return np.stack([low, ~limbs[:, 1] + (low == 0)], axis=-1)
