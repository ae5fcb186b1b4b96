/* Vectors of floats, as wide as the vectors of doubles, for sketches, which never affect a result. */

#define FLOATS (LANES > 1 ? 2 * LANES : 1)
#define FLOAT_STEP (FLOATS * ABREAST)

#if LANES > 1
typedef float floats __attribute__((vector_size(8 * LANES)));
typedef uint32_t marks __attribute__((vector_size(8 * LANES)));
INLINE floats splat_float(float x) { return x - (floats){0}; }
INLINE marks splat_mark(uint32_t x) { return x + (marks){0}; }
#else
typedef float floats;
typedef uint32_t marks;
INLINE floats splat_float(float x) { return x; }
INLINE marks splat_mark(uint32_t x) { return x; }
#endif

#if LANES == 8 && defined(__AVX512F__)
/* Approximately x y + z: fused if that is faster. */
INLINE floats about(floats x, floats y, floats z) { return _mm512_fmadd_ps(x, y, z); }
INLINE floats lesser_float(floats a, floats b) { return _mm512_min_ps(a, b); }
INLINE floats greater_float(floats a, floats b) { return _mm512_max_ps(a, b); }
INLINE marks mark_below(floats a, floats b, marks yes, marks no)
{
    return (marks)_mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), (__m512i)no, (__m512i)yes);
}
INLINE floats float_below(floats a, floats b, floats yes, floats no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
INLINE floats root(floats x) { return _mm512_sqrt_ps(x); }
#else
INLINE floats about(floats x, floats y, floats z) { return x * y + z; }
#if LANES > 1
INLINE marks mark_below(floats a, floats b, marks yes, marks no)
{
    const marks below = (marks)(a < b);
    return (yes & below) | (no & ~below);
}
INLINE floats float_below(floats a, floats b, floats yes, floats no)
{
    return (floats)mark_below(a, b, (marks)yes, (marks)no);
}
#else
INLINE marks mark_below(floats a, floats b, marks yes, marks no) { return a < b ? yes : no; }
INLINE floats float_below(floats a, floats b, floats yes, floats no) { return a < b ? yes : no; }
#endif
INLINE floats lesser_float(floats a, floats b) { return float_below(a, b, a, b); }
INLINE floats greater_float(floats a, floats b) { return float_below(b, a, a, b); }
INLINE floats root(floats x)
{
    float lane[FLOATS];
    memcpy(lane, &x, sizeof x);
    for (int i = 0; i < FLOATS; i++)
        lane[i] = sqrtf(lane[i]);
    memcpy(&x, lane, sizeof x);
    return x;
}
#endif

/* LANES doubles as floats. */
INLINE void store_narrow(float *p, reals x)
{
#if LANES == 8 && defined(__AVX512F__)
    _mm256_storeu_ps(p, _mm512_cvtpd_ps(x));
#else
    double lane[LANES];
    memcpy(lane, &x, sizeof x);
    for (int i = 0; i < LANES; i++)
        p[i] = (float)lane[i];
#endif
}

INLINE floats load_floats(const float *p) { floats x; memcpy(&x, p, sizeof x); return x; }
INLINE void store_floats(float *p, floats x) { memcpy(p, &x, sizeof x); }
INLINE void store_marks(uint32_t *p, marks x) { memcpy(p, &x, sizeof x); }
