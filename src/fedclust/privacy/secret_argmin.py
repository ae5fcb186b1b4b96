"""Three seats that compute on bits none of them knows: which of several sums of secret numbers is the smallest.

A bit x is x0 ^ x1 ^ x2; seat i holds x_i and x_i+1, so any one seat holds nothing and any two hold x. XOR is local. AND
takes each seat's z_i = x_i y_i ^ x_i y_i+1 ^ x_i+1 y_i and a fresh sharing of zero on top, which goes to the seat
before: one bit sent by each (Araki et al., "High-throughput semi-honest secure three-party computation with an honest
majority", 2016). Bits lie in planes: one array for each place in a number, 64 numbers to a word.

To compare, each seat enters its part of the difference of two sums as bits; a row of full adders makes two numbers of
three, and a tree folds pairs of places into (generated, passed on) until the carry into the sign is known.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedclust.core.errors import KeysRefused
from fedclust.core.types import Array, Ints, Limbs
from fedclust.privacy import keys, masks

COMPARED_BITS = (
    104  # bits of a difference: distances are below 2^103 (units.DIFFERENCE_BITS and a bit), and it has a sign
)
ROWS_PER_WORD = 64  # rows in a word
SEATS = 3
SEED_BYTES = 32
Share = Limbs  # (2, ...): the two components a seat holds


class Seat:
    """A seat, the seeds it has in common with the seat before and the seat after, and how often they have served."""

    def __init__(self, place: int, before: bytes, after: bytes, use_count: int = 0) -> None:
        self.place, self._before, self._after, self.use_count = place, before, after, use_count

    def words_shared_with(self, neighbour: int, shape: tuple[int, ...]) -> Limbs:
        """Random words that this seat and one neighbour know (-1: the seat before, 1: the seat after)."""
        return stream(self._before if neighbour < 0 else self._after, shape, "entered", self.use_count)

    def share_of_zero(self, shape: tuple[int, ...]) -> Limbs:
        """This seat's part of random words whose XOR over the seats is zero; fresh each time."""
        self.use_count += 1
        return self._zero_words(self._before, shape) ^ self._zero_words(self._after, shape)

    def _zero_words(self, seed: bytes, shape: tuple[int, ...]) -> Limbs:
        return stream(seed, shape, "zero", self.use_count)

    def multiply_shares(self, x: Share, y: Share) -> Limbs:
        """This seat's component of x & y, for itself and the seat before."""
        own: Limbs = (x[0] & y[0]) ^ (x[0] & y[1]) ^ (x[1] & y[0])
        return own ^ self.share_of_zero(x.shape[1:])

    def complement(self, x: Share) -> Share:
        """Not x: the first component of all is flipped by those who hold it."""
        out = x.copy()
        for held in range(2):
            if (self.place + held) % SEATS == 0:
                out[held] = ~out[held]
        return out


def stream(seed: bytes, shape: tuple[int, ...], *purpose: str | int) -> Limbs:
    """Words that follow from a seed and a purpose that has no other use."""
    count = int(np.prod(shape, dtype=np.int64))
    key = keys.derive_key(seed, *purpose)
    data = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(8 * count))
    return np.frombuffer(data, "<u8").astype(np.uint64, copy=False).reshape(shape)


def new_seed() -> bytes:
    return secrets.token_bytes(SEED_BYTES)


def planes(numbers: Limbs) -> Limbs:
    """Numbers (n, 2), n a multiple of 64, as planes (WIDTH, n / 64) of their lowest bits."""
    data = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), 16)[:, : COMPARED_BITS // 8]
    columns = np.ascontiguousarray(data.T)  # byte by byte: turning single bits over takes ten times as long
    out = np.empty((COMPARED_BITS, len(numbers) // 8), np.uint8)
    for place in range(COMPARED_BITS):
        out[place] = np.packbits(columns[place // 8] & (1 << place % 8), bitorder="little")
    return out.view(np.uint64)


def unpack_planes(words: Limbs, rows: int) -> Array:
    """The bits of planes (..., words), of so many rows."""
    found = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    return found[..., :rows]


def differences(sums: Limbs) -> Limbs:
    """Of parts of sums (C, n, 2), later minus earlier for each pair, (pairs, n padded to words, 2) in the ring."""
    padded = -(-sums.shape[1] // ROWS_PER_WORD) * ROWS_PER_WORD
    whole = np.zeros((len(sums), padded, 2), np.uint64)
    whole[:, : sums.shape[1]] = sums
    pairs = list(combinations(range(len(sums)), 2))
    later, earlier = whole[[q for _, q in pairs]], whole[[p for p, _ in pairs]]
    return masks.add_limbs(later, masks.negate_limbs(earlier))


def rounds(clusters: int) -> int:
    """Return how often the seats exchange messages after they have entered their numbers."""
    return 2 + (COMPARED_BITS - 2).bit_length() + max(0, (clusters - 2)).bit_length()


def start_comparison(seat: Seat, sums: Limbs) -> tuple[dict[str, Array], Limbs]:
    """Begin: this seat's part of the sums (clusters, rows, 2); what to remember, and what the seat after gets."""
    seat.use_count += 1
    own = planes(differences(sums).reshape(-1, 2))
    mask = seat.words_shared_with(-1, own.shape)
    return {"own": np.stack([mask, own ^ mask]), "size": np.array([len(sums)])}, own ^ mask


def advance_comparison(seat: Seat, state: Mapping[str, Array], received: Limbs) -> tuple[dict[str, Array], Limbs]:
    """One exchange: what was remembered and what was heard; what to remember, and what the seat before gets."""
    if "own" in state:
        return _add_parts(seat, state, received)
    if "third" in state:
        return _generate_carries(seat, state, received)
    found: Share = np.stack([state["z"], received.reshape(state["z"].shape)])
    if "winners" in state:
        return _halve_terms(seat, np.concatenate([found, state["rest"]], axis=2))
    if "high" in state:
        half = state["high"].shape[1]
        g: Share = np.concatenate([found[:, :half] ^ state["high"], state["rest_g"]], axis=1)
        p: Share = np.concatenate([found[:, half:], state["rest_p"]], axis=1)
    else:
        g, p = found, state["p"]
    if g.shape[1] > 1:
        return _fold_carries(seat, state, g, p)
    return _test_winners(seat, g[:, 0] ^ state["top"], int(state["size"][0]))


def open_winners(seat: Seat, state: Mapping[str, Array], received: Limbs) -> Limbs:
    """End: this seat's part of which cluster wins each row, (clusters, words); the XOR of all three says it."""
    won = np.stack([state["z"], received.reshape(state["z"].shape)])
    if "winners" in state:
        won = np.concatenate([won, state["rest"]], axis=2)
        if won.shape[2] > 1:
            raise KeysRefused(
                "the comparison of distances is not complete; its state would reveal more than the nearest cluster"
            )
        won = won[:, :, 0]
    else:
        state, _ = advance_comparison(seat, state, received)
        if "won" not in state:
            raise KeysRefused(
                "the comparison of distances is not complete; its state would reveal more than the nearest cluster"
            )
        won = state["won"]
    return np.asarray(won[0] ^ seat.share_of_zero(won.shape[1:]), np.uint64)


def _add_parts(seat: Seat, state: Mapping[str, Array], received: Limbs) -> tuple[dict[str, Array], Limbs]:
    """Three entered numbers become a sum without carries, and carries: s = x ^ y ^ z, c = (x ^ z)(y ^ z) ^ z."""
    own: Share = state["own"]
    nothing = np.zeros_like(own[0])
    shares = {
        seat.place: own,
        (seat.place - 1) % SEATS: np.stack([received.reshape(nothing.shape), nothing]),
        (seat.place + 1) % SEATS: np.stack([nothing, seat.words_shared_with(1, nothing.shape)]),
    }
    x, y, z = (shares[place] for place in range(SEATS))
    product = seat.multiply_shares(x ^ z, y ^ z)
    return {"s": x ^ y ^ z, "third": z, "z": product, "size": state["size"]}, product


def _generate_carries(seat: Seat, state: Mapping[str, Array], received: Limbs) -> tuple[dict[str, Array], Limbs]:
    """Where sum and carries, one place up, both have a bit, a carry is generated; where one has, it is passed on."""
    product: Share = np.stack([state["z"], received.reshape(state["z"].shape)])
    majority: Share = product ^ np.asarray(state["third"], np.uint64)
    c: Share = np.zeros_like(majority)
    c[:, 1:] = majority[:, :-1]
    whole: Share = state["s"]
    s, carries = whole[:, :-1], c[:, :-1]
    generated = seat.multiply_shares(s, carries)
    return {"top": whole[:, -1] ^ c[:, -1], "p": s ^ carries, "z": generated, "size": state["size"]}, generated


def _fold_carries(seat: Seat, state: Mapping[str, Array], g: Share, p: Share) -> tuple[dict[str, Array], Limbs]:
    """Two neighbouring places become one: generated above, or passed on above what was generated below."""
    half = g.shape[1] // 2
    low, high = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    above = np.concatenate([p[:, high], p[:, high]], axis=1)
    below = np.concatenate([g[:, low], p[:, low]], axis=1)
    product = seat.multiply_shares(above, below)
    kept = {"high": g[:, high], "rest_g": g[:, 2 * half :], "rest_p": p[:, 2 * half :], "z": product}
    return {**kept, "top": state["top"], "size": state["size"]}, product


def _test_winners(seat: Seat, less: Share, clusters: int) -> tuple[dict[str, Array], Limbs]:
    """A cluster wins where it is less than every earlier one and no later one is less than it."""
    pairs = list(combinations(range(clusters), 2))
    by_pair = less.reshape(2, len(pairs), -1)
    other = seat.complement(less).reshape(by_pair.shape)
    all_of = [
        np.stack([(by_pair if c == q else other)[:, at] for at, (p, q) in enumerate(pairs) if c in (p, q)], axis=1)
        for c in range(clusters)
    ]
    return _halve_terms(seat, np.stack(all_of, axis=1))


def _halve_terms(seat: Seat, terms: Share) -> tuple[dict[str, Array], Limbs]:
    """Terms (2, clusters, terms, words) of which all must hold: half as many."""
    count = terms.shape[2]
    if count == 1:
        return {"won": terms[:, :, 0]}, np.zeros(0, np.uint64)
    half = count // 2
    product = seat.multiply_shares(terms[:, :, :half], terms[:, :, half : 2 * half])
    return {"winners": np.ones(1, np.uint64), "rest": terms[:, :, 2 * half :], "z": product}, product


def winning_labels(parts: list[Limbs], rows: int) -> Ints | None:
    """The cluster that won each row, from all three parts; None where they do not fit together."""
    first, second, third = parts
    if not first.shape == second.shape == third.shape:
        return None
    won = unpack_planes(first ^ second ^ third, rows)
    return np.asarray(won.argmax(axis=0), np.int64) if (won.sum(axis=0) == 1).all() else None


@dataclass(frozen=True)
class SplitNumbers:
    """A number nobody shall see as two: words from a seed, and the rest."""

    seed: bytes
    rest: Limbs

    @classmethod
    def from_sums(cls, sums: Limbs) -> SplitNumbers:
        seed = new_seed()
        return cls(seed, masks.add_limbs(sums, masks.negate_limbs(stream(seed, sums.shape, "split"))))

    @staticmethod
    def expand_seed(seed: bytes, shape: tuple[int, ...]) -> Limbs:
        """The part that a seed stands for."""
        return stream(seed, shape, "split")
