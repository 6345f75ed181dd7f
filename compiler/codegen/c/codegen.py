"""The `c` code generator: kernels in C by the system's compiler, everything else in eager."""

from __future__ import annotations

from ctk.compiler.codegen.c.compile import COptions, compile_kernels
from ctk.compiler.codegen.kernels import Codegen
from ctk.compiler.codegen.schedule.compile import scheduled
from ctk.compiler.codegen.schedule.generator import Generator

GENERATOR = Generator("c", frozenset(("cpu",)), compile_kernels, COptions())

CODEGEN = Codegen("c", scheduled(GENERATOR), suffix=".c")
