/* Tiles, and the squared distances of their rows. A tile holds some rows of every column, padded to whole vectors. */

#define STEP (LANES * ABREAST)
#define GROUP 5                              /* centres that share one load of a column */

static int64_t up_to_step(int64_t n) { return (n + STEP - 1) / STEP * STEP; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows of a tile: the data read repeatedly fits the second-level cache together with the next tile. */
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

/* Scratch memory from one allocation, aligned to cache lines. */
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

/* The columns of a tile: column f starts at x + f * apart. */
typedef struct {
    const double *x;
    int64_t apart;
} tile;

/* A block's own memory if its rows fill whole vectors, otherwise a padded copy in `spare`. */
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

/* The address of the next tile, to prefetch it while this one is summed. */
typedef struct {
    const char *data;
    ptrdiff_t stride;
    int size;
} upcoming;

/* d2 of STEP rows to a few centres: features are added in order; a vector holds several rows. */
INLINE void distance_group(tile t, const double *v, int64_t F, double *d2, int64_t T, const int centers)
{
    reals sum[GROUP][ABREAST];
    for (int i = 0; i < centers; i++)
        EACH sum[i][j] = splat(0.0);
    for (int64_t f = 0; f < F; f++) {
        reals xs[ABREAST];
        EACH xs[j] = load(t.x + f * t.apart + j * LANES);
        for (int i = 0; i < centers; i++) {
            reals at = splat(v[i * F + f]);
            EACH {
                reals away = xs[j] - at;
                sum[i][j] = sum[i][j] + away * away;
            }
        }
    }
    for (int i = 0; i < centers; i++)
        EACH store(d2 + i * T + j * LANES, sum[i][j]);
}

/* Centres in groups of nearly equal size, at most GROUP each: the start of group g. */
INLINE int64_t group_start(int64_t C, int64_t g)
{
    int64_t groups = (C + GROUP - 1) / GROUP;
    return g * (C / groups) + smaller(g, C % groups);
}

static void distances(tile t, int64_t T, int64_t padded, const double *v, int64_t C, int64_t F, double *d2)
{
    for (int64_t r = 0; r < padded; r += STEP, t.x += STEP)
        for (int64_t g = 0, c = 0; c < C; g++) {
            const int64_t end = group_start(C, g + 1);
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
