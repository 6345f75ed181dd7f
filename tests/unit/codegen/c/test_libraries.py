"""Equal C is compiled once per process, other C is compiled."""

import gc
import os
import threading

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.c import functions, libraries
from ctk.compiler.codegen.c.c_codegen import COptions, compile_kernels
from ctk.compiler.codegen.c.kernel_function import KernelCode
from ctk.compiler.codegen.schedule.generator import CompiledKernel, KernelSetting
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.lower import lower
from ctk.compiler.runtime import c_kernels
from tests.helpers.c_kernels import run_as_c
from tests.helpers.forking import FORKS

X = torch.linspace(-2, 2, 24).reshape(4, 6)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Forget what was compiled before; note the names of functions that are compiled now."""
    names: list[str] = []
    usual = libraries.compile_files

    def compile_files(sources, command, kernels):
        names.extend(name for group in kernels for name in group)
        return usual(sources, command, kernels)

    libraries.forget()
    monkeypatch.setattr(libraries, "compile_files", compile_files)
    return names


def kernels_of(function, options: COptions | None = None) -> list[CompiledKernel]:
    program = lower(make_fx(function, tracing_mode="fake")(X))
    kernels = [step for step in program.steps if isinstance(step, Kernel)]
    return compile_kernels(kernels, program.buffers, options or COptions(), KernelSetting())


def seven(names: str) -> list[KernelCode]:
    """Return a function of each name; it returns 7."""
    return [KernelCode(name, f"int {name}(void) {{ return 7; }}", ()) for name in names]


def test_what_the_system_does_not_load_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a folder from which no code may run; the next generator is asked then."""

    def refuse(_: str) -> None:
        raise OSError("failed to map segment from shared object")

    monkeypatch.setattr(c_kernels.ctypes, "CDLL", refuse)
    libraries.forget()
    with pytest.raises(CodegenUnsupported, match=r"cannot be loaded: failed to map.*\n.*TMPDIR"):
        kernels_of(lambda x: x * 3)


def test_equal_kernels_of_a_graph_are_compiled_once(compiled: list[str]) -> None:
    def layers(x):
        for _ in range(3):
            x = torch.softmax(x.exp(), -1)
        return x

    found = kernels_of(layers)
    assert len(compiled) == len(found) // 3
    assert len({kernel.source for kernel in found}) == len(found)
    torch.testing.assert_close(run_as_c(layers, X), [layers(X)])


def test_the_first_of_equal_functions_took_the_time(compiled: list[str]) -> None:
    first, second = libraries.load(seven("ab"), flags=())
    assert first.seconds > 0.0
    assert second.seconds == 0.0
    assert compiled == ["a"]
    assert second.library.handle[second.name]() == 7


def test_a_later_compile_compiles_only_what_is_new(compiled: list[str]) -> None:
    run_as_c(lambda x: (x.sin(), x * 3), X)
    assert compiled == ["kernel_sin", "kernel_mul"]
    run_as_c(lambda x: (x.cos(), x * 4, x.sin(), x * 3), X)
    assert compiled[2:] == ["kernel_cos", "kernel_mul"]


def test_other_functions_or_flags_are_other_code(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = run_as_c(torch.exp, X)[0]
    for flags in (COptions(flags=("-O1",)), COptions(sanitize=("undefined",))):
        run_as_c(torch.exp, X, options=flags)
    assert len(compiled) == 3
    fault = functions.FUNCTIONS["exp_f32"].replace(
        "exp_f32(float x) {", "exp_f32(float x) { x += 1;"
    )
    monkeypatch.setitem(functions.FUNCTIONS, "exp_f32", fault)
    torch.testing.assert_close(run_as_c(torch.exp, X)[0], right * torch.e)
    assert len(compiled) == 4


def test_libraries_go_when_nobody_needs_them(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "LIMIT", 2)
    closed: list[int] = []
    monkeypatch.setattr(c_kernels, "dlclose", closed.append)
    (first,) = kernels_of(torch.sin)
    for function in (torch.cos, torch.tan, torch.exp):
        kernels_of(function)
    gc.collect()
    assert len(closed) == 1  # of cos
    del first
    gc.collect()
    assert len(closed) == 2
    kernels_of(torch.sin)
    assert compiled == ["kernel_sin", "kernel_cos", "kernel_tan", "kernel_exp", "kernel_sin"]


@FORKS
def test_threads_and_forks_find_the_functions(compiled: list[str]) -> None:
    codes = seven("a")
    threads = [threading.Thread(target=lambda: libraries.load(codes, flags=())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del compiled[:]
    child = os.fork()
    if not child:
        (loaded,) = libraries.load(codes, flags=())
        os._exit(len(compiled) or loaded.library.handle[loaded.name]() - 7)
    assert os.waitpid(child, 0)[1] == 0
