/* The sweeps, tile by tile. A tile holds some rows of every column, side by side, padded to whole vectors. */
#include "_jobs.h"
#include "_lanes.h"
#include "_elementary.h"

#define ABREAST (LANES >= 8 ? 4 : 2)         /* vectors of rows whose distances grow together in registers */
#define STEP (LANES * ABREAST)
#define GROUP 5                              /* centres that share one load of a column */
#define PENDING 2048                         /* rows whose integers, at most 2^51 each, fit 64 bits together */

static int64_t up_to_step(int64_t n) { return (n + STEP - 1) / STEP * STEP; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows of a tile: small tables stay in the first cache, wide ones in the second, next to the tile that follows. */
static int64_t tile_rows(int64_t F, int64_t C, int64_t most)
{
    int64_t T = F + 1 + 2 * C <= 20 ? 256 : F <= 384 ? 128 : 64;
    return smaller(T, most > 0 ? up_to_step(most) : STEP);
}

static int64_t longest(const columns *blocks, int64_t count)
{
    int64_t most = 0;
    for (int64_t b = 0; b < count; b++)
        if (blocks[b].rows > most)
            most = blocks[b].rows;
    return most;
}

/* Scratch memory from one allocation, cut at cache lines. */
typedef struct {
    char *start, *next;
} arena;

static int arena_open(arena *a, size_t doubles, size_t pieces)
{
    a->start = malloc(doubles * 8 + (pieces + 1) * 64);
    a->next = a->start;
    return a->start != NULL;
}

static void *take(arena *a, int64_t doubles)
{
    char *p = a->next + (-(uintptr_t)a->next & 63);
    a->next = p + doubles * 8;
    return p;
}

/* Rows [row, row + n) of every column, widened, then zeros up to the whole step. */
static void load_tile(double *x, int64_t T, const columns *block, int64_t F, int64_t row, int64_t n)
{
    int64_t padded = up_to_step(n);
    for (int64_t f = 0; f < F; f++) {
        double *to = x + f * T;
        const char *from = block->data + f * block->stride + row * block->size;
        if (block->size == 8) {
            memcpy(to, from, (size_t)n * 8);
        } else {
            const float *narrow = (const float *)from;
            for (int64_t r = 0; r < n; r++)
                to[r] = narrow[r];
        }
        for (int64_t r = n; r < padded; r++)
            to[r] = 0.0;
    }
}

/* d2 of STEP rows to `centers` centres: features are added in their order, rows lie side by side. */
INLINE void distance_group(const double *x, int64_t T, const double *v, int64_t F, double *d2, const int centers)
{
    reals sum[GROUP][ABREAST];
    for (int i = 0; i < centers; i++)
        for (int j = 0; j < ABREAST; j++)
            sum[i][j] = splat(0.0);
    for (int64_t f = 0; f < F; f++) {
        reals xs[ABREAST];
        for (int j = 0; j < ABREAST; j++)
            xs[j] = load(x + f * T + j * LANES);
        for (int i = 0; i < centers; i++) {
            reals at = splat(v[i * F + f]);
            for (int j = 0; j < ABREAST; j++) {
                reals t = xs[j] - at;
                sum[i][j] = sum[i][j] + t * t;
            }
        }
    }
    for (int i = 0; i < centers; i++)
        for (int j = 0; j < ABREAST; j++)
            store(d2 + i * T + j * LANES, sum[i][j]);
}

/* Centres in groups of nearly equal size, at most GROUP each: the g-th group begins here. */
INLINE int64_t group_start(int64_t C, int64_t g)
{
    int64_t groups = (C + GROUP - 1) / GROUP;
    return g * (C / groups) + smaller(g, C % groups);
}

static void distances(const double *x, int64_t T, int64_t padded, const double *v, int64_t C, int64_t F, double *d2)
{
    for (int64_t r = 0; r < padded; r += STEP)
        for (int64_t g = 0, c = 0; c < C; g++) {
            int64_t end = group_start(C, g + 1);
            const double *at = v + c * F;
            double *to = d2 + c * T + r;
            switch (end - c) {
            case 5: distance_group(x + r, T, at, F, to, 5); break;
            case 4: distance_group(x + r, T, at, F, to, 4); break;
            case 3: distance_group(x + r, T, at, F, to, 3); break;
            case 2: distance_group(x + r, T, at, F, to, 2); break;
            default: distance_group(x + r, T, at, F, to, 1);
            }
            c = end;
        }
}

/* The lowest index among the nearest centres, and its squared distance. */
static void nearest(const double *d2, int64_t T, int64_t padded, int64_t C, double *least, uint64_t *label)
{
    for (int64_t r = 0; r < padded; r += LANES) {
        reals best = load(d2 + r);
        words index = splat_word(0);
        for (int64_t c = 1; c < C; c++) {
            reals d = load(d2 + c * T + r);
            words closer = below(d, best);
            best = pick(closer, d, best);
            index = (splat_word((uint64_t)c) & closer) | (index & ~closer);
        }
        store(least + r, best);
        memcpy(label + r, &index, sizeof index);
    }
}

/* w = 1 for the nearest centre, 0 elsewhere. */
static void hard_weights(const uint64_t *label, int64_t T, int64_t padded, int64_t C, double *w)
{
    for (int64_t c = 0; c < C; c++)
        for (int64_t r = 0; r < padded; r++)
            w[c * T + r] = label[r] == (uint64_t)c ? 1.0 : 0.0;
}

/* r = dmin / d2, w = r^(1/(m-1)), S = sum w; memberships u = w / S, or weights u^m = (w r) S^-m and their objective. */
INLINE void fuzzy_rows(const double *d2, int64_t T, int64_t padded, int64_t C, double m, double *w, double *objective,
                       const int two, const int memberships)
{
    const power_of root = power_to(two ? 1.0 : 1.0 / (m - 1.0)), scale = power_to(-m);
    const reals one = splat(1.0);
    for (int64_t r = 0; r < padded; r += LANES) {
        reals least = load(d2 + r);
        for (int64_t c = 1; c < C; c++) {
            reals d = load(d2 + c * T + r);
            least = pick(below(d, least), d, least);
        }
        reals S = splat(0.0);
        for (int64_t c = 0; c < C; c++) {
            reals d = load(d2 + c * T + r);
            reals ratio = pick(equal(d, least), one, least / d);
            reals u = two ? ratio : power(ratio, root);
            S = S + u;
            store(w + c * T + r, memberships ? u : u * ratio);
        }
        if (memberships) {
            for (int64_t c = 0; c < C; c++)
                store(w + c * T + r, load(w + c * T + r) / S);
            continue;
        }
        reals s = two ? one / (S * S) : power(S, scale);
        reals J = splat(0.0);
        for (int64_t c = 0; c < C; c++) {
            reals um = load(w + c * T + r) * s;
            J = J + um * load(d2 + c * T + r);
            store(w + c * T + r, um);
        }
        store(objective + r, J);
    }
}

static void fuzzy_weights(const double *d2, int64_t T, int64_t padded, int64_t C, double m, double *w, double *objective)
{
    if (m == 2.0)
        fuzzy_rows(d2, T, padded, C, m, w, objective, 1, 0);
    else
        fuzzy_rows(d2, T, padded, C, m, w, objective, 0, 0);
}

static void fuzzy_memberships(const double *d2, int64_t T, int64_t padded, int64_t C, double m, double *w)
{
    if (m == 2.0)
        fuzzy_rows(d2, T, padded, C, m, w, NULL, 1, 1);
    else
        fuzzy_rows(d2, T, padded, C, m, w, NULL, 0, 1);
}

/* 1.5 * 2^(52 + unit): after adding it, the bits of a term are those of this number plus the term's integer. */
INLINE double magic(int32_t unit) { return double_of(((uint64_t)(unit + 1075) << 52) | ((uint64_t)1 << 51)); }

/* A term joins a running sum: as an integer, or, in the plain variant, as it is. */
INLINE words add_term(words sum, reals term, reals M, const int plain)
{
    return plain ? bits(from_bits(sum) + term) : sum + bits(term + M);
}

INLINE void add_lanes(uint64_t *to, words sum, const int plain)
{
    uint64_t lane[LANES];
    memcpy(lane, &sum, sizeof sum);
    if (plain) {
        double total = double_of(*to);
        for (int i = 0; i < LANES; i++)
            total += double_of(lane[i]);
        *to = bits_of(total);
    } else {
        for (int i = 0; i < LANES; i++)
            *to += lane[i];
    }
}

/* limbs += the signed 64-bit integer n. */
INLINE void ring_add(uint64_t *limbs, uint64_t n)
{
    limbs[0] += n;
    limbs[1] += (limbs[0] < n) + (n >> 63 ? ~(uint64_t)0 : 0);
}

/* Where the tile after this one lies, so that it travels while this one is summed. */
typedef struct {
    const char *data;
    ptrdiff_t stride;
    int size;
} upcoming;

/* sum[c][f] += w[c] . x[f] over the tile for a few centres and one or two columns. */
INLINE void pull_group(const double *x, const double *w, int64_t T, int64_t padded, const double *M, uint64_t *sum,
                       int64_t width, upcoming next, const int centers, const int features, const int plain)
{
    words total[GROUP][2];
    reals round[GROUP][2];
    for (int i = 0; i < centers; i++)
        for (int j = 0; j < features; j++) {
            total[i][j] = splat_word(0);
            round[i][j] = splat(M[i * width + j]);
        }
    for (int64_t r = 0; r < padded; r += LANES) {
        reals xs[2];
        for (int j = 0; j < features; j++) {
            xs[j] = load(x + j * T + r);
            if (next.data)
                AHEAD(next.data + j * next.stride + r * next.size);
        }
        for (int i = 0; i < centers; i++) {
            reals u = load(w + i * T + r);
            for (int j = 0; j < features; j++)
                total[i][j] = add_term(total[i][j], u * xs[j], round[i][j], plain);
        }
    }
    for (int i = 0; i < centers; i++)
        for (int j = 0; j < features; j++)
            add_lanes(sum + i * width + j, total[i][j], plain);
}

INLINE void pull_columns(const double *x, const double *w, int64_t T, int64_t padded, int64_t width, const double *M,
                         uint64_t *sum, upcoming next, const int centers, const int plain)
{
    int64_t f = 0;
    for (; f + 2 <= width; f += 2) {
        pull_group(x + f * T, w, T, padded, M + f, sum + f, width, next, centers, 2, plain);
        if (next.data)
            next.data += 2 * next.stride;
    }
    if (f < width) {
        next.data = NULL;
        pull_group(x + f * T, w, T, padded, M + f, sum + f, width, next, centers, 1, plain);
    }
}

INLINE void pull(const double *x, const double *w, int64_t T, int64_t padded, int64_t C, int64_t width, const double *M,
                 uint64_t *sum, upcoming next, const int plain)
{
    for (int64_t g = 0, c = 0; c < C; g++) {
        int64_t end = group_start(C, g + 1);
        const double *of = w + c * T, *at = M + c * width;
        uint64_t *to = sum + c * width;
        switch (end - c) {
        case 5: pull_columns(x, of, T, padded, width, at, to, next, 5, plain); break;
        case 4: pull_columns(x, of, T, padded, width, at, to, next, 4, plain); break;
        case 3: pull_columns(x, of, T, padded, width, at, to, next, 3, plain); break;
        case 2: pull_columns(x, of, T, padded, width, at, to, next, 2, plain); break;
        default: pull_columns(x, of, T, padded, width, at, to, next, 1, plain);
        }
        next.data = NULL;
        c = end;
    }
}

/* Everything one sweep needs between tiles. A column of ones after the last makes the mass a pull like the others. */
typedef struct {
    int64_t T, width, pending;
    double *x, *d2, *w, *objective, *M;
    uint64_t *label, *sum, objective_sum;
    double objective_M;
    arena memory;
} sweep_state;

static int sweep_open(sweep_state *s, const sweep_job *job)
{
    int64_t C = job->C, F = job->F;
    int64_t T = tile_rows(F, C, longest(job->blocks, job->count)), width = F + 1;
    if (!arena_open(&s->memory, (size_t)(T * (width + 2 * C + 2) + 2 * C * width), 7))
        return -1;
    s->T = T;
    s->width = width;
    s->pending = 0;
    s->x = take(&s->memory, T * width);
    s->d2 = take(&s->memory, T * C);
    s->w = take(&s->memory, T * C);
    s->objective = take(&s->memory, T);
    s->label = take(&s->memory, T);
    s->M = take(&s->memory, C * width);
    s->sum = take(&s->memory, C * width);
    for (int64_t i = 0; i < C * width; i++)
        s->sum[i] = 0;
    s->objective_sum = 0;
    for (int64_t r = 0; r < T; r++)
        s->x[F * T + r] = 1.0;
    for (int64_t c = 0; c < C; c++) {
        for (int64_t f = 0; f < F; f++)
            s->M[c * width + f] = job->plain ? 0.0 : magic(job->pull_unit[c * F + f]);
        s->M[c * width + F] = job->plain ? 0.0 : magic(job->mass_unit[c]);
    }
    s->objective_M = job->plain ? 0.0 : magic(job->objective_unit);
    return 0;
}

static void deliver(void *to, int64_t at, uint64_t *sum, double M, uint64_t rows, int plain)
{
    if (plain)
        ((double *)to)[at] += double_of(*sum);
    else
        ring_add((uint64_t *)to + 2 * at, *sum - rows * bits_of(M));
    *sum = 0;
}

static void sweep_flush(sweep_state *s, const sweep_job *job)
{
    uint64_t rows = (uint64_t)s->pending;
    for (int64_t c = 0; c < job->C; c++) {
        uint64_t *sum = s->sum + c * s->width;
        const double *M = s->M + c * s->width;
        for (int64_t f = 0; f < job->F; f++)
            deliver(job->pull, c * job->F + f, sum + f, M[f], rows, job->plain);
        deliver(job->mass, c, sum + job->F, M[job->F], rows, job->plain);
    }
    if (job->objective)
        deliver(job->objective, 0, &s->objective_sum, s->objective_M, rows, job->plain);
    s->pending = 0;
}

static upcoming tile_after(const sweep_job *job, int64_t b, int64_t row)
{
    const columns *block = job->blocks + b;
    if (row >= block->rows) {
        row = 0;
        block = b + 1 < job->count ? block + 1 : NULL;
    }
    upcoming next = {block ? block->data + row * block->size : NULL, block ? block->stride : 0, block ? block->size : 0};
    return next;
}

INLINE void sweep_tile(sweep_state *s, const sweep_job *job, int64_t b, int64_t row, int64_t n, const int plain)
{
    const int64_t T = s->T, padded = up_to_step(n);
    load_tile(s->x, T, job->blocks + b, job->F, row, n);
    if (job->rule == GIVEN) {
        load_tile(s->w, T, job->weights + b, job->C, row, n);
        for (int64_t r = 0; r < padded; r++)
            s->objective[r] = 0.0;
    } else {
        distances(s->x, T, padded, job->centers, job->C, job->F, s->d2);
        if (job->rule == HARD) {
            nearest(s->d2, T, padded, job->C, s->objective, s->label);
            hard_weights(s->label, T, padded, job->C, s->w);
        } else {
            fuzzy_weights(s->d2, T, padded, job->C, job->m, s->w, s->objective);
        }
    }
    for (int64_t r = n; r < padded; r++) {
        s->objective[r] = 0.0;
        for (int64_t c = 0; c < job->C; c++)
            s->w[c * T + r] = 0.0;
    }
    pull(s->x, s->w, T, padded, job->C, s->width, s->M, s->sum, tile_after(job, b, row + T), plain);
    words total = splat_word(0);
    for (int64_t r = 0; r < padded; r += LANES)
        total = add_term(total, load(s->objective + r), splat(s->objective_M), plain);
    add_lanes(&s->objective_sum, total, plain);
    s->pending += padded;
}

static int sweep(const sweep_job *job)
{
    sweep_state s;
    if (sweep_open(&s, job))
        return -1;
    for (int64_t b = 0; b < job->count; b++)
        for (int64_t row = 0; row < job->blocks[b].rows; row += s.T) {
            int64_t n = smaller(s.T, job->blocks[b].rows - row);
            if (s.pending + s.T > PENDING)
                sweep_flush(&s, job);
            if (job->plain)
                sweep_tile(&s, job, b, row, n, 1);
            else
                sweep_tile(&s, job, b, row, n, 0);
        }
    sweep_flush(&s, job);
    free(s.memory.start);
    return 0;
}

static int rows(const rows_job *job)
{
    const int64_t C = job->C, F = job->F, all = job->block.rows;
    const int64_t T = tile_rows(F, C, all);
    arena memory;
    if (!arena_open(&memory, (size_t)(T * (F + 2 * C + 2)), 5))
        return -1;
    double *x = take(&memory, T * F), *d2 = take(&memory, T * C), *w = take(&memory, T * C), *one = take(&memory, T);
    uint64_t *label = take(&memory, T);
    for (int64_t row = 0; row < all; row += T) {
        const int64_t n = smaller(T, all - row), padded = up_to_step(n);
        if (job->centers) {
            load_tile(x, T, &job->block, F, row, n);
            distances(x, T, padded, job->centers, C, F, d2);
        } else {
            load_tile(d2, T, &job->block, C, row, n);
        }
        const double *answer = d2;
        if (job->answer == NEAREST) {
            nearest(d2, T, padded, C, one, label);
            memcpy(job->out + row, one, (size_t)n * 8);
            for (int64_t r = 0; r < n; r++)
                job->labels[row + r] = (int32_t)label[r];
            continue;
        }
        if (job->answer == MEMBERSHIPS)
            fuzzy_memberships(d2, T, padded, C, job->m, w);
        if (job->answer == WEIGHTS)
            fuzzy_weights(d2, T, padded, C, job->m, w, one);
        if (job->answer != SQUARED)
            answer = w;
        for (int64_t c = 0; c < C; c++)
            memcpy(job->out + c * job->out_row + row, answer + c * T, (size_t)n * 8);
    }
    free(memory.start);
    return 0;
}

#define FEATURES_PENDING 1024

/* Each term (x - v)^2 = h + l, h a multiple of 2^(unit + 51), l rounded to 2^unit: two integers a term, both exact. */
static int exact(const exact_job *job)
{
    const int64_t C = job->C, F = job->F, all = job->block.rows;
    const int64_t T = tile_rows(F, 1, all);
    const double coarse = magic(job->unit + 51), fine = magic(job->unit);
    arena memory;
    if (!arena_open(&memory, (size_t)(T * F), 1))
        return -1;
    double *x = take(&memory, T * F);
    for (int64_t row = 0; row < all; row += T) {
        const int64_t n = smaller(T, all - row), padded = up_to_step(n);
        load_tile(x, T, &job->block, F, row, n);
        for (int64_t c = 0; c < C; c++)
            for (int64_t r = 0; r < padded; r += LANES) {
                uint64_t limbs[LANES][2] = {{0}};
                for (int64_t f = 0; f < F;) {
                    const int64_t end = smaller(F, f + FEATURES_PENDING);
                    const uint64_t terms = (uint64_t)(end - f);
                    words high = splat_word(0), low = splat_word(0);
                    for (; f < end; f++) {
                        reals t = load(x + f * T + r) - splat(job->centers[c * F + f]);
                        t = t * t;
                        reals up = t + splat(coarse);
                        high = high + bits(up);
                        low = low + bits((t - (up - splat(coarse))) + splat(fine));
                    }
                    uint64_t h[LANES], l[LANES];
                    memcpy(h, &high, sizeof high);
                    memcpy(l, &low, sizeof low);
                    for (int i = 0; i < LANES; i++) {
                        const uint64_t big = h[i] - terms * bits_of(coarse); /* never negative: terms are squares */
                        ring_add(limbs[i], l[i] - terms * bits_of(fine));
                        limbs[i][0] += big << 51;
                        limbs[i][1] += (big >> 13) + (limbs[i][0] < big << 51);
                    }
                }
                for (int i = 0; i < LANES && r + i < n; i++)
                    memcpy(job->out + c * job->out_row + 2 * (row + r + i), limbs[i], 16);
            }
    }
    free(memory.start);
    return 0;
}

/* The exact sum of each column. */
static int totals(const columns *block, int64_t count, const int32_t *unit, uint64_t *out)
{
    double x[PENDING];
    for (int64_t k = 0; k < count; k++) {
        columns one = {block->data + k * block->stride, 0, block->rows, block->size};
        const double M = magic(unit[k]);
        for (int64_t row = 0; row < block->rows; row += PENDING) {
            const int64_t n = smaller(PENDING, block->rows - row), padded = up_to_step(n);
            load_tile(x, PENDING, &one, 1, row, n);
            words sum[ABREAST];
            for (int j = 0; j < ABREAST; j++)
                sum[j] = splat_word(0);
            for (int64_t r = 0; r < padded; r += STEP)
                for (int j = 0; j < ABREAST; j++)
                    sum[j] = sum[j] + bits(load(x + r + j * LANES) + splat(M));
            uint64_t total = 0;
            for (int j = 0; j < ABREAST; j++)
                add_lanes(&total, sum[j], 0);
            ring_add(out + 2 * k, total - (uint64_t)padded * bits_of(M));
        }
    }
    return 0;
}
