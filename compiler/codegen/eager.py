"""The `eager` code generator: takes every graph, optimises nothing. It is the ground truth."""

from ctk.compiler.codegen.in_eager import eager_compile
from ctk.compiler.codegen.kernels import Codegen, one_kernel

CODEGEN = Codegen("eager", one_kernel(eager_compile))
