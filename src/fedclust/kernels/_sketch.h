/* A sketch of squared distances in floats, and its largest error against the strict distances.
 *
 * Rows and centres are shifted by the centres' mean and scaled by a power of two, so that the farthest centre has a norm
 * V in [1, 2). The score of a row xi and a centre nu is |nu|^2 - 2 xi . nu, which is d2 - |xi|^2. With u = 2^-24, P columns
 * to a panel and B panels, a product has at most P + 1 roundings inside its panel and B more after it. Each factor was
 * rounded once to a float (and by 2^-53 before), and |nu|^2 has B + 2 roundings. So the error of a score is at most
 * (P + B + 4) u (2 n V + V^2), n = |xi|, to first order, with fused products or not. The error of a strict distance is at
 * most (F + 3) 2^-53 d2, and d2 <= 2 (n^2 + V^2). A centre whose score exceeds the smallest by more than twice the sum of
 * both bounds is also farther in the strict distances. The comparison adds two roundings. The margin is larger than all
 * this by a quarter. That covers the second order for F <= WIDEST, n and V as computed, and underflow, which is below
 * 2^-140 F (1 + n) while the margin is above 2^-22 (1 + n). Rows beyond FARTHEST, where floats might overflow, get an
 * infinite margin. */

#define PANEL 128 /* columns whose floats of FLOAT_STEP rows fit the first-level cache */
#define WIDEST (1 << 17)
#define FARTHEST 1e30f

typedef struct {
    int64_t C, F, T;
    double *around, *back, scale, *square;
    float V, *slope, *offset, *shifted, *norm, *score;
} sketch;

static int64_t float_rows(int64_t T) { return (T + FLOAT_STEP - 1) / FLOAT_STEP * FLOAT_STEP; }

/* Doubles of scratch memory, in SKETCH_PIECES pieces. */
#define SKETCH_PIECES 8
static int64_t sketch_size(int64_t C, int64_t F, int64_t T)
{
    return 2 * F + float_rows(T) + (C * F + C + float_rows(T) * (smaller(F, PANEL) + C + 1)) / 2 + SKETCH_PIECES;
}

static float *take_floats(arena *memory, int64_t count) { return take(memory, (count + 1) / 2); }

static double norm_around(const sketch *s, const double *v)
{
    double sum = 0.0;
    for (int64_t f = 0; f < s->F; f++)
        sum += (v[f] - s->around[f]) * (v[f] - s->around[f]);
    return sum;
}

/* Returns 0 if no sketch is possible: all centres coincide, or their distances exceed the range of floats. */
static int sketch_open(sketch *s, arena *memory, const double *v, int64_t C, int64_t F, int64_t T)
{
    s->C = C;
    s->F = F;
    s->T = float_rows(T);
    s->around = take(memory, F);
    s->back = take(memory, F);
    s->square = take(memory, s->T);
    s->slope = take_floats(memory, C * F);
    s->offset = take_floats(memory, C);
    s->shifted = take_floats(memory, s->T * smaller(F, PANEL));
    s->norm = take_floats(memory, s->T);
    s->score = take_floats(memory, s->T * C);
    memset(s->shifted, 0, (size_t)(s->T * smaller(F, PANEL)) * 4);
    for (int64_t f = 0; f < F; f++) {
        s->around[f] = 0.0;
        for (int64_t c = 0; c < C; c++)
            s->around[f] += v[c * F + f] / (double)C;
    }
    double farthest = 0.0;
    for (int64_t c = 0; c < C; c++) {
        const double norm = norm_around(s, v + c * F);
        if (!(norm <= farthest))
            farthest = norm; /* also if norm is NaN */
    }
    if (!(farthest >= 0x1p-900 && farthest <= 0x1p900))
        return 0;
    int exponent;
    s->V = 2.0f * (float)frexp(sqrt(farthest), &exponent);
    s->scale = ldexp(1.0, 1 - exponent);
    for (int64_t f = 0; f < F; f++)
        s->back[f] = -s->scale * s->around[f];
    for (int64_t c = 0; c < C; c++) {
        s->offset[c] = (float)(norm_around(s, v + c * F) * s->scale * s->scale);
        for (int64_t f = 0; f < F; f++)
            s->slope[c * F + f] = (float)(-2.0 * s->scale * (v[c * F + f] - s->around[f]));
    }
    return 1;
}

/* Some columns of xi as floats, and their share of its squared norm. */
static void shift(sketch *s, tile t, int64_t padded, int64_t first, int64_t wide)
{
    const reals scale = splat(s->scale);
    for (int64_t r = 0; r < padded; r += STEP) {
        const double *x = t.x + first * t.apart + r;
        float *to = s->shifted + r;
        reals square[ABREAST];
        EACH square[j] = load(s->square + r + j * LANES);
        for (int64_t f = 0; f < wide; f++, x += t.apart, to += s->T) {
            const reals back = splat(s->back[first + f]);
            EACH {
                const reals away = nearly(load(x + j * LANES), scale, back);
                square[j] = nearly(away, away, square[j]);
                store_narrow(to + j * LANES, away);
            }
        }
        EACH store(s->square + r + j * LANES, square[j]);
    }
}

/* score += x . slope over some columns, for FLOAT_STEP rows and a few centres. */
INLINE void score_group(const float *x, int64_t T, const float *slope, int64_t F, int64_t wide, const float *offset,
                        float *score, const int centers)
{
    floats sum[GROUP][ABREAST];
    for (int i = 0; i < centers; i++)
        EACH sum[i][j] = splat_float(0.0f);
    for (int64_t f = 0; f < wide; f++) {
        floats xs[ABREAST];
        EACH xs[j] = load_floats(x + f * T + j * FLOATS);
        for (int i = 0; i < centers; i++) {
            floats at = splat_float(slope[i * F + f]);
            EACH sum[i][j] = about(xs[j], at, sum[i][j]);
        }
    }
    for (int i = 0; i < centers; i++)
        EACH {
            float *to = score + i * T + j * FLOATS;
            store_floats(to, sum[i][j] + (offset ? splat_float(offset[i]) : load_floats(to)));
        }
}

static void draw(sketch *s, tile t, int64_t padded)
{
    const int64_t C = s->C, F = s->F, T = s->T;
    memset(s->square, 0, (size_t)T * 8);
    for (int64_t f = 0; f < F || f == 0; f += PANEL) {
        const int64_t wide = smaller(PANEL, F - f);
        shift(s, t, padded, f, wide);
        for (int64_t r = 0; r < padded; r += FLOAT_STEP)
            for (int64_t g = 0, c = 0; c < C; g++) {
                const int64_t end = group_start(C, g + 1);
                const float *x = s->shifted + r, *at = s->slope + c * F + f, *first = f ? NULL : s->offset + c;
                float *to = s->score + c * T + r;
                switch (end - c) {
                case 5: score_group(x, T, at, F, wide, first, to, 5); break;
                case 4: score_group(x, T, at, F, wide, first, to, 4); break;
                case 3: score_group(x, T, at, F, wide, first, to, 3); break;
                case 2: score_group(x, T, at, F, wide, first, to, 2); break;
                default: score_group(x, T, at, F, wide, first, to, 1);
                }
                c = end;
            }
    }
    for (int64_t r = 0; r < padded; r++)
        s->norm[r] = (float)s->square[r];
}

/* For each row the centre with the smallest score, that score plus the margin, and whether a second centre is within. */
static void read_off(const sketch *s, int64_t padded, uint32_t *label, float *limit, uint32_t *doubt)
{
    const int64_t F = s->F, terms = smaller(F, PANEL) + (F + PANEL - 1) / PANEL + 6;
    const float u = 2.5f * (float)terms * 0x1p-24f, strict = 2.5f * (float)(F + 4) * 0x1p-52f, V = s->V;
    for (int64_t r = 0; r < padded; r += FLOATS) {
        floats best = load_floats(s->score + r), second = splat_float(INFINITY);
        marks index = splat_mark(0);
        for (int64_t c = 1; c < s->C; c++) {
            const floats score = load_floats(s->score + c * s->T + r);
            second = lesser_float(greater_float(score, best), second);
            index = mark_below(score, best, splat_mark((uint32_t)c), index);
            best = lesser_float(score, best);
        }
        const floats norm = load_floats(s->norm + r);
        const floats margin = splat_float(u) * (root(norm) * splat_float(2.0f * V) + splat_float(V * V))
                              + splat_float(strict) * (norm + splat_float(V * V));
        const floats within = best + float_below(norm, splat_float(FARTHEST), margin, splat_float(INFINITY));
        store_marks(label + r, index);
        store_floats(limit + r, within);
        store_marks(doubt + r, mark_below(within, second, splat_mark(0), splat_mark(1)));
    }
}
