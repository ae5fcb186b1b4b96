/* Training of a small autoencoder: h <- f(b + h W) layer by layer, backpropagation, and Adam once a gradient is known.
 * All three products have one form: scalars of one factor times rows of the other, LANES floats at a time, added in
 * order. So vectors of any width give the same bits; fused multiply-add changes the bits. NaN stays NaN.
 * _coder_twin.py does the same in NumPy. */
#include "_coder_jobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if (LANES == 16 && defined(__AVX512F__)) || (LANES == 8 && defined(__AVX__))
#include <immintrin.h>
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define AHEAD(address) __builtin_prefetch(address)
#else
#define INLINE static inline
#define AHEAD(address) ((void)0)
#endif

#if LANES > 1
typedef float floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t whole __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* anywhere in memory */
INLINE floats load(const float *p) { return *(const loose *)p; }
INLINE void store(float *p, floats x) { *(loose *)p = x; }
INLINE floats splat(float x) { return x - (floats){0}; }
INLINE floats positive(floats x) { return (floats)((whole)x & ~(whole)(x <= splat(0))); }
INLINE floats raised(floats x, whole power) { return (floats)((whole)x + (power << 23)); }
INLINE whole rounded(floats x) { return (whole)x; }
#else
typedef float floats;
typedef uint32_t whole;
INLINE floats load(const float *p) { return *p; }
INLINE void store(float *p, floats x) { *p = x; }
INLINE floats splat(float x) { return x; }
INLINE floats positive(floats x) { return x <= 0 ? 0 : x; }
INLINE whole rounded(floats x) { whole b; memcpy(&b, &x, 4); return b; }
INLINE floats raised(floats x, whole power)
{
    whole b = rounded(x) + (power << 23);
    memcpy(&x, &b, 4);
    return x;
}
#endif

#if LANES == 16 && defined(__AVX512F__)
INLINE floats root(floats x) { return _mm512_sqrt_ps(x); }
INLINE floats within(floats x, float least, float most)
{
    return _mm512_min_ps(splat(most), _mm512_max_ps(splat(least), x)); /* the second, if either is NaN */
}
#elif LANES == 8 && defined(__AVX__)
INLINE floats root(floats x) { return _mm256_sqrt_ps(x); }
INLINE floats within(floats x, float least, float most)
{
    return _mm256_min_ps(splat(most), _mm256_max_ps(splat(least), x));
}
#else
INLINE floats by_lane(floats x, float least, float most, int rooted)
{
    float lane[LANES];
    memcpy(lane, &x, sizeof x);
    for (int i = 0; i < LANES; i++)
        lane[i] = rooted ? sqrtf(lane[i]) : lane[i] < least ? least : lane[i] > most ? most : lane[i];
    memcpy(&x, lane, sizeof x);
    return x;
}
INLINE floats root(floats x) { return by_lane(x, 0, 0, 1); }
INLINE floats within(floats x, float least, float most) { return by_lane(x, least, most, 0); }
#endif

#define MAGIC 12582912.0f /* 1.5 2^23: a number added to it is rounded to an integer in its last bits */

/* 1 / (1 + exp(-x)); exp by 2^n and a polynomial in the remainder. */
INLINE floats sigmoid(floats x)
{
    x = within(-x, -87.0f, 87.0f);
    floats shifted = x * splat(1.44269504f) + splat(MAGIC), n = shifted - splat(MAGIC);
    floats f = (x - n * splat(0.693359375f)) + n * splat(2.12194440e-4f);
    floats p = splat(1.0f / 5040);
    p = p * f + splat(1.0f / 720);
    p = p * f + splat(1.0f / 120);
    p = p * f + splat(1.0f / 24);
    p = p * f + splat(1.0f / 6);
    p = p * f + splat(0.5f);
    p = (p * f) * f + f + splat(1.0f);
    return splat(1.0f) / (splat(1.0f) + raised(p, rounded(shifted) - rounded(splat(MAGIC))));
}

#define TALL (LANES >= 16 ? 8 : 4) /* with WIDE, as many sums as fit the registers */
#define WIDE 3

/* sums[i][v] += sum_k a(i, k) b[k][v]: a's scalars are `a_line` and `a_step` floats apart, b's rows `b_line`. */
INLINE void multiplied(int tall, int wide, const float *a, int64_t a_line, int64_t a_step, const float *b,
                       int64_t b_line, int64_t count, floats sums[TALL][WIDE])
{
    for (int64_t k = 0; k < count; k++, a += a_step, b += b_line) {
        floats line[WIDE];
        for (int v = 0; v < wide; v++)
            line[v] = load(b + v * LANES);
        for (int i = 0; i < tall; i++) {
            floats one = splat(a[i * a_line]);
            for (int v = 0; v < wide; v++)
                sums[i][v] = sums[i][v] + one * line[v];
        }
    }
}

/* Calls `work` for every tile of a table, at its `line` and column `at`; the compiler knows its shape. */
#define SHAPES(work, tall)                  \
    switch (wide) {                         \
    case 3: work(tall, 3); break;           \
    case 2: work(tall, 2); break;           \
    default: work(tall, 1);                 \
    }
#define TILES(lines, columns, work)                                                          \
    for (int64_t line = 0, tall; line < (lines); line += tall) {                             \
        tall = (lines) - line >= TALL ? TALL : (lines) - line >= 4 ? 4 : 1;                  \
        for (int64_t at = 0, wide; at < (columns); at += wide * LANES) {                     \
            const int64_t left = ((columns) - at) / LANES;                                   \
            wide = left == 4 ? 2 : left < WIDE ? left : WIDE; /* two and two, not three and one */ \
            if (tall == TALL) { SHAPES(work, TALL) }                                         \
            else if (tall == 4) { SHAPES(work, 4) }                                          \
            else { SHAPES(work, 1) }                                                         \
        }                                                                                    \
    }

/* out = f(b + h W); the biases are W's last row. */
static void forward(const float *h, int64_t lines, int64_t inner, const float *W, float *out, int64_t units, int last)
{
    const int64_t stride = padded(inner), width = padded(units);
#define WORK(T, V)                                                                                  \
    {                                                                                               \
        floats sums[TALL][WIDE];                                                                    \
        for (int i = 0; i < T; i++)                                                                 \
            for (int v = 0; v < V; v++)                                                             \
                sums[i][v] = load(W + inner * width + at + v * LANES);                              \
        multiplied(T, V, h + line * stride, stride, 1, W + at, width, inner, sums);                 \
        for (int i = 0; i < T; i++)                                                                 \
            for (int v = 0; v < V; v++)                                                             \
                store(out + (line + i) * width + at + v * LANES,                                    \
                      last ? sigmoid(sums[i][v]) : positive(sums[i][v]));                           \
    }
    TILES(lines, width, WORK)
#undef WORK
}

/* back = W d, unit by unit; a vector in `lines` holds several rows of a batch. */
static void backward(const float *W, int64_t inner, int64_t units, const float *d, int64_t lines, float *back)
{
    const int64_t width = padded(units);
#define WORK(T, V)                                                                                  \
    {                                                                                               \
        floats sums[TALL][WIDE];                                                                    \
        for (int i = 0; i < T; i++)                                                                 \
            for (int v = 0; v < V; v++)                                                             \
                sums[i][v] = splat(0);                                                              \
        multiplied(T, V, W + line * width, width, 1, d + at, lines, units, sums);                   \
        for (int i = 0; i < T; i++)                                                                 \
            for (int v = 0; v < V; v++)                                                             \
                store(back + (line + i) * lines + at + v * LANES, sums[i][v]);                      \
    }
    TILES(inner, lines, WORK)
#undef WORK
}

typedef struct {
    float pace, sharp; /* rate / (1 - .9^t), 1 / sqrt(1 - .999^t) */
} moment;

INLINE void adam(floats slope, float *w, float *m, float *v, moment now)
{
    floats mean = load(m), square = load(v);
    mean = mean + (slope - mean) * splat(0.1f);
    square = square * splat(0.999f) + slope * slope * splat(0.001f);
    store(m, mean);
    store(v, square);
    store(w, load(w) - splat(now.pace) * mean / (root(square) * splat(now.sharp) + splat(1e-8f)));
}

/* Gradients h' d, each followed at once by a step of Adam. */
static void descend(const float *h, int64_t h_line, int64_t h_step, int64_t inner, const float *d, int64_t units,
                    int64_t rows, float *w, float *m, float *v_, moment now)
{
    const int64_t width = padded(units);
#define WORK(T, V)                                                                                  \
    {                                                                                               \
        floats sums[TALL][WIDE];                                                                    \
        const int64_t place = line * width + at;                                                    \
        for (int i = 0; i < T; i++)                                                                 \
            for (int v = 0; v < V; v++) {                                                           \
                sums[i][v] = splat(0);                                                              \
                AHEAD(w + place + i * width + v * LANES);                                           \
                AHEAD(m + place + i * width + v * LANES);                                           \
                AHEAD(v_ + place + i * width + v * LANES);                                          \
            }                                                                                       \
        multiplied(T, V, h + line * h_line, h_line, h_step, d + at, width, rows, sums);             \
        for (int i = 0; i < T; i++)                                                                 \
            for (int v = 0; v < V; v++) {                                                           \
                const int64_t p = place + i * width + v * LANES;                                    \
                adam(sums[i][v], w + p, m + p, v_ + p, now);                                        \
            }                                                                                       \
    }
    TILES(inner, width, WORK)
#undef WORK
}

/* The transpose. */
static void turned(const float *from, int64_t from_line, int64_t lines, int64_t columns, float *to, int64_t to_line)
{
    for (int64_t i0 = 0; i0 < lines; i0 += 16)
        for (int64_t j0 = 0; j0 < columns; j0 += 16)
            for (int64_t j = j0; j < columns && j < j0 + 16; j++)
                for (int64_t i = i0; i < lines && i < i0 + 16; i++)
                    to[j * to_line + i] = from[i * from_line + j];
}

/* The propagated error, row by row, where ReLU was active. */
static void passed(const float *back, int64_t lines, const float *h, int64_t rows, int64_t units, float *d)
{
    const int64_t width = padded(units);
    turned(back, lines, units, rows, d, width);
    for (int64_t r = 0; r < rows; r++, d += width, h += width) {
        for (int64_t k = 0; k < units; k++)
            d[k] = h[k] <= 0 ? 0 : d[k];
        memset(d + units, 0, (size_t)(width - units) * sizeof *d);
    }
}

/* The error as the gradient of the mean square: 2 (o - x) o (1 - o) / (rows columns); returns the summed squares. */
static double wrong(const float *x, const float *out, float *d, int64_t rows, int64_t columns)
{
    const int64_t width = padded(columns), even = columns / ABREAST * ABREAST;
    const floats scale = splat((float)(2.0 / (double)(rows * columns)));
    floats sums[ABREAST / LANES];
    for (int i = 0; i < ABREAST / LANES; i++)
        sums[i] = splat(0);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t at = 0; at < width; at += LANES) {
            floats o = load(out + r * width + at), off = o - load(x + r * width + at);
            store(d + r * width + at, off * scale * (o * (splat(1) - o)));
            if (at < even)
                sums[at / LANES % (ABREAST / LANES)] += off * off;
        }
        memset(d + r * width + columns, 0, (size_t)(width - columns) * sizeof *d);
    }
    float lanes[ABREAST];
    memcpy(lanes, sums, sizeof lanes);
    double total = 0;
    for (int i = 0; i < ABREAST; i++)
        total += lanes[i];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t at = even; at < columns; at++) {
            float off = out[r * width + at] - x[r * width + at];
            total += off * off;
        }
    return total;
}

static int epoch(const coder *own, const int64_t *order, int64_t count, double *lost)
{
    const int64_t L = own->layers, d = own->sizes[0], batch = own->batch < count ? own->batch : count;
    const int64_t most = padded(batch);
    float *found[MOST_LAYERS + 1], *weights[MOST_LAYERS], *room, *delta, *across, *next;
    int64_t steps = own->steps, widest = 0, total = 0, at = 0;
    for (int64_t l = 0; l <= L; l++) {
        widest = padded(own->sizes[l]) > widest ? padded(own->sizes[l]) : widest;
        total += padded(own->sizes[l]);
    }
    if (!(room = calloc((size_t)(most * (total + 3 * widest) + ABREAST), sizeof *room)))
        return 1;
    float *start = (float *)(((uintptr_t)room + 63) / 64 * 64);
    for (int64_t l = 0; l <= L; l++, start += most * padded(own->sizes[l - 1])) {
        found[l] = start;
        if (l < L) {
            weights[l] = own->weights + at;
            at += (own->sizes[l] + 1) * padded(own->sizes[l + 1]);
        }
    }
    delta = start, across = delta + most * widest, next = across + most * widest;
    static const float one = 1;
    *lost = 0;
    for (int64_t begin = 0; begin < count; begin += batch) {
        const int64_t rows = count - begin < batch ? count - begin : batch, lines = padded(rows);
        for (int64_t r = 0; r < rows; r++)
            memcpy(found[0] + r * padded(d), own->rows + order[begin + r] * d, (size_t)d * sizeof *own->rows);
        for (int64_t l = 0; l < L; l++)
            forward(found[l], (rows + TALL - 1) / TALL * TALL, own->sizes[l], weights[l], found[l + 1],
                    own->sizes[l + 1], l == L - 1);
        *lost += wrong(found[0], found[L], delta, rows, d);
        steps++;
        const moment now = {(float)(own->rate / (1 - pow(0.9, (double)steps))),
                            (float)(1 / sqrt(1 - pow(0.999, (double)steps)))};
        for (int64_t l = L - 1; l >= 0; l--) {
            const int64_t inner = own->sizes[l], units = own->sizes[l + 1], width = padded(units);
            float *w = weights[l], *m = own->means + (w - own->weights), *v = own->squares + (w - own->weights);
            if (l) {
                turned(delta, width, rows, units, across, lines);
                backward(w, inner, units, across, lines, next);
            }
            descend(found[l], 1, padded(inner), inner, delta, units, rows, w, m, v, now);
            descend(&one, 0, 0, 1, delta, units, rows, w + inner * width, m + inner * width, v + inner * width, now);
            if (l)
                passed(next, lines, found[l], rows, inner, delta);
        }
    }
    free(room);
    return 0;
}
