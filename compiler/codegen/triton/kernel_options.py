"""How kernels are made in Triton."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ctk.compiler.options.choices import Options


@dataclass(frozen=True, slots=True)
class TritonOptions(Options):
    """How kernels are made in Triton.

    Attributes:
        autotune: Time a few layouts of each kernel on the device, and keep the fastest.
        debug: Assert that each access is within its buffer; the message names kernel and node.
        exact: No contraction to fused multiply-add.
        interpret: Run kernels in Triton's interpreter, in numpy, on tensors of the CPU.
        sizes: Values of size symbols at the first call, if they are known: a kernel is compiled
            for these before it is called.
        largest: The largest values of size symbols, as far as known; None: there is none.
        ahead_of_time: Kernels are for a package: code for all sizes and alignments.
        chunk: Split every reduction into chunks of this length, as if there were too few rows; 0
            leaves it to the rules.
        row_limit: The longest row that is kept in registers.
    """

    name: ClassVar[str] = "triton"

    autotune: bool = False
    debug: bool = False
    exact: bool = False
    interpret: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    largest: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    ahead_of_time: bool = False
    chunk: int = 0
    row_limit: int = 32768
