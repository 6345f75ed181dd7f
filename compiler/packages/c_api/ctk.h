/* ctk.h: call a package of ctk from C, in a program without Python and without a compiler.
 *
 *     ctk_error error;
 *     ctk_package* package = ctk_open("model.ctk", &error);
 *     const ctk_entry* entry = ctk_entry_find(package, "forward");
 *     float x[2 * 8] = {...};
 *     ctk_tensor input = ctk_tensor_of(x, CTK_FLOAT32, 2, (int64_t[]){2, 8});
 *     ctk_tensor output;
 *     if (ctk_run(entry, &input, 1, &output, 1, &error)) puts(error.message);
 *     ctk_tensor_free(&output);
 *     ctk_close(package);
 *
 * Compile ctk.c into the program: `cc -std=c11 program.c ctk.c -ldl`. It is for Linux. Where a
 * package calls operators of torch (`ctk_needs_torch`), the program must find libtorch_cpu.so of
 * the version that the package was made with: by LD_LIBRARY_PATH, by a run path, or by
 * `ctk_open_with_torch`. A package of kernels alone needs no torch, but libgomp.so.1 if its kernels
 * use threads.
 *
 * Nothing here prints, exits, or keeps state outside of a package. `ctk_run` may be called by many
 * threads at once, with the same package (unless its graph writes to its weights, which it does in
 * the memory of the process only); opening, binding weights and closing are for one thread.
 * What fails returns a code (or NULL), and tells in `error` (which may be NULL) what, where, and
 * what to do.
 */
#ifndef CTK_H
#define CTK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CTK_ABI_VERSION 1 /* Of this header and of the libraries within packages. */
#define CTK_MAX_RANK 16

typedef enum ctk_status {
    CTK_OK = 0,
    CTK_ERROR_ARGUMENT = 1,    /* An argument of a call: its number, kind, type, shape, memory. */
    CTK_ERROR_FILE = 2,        /* The file cannot be read. */
    CTK_ERROR_CORRUPT = 3,     /* The file is no package, or not as it was written. */
    CTK_ERROR_VERSION = 4,     /* Made for another version of ctk.h or of torch. */
    CTK_ERROR_MACHINE = 5,     /* Made for another processor. */
    CTK_ERROR_LIBRARY = 6,     /* A shared library is missing or lacks a function. */
    CTK_ERROR_UNSUPPORTED = 7, /* The package or the entry point runs from Python only. */
    CTK_ERROR_WEIGHT = 8,      /* A weight was left out of the package, and is not bound. */
    CTK_ERROR_MEMORY = 9,      /* There is no memory. */
    CTK_ERROR_INDEX = 10,      /* An index in the data is out of range, as in eager mode. */
    CTK_ERROR_OPERATOR = 11    /* An operator of torch failed. */
} ctk_status;

typedef struct ctk_error {
    ctk_status status;
    char message[1024];
} ctk_error;

/* Types of elements; the numbers are those of torch. */
typedef enum ctk_dtype {
    CTK_UINT8 = 0,
    CTK_INT8 = 1,
    CTK_INT16 = 2,
    CTK_INT32 = 3,
    CTK_INT64 = 4,
    CTK_FLOAT16 = 5,
    CTK_FLOAT32 = 6,
    CTK_FLOAT64 = 7,
    CTK_BOOL = 11,
    CTK_BFLOAT16 = 15,
    CTK_UINT16 = 27,
    CTK_UINT32 = 28,
    CTK_UINT64 = 29
} ctk_dtype;

/* What an input or output is. A number is a tensor of rank 0: CTK_INT64, CTK_FLOAT64, CTK_BOOL. */
typedef enum ctk_kind {
    CTK_TENSOR = 0, CTK_INT = 1, CTK_FLOAT = 2, CTK_TRUTH = 3, CTK_NOTHING = 4 /* None: data is NULL */
} ctk_kind;

/* A tensor: memory, and how to walk it. Strides count elements.
 *
 * Inputs: `data` is the caller's, `owner` is NULL; set both, or use `ctk_tensor_of`. Outputs: what
 * `data` points to belongs to `owner` until `ctk_tensor_free`; an output that is an input or a
 * weight has no owner, and shares that memory. */
typedef struct ctk_tensor {
    void* data;
    int64_t sizes[CTK_MAX_RANK];
    int64_t strides[CTK_MAX_RANK];
    int32_t rank;
    int32_t dtype;
    struct ctk_storage* owner;
} ctk_tensor;

/* One dimension of an input or output. A fixed one has `size`; others have size -1, the expression
 * that they must equal ("s0", "2*s0"), and the least and greatest size that the package is for. */
typedef struct ctk_dim {
    int64_t size;
    const char* expression;
    int64_t min, max;
} ctk_dim;

typedef struct ctk_info {
    const char* name;
    int32_t kind;
    int32_t dtype;
    int32_t rank;
    int32_t is_written; /* The call writes to this input. */
    const ctk_dim* dims;
} ctk_info;

typedef struct ctk_package ctk_package;
typedef struct ctk_entry ctk_entry; /* An entry point; belongs to its package. */

/* Open a package: check all of it, load its code, map its weights. NULL if it is refused. */
ctk_package* ctk_open(const char* path, ctk_error* error);

/* The same, with the path of libtorch_cpu.so; NULL: wherever the system finds it. */
ctk_package* ctk_open_with_torch(const char* path, const char* torch_library, ctk_error* error);

/* Close a package, when no call runs. What its outputs own stays valid until it is freed. */
void ctk_close(ctk_package* package);

size_t ctk_entry_count(const ctk_package* package);
const ctk_entry* ctk_entry_at(const ctk_package* package, size_t number);
const ctk_entry* ctk_entry_find(const ctk_package* package, const char* name); /* Or NULL. */
const char* ctk_entry_name(const ctk_entry* entry);
const char* ctk_entry_refusal(const ctk_entry* entry); /* Why Python only; NULL: runs from C. */
int ctk_needs_torch(const ctk_package* package);

size_t ctk_input_count(const ctk_entry* entry);
size_t ctk_output_count(const ctk_entry* entry);
const ctk_info* ctk_input_info(const ctk_entry* entry, size_t number);
const ctk_info* ctk_output_info(const ctk_entry* entry, size_t number);

size_t ctk_weight_count(const ctk_package* package);
const ctk_info* ctk_weight_info(const ctk_package* package, size_t number);
int ctk_weight_is_bound(const ctk_package* package, size_t number);

/* Bind a weight, whether it was left out of the package or not. Its memory stays the caller's, and
 * must live, unchanged, until the package is closed or the weight is bound to other memory. */
ctk_status ctk_set_weight(
    ctk_package* package, const char* name, const ctk_tensor* weight, ctk_error* error);

/* Run an entry point. `outputs` is written if it succeeds, and not touched otherwise. */
ctk_status ctk_run(
    const ctk_entry* entry, const ctk_tensor* inputs, size_t input_count,
    ctk_tensor* outputs, size_t output_count, ctk_error* error);

/* Free what an output owns; of others, nothing. */
void ctk_tensor_free(ctk_tensor* tensor);

/* Describe memory of the caller: its elements lie one behind the other, the last dimension first. */
ctk_tensor ctk_tensor_of(void* data, ctk_dtype dtype, int32_t rank, const int64_t* sizes);

size_t ctk_dtype_size(int32_t dtype); /* In bytes; 0: unknown. */

#ifdef CTK_PACKAGE_ABI
/* What the library within a package and ctk.c agree on. Programs need none of it.
 *
 * The library exports `ctk_package_description`. Its functions get a `ctk_call`, through which they
 * reach `ctk_host`: memory, views, operators of torch. They return 0, or 1 once an error is told.
 * A value that is dropped or never made is all zero. */

typedef struct ctk_value {
    ctk_tensor tensor;
    void* handle; /* torch's tensor for exactly this; belongs to the owner. */
} ctk_value;

typedef enum ctk_arg_kind {
    CTK_ARG_NONE, CTK_ARG_TENSOR, CTK_ARG_INT, CTK_ARG_FLOAT, CTK_ARG_STRING, CTK_ARG_LIST
} ctk_arg_kind; /* CTK_ARG_INT: bool, dtype, layout, memory format and device, too. */

typedef struct ctk_arg { /* One argument of an operator. */
    int32_t kind;
    int32_t is_optional; /* Its type in the schema: torch wants a box around the value. */
    int64_t number; /* Or the length of a list. */
    double real;
    const char* text;
    const ctk_value* value;
    const struct ctk_arg* items;
} ctk_arg;

typedef enum ctk_result_kind { CTK_GET_TENSOR, CTK_GET_INT, CTK_GET_FLOAT, CTK_GET_LIST } ctk_result_kind;

typedef struct ctk_result { /* Where one result of an operator goes. */
    int32_t kind;
    int32_t count; /* Of a list: how many tensors. */
    ctk_value* values;
    int64_t* number;
    double* real;
} ctk_result;

typedef struct ctk_call { const struct ctk_host* host; } ctk_call;

typedef struct ctk_host {
    int (*empty)(ctk_call*, ctk_value* out, int32_t dtype, int32_t rank, const int64_t* sizes,
                 const int64_t* strides);
    /* A tensor in the memory of another, `offset` elements behind where that begins. */
    int (*view)(ctk_call*, ctk_value* out, const ctk_value* base, int32_t dtype, int32_t rank,
                const int64_t* sizes, const int64_t* strides, int64_t offset);
    /* The same tensor, or a copy of these strides and this type. */
    int (*fit)(ctk_call*, ctk_value* out, const ctk_value* value, int32_t dtype, int32_t rank,
               const int64_t* sizes, const int64_t* strides);
    /* The same tensor, which is written to: its strides must be these. */
    int (*require)(ctk_call*, ctk_value* out, const ctk_value* value, int32_t dtype, int32_t rank,
                   const int64_t* sizes, const int64_t* strides, const char* name);
    int (*copy)(ctk_call*, const ctk_value* to, const ctk_value* from);
    void (*share)(ctk_value* out, const ctk_value* value); /* Another name of it. */
    void (*drop)(ctk_value*);
    int (*call)(ctk_call*, const char* name, const char* overload, const ctk_arg* args,
                int32_t arg_count, const ctk_result* results, int32_t result_count);
    void* (*function)(ctk_call*, const char* name); /* Of torch's C functions; NULL: missing. */
    void* (*handle)(ctk_call*, const ctk_value*, void** temporary); /* For those. NULL: failed. */
    int (*release)(ctk_call*, void* temporary);
    int (*adopt)(ctk_call*, ctk_value* out, void* handle); /* Owns the handle from here on. */
    int (*refresh)(ctk_call*, ctk_value*); /* torch has resized it. */
    int (*refused)(ctk_call*, const char* name); /* A function of torch failed. */
    int (*fail)(ctk_call*, int32_t status, const char* format, ...);
} ctk_host;

typedef struct ctk_symbol { const char* name; int64_t min, max; } ctk_symbol;

typedef struct ctk_size { /* What a dimension must be: a number, a symbol, or computed of these. */
    int64_t number; /* -1: not a number */
    int32_t symbol; /* -1: not a symbol alone */
    int64_t (*computed)(const int64_t* symbols);
} ctk_size;

typedef struct ctk_input {
    ctk_info info;
    const ctk_size* sizes;
    const ctk_size* number; /* What a number must be; NULL: anything. */
} ctk_input;

typedef struct ctk_guard { /* What must hold for the symbols besides their ranges. */
    const char* text;
    int (*holds)(const int64_t* symbols);
} ctk_guard;

typedef struct ctk_graph { /* An entry point as its library describes it. */
    const char* name;
    const char* refusal;
    const ctk_input* inputs;
    const ctk_info* outputs;
    const ctk_symbol* symbols;
    const ctk_guard* guards;
    const int32_t* weights; /* The numbers of the weights that it uses. */
    int32_t input_count, output_count, symbol_count, guard_count, weight_count;
    int (*run)(ctk_call*, const ctk_value* inputs, const ctk_value* weights, const int64_t* symbols,
               ctk_value* outputs);
} ctk_graph;

typedef struct ctk_weight {
    ctk_info info;
    const int64_t* strides;
    const char* member; /* Of the package; NULL: left out. */
    int64_t offset; /* In bytes, from where the member begins. */
} ctk_weight;

typedef struct ctk_description {
    int32_t abi_version;
    int32_t graph_count, weight_count;
    const char* made_by; /* "ctk 0.1.0, torch 2.13.0" */
    const char* torch_version; /* "2.13.0"; NULL: no operators of torch are called. */
    const char* cpu_features; /* As /proc/cpuinfo calls them, one space between each. */
    const ctk_graph* graphs;
    const ctk_weight* weights;
} ctk_description;
#endif /* CTK_PACKAGE_ABI */

#ifdef __cplusplus
}
#endif
#endif /* CTK_H */
