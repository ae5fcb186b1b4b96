/* Python bindings of the arithmetic: check shapes and layout, release the interpreter lock, and compute. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_jobs.h"

static const arithmetic *chosen = &fedclust_base;

/* Best first. */
static const arithmetic *const compiled[] = {
#ifdef FEDCLUST_CLONES
    &fedclust_avx512, &fedclust_avx2,
#endif
    &fedclust_base,
};
#define COMPILED ((int)(sizeof compiled / sizeof *compiled))

/* The named arithmetic, or the best one if name is NULL; NULL if this processor does not support it. */
static const arithmetic *find(const char *name)
{
    for (int i = 0; i < COMPILED; i++)
        if ((!name || strcmp(name, compiled[i]->name) == 0) && compiled[i]->supported())
            return compiled[i];
    return NULL;
}

/* The buffers of a call, which are released together. */
#define MOST 8
typedef struct {
    Py_buffer views[MOST];
    int count;
} held;

static void release(held *h)
{
    while (h->count)
        PyBuffer_Release(&h->views[--h->count]);
}

static int has_format(const Py_buffer *view, const char *formats)
{
    return view->format && view->format[0] && !view->format[1] && strchr(formats, view->format[0]);
}

#define DOUBLE "d"
#define LIMBS "LQ"
#define INT32 "il"

/* A C-contiguous array of one type with `size` elements, or of any number of them if size < 0. */
static Py_buffer *array(held *h, PyObject *object, const char *name, const char *formats, int itemsize, int64_t size,
                        int writable)
{
    Py_buffer *view = &h->views[h->count];
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)))
        return NULL;
    h->count++;
    if (!has_format(view, formats) || view->itemsize != itemsize || (size >= 0 && view->len != size * itemsize)) {
        PyErr_Format(PyExc_ValueError, "%s: wrong type or shape", name);
        return NULL;
    }
    return view;
}

static int as_columns(const Py_buffer *view, columns *to, const char *name)
{
    if (view->ndim != 2 || !has_format(view, "df")
        || (view->shape[1] > 1 && view->strides[1] != view->itemsize)) {
        PyErr_Format(PyExc_ValueError, "%s: need (columns, rows) of float64 or float32, each column contiguous", name);
        return -1;
    }
    to->data = view->buf;
    to->stride = view->strides[0];
    to->rows = view->shape[1];
    to->size = (int)view->itemsize;
    return 0;
}

/* Columns of doubles or floats, `width` of them if width >= 0. */
static Py_buffer *table(held *h, PyObject *object, columns *to, const char *name, int64_t width)
{
    Py_buffer *view = &h->views[h->count];
    if (PyObject_GetBuffer(object, view, PyBUF_STRIDES | PyBUF_FORMAT))
        return NULL;
    h->count++;
    if (as_columns(view, to, name))
        return NULL;
    if (width >= 0 && view->shape[0] != width) {
        PyErr_Format(PyExc_ValueError, "%s: %zd columns, need %lld", name, view->shape[0], (long long)width);
        return NULL;
    }
    return view;
}

static Py_buffer *matrix(held *h, PyObject *object, const char *name)
{
    Py_buffer *view = array(h, object, name, DOUBLE, 8, -1, 0);
    if (view && (view->ndim != 2 || view->shape[0] < 1)) {
        PyErr_Format(PyExc_ValueError, "%s: need at least one row", name);
        return NULL;
    }
    return view;
}

/* An output of (C, rows) doubles whose rows need not be adjacent. */
static int output(held *h, PyObject *object, int64_t C, int64_t rows, double **out, ptrdiff_t *out_row)
{
    Py_buffer *view = &h->views[h->count];
    if (PyObject_GetBuffer(object, view, PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE))
        return -1;
    h->count++;
    columns as;
    if (as_columns(view, &as, "out"))
        return -1;
    if (as.size != 8 || view->shape[0] != C || as.rows != rows || as.stride % 8) {
        PyErr_SetString(PyExc_ValueError, "out: wrong type or shape");
        return -1;
    }
    *out = view->buf;
    *out_row = as.stride / 8;
    return 0;
}

static int expect(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given != wanted)
        PyErr_Format(PyExc_TypeError, "%zd arguments, need %zd", given, wanted);
    return given == wanted ? 0 : -1;
}

static PyObject *finish(held *h, int failed)
{
    release(h);
    if (PyErr_Occurred())
        return NULL;
    if (failed)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static int integer(PyObject *object, int32_t *to)
{
    long n = PyLong_AsLong(object);
    if (n == -1 && PyErr_Occurred())
        return -1;
    *to = (int32_t)n;
    return 0;
}

/* Blocks of one sweep; a few fit on the stack. */
#define FEW 16
typedef struct {
    PyObject *items;
    Py_buffer *views;
    columns *blocks;
    Py_ssize_t count, taken;
    Py_buffer few_views[FEW];
    columns few_blocks[FEW];
} block_list;

static void close_blocks(block_list *list)
{
    while (list->taken)
        PyBuffer_Release(&list->views[--list->taken]);
    if (list->views != list->few_views)
        PyMem_Free(list->views);
    if (list->blocks != list->few_blocks)
        PyMem_Free(list->blocks);
    Py_XDECREF(list->items);
}

static int open_blocks(block_list *list, PyObject *blocks, int64_t F)
{
    list->taken = 0;
    list->views = list->few_views;
    list->blocks = list->few_blocks;
    list->items = PySequence_Fast(blocks, "blocks: need a list of arrays");
    if (!list->items)
        return -1;
    list->count = PySequence_Fast_GET_SIZE(list->items);
    if (list->count > FEW) {
        list->views = PyMem_New(Py_buffer, list->count);
        list->blocks = PyMem_New(columns, list->count);
        if (!list->views || !list->blocks) {
            PyErr_NoMemory();
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < list->count; i++) {
        Py_buffer *view = &list->views[i];
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(list->items, i), view, PyBUF_STRIDES | PyBUF_FORMAT))
            return -1;
        list->taken++;
        if (as_columns(view, &list->blocks[i], "block"))
            return -1;
        if (view->shape[0] != F) {
            PyErr_Format(PyExc_ValueError, "block: %zd columns, centers have %lld", view->shape[0], (long long)F);
            return -1;
        }
    }
    return 0;
}

static int parse_sweep(sweep_job *job, held *h, PyObject *const *args)
{
    int32_t rule;
    Py_buffer *centers, *mass, *pull, *objective;
    if (integer(args[0], &rule) || !(centers = matrix(h, args[2], "centers")))
        return -1;
    job->rule = rule == 0 ? HARD : FUZZY;
    job->m = PyFloat_AsDouble(args[3]);
    if (job->m == -1.0 && PyErr_Occurred())
        return -1;
    job->C = centers->shape[0];
    job->F = centers->shape[1];
    job->centers = centers->buf;
    const char *format = job->plain ? DOUBLE : LIMBS;
    const int64_t each = job->plain ? 1 : 2;
    if (!(mass = array(h, args[4], "mass", format, 8, each * job->C, 1))
        || !(pull = array(h, args[5], "pull", format, 8, each * job->C * job->F, 1))
        || !(objective = array(h, args[6], "objective", format, 8, each, 1)))
        return -1;
    job->mass = mass->buf;
    job->pull = pull->buf;
    job->objective = objective->buf;
    return 0;
}

static int parse_units(sweep_job *job, held *h, PyObject *mass_unit, PyObject *pull_unit)
{
    Py_buffer *mass, *pull;
    if (!(mass = array(h, mass_unit, "mass_unit", INT32, 4, job->C, 0))
        || !(pull = array(h, pull_unit, "pull_unit", INT32, 4, job->C * job->F, 0)))
        return -1;
    job->mass_unit = mass->buf;
    job->pull_unit = pull->buf;
    return 0;
}

static PyObject *run_sweep(sweep_job *job, held *h, PyObject *blocks)
{
    block_list list;
    int failed = 0;
    if (open_blocks(&list, blocks, job->F) == 0) {
        job->blocks = list.blocks;
        job->count = list.count;
        Py_BEGIN_ALLOW_THREADS
        failed = chosen->sweep(job);
        Py_END_ALLOW_THREADS
    }
    close_blocks(&list);
    return finish(h, failed);
}

static PyObject *py_sweep(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    held h = {.count = 0};
    sweep_job job = {.plain = 0};
    if (expect(nargs, 10))
        return NULL;
    if (parse_sweep(&job, &h, args) || parse_units(&job, &h, args[7], args[8])
        || integer(args[9], &job.objective_unit))
        return finish(&h, 0);
    return run_sweep(&job, &h, args[1]);
}

static PyObject *py_plain(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    held h = {.count = 0};
    sweep_job job = {.plain = 1};
    if (expect(nargs, 7))
        return NULL;
    if (parse_sweep(&job, &h, args))
        return finish(&h, 0);
    return run_sweep(&job, &h, args[1]);
}

static PyObject *py_weighted(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    held h = {.count = 0};
    columns block, weights;
    Py_buffer *x, *w, *mass, *pull;
    sweep_job job = {.rule = GIVEN, .count = 1};
    int failed = 0;
    if (expect(nargs, 6))
        return NULL;
    if (!(x = table(&h, args[0], &block, "block", -1)) || !(w = table(&h, args[1], &weights, "weights", -1)))
        return finish(&h, 0);
    job.blocks = &block;
    job.weights = &weights;
    job.C = w->shape[0];
    job.F = x->shape[0];
    if (block.rows != weights.rows) {
        PyErr_SetString(PyExc_ValueError, "weights: need one a row of the block");
        return finish(&h, 0);
    }
    if (!(mass = array(&h, args[2], "mass", LIMBS, 8, 2 * job.C, 1))
        || !(pull = array(&h, args[3], "pull", LIMBS, 8, 2 * job.C * job.F, 1))
        || parse_units(&job, &h, args[4], args[5]))
        return finish(&h, 0);
    job.mass = mass->buf;
    job.pull = pull->buf;
    Py_BEGIN_ALLOW_THREADS
    failed = chosen->sweep(&job);
    Py_END_ALLOW_THREADS
    return finish(&h, failed);
}

static int parse_rows(rows_job *job, held *h, PyObject *block, PyObject *centers)
{
    Py_buffer *at = NULL, *x;
    if (centers != Py_None && !(at = matrix(h, centers, "centers")))
        return -1;
    if (!(x = table(h, block, &job->block, "block", at ? at->shape[1] : -1)))
        return -1;
    job->centers = at ? at->buf : NULL;
    job->C = at ? at->shape[0] : x->shape[0];
    job->F = at ? at->shape[1] : 0;
    return 0;
}

static PyObject *run_rows(rows_job *job, held *h)
{
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = chosen->rows(job);
    Py_END_ALLOW_THREADS
    return finish(h, failed);
}

static PyObject *py_squared(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    held h = {.count = 0};
    rows_job job = {.answer = SQUARED};
    if (expect(nargs, 3))
        return NULL;
    if (parse_rows(&job, &h, args[0], args[1]) || output(&h, args[2], job.C, job.block.rows, &job.out, &job.out_row))
        return finish(&h, 0);
    return run_rows(&job, &h);
}

static PyObject *py_nearest(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    held h = {.count = 0};
    rows_job job = {.answer = NEAREST};
    Py_buffer *labels, *least;
    if (expect(nargs, 4))
        return NULL;
    if (parse_rows(&job, &h, args[0], args[1])
        || !(labels = array(&h, args[2], "labels", INT32, 4, job.block.rows, 1))
        || !(least = array(&h, args[3], "least", DOUBLE, 8, job.block.rows, 1)))
        return finish(&h, 0);
    job.labels = labels->buf;
    job.out = least->buf;
    return run_rows(&job, &h);
}

static PyObject *fuzzy_rows(row_answer answer, PyObject *const *args, Py_ssize_t nargs)
{
    held h = {.count = 0};
    rows_job job = {.answer = answer};
    if (expect(nargs, 4))
        return NULL;
    job.m = PyFloat_AsDouble(args[2]);
    if ((job.m == -1.0 && PyErr_Occurred()) || parse_rows(&job, &h, args[0], args[1])
        || output(&h, args[3], job.C, job.block.rows, &job.out, &job.out_row))
        return finish(&h, 0);
    return run_rows(&job, &h);
}

static PyObject *py_memberships(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return fuzzy_rows(MEMBERSHIPS, args, nargs);
}

static PyObject *py_weights(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    return fuzzy_rows(WEIGHTS, args, nargs);
}

static PyObject *py_exact(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    held h = {.count = 0};
    exact_job job;
    Py_buffer *centers, *out;
    int failed;
    if (expect(nargs, 4))
        return NULL;
    if (!(centers = matrix(&h, args[1], "centers"))
        || !table(&h, args[0], &job.block, "block", centers->shape[1]) || integer(args[2], &job.unit))
        return finish(&h, 0);
    out = &h.views[h.count];
    if (PyObject_GetBuffer(args[3], out, PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE))
        return finish(&h, 0);
    h.count++;
    job.C = centers->shape[0];
    job.F = centers->shape[1];
    job.centers = centers->buf;
    if (out->ndim != 3 || !has_format(out, LIMBS) || out->shape[0] != job.C || out->shape[1] != job.block.rows
        || out->shape[2] != 2 || out->strides[2] != 8 || (job.block.rows > 1 && out->strides[1] != 16)) {
        PyErr_SetString(PyExc_ValueError, "out: wrong type or shape");
        return finish(&h, 0);
    }
    job.out = out->buf;
    job.out_row = out->strides[0] / 8;
    Py_BEGIN_ALLOW_THREADS
    failed = chosen->exact(&job);
    Py_END_ALLOW_THREADS
    return finish(&h, failed);
}

static PyObject *py_totals(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    held h = {.count = 0};
    columns values;
    Py_buffer *x, *unit, *out;
    int failed;
    if (expect(nargs, 3))
        return NULL;
    if (!(x = table(&h, args[0], &values, "values", -1))
        || !(unit = array(&h, args[1], "unit", INT32, 4, x->shape[0], 0))
        || !(out = array(&h, args[2], "out", LIMBS, 8, 2 * x->shape[0], 1)))
        return finish(&h, 0);
    Py_BEGIN_ALLOW_THREADS
    failed = chosen->totals(&values, x->shape[0], unit->buf, out->buf);
    Py_END_ALLOW_THREADS
    return finish(&h, failed);
}

static PyObject *py_elementary(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    held h = {.count = 0};
    Py_buffer *x, *out;
    int32_t which;
    if (expect(nargs, 4))
        return NULL;
    double p = PyFloat_AsDouble(args[2]);
    if ((p == -1.0 && PyErr_Occurred()) || integer(args[0], &which) || !(x = array(&h, args[1], "x", DOUBLE, 8, -1, 0))
        || !(out = array(&h, args[3], "out", DOUBLE, 8, x->len / 8, 1)))
        return finish(&h, 0);
    Py_BEGIN_ALLOW_THREADS
    chosen->elementary((function)which, x->buf, p, out->buf, x->len / 8);
    Py_END_ALLOW_THREADS
    return finish(&h, 0);
}

/* Selects the instruction set and returns the one in use. All give the same bits; this is for tests. */
static PyObject *py_choose(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (expect(nargs, 1))
        return NULL;
    const char *name = PyUnicode_AsUTF8(args[0]);
    if (!name)
        return NULL;
    const arithmetic *named = find(name);
    if (!named)
        return PyErr_Format(PyExc_ValueError, "%s: not compiled in, or not supported by this processor", name);
    chosen = named;
    return PyUnicode_FromString(chosen->name);
}

#define ENTRY(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {
    ENTRY(sweep), ENTRY(plain), ENTRY(weighted), ENTRY(squared), ENTRY(nearest), ENTRY(memberships), ENTRY(weights),
    ENTRY(exact), ENTRY(totals), ENTRY(elementary), ENTRY(choose), {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_sweeps", "Compiled sweeps; _twin says what they compute.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__sweeps(void)
{
    chosen = find(NULL);
    return PyModule_Create(&module);
}
