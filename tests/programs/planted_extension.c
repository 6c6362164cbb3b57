/* An extension module that keeps blocks of its own in lists of C: of an object's field, or of a static variable. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <malloc.h>
#include <string.h>

#if PY_MAJOR_VERSION < 3
#define PyLong_AsSize_t PyInt_AsSsize_t
#endif

struct node {
    struct node *next;
    char text[];
};

typedef struct {
    PyObject_HEAD
    struct node *first;
} Holder;

static struct node *kept;
static PyObject *volatile hidden;

/* Put blocks before what `list` has, of at least so many bytes together; returns how many the allocator gave. */
static size_t fill(struct node **list, size_t wanted) {
    size_t given = 0;
    while (given < wanted) {
        size_t size = 5000 + given % 9000;
        struct node *node = malloc(size);
        if (node == NULL)
            abort();
        memset(node->text, 1, size - sizeof *node);
        node->next = *list;
        *list = node;
        given += malloc_usable_size(node) + sizeof(size_t);
    }
    return given;
}

static PyTypeObject HolderType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "planted_extension.Holder",
                                  .tp_basicsize = sizeof(Holder),
                                  .tp_flags = Py_TPFLAGS_DEFAULT};

static PyObject *hold(PyObject *module, PyObject *wanted) {
    Holder *holder = PyObject_New(Holder, &HolderType);
    (void)module;
    if (holder == NULL)
        return NULL;
    holder->first = NULL;
    size_t given = fill(&holder->first, (size_t)PyLong_AsSize_t(wanted));
    return Py_BuildValue("NnK", holder, (Py_ssize_t)given, (unsigned long long)(size_t)holder->first);
}

static PyObject *keep(PyObject *module, PyObject *wanted) {
    (void)module;
    size_t given = fill(&kept, (size_t)PyLong_AsSize_t(wanted));
    return Py_BuildValue("nK", (Py_ssize_t)given, (unsigned long long)(size_t)kept);
}

/* From now on only a static variable leads to the object. */
static PyObject *hide(PyObject *module, PyObject *object) {
    (void)module;
    Py_INCREF(object);
    hidden = object;
    return PyLong_FromLong(hidden != NULL);
}

static PyMethodDef functions[] = {
    {"hold", hold, METH_O, NULL}, {"keep", keep, METH_O, NULL}, {"hide", hide, METH_O, NULL}, {NULL, NULL, 0, NULL}};

#if PY_MAJOR_VERSION >= 3
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "planted_extension", NULL, -1, functions,
                                        NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_planted_extension(void) {
    return PyType_Ready(&HolderType) < 0 ? NULL : PyModule_Create(&definition);
}
#else
PyMODINIT_FUNC initplanted_extension(void) {
    if (PyType_Ready(&HolderType) == 0)
        Py_InitModule("planted_extension", functions);
}
#endif
