/* The nearest centre of each row: the lowest index among equals, by the strict distances. */

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

/* The search for the nearest of many centres. A sketch of d2 - |x|^2, a third of the work, names it; only where two
 * sketched scores lie within rounding of each other are all distances computed. So the sketch may use fused operations:
 * it decides nothing that the strict distances would decide otherwise. */
typedef struct {
    int64_t C, F, T, asked, doubtful;
    int sketching;
    const double *v;
    double *around, *slope, *offset, *shifted, *norm, spread;
} search;

#define MANY 16 /* centres from which the sketch pays */

static int64_t search_size(int64_t C, int64_t F, int64_t T) { return C < MANY ? 0 : F + C * F + C + T * F + T; }

static void search_open(search *s, arena *memory, const double *v, int64_t C, int64_t F, int64_t T)
{
    const search begun = {.C = C, .F = F, .T = T, .v = v, .sketching = v && C >= MANY};
    *s = begun;
    if (!s->sketching)
        return;
    s->around = take(memory, F);
    s->slope = take(memory, C * F);
    s->offset = take(memory, C);
    s->shifted = take(memory, T * F);
    s->norm = take(memory, T);
    for (int64_t f = 0; f < F; f++) {
        s->around[f] = 0.0;
        for (int64_t c = 0; c < C; c++)
            s->around[f] += v[c * F + f] / (double)C;
    }
    for (int64_t c = 0; c < C; c++) {
        s->offset[c] = 0.0;
        for (int64_t f = 0; f < F; f++) {
            const double away = v[c * F + f] - s->around[f];
            s->slope[c * F + f] = -2.0 * away;
            s->offset[c] += away * away;
        }
        if (s->offset[c] > s->spread)
            s->spread = s->offset[c];
    }
}

/* x' = x - around, and |x'|^2. */
static void shift(search *s, tile t, int64_t padded)
{
    for (int64_t r = 0; r < padded; r += STEP) {
        reals norm[ABREAST];
        EACH norm[j] = splat(0.0);
        for (int64_t f = 0; f < s->F; f++)
            EACH {
                reals x = load(t.x + f * t.apart + r + j * LANES) - splat(s->around[f]);
                norm[j] = norm[j] + x * x;
                store(s->shifted + f * s->T + r + j * LANES, x);
            }
        EACH store(s->norm + r + j * LANES, norm[j]);
    }
}

/* Labels of STEP rows from their scores, and whether all of them are beyond doubt.
 * With u = 2^-53, a score errs by at most (4 F + 10) u (|x'|^2 + 2 max |v'|^2), whether products are fused or not, and
 * a strict distance by 2 (F + 3) u times the same; twice their sum is below 16 (F + 8) u. Twice that again, and a
 * term for what underflow may lose, is the margin asked for. An overflow anywhere leaves the row in doubt. */
static int beyond_doubt(const search *s, const double *score, const double *norm, uint64_t *label)
{
    const reals relative = splat((double)(s->F + 8) * 0x1p-48), spread = splat(2.0 * s->spread);
    double sure[STEP];
    EACH {
        reals best = load(score + j * LANES), second = splat(INFINITY), index = from_bits(splat_word(0));
        for (int64_t c = 1; c < s->C; c++) {
            reals d = load(score + c * s->T + j * LANES);
            second = lesser(second, if_below(d, best, best, d));
            index = if_below(d, best, from_bits(splat_word((uint64_t)c)), index);
            best = lesser(d, best);
        }
        reals margin = relative * (load(norm + j * LANES) + spread) + splat(0x1p-960);
        store(sure + j * LANES, if_below(margin, second - best, splat(1.0), splat(0.0)));
        memcpy(label + j * LANES, &index, sizeof index);
    }
    double all = 1.0;
    for (int i = 0; i < STEP; i++)
        all *= sure[i];
    return all == 1.0;
}

/* The squared distances of STEP rows to their own centres, features in their order. */
static void distance_to_label(const search *s, tile t, const uint64_t *label, double *d2)
{
    reals sum[ABREAST];
    uint64_t row[STEP];
    for (int i = 0; i < STEP; i++)
        row[i] = label[i] * (uint64_t)s->F;
    EACH sum[j] = splat(0.0);
    for (int64_t f = 0; f < s->F; f++)
        EACH {
            reals away = load(t.x + f * t.apart + j * LANES) - gathered(s->v + f, row + j * LANES);
            sum[j] = sum[j] + away * away;
        }
    EACH store(d2 + j * LANES, sum[j]);
}

static void find_nearest(search *s, tile t, int64_t padded, double *d2, double *least, uint64_t *label)
{
    const int64_t T = s->T;
    if (!s->sketching) {
        distances(t, T, padded, s->v, s->C, s->F, d2);
        nearest(d2, T, padded, s->C, least, label);
        return;
    }
    const tile moved = {s->shifted, T};
    shift(s, t, padded);
    sketch(moved, T, padded, s->slope, s->C, s->F, s->offset, d2);
    for (int64_t r = 0; r < padded; r += STEP, t.x += STEP) {
        s->asked++;
        if (beyond_doubt(s, d2 + r, s->norm + r, label + r)) {
            distance_to_label(s, t, label + r, least + r);
        } else {
            s->doubtful++;
            distances(t, T, STEP, s->v, s->C, s->F, d2 + r);
            nearest(d2 + r, T, STEP, s->C, least + r, label + r);
        }
    }
    if (s->doubtful > 8 && 4 * s->doubtful > s->asked)
        s->sketching = 0;
}
