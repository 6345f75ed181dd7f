"""Library calls of a schedule: which views need none, and that the others stay calls."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.base import BoxedCallable
from ctk.compiler.codegen.c.c_codegen import CODEGEN
from ctk.compiler.codegen.kernels import KernelContext
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering
from ctk.toolkit.compile_log.recorder import Recorder


def compiled(function: Callable[..., Any], *inputs: Tensor, mode: str = "fake") -> BoxedCallable:
    context = KernelContext(CODEGEN, "forward", Numbering(None, Config()))
    gm = make_fx(function, tracing_mode=mode)(*inputs)
    return CODEGEN.compile(gm, list(inputs), context)


def check(function: Callable[..., Any], *inputs: Tensor, mode: str = "fake") -> str:
    """Compare a compiled function with eager; return the schedule as code."""
    run = compiled(function, *inputs, mode=mode)
    expected = function(*inputs)
    for _ in range(2):
        for value, wanted in zip(run(list(inputs)), expected, strict=True):
            torch.testing.assert_close(value, wanted)
            assert value.stride() == wanted.stride()
            assert value.storage_offset() == wanted.storage_offset()
    return run.ctk_source()


def heads(x: Tensor, w: Tensor) -> tuple[Tensor]:
    q, k, v = (torch.relu(x) @ w).view(2, 4, 18).split(6, -1)
    q, k, v = (each.view(2, 4, 2, 3).transpose(1, 2) for each in (q, k, v))
    scores = torch.bmm(q.reshape(4, 4, 3), k.reshape(4, 4, 3).transpose(1, 2))
    return (torch.bmm(scores, v.reshape(4, 4, 3)),)


def test_views_between_calls_are_one_step() -> None:
    source = check(heads, torch.randn(8, 5), torch.randn(5, 18))
    assert "aten_view" not in source
    assert "aten_split" not in source
    assert "aten_transpose" not in source
    assert "_ctk_mm(" in source
    assert "_ctk_bmm(" in source


def test_sizes_that_vary_keep_their_calls() -> None:
    def function(x: Tensor) -> tuple[Tensor]:
        return (x.view(-1, 4).t() @ x.view(-1, 4) + x.shape[0],)

    assert "aten_t_" in check(function, torch.randn(6, 8), mode="symbolic")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.t(), torch.relu(x)),
        lambda x: ((y := x @ x), y.t()),
        lambda x: ((y := x @ x).t(), y[1:]),
    ],
)
def test_results_that_share_memory_stay_views_for_autograd(function: Callable[..., Any]) -> None:
    """Who writes to one of them is noticed by whoever saved the other."""
    x = torch.randn(4, 4)
    run = compiled(function, x)
    first, second = run([x])
    mine, others = (first, second) if first._base is not None else (second, first)
    base = mine._base
    assert base is x or base is others or base is others._base
    before = mine._version
    base.add_(1)
    assert mine._version == before + 1


def test_a_single_view_of_a_product_needs_no_call() -> None:
    source = check(lambda x: ((x @ x).t()[1:],), torch.randn(4, 4))
    assert "aten_t_" not in source


def test_what_is_written_to_is_viewed_by_calls() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor]:
        part = x[1:].t()
        made = part @ y
        x.copy_(x * 2)
        return (made + x[1:].t() @ y,)

    x, y = torch.randn(4, 3), torch.randn(3, 2)
    run = compiled(function, x, y)
    mine = x.clone()
    (value,) = run([mine, y])
    torch.testing.assert_close(value, function(x, y)[0])
    torch.testing.assert_close(mine, x)


def test_other_strides_than_when_traced() -> None:
    x = torch.randn(4, 4)
    run = compiled(lambda x: ((x.t()[1:] @ x).relu(),), x)
    for other in (x.t(), x.repeat(1, 2)[:, ::2]):
        torch.testing.assert_close(run([other])[0], (other.t()[1:] @ other).relu())


def test_vetoed_kernels_read_the_same_views() -> None:
    recorder = Recorder()
    context = KernelContext(CODEGEN, "forward", Numbering(recorder, Config()))
    inputs = [torch.randn(8, 5), torch.randn(5, 18)]
    run = CODEGEN.compile(make_fx(heads, tracing_mode="fake")(*inputs), inputs, context)
    torch.testing.assert_close(run(list(inputs))[0], heads(*inputs)[0])


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_a_function_of_a_product_is_computed_in_the_tensor_of_the_product(mode: str) -> None:
    def layers(x: Tensor, w: Tensor) -> tuple[Tensor]:
        return (torch.nn.functional.gelu(x @ w) @ w,)

    source = check(layers, torch.randn(8, 8), torch.randn(8, 8), mode=mode)
    assert "in_memory_of" not in source
    assert "_ctk_launch_0(mm.data_ptr(), mm.data_ptr()" in source
