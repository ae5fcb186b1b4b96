"""A few labelled counts from sums that do not say whose they were: the arithmetic of sparse secure aggregation.

Parties hold counts q_j at labels z_j of a field of p elements, few labels out of very many. Each sends its power sums

    S_i = sum_j q_j z_j^i mod p        i = 0 .. 2t - 1

which add up over parties. From the total of at most t different labels, Berlekamp-Massey finds the polynomial whose
roots are the labels, Cantor-Zassenhaus its roots, and a Vandermonde system the counts. Nothing else of an addend
survives the addition, if `add_random_multiples` hid it: it adds a random multiple of p, which reduction removes.

Polynomials are lists of coefficients, the constant first. Long products go through one product of big integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

from fedclust.core.errors import RunFailed

FIELD_PRIME = (1 << 61) - 1  # above any number of rows; the sums of 2^26 parties add up below 2^127
MULTIPLE_BITS = 40  # bits of the random multiple of p: what is left to tell apart has probability 2^-40 for each party
SHORT_POLYNOMIAL_TERMS = 8  # below, coefficient by coefficient is as quick

Poly = list[int]


def power_sums(labels: Sequence[int], weights: Sequence[int], terms: int, p: int = FIELD_PRIME) -> list[int]:
    """S_i = sum_j w_j z_j^i mod p.

    >>> power_sums([2, 5], [3, 1], 4)
    [4, 11, 37, 149]
    """
    powers, out = [w % p for w in weights], []
    for _ in range(terms):
        out.append(sum(powers) % p)
        powers = [w * z % p for w, z in zip(powers, labels, strict=True)]
    return out


def add_random_multiples(sums: Sequence[int], stream: bytes, p: int = FIELD_PRIME) -> list[int]:
    """Residues plus random multiples of p, so that a sum of them reveals no more than its residue.

    Without, the number of times the sum exceeds p would reveal something of who held what. `stream` has `MULTIPLE_BITS`
    bits, as whole bytes, for each number; they must be secret and used for these numbers only.
    """
    size = MULTIPLE_BITS // 8
    parts = (stream[at : at + size] for at in range(0, size * len(sums), size))
    return [s + int.from_bytes(part, "little") * p for s, part in zip(sums, parts, strict=True)]


def recover_labels(sums: Sequence[int], p: int = FIELD_PRIME) -> tuple[list[int], list[int]]:
    """The labels, ascending, and their weights, from an even number of power sums, twice the labels or more.

    >>> recover_labels([4, 11, 37, 149])
    ([2, 5], [3, 1])
    """
    locator = berlekamp_massey(sums, p)
    labels = sorted(roots(locator, p))
    if 2 * len(labels) > len(sums):
        raise RunFailed(
            "the sums encode more labels than agreed; one site answered a different question from the others"
        )
    return labels, vandermonde(labels, [sums], p)[0]


def berlekamp_massey(sums: Sequence[int], p: int = FIELD_PRIME) -> Poly:
    """The shortest recurrence of a sequence, as the monic polynomial whose roots are its labels.

    1, 2, 4, 8 doubles: x - 2.

    >>> berlekamp_massey([1, 2, 4, 8], p=101)
    [99, 1]
    """
    current, before = [1], [1]
    length, gap, last = 0, 1, 1
    for at, s in enumerate(sums):
        reversed_tail = sums[at - length : at][::-1]
        off = (s + sum(map(mul, current[1 : length + 1], reversed_tail))) % p
        if off == 0:
            gap += 1
            continue
        factor = off * pow(last, -1, p) % p
        longer = current + [0] * max(0, len(before) + gap - len(current))
        for k, c in enumerate(before, gap):
            longer[k] = (longer[k] - factor * c) % p
        if 2 * length <= at:
            length, before, last, gap = at + 1 - length, current, off, 1
        else:
            gap += 1
        current = longer
    current = current[: length + 1] + [0] * (length + 1 - len(current))
    return current[::-1]


def vandermonde(labels: Sequence[int], sums: Sequence[Sequence[int]], p: int = FIELD_PRIME) -> list[list[int]]:
    """The weights of known labels from their power sums, for each of several sequences.

    w_j = sum_i S_i e_ji / f'(z_j), where e_j are the coefficients of f / (x - z_j) and f = prod (x - z_j).
    """
    f = product([[-z % p, 1] for z in labels], p)
    found: list[list[int]] = [[] for _ in sums]
    for z in labels:
        rest = _divide_out_root(f, z, p)
        scale = pow(evaluate_polynomial(rest, z, p), -1, p)
        for weights, sequence in zip(found, sums, strict=True):
            weights.append(sum(map(mul, rest, sequence)) * scale % p)
    return found


def roots(f: Poly, p: int = FIELD_PRIME) -> list[int]:
    """All roots of a monic polynomial that has as many different ones as its degree (Cantor-Zassenhaus).

    >>> sorted(roots([6, -5, 1], p=101))
    [2, 3]
    """
    f = [c % p for c in f]
    if len(f) <= 2:
        return [-f[0] % p] if len(f) == 2 else []
    if _power_modulo([0, 1], p, f, p) != [0, 1]:
        raise RunFailed(
            "the sums of the sites do not match; one site answered a different question, or its answer was altered"
        )
    return _split_roots(f, 0, p)


def _split_roots(f: Poly, shift: int, p: int) -> list[int]:
    """Roots z fall apart by whether z + shift is a square, for one shift or the next."""
    if len(f) == 2:
        return [-f[0] % p]
    if len(f) == 3 and p % 4 == 3:
        return _quadratic(f, p)
    while True:
        half = _power_modulo([shift % p, 1], (p - 1) // 2, f, p)
        half = [(half[0] - 1) % p, *half[1:]] if half else [p - 1]
        part = gcd(f, _trim_zeros(half), p)
        shift += 1
        if 1 < len(part) < len(f):
            return _split_roots(part, shift, p) + _split_roots(divide_polynomials(f, part, p)[0], shift, p)


def _quadratic(f: Poly, p: int) -> list[int]:
    """Both roots of x^2 + b x + c, where a square root is a power."""
    half = f[1] * pow(2, -1, p) % p
    root = pow(half * half - f[0], (p + 1) // 4, p)
    return [(root - half) % p, (-root - half) % p]


def _power_modulo(base: Poly, exponent: int, f: Poly, p: int) -> Poly:
    """(c + x)^exponent modulo a monic f of degree above 1."""
    modulus = _Modulus(f, p)
    out = [1]
    for bit in f"{exponent:b}":
        out = modulus.remainder(multiply_polynomials(out, out, p))
        if bit == "1":
            out = _multiply_linear(out, base[0], f, p)
    return out


def _multiply_linear(a: Poly, c: int, f: Poly, p: int) -> Poly:
    """The product a (x + c) modulo a monic f, for an a below its degree."""
    out = [(low * c + high) % p for low, high in zip([*a, 0], [0, *a], strict=True)]
    if len(out) < len(f):
        return _trim_zeros(out)
    lead = out.pop()
    return _trim_zeros([(x - lead * y) % p for x, y in zip(out, f, strict=False)])


class _Modulus:
    """Remainders by one monic polynomial, by way of the inverse of its reversal."""

    def __init__(self, f: Poly, p: int) -> None:
        self.f, self.p, self.degree = f, p, len(f) - 1
        self.inverse = [1]
        reverse = f[::-1]
        while len(self.inverse) < self.degree:  # Newton: g (2 - f g), twice as long each time
            size = min(2 * len(self.inverse), self.degree)
            error = multiply_polynomials(reverse[:size], self.inverse, p)[:size]
            error = [(2 - error[0]) % p, *(-c % p for c in error[1:])]
            self.inverse = multiply_polynomials(self.inverse, error, p)[:size]

    def remainder(self, a: Poly) -> Poly:
        over = len(a) - self.degree
        if over <= 0:
            return _trim_zeros(a)
        quotient = multiply_polynomials(a[: -over - 1 : -1], self.inverse[:over], self.p)[:over][::-1]
        taken = multiply_polynomials(quotient, self.f, self.p)
        return _trim_zeros([(x - y) % self.p for x, y in zip(a[: self.degree], taken, strict=False)])


def multiply_polynomials(a: Poly, b: Poly, p: int) -> Poly:
    """The product of two polynomials with coefficients in 0 .. p - 1."""
    if not a or not b:
        return []
    if min(len(a), len(b)) < SHORT_POLYNOMIAL_TERMS:
        out = [0] * (len(a) + len(b) - 1)
        for i, x in enumerate(a):
            for k, y in enumerate(b, i):
                out[k] += x * y
        return [c % p for c in out]
    size = (2 * p.bit_length() + min(len(a), len(b)).bit_length() + 7) // 8  # a slot holds any sum of products
    whole = _pack_coefficients(a, size) * _pack_coefficients(b, size)
    data = whole.to_bytes(size * (len(a) + len(b)), "little")
    return [int.from_bytes(data[at : at + size], "little") % p for at in range(0, size * (len(a) + len(b) - 1), size)]


def _pack_coefficients(a: Poly, size: int) -> int:
    return int.from_bytes(b"".join([c.to_bytes(size, "little") for c in a]), "little")


def product(factors: Sequence[Poly], p: int = FIELD_PRIME) -> Poly:
    """The product of many polynomials, by halves."""
    if len(factors) <= 1:
        return list(factors[0]) if factors else [1]
    middle = len(factors) // 2
    return multiply_polynomials(product(factors[:middle], p), product(factors[middle:], p), p)


def divide_polynomials(a: Poly, b: Poly, p: int = FIELD_PRIME) -> tuple[Poly, Poly]:
    """Quotient and remainder."""
    rest, scale = list(a), pow(b[-1], -1, p)
    quotient = [0] * max(0, len(a) - len(b) + 1)
    for at in range(len(quotient) - 1, -1, -1):
        factor = quotient[at] = rest[at + len(b) - 1] * scale % p
        if factor:
            for k, c in enumerate(b, at):
                rest[k] = (rest[k] - factor * c) % p
    return quotient, _trim_zeros(rest[: len(b) - 1])


def gcd(a: Poly, b: Poly, p: int = FIELD_PRIME) -> Poly:
    """The greatest common divisor, monic."""
    while b:
        a, b = b, divide_polynomials(a, b, p)[1]
    scale = pow(a[-1], -1, p)
    return [c * scale % p for c in a]


def evaluate_polynomial(a: Poly, x: int, p: int = FIELD_PRIME) -> int:
    """The value a(x)."""
    out = 0
    for c in reversed(a):
        out = (out * x + c) % p
    return out


def _divide_out_root(f: Poly, z: int, p: int) -> Poly:
    """The quotient f / (x - z) for a root z."""
    out, carried = [], 0
    for c in reversed(f[1:]):
        carried = (carried * z + c) % p
        out.append(carried)
    return out[::-1]


def _trim_zeros(a: Poly) -> Poly:
    end = len(a)
    while end and a[end - 1] == 0:
        end -= 1
    return a[:end]
