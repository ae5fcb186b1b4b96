/* The nearest centre of each row by the strict distances; in case of a tie, the lowest index. */

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

/* The search for the nearest of many centres. A sketch, which costs little, finds it. If several centres are within the
 * sketch's margin, their strict distances decide. So the rounding of the sketch does not matter: the result is always
 * that of the strict distances. */
typedef struct {
    int64_t C, F, T, most;
    uint64_t asked, doubtful;
    int sketching;
    const double *v;
    sketch sketch;
    uint32_t *first, *doubt;
    float *limit;
    uint64_t *row, *center;
    double *d2;
} search;

#define MANY_CENTERS 8 /* the sketch is faster from this many centres, */
#define MANY_TERMS 256 /* if each row has this many terms: measured */

static int worth_sketching(int64_t C, int64_t F, int64_t T)
{
    return C >= MANY_CENTERS && C * F >= MANY_TERMS && F <= WIDEST && C < INT32_MAX && T > STEP;
}

/* The most undecided pairs of a row and a centre in a tile; with more, all its distances are computed. */
static int64_t most_pairs(int64_t C, int64_t T) { return T * ((C + 7) / 8) / STEP * STEP + STEP; }

#define SEARCH_PIECES (SKETCH_PIECES + 6)
static int64_t search_size(int64_t C, int64_t F, int64_t T)
{
    return worth_sketching(C, F, T) ? sketch_size(C, F, T) + 3 * (T + 1) / 2 + 3 * most_pairs(C, T) + 3 : 0;
}

static void search_open(search *s, arena *memory, const double *v, int64_t C, int64_t F, int64_t T)
{
    const search begun = {.C = C, .F = F, .T = T, .most = most_pairs(C, T), .v = v};
    *s = begun;
    if (!v || !worth_sketching(C, F, T))
        return;
    s->first = take(memory, (T + 1) / 2);
    s->doubt = take(memory, (T + 1) / 2);
    s->limit = take_floats(memory, T);
    s->row = take(memory, s->most);
    s->center = take(memory, s->most);
    s->d2 = take(memory, s->most);
    s->sketching = sketch_open(&s->sketch, memory, v, C, F, T);
}

/* sum += (x - v)^2 over some columns for LANES rows from r on, each to its own centre, columns in order. */
INLINE reals add_own(reals sum, tile t, int64_t r, const double *v, int64_t F, const uint64_t *label, int64_t across)
{
#if LANES == 8
    if (across == 8) {
        words at[8];
        for (int i = 0; i < 8; i++)
            at[i] = bits(load(v + label[r + i] * (uint64_t)F));
        turn(at);
        for (int j = 0; j < 8; j++) {
            const reals away = load(t.x + j * t.apart + r) - from_bits(at[j]);
            sum = sum + away * away;
        }
        return sum;
    }
#endif
    uint64_t begin[LANES];
    for (int i = 0; i < LANES; i++)
        begin[i] = label[r + i] * (uint64_t)F;
    for (int64_t j = 0; j < across; j++) {
        const reals away = load(t.x + j * t.apart + r) - gathered(v + j, begin);
        sum = sum + away * away;
    }
    return sum;
}

/* The squared distances of rows to their own centres. */
static void own_distances(const search *s, tile t, int64_t padded, const uint64_t *label, double *d2)
{
    memset(d2, 0, (size_t)padded * 8);
    for (int64_t f = 0; f < s->F; f += 8, t.x += 8 * t.apart) {
        const double *v = s->v + f;
        for (int64_t r = 0; r < padded; r += LANES)
            store(d2 + r, s->F - f >= 8 ? add_own(load(d2 + r), t, r, v, s->F, label, 8)
                                        : add_own(load(d2 + r), t, r, v, s->F, label, s->F - f));
    }
}

/* The strict distances of the undecided pairs; their number is rounded up to whole steps. */
static void pair_distances(search *s, tile t, int64_t pairs)
{
    for (int64_t p = pairs; p % STEP; p++)
        s->row[p] = s->center[p] = 0;
    for (int64_t p = 0; p < pairs; p += STEP) {
        reals sum[ABREAST];
        uint64_t begin[STEP];
        for (int i = 0; i < STEP; i++)
            begin[i] = s->center[p + i] * (uint64_t)s->F;
        EACH sum[j] = splat(0.0);
        for (int64_t f = 0; f < s->F; f++)
            EACH {
                reals away = gathered(t.x + f * t.apart, s->row + p + j * LANES) - gathered(s->v + f, begin + j * LANES);
                sum[j] = sum[j] + away * away;
            }
        EACH store(s->d2 + p + j * LANES, sum[j]);
    }
}

/* Lists and counts the undecided pairs; returns -1 if they are too many. */
static int64_t list_pairs(search *s, int64_t padded)
{
    int64_t pairs = 0;
    for (int64_t r = 0; r < padded; r++)
        if (s->doubt[r])
            for (int64_t c = 0; c < s->C; c++)
                if (!(s->sketch.score[c * s->sketch.T + r] > s->limit[r])) {
                    if (pairs == s->most - STEP)
                        return -1;
                    s->row[pairs] = (uint64_t)r;
                    s->center[pairs++] = (uint64_t)c;
                }
    return pairs;
}

/* Labels of a tile's rows from a sketch. Returns 0 if too many pairs are undecided; if that is frequent, later tiles use
 * no sketch. */
static int sketched_labels(search *s, tile t, int64_t padded, uint64_t *label)
{
    draw(&s->sketch, t, padded);
    read_off(&s->sketch, padded, s->first, s->limit, s->doubt);
    const int64_t pairs = list_pairs(s, padded);
    s->asked += (uint64_t)(padded * s->C);
    s->doubtful += (uint64_t)(pairs < 0 ? padded * s->C : pairs);
    s->sketching = 8 * s->doubtful <= s->asked;
    if (pairs < 0)
        return 0;
    for (int64_t r = 0; r < padded; r++)
        label[r] = s->first[r];
    pair_distances(s, t, pairs);
    for (int64_t p = 0, least = 0; p < pairs; p++) {
        if (p == 0 || s->row[p] != s->row[p - 1] || s->d2[p] < s->d2[least])
            least = p;
        label[s->row[p]] = s->center[least];
    }
    return 1;
}

/* Labels of a tile's rows. Returns whether `least` also holds their squared distances, which a sketch does not give. */
static int find_labels(search *s, tile t, int64_t padded, double *d2, double *least, uint64_t *label)
{
    if (s->sketching && sketched_labels(s, t, padded, label))
        return 0;
    distances(t, s->T, padded, s->v, s->C, s->F, d2);
    nearest(d2, s->T, padded, s->C, least, label);
    return 1;
}

static void find_nearest(search *s, tile t, int64_t padded, double *d2, double *least, uint64_t *label)
{
    if (!find_labels(s, t, padded, d2, least, label))
        own_distances(s, t, padded, label, least);
}
