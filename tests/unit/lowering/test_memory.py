"""Memory planning: the order that it relies on, the memory of the library, and the peak."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
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


def planned(function, *inputs: Tensor) -> list[str]:
    """Return the rules that memory planning applies; the values are those of eager."""
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    rules: list[str] = []
    program = plan_memory(lower(gm), lambda rule, _: rules.append(rule) is None)
    found, eager = run_program(gm, program, inputs, check=True), function(*inputs)
    for mine, expected in zip(found, eager, strict=True):
        torch.testing.assert_close(mine, expected)
    return rules


X, W = torch.randn(4, 4), torch.randn(4, 4)
IMAGE, KERNEL = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, w: (torch.mm(x, w).relu() @ w,), "in place mm -> relu"),
        (lambda x, w: ((torch.mm(x, w) + x).exp().sum(),), "in place mm -> add"),
        (lambda x, w: ((torch.addmm(x[0], x, w).t() * 2) @ w,), "in place addmm -> mul"),
        (
            lambda x, w: ((p := torch.mm(x, w)).sin(), torch.mm(p, w).cos() @ w),
            "in place mm_1 -> cos",
        ),
        (
            lambda x, w: (torch.mm(x, w).view(2, 2, 4).relu().view(4, 4) @ w,),
            "in place mm -> relu",
        ),
        (
            lambda x, w: (torch.mm((p := torch.mm(x, w).sin().split(2))[0], w), p[1] @ w),
            "in place mm -> sin",
        ),
    ],
)
def test_an_epilogue_runs_in_the_memory_of_its_product(function, expected) -> None:
    assert expected in planned(function, X, W)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (p := torch.mm(x, w), p.relu()),  # returned
        lambda x, w: ((p := torch.mm(x, w)).relu(), p[:2]),  # a part is returned
        lambda x, w: ((p := torch.mm(x, w)).relu(), p.view(torch.int32).sum()),
        lambda x, w: (torch.mm(x, w).sum(0),),
        lambda x, w: (torch.mm(x, w).half(),),  # other bytes
        lambda x, w: (torch.mm(x, w).flip(0),),  # other elements
        lambda x, w: (torch.kthvalue(torch.mm(x, w), 1, keepdim=True)[0].expand(4, 4).relu(),),
    ],
)
def test_memory_that_others_see_is_not_taken(function) -> None:
    assert not [rule for rule in planned(function, X, W) if rule.startswith("in place mm ")]


def test_a_convolution_is_finished_in_place() -> None:
    def block(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = torch.convolution(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        return ((y * 2).relu() + 1,)

    (rule, *_) = planned(block, IMAGE, KERNEL)
    assert rule == "in place convolution -> mul"


def test_memory_is_not_kept_where_that_raises_the_peak() -> None:
    """`a` is dead while the large tensors are alive, and as large as the last result."""

    def function(x: Tensor, large: Tensor) -> tuple[Tensor, ...]:
        a = torch.mm(x.sin(), x)
        rows = torch.mm(large.sin() + a.sum(), large)
        return (torch.mm(rows.sum().expand(4, 4).cos(), x),)

    rules = planned(function, X.double(), torch.randn(64, 64).double())
    assert not [rule for rule in rules if rule.startswith("reuse sin ")]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.norm, self.head = nn.BatchNorm2d(4, track_running_stats=False), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.one(x)).relu()
        y = (self.two(y) + x).relu().mean((2, 3))
        return self.head(y).tanh() + y


@pytest.mark.parametrize("is_training", [False, True])
def test_a_compiled_network_in_place(is_training: bool) -> None:
    torch.manual_seed(0)
    model = Block().train(is_training).requires_grad_(is_training)
    compiled = torch.compile(model, backend="ctk", dynamic=True, options={"cache": False})
    for size in (5, 7):
        x = torch.randn(2, 4, size, size)
        found, expected = compiled(x), model(x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(compiled(x), found)
        if is_training:
            mine, theirs = (
                torch.autograd.grad(each.square().sum(), list(model.parameters()))
                for each in (found, expected)
            )
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def of_parts(x: Tensor, w: Tensor) -> Tensor:
    p = (x @ w).sin()
    parts = torch.view_as_complex(p.view(8, 4, 2))
    return (p.view(8, 4, 2) * parts.real.flip(0).unsqueeze(-1) + 1).view(8, 8) @ w


def of_words(x: Tensor, w: Tensor) -> Tensor:
    p = x @ w
    return (p + p.view(torch.int32).flip(0).float() * 1e-9).sin() @ w


@pytest.mark.parametrize("function", [of_parts, of_words])
def test_memory_that_the_kernel_reads_through_a_view_is_not_taken(function) -> None:
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    found = torch.compile(function, backend="ctk")(x, w)
    torch.testing.assert_close(found, function(x, w))
