/* Vectors of LANES doubles. Each lane is one row and rounds separately, so the vector width never changes a result. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define AHEAD(address) __builtin_prefetch(address)
#elif defined(_MSC_VER)
#define INLINE static __forceinline
#define AHEAD(address) ((void)0)
#else
#define INLINE static inline
#define AHEAD(address) ((void)0)
#endif

#define ABREAST (LANES >= 8 ? 4 : 2) /* vectors that are computed together; a single one would wait for its own results */
#define EACH for (int j = 0; j < ABREAST; j++)

#if LANES == 8 && defined(__AVX512F__)
#include <immintrin.h>
#endif

#if LANES > 1
typedef double reals __attribute__((vector_size(8 * LANES)));
typedef uint64_t words __attribute__((vector_size(8 * LANES)));
INLINE reals splat(double x) { return x - (reals){0}; }
INLINE words splat_word(uint64_t x) { return x + (words){0}; }
INLINE words bits(reals x) { return (words)x; }
INLINE reals from_bits(words b) { return (reals)b; }
#else
typedef double reals;
typedef uint64_t words;
INLINE reals splat(double x) { return x; }
INLINE words splat_word(uint64_t x) { return x; }
INLINE words bits(reals x) { words b; memcpy(&b, &x, 8); return b; }
INLINE reals from_bits(words b) { reals x; memcpy(&x, &b, 8); return x; }
#endif

#if LANES == 8 && defined(__AVX512F__)
INLINE reals if_equal(reals a, reals b, reals yes, reals no)
{
    return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ), no, yes);
}
INLINE reals if_below(reals a, reals b, reals yes, reals no)
{
    return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_LT_OQ), no, yes);
}
INLINE reals lesser(reals a, reals b) { return _mm512_min_pd(a, b); }
#elif LANES > 1
INLINE reals pick(words mask, reals yes, reals no) { return from_bits((bits(yes) & mask) | (bits(no) & ~mask)); }
INLINE reals if_equal(reals a, reals b, reals yes, reals no) { return pick((words)(a == b), yes, no); }
INLINE reals if_below(reals a, reals b, reals yes, reals no) { return pick((words)(a < b), yes, no); }
INLINE reals lesser(reals a, reals b) { return if_below(a, b, a, b); }
#else
INLINE reals if_equal(reals a, reals b, reals yes, reals no) { return a == b ? yes : no; }
INLINE reals if_below(reals a, reals b, reals yes, reals no) { return a < b ? yes : no; }
INLINE reals lesser(reals a, reals b) { return a < b ? a : b; }
#endif

#if LANES == 8 && defined(__AVX512F__)
/* Approximately x y + z: fused, so not for values that reach a result. */
INLINE reals nearly(reals x, reals y, reals z) { return _mm512_fmadd_pd(x, y, z); }
INLINE reals gathered(const double *p, const uint64_t *at)
{
    return _mm512_i64gather_pd(_mm512_loadu_si512(at), p, 8);
}
#else
INLINE reals nearly(reals x, reals y, reals z) { return x * y + z; }
INLINE reals gathered(const double *p, const uint64_t *at)
{
    double lane[LANES];
    reals x;
    for (int i = 0; i < LANES; i++)
        lane[i] = p[at[i]];
    memcpy(&x, lane, sizeof x);
    return x;
}
#endif

#if LANES > 1
typedef double loose __attribute__((vector_size(8 * LANES), aligned(8), may_alias)); /* anywhere in memory */
INLINE reals load(const double *p) { return *(const loose *)p; }
INLINE void store(double *p, reals x) { *(loose *)p = x; }
#else
INLINE reals load(const double *p) { return *p; }
INLINE void store(double *p, reals x) { *p = x; }
#endif

#if LANES == 8
#if defined(__clang__) || __GNUC__ >= 12
#define LANES_OF(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define LANES_OF(a, b, ...) __builtin_shuffle(a, b, (words){__VA_ARGS__})
#endif
INLINE words evens(words a, words b) { return LANES_OF(a, b, 0, 8, 2, 10, 4, 12, 6, 14); }
INLINE words odds(words a, words b) { return LANES_OF(a, b, 1, 9, 3, 11, 5, 13, 7, 15); }
INLINE words even_pairs(words a, words b) { return LANES_OF(a, b, 0, 1, 4, 5, 8, 9, 12, 13); }
INLINE words odd_pairs(words a, words b) { return LANES_OF(a, b, 2, 3, 6, 7, 10, 11, 14, 15); }
#endif

#if LANES == 8
/* Transposes eight rows of eight columns in place: x[i] holds the former column i. */
INLINE void turn(words x[8])
{
    words y[8];
    for (int i = 0; i < 8; i += 2) {
        y[i] = evens(x[i], x[i + 1]);
        y[i + 1] = odds(x[i], x[i + 1]);
    }
    for (int odd = 0; odd < 2; odd++) {
        words a = even_pairs(y[odd], y[2 + odd]), b = even_pairs(y[4 + odd], y[6 + odd]);
        words c = odd_pairs(y[odd], y[2 + odd]), d = odd_pairs(y[4 + odd], y[6 + odd]);
        x[odd] = even_pairs(a, b);
        x[4 + odd] = odd_pairs(a, b);
        x[2 + odd] = even_pairs(c, d);
        x[6 + odd] = odd_pairs(c, d);
    }
}
#endif

INLINE uint64_t bits_of(double x) { uint64_t b; memcpy(&b, &x, 8); return b; }
INLINE double double_of(uint64_t b) { double x; memcpy(&x, &b, 8); return x; }
