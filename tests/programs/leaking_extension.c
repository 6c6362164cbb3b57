/* An extension module that forgets Py_DECREF and free(), and whose type lacks tp_traverse. What it loses it writes to the
 * file LOST as "KIND ADDRESS", an address at a time, and keeps no other note of it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#if PY_MAJOR_VERSION < 3
#define PyLong_AsSize_t PyInt_AsSsize_t
#define PyBytes_FromStringAndSize PyString_FromStringAndSize
#endif

typedef struct {
    PyObject_HEAD
    PyObject *other;
} Holder;

static PyTypeObject HolderType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "leaking_extension.Holder",
                                  .tp_basicsize = sizeof(Holder),
                                  .tp_flags = Py_TPFLAGS_DEFAULT};

static void note(FILE *file, const char *kind, const void *address) {
    fprintf(file, "%s %llu\n", kind, (unsigned long long)(size_t)address);
}

static FILE *opened(PyObject *arguments, Py_ssize_t *count, Py_ssize_t *size) {
    const char *name;
    if (!PyArg_ParseTuple(arguments, "snn", &name, count, size))
        return NULL;
    FILE *file = fopen(name, "a");
    if (file == NULL)
        PyErr_SetFromErrno(PyExc_OSError);
    return file;
}

/* lose_objects(FILE, COUNT, SIZE): lists with bytes of that size, whose only reference is forgotten. */
static PyObject *lose_objects(PyObject *module, PyObject *arguments) {
    Py_ssize_t count, size;
    FILE *file = opened(arguments, &count, &size);
    (void)module;
    if (file == NULL)
        return NULL;
    while (count--) {
        PyObject *list = PyList_New(1), *bytes = PyBytes_FromStringAndSize(NULL, size);
        if (list == NULL || bytes == NULL)
            abort();
        memset((char *)bytes + sizeof(PyObject) + 16, 'x', (size_t)size - 16);
        PyList_SET_ITEM(list, 0, bytes);
        note(file, "reference", list);
        note(file, "held", bytes);
    }
    fclose(file);
    Py_RETURN_NONE;
}

/* lose_blocks(FILE, COUNT, SIZE): blocks that are never freed, in pairs of which the first points to the second. */
static PyObject *lose_blocks(PyObject *module, PyObject *arguments) {
    Py_ssize_t count, size;
    FILE *file = opened(arguments, &count, &size);
    (void)module;
    if (file == NULL)
        return NULL;
    while (count--) {
        void **one = calloc(1, (size_t)size), *two = calloc(1, (size_t)size);
        if (one == NULL || two == NULL)
            abort();
        one[1] = two;
        note(file, "block", one);
        note(file, "block", two);
    }
    fclose(file);
    Py_RETURN_NONE;
}

/* take(OBJECT): a reference more. */
static PyObject *take(PyObject *module, PyObject *object) {
    (void)module;
    Py_INCREF(object);
    Py_RETURN_NONE;
}

/* hold(OBJECT): a Holder of it. */
static PyObject *hold(PyObject *module, PyObject *object) {
    Holder *holder = PyObject_New(Holder, &HolderType);
    (void)module;
    if (holder != NULL) {
        Py_INCREF(object);
        holder->other = object;
    }
    return (PyObject *)holder;
}

static PyMethodDef functions[] = {{"lose_objects", lose_objects, METH_VARARGS, NULL},
                                  {"lose_blocks", lose_blocks, METH_VARARGS, NULL},
                                  {"take", take, METH_O, NULL},
                                  {"hold", hold, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

#if PY_MAJOR_VERSION >= 3
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "leaking_extension", NULL, -1, functions,
                                        NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_leaking_extension(void) {
    return PyType_Ready(&HolderType) < 0 ? NULL : PyModule_Create(&definition);
}
#else
PyMODINIT_FUNC initleaking_extension(void) {
    if (PyType_Ready(&HolderType) == 0)
        Py_InitModule("leaking_extension", functions);
}
#endif
