"""Records of a compile that other parts of torch read: each is as with torch's own backends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor
from torch._dynamo.utils import counters
from torch.fx import GraphModule

from ctk.compiler.backend import ctk as backend
from ctk.compiler.torch_compat.dynamo.dynamo_api import find_backend

Make = Callable[[], tuple[Tensor, ...]]


def guards(function: Any, make: Make, compile_: Any) -> list[str]:
    """Return the guards on inputs that a compile gives to Dynamo."""
    found: list[str] = []

    def spy(gm: GraphModule, inputs: Any) -> Any:
        run = compile_(gm, inputs)
        context: Any = torch._guards.TracingContext.get()
        found.extend(map(repr, context.guards_context.aotautograd_guards))
        return run

    torch._dynamo.reset()
    torch.compile(function, backend=spy, dynamic=True)(*make())
    return found


def write(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    return b * 2


def overlapping() -> tuple[Tensor, ...]:
    base = torch.zeros(16)
    return base[:6], base[4:]


def apart() -> tuple[Tensor, ...]:
    base = torch.zeros(16)
    return base[:3], base[4:]


def equal() -> tuple[Tensor, ...]:
    base = torch.zeros(16)
    return base[2:6], base[2:6]


@pytest.mark.parametrize("make", [overlapping, apart, equal])
def test_guards_on_inputs_that_share_memory(make: Make, cache: Path) -> None:
    wanted = guards(write, make, find_backend("aot_eager"))
    assert wanted
    for _ in range(2):
        assert guards(write, make, backend) == wanted


def test_each_trace_is_counted() -> None:
    """DDPOptimizer reads the count of the traces."""
    torch._dynamo.reset()
    before = counters["aot_autograd"]["total"]
    torch.compile(lambda x: x.sin(), backend=lambda *a: backend(*a, options={"cache": False}))(
        torch.ones(3)
    )
    assert counters["aot_autograd"]["total"] == before + 1


def test_a_graph_that_is_retained(cache: Path) -> None:
    """AOTAutograd refuses that where a backward reuses the memory of saved tensors."""
    for _ in range(2):
        torch._dynamo.reset()
        x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
        loss = torch.compile(lambda x, w: torch.relu(x @ w).sin().sum(), backend=backend)(x, w)
        loss.backward(retain_graph=True)
        assert w.grad is not None
        once = w.grad.clone()
        loss.backward()
        torch.testing.assert_close(w.grad, 2 * once)
