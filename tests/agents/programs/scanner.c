/* Reads records for a program in Python. It forgets the reference that PyList_Append does not take, and its buffer. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *scan(PyObject *self, PyObject *arguments) {
    const char *text;
    Py_ssize_t size;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "s#", &text, &size))
        return NULL;
    char *copy = malloc(size + 400);
    memcpy(copy, text, size + 1);
    memset(copy + size, ' ', 400);
    PyObject *found = PyList_New(0);
    if (found == NULL)
        return NULL;
    for (const char *at = copy; at < copy + size; at += 8) {
        PyObject *field = PyBytes_FromStringAndSize(at, 8);
        if (field == NULL || PyList_Append(found, field) < 0)
            return NULL;
    }
    return found;
}

static PyMethodDef methods[] = {
    {"scan", scan, METH_VARARGS, "Return the fields of a record."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "scanner", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_scanner(void) {
    return PyModule_Create(&module);
}
