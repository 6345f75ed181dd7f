"""Memory planning: the order that it relies on."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.schedule.units import units_of
from ctk.compiler.lowering.interpret import run_program
from ctk.compiler.lowering.lower import lower
from ctk.compiler.lowering.memory import plan_memory


def test_memory_is_shared_in_the_order_in_which_kernels_run() -> None:
    """A copy runs with what is added to it, so what it reads is needed until then."""

    def added(x: Tensor, y: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        return x.exp().index_add(0, at, y), torch.mm(y.sin(), y)

    inputs = torch.randn(4, 4), torch.randn(4, 4), torch.tensor([2, 0, 2, 1])
    gm = make_fx(added, tracing_mode="fake")(*inputs)
    program = lower(gm)
    exp, copy, add, sin, mm = program.steps
    apart = replace(program, steps=[exp, copy, sin, mm, add])
    planned = plan_memory(apart, lambda *_: True)
    assert planned.steps == [exp, sin, mm, copy, add]
    assert [unit.name for unit in units_of(planned)] == ["exp", "sin", "mm", add.name]
    found = run_program(gm, planned, inputs, check=True)
    for mine, eager in zip(found, added(*inputs), strict=True):
        torch.testing.assert_close(mine, eager)
