"""The shared library of a package: the functions of its entry points, their kernels, the tables.

Each entry point is a file, so that kernels of two may have one name; one more holds the tables. An
entry point that C cannot run is described with the reason; its file holds its kernels only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ctk.compiler.codegen.c.libraries import beginning
from ctk.compiler.codegen.c.toolchain import command_with, compile_together
from ctk.compiler.packages.c_api import HEADER
from ctk.compiler.packages.c_wrapper.description_tables import (
    description,
    require_known_sizes,
    run_function,
)
from ctk.compiler.packages.c_wrapper.entries import CEntry, NotInC, Weight
from ctk.compiler.packages.c_wrapper.steps import calls_torch, fault_function, function_text
from ctk.compiler.torch_compat.process import c_shim
from ctk.compiler.usercode.process_name import process_name


def sources(
    entries: Sequence[CEntry], weights: Sequence[Weight], *, name: str, features: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files of a library by name, and why C cannot run an entry point, by its name.

    Args:
        name: The versions that made it: `ctk 0.1.0, torch 2.13.0`.

    Raises:
        NotInC: A weight is of a type that ctk.h does not have.
    """
    numbers = {weight.name: number for number, weight in enumerate(weights)}
    files: dict[str, str] = {}
    described: list[CEntry] = []
    for number, entry in enumerate(entries):
        function = run_function(number)
        try:
            text = _file_text(entry, function, numbers)
            described.append(entry)
        except NotInC as error:
            text = _kernels_text(entry, function)
            described.append(replace(entry, refusal=str(error)))
        files[f"entry_{number}.c"] = text
    needs_torch = any(calls_torch(each) for each in described if not each.refusal)
    version = c_shim.version() if needs_torch else ""
    tables = description(described, weights, made_by=name, torch_version=version, features=features)
    files["description.c"] = "\n".join((*beginning([tables], False), _prelude(), tables))
    return files, {each.name: each.refusal for each in described if each.refusal}


def build(files: Mapping[str, str], flags: Sequence[str] = ()) -> bytes:
    """Compile the files of a library.

    Raises:
        CodegenUnsupported: There is no C compiler, or it rejects the code.
    """
    with tempfile.TemporaryDirectory(prefix=f"ctk-c-{process_name()}-") as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        target = Path(folder, "package.so")
        paths = [Path(folder, name) for name in files]
        compile_together(paths, target, command_with(flags), "the C wrapper of a package")
        return target.read_bytes()


def _file_text(entry: CEntry, function: str, weights: Mapping[str, int]) -> str:
    if entry.refusal:
        raise NotInC(entry.refusal)
    require_known_sizes(entry)
    run = function_text(entry, function, weights)
    faults = [fault_function(code) for code in entry.kernels if code.checks]
    return _kernels_text(entry, function, [_prelude(), *faults, run])


def _kernels_text(entry: CEntry, function: str, more: Sequence[str] = ()) -> str:
    """Return the file of an entry point's kernels, and more that calls them."""
    kernels = [code.text for code in entry.kernels]
    has_checks = any(code.checks for code in entry.kernels)
    names = [code.name for code in entry.kernels]
    names += ["read_last_fault"] if has_checks else []
    # Of two entry points, functions may be called alike; the library is one.
    own = "\n".join(f"#define {name} {function}_{name}" for name in names)
    before = beginning([*kernels, *more], has_checks)
    return "\n\n".join((own, *before, *kernels, *more)) + "\n"


def _prelude() -> str:
    """Return the text between kernels and functions: the types of ctk.h, and words for them."""
    return f"#define CTK_PACKAGE_ABI\n{HEADER.read_text(encoding='utf-8')}\n{_WORDS.strip()}\n"


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
