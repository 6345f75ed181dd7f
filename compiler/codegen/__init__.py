"""Code generation: the table of generators, and the choice among them.

`select.py` asks them in order. `eager` is the ground truth. A new generator is one module with a
`CODEGEN` and one line here.
"""

from ctk.compiler.codegen.c.c_codegen import CODEGEN as C
from ctk.compiler.codegen.c.c_codegen import GENERATOR as C_GENERATOR
from ctk.compiler.codegen.eager import CODEGEN as EAGER
from ctk.compiler.codegen.kernels import Codegen
from ctk.compiler.codegen.schedule.options import KernelOptions
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
