/* The sweeps, tile by tile. A tile holds some rows of every column, side by side, padded to whole vectors. */
#include "_jobs.h"
#include "_lanes.h"
#include "_elementary.h"

#define STEP (LANES * ABREAST)
#define GROUP 5                              /* centres that share one load of a column */
#define PENDING 2048                         /* rows whose integers, at most 2^51 each, fit 64 bits together */

static int64_t up_to_step(int64_t n) { return (n + STEP - 1) / STEP * STEP; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows of a tile: what is read again and again stays in the second cache, next to the tile that follows. */
static int64_t tile_rows(int64_t F, int64_t C, int64_t most)
{
    return smaller(F + 2 * C <= 160 ? 256 : 128, most > 0 ? up_to_step(most) : STEP);
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

/* The columns of a tile: column f begins at x + f * apart. */
typedef struct {
    const double *x;
    int64_t apart;
} tile;

/* A block's own memory where its rows fill whole vectors, else a padded copy in `spare`. */
static tile tile_of(const columns *block, int64_t F, int64_t row, int64_t n, double *spare, int64_t T)
{
    tile t = {spare, T};
    if (block->size == 8 && n % STEP == 0 && block->stride % 8 == 0) {
        t.x = (const double *)(block->data + row * 8);
        t.apart = block->stride / 8;
    } else {
        load_tile(spare, T, block, F, row, n);
    }
    return t;
}

/* d2 of STEP rows to a few centres: features are added in their order, rows lie side by side. */
INLINE void distance_group(tile t, const double *v, int64_t F, double *d2, int64_t T, const int centers)
{
    reals sum[GROUP][ABREAST];
    for (int i = 0; i < centers; i++)
        EACH
            sum[i][j] = splat(0.0);
    for (int64_t f = 0; f < F; f++) {
        reals xs[ABREAST];
        EACH
            xs[j] = load(t.x + f * t.apart + j * LANES);
        for (int i = 0; i < centers; i++) {
            reals at = splat(v[i * F + f]);
            EACH {
                reals away = xs[j] - at;
                sum[i][j] = sum[i][j] + away * away;
            }
        }
    }
    for (int i = 0; i < centers; i++)
        EACH
            store(d2 + i * T + j * LANES, sum[i][j]);
}

/* Centres in groups of nearly equal size, at most GROUP each: the g-th group begins here. */
INLINE int64_t group_start(int64_t C, int64_t g)
{
    int64_t groups = (C + GROUP - 1) / GROUP;
    return g * (C / groups) + smaller(g, C % groups);
}

static void distances(tile t, int64_t T, int64_t padded, const double *v, int64_t C, int64_t F, double *d2)
{
    for (int64_t r = 0; r < padded; r += STEP, t.x += STEP)
        for (int64_t g = 0, c = 0; c < C; g++) {
            int64_t end = group_start(C, g + 1);
            const double *at = v + c * F;
            double *to = d2 + c * T + r;
            switch (end - c) {
            case 5: distance_group(t, at, F, to, T, 5); break;
            case 4: distance_group(t, at, F, to, T, 4); break;
            case 3: distance_group(t, at, F, to, T, 3); break;
            case 2: distance_group(t, at, F, to, T, 2); break;
            default: distance_group(t, at, F, to, T, 1);
            }
            c = end;
        }
}

/* The lowest index among the nearest centres, and its squared distance. */
static void nearest(const double *d2, int64_t T, int64_t padded, int64_t C, double *least, uint64_t *label)
{
    for (int64_t r = 0; r < padded; r += LANES) {
        reals best = load(d2 + r), index = from_bits(splat_word(0));
        for (int64_t c = 1; c < C; c++) {
            reals d = load(d2 + c * T + r);
            index = if_below(d, best, from_bits(splat_word((uint64_t)c)), index);
            best = lesser(d, best);
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

/* r = dmin / d2, w = r^(1/(m-1)), S = sum w; memberships u = w / S, or weights u^m = (w r) S^-m and their objective.
 * STEP rows at once. */
INLINE void fuzzy_rows(const double *d2, int64_t T, int64_t padded, int64_t C, double m, double *w, double *objective,
                       const int two, const int memberships)
{
    const power_of root = power_to(two ? 1.0 : 1.0 / (m - 1.0)), scale = power_to(-m);
    for (int64_t r = 0; r < padded; r += LANES * ABREAST) {
        reals least[ABREAST], S[ABREAST], s[ABREAST], J[ABREAST];
        EACH least[j] = load(d2 + r + j * LANES);
        for (int64_t c = 1; c < C; c++)
            EACH least[j] = lesser(load(d2 + c * T + r + j * LANES), least[j]);
        EACH S[j] = splat(0.0);
        for (int64_t c = 0; c < C; c++) {
            reals ratio[ABREAST], u[ABREAST];
            EACH {
                reals d = load(d2 + c * T + r + j * LANES);
                ratio[j] = if_equal(d, least[j], splat(1.0), least[j] / d);
            }
            if (two)
                EACH u[j] = ratio[j];
            else
                power(ratio, root, u);
            EACH S[j] = S[j] + u[j];
            EACH store(w + c * T + r + j * LANES, memberships ? u[j] : u[j] * ratio[j]);
        }
        if (memberships) {
            for (int64_t c = 0; c < C; c++)
                EACH store(w + c * T + r + j * LANES, load(w + c * T + r + j * LANES) / S[j]);
            continue;
        }
        if (two)
            EACH s[j] = splat(1.0) / (S[j] * S[j]);
        else
            power(S, scale, s);
        EACH J[j] = splat(0.0);
        for (int64_t c = 0; c < C; c++)
            EACH {
                reals um = load(w + c * T + r + j * LANES) * s[j];
                J[j] = J[j] + um * load(d2 + c * T + r + j * LANES);
                store(w + c * T + r + j * LANES, um);
            }
        EACH store(objective + r + j * LANES, J[j]);
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

INLINE uint64_t joined(uint64_t a, uint64_t b, const int plain)
{
    return plain ? bits_of(double_of(a) + double_of(b)) : a + b;
}

INLINE words join(words a, words b, const int plain)
{
    return plain ? bits(from_bits(a) + from_bits(b)) : a + b;
}

INLINE void add_lanes(uint64_t *to, words sum, const int plain)
{
    uint64_t lane[LANES];
    memcpy(lane, &sum, sizeof sum);
    for (int i = 0; i < LANES; i++)
        *to = joined(*to, lane[i], plain);
}

/* Two sums of each of some centres join their totals, which lie side by side. */
INLINE void add_pairs(uint64_t *to, words sums[GROUP][2], const int centers, const int plain)
{
#if LANES == 8
    words pair[GROUP + 3];
    for (int i = 0; i < centers; i++)
        pair[i] = join(evens(sums[i][0], sums[i][1]), odds(sums[i][0], sums[i][1]), plain);
    for (int i = centers; i < (centers + 3) / 4 * 4; i++)
        pair[i] = pair[centers - 1];
    for (int i = 0; i < centers; i += 4) {
        words ab = join(even_pairs(pair[i], pair[i + 1]), odd_pairs(pair[i], pair[i + 1]), plain);
        words cd = join(even_pairs(pair[i + 2], pair[i + 3]), odd_pairs(pair[i + 2], pair[i + 3]), plain);
        words all = join(even_pairs(ab, cd), odd_pairs(ab, cd), plain), before = splat_word(0);
        const size_t size = (size_t)(centers - i < 4 ? centers - i : 4) * 16;
        memcpy(&before, to + 2 * i, size);
        all = join(all, before, plain);
        memcpy(to + 2 * i, &all, size);
    }
#else
    for (int i = 0; i < centers; i++)
        for (int j = 0; j < 2; j++)
            add_lanes(to + 2 * i + j, sums[i][j], plain);
#endif
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

/* How the rounding constants of the pull lie in memory: one row for each centre, or (apart = 0) one for all. */
typedef struct {
    const double *M;
    int64_t apart;
} rounding;

/* Sums of a group of centres lie together, for two columns at a time: here begins the pair with column f. */
INLINE int64_t pair_at(int64_t first, int64_t centers, int64_t F, int64_t f)
{
    return first * (F + F % 2) + f / 2 * 2 * centers;
}

/* sum[c][f] += w[c] . x[f] over the tile for a few centres and two columns, or one. */
INLINE void pull_group(tile t, const double *w, int64_t T, int64_t padded, rounding to, uint64_t *sum, upcoming next,
                       const int centers, const int features, const int plain)
{
    words total[GROUP][2];
    reals round[GROUP][2];
    for (int i = 0; i < centers; i++)
        for (int j = 0; j < 2; j++) {
            total[i][j] = splat_word(0);
            round[i][j] = splat(to.M[i * to.apart + (j < features ? j : 0)]);
        }
    for (int64_t r = 0; r < padded; r += LANES) {
        reals xs[2];
        for (int j = 0; j < features; j++) {
            xs[j] = load(t.x + j * t.apart + r);
            if (next.data)
                AHEAD(next.data + j * next.stride + r * next.size);
        }
        for (int i = 0; i < centers; i++) {
            reals u = load(w + i * T + r);
            for (int j = 0; j < features; j++)
                total[i][j] = add_term(total[i][j], u * xs[j], round[i][j], plain);
        }
    }
    add_pairs(sum, total, centers, plain);
}

INLINE void pull_columns(tile t, const double *w, int64_t T, int64_t padded, int64_t F, rounding to, uint64_t *sum,
                         upcoming next, const int centers, const int plain)
{
    for (int64_t f = 0; f < F; f += 2) {
        if (f + 1 < F)
            pull_group(t, w, T, padded, to, sum, next, centers, 2, plain);
        else
            pull_group(t, w, T, padded, to, sum, next, centers, 1, plain);
        sum += 2 * centers;
        to.M += 2;
        t.x += 2 * t.apart;
        if (next.data)
            next.data += 2 * next.stride;
    }
}

INLINE void pull(tile t, const double *w, int64_t T, int64_t padded, int64_t C, int64_t F, rounding to, uint64_t *sum,
                 upcoming next, const int plain)
{
    for (int64_t g = 0, c = 0; c < C; g++) {
        const int64_t end = group_start(C, g + 1);
        const double *of = w + c * T;
        const rounding at = {to.M + c * to.apart, to.apart};
        uint64_t *here = sum + pair_at(c, end - c, F, 0);
        switch (end - c) {
        case 5: pull_columns(t, of, T, padded, F, at, here, next, 5, plain); break;
        case 4: pull_columns(t, of, T, padded, F, at, here, next, 4, plain); break;
        case 3: pull_columns(t, of, T, padded, F, at, here, next, 3, plain); break;
        case 2: pull_columns(t, of, T, padded, F, at, here, next, 2, plain); break;
        default: pull_columns(t, of, T, padded, F, at, here, next, 1, plain);
        }
        next.data = NULL;
        c = end;
    }
}

/* sum += each value of a tile's row. */
INLINE void add_up(const double *x, int64_t padded, double M, uint64_t *sum, const int plain)
{
    words a = splat_word(0), b = splat_word(0);
    for (int64_t r = 0; r < padded; r += 2 * LANES) {
        a = add_term(a, load(x + r), splat(M), plain);
        b = add_term(b, load(x + r + LANES), splat(M), plain);
    }
    add_lanes(sum, join(a, b, plain), plain);
}

#define ACROSS 8 /* columns that are turned into rows together */

/* Eight rows of eight columns, turned: out[i] holds row i. */
INLINE void turn(const uint64_t in[ACROSS][8], uint64_t out[8][ACROSS])
{
#if LANES == 8
    words x[8], y[8];
    memcpy(x, in, sizeof x);
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
    memcpy(out, x, sizeof x);
#else
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < ACROSS; j++)
            out[i][j] = in[j][i];
#endif
}

/* sum[label of r][f] += x[f][r]: eight columns become rows, and each row joins its cluster's sums in one stroke.
 * Columns past the last count as zeros, and reach at most ACROSS sums too far. */
INLINE void pull_rows(tile t, const uint64_t *label, int64_t n, int64_t F, const double *M, uint64_t *sum,
                      upcoming next, const int plain)
{
    for (int64_t f = 0; f < F; f += ACROSS) {
        const int64_t across = smaller(ACROSS, F - f);
        const double *x = t.x + f * t.apart;
        for (int64_t r = 0; r < n; r += 8) {
            uint64_t column[ACROSS][8] = {{0}}, row[8][ACROSS];
            for (int64_t j = 0; j < across; j++) {
                for (int i = 0; i < 8; i += LANES) {
                    reals term = load(x + j * t.apart + r + i);
                    words b = plain ? bits(term) : bits(term + splat(M[f + j]));
                    memcpy(&column[j][i], &b, sizeof b);
                }
                if (next.data)
                    AHEAD(next.data + (f + j) * next.stride + r * next.size);
            }
            turn((const uint64_t(*)[8])column, row);
            for (int64_t i = 0; i < smaller(8, n - r); i++) {
                uint64_t *to = sum + label[r + i] * (uint64_t)F + f;
                for (int j = 0; j < ACROSS; j += LANES) {
                    words a, b;
                    memcpy(&a, to + j, sizeof a);
                    memcpy(&b, &row[i][j], sizeof b);
                    a = join(a, b, plain);
                    memcpy(to + j, &a, sizeof a);
                }
            }
        }
    }
}

/* Everything one sweep needs between tiles. */
typedef struct {
    int64_t T, pending;
    int by_rows; /* hard, with one unit a column: rows join their cluster's sums without passing by weights */
    rounding pull_M;
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
    if (!arena_open(&s->memory, (size_t)(T * (F + 2 * C + 2) + constants + sums + 3 * C), 10))
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

/* Whole numbers of rows were counted: their mass is that many ones. */
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

/* Weights of a tile's rows, zero for the padding, and each row's part of the objective. */
static void weigh(sweep_state *s, const sweep_job *job, tile t, int64_t b, int64_t row, int64_t n)
{
    const int64_t T = s->T, padded = up_to_step(n);
    if (job->rule == GIVEN) {
        load_tile(s->w, T, job->weights + b, job->C, row, n);
        memset(s->objective, 0, (size_t)padded * 8);
        return;
    }
    distances(t, T, padded, job->centers, job->C, job->F, s->d2);
    if (job->rule == FUZZY) {
        fuzzy_weights(s->d2, T, padded, job->C, job->m, s->w, s->objective);
    } else {
        nearest(s->d2, T, padded, job->C, s->objective, s->label);
        if (!s->by_rows)
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
    weigh(s, job, t, b, row, n);
    if (s->by_rows) {
        for (int64_t r = 0; r < n; r++)
            s->count[s->label[r]]++;
        pull_rows(t, s->label, n, job->F, s->pull_M.M, s->pull, next, plain);
    } else {
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
            distances(tile_of(&job->block, F, row, n, x, T), T, padded, job->centers, C, F, d2);
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
