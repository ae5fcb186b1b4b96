"""Linear tags prove a sum of masked answers to the sites, although the coordinator adds the answers.

The answers are read as words of 32 bits, and added without carries. From a key that only sites have follow, for one
question, a secret factor r_w for each word w and a secret pad for each site. Site i sends with its answer y_i

    t_i = sum_w r_w y_iw + pad_i    modulo the prime 2^61 - 1.

The coordinator adds the answers to S and the tags to T. A site accepts S if T equals sum_w r_w S_w plus all pads. The
pads hide everything about the factors, so whoever changes S, T or the set of sites is caught except with probability
2^-61 for each attempt. A site that gives the key away, or that works with the coordinator, can make false tags.

>>> import numpy as np
>>> answers = [np.array([3, 2**32 - 1], np.uint64), np.array([4, 1], np.uint64)]
>>> factors = SumCheck(bytes(32), b"question", 2)
>>> added = sum(answers)
>>> tags = [factors.make_tag(own, party) for own, party in zip(answers, ["a", "b"])]
>>> factors.accepts(added, add_tags(tags), ["a", "b"])
True
>>> factors.accepts(added + np.array([0, 1], np.uint64), add_tags(tags), ["a", "b"])
False
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from fedclust.core.types import PartyId
from fedclust.privacy import keys

TAG_PRIME = (1 << 61) - 1
SUM_TAG_BYTES = 8
PRODUCT_CHUNK_WORDS = 1 << 15  # words that are multiplied together, so that everything stays in the cache
_LOW_30 = np.uint64((1 << 30) - 1)
_LOW_32 = np.uint64(0xFFFFFFFF)
_30, _32 = np.uint64(30), np.uint64(32)
Words = NDArray[np.uint64]


def multiply_words(factors: Words, words: Words) -> int:
    """Return sum_w factors_w words_w modulo the prime, for factors below 2^61 and words below 2^32.

    A factor is split into 31 and 30 bits, so that no product exceeds 64 bits; the halves of the products are added.
    """
    total = 0
    for start in range(0, len(words), PRODUCT_CHUNK_WORDS):
        some, by = words[start : start + PRODUCT_CHUNK_WORDS], factors[start : start + PRODUCT_CHUNK_WORDS]
        for part, shift in ((by & _LOW_30, 0), (by >> _30, 30)):
            product = part * some
            total += (int((product & _LOW_32).sum()) + (int((product >> _32).sum()) << 32)) << shift
    return total % TAG_PRIME


def add_tags(tags: Iterable[bytes]) -> bytes:
    """Return the sum of tags."""
    return (sum(int.from_bytes(tag, "little") for tag in tags) % TAG_PRIME).to_bytes(SUM_TAG_BYTES, "little")


class SumCheck:
    """The secret factors and pads for the sums of one question; `question` must belong to no other question."""

    def __init__(self, secret: bytes, question: bytes, words: int) -> None:
        self._secret = secret
        self._question = question
        self._words = words

    def make_tag(self, words: Words, party: PartyId) -> bytes:
        """Return the tag of one site's answer."""
        tag = (multiply_words(self._factors, words) + self._pad(party)) % TAG_PRIME
        return tag.to_bytes(SUM_TAG_BYTES, "little")

    def accepts(self, added: Words, tag: bytes, parties: Sequence[PartyId]) -> bool:
        """Return whether the words are the sum of what exactly these sites tagged; words may have up to 63 bits."""
        if len(tag) != SUM_TAG_BYTES or len(added) != self._words:
            return False
        product = multiply_words(self._factors, added & _LOW_32)
        product += multiply_words(self._factors, added >> _32) << 32
        expected = (product + sum(map(self._pad, parties))) % TAG_PRIME
        return expected.to_bytes(SUM_TAG_BYTES, "little") == tag

    @cached_property
    def _factors(self) -> Words:
        key = keys.derive_key(self._secret, "factors of a sum", self._question)
        stream = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(8 * self._words))
        factors: Any = np.frombuffer(stream, "<u8") & np.uint64(TAG_PRIME)
        return np.asarray(factors, np.uint64)

    def _pad(self, party: PartyId) -> int:
        return int.from_bytes(keys.derive_key(self._secret, "pad of a tag", self._question, party), "little")
