/* The functions that the module calls, computed tile by tile. */
#include "_jobs.h"
#include "_lanes.h"
#include "_elementary.h"
#include "_distances.h"
#include "_floats.h"
#include "_sketch.h"
#include "_nearest.h"
#include "_memberships.h"
#include "_sums.h"

/* The state of one sweep between tiles. */
typedef struct {
    int64_t T, pending;
    int by_rows; /* hard clusters, one unit per column: rows are added to their cluster's sums without weights */
    rounding pull_M;
    search search;
    double *spare, *d2, *w, *objective, *mass_M, objective_M;
    uint64_t *label, *count, *pull, *mass, objective_sum;
    arena memory;
} sweep_state;

static int same_in_each_cluster(const int32_t *unit, int64_t C, int64_t F)
{
    for (int64_t i = F; i < C * F; i++)
        if (unit[i] != unit[i - F])
            return 0;
    return 1;
}

static int sweep_open(sweep_state *s, const sweep_job *job)
{
    const int64_t C = job->C, F = job->F, T = tile_rows(F, C, longest(job->blocks, job->count));
    const int shared = job->plain || same_in_each_cluster(job->pull_unit, C, F);
    const int64_t constants = shared ? F : C * F, sums = C * (F + 1) + ACROSS;
    const int64_t sought = job->rule == HARD ? search_size(C, F, T) : 0;
    if (!arena_open(&s->memory, (size_t)(T * (F + 2 * C + 2) + constants + sums + 3 * C + sought), 10 + SEARCH_PIECES))
        return -1;
    s->T = T;
    s->pending = 0;
    s->spare = take(&s->memory, T * F);
    s->d2 = take(&s->memory, T * C);
    s->w = take(&s->memory, T * C);
    s->objective = take(&s->memory, T);
    s->label = take(&s->memory, T);
    s->count = take(&s->memory, C);
    s->mass_M = take(&s->memory, C);
    s->mass = take(&s->memory, C);
    s->pull = take(&s->memory, sums);
    double *M = take(&s->memory, constants);
    memset(s->count, 0, (size_t)C * 8);
    memset(s->mass, 0, (size_t)C * 8);
    memset(s->pull, 0, (size_t)sums * 8);
    s->objective_sum = 0;
    for (int64_t i = 0; i < constants; i++)
        M[i] = job->plain ? 0.0 : magic(job->pull_unit[i]);
    s->pull_M.M = M;
    s->pull_M.apart = shared ? 0 : F;
    for (int64_t c = 0; c < C; c++)
        s->mass_M[c] = job->plain ? 0.0 : magic(job->mass_unit[c]);
    s->objective_M = job->plain ? 0.0 : magic(job->objective_unit);
    if (job->rule == HARD)
        search_open(&s->search, &s->memory, job->centers, C, F, T);
    s->by_rows = job->rule == HARD && shared && C * F > 4 * ACROSS * ((F + ACROSS - 1) / ACROSS);
    return 0;
}

static void deliver(void *to, int64_t at, uint64_t *sum, double M, uint64_t terms, int plain)
{
    if (plain)
        ((double *)to)[at] += double_of(*sum);
    else
        ring_add((uint64_t *)to + 2 * at, *sum - terms * bits_of(M));
    *sum = 0;
}

/* Rows were counted, so the mass is that many ones. */
static void count_mass(sweep_state *s, const sweep_job *job)
{
    for (int64_t c = 0; c < job->C; c++)
        s->mass[c] = job->plain ? bits_of((double)s->count[c]) : s->count[c] * bits_of(1.0 + s->mass_M[c]);
}

static void sweep_flush(sweep_state *s, const sweep_job *job)
{
    const int64_t C = job->C, F = job->F;
    if (s->by_rows)
        count_mass(s, job);
    for (int64_t g = 0, first = 0; first < C; g++) {
        const int64_t end = group_start(C, g + 1);
        for (int64_t c = first; c < end; c++) {
            const uint64_t terms = s->by_rows ? s->count[c] : (uint64_t)s->pending;
            for (int64_t f = 0; f < F; f++) {
                const int64_t at = s->by_rows ? c * F + f : pair_at(first, end - first, F, f) + 2 * (c - first) + f % 2;
                deliver(job->pull, c * F + f, s->pull + at, s->pull_M.M[c * s->pull_M.apart + f], terms, job->plain);
            }
            deliver(job->mass, c, s->mass + c, s->mass_M[c], terms, job->plain);
            s->count[c] = 0;
        }
        first = end;
    }
    if (job->objective)
        deliver(job->objective, 0, &s->objective_sum, s->objective_M, (uint64_t)s->pending, job->plain);
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

/* Labels of a tile's rows; adds rows to their cluster's sums, and their distances to the objective. */
INLINE void sweep_rows(sweep_state *s, const sweep_job *job, tile t, int64_t n, upcoming next, const int plain)
{
    const int64_t padded = up_to_step(n);
    const int known = find_labels(&s->search, t, padded, s->d2, s->objective, s->label);
    if (!known)
        memset(s->objective, 0, (size_t)padded * 8);
    for (int64_t r = 0; r < n; r++)
        s->count[s->label[r]]++;
    pull_rows(t, s->label, n, job->F, s->pull_M.M, s->pull, next, known ? NULL : job->centers, s->objective, plain);
    memset(s->objective + n, 0, (size_t)(padded - n) * 8);
}

/* Weights of a tile's rows, zero for the padding, and each row's share of the objective. */
static void weigh(sweep_state *s, const sweep_job *job, tile t, int64_t b, int64_t row, int64_t n)
{
    const int64_t T = s->T, padded = up_to_step(n);
    if (job->rule == GIVEN) {
        load_tile(s->w, T, job->weights + b, job->C, row, n);
        memset(s->objective, 0, (size_t)padded * 8);
        return;
    }
    if (job->rule == FUZZY) {
        distances(t, T, padded, job->centers, job->C, job->F, s->d2);
        fuzzy_weights(s->d2, T, padded, job->C, job->m, s->w, s->objective);
    } else {
        find_nearest(&s->search, t, padded, s->d2, s->objective, s->label);
        hard_weights(s->label, T, padded, job->C, s->w);
    }
    for (int64_t r = n; r < padded; r++) {
        s->objective[r] = 0.0;
        for (int64_t c = 0; c < job->C; c++)
            s->w[c * T + r] = 0.0;
    }
}

INLINE void sweep_tile(sweep_state *s, const sweep_job *job, int64_t b, int64_t row, int64_t n, const int plain)
{
    const int64_t T = s->T, padded = up_to_step(n);
    const tile t = tile_of(job->blocks + b, job->F, row, n, s->spare, T);
    const upcoming next = tile_after(job, b, row + T);
    if (s->by_rows) {
        sweep_rows(s, job, t, n, next, plain);
    } else {
        weigh(s, job, t, b, row, n);
        for (int64_t c = 0; c < job->C; c++)
            add_up(s->w + c * T, padded, s->mass_M[c], s->mass + c, plain);
        pull(t, s->w, T, padded, job->C, job->F, s->pull_M, s->pull, next, plain);
    }
    add_up(s->objective, padded, s->objective_M, &s->objective_sum, plain);
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

/* The nearest centre of each row, from distances that are given or computed. */
static int nearest_rows(const rows_job *job)
{
    const int64_t C = job->C, F = job->F, all = job->block.rows, T = tile_rows(F, C, all);
    arena memory;
    if (!arena_open(&memory, (size_t)(T * (F + C + 2) + search_size(C, F, T)), 4 + SEARCH_PIECES))
        return -1;
    double *spare = take(&memory, T * F), *d2 = take(&memory, T * C), *least = take(&memory, T);
    uint64_t *label = take(&memory, T);
    search s;
    search_open(&s, &memory, job->centers, C, F, T);
    for (int64_t row = 0; row < all; row += T) {
        const int64_t n = smaller(T, all - row), padded = up_to_step(n);
        if (job->centers) {
            find_nearest(&s, tile_of(&job->block, F, row, n, spare, T), padded, d2, least, label);
        } else {
            load_tile(d2, T, &job->block, C, row, n);
            nearest(d2, T, padded, C, least, label);
        }
        memcpy(job->out + row, least, (size_t)n * 8);
        for (int64_t r = 0; r < n; r++)
            job->labels[row + r] = (int32_t)label[r];
    }
    free(memory.start);
    return 0;
}

static int rows(const rows_job *job)
{
    if (job->answer == NEAREST)
        return nearest_rows(job);
    const int64_t C = job->C, F = job->F, all = job->block.rows, T = tile_rows(F, C, all);
    arena memory;
    if (!arena_open(&memory, (size_t)(T * (F + 2 * C + 1)), 4))
        return -1;
    double *spare = take(&memory, T * F), *d2 = take(&memory, T * C), *w = take(&memory, T * C);
    double *objective = take(&memory, T);
    for (int64_t row = 0; row < all; row += T) {
        const int64_t n = smaller(T, all - row), padded = up_to_step(n);
        if (job->centers)
            distances(tile_of(&job->block, F, row, n, spare, T), T, padded, job->centers, C, F, d2);
        else
            load_tile(d2, T, &job->block, C, row, n);
        if (job->answer == MEMBERSHIPS)
            fuzzy_memberships(d2, T, padded, C, job->m, w);
        if (job->answer == WEIGHTS)
            fuzzy_weights(d2, T, padded, C, job->m, w, objective);
        const double *answer = job->answer == SQUARED ? d2 : w;
        for (int64_t c = 0; c < C; c++)
            memcpy(job->out + c * job->out_row + row, answer + c * T, (size_t)n * 8);
    }
    free(memory.start);
    return 0;
}

#define FEATURES_PENDING 1024

/* Each term (x - v)^2 = h + l, h a multiple of 2^(unit + 51), l rounded to 2^unit: two integers per term, both exact. */
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
        const tile t = tile_of(&job->block, F, row, n, x, T);
        for (int64_t c = 0; c < C; c++)
            for (int64_t r = 0; r < padded; r += LANES) {
                uint64_t limbs[LANES][2] = {{0}};
                for (int64_t f = 0; f < F;) {
                    const int64_t end = smaller(F, f + FEATURES_PENDING);
                    const uint64_t terms = (uint64_t)(end - f);
                    words high = splat_word(0), low = splat_word(0);
                    for (; f < end; f++) {
                        reals term = load(t.x + f * t.apart + r) - splat(job->centers[c * F + f]);
                        term = term * term;
                        reals up = term + splat(coarse);
                        high = high + bits(up);
                        low = low + bits((term - (up - splat(coarse))) + splat(fine));
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
            EACH
                sum[j] = splat_word(0);
            for (int64_t r = 0; r < padded; r += STEP)
                EACH
                    sum[j] = sum[j] + bits(load(x + r + j * LANES) + splat(M));
            uint64_t total = 0;
            EACH
                add_lanes(&total, sum[j], 0);
            ring_add(out + 2 * k, total - (uint64_t)padded * bits_of(M));
        }
    }
    return 0;
}
