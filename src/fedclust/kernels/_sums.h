/* Sums over the rows of a tile; each term is rounded to an integer before it is added. */

#define PENDING 2048 /* rows whose integers, at most 2^51 each, have a sum that fits 64 bits */

/* 1.5 * 2^(52 + unit): after adding it, the bits of a term are those of this number plus the term's integer. */
INLINE double magic(int32_t unit) { return double_of(((uint64_t)(unit + 1075) << 52) | ((uint64_t)1 << 51)); }

/* Adds a term to a running sum: as an integer or, in the plain variant, unchanged. */
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

/* Adds two sums of each of some centres to their totals, which are adjacent. */
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

/* The layout of the rounding constants of the pull: one row for each centre, or (apart = 0) one for all. */
typedef struct {
    const double *M;
    int64_t apart;
} rounding;

/* Sums of a group of centres are stored together, two columns at a time; this is the start of the pair with column f. */
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

#define ACROSS 8 /* columns that are transposed together */

/* sum[label of r][f] += x[f][r] for up to eight columns: they are transposed, and each row is added to its cluster's
 * sums at once. Missing columns count as zeros and touch at most ACROSS sums beyond the end. With centres v, this also
 * adds these columns' share to the squared distances of rows to their own centres. */
INLINE void pull_across(tile t, const uint64_t *label, int64_t n, int64_t F, const double *M, uint64_t *sum,
                        upcoming next, const double *v, double *d2, const int64_t across, const int plain)
{
    for (int64_t r = 0; r < (v ? n : 0); r += LANES)
        store(d2 + r, add_own(load(d2 + r), t, r, v, F, label, across));
    for (int64_t r = 0; r < n; r += 8) {
        for (int64_t j = 0; j < (next.data ? across : 0); j++)
            AHEAD(next.data + j * next.stride + r * next.size);
#if LANES == 8
        words row[8];
        for (int64_t j = 0; j < 8; j++) {
            const reals term = j < across ? load(t.x + j * t.apart + r) : splat(0.0);
            row[j] = bits(plain || j >= across ? term : term + splat(M[j]));
        }
        turn(row);
        for (int i = 0; i < 8 && i < n - r; i++) {
            uint64_t *to = sum + label[r + i] * (uint64_t)F;
            words before;
            memcpy(&before, to, sizeof before);
            before = join(before, row[i], plain);
            memcpy(to, &before, sizeof before);
        }
#else
        uint64_t row[8][ACROSS] = {{0}};
        for (int64_t j = 0; j < across; j++)
            for (int i = 0; i < 8; i++) {
                const double term = t.x[j * t.apart + r + i];
                row[i][j] = bits_of(plain ? term : term + M[j]);
            }
        for (int64_t i = 0; i < smaller(8, n - r); i++) {
            uint64_t *to = sum + label[r + i] * (uint64_t)F;
            for (int j = 0; j < ACROSS; j++)
                to[j] = joined(to[j], row[i][j], plain);
        }
#endif
    }
}

INLINE void pull_rows(tile t, const uint64_t *label, int64_t n, int64_t F, const double *M, uint64_t *sum,
                      upcoming next, const double *v, double *d2, const int plain)
{
    for (int64_t f = 0; f < F; f += ACROSS) {
        const double *at = v ? v + f : NULL;
        if (F - f < ACROSS)
            pull_across(t, label, n, F, M + f, sum + f, next, at, d2, F - f, plain);
        else if (v)
            pull_across(t, label, n, F, M + f, sum + f, next, at, d2, ACROSS, plain);
        else
            pull_across(t, label, n, F, M + f, sum + f, next, NULL, NULL, ACROSS, plain);
        t.x += ACROSS * t.apart;
        if (next.data)
            next.data += ACROSS * next.stride;
    }
}
