"""Launches from C: one call per launch, which knows functions, grids, arguments and streams.

    launch(x, y, s0)
        sizes                  the launch that is noted for them; none: Python prepares one
        x.data_ptr(), ...      all multiples of 16; else the launcher of Python
        stream, device         torch's current stream, and the device of the kernel
        cuLaunchKernel         an error: the launcher of Python, which tries again or raises

Hooks of Triton on launches, which profilers set, are called by the launcher of Python. The C uses
the stable interface of Python and declares its functions, so that no header is needed.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence

from ctk.compiler.torch_compat.gpu import cuda_launch, launch_hooks

SOURCE = r"""
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct object object;
typedef struct { const char* name; void* call; int flags; const char* text; } method;

extern object* PyObject_VectorcallMethod(object*, object* const*, size_t, object*);
extern object* PyObject_CallFunctionObjArgs(object*, ...);
extern object* PyObject_Call(object*, object*, object*);
extern object* PyTuple_New(ptrdiff_t);
extern int PyTuple_SetItem(object*, ptrdiff_t, object*);
extern ptrdiff_t PyList_Size(object*);
extern object* PyUnicode_InternFromString(const char*);
extern long long PyLong_AsLongLong(object*);
extern unsigned long long PyLong_AsUnsignedLongLong(object*);
extern int PyBytes_AsStringAndSize(object*, char**, ptrdiff_t*);
extern object* PyErr_Occurred(void);
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

/* A launch for some sizes; numbers holds the sizes, then the place of each parameter. */
typedef struct {
    void *function, *context;
    uint32_t programs, threads, shared, hidden;
    int64_t numbers[];
} noted;

enum { MOST = 64 };

typedef struct {
    object *python, *prepare, *stream_of, *device, *enter, *leave, *address;
    int32_t device_number, pointers, sizes, next, last;
    char busy;
    driver cuda;
    noted* launches[MOST];
} launcher;

static void drop(object* capsule)
{
    launcher* own = PyCapsule_GetPointer(capsule, 0);
    object* held[] = {own->python, own->prepare, own->stream_of, own->device, own->enter,
                      own->leave, own->address};
    for (int i = 0; i < 7; ++i) Py_DecRef(held[i]);
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

static void lock(launcher* own)
{
    while (__atomic_test_and_set(&own->busy, __ATOMIC_ACQUIRE)) {}
}

static void unlock(launcher* own)
{
    __atomic_clear(&own->busy, __ATOMIC_RELEASE);
}

/* Return 0 for None, 1 for a launch that is noted, -1 without memory. */
static int note(launcher* own, object* bytes)
{
    char* data; ptrdiff_t size;
    if (PyBytes_AsStringAndSize(bytes, &data, &size)) { PyErr_Clear(); return 0; }
    noted* each = malloc(size);
    if (!each) return -1;
    memcpy(each, data, size);
    lock(own);
    noted* old = find(own, (const uint64_t*)each->numbers);
    int at = old ? own->last : own->next;
    if (!old) own->next = (own->next + 1) % MOST;
    free(own->launches[at]);
    own->launches[at] = each;
    own->last = at;
    unlock(own);
    return 1;
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

/* Launch by the sizes of `values`; return 1 if no launch is noted for them, 2 for an error. */
static int launch(launcher* own, uint64_t* values, void* stream)
{
    int total = own->pointers + own->sizes, result = 1;
    lock(own);
    noted* each = find(own, values + own->pointers);
    if (each) {
        const int64_t* places = each->numbers + own->sizes;
        void* parameters[total + each->hidden + 1];
        for (int i = 0; i < total; ++i) parameters[i] = &values[places[i]];
        for (int i = 0; i < (int)each->hidden; ++i) parameters[total + i] = &values[total];
        result = queue(own, each, stream, parameters) ? 2 : 0;
    }
    unlock(own);
    return result;
}

static object* call(object* self, object* const* args, ptrdiff_t count)
{
    launcher* own = PyCapsule_GetPointer(self, 0);
    int pointers = own->pointers, total = pointers + own->sizes;
    if (count != total || PyList_Size(own->enter) || PyList_Size(own->leave))
        return by_python(own->python, args, count);
    uint64_t values[total + 1], together = 0;
    for (int i = pointers; i < total; ++i) {
        values[i] = (uint64_t)PyLong_AsLongLong(args[i]);
        if (values[i] == (uint64_t)-1 && PyErr_Occurred()) return 0;
    }
    for (int i = 0; i < pointers; ++i) {
        object* address = PyObject_VectorcallMethod(own->address, &args[i], 1, 0);
        if (!address) return 0;
        values[i] = PyLong_AsUnsignedLongLong(address);
        Py_DecRef(address);
        together |= values[i];
    }
    if (together & 15) return by_python(own->python, args, count);
    values[total] = 0; /* scratch memory that is not needed */
    object* number = PyObject_CallFunctionObjArgs(own->stream_of, own->device, (object*)0);
    if (!number) return 0;
    void* stream = (void*)PyLong_AsUnsignedLongLong(number);
    Py_DecRef(number);

    int result = launch(own, values, stream);
    if (result == 1) {
        object* made = by_python(own->prepare, args, count);
        int done = made ? note(own, made) : 0;
        if (!done) return made; /* None: Python ran the kernel */
        Py_DecRef(made);
        if (done < 0) return by_python(own->python, args, count);
        result = launch(own, values, stream);
    }
    return result ? by_python(own->python, args, count) : Py_BuildValue("");
}

static method METHOD = {"launch", call, 0x80 /* METH_FASTCALL */, 0};

object* make_launcher(object* python, object* prepare, object* stream_of, object* device,
                      object* enter, object* leave, int device_number, int pointers, int sizes,
                      void** cuda)
{
    launcher* own = calloc(1, sizeof(launcher));
    if (!own) return Py_BuildValue("");
    object* held[] = {python, prepare, stream_of, device, enter, leave};
    for (int i = 0; i < 6; ++i) Py_IncRef(held[i]);
    own->python = python; own->prepare = prepare; own->stream_of = stream_of; own->device = device;
    own->enter = enter; own->leave = leave;
    own->address = PyUnicode_InternFromString("data_ptr");
    own->device_number = device_number; own->pointers = pointers; own->sizes = sizes;
    memcpy(&own->cuda, cuda, sizeof(driver));
    object* capsule = PyCapsule_New(own, 0, drop);
    object* function = PyCFunction_NewEx(&METHOD, capsule, 0);
    Py_DecRef(capsule);
    return function;
}
"""

_HEAD = struct.Struct("=QQIIII")


class CLauncher:
    """The library of `SOURCE`; its owner unloads it, and must outlive the functions.

    Functions do not keep their launcher alive: hold it for the rest of the process.
    """

    def __init__(self, functions: ctypes.PyDLL, owner: object) -> None:
        self._make = functions.make_launcher
        self._make.restype = ctypes.py_object
        self._make.argtypes = [*[ctypes.py_object] * 6, *[ctypes.c_int] * 3, ctypes.c_void_p]
        self._owner = owner

    def function(
        self,
        python: Callable[..., None],
        prepare: Callable[..., bytes | None],
        device: int,
        pointers: int,
        sizes: int,
    ) -> Callable[..., None]:
        """Return a function of tensors and sizes that launches a kernel.

        Args:
            python: Does the same.
            prepare: Returns `note_launch` of the sizes; None if it has run the kernel itself.
        """
        calls = cuda_launch.launch_functions()
        stream_of = cuda_launch.stream_function()
        hooks = launch_hooks.lists()
        return self._make(
            python, prepare, stream_of, device, *hooks, device, pointers, sizes, calls
        )


def note_launch(
    loaded: cuda_launch.Loaded, programs: int, sizes: Sequence[int], places: Sequence[int]
) -> bytes:
    """Return the launch of a kernel for some sizes and aligned addresses.

    Args:
        places: For each parameter, its number among the tensors and sizes of the call.
    """
    head = _HEAD.pack(
        loaded.function, loaded.context, programs, loaded.threads, loaded.shared, loaded.hidden
    )
    return head + struct.pack(f"={len(sizes) + len(places)}q", *sizes, *places)
