/* exp, log and powers from +, -, *, / alone: the NumPy twin does the same operations in the same order. */

#define ONE_BITS 0x3ff0000000000000u
#define ROOT_HALF_BITS 0x3fe6a09e667f3bcdu /* sqrt(1/2) */
#define ROUNDER 6755399441055744.0         /* 1.5 * 2^52: adding it leaves the nearest integer in the last bits */
#define LOG2_E 0x1.71547652b82fep+0
#define LN2_HIGH 0x1.62e42fee00000p-1
#define LN2_LOW 0x1.a39ef35793c76p-33

/* x = 2^k z, z in [sqrt(1/2), sqrt(2)); subnormal x is lifted first. */
INLINE void split(reals x, reals *k, reals *z)
{
    words tiny = below(x, splat(0x1p-1022));
    words b = bits(pick(tiny, x * splat(0x1p54), x));
    words e = (b + splat_word(ONE_BITS - ROOT_HALF_BITS)) >> 52;
    *z = from_bits(b - (e << 52) + splat_word(ONE_BITS));
    *k = from_bits(e + splat_word(0x4330000000000000u)) - splat(0x1p52 + 1023.0);
    *k = *k - from_bits(bits(splat(54.0)) & tiny);
}

/* ln z = 2 s + s s2 q(s2), s = (z - 1) / (z + 1). */
INLINE reals log_near_one(reals z)
{
    reals s = (z - splat(1.0)) / (z + splat(1.0));
    reals y = s * s, y2 = y * y;
    reals even = splat(0x1.5555555555558p-1)
        + y2 * (splat(0x1.2492492df148dp-2) + y2 * (splat(0x1.7462b4ab2ef6bp-3) + y2 * splat(0x1.2b584aae78a57p-3)));
    reals odd = splat(0x1.99999999952e2p-2) + y2 * (splat(0x1.c71c62e5800a1p-3) + y2 * splat(0x1.39fe606542ddep-3));
    return (s + s) + s * (y * (even + y * odd));
}

/* 2^(n + g), |g| <= 1/2, where shifted = n + ROUNDER. */
INLINE reals exp2_parts(reals shifted, reals g)
{
    reals y = g * g;
    reals even = splat(0x1.62e42fefa39efp-1)
        + y * (splat(0x1.c6b08d704a0c2p-5) + y * (splat(0x1.5d87fe78a5276p-10)
        + y * (splat(0x1.ffcbfc670dcd4p-17) + y * (splat(0x1.b524fae627834p-24) + y * splat(0x1.e9d3fe3952179p-32)))));
    reals odd = splat(0x1.ebfbdff82c598p-3)
        + y * (splat(0x1.3b2ab6fba1ddap-7) + y * (splat(0x1.430913096fd9fp-13)
        + y * (splat(0x1.62bfd47773353p-20) + y * splat(0x1.e6063f7217bc6p-28))));
    return from_bits(bits(splat(1.0) + g * (even + g * odd)) + (bits(shifted) << 52));
}

/* Below 2^-1021 a power of two is 0 by definition; from 2^1024 on it is infinite. */
INLINE reals clamped(reals power, reals exponent)
{
    power = from_bits(bits(power) & ~below(exponent, splat(-1021.0)));
    return pick(below(exponent, splat(1024.0)), power, splat(INFINITY));
}

typedef struct {
    reals p, high, low, at_zero;
} power_of;

/* high keeps 26 bits of p, so that high * k is exact for every exponent k of a double. */
INLINE power_of power_to(double p)
{
    double high = double_of(bits_of(p) & ~(uint64_t)0x7ffffff);
    power_of e = {splat(p), splat(high), splat(p - high), splat(p > 0 ? 0.0 : p < 0 ? INFINITY : 1.0)};
    return e;
}

/* x^p = 2^(p k + p log2 z); a few units in the last place times 1 + |p|. */
INLINE reals power(reals x, power_of e)
{
    reals k, z;
    split(x, &k, &z);
    reals whole = e.high * k;
    reals rest = e.low * k + e.p * (log_near_one(z) * splat(LOG2_E));
    reals y = whole + rest;
    reals shifted = y + splat(ROUNDER);
    reals g = (whole - (shifted - splat(ROUNDER))) + rest;
    return pick(equal(x, splat(0.0)), e.at_zero, clamped(exp2_parts(shifted, g), y));
}

INLINE reals exp2_of(reals x)
{
    reals shifted = x + splat(ROUNDER);
    return clamped(exp2_parts(shifted, x - (shifted - splat(ROUNDER))), x);
}

INLINE reals exp_of(reals x)
{
    reals y = x * splat(LOG2_E);
    reals shifted = y + splat(ROUNDER);
    reals n = shifted - splat(ROUNDER);
    reals g = ((x - n * splat(LN2_HIGH)) - n * splat(LN2_LOW)) * splat(LOG2_E);
    return clamped(exp2_parts(shifted, g), y);
}

INLINE reals log2_of(reals x)
{
    reals k, z;
    split(x, &k, &z);
    return pick(equal(x, splat(0.0)), splat(-INFINITY), k + log_near_one(z) * splat(LOG2_E));
}

INLINE reals log_of(reals x)
{
    reals k, z;
    split(x, &k, &z);
    reals y = k * splat(LN2_HIGH) + (k * splat(LN2_LOW) + log_near_one(z));
    return pick(equal(x, splat(0.0)), splat(-INFINITY), y);
}

INLINE reals apply(function which, reals x, power_of e)
{
    switch (which) {
    case EXP: return exp_of(x);
    case LOG: return log_of(x);
    case EXP2: return exp2_of(x);
    case LOG2: return log2_of(x);
    default: return power(x, e);
    }
}

static void elementary(function which, const double *x, double p, double *out, int64_t n)
{
    power_of e = power_to(p);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(out + i, apply(which, load(x + i), e));
    if (i < n) {
        double last[LANES] = {0};
        memcpy(last, x + i, (size_t)(n - i) * sizeof *x);
        store(last, apply(which, load(last), e));
        memcpy(out + i, last, (size_t)(n - i) * sizeof *x);
    }
}
