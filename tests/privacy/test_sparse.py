"""Sparse sums over a finite field, piece by piece and whole."""

import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclust.core.errors import RunFailed
from fedclust.privacy import sparse_sums
from fedclust.privacy.sparse_sums import FIELD_PRIME

primes = st.sampled_from([101, 65537, FIELD_PRIME])
labels = st.sets(st.integers(1, 100), min_size=1, max_size=12)
far = st.sets(st.integers(1, FIELD_PRIME - 1), min_size=1, max_size=40)


def histogram(bins):
    return st.dictionaries(bins, st.integers(1, 10**6), max_size=8)


def test_power_sums_by_hand():
    # 3 at label 2, 1 at label 5: 3+1, 6+5, 12+25 modulo 7.
    assert sparse_sums.power_sums([2, 5], [3, 1], 3, p=7) == [4, 4, 2]


@given(labels, primes)
def test_the_shortest_recurrence_has_the_labels_for_roots(found, p):
    zs = sorted(found)
    locator = sparse_sums.berlekamp_massey(sparse_sums.power_sums(zs, [1] * len(zs), 2 * len(zs), p), p)
    assert locator == sparse_sums.product([[-z % p, 1] for z in zs], p)


@given(labels, st.integers(0, 20), primes)
def test_more_sums_than_needed_find_the_same_recurrence(found, more, p):
    zs = sorted(found)
    sums = sparse_sums.power_sums(zs, [2] * len(zs), 2 * (len(zs) + more), p)
    assert len(sparse_sums.berlekamp_massey(sums, p)) == len(zs) + 1


@settings(deadline=None)
@given(far)
def test_all_roots_are_found(found):
    assert set(sparse_sums.roots(sparse_sums.product([[-z % FIELD_PRIME, 1] for z in sorted(found)]))) == found


@pytest.mark.parametrize("p", [5, 7, 101, 65537])  # both kinds of prime: 1 and 3 modulo 4
def test_all_roots_are_found_in_small_fields(p):
    zs = list(range(1, min(p, 60), 2))
    assert sorted(sparse_sums.roots(sparse_sums.product([[-z % p, 1] for z in zs], p), p)) == zs


def test_a_polynomial_without_roots_enough_is_refused():
    with pytest.raises(RunFailed, match="do not match"):
        sparse_sums.roots([1, 0, 1], p=7)  # x^2 + 1 has no root modulo 7
    with pytest.raises(RunFailed, match="do not match"):
        sparse_sums.roots([4, -4, 1], p=101)  # (x - 2)^2 has one


@given(labels, st.data(), primes)
def test_weights_solve_the_vandermonde_system(found, data, p):
    zs = sorted(found)
    weights = [[data.draw(st.integers(0, p - 1)) for _ in zs] for _ in range(2)]
    sums = [sparse_sums.power_sums(zs, own, len(zs), p) for own in weights]
    assert sparse_sums.vandermonde(zs, sums, p) == weights


coefficients = st.lists(st.integers(0, FIELD_PRIME - 1), min_size=1, max_size=80)


@given(coefficients, coefficients)
def test_long_products_are_those_of_the_schoolbook(a, b):
    plain = [0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            plain[i + j] = (plain[i + j] + x * y) % FIELD_PRIME
    assert sparse_sums.multiply_polynomials(a, b, FIELD_PRIME) == plain


@given(coefficients, coefficients)
def test_quotient_times_divisor_plus_remainder_is_the_dividend(a, b):
    b = [*b, 1]
    quotient, rest = sparse_sums.divide_polynomials([*a, 1], b, FIELD_PRIME)
    back = sparse_sums.multiply_polynomials(quotient, b, FIELD_PRIME) if quotient else []
    size = max(len(back), len(rest), len(a) + 1)
    padded = [c + [0] * (size - len(c)) for c in (back, rest, [*a, 1])]
    assert [(x + y) % FIELD_PRIME for x, y, _ in zip(*padded, strict=True)] == padded[2]
    assert len(rest) < len(b)


@settings(deadline=None)
@given(st.lists(histogram(st.integers(1, FIELD_PRIME - 1)), min_size=1, max_size=4))
def test_sums_of_parties_give_the_sum_of_their_histograms(parties):
    most = 8 * len(parties)
    sums = [sparse_sums.power_sums(list(own), list(own.values()), 2 * most) for own in parties]
    hidden = [sparse_sums.add_random_multiples(s, secrets.token_bytes(5 * len(s))) for s in sums]
    plain = {z: sum(own.get(z, 0) for own in parties) for z in set().union(*parties)}
    total = [sum(parts) % FIELD_PRIME for parts in zip(*hidden, strict=True)]
    assert dict(zip(*sparse_sums.recover_labels(total), strict=True)) == plain


def test_more_labels_than_were_agreed_do_not_pass_for_few():
    sums = sparse_sums.power_sums(range(1, 8), [1] * 7, 6)
    with pytest.raises(RunFailed):
        sparse_sums.recover_labels(sums)


def test_a_random_multiple_hides_the_number_and_vanishes_by_reduction():
    stream = secrets.token_bytes(10)
    first, second = sparse_sums.add_random_multiples([5, 5], stream)
    assert first != second
    assert first % FIELD_PRIME == second % FIELD_PRIME == 5
    assert max(first, second) < FIELD_PRIME << sparse_sums.MULTIPLE_BITS
    assert (FIELD_PRIME << sparse_sums.MULTIPLE_BITS) * (1 << 26) < 1 << 127  # so many parties add up without a wrap
