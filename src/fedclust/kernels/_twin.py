"""What the compiled sweeps compute, operation by operation, in NumPy: the same bits, with or without a compiler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedclust.core.types import Array, Floats, Limbs, Units

HARD = 0
EXP, LOG, EXP2, LOG2, POWER = range(5)
PENDING_ROWS = 2048  # rows whose integers, at most 2^51 each, fit 64 bits together
PENDING_FEATURES = 1024
TILE_DOUBLES = 1 << 18

ONE_BITS = np.uint64(0x3FF0000000000000)
ROOT_HALF_BITS = np.uint64(0x3FE6A09E667F3BCD)
INTEGER_BITS = np.uint64(0x4330000000000000)  # 2^52
MANTISSA_BITS = np.uint64(52)
ROUNDER = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest integer in the last bits
LOG2_E = float.fromhex("0x1.71547652b82fep+0")
LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
LOG_EVEN = [
    float.fromhex(h)
    for h in ("0x1.5555555555558p-1", "0x1.2492492df148dp-2", "0x1.7462b4ab2ef6bp-3", "0x1.2b584aae78a57p-3")
]
LOG_ODD = [float.fromhex(h) for h in ("0x1.99999999952e2p-2", "0x1.c71c62e5800a1p-3", "0x1.39fe606542ddep-3")]
EXP2_EVEN = [
    float.fromhex(h)
    for h in (
        "0x1.62e42fefa39efp-1",
        "0x1.c6b08d704a0c2p-5",
        "0x1.5d87fe78a5276p-10",
        "0x1.ffcbfc670dcd4p-17",
        "0x1.b524fae627834p-24",
        "0x1.e9d3fe3952179p-32",
    )
]
EXP2_ODD = [
    float.fromhex(h)
    for h in (
        "0x1.ebfbdff82c598p-3",
        "0x1.3b2ab6fba1ddap-7",
        "0x1.430913096fd9fp-13",
        "0x1.62bfd47773353p-20",
        "0x1.e6063f7217bc6p-28",
    )
]

quiet = np.errstate(all="ignore")  # 0/0 of rows on centres is computed and not taken; integers wrap on purpose


@quiet
def sweep(  # noqa: PLR0917  (positions are the C function's)
    rule: int,
    blocks: Sequence[Array],
    centers: Floats,
    m: float,
    mass: Limbs,
    pull: Limbs,
    objective: Limbs,
    mass_unit: Units,
    pull_unit: Units,
    objective_unit: int,
) -> None:
    objective_M = magic(np.full(1, objective_unit, np.int32))
    for block in blocks:
        for x in _tiles(block, len(centers)):
            w, per_row = _weights_and_objective(rule, x, centers, m)
            ring_add(mass, _integers(w, magic(mass_unit)))
            _pull(x, w, pull, pull_unit)
            ring_add(objective[None], _integers(per_row[None], objective_M))


@quiet
def plain(  # noqa: PLR0917  (positions are the C function's)
    rule: int, blocks: Sequence[Array], centers: Floats, m: float, mass: Floats, pull: Floats, objective: Floats
) -> None:
    for block in blocks:
        for x in _tiles(block, len(centers)):
            w, per_row = _weights_and_objective(rule, x, centers, m)
            mass += w.sum(axis=1)
            for c in range(len(w)):
                pull[c] += (w[c] * x).sum(axis=1)
            objective += per_row.sum()


@quiet
def weighted(  # noqa: PLR0917  (positions are the C function's)
    block: Array, weights: Array, mass: Limbs, pull: Limbs, mass_unit: Units, pull_unit: Units
) -> None:
    for start in range(0, block.shape[1], PENDING_ROWS):
        rows = slice(start, start + PENDING_ROWS)
        x, w = block[:, rows].astype(np.float64), weights[:, rows].astype(np.float64)
        ring_add(mass, _integers(w, magic(mass_unit)))
        _pull(x, w, pull, pull_unit)


@quiet
def squared(block: Array, centers: Floats, out: Floats) -> None:
    out[:] = _squared(block.astype(np.float64), centers)


@quiet
def nearest(block: Array, centers: Floats | None, labels: Units, least: Floats) -> None:
    d2 = _distances(block, centers)
    labels[:] = d2.argmin(axis=0)
    least[:] = d2.min(axis=0)


@quiet
def memberships(block: Array, centers: Floats | None, m: float, out: Floats) -> None:
    u, _ = _ratios(_distances(block, centers), m)
    out[:] = u / _sum_in_order(u)


@quiet
def weights(block: Array, centers: Floats | None, m: float, out: Floats) -> None:
    out[:] = _fuzzy_weights(_distances(block, centers), m)


@quiet
def exact(block: Array, centers: Floats, unit: int, out: Limbs) -> None:
    x = block.astype(np.float64)
    coarse, fine = magic(np.full(1, unit + 51, np.int32)), magic(np.full(1, unit, np.int32))
    out[:] = 0
    for c, v in enumerate(centers):
        for start in range(0, len(v), PENDING_FEATURES):
            features = slice(start, start + PENDING_FEATURES)
            t = x[features] - v[features, None]
            t = t * t
            high = (t + coarse) - coarse
            big = _integers(t.T, coarse)
            ring_add(out[c], _integers((t - high).T, fine))
            low = big << np.uint64(51)
            out[c, :, 0] += low
            out[c, :, 1] += (big >> np.uint64(13)) + (out[c, :, 0] < low)


@quiet
def totals(values: Array, unit: Units, out: Limbs) -> None:
    M = magic(unit)
    for start in range(0, values.shape[1], PENDING_ROWS):
        ring_add(out, _integers(values[:, start : start + PENDING_ROWS].astype(np.float64), M))


@quiet
def elementary(which: int, x: Floats, p: float, out: Floats) -> None:
    functions = {EXP: _exp, LOG: _log, EXP2: _exp2, LOG2: _log2}
    out[:] = _power(x, p) if which == POWER else functions[which](x)


@quiet
def ring_add(limbs: Limbs, n: Limbs) -> None:
    """Add signed 64-bit integers to 128-bit ones."""
    limbs[..., 0] += n
    limbs[..., 1] += (limbs[..., 0] < n) - (n >> np.uint64(63))


def magic(unit: Units) -> Floats:
    """1.5 * 2^(52 + unit): after adding it, the bits of a term are those of this number plus the term's integer."""
    return (((unit.astype(np.int64) + 1075) << 52) | (1 << 51)).view(np.float64)


def _integers(terms: Floats, M: Floats) -> Limbs:
    """The sum along the last axis of each term's integer, in two's complement; one M a row."""
    sums: Limbs = (terms + M[..., None]).view(np.uint64).sum(axis=-1, dtype=np.uint64)
    return sums - M.view(np.uint64) * np.uint64(terms.shape[-1])


def _tiles(block: Array, centers: int) -> Iterator[Floats]:
    rows = min(max(TILE_DOUBLES // (len(block) + 3 * centers + 1), 64), PENDING_ROWS)
    for start in range(0, block.shape[1], rows):
        yield block[:, start : start + rows].astype(np.float64)


def _pull(x: Floats, w: Floats, pull: Limbs, pull_unit: Units) -> None:
    for c in range(len(w)):
        ring_add(pull[c], _integers(w[c] * x, magic(pull_unit[c])))


def _weights_and_objective(rule: int, x: Floats, centers: Floats, m: float) -> tuple[Floats, Floats]:
    """Each row's weight for each centre, and its part of the objective."""
    d2 = _squared(x, centers)
    if rule == HARD:
        label = d2.argmin(axis=0)
        return (label == np.arange(len(centers))[:, None]).astype(np.float64), d2.min(axis=0)
    um = _fuzzy_weights(d2, m)
    return um, _sum_in_order(um * d2)


def _squared(x: Floats, centers: Floats) -> Floats:
    d2 = np.zeros((len(centers), x.shape[1]))
    for f in range(len(x)):
        t = x[f] - centers[:, f, None]
        d2 += t * t
    return d2


def _distances(block: Array, centers: Floats | None) -> Floats:
    x = block.astype(np.float64)
    return x if centers is None else _squared(x, centers)


def _sum_in_order(terms: Floats) -> Floats:
    """The sum over the first axis, one after the other."""
    total = np.zeros(terms.shape[1])
    for term in terms:
        total += term
    return total


def _ratios(d2: Floats, m: float) -> tuple[Floats, Floats]:
    """r^(1/(m-1)) and r = dmin / d2."""
    least = d2.min(axis=0)
    ratio = np.where(d2 == least, 1.0, least / d2)
    return (ratio if m == 2.0 else _power(ratio, 1.0 / (m - 1.0))), ratio


def _fuzzy_weights(d2: Floats, m: float) -> Floats:
    u, ratio = _ratios(d2, m)
    S = _sum_in_order(u)
    s = 1.0 / (S * S) if m == 2.0 else _power(S, -m)
    um: Floats = (u * ratio) * s
    return um


def _split(x: Floats) -> tuple[Floats, Floats]:
    """Exponent and mantissa, x = 2^k z, z in [sqrt(1/2), sqrt(2)); subnormal x is lifted first."""
    tiny = x < 2.0**-1022
    b = np.where(tiny, x * 2.0**54, x).view(np.uint64)
    e = (b + (ONE_BITS - ROOT_HALF_BITS)) >> MANTISSA_BITS
    z = (b - (e << MANTISSA_BITS) + ONE_BITS).view(np.float64)
    k = (e + INTEGER_BITS).view(np.float64) - (2.0**52 + 1023.0)
    return k - np.where(tiny, 54.0, 0.0), z


def _horner(y: Floats, coefficients: Sequence[float]) -> Floats:
    value = np.full_like(y, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = c + y * value
    return value


def _log_near_one(z: Floats) -> Floats:
    s = (z - 1.0) / (z + 1.0)
    y = s * s
    y2 = y * y
    return (s + s) + s * (y * (_horner(y2, LOG_EVEN) + y * _horner(y2, LOG_ODD)))


def _exp2_parts(shifted: Floats, g: Floats) -> Floats:
    y = g * g
    power = 1.0 + g * (_horner(y, EXP2_EVEN) + g * _horner(y, EXP2_ODD))
    return (power.view(np.uint64) + (shifted.view(np.uint64) << MANTISSA_BITS)).view(np.float64)


def _clamp_power(power: Floats, exponent: Floats) -> Floats:
    return np.where(exponent < -1021.0, 0.0, np.where(exponent < 1024.0, power, np.inf))


def _power(x: Floats, p: float) -> Floats:
    high = float((np.full(1, p, np.float64).view(np.uint64) & ~np.uint64(0x7FFFFFF)).view(np.float64)[0])
    k, z = _split(x)
    whole = high * k
    rest = (p - high) * k + p * (_log_near_one(z) * LOG2_E)
    y = whole + rest
    shifted = y + ROUNDER
    g = (whole - (shifted - ROUNDER)) + rest
    at_zero = 0.0 if p > 0 else np.inf if p < 0 else 1.0
    return np.where(x == 0.0, at_zero, _clamp_power(_exp2_parts(shifted, g), y))


def _exp2(x: Floats) -> Floats:
    shifted = x + ROUNDER
    return _clamp_power(_exp2_parts(shifted, x - (shifted - ROUNDER)), x)


def _exp(x: Floats) -> Floats:
    y = x * LOG2_E
    shifted = y + ROUNDER
    n = shifted - ROUNDER
    g = ((x - n * LN2_HIGH) - n * LN2_LOW) * LOG2_E
    return _clamp_power(_exp2_parts(shifted, g), y)


def _log2(x: Floats) -> Floats:
    k, z = _split(x)
    return np.where(x == 0.0, -np.inf, k + _log_near_one(z) * LOG2_E)


def _log(x: Floats) -> Floats:
    k, z = _split(x)
    return np.where(x == 0.0, -np.inf, k * LN2_HIGH + (k * LN2_LOW + _log_near_one(z)))
