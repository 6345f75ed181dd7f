"""Triton's private interface: compile a function for a device, interpret it.

All private names of triton are here, for 3.6 to 3.9. Triton is imported on demand: ctk runs without
it. `cuda_launch.py` launches the compiled code.

Source: `triton/compiler/compiler.py` (`ASTSource`, `compile`); a kernel has, after its arguments,
pointers to scratch memory, null for none.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ctk.compiler.torch_compat.gpu.cuda_launch import MachineCode
from ctk.compiler.torch_compat.gpu.triton_numpy import FUNCTIONS
from ctk.compiler.torch_compat.inductor.patch_sites import replace_attribute
from ctk.compiler.torch_compat.versions import release_of

_KEPT = "kernel.ctk"
"""The name of a kept file, in a folder of its own."""


class TritonMissing(Exception):
    """Triton cannot be used here; the message gives the reason and a remedy."""


def require(*, interpret: bool = False) -> None:
    """Raise if Triton is not installed, or if it was imported in the other mode.

    Triton decides when it is imported whether it compiles or interprets (`TRITON_INTERPRET`).

    Raises:
        TritonMissing: With what to do.
    """
    if find_spec("triton") is None:
        raise TritonMissing("triton is not installed: pip install 'ctk[triton]'")
    if interpret and "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    if is_interpreting() != interpret:
        wanted = "1" if interpret else "0"
        raise TritonMissing(
            "triton was imported to "
            + ("compile" if interpret else "interpret")
            + f" kernels: start the process with TRITON_INTERPRET={wanted}"
        )


def is_interpreting() -> bool:
    """Return whether kernels run in Triton's interpreter in this process."""
    return bool(import_module("triton").knobs.runtime.interpret)


def function_of(source: str, name: str, file: str) -> Any:
    """Return a function of Triton from the source of a module; `file` is unique in tracebacks."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": name, "__file__": file}
    exec(compile(source, file, "exec"), namespace)
    if is_interpreting():
        namespace["libdevice"] = libdevice()
    return namespace[name]


@cache
def libdevice() -> Any:
    """Return Triton's module of mathematical functions; in the interpreter, those of numpy."""
    if not is_interpreting():
        return import_module("triton.language.extra.libdevice")
    return SimpleNamespace(**{name: _interpret(each) for name, each in FUNCTIONS.items()})


def _interpret(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of numpy arrays as one of the interpreter's tensors."""
    tensor = import_module("triton.language").core.tensor
    handle = import_module("triton.runtime.interpreter").TensorHandle

    def call(*args: Any) -> Any:
        first = next(arg for arg in args if isinstance(arg, tensor))
        arrays = [arg.handle.data if isinstance(arg, tensor) else arg for arg in args]
        dtype = first.handle.data.dtype
        with np.errstate(all="ignore"):
            result = np.asarray(function(*arrays)).astype(dtype)
        shaped = next(
            (a for a in args if isinstance(a, tensor) and a.handle.data.shape == result.shape),
            None,
        )
        if shaped is None:
            types = import_module("triton.language")
            kind = types.block_type(first.dtype, list(result.shape))
        else:
            kind = shaped.type
        return tensor(handle(result, first.handle.dtype), kind)

    return call


def interpret(
    function: Any, programs: int, arguments: Sequence[object], *, debug: bool = False
) -> None:
    """Run a function over CPU tensors and integers in numpy, one program after the other."""
    builder = import_module("triton.runtime.interpreter").interpreter_builder
    builder.options = replace(builder.options, debug=debug, sanitize_overflow=False)
    with np.errstate(all="ignore"), _scalars_in_ranges():
        function[(programs,)](*arguments)


@contextmanager
def _scalars_in_ranges() -> Generator[None]:
    """Let the interpreter read a scalar as a bound of `range`.

    The interpreter holds a scalar as an array of one element. Triton 3.6 calls `int` on the array,
    which numpy refuses from 2.4 on; Triton squeezes the array from 3.7 on.
    """
    if release_of(import_module("triton").__version__) >= (3, 7):
        yield
        return

    interpreter = import_module("triton.runtime.interpreter")
    original = interpreter._patch_lang_tensor

    def patch_tensor(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    restore = replace_attribute(interpreter, "_patch_lang_tensor", patch_tensor)
    try:
        yield
    finally:
        restore()


def compile_function(
    function: Any,
    types: Sequence[str],
    aligned: Sequence[bool],
    capability: int,
    options: Mapping[str, object],
) -> MachineCode:
    """Compile a function for a kind of device; no device is needed.

    The stages run here, and not by Triton's `compile`, which writes a file for each of them.

    Args:
        types: Of its arguments, as Triton writes them: `*fp32`, `i32`.
        aligned: For each argument, whether an address or a size is a multiple of 16.
        capability: Of the device, 90 for 9.0.
        options: `num_warps`, `enable_fp_fusion`, `debug`.
    """
    compiler = import_module("triton.compiler.compiler")
    backend, parsed = _backend(capability, tuple(options.items()))
    names = list(function.arg_names)
    attrs = {(n,): [["tt.divisibility", 16]] for n, yes in enumerate(aligned) if yes}
    source = compiler.ASTSource(
        fn=function, signature=dict(zip(names, types, strict=True)), constexprs={}, attrs=attrs
    )
    context = compiler.ir.context()
    compiler.ir.load_dialects(context)
    backend.load_dialects(context)
    helpers = backend.get_codegen_implementation(parsed), backend.get_module_map()
    module: Any = source.make_ir(backend.target, parsed, *helpers, context)
    stages: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
    backend.add_stages(stages, parsed, source.language)
    meta: dict[str, Any] = {"target": backend.target, **vars(parsed)}
    parameters = 0
    for name, stage in stages.items():
        module = stage(module, meta)
        if name == "ptx":
            parameters = _parameters(module, meta["name"])
    if meta["global_scratch_size"]:
        raise RuntimeError(f"{meta['name']} needs scratch memory, which is not given")
    threads, hidden = meta["num_warps"] * 32, parameters - len(names)
    return MachineCode(meta["name"], module, meta["shared"], threads, hidden)


@cache
def _backend(capability: int, options: tuple[tuple[str, object], ...]) -> tuple[Any, Any]:
    """Return Triton's backend for a kind of device, and the options in its form."""
    target = import_module("triton.backends.compiler").GPUTarget("cuda", capability, 32)
    backend = import_module("triton.compiler.compiler").make_backend(target)
    return backend, backend.parse_options(dict(options))


def fingerprint(capability: int, options: tuple[tuple[str, object], ...]) -> str:
    """Return the identity of the compiler with some options: releases, files, and variables."""
    compiler = import_module("triton.compiler.compiler")
    backend, parsed = _backend(capability, options)
    variables = compiler.get_cache_invalidating_env_vars()
    return repr((_tools(), backend.hash(), sorted(vars(parsed).items()), sorted(variables.items())))


@cache
def _tools() -> tuple[object, ...]:
    """Return the release of Triton, and the size and time of its library, which a build changes."""
    triton, library = import_module("triton"), import_module("triton._C.libtriton").__file__
    found = Path(library or "").stat()
    return triton.__version__, found.st_size, found.st_mtime_ns


def find_file(identity: str) -> bytes | None:
    """Return the data of `keep_file` from Triton's cache folder; None without a file."""
    found = _cache_manager(identity).get_file(_KEPT)
    try:
        return None if found is None else Path(found).read_bytes()
    except OSError:
        return None


def keep_file(identity: str, data: bytes) -> None:
    """Write to Triton's cache folder, under a hexadecimal digest, unless the disk is full."""
    with suppress(OSError):
        _cache_manager(identity).put(data, _KEPT)


def _cache_manager(identity: str) -> Any:
    return import_module("triton.runtime.cache").get_cache_manager(identity)


def _parameters(ptx: str, name: str) -> int:
    """Return how many parameters a function of assembly has."""
    matched = re.search(rf"\.entry\s+{re.escape(name)}\s*\((.*?)\)", ptx, re.DOTALL)
    return matched.group(1).count(".param") if matched else 0
