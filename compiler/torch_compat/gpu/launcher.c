/* The launcher of kernels in C (`c_launcher.py`). It uses the stable interface of Python and
   declares its functions, so that no header is needed. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct object object;
typedef struct { const char* name; void* call; int flags; const char* text; } method;

extern object _Py_NoneStruct;
extern object* PyExc_ValueError;
extern object* PyObject_VectorcallMethod(object*, object* const*, size_t, object*);
extern object* PyObject_CallFunctionObjArgs(object*, ...);
extern object* PyObject_Call(object*, object*, object*);
extern object* PyObject_GetAttr(object*, object*);
extern int PyObject_IsTrue(object*);
extern object* PyDict_GetItemWithError(object*, object*);
extern object* PyTuple_New(ptrdiff_t);
extern int PyTuple_SetItem(object*, ptrdiff_t, object*);
extern object* PyUnicode_InternFromString(const char*);
extern long long PyLong_AsLongLong(object*);
extern unsigned long long PyLong_AsUnsignedLongLong(object*);
extern int PyBytes_AsStringAndSize(object*, char**, ptrdiff_t*);
extern object* PyErr_Occurred(void);
extern object* PyErr_NoMemory(void);
extern void PyErr_SetString(object*, const char*);
extern void PyErr_Clear(void);
extern object* PyCapsule_New(void*, const char*, void (*)(object*));
extern void* PyCapsule_GetPointer(object*, const char*);
extern object* PyCFunction_NewEx(method*, object*, object*);
extern object* Py_BuildValue(const char*, ...);
extern void Py_IncRef(object*);
extern void Py_DecRef(object*);

typedef struct {
    void *launch_kernel, *get_device, *push_context, *pop_context;
} driver;

/* A launch for some sizes; numbers holds the sizes, then the place of each parameter. Without a
   function: Python launches the kernel for these sizes. */
typedef struct {
    void *function, *context;
    uint32_t programs, threads, shared, hidden;
    int64_t numbers[];
} noted;

enum { MOST = 64 };
enum { PYTHON, PREPARE, STREAM_OF, DEVICE, MODULES, HELD };
enum { ADDRESS, KNOBS, RUNTIME, ENTER, LEAVE, CALLS, WORDS };

static const char* const TEXTS[WORDS] = {
    "data_ptr", "triton.knobs", "runtime", "launch_enter_hook", "launch_exit_hook", "calls"};

typedef struct {
    object *held[HELD], *words[WORDS];
    int32_t device_number, pointers, sizes, next, last;
    char busy;
    driver cuda;
    noted* launches[MOST];
} launcher;

static void drop(object* capsule)
{
    launcher* own = PyCapsule_GetPointer(capsule, 0);
    for (int i = 0; i < HELD; ++i) Py_DecRef(own->held[i]);
    for (int i = 0; i < WORDS; ++i) Py_DecRef(own->words[i]);
    for (int i = 0; i < MOST; ++i) free(own->launches[i]);
    free(own);
}

static int is_for(const noted* each, const launcher* own, const uint64_t* sizes)
{
    return each && !memcmp(each->numbers, sizes, own->sizes * sizeof(int64_t));
}

static noted* find(launcher* own, const uint64_t* sizes)
{
    if (is_for(own->launches[own->last], own, sizes)) return own->launches[own->last];
    for (int i = 0; i < MOST && own->launches[i]; ++i)
        if (is_for(own->launches[i], own, sizes)) { own->last = i; return own->launches[i]; }
    return 0;
}

/* The lock of `launches`, held for a copy of one: it calls neither Python nor the driver. */
static void lock(launcher* own)
{
    while (__atomic_test_and_set(&own->busy, __ATOMIC_ACQUIRE)) {}
}

static void unlock(launcher* own)
{
    __atomic_clear(&own->busy, __ATOMIC_RELEASE);
}

/* Note the launch that Python has prepared for some sizes; return 0, -1 for an error. */
static int note(launcher* own, object* prepared, const uint64_t* sizes)
{
    ptrdiff_t size = sizeof(noted) + (2 * own->sizes + own->pointers) * sizeof(int64_t);
    ptrdiff_t given = size;
    char* data = 0;
    int is_none = prepared == &_Py_NoneStruct;
    if (!is_none && PyBytes_AsStringAndSize(prepared, &data, &given)) return -1;
    if (given != size) {
        PyErr_SetString(PyExc_ValueError, "a noted launch has another number of arguments");
        return -1;
    }
    noted* each = calloc(1, size);
    if (!each) { PyErr_NoMemory(); return -1; }
    if (is_none) memcpy(each->numbers, sizes, own->sizes * sizeof(int64_t));
    else memcpy(each, data, size);
    lock(own);
    noted* old = find(own, (const uint64_t*)each->numbers);
    int at = old ? own->last : own->next;
    if (!old) {
        own->next = (own->next + 1) % MOST;
        old = own->launches[at];
    }
    own->launches[at] = each;
    own->last = at;
    unlock(own);
    free(old);
    return 0;
}

static object* tuple_of(object* const* args, ptrdiff_t count)
{
    object* all = PyTuple_New(count);
    if (!all) return 0;
    for (ptrdiff_t i = 0; i < count; ++i) { Py_IncRef(args[i]); PyTuple_SetItem(all, i, args[i]); }
    return all;
}

static object* by_python(object* function, object* const* args, ptrdiff_t count)
{
    object* all = tuple_of(args, count);
    if (!all) return 0;
    object* result = PyObject_Call(function, all, 0);
    Py_DecRef(all);
    return result;
}

/* Return whether a hook is an empty chain. */
static int is_empty(const launcher* own, object* runtime, int name)
{
    object* hook = PyObject_GetAttr(runtime, own->words[name]);
    object* calls = hook ? PyObject_GetAttr(hook, own->words[CALLS]) : 0;
    int found = calls && PyObject_IsTrue(calls) == 0;
    Py_DecRef(calls);
    Py_DecRef(hook);
    return found;
}

/* Return whether Triton has no hooks on launches now; 0 for hooks of another kind, too. */
static int is_without_hooks(const launcher* own)
{
    object* knobs = PyDict_GetItemWithError(own->held[MODULES], own->words[KNOBS]);
    if (!knobs) return !PyErr_Occurred();
    object* runtime = PyObject_GetAttr(knobs, own->words[RUNTIME]);
    int found = runtime && is_empty(own, runtime, ENTER) && is_empty(own, runtime, LEAVE);
    Py_DecRef(runtime);
    return found;
}

static int is_failed(uint64_t value)
{
    return value == (uint64_t)-1 && PyErr_Occurred();
}

/* Set the value of an object, which is released; return 0, -1 for an error. */
static int take(object* number, uint64_t* value)
{
    if (!number) return -1;
    *value = PyLong_AsUnsignedLongLong(number);
    Py_DecRef(number);
    return is_failed(*value) ? -1 : 0;
}

static int queue(const launcher* own, const noted* each, void* stream, void** parameters)
{
    int device = -1;
    int error = ((int (*)(int*))own->cuda.get_device)(&device);
    int is_other = error || device != own->device_number;
    if (is_other && ((int (*)(void*))own->cuda.push_context)(each->context)) return 1;
    error = ((int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void*, void**, void**))own->cuda.launch_kernel)(
        each->function, each->programs, 1, 1, each->threads, 1, 1, each->shared, stream,
        parameters, 0);
    void* before;
    if (is_other) ((int (*)(void**))own->cuda.pop_context)(&before);
    return error;
}

/* Launch by the sizes of `values`; return 1 if no launch is noted for them, 2 if Python has to. */
static int launch(launcher* own, uint64_t* values, void* stream)
{
    int total = own->pointers + own->sizes;
    int64_t places[total + 1];
    noted each;
    lock(own);
    const noted* found = find(own, values + own->pointers);
    if (found) {
        each = *found;
        memcpy(places, found->numbers + own->sizes, total * sizeof(int64_t));
    }
    unlock(own);
    if (!found) return 1;
    if (!each.function) return 2;
    void* parameters[total + each.hidden + 1];
    for (int i = 0; i < total; ++i) parameters[i] = &values[places[i]];
    for (int i = 0; i < (int)each.hidden; ++i) parameters[total + i] = &values[total];
    return queue(own, &each, stream, parameters) ? 2 : 0;
}

static object* call(object* self, object* const* args, ptrdiff_t count)
{
    launcher* own = PyCapsule_GetPointer(self, 0);
    object* python = own->held[PYTHON];
    int pointers = own->pointers, total = pointers + own->sizes;
    if (count != total) return by_python(python, args, count);
    if (!is_without_hooks(own)) {
        PyErr_Clear(); /* the launcher of Python looks again, and raises */
        return by_python(python, args, count);
    }
    uint64_t values[total + 1], stream, together = 0;
    for (int i = pointers; i < total; ++i) {
        values[i] = (uint64_t)PyLong_AsLongLong(args[i]);
        if (is_failed(values[i])) return 0;
    }
    for (int i = 0; i < pointers; ++i) {
        object* address = PyObject_VectorcallMethod(own->words[ADDRESS], &args[i], 1, 0);
        if (take(address, &values[i])) return 0;
        together |= values[i];
    }
    if (together & 15) return by_python(python, args, count);
    values[total] = 0; /* scratch memory that is not needed */
    object* number =
        PyObject_CallFunctionObjArgs(own->held[STREAM_OF], own->held[DEVICE], (object*)0);
    if (take(number, &stream)) return 0;

    int result = launch(own, values, (void*)stream);
    if (result == 1) {
        object* prepared = by_python(own->held[PREPARE], args, count);
        int error = prepared ? note(own, prepared, values + pointers) : -1;
        Py_DecRef(prepared);
        if (error) return 0;
        result = launch(own, values, (void*)stream);
    }
    return result ? by_python(python, args, count) : Py_BuildValue("");
}

static method METHOD = {"launch", call, 0x80 /* METH_FASTCALL */, 0};

object* make_launcher(object* python, object* prepare, object* stream_of, object* device,
                      object* modules, int device_number, int pointers, int sizes, void** cuda)
{
    object* held[HELD] = {python, prepare, stream_of, device, modules};
    launcher* own = calloc(1, sizeof(launcher));
    if (!own) return PyErr_NoMemory();
    object* capsule = PyCapsule_New(own, 0, drop);
    if (!capsule) { free(own); return 0; }
    for (int i = 0; i < HELD; ++i) { Py_IncRef(held[i]); own->held[i] = held[i]; }
    own->device_number = device_number; own->pointers = pointers; own->sizes = sizes;
    memcpy(&own->cuda, cuda, sizeof(driver));
    int is_whole = 1;
    for (int i = 0; i < WORDS; ++i)
        is_whole &= (own->words[i] = PyUnicode_InternFromString(TEXTS[i])) != 0;
    object* function = is_whole ? PyCFunction_NewEx(&METHOD, capsule, 0) : 0;
    Py_DecRef(capsule);
    return function;
}
