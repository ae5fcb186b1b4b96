/* Summaries of points (weighted Ward) and communities of a graph (Leiden), for Python's buffers. _groups_twin.py does
 * the same operations in the same order. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16 /* 16: as 0, and half floats on their own */
#error "doubles must round after every operation; without this module the NumPy twin is used"
#endif

#define NEW(type, count) ((type *)calloc((size_t)(count) + 1, sizeof(type)))

/* ---- Ward */

typedef struct {
    int64_t n, d, along; /* the last `along` of d columns are averaged and do not count in the cost */
    double *places, *weights, *scatter, *costs, *least;
    int64_t *nearest;
    char *here;
} heap;

/* Wa Wb / (Wa + Wb) |a - b|^2: what merging two points adds to the scatter within clusters. */
static double cost(const heap *h, int64_t a, int64_t b)
{
    const double *p = h->places + a * h->d, *q = h->places + b * h->d, *w = h->weights;
    double sum = 0.0;
    for (int64_t j = 0; j < h->d - h->along; j++) {
        double off = p[j] - q[j];
        sum = sum + off * off;
    }
    return w[a] * w[b] / (w[a] + w[b]) * sum;
}

static void look_around(heap *h, int64_t i)
{
    h->least[i] = INFINITY;
    h->nearest[i] = -1;
    for (int64_t k = 0; k < h->n; k++)
        if (k != i && h->here[k] && h->costs[i * h->n + k] < h->least[i]) {
            h->least[i] = h->costs[i * h->n + k];
            h->nearest[i] = k;
        }
}

/* Merges b into a. */
static void join(heap *h, int64_t a, int64_t b)
{
    const int64_t n = h->n, d = h->d;
    double wa = h->weights[a], wb = h->weights[b];
    h->scatter[a] = (h->scatter[a] + h->scatter[b]) + h->costs[a * n + b];
    for (int64_t j = 0; j < d; j++)
        h->places[a * d + j] = (wa * h->places[a * d + j] + wb * h->places[b * d + j]) / (wa + wb);
    h->weights[a] = wa + wb;
    h->here[b] = 0;
    for (int64_t k = 0; k < n; k++)
        if (h->here[k] && k != a)
            h->costs[a * n + k] = h->costs[k * n + a] = cost(h, a, k);
    look_around(h, a);
    for (int64_t k = 0; k < n; k++)
        if (h->here[k] && k != a) {
            double now = h->costs[k * n + a];
            if (h->nearest[k] == a || h->nearest[k] == b)
                look_around(h, k);
            else if (now < h->least[k] || (now == h->least[k] && a < h->nearest[k])) {
                h->least[k] = now;
                h->nearest[k] = a;
            }
        }
}

/* Merges the cheapest pair until `target` points are left. Then merges the lightest point below `floor`, or with `blur`
 * a point whose rows are all equal, with the cheapest partner. Returns how many points are left at the front, or -1. */
static int64_t ward(heap *h, int64_t target, double floor, int blur)
{
    const int64_t n = h->n, d = h->d;
    int64_t left = n, kept = 0;
    h->costs = NEW(double, n * n);
    h->least = NEW(double, n);
    h->nearest = NEW(int64_t, n);
    h->here = NEW(char, n);
    if (!h->costs || !h->least || !h->nearest || !h->here)
        left = -1;
    else {
        memset(h->here, 1, (size_t)n);
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < i; k++)
                h->costs[i * n + k] = h->costs[k * n + i] = cost(h, i, k);
        for (int64_t i = 0; i < n; i++)
            look_around(h, i);
    }
    while (left > 1) {
        int64_t a = -1;
        if (left > target) {
            for (int64_t i = 0; i < n; i++)
                if (h->here[i] && (a < 0 || h->least[i] < h->least[a]))
                    a = i;
        } else {
            for (int64_t i = 0; i < n; i++)
                if (h->here[i] && h->weights[i] < (a < 0 ? floor : h->weights[a]))
                    a = i;
            for (int64_t i = 0; i < n && blur && a < 0; i++)
                if (h->here[i] && h->scatter[i] == 0.0)
                    a = i;
        }
        if (a < 0)
            break;
        int64_t b = h->nearest[a];
        join(h, a < b ? a : b, a < b ? b : a);
        left--;
    }
    for (int64_t i = 0; i < n && left >= 0; i++)
        if (h->here[i]) {
            memmove(h->places + kept * d, h->places + i * d, (size_t)d * sizeof(double));
            h->weights[kept] = h->weights[i];
            h->scatter[kept++] = h->scatter[i];
        }
    free(h->costs);
    free(h->least);
    free(h->nearest);
    free(h->here);
    return left < 0 ? -1 : kept;
}

/* ---- Leiden (Traag, Waltman and van Eck 2019), greedy in its refinement, for modularity with a resolution */

#define MARGIN 1e-10 /* a gain must exceed this share of a node's weight, otherwise rounding could cause endless moves */

typedef struct {
    int64_t n;
    int64_t *start; /* neighbours of v: to[start[v]] .. to[start[v + 1] - 1] */
    int32_t *to;
    double *weight, *inner, *degree; /* inner: weight of the edges inside an aggregated node */
} graph;

static void forget(graph *g)
{
    free(g->start);
    free(g->to);
    free(g->weight);
    free(g->inner);
    free(g->degree);
}

typedef struct {
    double *weight; /* of the edges to each group */
    int32_t *list;  /* groups in the order in which they were found */
    char *seen;
    int64_t count;
} tally;

static void meet(tally *t, int32_t group, double weight)
{
    if (!t->seen[group]) {
        t->seen[group] = 1;
        t->weight[group] = 0.0;
        t->list[t->count++] = group;
    }
    t->weight[group] = t->weight[group] + weight;
}

static void clear(tally *t)
{
    while (t->count)
        t->seen[t->list[--t->count]] = 0;
}

static double met(const tally *t, int32_t group) { return t->seen[group] ? t->weight[group] : 0.0; }

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void shuffled(int32_t *order, int64_t n, uint64_t *state)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = (int32_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)(next_random(state) % (uint64_t)(i + 1));
        int32_t t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

typedef struct {
    int32_t *queue, *empty, *size;
    char *waiting;
    double *total, *cut, *degrees;
    tally tally;
} space;

static int make_space(space *s, int64_t n)
{
    s->queue = NEW(int32_t, n);
    s->empty = NEW(int32_t, n);
    s->size = NEW(int32_t, n);
    s->waiting = NEW(char, n);
    s->total = NEW(double, n);
    s->cut = NEW(double, n);
    s->degrees = NEW(double, n);
    s->tally = (tally){NEW(double, n), NEW(int32_t, n), NEW(char, n), 0};
    return !s->queue || !s->empty || !s->size || !s->waiting || !s->total || !s->cut || !s->degrees
           || !s->tally.weight || !s->tally.list || !s->tally.seen;
}

static void free_space(space *s)
{
    free(s->queue);
    free(s->empty);
    free(s->size);
    free(s->waiting);
    free(s->total);
    free(s->cut);
    free(s->degrees);
    free(s->tally.weight);
    free(s->tally.list);
    free(s->tally.seen);
}

/* Moves every node to the group with the largest gain, and queues its neighbours in other groups. */
static void move_nodes(const graph *g, double share, int32_t *group, space *s, uint64_t *random)
{
    const int64_t n = g->n;
    int64_t head = 0, waiting = n, empties = 0;
    for (int64_t i = 0; i < n; i++) {
        s->total[i] = 0.0;
        s->size[i] = 0;
        s->waiting[i] = 1;
    }
    for (int64_t i = 0; i < n; i++) {
        s->total[group[i]] = s->total[group[i]] + g->degree[i];
        s->size[group[i]]++;
    }
    for (int64_t i = n - 1; i >= 0; i--)
        if (!s->size[i])
            s->empty[empties++] = (int32_t)i;
    shuffled(s->queue, n, random);
    while (waiting) {
        const int32_t v = s->queue[head], old = group[v];
        head = head + 1 == n ? 0 : head + 1;
        waiting--;
        s->waiting[v] = 0;
        for (int64_t e = g->start[v]; e < g->start[v + 1]; e++)
            meet(&s->tally, group[g->to[e]], g->weight[e]);
        s->total[old] = s->total[old] - g->degree[v];
        s->size[old]--;
        const double pull = share * g->degree[v], margin = MARGIN * g->degree[v];
        int32_t best = old;
        double most = met(&s->tally, old) - pull * s->total[old];
        for (int64_t i = 0; i < s->tally.count; i++) {
            const int32_t c = s->tally.list[i];
            const double gain = s->tally.weight[c] - pull * s->total[c];
            if (gain > most + margin) {
                most = gain;
                best = c;
            }
        }
        if (0.0 > most + margin && s->size[old] && empties)
            best = s->empty[--empties];
        clear(&s->tally);
        if (best != old && !s->size[old])
            s->empty[empties++] = old;
        s->total[best] = s->total[best] + g->degree[v];
        s->size[best]++;
        group[v] = best;
        if (best == old)
            continue;
        for (int64_t e = g->start[v]; e < g->start[v + 1]; e++)
            if (group[g->to[e]] != best && !s->waiting[g->to[e]]) {
                s->waiting[g->to[e]] = 1;
                s->queue[(head + waiting++) % n] = g->to[e];
            }
    }
}

/* Splits each group into connected parts: a single node joins the part with the largest gain, if both are well
 * connected. */
static void refine(const graph *g, double share, const int32_t *group, int32_t *part, space *s)
{
    const int64_t n = g->n;
    double *whole = s->total, *own = s->cut; /* degrees of groups, and edges between a part and the rest of its group */
    for (int64_t i = 0; i < n; i++) {
        part[i] = (int32_t)i;
        whole[i] = 0.0;
        s->size[i] = 1;
    }
    for (int64_t i = 0; i < n; i++)
        whole[group[i]] = whole[group[i]] + g->degree[i];
    for (int64_t i = 0; i < n; i++) {
        own[i] = 0.0;
        for (int64_t e = g->start[i]; e < g->start[i + 1]; e++)
            if (group[g->to[e]] == group[i])
                own[i] = own[i] + g->weight[e];
    }
    double *degrees = s->degrees;
    memcpy(degrees, g->degree, (size_t)n * sizeof *degrees);
    for (int64_t v = 0; v < n; v++) {
        const int32_t mine = group[v];
        if (part[v] != v || s->size[v] != 1 || own[v] < share * g->degree[v] * (whole[mine] - g->degree[v]))
            continue;
        for (int64_t e = g->start[v]; e < g->start[v + 1]; e++)
            if (group[g->to[e]] == mine)
                meet(&s->tally, part[g->to[e]], g->weight[e]);
        int32_t best = (int32_t)v;
        double most = 0.0;
        for (int64_t i = 0; i < s->tally.count; i++) {
            const int32_t c = s->tally.list[i];
            if (own[c] < share * degrees[c] * (whole[mine] - degrees[c]))
                continue;
            const double gain = s->tally.weight[c] - share * g->degree[v] * degrees[c];
            if (gain > most) {
                most = gain;
                best = c;
            }
        }
        if (best != v) {
            own[best] = (own[best] + own[v]) - 2.0 * s->tally.weight[best];
            degrees[best] = degrees[best] + g->degree[v];
            s->size[best]++;
            s->size[v] = 0;
            part[v] = best;
        }
        clear(&s->tally);
    }
}

/* Renumbers groups, whose numbers are below `most`, by the order of their first members; returns how many. */
static int64_t renumber(int32_t *group, int64_t n, int32_t *names, int64_t most)
{
    int64_t count = 0;
    for (int64_t i = 0; i < most; i++)
        names[i] = -1;
    for (int64_t i = 0; i < n; i++) {
        if (names[group[i]] < 0)
            names[group[i]] = (int32_t)count++;
        group[i] = names[group[i]];
    }
    return count;
}

/* The graph whose nodes are the parts; `smaller` is empty on failure. */
static graph gathered(const graph *g, const int32_t *part, int64_t parts, tally *t)
{
    graph s = {parts, NEW(int64_t, parts), NEW(int32_t, g->start[g->n]), NEW(double, g->start[g->n]), NEW(double, parts),
               NEW(double, parts)};
    int64_t *first = NEW(int64_t, parts), *members = NEW(int64_t, g->n), at = 0;
    if (!s.start || !s.to || !s.weight || !s.inner || !s.degree || !first || !members)
        s.n = 0;
    else {
        for (int64_t i = 0; i < g->n; i++)
            first[part[i] + 1]++;
        for (int64_t c = 0; c < parts; c++)
            first[c + 1] += first[c];
        for (int64_t i = g->n - 1; i >= 0; i--)
            members[--first[part[i] + 1]] = i; /* afterwards first[c + 1] is the start of part c */
        for (int64_t c = 0; c < parts; c++) {
            const int64_t end = c + 1 < parts ? first[c + 2] : g->n;
            for (int64_t k = first[c + 1]; k < end; k++) {
                const int64_t v = members[k];
                s.degree[c] = s.degree[c] + g->degree[v];
                s.inner[c] = s.inner[c] + g->inner[v];
                for (int64_t e = g->start[v]; e < g->start[v + 1]; e++)
                    meet(t, part[g->to[e]], g->weight[e]);
            }
            for (int64_t i = 0; i < t->count; i++) {
                const int32_t other = t->list[i];
                if (other == c)
                    s.inner[c] = s.inner[c] + t->weight[other];
                else {
                    s.to[at] = other;
                    s.weight[at++] = t->weight[other];
                }
            }
            clear(t);
            s.start[c + 1] = at;
        }
    }
    free(first);
    free(members);
    return s;
}

/* Leiden from single nodes; `label` gets groups by first members. Returns the modularity, or NaN without memory. */
static double leiden(const graph *whole, double resolution, uint64_t seed, int32_t *label)
{
    const int64_t n = whole->n;
    graph g = *whole;
    space s;
    double total = 0.0, quality = 0.0;
    int32_t *group = NEW(int32_t, n), *part = NEW(int32_t, n), *names = NEW(int32_t, n), *above = NEW(int32_t, n);
    if (make_space(&s, n) || !group || !part || !names || !above)
        quality = NAN;
    for (int64_t i = 0; i < n; i++)
        total = total + whole->degree[i];
    const double share = total > 0.0 ? resolution / total : 0.0;
    for (int64_t i = 0; i < n && quality == 0.0; i++)
        group[i] = label[i] = (int32_t)i;
    while (quality == 0.0) {
        move_nodes(&g, share, group, &s, &seed);
        refine(&g, share, group, part, &s);
        int64_t parts = renumber(part, g.n, names, g.n);
        if (parts == g.n)
            break;
        graph smaller = gathered(&g, part, parts, &s.tally);
        for (int64_t i = 0; i < g.n; i++)
            above[part[i]] = group[i];
        for (int64_t i = 0; i < n; i++)
            label[i] = part[label[i]];
        memcpy(group, above, (size_t)parts * sizeof *group);
        renumber(group, parts, names, n);
        if (g.start != whole->start)
            forget(&g);
        g = smaller;
        if (!g.n)
            quality = NAN;
    }
    if (quality == 0.0 && n) {
        for (int64_t i = 0; i < n; i++)
            label[i] = group[label[i]];
        renumber(label, n, names, n);
        double within = 0.0, apart = 0.0;
        for (int64_t i = 0; i < n; i++)
            s.total[i] = 0.0;
        for (int64_t i = 0; i < n; i++) {
            s.total[label[i]] = s.total[label[i]] + whole->degree[i];
            for (int64_t e = whole->start[i]; e < whole->start[i + 1]; e++)
                if (label[whole->to[e]] == label[i])
                    within = within + whole->weight[e];
        }
        for (int64_t i = 0; i < n; i++)
            apart = apart + s.total[i] * s.total[i];
        quality = total > 0.0 ? (within - share * apart) / total : 0.0;
    }
    if (g.start != whole->start)
        forget(&g);
    free_space(&s);
    free(group);
    free(part);
    free(names);
    free(above);
    return quality;
}

/* ---- Python */

static int hold(Py_buffer *view, PyObject *object, char kind, int writable)
{
    const char *letters = kind == 'd' ? "d" : kind == 'l' ? "lq" : "il";
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)))
        return 1;
    if (view->format && view->format[0] && !view->format[1] && strchr(letters, view->format[0])
        && view->itemsize == (kind == 'i' ? 4 : 8))
        return 0;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "an array of the wrong type");
    return 1;
}

/* ward(places, weights, scatter, target, floor, blur, along) -> how many are left, at the front of the arrays */
static PyObject *py_ward(PyObject *self, PyObject *args)
{
    PyObject *objects[3];
    Py_buffer views[3];
    long long target, along;
    double floor;
    int blur, held = 0;
    int64_t left = -2;
    if (!PyArg_ParseTuple(args, "OOOLdpL", &objects[0], &objects[1], &objects[2], &target, &floor, &blur, &along))
        return NULL;
    while (held < 3 && !hold(&views[held], objects[held], 'd', 1))
        held++;
    if (held == 3) {
        heap h = {.n = views[1].len / 8, .places = views[0].buf, .weights = views[1].buf, .scatter = views[2].buf};
        h.d = views[0].ndim == 2 ? views[0].shape[1] : 0;
        h.along = along;
        if (along < 0 || along >= h.d || views[0].shape[0] != h.n || views[2].len != views[1].len)
            PyErr_SetString(PyExc_ValueError, "places, weights and scatter do not belong together");
        else {
            Py_BEGIN_ALLOW_THREADS
            left = ward(&h, target, floor, blur);
            Py_END_ALLOW_THREADS
        }
    }
    while (held)
        PyBuffer_Release(&views[--held]);
    return left == -2 ? NULL : left == -1 ? PyErr_NoMemory() : PyLong_FromLongLong(left);
}

/* leiden(start, to, weight, resolution, seed, labels) -> modularity; the graph has each edge in both directions */
static PyObject *py_leiden(PyObject *self, PyObject *args)
{
    PyObject *objects[4];
    Py_buffer views[4];
    double resolution, quality = -INFINITY;
    unsigned long long seed;
    int held = 0;
    if (!PyArg_ParseTuple(args, "OOOdKO", &objects[0], &objects[1], &objects[2], &resolution, &seed, &objects[3]))
        return NULL;
    while (held < 4 && !hold(&views[held], objects[held], "lidi"[held], held == 3))
        held++;
    if (held == 4) {
        graph g = {.n = views[3].len / 4, .start = views[0].buf, .to = views[1].buf, .weight = views[2].buf};
        int sound = views[0].len / 8 == g.n + 1 && views[1].len / 4 == views[2].len / 8 && g.start[0] == 0
                    && g.start[g.n] == views[1].len / 4;
        for (int64_t i = 0; sound && i < g.n; i++)
            sound = g.start[i] <= g.start[i + 1];
        for (int64_t e = 0; sound && e < views[1].len / 4; e++)
            sound = g.to[e] >= 0 && g.to[e] < g.n;
        g.inner = NEW(double, g.n);
        g.degree = NEW(double, g.n);
        if (!sound)
            PyErr_SetString(PyExc_ValueError, "edges that name nodes which are not there");
        else if (g.inner && g.degree) {
            Py_BEGIN_ALLOW_THREADS
            for (int64_t i = 0; i < g.n; i++)
                for (int64_t e = g.start[i]; e < g.start[i + 1]; e++)
                    g.degree[i] = g.degree[i] + g.weight[e];
            quality = leiden(&g, resolution, seed, views[3].buf);
            Py_END_ALLOW_THREADS
        } else
            quality = NAN;
        free(g.inner);
        free(g.degree);
    }
    while (held)
        PyBuffer_Release(&views[--held]);
    return isnan(quality) ? PyErr_NoMemory() : isinf(quality) ? NULL : PyFloat_FromDouble(quality);
}

static PyMethodDef methods[] = {
    {"ward", py_ward, METH_VARARGS, NULL},
    {"leiden", py_leiden, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_groups", "Compiled Ward and Leiden; _groups_twin says what they compute.", -1, methods,
    NULL,                  NULL,      NULL,                                                             NULL,
};

PyMODINIT_FUNC PyInit__groups(void) { return PyModule_Create(&module); }
