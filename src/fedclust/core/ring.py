"""Sums that do not depend on the order of addition: integers modulo 2^128, each in units of a power of two.

Example
-------
>>> a, b = Exact.from_floats(0.1, unit=-60), Exact.from_floats(0.2, unit=-60)
>>> (a + b) == (b + a), float((a + b).to_floats())
(True, 0.30000000000000004)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fedclust.core.errors import OutOfBounds, WireError
from fedclust.core.types import Floats, Limbs, Units

LOW_HALF_MASK = np.uint64(0xFFFFFFFF)
HALF_LIMB_BITS = np.uint64(32)
MODULUS = 1 << 128
UNIT_ONE = np.zeros((), np.int32)  # the unit 2^0


@dataclass(frozen=True, eq=False)
class Exact:
    """An array of numbers, each an integer of the ring times 2**unit.

    `limbs` has a trailing axis (low, high) in two's complement; `unit` broadcasts to the shape of the numbers. Units
    are public: they follow from the question, not from the rows.
    """

    limbs: Limbs
    unit: Units

    @property
    def shape(self) -> tuple[int, ...]:
        return self.limbs.shape[:-1]

    @property
    def form(self) -> tuple[tuple[int, ...], bytes]:
        return self.limbs.shape, self.unit.tobytes()

    @classmethod
    def from_floats(cls, values: object, *, unit: int | Units) -> Exact:
        """Round numbers once, half to even, to multiples of 2**unit."""
        floats = np.asarray(values, np.float64)
        units = np.asarray(unit, np.int32)
        numbers = [
            _round_to_unit(v, int(u))
            for v, u in zip(floats.flat, np.broadcast_to(units, floats.shape).flat, strict=True)
        ]
        return cls(limbs_from_integers(numbers, floats.shape), units)

    @classmethod
    def from_counts(cls, values: object) -> Exact:
        """Represent whole numbers below 2^63 exactly."""
        low = np.asarray(values, np.int64)
        limbs = np.stack([low.view(np.uint64), (low >> 63).view(np.uint64)], axis=-1)
        return cls(limbs, UNIT_ONE)

    def __add__(self, other: Exact) -> Exact:
        return total([self, other])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Exact)
            and self.limbs.shape == other.limbs.shape
            and bool((self.limbs == other.limbs).all())
            and bool((self.unit == other.unit).all())
        )

    __hash__ = None  # type: ignore[assignment]

    def to_integers(self) -> list[int]:
        """Return the ring's integers as signed Python integers, in C order."""
        flat = self.limbs.reshape(-1, 2)
        unsigned = [int(low) | (int(high) << 64) for low, high in flat]
        return [n - MODULUS if n >> 127 else n for n in unsigned]

    def argmin_first_axis(self) -> Units:
        """Return the index of the smallest number along the first axis, the first of equals; all have one unit, none is
        negative.

        >>> Exact.from_counts([[3, 1], [2, 1]]).argmin_first_axis().tolist()
        [1, 0]
        """
        low, high = self.limbs[..., 0], self.limbs[..., 1]
        top = high == high.min(axis=0)
        least = np.where(top, low, np.iinfo(np.uint64).max).min(axis=0)
        return np.asarray(np.argmax(top & (low == least), axis=0), np.int32)

    def to_floats(self) -> Floats:
        """Return the numbers as float64, rounded once, half to even."""
        low, high = self.limbs[..., 0], self.limbs[..., 1]
        short = low.view(np.int64)
        if (high.view(np.int64) == short >> 63).all():  # 64 bits hold all of them: one conversion, which rounds once
            return np.asarray(np.ldexp(short.astype(np.float64), self.unit), np.float64)
        negative = (high >> np.uint64(63)).astype(bool)
        with np.errstate(over="ignore"):  # subtracting 2^64 k wraps around to zero, as intended
            low = np.where(negative, ~low + np.uint64(1), low)
            high = np.where(negative, ~high + (low == 0), high)
        length = _bit_length(high)
        up = np.minimum(np.uint64(64) - length, np.uint64(63))
        # Take the 64 leading bits and set the last one if any bit below is set: rounding these to 53 bits rounds once.
        spilled = low & ~(~np.uint64(0) << np.minimum(length, np.uint64(63)))
        spilled = np.where(length == 64, low, spilled)
        leading = np.where(length == 64, high, (high << up) | (low >> np.minimum(length, np.uint64(63))))
        leading = np.where(length == 0, low, leading | (spilled != 0))
        magnitude = np.ldexp(leading.astype(np.float64), length.astype(np.int32) + self.unit)
        return np.asarray(np.where(negative, -magnitude, magnitude), np.float64)


def total(terms: Sequence[Exact]) -> Exact:
    """Return the sum of many, in one pass over each half of the low limb."""
    first = terms[0]
    if len(terms) == 1:
        return first
    for term in terms[1:]:
        same = term.unit is first.unit or np.array_equal(term.unit, first.unit)
        if not same or term.limbs.shape != first.limbs.shape:
            raise WireError(
                "the answers of the parties differ in shape or unit; all parties must run the same version of fedclust"
            )
    limbs = np.stack([term.limbs for term in terms])
    low, high = limbs[..., 0], limbs[..., 1]
    bottom = (low & LOW_HALF_MASK).sum(axis=0)
    middle = (low >> HALF_LIMB_BITS).sum(axis=0) + (bottom >> HALF_LIMB_BITS)
    out = np.empty_like(first.limbs)
    out[..., 0] = (bottom & LOW_HALF_MASK) | (middle << HALF_LIMB_BITS)
    with np.errstate(over="ignore"):  # modulo 2^128, also for single numbers
        out[..., 1] = high.sum(axis=0) + (middle >> HALF_LIMB_BITS)
    return Exact(out, first.unit)


def limbs_from_integers(numbers: Sequence[int], shape: tuple[int, ...]) -> Limbs:
    """Return signed Python integers below 2^127 in magnitude as limbs."""
    if any(not -(1 << 127) <= n < 1 << 127 for n in numbers):
        raise OutOfBounds("a sum exceeds 127 bits; scale the columns or declare smaller bounds")
    data = b"".join(n.to_bytes(16, "little", signed=True) for n in numbers)
    return np.frombuffer(data, "<u8").astype(np.uint64).reshape(*shape, 2)


def power_above(bound: float) -> int:
    """Return the smallest b with bound <= 2**b."""
    mantissa, exponent = np.frexp(bound)
    return int(exponent) - (1 if mantissa == 0.5 else 0)


def _round_to_unit(value: float, unit: int) -> int:
    return round(Fraction(float(value)) * Fraction(2) ** -unit)


def _bit_length(high: Limbs) -> Limbs:
    upper = high >> HALF_LIMB_BITS
    half = np.where(upper != 0, upper, high)
    return (np.frexp(half.astype(np.float64))[1] + np.where(upper != 0, 32, 0)).astype(np.uint64)
