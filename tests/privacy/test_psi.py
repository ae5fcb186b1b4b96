"""Ids under keys that commute."""

import hashlib

import numpy as np
import pytest

from fedclust.core.errors import KeysRefused
from fedclust.privacy import psi
from fedclust.privacy.psi import PsiKeys

IDS = [b"ann", b"bob", b"cyd"]
# The curve's own numbers, and arithmetic on it as a school book has it.
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B


def plus(p, q):
    if p is None or q is None:
        return q if p is None else p
    (x1, y1), (x2, y2) = p, q
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    slope = (3 * x1 * x1 - 3) * pow(2 * y1, -1, P) if p == q else (y2 - y1) * pow(x2 - x1, -1, P)
    x = (slope * slope - x1 - x2) % P
    return x, (slope * (x1 - x) - y1) % P


def times(k, p):
    out = None
    while k:
        out, p, k = (plus(out, p) if k & 1 else out), plus(p, p), k >> 1
    return out


def by_hand(name, factor):
    """The first digest that is an x coordinate, with one of its two y, times the factor."""
    for attempt in range(100):
        x = int.from_bytes(hashlib.sha256(b"fedclust id" + attempt.to_bytes(4, "big") + name).digest(), "big")
        square = (x**3 - 3 * x + B) % P
        y = pow(square, (P + 1) // 4, P)
        if x < P and y * y % P == square:
            return times(factor, (x, y))[0].to_bytes(32, "big")
    raise AssertionError


def test_a_point_is_what_the_curve_says():
    assert [one.tobytes() for one in psi.hash_ids(IDS, 12345)] == [by_hand(name, 12345) for name in IDS]


def test_keys_commute_and_both_factors_at_once_are_one_after_the_other():
    a, b = PsiKeys.new(), PsiKeys.new()
    one = psi.multiply_points(psi.multiply_points(psi.hash_ids(IDS, a.outward), b.combined_factor), a.inward)
    other = psi.multiply_points(psi.multiply_points(psi.hash_ids(IDS, b.outward), a.combined_factor), b.inward)
    assert np.array_equal(psi.tags(one), psi.tags(other))
    assert len({tag.tobytes() for tag in psi.tags(one)}) == 3


def test_who_handles_a_list_last_cannot_find_its_own_ids_in_it():
    a, b = PsiKeys.new(), PsiKeys.new()
    seen = psi.multiply_points(psi.hash_ids(IDS, a.outward), b.combined_factor)  # what b made of the list of a
    own = psi.multiply_points(psi.multiply_points(psi.hash_ids(IDS, b.outward), a.combined_factor), b.inward)
    assert not {x.tobytes() for x in seen} & {x.tobytes() for x in own}


def test_what_is_no_point_is_refused():
    x = next(x for x in range(100) if pow((x**3 - 3 * x + B) % P, (P - 1) // 2, P) == P - 1)
    off = np.frombuffer(x.to_bytes(32, "big"), np.uint8)[None]
    with pytest.raises(KeysRefused):
        psi.multiply_points(off, 7)
    with pytest.raises(KeysRefused):
        psi.multiply_points(np.full((1, 32), 255, np.uint8), 7)


def test_keys_survive_packing():
    keys = PsiKeys.new()
    assert PsiKeys.from_array(keys.to_array()) == keys
    assert keys != PsiKeys.new()


def test_lengths_tell_an_eighth_at_most():
    for count in (1, 63, 64, 65, 1000, 1025, 99_999):
        assert count <= psi.padded_length(count) <= max(64, count * 9 / 8 + 64)
    assert psi.padded_length(96_300) == psi.padded_length(98_000)


def test_an_order_has_everyone_once_and_is_never_the_same():
    first, second = psi.draw_order(500), psi.draw_order(500)
    assert sorted(first.tolist()) == list(range(500))
    assert not np.array_equal(first, second)
