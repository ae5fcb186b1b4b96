/* exp, log and powers from +, -, *, / only; the NumPy twin does the same operations in the same order.
 * Each function takes ABREAST vectors. */

#define ONE_BITS 0x3ff0000000000000u
#define ROOT_HALF_BITS 0x3fe6a09e667f3bcdu /* sqrt(1/2) */
#define INTEGER_BITS 0x4330000000000000u   /* 2^52 */
#define ROUNDER 6755399441055744.0         /* 1.5 * 2^52: adding it puts the nearest integer into the last bits */
#define LOG2_E 0x1.71547652b82fep+0
#define LN2_HIGH 0x1.62e42fee00000p-1
#define LN2_LOW 0x1.a39ef35793c76p-33

static const double LOG_EVEN[] = {0x1.5555555555558p-1, 0x1.2492492df148dp-2, 0x1.7462b4ab2ef6bp-3,
                                  0x1.2b584aae78a57p-3};
static const double LOG_ODD[] = {0x1.99999999952e2p-2, 0x1.c71c62e5800a1p-3, 0x1.39fe606542ddep-3};
static const double EXP2_EVEN[] = {0x1.62e42fefa39efp-1, 0x1.c6b08d704a0c2p-5, 0x1.5d87fe78a5276p-10,
                                   0x1.ffcbfc670dcd4p-17, 0x1.b524fae627834p-24, 0x1.e9d3fe3952179p-32};
static const double EXP2_ODD[] = {0x1.ebfbdff82c598p-3, 0x1.3b2ab6fba1ddap-7, 0x1.430913096fd9fp-13,
                                  0x1.62bfd47773353p-20, 0x1.e6063f7217bc6p-28};

INLINE void horner(reals *value, const reals *y, const double *coefficient, const int count)
{
    EACH value[j] = splat(coefficient[count - 1]);
    for (int k = count - 2; k >= 0; k--)
        EACH value[j] = splat(coefficient[k]) + y[j] * value[j];
}

/* x = 2^k z, z in [sqrt(1/2), sqrt(2)); subnormal x is scaled first. */
INLINE void split(const reals *x, reals *k, reals *z)
{
    EACH {
        reals tiny = splat(0x1p-1022);
        words b = bits(if_below(x[j], tiny, x[j] * splat(0x1p54), x[j]));
        words e = (b + splat_word(ONE_BITS - ROOT_HALF_BITS)) >> 52;
        z[j] = from_bits(b - (e << 52) + splat_word(ONE_BITS));
        k[j] = from_bits(e + splat_word(INTEGER_BITS)) - splat(0x1p52 + 1023.0);
        k[j] = k[j] - if_below(x[j], tiny, splat(54.0), splat(0.0));
    }
}

/* ln z = 2 s + s s2 q(s2), s = (z - 1) / (z + 1). */
INLINE void log_near_one(const reals *z, reals *log)
{
    reals s[ABREAST], y[ABREAST], y2[ABREAST], even[ABREAST], odd[ABREAST];
    EACH s[j] = (z[j] - splat(1.0)) / (z[j] + splat(1.0));
    EACH y[j] = s[j] * s[j];
    EACH y2[j] = y[j] * y[j];
    horner(even, y2, LOG_EVEN, 4);
    horner(odd, y2, LOG_ODD, 3);
    EACH log[j] = (s[j] + s[j]) + s[j] * (y[j] * (even[j] + y[j] * odd[j]));
}

/* 2^(n + g), |g| <= 1/2, where shifted = n + ROUNDER, of an exponent that is nearly n + g.
 * Below 2^-1021 a power of two is 0 by definition; from 2^1024 on it is infinite. */
INLINE void exp2_parts(const reals *shifted, const reals *g, const reals *exponent, reals *power)
{
    reals y[ABREAST], even[ABREAST], odd[ABREAST];
    EACH y[j] = g[j] * g[j];
    horner(even, y, EXP2_EVEN, 6);
    horner(odd, y, EXP2_ODD, 5);
    EACH power[j] = splat(1.0) + g[j] * (even[j] + g[j] * odd[j]);
    EACH power[j] = from_bits(bits(power[j]) + (bits(shifted[j]) << 52));
    EACH power[j] = if_below(exponent[j], splat(1024.0), power[j], splat(INFINITY));
    EACH power[j] = if_below(exponent[j], splat(-1021.0), splat(0.0), power[j]);
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
INLINE void power(const reals *x, power_of e, reals *out)
{
    reals k[ABREAST], z[ABREAST], rest[ABREAST], y[ABREAST], shifted[ABREAST], g[ABREAST], found[ABREAST];
    split(x, k, z);
    log_near_one(z, rest);
    EACH rest[j] = e.low * k[j] + e.p * (rest[j] * splat(LOG2_E));
    EACH k[j] = e.high * k[j];
    EACH y[j] = k[j] + rest[j];
    EACH shifted[j] = y[j] + splat(ROUNDER);
    EACH g[j] = (k[j] - (shifted[j] - splat(ROUNDER))) + rest[j];
    exp2_parts(shifted, g, y, found);
    EACH out[j] = if_equal(x[j], splat(0.0), e.at_zero, found[j]);
}

INLINE void exp2_of(const reals *x, reals *out)
{
    reals shifted[ABREAST], g[ABREAST];
    EACH shifted[j] = x[j] + splat(ROUNDER);
    EACH g[j] = x[j] - (shifted[j] - splat(ROUNDER));
    exp2_parts(shifted, g, x, out);
}

INLINE void exp_of(const reals *x, reals *out)
{
    reals y[ABREAST], shifted[ABREAST], n[ABREAST], g[ABREAST];
    EACH y[j] = x[j] * splat(LOG2_E);
    EACH shifted[j] = y[j] + splat(ROUNDER);
    EACH n[j] = shifted[j] - splat(ROUNDER);
    EACH g[j] = ((x[j] - n[j] * splat(LN2_HIGH)) - n[j] * splat(LN2_LOW)) * splat(LOG2_E);
    exp2_parts(shifted, g, y, out);
}

INLINE void log2_of(const reals *x, reals *out)
{
    reals k[ABREAST], z[ABREAST], log[ABREAST];
    split(x, k, z);
    log_near_one(z, log);
    EACH out[j] = if_equal(x[j], splat(0.0), splat(-INFINITY), k[j] + log[j] * splat(LOG2_E));
}

INLINE void log_of(const reals *x, reals *out)
{
    reals k[ABREAST], z[ABREAST], log[ABREAST];
    split(x, k, z);
    log_near_one(z, log);
    EACH log[j] = k[j] * splat(LN2_HIGH) + (k[j] * splat(LN2_LOW) + log[j]);
    EACH out[j] = if_equal(x[j], splat(0.0), splat(-INFINITY), log[j]);
}

INLINE void apply(function which, const double *from, power_of e, double *to)
{
    reals x[ABREAST], y[ABREAST];
    EACH x[j] = load(from + j * LANES);
    switch (which) {
    case EXP: exp_of(x, y); break;
    case LOG: log_of(x, y); break;
    case EXP2: exp2_of(x, y); break;
    case LOG2: log2_of(x, y); break;
    default: power(x, e, y);
    }
    EACH store(to + j * LANES, y[j]);
}

static void elementary(function which, const double *x, double p, double *out, int64_t n)
{
    const int64_t step = LANES * ABREAST;
    power_of e = power_to(p);
    int64_t i = 0;
    for (; i + step <= n; i += step)
        apply(which, x + i, e, out + i);
    if (i < n) {
        double last[LANES * ABREAST] = {0};
        memcpy(last, x + i, (size_t)(n - i) * sizeof *x);
        apply(which, last, e, last);
        memcpy(out + i, last, (size_t)(n - i) * sizeof *x);
    }
}
