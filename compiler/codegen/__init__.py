"""Code generation: the table of generators, and the choice among them.

`select.py` asks them in order. `eager` is the ground truth. A new generator is one module with a
`CODEGEN` and one line here.
"""

from ctk.compiler.codegen.eager import CODEGEN as EAGER
from ctk.compiler.codegen.kernels import Codegen
from ctk.compiler.codegen.torchscript.codegen import CODEGEN as TORCHSCRIPT

CODEGENS: tuple[Codegen, ...] = (TORCHSCRIPT, EAGER)
