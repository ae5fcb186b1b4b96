/* LANES doubles side by side. Every lane is one row, and each operation rounds alone, so their number never shows. */
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

#if LANES > 1
typedef double reals __attribute__((vector_size(8 * LANES)));
typedef uint64_t words __attribute__((vector_size(8 * LANES)));
INLINE reals splat(double x) { return x - (reals){0}; }
INLINE words splat_word(uint64_t x) { return x + (words){0}; }
INLINE words bits(reals x) { return (words)x; }
INLINE reals from_bits(words b) { return (reals)b; }
INLINE words equal(reals a, reals b) { return (words)(a == b); }
INLINE words below(reals a, reals b) { return (words)(a < b); }
#else
typedef double reals;
typedef uint64_t words;
INLINE reals splat(double x) { return x; }
INLINE words splat_word(uint64_t x) { return x; }
INLINE words bits(reals x) { words b; memcpy(&b, &x, 8); return b; }
INLINE reals from_bits(words b) { reals x; memcpy(&x, &b, 8); return x; }
INLINE words equal(reals a, reals b) { return a == b ? ~(words)0 : 0; }
INLINE words below(reals a, reals b) { return a < b ? ~(words)0 : 0; }
#endif

INLINE reals load(const double *p) { reals x; memcpy(&x, p, sizeof x); return x; }
INLINE void store(double *p, reals x) { memcpy(p, &x, sizeof x); }
INLINE reals pick(words mask, reals yes, reals no) { return from_bits((bits(yes) & mask) | (bits(no) & ~mask)); }

INLINE uint64_t bits_of(double x) { uint64_t b; memcpy(&b, &x, 8); return b; }
INLINE double double_of(uint64_t b) { double x; memcpy(&x, &b, 8); return x; }
