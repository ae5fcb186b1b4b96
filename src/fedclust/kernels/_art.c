/* Python bindings of the resonance loop: a net is passed in as arrays and returned as bytes. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_art_jobs.h"

#include <stdlib.h>
#include <string.h>

static const art_arithmetic *chosen = &fedclust_art_base;

/* Best first. */
static const art_arithmetic *const compiled[] = {
#ifdef FEDCLUST_CLONES
    &fedclust_art_avx512, &fedclust_art_avx2,
#endif
    &fedclust_art_base,
};
#define COMPILED ((int)(sizeof compiled / sizeof *compiled))

static const art_arithmetic *find(const char *name)
{
    for (int i = 0; i < COMPILED; i++)
        if ((!name || strcmp(name, compiled[i]->name) == 0) && compiled[i]->supported())
            return compiled[i];
    return NULL;
}

/* The types of a call's arrays, in order. */
enum { ROWS, PLACES, WINS, WIDTHS, ORDER, EDGES, COUNTS, LEVELS, LABELS, LEAST, MOST };
static const char *const NAMES[] = {"rows",   "places", "wins",   "widths", "order",
                                    "edges",  "counts", "levels", "labels", "least"};
static const char FORMATS[] = "ddldiildid"; /* l: 8-byte integers, i: 4-byte integers, d: doubles */

typedef struct {
    Py_buffer views[MOST];
    int count;
} held;

static void release(held *h)
{
    while (h->count)
        PyBuffer_Release(&h->views[--h->count]);
}

static int fits(const Py_buffer *view, char kind)
{
    const char *letters = kind == 'd' ? "d" : kind == 'l' ? "lq" : "il";
    return view->format && view->format[0] && !view->format[1] && strchr(letters, view->format[0])
           && view->itemsize == (kind == 'i' ? 4 : 8);
}

static int hold(held *h, PyObject *const *objects, int which, int writable)
{
    Py_buffer *view = &h->views[h->count];
    if (PyObject_GetBuffer(objects[which], view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)))
        return 1;
    h->count++;
    if (fits(view, FORMATS[which]))
        return 0;
    PyErr_Format(PyExc_ValueError, "%s: wrong type", NAMES[which]);
    return 1;
}

static int64_t length(const held *h, int which) { return h->views[which].len / h->views[which].itemsize; }

static void discard(art_net *net)
{
    for (int64_t i = 0; i < net->room && net->edges; i++)
        free(net->edges[i].at);
    free(net->rows);
    free(net->columns);
    free(net->wins);
    free(net->widths);
    free(net->older);
    free(net->newer);
    free(net->edges);
    free(net->alike);
    free(net->scratch);
    free(net->listed);
    free(net->factor);
    free(net->pivots);
    free(net->column);
}

/* Sets the nodes' positions; returns false if memory ran out. */
static int stand(art_net *net, const double *places, int64_t nodes)
{
    net->scratch = malloc((size_t)(2 * net->d) * sizeof(double));
    if (!net->scratch)
        return 0;
    do {
        if (chosen->make_room(net))
            return 0;
        int64_t more = nodes - net->nodes < net->room - net->nodes ? nodes - net->nodes : net->room - net->nodes;
        for (int64_t i = net->nodes; i < net->nodes + more; i++)
            for (int64_t j = 0; j < net->d; j++)
                net->rows[i * net->d + j] = net->columns[j * net->room + i] = places[i * net->d + j];
        net->nodes += more;
    } while (net->nodes < nodes);
    return 1;
}

static int add_edge(art_net *net, int32_t from, int32_t to, int32_t age)
{
    art_edges *e = &net->edges[from];
    if (e->count == e->room) {
        int32_t room = e->room ? 2 * e->room : 4;
        art_edge *at = realloc(e->at, (size_t)room * sizeof *at);
        if (!at)
            return 1;
        e->at = at;
        e->room = room;
    }
    e->at[e->count++] = (art_edge){to, age};
    return 0;
}

/* Sets the rest of a net's state; refuses indices out of range before they are used. */
static int recall(art_net *net, const held *h)
{
    const int32_t *order = h->views[ORDER].buf, *edges = h->views[EDGES].buf;
    const int64_t *counts = h->views[COUNTS].buf, ties = length(h, EDGES) / 3;
    const double *levels = h->views[LEVELS].buf;
    memcpy(net->wins, h->views[WINS].buf, (size_t)net->nodes * sizeof *net->wins);
    memcpy(net->widths, h->views[WIDTHS].buf, (size_t)net->nodes * sizeof *net->widths);
    for (int64_t i = 0; i < net->nodes; i++)
        net->older[i] = -2;
    net->newest = -1;
    for (int64_t i = 0; i < net->nodes; i++) {
        int32_t node = order[i];
        if (node < 0 || node >= net->nodes || net->older[node] != -2)
            return -1;
        net->older[node] = net->newest;
        net->newer[node] = -1;
        if (net->newest >= 0)
            net->newer[net->newest] = node;
        net->newest = node;
    }
    for (int64_t i = 0; i < ties; i++) {
        int32_t a = edges[3 * i], b = edges[3 * i + 1];
        if (a < 0 || b <= a || b >= net->nodes)
            return -1;
        if (add_edge(net, a, b, edges[3 * i + 2]) || add_edge(net, b, a, edges[3 * i + 2]))
            return 1;
    }
    net->seen = counts[0];
    net->half = counts[1];
    net->settled = counts[2];
    net->deleted = counts[3];
    net->deleted_ages = counts[4];
    net->refused = counts[5];
    net->vigilance = levels[0];
    net->width = levels[1];
    for (int64_t i = 0; i < net->nodes; i++)
        net->width_total = net->width_total + net->widths[i];
    return net->settled && net->half < 2 ? -1 : 0;
}

#define BYTES(from, count) PyBytes_FromStringAndSize((const char *)(from), (Py_ssize_t)((size_t)(count) * sizeof *(from)))

/* The net as bytes: positions, wins, widths, order, edges, counts, levels. */
static PyObject *state(const art_net *net)
{
    int64_t ties = 0, at = net->nodes, tie = 0;
    for (int64_t i = 0; i < net->nodes; i++)
        ties += net->edges[i].count;
    int32_t *order = malloc((size_t)(net->nodes + 1) * sizeof *order);
    int32_t *edges = malloc((size_t)(3 * ties + 1) * sizeof *edges);
    if (!order || !edges) {
        free(order);
        free(edges);
        return PyErr_NoMemory();
    }
    for (int64_t node = net->newest; node >= 0; node = net->older[node])
        order[--at] = (int32_t)node;
    for (int64_t i = 0; i < net->nodes; i++)
        for (int32_t k = 0; k < net->edges[i].count; k++)
            if (net->edges[i].at[k].to > i) {
                edges[3 * tie] = (int32_t)i;
                edges[3 * tie + 1] = net->edges[i].at[k].to;
                edges[3 * tie++ + 2] = net->edges[i].at[k].age;
            }
    int64_t counts[] = {net->seen, net->half, net->settled, net->deleted, net->deleted_ages, net->refused};
    double levels[] = {net->vigilance, net->width};
    PyObject *all = Py_BuildValue("NNNNNNN", BYTES(net->rows, net->nodes * net->d), BYTES(net->wins, net->nodes),
                                  BYTES(net->widths, net->nodes), BYTES(order, net->nodes), BYTES(edges, 3 * tie),
                                  BYTES(counts, 6), BYTES(levels, 2));
    free(order);
    free(edges);
    return all;
}

static int sized(const held *h, int64_t d)
{
    const Py_buffer *rows = &h->views[ROWS], *places = &h->views[PLACES];
    return rows->ndim == 2 && places->ndim == 2 && d > 0 && rows->shape[1] == d;
}

/* learn(server, most, rows, places, wins, widths, order, edges, counts, levels) -> all of these but the first three */
static PyObject *py_learn(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    held h = {.count = 0};
    art_net net = {0};
    PyObject *result = NULL;
    int failed = 0;
    if (nargs != 10)
        return PyErr_Format(PyExc_TypeError, "learn takes 10 arguments");
    net.server = PyObject_IsTrue(args[0]);
    net.most = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    for (int i = 0; i < 8; i++)
        if (hold(&h, args + 2, i, 0))
            goto done;
    net.d = h.views[PLACES].ndim == 2 ? h.views[PLACES].shape[1] : 0;
    const int64_t nodes = h.views[PLACES].ndim == 2 ? h.views[PLACES].shape[0] : 0;
    if (!sized(&h, net.d) || length(&h, WINS) != nodes || length(&h, WIDTHS) != nodes || length(&h, ORDER) != nodes
        || length(&h, EDGES) % 3 || length(&h, COUNTS) != 6 || length(&h, LEVELS) != 2) {
        PyErr_SetString(PyExc_ValueError, "a net whose arrays do not belong together");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    failed = stand(&net, h.views[PLACES].buf, nodes) ? recall(&net, &h) : 1;
    if (!failed)
        failed = chosen->learn(&net, h.views[ROWS].buf, h.views[ROWS].shape[0]);
    Py_END_ALLOW_THREADS
    if (failed > 0)
        PyErr_NoMemory();
    else if (failed < 0)
        PyErr_SetString(PyExc_ValueError, "a net whose order or edges name nodes it does not have");
    else
        result = state(&net);
done:
    release(&h);
    discard(&net);
    return result;
}

/* nearest(width, rows, places, labels, least) */
static PyObject *py_nearest(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    held h = {.count = 0};
    art_net net = {0};
    PyObject *result = NULL;
    int stood = 0;
    if (nargs != 5)
        return PyErr_Format(PyExc_TypeError, "nearest takes 5 arguments");
    double width = PyFloat_AsDouble(args[0]);
    if (PyErr_Occurred())
        return NULL;
    PyObject *const objects[MOST] = {[ROWS] = args[1], [PLACES] = args[2], [LABELS] = args[3], [LEAST] = args[4]};
    if (hold(&h, objects, ROWS, 0) || hold(&h, objects, PLACES, 0) || hold(&h, objects, LABELS, 1)
        || hold(&h, objects, LEAST, 1))
        goto done;
    net.d = h.views[PLACES].ndim == 2 ? h.views[PLACES].shape[1] : 0;
    if (!sized(&h, net.d) || !h.views[PLACES].shape[0] || length(&h, 2) != h.views[ROWS].shape[0]
        || length(&h, 3) != h.views[ROWS].shape[0]) {
        PyErr_SetString(PyExc_ValueError, "rows, places and answers do not belong together");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    stood = stand(&net, h.views[PLACES].buf, h.views[PLACES].shape[0]);
    if (stood)
        chosen->nearest(&net, h.views[ROWS].buf, h.views[ROWS].shape[0], width, h.views[2].buf, h.views[3].buf);
    Py_END_ALLOW_THREADS
    result = stood ? Py_NewRef(Py_None) : PyErr_NoMemory();
done:
    release(&h);
    discard(&net);
    return result;
}

/* Selects the instruction set. All give the same bits; this is for tests. */
static PyObject *py_choose(PyObject *self, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    const art_arithmetic *named = text ? find(text) : NULL;
    if (!named)
        return text ? PyErr_Format(PyExc_ValueError, "%s: not compiled in, or not supported here", text) : NULL;
    chosen = named;
    return PyUnicode_FromString(chosen->name);
}

static PyMethodDef methods[] = {
    {"learn", (PyCFunction)(void (*)(void))py_learn, METH_FASTCALL, NULL},
    {"nearest", (PyCFunction)(void (*)(void))py_nearest, METH_FASTCALL, NULL},
    {"choose", py_choose, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_art", "The compiled resonance loop; _art_twin says what it computes.", -1, methods,
    NULL,                  NULL,   NULL,                                                            NULL,
};

PyMODINIT_FUNC PyInit__art(void)
{
    chosen = find(NULL);
    return PyModule_Create(&module);
}
