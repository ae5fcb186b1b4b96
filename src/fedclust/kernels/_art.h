/* Adaptive resonance by correntropy, one row after another: CA+ at a site, CAE_FC at the server. _art_twin.py does the
 * same operations in the same order. A vector holds several nodes; a node's similarity adds its features in order. */
#include "_art_jobs.h"
#include "_lanes.h"
#include "_elementary.h"

#define FIRST_ROWS 10     /* rows that give the first bandwidth, and the fewest nodes that may fix lambda */
#define SINGULAR 1e-6     /* a determinant below this means that the nodes are diverse enough */
#define FLAT 1e-6         /* replaces the spread of a constant column */
#define NEIGHBOUR_SITE 100.0
#define NEIGHBOUR_SERVER 10.0

#define GROW(array, count) grown((void **)&(array), (size_t)(count) * sizeof *(array))
static int grown(void **array, size_t bytes)
{
    void *moved = realloc(*array, bytes);
    if (moved)
        *array = moved;
    return moved == NULL;
}

/* Makes room for one more node. Columns hold the positions feature by feature, `room` doubles each. */
static int make_room(art_net *net)
{
    if (net->nodes < net->room)
        return 0;
    int64_t room = net->room ? 2 * net->room : 32, d = net->d;
    double *columns = calloc((size_t)(room * d), sizeof *columns);
    if (!columns || GROW(net->rows, room * d) || GROW(net->wins, room) || GROW(net->widths, room)
        || GROW(net->older, room) || GROW(net->newer, room) || GROW(net->alike, room) || GROW(net->edges, room)) {
        free(columns);
        return 1;
    }
    for (int64_t j = 0; j < d; j++)
        if (net->nodes)
            memcpy(columns + j * room, net->columns + j * net->room, (size_t)net->nodes * sizeof *columns);
    memset(net->edges + net->room, 0, (size_t)(room - net->room) * sizeof *net->edges);
    free(net->columns);
    net->columns = columns;
    net->room = room;
    return 0;
}

/* sum_j exp(scale (x_j - w_j)^2) for the first `count` nodes; scale = -1 / (2 width^2). */
static void similarities(const art_net *net, const double *x, double scale, int64_t count, double *out)
{
    const int64_t d = net->d, room = net->room;
    for (int64_t at = 0; at < count; at += LANES) {
        reals sum = splat(0.0), e[ABREAST];
        int64_t j0 = 0;
        for (; j0 + ABREAST <= d; j0 += ABREAST) {
            EACH e[j] = splat(x[j0 + j]) - load(net->columns + (j0 + j) * room + at);
            EACH e[j] = (e[j] * e[j]) * splat(scale);
            exp_of(e, e);
            EACH sum = sum + e[j];
        }
        if (j0 < d) {
            const int rest = (int)(d - j0);
            EACH e[j] = j < rest ? splat(x[j0 + j]) - load(net->columns + (j0 + j) * room + at) : splat(0.0);
            EACH e[j] = (e[j] * e[j]) * splat(scale);
            exp_of(e, e);
            for (int j = 0; j < rest; j++)
                sum = sum + e[j];
        }
        double lane[LANES];
        store(lane, sum);
        for (int64_t i = 0; i < LANES && at + i < count; i++)
            out[at + i] = lane[i];
    }
}

static double scale_of(double total, int64_t count)
{
    double width = total / (double)count;
    return -0.5 / (width * width);
}

static double distance_of(const art_net *net, double sum) { return sqrt(1.0 - sum / (double)net->d); }

static double scalar_power(double x, double p)
{
    double out;
    elementary(POWER, &x, p, &out, 1);
    return out;
}

static double scalar_exp(double x)
{
    double out;
    elementary(EXP, &x, 0.0, &out, 1);
    return out;
}

/* The value at index k of the sorted values. */
static double ranked(double *v, int64_t count, int64_t k)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        double pivot = v[k];
        int64_t i = low, j = high;
        do {
            while (v[i] < pivot)
                i++;
            while (pivot < v[j])
                j--;
            if (i <= j) {
                double t = v[i];
                v[i++] = v[j];
                v[j--] = t;
            }
        } while (i <= j);
        if (j < k)
            low = i;
        if (k < i)
            high = j;
    }
    return v[k];
}

static double median_of(double *v, int64_t count)
{
    double upper = ranked(v, count, count / 2);
    return count % 2 ? upper : (ranked(v, count, count / 2 - 1) + upper) * 0.5;
}

/* Silverman's bandwidth of `count` consecutive rows: median_j (c s_j) n^(-1/(4+d)), c = (4/(2+d))^(1/(4+d)). */
static double bandwidth(const art_net *net, const double *const *rows, int64_t count)
{
    const int64_t d = net->d;
    double *mean = net->scratch, *spread = net->scratch + d;
    memcpy(mean, rows[0], (size_t)d * sizeof *mean);
    for (int64_t i = 1; i < count; i++)
        for (int64_t j = 0; j < d; j++)
            mean[j] = mean[j] + rows[i][j];
    for (int64_t j = 0; j < d; j++) {
        mean[j] = mean[j] / (double)count;
        spread[j] = 0.0;
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < d; j++) {
            double off = rows[i][j] - mean[j];
            spread[j] = spread[j] + off * off;
        }
    double p = 1.0 / (double)(4 + d), c = scalar_power(4.0 / (double)(2 + d), p), shrink = scalar_power((double)count, -p);
    for (int64_t j = 0; j < d; j++) {
        double s = count > 1 ? sqrt(spread[j] / (double)(count - 1)) : 0.0;
        spread[j] = (c * (s == 0.0 ? FLAT : s)) * shrink;
    }
    return median_of(spread, d);
}

/* The bandwidth of the `count` most recently used nodes, the latest first. */
static double recent_bandwidth(const art_net *net, int64_t count)
{
    int64_t node = net->newest, found = 0;
    for (; found < count && node >= 0; found++, node = net->older[node])
        net->listed[found] = net->rows + node * net->d;
    return bandwidth(net, net->listed, found);
}

static void unlink_node(art_net *net, int64_t node)
{
    int64_t older = net->older[node], newer = net->newer[node];
    if (older >= 0)
        net->newer[older] = newer;
    if (newer >= 0)
        net->older[newer] = older;
    else
        net->newest = older;
}

static void link_newest(art_net *net, int64_t node)
{
    net->older[node] = net->newest;
    net->newer[node] = -1;
    if (net->newest >= 0)
        net->newer[net->newest] = node;
    net->newest = node;
}

static void place(art_net *net, int64_t node, int64_t j, double value)
{
    net->rows[node * net->d + j] = value;
    net->columns[j * net->room + node] = value;
}

/* w += (x - w) / rate */
static void pull_node(art_net *net, int64_t node, const double *x, double rate)
{
    for (int64_t j = 0; j < net->d; j++) {
        double w = net->rows[node * net->d + j];
        place(net, node, j, w + (x[j] - w) / rate);
    }
}

static void add_node(art_net *net, const double *x)
{
    int64_t node = net->nodes++;
    for (int64_t j = 0; j < net->d; j++)
        place(net, node, j, x[j]);
    net->wins[node] = 1;
    net->edges[node].count = 0;
    link_newest(net, node);
}

/* Pivot of the newest of the first `count` nodes in the factors L D L' of exp(R); the determinant is their product. */
static int next_pivot(art_net *net, int64_t count, double scale)
{
    const int64_t old = count - 1;
    if (count > net->factor_room) {
        int64_t room = 2 * count + 30;
        double *factor = calloc((size_t)(room * room), sizeof *factor);
        if (!factor || GROW(net->pivots, room) || GROW(net->column, room)) {
            free(factor);
            return 1;
        }
        for (int64_t i = 0; i < old; i++)
            memcpy(factor + i * room, net->factor + i * net->factor_room, (size_t)old * sizeof *factor);
        free(net->factor);
        net->factor = factor;
        net->factor_room = room;
    }
    double *y = net->column, pivot = scalar_exp(1.0);
    similarities(net, net->rows + old * net->d, scale, old, y);
    for (int64_t i = 0; i < old; i++)
        y[i] = y[i] / (double)net->d;
    elementary(EXP, y, 0.0, y, old);
    /* factor row i holds column i of L, so that the solve reads memory in order */
    for (int64_t i = 0; i < old; i++) {
        const double *l = net->factor + i * net->factor_room;
        for (int64_t k = i + 1; k < old; k++)
            y[k] = y[k] - l[k] * y[i];
    }
    for (int64_t i = 0; i < old; i++) {
        double share = net->pivots[i] > 0.0 ? y[i] / net->pivots[i] : 0.0;
        net->factor[i * net->factor_room + old] = share;
        pivot = pivot - share * y[i];
    }
    net->pivots[old] = pivot > 0.0 ? pivot : 0.0;
    net->determinant = net->determinant * net->pivots[old];
    return 0;
}

/* The factors of a net whose lambda was not fixed in an earlier call. */
static int refactor(art_net *net)
{
    double total = 0.0;
    net->determinant = 1.0;
    for (int64_t i = 0; i < net->nodes; i++) {
        total = total + net->widths[i];
        if (next_pivot(net, i + 1, scale_of(total, i + 1)))
            return 1;
    }
    return 0;
}

/* The mean, over nodes, of the distance to the nearest other node at a different position. */
static double vigilance(art_net *net, double scale)
{
    double total = 0.0, same = (double)net->d;
    for (int64_t k = 0; k < net->nodes; k++) {
        double most = -1.0;
        similarities(net, net->rows + k * net->d, scale, net->nodes, net->alike);
        for (int64_t l = 0; l < net->nodes; l++)
            if (1.0 - net->alike[l] / same != 0.0 && net->alike[l] > most)
                most = net->alike[l];
        total = total + (most < 0.0 ? 0.0 : distance_of(net, most));
    }
    return total / (double)net->nodes;
}

static int gather(art_net *net, const double *x)
{
    add_node(net, x);
    net->widths[net->nodes - 1] = net->width;
    net->width_total = net->width_total + net->width;
    if (!net->settled) {
        if (next_pivot(net, net->nodes, scale_of(net->width_total, net->nodes)))
            return 1;
        if (net->nodes >= FIRST_ROWS && (net->determinant < SINGULAR || net->nodes >= net->most))
            net->half = net->nodes;
    }
    if (net->nodes != net->half)
        return 0;
    net->settled = 1;
    if (GROW(net->listed, net->half))
        return 1;
    net->width = recent_bandwidth(net, net->half);
    net->width_total = 0.0;
    for (int64_t i = 0; i < net->nodes; i++) {
        net->widths[i] = net->width;
        net->width_total = net->width_total + net->width;
    }
    net->vigilance = vigilance(net, scale_of(net->width_total, net->nodes));
    return 0;
}

static int32_t *age_of(art_net *net, int64_t from, int64_t to)
{
    art_edges *e = &net->edges[from];
    for (int32_t i = 0; i < e->count; i++)
        if (e->at[i].to == to)
            return &e->at[i].age;
    return NULL;
}

static int set_age(art_net *net, int64_t from, int64_t to, int32_t age)
{
    int32_t *known = age_of(net, from, to);
    if (known) {
        *known = age;
        return 0;
    }
    art_edges *e = &net->edges[from];
    if (e->count == e->room) {
        int32_t room = e->room ? 2 * e->room : 4;
        if (GROW(e->at, room))
            return 1;
        e->room = room;
    }
    e->at[e->count++] = (art_edge){(int32_t)to, age};
    return 0;
}

static void drop_edge(art_net *net, int64_t from, int64_t to)
{
    art_edges *e = &net->edges[from];
    for (int32_t i = 0; i < e->count; i++)
        if (e->at[i].to == to) {
            e->at[i] = e->at[--e->count];
            return;
        }
}

/* Removes a node's old edges: by quartiles of its own ages, blended with the ages of all removed edges. */
static int prune(art_net *net, int64_t node)
{
    art_edges *e = &net->edges[node];
    const int32_t count = e->count;
    if (!count)
        return 0;
    double *ages = malloc((size_t)count * 2 * sizeof *ages), *part = ages + count;
    if (!ages)
        return 1;
    for (int32_t i = 0; i < count; i++)
        ages[i] = (double)e->at[i].age;
    double middle = median_of(ages, count), q1 = 0.0, q3 = 0.0;
    int64_t below = 0, above = 0;
    for (int32_t i = 0; i < count; i++)
        if (ages[i] < middle)
            part[below++] = ages[i];
    if (below)
        q1 = median_of(part, below);
    for (int32_t i = 0; i < count; i++)
        if (ages[i] > middle)
            part[above++] = ages[i];
    if (above)
        q3 = median_of(part, above);
    free(ages);
    if (!below || !above)
        return 0;
    double usual = q3 + 0.1 * (q3 - q1);
    double lived = net->deleted ? (double)net->deleted_ages / (double)net->deleted : 0.0;
    double r = (double)net->deleted / (double)(net->deleted + count), limit = lived * r + usual * (1.0 - r);
    for (int32_t i = count - 1; i >= 0; i--)
        if ((double)e->at[i].age > limit) {
            net->deleted++;
            net->deleted_ages += e->at[i].age;
            drop_edge(net, e->at[i].to, node);
            e->at[i] = e->at[--e->count];
        }
    return 0;
}

/* A row within the threshold moves its winner and nodes nearby: the second at a site, neighbours at the server. */
static int resonate(art_net *net, const double *x, int64_t first, int64_t second, int near)
{
    net->wins[first]++;
    pull_node(net, first, x, (double)net->wins[first]);
    unlink_node(net, first);
    link_newest(net, first);
    if (!net->server) {
        if (near)
            pull_node(net, second, x, NEIGHBOUR_SITE * (double)net->wins[second]);
        return 0;
    }
    art_edges *e = &net->edges[first];
    for (int32_t i = 0; i < e->count; i++) {
        e->at[i].age++;
        (*age_of(net, e->at[i].to, first))++;
    }
    if (near) {
        if (set_age(net, first, second, 1) || set_age(net, second, first, 1))
            return 1;
        for (int32_t i = 0; i < e->count; i++)
            pull_node(net, e->at[i].to, x, NEIGHBOUR_SERVER * (double)net->wins[e->at[i].to]);
    }
    return prune(net, first);
}

static int compare(art_net *net, const double *x)
{
    int64_t first = -1, second = -1;
    similarities(net, x, scale_of(net->width_total, net->nodes), net->nodes, net->alike);
    for (int64_t i = 0; i < net->nodes; i++)
        if (first < 0 || net->alike[i] > net->alike[first]) {
            second = first;
            first = i;
        } else if (second < 0 || net->alike[i] > net->alike[second])
            second = i;
    if (net->vigilance < distance_of(net, net->alike[first])) {
        if (net->nodes < net->most) {
            add_node(net, x);
            net->width = recent_bandwidth(net, net->half);
            net->widths[net->nodes - 1] = net->width;
            net->width_total = net->width_total + net->width;
            return 0;
        }
        net->refused++;
    }
    return resonate(net, x, first, second, second >= 0 && net->vigilance >= distance_of(net, net->alike[second]));
}

static void move_node(art_net *net, int64_t from, int64_t to)
{
    for (int64_t j = 0; j < net->d; j++)
        place(net, to, j, net->rows[from * net->d + j]);
    net->wins[to] = net->wins[from];
    net->widths[to] = net->widths[from];
    art_edges kept = net->edges[to];
    net->edges[to] = net->edges[from];
    kept.count = 0;
    net->edges[from] = kept;
    for (int32_t i = 0; i < net->edges[to].count; i++) {
        art_edges *e = &net->edges[net->edges[to].at[i].to];
        for (int32_t k = 0; k < e->count; k++)
            if (e->at[k].to == from)
                e->at[k].to = (int32_t)to;
    }
    int64_t older = net->older[from], newer = net->newer[from];
    net->older[to] = older;
    net->newer[to] = newer;
    if (older >= 0)
        net->newer[older] = to;
    if (newer >= 0)
        net->older[newer] = to;
    else
        net->newest = to;
}

/* Removes nodes without edges; the others keep their order. */
static void drop_isolated(art_net *net)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < net->nodes; i++) {
        if (!net->edges[i].count) {
            unlink_node(net, i);
            continue;
        }
        if (kept != i)
            move_node(net, i, kept);
        kept++;
    }
    net->nodes = kept;
    net->width_total = 0.0;
    for (int64_t i = 0; i < kept; i++)
        net->width_total = net->width_total + net->widths[i];
}

static int learn(art_net *net, const double *rows, int64_t count)
{
    const double *opening[FIRST_ROWS];
    if (!net->settled && refactor(net))
        return 1;
    if (net->settled && GROW(net->listed, net->half))
        return 1;
    for (int64_t i = 0; i < count; i++) {
        const double *x = rows + i * net->d;
        if (make_room(net))
            return 1;
        if (++net->seen == 1) {
            int64_t first = count < FIRST_ROWS ? count : FIRST_ROWS;
            for (int64_t k = 0; k < first; k++)
                opening[k] = rows + k * net->d;
            net->width = bandwidth(net, opening, first);
        }
        if (!net->settled || net->nodes < net->half ? gather(net, x) : compare(net, x))
            return 1;
        if (net->server && net->half && net->seen % (2 * net->half) == 0 && net->nodes > 1)
            drop_isolated(net);
    }
    return 0;
}

/* For each row the most similar node, the first in case of a tie, and its distance. */
static void nearest(const art_net *net, const double *rows, int64_t count, double width, int32_t *labels, double *least)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t first = 0;
        similarities(net, rows + i * net->d, -0.5 / (width * width), net->nodes, net->alike);
        for (int64_t k = 1; k < net->nodes; k++)
            if (net->alike[k] > net->alike[first])
                first = k;
        labels[i] = (int32_t)first;
        least[i] = distance_of(net, net->alike[first]);
    }
}
