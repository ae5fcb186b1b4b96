/* Python bindings of the training of autoencoders. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_coder_jobs.h"

#include <string.h>

static const coder_arithmetic *chosen = &fedclust_coder_base;

/* Best first. */
static const coder_arithmetic *const compiled[] = {
#ifdef FEDCLUST_CLONES
    &fedclust_coder_avx512, &fedclust_coder_avx2,
#endif
    &fedclust_coder_base,
};
#define COMPILED ((int)(sizeof compiled / sizeof *compiled))

static const coder_arithmetic *find(const char *name)
{
    for (int i = 0; i < COMPILED; i++)
        if ((!name || strcmp(name, compiled[i]->name) == 0) && compiled[i]->supported())
            return compiled[i];
    return NULL;
}

/* The types of a call's arrays, in order. */
enum { ROWS, ORDER, SIZES, MODEL, MEANS, SQUARES, ARRAYS };
static const char *const NAMES[] = {"rows", "order", "sizes", "weights", "means", "squares"};
static const char *const FORMATS[] = {"f", "lq", "lq", "f", "f", "f"};

static int hold(Py_buffer *view, PyObject *object, int which)
{
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (which >= MODEL ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags))
        return 1;
    if (view->ndim == (which == ROWS ? 2 : 1) && view->format && view->format[0] && !view->format[1]
        && strchr(FORMATS[which], view->format[0]) && view->itemsize == (FORMATS[which][0] == 'f' ? 4 : 8))
        return 0;
    PyErr_Format(PyExc_ValueError, "%s: wrong type or shape", NAMES[which]);
    PyBuffer_Release(view);
    return 1;
}

/* The model, if its arrays fit together; refuses indices out of range before they are used. */
static int made(coder *own, const Py_buffer *views)
{
    const int64_t *sizes = views[SIZES].buf, *order = views[ORDER].buf;
    int64_t weights = 0;
    own->layers = views[SIZES].shape[0] - 1;
    if (own->layers < 1 || own->layers > MOST_LAYERS || own->batch < 1 || own->steps < 0)
        return 0;
    for (int64_t l = 0; l <= own->layers; l++) {
        if (sizes[l] < 1 || sizes[l] > 1 << 24)
            return 0;
        own->sizes[l] = sizes[l];
        weights += l ? (sizes[l - 1] + 1) * padded(sizes[l]) : 0;
    }
    if (sizes[own->layers] != sizes[0] || views[ROWS].shape[1] != sizes[0] || views[MODEL].shape[0] != weights
        || views[MEANS].shape[0] != weights || views[SQUARES].shape[0] != weights)
        return 0;
    for (int64_t i = 0; i < views[ORDER].shape[0]; i++)
        if (order[i] < 0 || order[i] >= views[ROWS].shape[0])
            return 0;
    own->rows = views[ROWS].buf;
    own->weights = views[MODEL].buf;
    own->means = views[MEANS].buf;
    own->squares = views[SQUARES].buf;
    return 1;
}

/* epoch(batch, rate, steps, rows, order, sizes, weights, means, squares) -> summed squares; the last three change. */
static PyObject *py_epoch(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer views[ARRAYS];
    coder own = {0};
    double lost = 0;
    int count = 0, failed = 0;
    PyObject *result = NULL;
    if (nargs != 3 + ARRAYS)
        return PyErr_Format(PyExc_TypeError, "epoch takes %d arguments", 3 + ARRAYS);
    own.batch = PyLong_AsLongLong(args[0]);
    own.rate = PyFloat_AsDouble(args[1]);
    own.steps = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    for (; count < ARRAYS; count++)
        if (hold(&views[count], args[3 + count], count))
            goto done;
    if (!made(&own, views)) {
        PyErr_SetString(PyExc_ValueError, "arrays that do not belong together");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    failed = chosen->epoch(&own, views[ORDER].buf, views[ORDER].shape[0], &lost);
    Py_END_ALLOW_THREADS
    result = failed ? PyErr_NoMemory() : PyFloat_FromDouble(lost);
done:
    while (count)
        PyBuffer_Release(&views[--count]);
    return result;
}

/* Selects the instruction set; this is for tests. */
static PyObject *py_choose(PyObject *self, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    const coder_arithmetic *named = text ? find(text) : NULL;
    if (!named)
        return text ? PyErr_Format(PyExc_ValueError, "%s: not compiled in, or not supported here", text) : NULL;
    chosen = named;
    return PyUnicode_FromString(chosen->name);
}

static PyMethodDef methods[] = {
    {"epoch", (PyCFunction)(void (*)(void))py_epoch, METH_FASTCALL, NULL},
    {"choose", py_choose, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_coder", "The compiled training of autoencoders; _coder_twin says what it computes.", -1,
    methods,               NULL,     NULL,                                                                        NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__coder(void)
{
    chosen = find(NULL);
    return PyModule_Create(&module);
}
