"""Code generation: the table of generators, and the choice among them.

A generator takes an ATen graph and returns a boxed callable, or refuses (`CodegenUnsupported`):
`select.py` then asks the next one of `Config.fallback`. `eager` takes every graph, and is the
ground truth for all others.

    base.py, kernels.py     the contract: boxed callables, `Codegen`, kernels to number and to veto
    select.py               the choice, the log line of a refusal, the observer of calls
    eager*.py               the graph as it stands, operator after operator
    torchscript/            the whole graph as one TorchScript function
    schedule/               shared by `c` and `triton`: program -> units -> schedule -> callable
    c/, triton/             kernels of the loop IR as C, and as Triton
    packing.py              weights in the layout of oneDNN, for all generators

`c` and `triton` differ only in how a kernel becomes text and code. Both lower the graph
(`compiler/lowering`), print each kernel and compile all in parallel. Library calls run between them
as eager runs them. The result is data (`runtime.Schedule`), so that the cache and packages can
store it, and a process that loads it needs no compiler.

Kernels rather than graphs are the unit of debugging. Each has a name that is the same in every
compile (`forward.relu`); a vetoed one runs its nodes in eager, and an observed one reports the
values it returns. That is why a kernel records its nodes, and why the order of kernels must not
depend on vetoes. Without an observer a compiled graph has nothing around it.

A new generator is one module with a `CODEGEN` and one line here.
"""

from ctk.compiler.codegen.c.c_codegen import CODEGEN as C
from ctk.compiler.codegen.c.c_codegen import GENERATOR as C_GENERATOR
from ctk.compiler.codegen.eager import CODEGEN as EAGER
from ctk.compiler.codegen.kernels import Codegen
from ctk.compiler.codegen.schedule.generator import KernelOptions
from ctk.compiler.codegen.torchscript.torchscript_codegen import CODEGEN as TORCHSCRIPT
from ctk.compiler.codegen.triton.triton_codegen import CODEGEN as TRITON
from ctk.compiler.codegen.triton.triton_codegen import GENERATOR as TRITON_GENERATOR
from ctk.compiler.options.choices import Options

CODEGENS: tuple[Codegen, ...] = (C, TRITON, TORCHSCRIPT, EAGER)

CODEGEN_OPTIONS: tuple[Options, ...] = (
    KernelOptions(),
    C_GENERATOR.options,
    TRITON_GENERATOR.options,
)
"""The options of generators, which `Config.passes` has by their names."""
