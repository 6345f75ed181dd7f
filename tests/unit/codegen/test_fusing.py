"""TorchScript's fuser computes some operators unlike eager: graphs with them run without it.

The fuser works on GPUs; on the CPU it is switched on here, with torch's evaluator of its kernels.
"""
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false
# The switches of the fuser have no public names.

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from ctk.compiler.codegen.torchscript.fusing import DTYPES, OPERATORS, why_unfused
from ctk.compiler.codegen.torchscript.torchscript_codegen import ts_compile
from tests.helpers.codegen_graphs import RUNS, functional

X = torch.tensor([0.5, 1.5, -0.5, -2.5, 2.5, math.inf, math.nan, 3.0])
Y = torch.tensor([2.0, -math.inf, 1e30, 7.0, -3.0, 2.0, 1.0, 0.25])

UNLIKE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "aten::round": lambda x, y: (x * 1.0).round(),
    "aten::frac": lambda x, y: (x * 1.0).frac(),
    "aten::hardshrink": lambda x, y: torch.nn.functional.hardshrink(x * 1.0),
    "aten::remainder": lambda x, y: (x * 1.0).remainder(y),
    "aten::lerp": lambda x, y: (x * 1.0).lerp(y, 1.0),
}


@pytest.fixture
def fuses_on_cpu() -> Iterator[None]:
    fuses = torch._C._jit_can_fuse_on_cpu()
    needs_llvm = torch._C._jit_get_te_must_use_llvm_cpu()
    torch._C._jit_override_can_fuse_on_cpu(True)
    torch._C._jit_set_te_must_use_llvm_cpu(False)
    yield
    torch._C._jit_override_can_fuse_on_cpu(fuses)
    torch._C._jit_set_te_must_use_llvm_cpu(needs_llvm)


def assert_every_call_is_eager(fn: Callable[..., Tensor], *inputs: Tensor) -> None:
    gm = functional(fn, *inputs)
    compiled = ts_compile(gm, inputs)
    for _ in range(RUNS):
        got = compiled(list(inputs))
        torch.testing.assert_close(got, gm(*inputs), equal_nan=True, rtol=1e-6, atol=0)


@pytest.mark.usefixtures("fuses_on_cpu")
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    assert_every_call_is_eager(UNLIKE[name], X, Y)


@pytest.mark.usefixtures("fuses_on_cpu")
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8(dtype: torch.dtype) -> None:
    assert_every_call_is_eager(lambda x: (x * 1.5).clamp(-3, 3).to(dtype).to(torch.float32), X)


@pytest.mark.parametrize("dtype", sorted(DTYPES, key=str))
def test_a_graph_with_such_elements_anywhere(dtype: torch.dtype) -> None:
    graph = functional(lambda x: x.to(dtype).to(torch.float32) + 1, X).graph
    assert str(dtype) in (why_unfused(graph, [X]) or "")
    assert str(dtype) in (why_unfused(functional(lambda x: x, X).graph, [X.to(dtype)]) or "")


def test_other_graphs_may_be_fused() -> None:
    graph = functional(lambda x: (x.sigmoid() * 2 - x).floor(), X).graph
    assert why_unfused(graph, [X]) is None
