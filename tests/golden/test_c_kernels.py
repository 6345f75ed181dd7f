"""The C of kernels, each beside its loop IR."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.c.kernel_printer import kernel_code
from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.lower import lower
from ctk.compiler.lowering.text import kernel_text

X, Y = torch.ones(64, 768), torch.ones(768)

FUNCTIONS = {
    "add_gelu": (lambda x, y: torch.nn.functional.gelu(x + y), (X, Y)),
    "layer_norm": (lambda x, y: torch.nn.functional.layer_norm(x, (768,), y, y), (X, Y)),
    "softmax_bfloat16": (lambda x: torch.softmax(x, -1), (X.bfloat16(),)),
    "sum_all": (lambda x: x.sum(), (torch.ones(1_000_000),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_source(name: str, golden) -> None:
    function, inputs = FUNCTIONS[name]
    program = lower(make_fx(function, tracing_mode="fake")(*inputs))
    parts: list[str] = []
    for step in program.steps:
        assert isinstance(step, Kernel)
        code = kernel_code(step, program.buffers, name=f"kernel_{step.name}")
        parts += [kernel_text(step), code.text]
    golden(f"c/{name}.txt", "\n\n".join(parts) + "\n")
