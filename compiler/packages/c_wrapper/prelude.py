"""The text between kernels and functions: the types of ctk.h, and short words for them."""

from __future__ import annotations

from ctk.compiler.packages.c_api import HEADER

_WORDS = r"""
#define CPU 0xFFFFFFFFLL /* device type 0, no index */
#define DO(function, ...) do { if (ctk->host->function(ctk, __VA_ARGS__)) return 1; } while (0)
#define DROP(value) ctk->host->drop(value)
#define SHARE(out, value) ctk->host->share(out, value)

#define ARGS(count, ...) (const ctk_arg[]){__VA_ARGS__}, count
#define NONE {0}
#define T(address) {.kind = CTK_ARG_TENSOR, .value = address}
#define I(integer) {.kind = CTK_ARG_INT, .number = integer}
#define F(float64) {.kind = CTK_ARG_FLOAT, .real = float64}
#define S(string) {.kind = CTK_ARG_STRING, .text = string}
#define L(count, ...) \
    {.kind = CTK_ARG_LIST, .number = count, .items = (const ctk_arg[]){__VA_ARGS__}}
#define OT(address) {.kind = CTK_ARG_TENSOR, .is_optional = 1, .value = address}
#define OI(integer) {.kind = CTK_ARG_INT, .is_optional = 1, .number = integer}
#define OF(float64) {.kind = CTK_ARG_FLOAT, .is_optional = 1, .real = float64}
#define OS(string) {.kind = CTK_ARG_STRING, .is_optional = 1, .text = string}
#define OL(count, ...) \
    {.kind = CTK_ARG_LIST, .is_optional = 1, .number = count, \
     .items = (const ctk_arg[]){__VA_ARGS__}}

#define GETS(count, ...) (const ctk_result[]){__VA_ARGS__}, count
#define GET(address) {.kind = CTK_GET_TENSOR, .values = address}
#define GET_INT(address) {.kind = CTK_GET_INT, .number = address}
#define GET_FLOAT(address) {.kind = CTK_GET_FLOAT, .real = address}
#define GET_LIST(address, size) {.kind = CTK_GET_LIST, .count = size, .values = address}

#define HANDLES(size, ...) \
    enum { handle_count = size }; \
    void *h[size], *temporary[size]; \
    if (take_handles(ctk, size, (const ctk_value* const[]){__VA_ARGS__}, h, temporary)) return 1
#define RELEASE() release_handles(ctk, handle_count, temporary)
#define REQUIRE_FLOATS(size, ...) \
    if (require_floats(ctk, size, (const ctk_value* const[]){__VA_ARGS__})) return 1

static void release_handles(ctk_call* ctk, int count, void** temporary) {
    for (int i = 0; i < count; ++i) ctk->host->release(ctk, temporary[i]);
}

static int take_handles(ctk_call* ctk, int count, const ctk_value* const* values, void** handles,
                        void** temporary) {
    for (int i = 0; i < count; ++i) {
        handles[i] = ctk->host->handle(ctk, values[i], &temporary[i]);
        if (handles[i] != NULL) continue;
        release_handles(ctk, i, temporary);
        return 1;
    }
    return 0;
}

static int require_floats(ctk_call* ctk, int count, const ctk_value* const* values) {
    for (int i = 0; i < count; ++i)
        switch (values[i]->tensor.dtype) {
            case CTK_FLOAT16: case CTK_BFLOAT16: case CTK_FLOAT32: case CTK_FLOAT64: break;
            default:
                return ctk->host->fail(ctk, CTK_ERROR_UNSUPPORTED,
                    "torch has no C function for this operator and a tensor of integers: load the "
                    "package with ctk.load");
        }
    return 0;
}

static int read_integer(ctk_call* ctk, const ctk_value* value, int64_t* out) {
    const void* data = value->tensor.data;
    switch (value->tensor.dtype) {
        case CTK_INT64: *out = *(const int64_t*)data; return 0;
        case CTK_INT32: *out = *(const int32_t*)data; return 0;
        case CTK_INT16: *out = *(const int16_t*)data; return 0;
        case CTK_INT8: *out = *(const int8_t*)data; return 0;
        case CTK_UINT8: case CTK_BOOL: *out = *(const uint8_t*)data; return 0;
        default:
            return ctk->host->fail(ctk, CTK_ERROR_UNSUPPORTED,
                "a number that the graph reads from a tensor is not an integer: load the package "
                "with ctk.load");
    }
}

static int give_number(ctk_call* ctk, ctk_value* out, int64_t number) {
    DO(empty, out, CTK_INT64, 0, NULL, NULL);
    *(int64_t*)out->tensor.data = number;
    return 0;
}
"""


def prelude() -> str:
    """Return the text before the functions of a wrapper."""
    return f"#define CTK_PACKAGE_ABI\n{HEADER.read_text(encoding='utf-8')}\n{_WORDS.strip()}\n"
